"""Scenario runner: one run of a multi-actor simulation.

Each finished turn is recorded and written to the run's folder before the next begins; an interrupted run
resumes after its last finished turn, with the same seed.
"""

import json
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from proctor.errors import AttemptError, CostLimit, NotFound, WorkspaceError, blame
from proctor.item import FAIL, Item
from proctor.runner import Outcome, Services
from proctor.runners.judging import judge_scenario
from proctor.scenario import definition
from proctor.scenario.definition import Plain, changed, flattened, scenario_of
from proctor.scenario.prompts import ScenarioModels, run_seed
from proctor.scenario.run_files import read_run, write_run
from proctor.scenario.simulation import ScenarioSimulation
from proctor.scenario.state import (
    COMPLETED,
    FAILED,
    HALTED,
    RUNNING,
    ScenarioRun,
    ScenarioTurn,
    turn_as_plain,
)
from proctor.session import Iteration, Metric, Note, Workspace

RESUMABLE_REASONS = ("interrupted", "aborted", "timeout", "rate_limit", "halted", "cost_limit")
"""Reasons after which a run is halted and can be resumed. After any other it has failed."""
RUN_DETAILS = ("seed", "branch")
"""Details of an item that do not belong to the scenario."""


class _RunFiles:
    """The files of one run."""

    def __init__(self, item: Item, scenario: definition.Scenario) -> None:
        self.folder = Path(item.settings["folder"])
        self.whole = bool(item.settings.get("saveIndividualRuns", True))
        self._scenario = scenario

    def write(self, run: ScenarioRun, *, since: int = 0) -> None:
        with blame(WorkspaceError, f"writing the run to {self.folder}"):
            write_run(self.folder, self._scenario, run, since=since, whole=self.whole)


