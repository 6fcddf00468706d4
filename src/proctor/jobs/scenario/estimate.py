"""Estimates of calls, tokens and cost of runs, with a mock model and from earlier runs of the scenario."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.batch.estimate import FIGURES, Predicted, PromptShare, predict
from proctor.errors import ModelError, UsageError
from proctor.jobs.scenario.experiment import Experiment, Variation
from proctor.jobs.scenario.folder import run_from_store
from proctor.json_values import changed
from proctor.model import Answer, Request
from proctor.models import ModelRouter
from proctor.report.estimate import assumption_note
from proctor.scenario.definition import Scenario, scenario_of
from proctor.scenario.prompts import HUMAN, ScenarioModels
from proctor.scenario.simulation import ScenarioSimulation
from proctor.scenario.state import ScenarioCall, ScenarioTurn
from proctor.session import CHARACTERS_PER_TOKEN, ModelCall, Usage
from proctor.stats.intervals import Estimate, mean_cost
from proctor.store import StoreReader, aggregates

DECISION_WORDS, WORLD_WORDS = 150, 250
"""Typical length of a model's decision and of its world state, in words."""


async def estimate_document(experiment: Experiment, models: ModelRouter, read: StoreReader) -> dict[str, Any]:
    """Calls, tokens and cost of an experiment's runs, by variation and in total."""
    name, runs = experiment.loaded.scenario.name, experiment.runs_per_variation
    earlier = earlier_runs(read, name)
    rows = [await _variation(experiment, each, models, earlier) for each in experiment.variations]
    total = {
        "runs": experiment.run_count,
        **{key: [sum(row[key][end] for row in rows) * runs for end in (0, 1)] for key in ("calls", "tokens")},
        "cost_usd": summed_costs(rows, runs),
        "from_earlier_runs": summed_expectations(rows),
    }
    return {"scenario": name, "variations": rows, "total": total, "earlier_runs": past_usage(read, name)}


def past_usage(read: StoreReader, scenario: str) -> dict[str, Any]:
    """Mean usage of the completed runs of a scenario."""
    rows = aggregates.scenario_totals(read, scenario)
    return {
        "runs": len(rows),
        "calls": _mean(mean_cost([float(row["calls"] or 0) for row in rows])),
        "tokens": _mean(mean_cost([float(row["tokensTotal"]) for row in rows])),
        "cost_usd": _mean(mean_cost([row["costUsd"] for row in rows if row["costUsd"] is not None])),
    }


def _mean(estimate: Estimate | Predicted) -> dict[str, float | None]:
    n = estimate.n if isinstance(estimate, Estimate) else estimate.sessions
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high, "n": n}


def earlier_runs(read: StoreReader, scenario: str) -> list[list[PromptShare]]:
    """Usage by role of the completed runs of a scenario, latest first."""
    runs = []
    for row in aggregates.scenario_items(read, scenario):
        (item,) = read.exact_item(row["runId"], row["id"])
        runs.append(shares_of(turn.calls for turn in run_from_store(read, item).turns))
    return [shares for shares in runs if shares]


def shares_of(turns: Iterable[Sequence[ScenarioCall]]) -> list[PromptShare]:
    """Average usage by role and turn. Turns without calls were replayed and are excluded."""
    played = [calls for calls in turns if calls]
    grouped: dict[tuple[str, str], list[ScenarioCall]] = defaultdict(list)
    for calls in played:
        for call in calls:
            grouped[call.who, call.model].append(call)
    return [
        PromptShare(
            who=who,
            model=model,
            calls=len(calls) / len(played),
            input_tokens=sum(call.input_tokens for call in calls) / len(played),
            output_tokens=sum(call.output_tokens for call in calls) / len(played),
        )
        for (who, model), calls in grouped.items()
    ]


async def _variation(
    experiment: Experiment, variation: Variation, models: ModelRouter, earlier: list[list[PromptShare]]
) -> dict[str, Any]:
    """The fewest and most calls of one run of a variation, and the expectation from earlier runs."""
    scenario = scenario_of(changed(experiment.loaded.plain, variation.changes))
    least, most = [await count_calls(scenario, talkative=talkative) for talkative in (False, True)]
    by_turn = [[call for call in most if call.turn == turn + 1] for turn in range(scenario.turns)]

    def price(model: str, tokens_in: float, tokens_out: float) -> float | None:
        return _price_of(model, round(tokens_in), round(tokens_out), models)

    expected = predict(
        earlier,
        shares_of(by_turn),
        turns=scenario.turns,
        runs=experiment.runs_per_variation,
        price=price,
    )
    return {
        "description": variation.description,
        **_counted(least, most, models),
        "from_earlier_runs": expected
        and {
            "runs": expected.runs,
            "a_run": {name: _mean(one) for name, one in expected.one.items()},
            "all_runs": {name: _mean(one) for name, one in expected.everything.items()},
            "notes": [assumption_note(role) for role in expected.assumptions],
        },
    }


