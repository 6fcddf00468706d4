"""What runs of a scenario are going to take: from earlier runs where there are any, else by rehearsal."""

from typing import Any

from proctor.analyse.prediction import Part, Prediction, parts_of, predict
from proctor.errors import ModelError, UsageError
from proctor.models import Models
from proctor.plan.experiment import Experiment
from proctor.scenario.changes import changed
from proctor.scenario.definition import Scenario, scenario_of
from proctor.scenario.rehearsal import rehearse
from proctor.scenario.state import Call
from proctor.session import Usage


async def estimates(read: Experiment, models: Models, earlier: list[list[Part]]) -> list[dict[str, Any]]:
    """Each variation: the least and most one run can ask, and what earlier runs lead one to expect."""
    rows = []
    for variation in read.variations:
        scenario = scenario_of(changed(read.loaded.plain, variation.changes))
        least, most = await rehearse(scenario, talkative=False), await rehearse(scenario, talkative=True)
        expected = _expected(scenario, most, earlier, models, read.runs_per_variation)
        rows.append(
            {
                "description": variation.description,
                **_by_rehearsal(least, most, models),
                "from_earlier_runs": expected.document() if expected else None,
            }
        )
    return rows


def summed_costs(rows: list[dict[str, Any]], runs: int) -> list[float] | None:
    """What all runs cost together; None when a price is not known."""
    if any(row["cost_usd"] is None for row in rows):
        return None
    return [sum(row["cost_usd"][side] for row in rows) * runs for side in (0, 1)]


def summed_expectations(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """What all runs of all variations are expected to take; None when there were no earlier ones.

    Variations rest on the same earlier runs, so that their errors go together: the ends are added.
    """
    known = [row["from_earlier_runs"] for row in rows if row["from_earlier_runs"]]
    if len(known) < len(rows):
        return None
    total: dict[str, Any] = {"runs": max(one["runs"] for one in known)}
    for figure in ("calls", "tokens", "cost_usd"):
        parts = [one["all_runs"][figure] for one in known]
        total[figure] = {side: _added([part[side] for part in parts]) for side in ("mean", "low", "high")}
    return total | {"notes": list(dict.fromkeys(note for one in known for note in one["notes"]))}


def _expected(
    scenario: Scenario, rehearsed: list[Call], earlier: list[list[Part]], models: Models, runs: int
) -> Prediction | None:
    by_turn = [[call for call in rehearsed if call.turn == turn + 1] for turn in range(scenario.turns)]

    def price(model: str, tokens_in: float, tokens_out: float) -> float | None:
        return _price_of(model, round(tokens_in), round(tokens_out), models)

    return predict(earlier, parts_of(by_turn), turns=scenario.turns, runs=runs, price=price)


def _by_rehearsal(least: list[Call], most: list[Call], models: Models) -> dict[str, Any]:
    costs = [_priced(calls, models) for calls in (least, most)]
    return {
        "calls": [len(least), len(most)],
        "tokens": [sum(call.input_tokens + call.output_tokens for call in calls) for calls in (least, most)],
        "cost_usd": None if None in costs else costs,
    }


def _priced(calls: list[Call], models: Models) -> float | None:
    total = 0.0
    for call in calls:
        cost = _price_of(call.model, call.input_tokens, call.output_tokens, models)
        if cost is None:
            return None
        total += cost
    return total


def _price_of(model: str, tokens_in: int, tokens_out: int, models: Models) -> float | None:
    if model.startswith("human/"):
        return 0.0
    try:
        price = models.route(model).price
    except ModelError as error:
        raise UsageError(str(error)) from error
    usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
    return None if price is None else price.for_call(usage)[0]


def _added(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
