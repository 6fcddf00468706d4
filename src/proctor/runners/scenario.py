"""Scenario runner: one run of a multi-actor simulation.

Each finished turn is recorded as a whole; an interrupted run resumes after its last one, with the same seed.
"""

import json
from dataclasses import replace
from functools import lru_cache

from pydantic import ValidationError

from proctor.errors import CostLimit, ModelError, NotFound, WorkspaceError, blame
from proctor.item import FAIL, Item
from proctor.json_values import changed
from proctor.model import Answer, Request
from proctor.runner import Outcome, Services
from proctor.runners._judging import judge_scenario
from proctor.scenario.definition import Plain, Scenario, flattened, run_inputs, scenario_of
from proctor.scenario.prompts import HUMAN, ScenarioModels, run_seed
from proctor.scenario.simulation import ScenarioSimulation
from proctor.scenario.state import ScenarioRun, ScenarioTurn, turn_as_plain
from proctor.session import Iteration, Metric, ModelCall, Note, Workspace
from proctor.validity import InvalidCounter, record_again

RUN_DETAILS = ("seed", "branch")
"""Details of an item that do not belong to the scenario."""


class ScenarioRunner:
    """Executes items that are one run of a scenario."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Execute the run to its end, from its checkpoint."""
        scenario = await _definition(item, services)
        counter = InvalidCounter(services.record)
        services = replace(services, record=counter.record)
        run = _begin(item, services, scenario)
        services.record(Workspace(name=run.label))
        if run.turns:
            services.record(Note(text=f"resumed after turn {run.turns[-1].number}"))
            record_again(run.invalid, services.record)
            counter.take()
        try:
            async with services.time_limit(item.settings.get("timeoutSec"), "the run"):
                return await _execute(run, scenario, item, services, counter)
        except CostLimit as error:
            # It resumes after its last turn once its limit is raised.
            return Outcome(status=FAIL, reason=error.reason, error=str(error))


class ModelsAndPeople:
    """The models of one run, with people behind the names `human/ACTOR`.

    Answers become part of later prompts and of files, so secrets are removed from them here.
    """

    def __init__(self, services: Services) -> None:
        self._services = services

    async def answer(self, request: Request) -> Answer:
        """The answer of the person or of the model that the request names."""
        services = self._services
        if not request.model.startswith(HUMAN):
            answer = await services.models.answer(request)
            return replace(answer, text=services.redact(answer.text))
        actor = request.model.removeprefix(HUMAN)
        text = await services.ask_person(actor, str(request.messages[-1]["content"]))
        if not text:
            raise ModelError(f"nobody answered for {actor}")
        call = ModelCall(model=request.model, cost_usd=0.0, price_source="free")
        return Answer(text=services.redact(text), call=call)


def _begin(item: Item, services: Services, scenario: Scenario) -> ScenarioRun:
    """The run at its checkpoint, or a new one."""
    checkpoint = services.checkpoint
    return ScenarioRun(
        item_id=item.id,
        label=item.settings["label"],
        seed=run_seed(item.details, item.repeat),
        total_turns=scenario.turns,
        turns=checkpoint.turns if isinstance(checkpoint, ScenarioRun) else (),
        variation=item.settings.get("variation", ""),
    )


async def _execute(
    run: ScenarioRun, scenario: Scenario, item: Item, services: Services, counter: InvalidCounter
) -> Outcome:
    """Run the remaining turns, then the evaluators."""
    parameters = {"temperature": scenario.temperature, "max_tokens": scenario.max_tokens}
    models = ScenarioModels(
        ModelsAndPeople(services),
        services.record,
        seed=run.seed,
        parameters={name: value for name, value in parameters.items() if value is not None},
        at_once=1 if item.settings.get("oneCallAtATime") else 16,
    )
    simulation = ScenarioSimulation(
        scenario,
        models,
        seed=run.seed,
        now=lambda: services.now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    )
    while not (verdict := simulation.verdict(run)).is_over:
        turn = replace(await simulation.turn(run.turns), invalid=counter.take())
        run = run.with_turn(turn)
        _record(turn, scenario, services)
    if verdict.halted:
        return Outcome(status=FAIL, reason="validation_failed", error=verdict.halted)
    if evaluators := item.settings.get("evaluators"):
        failures = await judge_scenario(evaluators, scenario, run, services)
        if failures:
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(failures))
    return Outcome()


def _record(turn: ScenarioTurn, scenario: Scenario, services: Services) -> None:
    for name, value in turn.metrics.items():
        number = float(value) if isinstance(value, bool) else value
        services.record(Metric(name=name, value=number, step=turn.number))
    for issue in turn.issues:
        text = f"turn {turn.number}: {issue.check} ({issue.severity}): {issue.text}"
        services.record(Note(text=text))
    # The whole turn: the run resumes from it, and its files are written from it.
    output = json.dumps(turn_as_plain(turn), ensure_ascii=False, separators=(",", ":"))
    services.record(Iteration(model=scenario.world_state_model, output=output))


@lru_cache(maxsize=32)
def _plain(text: str) -> Plain:
    plain: Plain = json.loads(text)
    return plain


async def _definition(item: Item, services: Services) -> Scenario:
    name = item.settings["scenario"]
    try:
        # The job stores the scenario of a run of an earlier version under its name.
        text = await services.resource(item.settings.get("scenarioDigest", name))
    except NotFound as error:
        raise WorkspaceError(f"reading the scenario {name}: {error}") from error
    with blame(WorkspaceError, f"reading the scenario {name}"):
        plain = changed(_plain(text), item.settings.get("changes") or {})
        try:
            scenario = scenario_of(plain)
        except ValidationError as error:
            raise WorkspaceError(f"the scenario {name} cannot be played: {error}") from error
    inputs = {name: value for name, value in item.details.items() if name not in RUN_DETAILS}
    if inputs not in (run_inputs(plain, item.settings.get("changes") or ()), flattened(plain)):
        raise WorkspaceError(
            f"{name} is not what this run was made from\nResume the experiment from its config."
        )
    return scenario