def summed_costs(rows: list[dict[str, Any]], runs: int) -> list[float] | None:
    """The cost of all runs, at least and at most; None when a price is unknown."""
    if any(row["cost_usd"] is None for row in rows):
        return None
    return [sum(row["cost_usd"][side] for row in rows) * runs for side in (0, 1)]


def summed_expectations(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The expectation for all runs of all variations; None when there are no earlier runs.

    Variations are estimated from the same earlier runs, so their errors are correlated: interval ends are
    added.
    """
    known = [row["from_earlier_runs"] for row in rows if row["from_earlier_runs"]]
    if len(known) < len(rows):
        return None
    total: dict[str, Any] = {"runs": max(one["runs"] for one in known)}
    for figure in FIGURES:
        parts = [one["all_runs"][figure] for one in known]
        total[figure] = {side: _added([part[side] for part in parts]) for side in ("mean", "low", "high")}
    return total | {"notes": list(dict.fromkeys(note for one in known for note in one["notes"]))}


async def count_calls(scenario: Scenario, *, talkative: bool) -> list[ScenarioCall]:
    """The calls of one run with a mock model, in which actors talk whenever they may, or never."""
    models = ScenarioModels(_MockModel(talkative), lambda _: None, seed=0, at_once=1)
    simulation = ScenarioSimulation(scenario, models, seed=0, now=lambda: "")
    turns: list[ScenarioTurn] = []
    for _ in range(scenario.turns):
        turns.append(await simulation.turn(turns))
    return [call for turn in turns for call in turn.calls]


@dataclass(frozen=True, slots=True)
class _MockModel:
    """Answers every prompt with a text of typical length."""

    talkative: bool

    async def answer(self, request: Request) -> Answer:
        """An answer of the form that the prompt describes."""
        text = self._text(str(request.messages[-1]["content"]))
        characters = sum(len(str(message["content"])) for message in request.messages)
        usage = Usage(
            input_tokens=characters // CHARACTERS_PER_TOKEN + 1,
            output_tokens=len(text) // CHARACTERS_PER_TOKEN + 1,
        )
        return Answer(text=text, call=ModelCall(model=request.model, usage=usage))

    def _text(self, prompt: str) -> str:
        yes = "yes" if self.talkative else "no"
        if "INITIATE_BILATERAL:" in prompt:
            target = prompt.rpartition("Whom you can reach: ")[2].split(".")[0].split(",")[0]
            return f"INITIATE_BILATERAL: {yes}\nTARGET_ACTOR: {target}\nPROPOSED_MESSAGE: {_lorem(40)}"
        if "PROPOSE_COALITION:" in prompt:
            members = prompt.rpartition("Whom you can ask: ")[2].split(".")[0]
            return f"PROPOSE_COALITION: {yes}\nCOALITION_MEMBERS: {members}\nCOALITION_PURPOSE: {_lorem(20)}"
        if "UPDATED STATE:" in prompt:
            return (
                f"UPDATED STATE: {_lorem(WORLD_WORDS)}\nKEY CHANGES: {_lorem(30)}\nCONSEQUENCES: {_lorem(30)}"
            )
        if "VERDICT:" in prompt:
            return "VERDICT: pass\nISSUES:"
        if "DECISION: accept" in prompt:
            return f"DECISION: accept\nREASONING: {_lorem(30)}"
        if "Answer with the value alone" in prompt:
            return "5"
        return f"REASONING: {_lorem(60)}\nACTION: {_lorem(DECISION_WORDS - 60)}"


def _lorem(number: int) -> str:
    return " ".join(["ordinary"] * number)


def _counted(least: list[ScenarioCall], most: list[ScenarioCall], models: ModelRouter) -> dict[str, Any]:
    costs = [_priced(calls, models) for calls in (least, most)]
    return {
        "calls": [len(least), len(most)],
        "tokens": [sum(call.input_tokens + call.output_tokens for call in calls) for calls in (least, most)],
        "cost_usd": None if None in costs else costs,
    }


def _priced(calls: list[ScenarioCall], models: ModelRouter) -> float | None:
    total = 0.0
    for call in calls:
        cost = _price_of(call.model, call.input_tokens, call.output_tokens, models)
        if cost is None:
            return None
        total += cost
    return total


def _price_of(model: str, tokens_in: int, tokens_out: int, models: ModelRouter) -> float | None:
    if model.startswith(HUMAN):
        return 0.0
    try:
        price = models.expected_price(model)
    except ModelError as error:
        raise UsageError(str(error)) from error
    usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
    return None if price is None else price.for_call(usage)[0]


def _added(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
