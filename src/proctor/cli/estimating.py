"""What runs of a scenario are going to take: played through by an answering machine, and priced."""

from typing import Any

from proctor.errors import ModelError, UsageError
from proctor.models import Models
from proctor.plan.experiment import Experiment
from proctor.scenario.changes import changed
from proctor.scenario.definition import Scenario, scenario_of
from proctor.scenario.rehearsal import rehearse
from proctor.scenario.state import Call
from proctor.session import Usage


async def estimates(read: Experiment, models: Models) -> list[dict[str, Any]]:
    """Calls, tokens and cost of one run of each variation, as the least and the most."""
    rows = []
    for variation in read.variations:
        scenario = scenario_of(changed(read.loaded.plain, variation.changes))
        rows.append({"description": variation.description, **await _estimate(scenario, models)})
    return rows


async def _estimate(scenario: Scenario, models: Models) -> dict[str, Any]:
    least, most = await rehearse(scenario, talkative=False), await rehearse(scenario, talkative=True)
    costs = [_priced(calls, models) for calls in (least, most)]
    return {
        "calls": [len(least), len(most)],
        "tokens": [sum(call.input_tokens + call.output_tokens for call in calls) for calls in (least, most)],
        "cost_usd": None if None in costs else costs,
    }


def _priced(calls: list[Call], models: Models) -> float | None:
    total = 0.0
    for call in calls:
        if call.model.startswith("human/"):
            continue
        try:
            price = models.route(call.model).price
        except ModelError as error:
            raise UsageError(str(error)) from error
        if price is None:
            return None
        usage = Usage(input_tokens=call.input_tokens, output_tokens=call.output_tokens)
        total += price.for_call(usage)[0]
    return total


def summed_costs(rows: list[dict[str, Any]], runs: int) -> list[float] | None:
    """What all runs cost together; None when a price is not known."""
    if any(row["cost_usd"] is None for row in rows):
        return None
    return [sum(row["cost_usd"][side] for row in rows) * runs for side in (0, 1)]