class _Attempt:
    """One attempt at a run: its state and its models."""

    def __init__(self, item: Item, services: Services, scenario: definition.Scenario) -> None:
        self._item, self._services = item, services
        self.scenario = scenario
        self.files = _RunFiles(item, self.scenario)
        self.run = self._begin()
        limited = bool(item.settings.get("oneCallAtATime"))
        parameters = {"temperature": self.scenario.temperature, "max_tokens": self.scenario.max_tokens}
        self.models = ScenarioModels(
            services.models,
            services.record,
            seed=self.run.seed,
            parameters={name: value for name, value in parameters.items() if value is not None},
            at_once=1 if limited else 16,
        )
        self.simulation = ScenarioSimulation(self.scenario, self.models, seed=self.run.seed, now=self._stamp)

    def _begin(self) -> ScenarioRun:
        """The run at its checkpoint, or a new one."""
        item, settings = self._item, self._item.settings
        fresh = ScenarioRun(
            item_id=item.id,
            label=settings["label"],
            seed=run_seed(item.details, item.repeat),
            total_turns=self.scenario.turns,
            variation_id=settings.get("variationId", 0),
            variation=settings.get("variation", ""),
            started_at=self._stamp(),
        )
        earlier = read_run(self.files.folder)
        if earlier is None or earlier.item_id != item.id:
            return fresh
        return replace(
            earlier, label=fresh.label, status=RUNNING, reason="", error="", ended_at="",
            variation_id=fresh.variation_id, variation=fresh.variation, total_turns=fresh.total_turns,
        )  # fmt: skip

    async def turns(self) -> Outcome:
        """Run the remaining turns."""
        verdict = self.simulation.verdict(self.run)
        while not verdict.is_over:
            turn = await self.simulation.turn(self.run.turns)
            self.run = self.run.with_turn(turn)
            self._record(turn)
            self.files.write(self.run, since=turn.number)
            verdict = self.simulation.verdict(self.run)
        if verdict.halted:
            self.end(HALTED, "validation_failed", verdict.halted)
            return Outcome(status=FAIL, reason="validation_failed", error=verdict.halted)
        if failed := await self._evaluate():
            self.end(FAILED, "checks_failed", "; ".join(failed))
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(failed))
        self.end(COMPLETED, "", "")
        return Outcome()

    async def _evaluate(self) -> Sequence[str]:
        """Apply the experiment's evaluators; the thresholds that the run missed."""
        evaluators = self._item.settings.get("evaluators")
        if not evaluators:
            return ()
        result = await judge_scenario(evaluators, self.scenario, self.run, self._services)
        self.run = replace(self.run, scores=result.scores, judge_calls=(*self.run.judge_calls, *result.calls))
        return result.broken

    def end(self, status: str, reason: str, error: str) -> None:
        """Record the end of the run, with the calls of an unfinished turn."""
        lost, self.models.calls = tuple(self.models.calls), []
        self.run = replace(
            self.run,
            status=status,
            reason=reason,
            error=error,
            ended_at=self._stamp(),
            lost_calls=(*self.run.lost_calls, *lost),
        )
        self.files.write(self.run, since=len(self.run.turns) + 1)

    def _record(self, turn: ScenarioTurn) -> None:
        record = self._services.record
        for name, value in turn.metrics.items():
            record(
                Metric(name=name, value=float(value) if isinstance(value, bool) else value, step=turn.number)
            )
        for issue in turn.issues:
            record(Note(text=f"turn {turn.number}: {issue.check} ({issue.severity}): {issue.text}"))
        # The whole turn, so that the files of a run can be rewritten from the store alone.
        output = json.dumps(turn_as_plain(turn), ensure_ascii=False, separators=(",", ":"))
        record(Iteration(model=self.scenario.world_state_model, output=output))

    def _stamp(self) -> str:
        return self._services.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ScenarioRunner:
    """Executes items that are one run of a scenario."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Execute the run to its end, from its checkpoint."""
        attempt = _Attempt(item, services, await _definition(item, services))
        services.record(Workspace(name=attempt.run.label))
        if attempt.run.turns:
            services.record(Note(text=f"resumed after turn {attempt.run.turns[-1].number}"))
        attempt.files.write(attempt.run)
        try:
            async with services.time_limit(item.settings.get("timeoutSec"), "the run"):
                return await attempt.turns()
        except CostLimit as error:
            attempt.end(HALTED, error.reason, str(error))
            # It resumes after its last turn once its limit is raised.
            return Outcome(status=FAIL, reason=error.reason, error=str(error))
        except AttemptError as error:
            attempt.end(HALTED if error.reason in RESUMABLE_REASONS else FAILED, error.reason, str(error))
            raise
        except CancelledError:
            attempt.end(HALTED, "interrupted", "the run was stopped")
            raise


@lru_cache(maxsize=32)
def _plain(text: str) -> Plain:
    plain: Plain = json.loads(text)
    return plain


async def _text(item: Item, services: Services) -> str:
    path = item.settings["scenario"]
    digest = item.settings.get("scenarioDigest")
    try:
        # Without a digest, the run was made by an earlier version, which kept the scenario in a file only.
        return await services.resource(digest) if digest else Path(path).read_text(encoding="utf-8")
    except (NotFound, OSError, ValueError) as error:
        raise WorkspaceError(f"reading the scenario {path}: {error}") from error


async def _definition(item: Item, services: Services) -> definition.Scenario:
    name = item.settings["scenario"]
    text = await _text(item, services)
    with blame(WorkspaceError, f"reading the scenario {name}"):
        plain = changed(_plain(text), item.settings.get("changes") or {})
        try:
            scenario = scenario_of(plain)
        except ValidationError as error:
            raise WorkspaceError(f"the scenario {name} cannot be played: {error}") from error
    inputs = {name: value for name, value in item.details.items() if name not in RUN_DETAILS}
    if flattened(plain) != inputs:
        raise WorkspaceError(
            f"{name} is not what this run was made from\nResume the experiment from its config."
        )
    return scenario
