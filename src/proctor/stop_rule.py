"""`stop_when:` of a plan: what a run has to decide before it may stop, and what it has decided."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Pydantic describes the states of stop rules over HTTP; those of `typing` only since Python 3.12.
from typing_extensions import TypedDict

from proctor.errors import UsageError
from proctor.formatting import plural

STOP_RULE = "stop_when"
"""The name under which the rule of `stop_when:` is stored with its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """`stop_when:` of a plan: what a run has to decide before it may stop."""

    by: str = "model"
    """The factor whose levels are compared."""
    metric: str = "success"
    decided: bool = False
    """Every level is compared with the baseline."""
    baseline: str = ""
    """Empty: the first level of the plan."""
    margin: float | None = None
    """A level that is shown to be less than this worse is decided too."""
    width: float | None = None
    """The interval of every level is at most this wide."""
    ranks: int | None = None
    """Number of first places to separate from all others; 0: every pair."""
    confidence: float = 0.95
    scale: tuple[float, float] = (0.0, 1.0)
    """The ends of a score's scale."""
    unit: str = "task"
    """What is one observation: `task`, the mean of its repeats, or `repeat`, each by itself."""


class StopInterval(TypedDict):
    """A level of the compared factor, with an interval that is valid at any time."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    tasks: int
    """Finished tasks that count."""
    isUndecided: bool


class StopDecision(TypedDict):
    """The state of one goal of a rule after the finished tasks."""

    outcome: str
    """`open`: undecided."""
    reason: str
    undecided: list[str]


class StopState(TypedDict):
    """What the rule of a run has decided, as the JSON of summaries and pages."""

    by: str
    metric: str
    confidence: float
    unit: str
    isDecided: bool
    taskCount: int
    decisions: list[StopDecision]
    intervals: list[StopInterval]


def stop_lines(state: StopState) -> list[str]:
    """What `stop_when` has decided, for people: a line for each level, and one for each goal."""
    width = max(len(each["name"]) for each in state["intervals"])
    lines = [
        f"{state['metric']} by {state['by']} with {100 * state['confidence']:g}% intervals that are valid at "
        "any time:"
    ]
    for interval in state["intervals"]:
        low, high = interval["low"], interval["high"]
        limits = "no interval yet" if low is None or high is None else f"{low:.3g} to {high:.3g}"
        value = "–" if interval["value"] is None else f"{interval['value']:.3g}"
        tasks = plural(interval["tasks"], state["unit"])
        lines.append(f"  {interval['name']:<{width}}  {value}  ({limits}), {tasks}")
    lines += [
        f"{'undecided' if decision['outcome'] == 'open' else 'decided'}: {decision['reason']}"
        for decision in state["decisions"]
    ]
    return lines


def make_stop_rule(settings: Mapping[str, object] | None) -> StopRule | None:
    """The rule from the checked settings of a plan; None: there are none."""
    return None if settings is None else StopRule(**settings)  # type: ignore[arg-type]


def read_stop_rule(settings: Mapping[str, object] | str | None) -> StopRule | None:
    """Check a rule that is given in Python, or as `by=model,width=0.1`. Raises `UsageError`.

    None: there is none.
    """
    if not settings:
        return None
    # pydantic takes a tenth of a second to load, and few runs have a rule.
    from pydantic import ValidationError

    from proctor.plan.validate import StopWhen, stop_settings

    values = dict(_parsed(settings) if isinstance(settings, str) else settings)
    if isinstance(values.get("scale"), tuple):
        values["scale"] = list(values["scale"])  # type: ignore[call-overload]
    try:
        StopWhen.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("stop_when", *first["loc"])))
        known = ", ".join(StopWhen.model_fields)
        problem = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"`{place}`: {problem}\nIt may have: {known}.") from error
    return make_stop_rule(stop_settings(values))


def _parsed(text: str) -> Iterator[tuple[str, object]]:
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UsageError(f"`{part.strip()}` is not NAME=VALUE\nWrite, for example: by=model,width=0.1")
        if name == "scale":
            yield name, [_number(end) for end in value.split(":")]
        else:
            yield name, _number(value)


def _number(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value
