"""What runs of a scenario are going to take: from earlier runs where there are any, else by rehearsal."""

from dataclasses import dataclass
from typing import Any

from proctor.errors import ModelError, UsageError
from proctor.jobs.scenario.experiment import Experiment
from proctor.model import Answer, Request
from proctor.models import ModelRouter
from proctor.scenario.context import CHARACTERS_PER_TOKEN
from proctor.scenario.definition import Scenario, changed, scenario_of
from proctor.scenario.prompts import ScenarioModels
from proctor.scenario.simulation import ScenarioSimulation
from proctor.scenario.state import ScenarioCall, ScenarioTurn
from proctor.session import ModelCall, Usage
from proctor.stats.estimate import Prediction, PromptShare, parts_of, predict

# Play a scenario with an answering machine, to count what a real run would ask.


# What models were seen to write under these headings: some 150 words a decision, 250 a state of the world.
DECISION_WORDS, WORLD_WORDS = 150, 250


async def rehearse(scenario: Scenario, *, talkative: bool) -> list[ScenarioCall]:
    """The calls of one run in which everyone talks whenever they may, or nobody does."""
    machine = _MockModel(scenario, talkative)
    voices = ScenarioModels(machine, lambda _: None, seed=0, at_once=1)
    simulation = ScenarioSimulation(scenario, voices, seed=0, now=lambda: "")
    turns: list[ScenarioTurn] = []
    for _ in range(scenario.turns):
        turns.append(await simulation.turn(turns))
    return [call for turn in turns for call in turn.calls]


@dataclass(frozen=True, slots=True)
class _MockModel:
    """Answers anything at ordinary length."""

    scenario: Scenario
    talkative: bool

    async def answer(self, request: Request) -> Answer:
        text = self._text(str(request.messages[-1]["content"]))
        asked = sum(len(str(message["content"])) for message in request.messages)
        usage = Usage(
            input_tokens=asked // CHARACTERS_PER_TOKEN + 1,
            output_tokens=len(text) // CHARACTERS_PER_TOKEN + 1,
        )
        return Answer(text=text, call=ModelCall(model=request.model, usage=usage))

    def _text(self, prompt: str) -> str:
        yes = "yes" if self.talkative else "no"
        if "INITIATE_BILATERAL:" in prompt:
            target = prompt.rpartition("Whom you can reach: ")[2].split(".")[0].split(",")[0]
            return f"INITIATE_BILATERAL: {yes}\nTARGET_ACTOR: {target}\nPROPOSED_MESSAGE: {_words(40)}"
        if "PROPOSE_COALITION:" in prompt:
            members = prompt.rpartition("Whom you can ask: ")[2].split(".")[0]
            return f"PROPOSE_COALITION: {yes}\nCOALITION_MEMBERS: {members}\nCOALITION_PURPOSE: {_words(20)}"
        if "UPDATED STATE:" in prompt:
            return (
                f"UPDATED STATE: {_words(WORLD_WORDS)}\nKEY CHANGES: {_words(30)}\nCONSEQUENCES: {_words(30)}"
            )
        if "VERDICT:" in prompt:
            return "VERDICT: pass\nISSUES:"
        if "DECISION: accept" in prompt:
            return f"DECISION: accept\nREASONING: {_words(30)}"
        if "Answer with the value alone" in prompt:
            return "5"
        return f"REASONING: {_words(60)}\nACTION: {_words(DECISION_WORDS - 60)}"


def _words(number: int) -> str:
    return " ".join(["ordinary"] * number)


async def estimates(
    read: Experiment, models: ModelRouter, earlier: list[list[PromptShare]]
) -> list[dict[str, Any]]:
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
    scenario: Scenario,
    rehearsed: list[ScenarioCall],
    earlier: list[list[PromptShare]],
    models: ModelRouter,
    runs: int,
) -> Prediction | None:
    by_turn = [[call for call in rehearsed if call.turn == turn + 1] for turn in range(scenario.turns)]

    def price(model: str, tokens_in: float, tokens_out: float) -> float | None:
        return _price_of(model, round(tokens_in), round(tokens_out), models)

    return predict(earlier, parts_of(by_turn), turns=scenario.turns, runs=runs, price=price)


def _by_rehearsal(least: list[ScenarioCall], most: list[ScenarioCall], models: ModelRouter) -> dict[str, Any]:
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
