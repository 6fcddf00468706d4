"""A scenario: one run of a simulation of several actors, turn after turn.

Each finished turn is recorded and written to the run's folder before the next begins; a run that was
cut off goes on behind its last finished turn, with the same seed and so the same luck.

Knows nothing of experiments, variations or the store.
"""

import json
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from proctor.errors import AttemptError, CostLimit, WorkspaceError, blame
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

CUT_OFF = ("interrupted", "aborted", "timeout", "rate_limit", "halted", "cost_limit")
"""Ends after which a run is halted: it can go on. After any other it has failed."""


OF_THE_RUN = ("seed", "branch")
"""What an item's details hold besides the scenario itself."""


class _Files:
    """Where one run is written."""

    def __init__(self, item: Item, scenario: definition.Scenario) -> None:
        self.folder = Path(item.settings["folder"])
        self.whole = bool(item.settings.get("saveIndividualRuns", True))
        self._scenario = scenario

    def write(self, run: ScenarioRun, *, since: int = 0) -> None:
        with blame(WorkspaceError, f"writing the run to {self.folder}"):
            write_run(self.folder, self._scenario, run, since=since, whole=self.whole)


class _Play:
    """One attempt under way: the run as far as it has come, and who is asked."""

    def __init__(self, item: Item, services: Services) -> None:
        self._item, self._services = item, services
        self.scenario = _definition(item)
        self.files = _Files(item, self.scenario)
        self.run = self._begin()
        limited = bool(item.settings.get("oneCallAtATime"))
        parameters = {"temperature": self.scenario.temperature, "max_tokens": self.scenario.max_tokens}
        self.voices = ScenarioModels(
            services.models,
            services.record,
            seed=self.run.seed,
            parameters={name: value for name, value in parameters.items() if value is not None},
            at_once=1 if limited else 16,
        )
        self.simulation = ScenarioSimulation(self.scenario, self.voices, seed=self.run.seed, now=self._stamp)

    def _begin(self) -> ScenarioRun:
        """The run as it was left, or a new one."""
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
        """Play what is left of the run."""
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
        if broken := await self._judged():
            self.end(FAILED, "checks_failed", "; ".join(broken))
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(broken))
        self.end(COMPLETED, "", "")
        return Outcome()

    async def _judged(self) -> Sequence[str]:
        """Have the run judged by those whom its experiment names; which pass marks it missed."""
        wanted = self._item.settings.get("evaluators")
        if not wanted:
            return ()
        said = await judge_scenario(wanted, self.scenario, self.run, self._services)
        self.run = replace(self.run, scores=said.scores, judge_calls=(*self.run.judge_calls, *said.calls))
        return said.broken

    def end(self, status: str, reason: str, error: str) -> None:
        """Write down how it ended, with what a turn that was not finished has cost."""
        lost, self.voices.calls = tuple(self.voices.calls), []
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
        # The whole turn: the files of a run can be written again from these alone.
        written = json.dumps(turn_as_plain(turn), ensure_ascii=False, separators=(",", ":"))
        record(Iteration(model=self.scenario.world_state_model, output=written))

    def _stamp(self) -> str:
        return self._services.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ScenarioRunner:
    """Carries out items that are one run of a scenario."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Play the run to its end, from where it was left."""
        play = _Play(item, services)
        services.record(Workspace(name=play.run.label))
        if play.run.turns:
            services.record(Note(text=f"went on behind turn {play.run.turns[-1].number}"))
        play.files.write(play.run)
        try:
            async with services.time_limit(item.settings.get("timeoutSec"), "the run"):
                return await play.turns()
        except CostLimit as error:
            play.end(HALTED, error.reason, str(error))
            # It goes on behind its last turn once it may spend more.
            return Outcome(status=FAIL, reason=error.reason, error=str(error))
        except AttemptError as error:
            play.end(HALTED if error.reason in CUT_OFF else FAILED, error.reason, str(error))
            raise
        except CancelledError:
            play.end(HALTED, "interrupted", "the run was stopped")
            raise


@lru_cache(maxsize=32)
def _plain(path: str, changed_at: int) -> Plain:  # noqa: ARG001 (a file that was changed is read again)
    found: Plain = json.loads(Path(path).read_text(encoding="utf-8"))
    return found


def _definition(item: Item) -> definition.Scenario:
    path = Path(item.settings["scenario"])
    with blame(WorkspaceError, f"reading the scenario {path}"):
        plain = changed(_plain(str(path), path.stat().st_mtime_ns), item.settings.get("changes") or {})
        try:
            scenario = scenario_of(plain)
        except ValidationError as error:
            raise WorkspaceError(f"the scenario {path} cannot be played: {error}") from error
    asked = {name: value for name, value in item.details.items() if name not in OF_THE_RUN}
    if flattened(plain) != asked:
        raise WorkspaceError(
            f"{path} is not what this run was made from\nResume the experiment from its config."
        )
    return scenario
