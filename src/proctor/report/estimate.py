"""Predictions of cost and time in words."""

from proctor.batch.estimate import Forecast, Predicted, RoleAssumption
from proctor.formatting import plural, seconds, usd

NAMED = 3
"""Unknown agents and models that are named; the others are only mentioned."""


def forecast_lines(forecast: Forecast) -> list[str]:
    """The lines of a dry run."""
    cost, time = forecast.cost_usd, forecast.seconds
    bounds = ("", "") if cost.low is None or cost.high is None else (usd(cost.low)[1:], usd(cost.high)[1:])
    lines = [_line("cost", usd(cost.value), bounds, cost, forecast.items)]
    bounds = ("", "") if time.low is None or time.high is None else (seconds(time.low), seconds(time.high))
    return [*lines, _line("time", seconds(time.value), bounds, time, forecast.items)]


def _line(name: str, value: str, bounds: tuple[str, str], predicted: Predicted, items: int) -> str:
    unknown = _names(predicted.unknown)
    if predicted.value is None:
        return f"{name}: unknown, no like sessions in the store" + (f" ({unknown})" if unknown else "")
    basis = f"from {plural(predicted.sessions, 'like session')}"
    if predicted.high == 0:
        text = f"{name}: {value}, {basis}"
    elif bounds[0]:
        text = f"{name}: about {value} ({bounds[0]} to {bounds[1]}), {basis}"
    else:
        text = f"{name}: about {value}, {basis}, too few for an interval"
    if unknown:
        covered = "" if predicted.items == items else f" for {predicted.items:,} of {items:,} items"
        text += f"{covered}; unknown: {unknown}"
    return text


def basis(forecast: Forecast) -> str:
    """A sentence on the data behind a prediction."""
    time = forecast.seconds
    if time.value is None:
        return "Nothing like it was done here before, so nothing can be said."
    number = "an earlier session" if time.sessions == 1 else f"{time.sessions:,} earlier sessions"
    text = f"From {number} of the same agents and models"
    unknown = tuple(dict.fromkeys((*time.unknown, *forecast.cost_usd.unknown)))
    if not unknown:
        return f"{text}."
    some = _names(unknown)
    return f"{text}, for {time.items:,} of {forecast.items:,} items: nothing is known of {some}."


def assumption_note(role: RoleAssumption) -> str:
    """What a prediction takes for granted of a role."""
    if not role.models:
        return f"{role.who} took no part in earlier runs: a guess"
    return f"{role.who} never had {role.model}: counted as if it wrote as much as {', '.join(role.models)}"


def _names(unknown: tuple[str, ...]) -> str:
    return ", ".join(unknown[:NAMED]) + (" and others" if len(unknown) > NAMED else "")
