"""Runner of benchmark items: one task for one model, in a fresh copy of the task's files.

    starting files → work tree → agent → commit → checks, expectations → outcome

Each check becomes a score; all must pass. Hidden tests are put into the tree once the agent has ended, and
decide by test ID. A task without checks passes if the agent changed anything, and has the score `unchecked`.
"""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.agent import WorkDone
from proctor.errors import WorkspaceError, blame
from proctor.expect import unmet_expectations
from proctor.formatting import clipped
from proctor.item import FAIL, TIMEOUT, Item, digest_of
from proctor.json_values import JsonMap
from proctor.processes import ProgramResult, undisturbed
from proctor.runner import Outcome, Services
from proctor.runners.worktree import iteration_of, run_command, run_session
from proctor.score import Score
from proctor.session import Event, Message
from proctor.workspace.commit import Committed
from proctor.workspace.hidden_tests import lay_tests
from proctor.workspace.setup import WorkSession, in_thread
from proctor.workspace.starting_files import copy_over, starting_repository, stored_files
from proctor.workspace.test_reports import Grade, grade, read_results, with_report

UNCHECKED = "unchecked"
"""Score name of a task without checks."""
HIDDEN_TESTS = "hidden tests"
"""Score name of the tests of a commit: the share of them that passes."""
CHANGED_TESTS = "changed tests"
"""Score name for changes of an agent to tests, settings of test runners and CI; it decides nothing."""


@dataclass(frozen=True, slots=True)
class BenchmarkRunner:
    """Runs benchmark items."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """One attempt: see the top of this module."""
        capture = _AnswerCapture(services)
        repo = item.settings.get("repo") or await _repository(item, services)
        item = replace(item, settings={**item.settings, "repo": str(repo)})
        return await run_session(item, replace(services, record=capture.record), capture.judge)


async def _repository(item: Item, services: Services) -> Path:
    start = item.settings.get("start")
    return await starting_repository(
        services.home, Path(start) if start else None, item.details["start"], services.environment
    )


class _AnswerCapture:
    """Captures the agent's last message: the answer that is checked."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._last_message = ""

    def record(self, event: Event) -> None:
        if isinstance(event, Message) and event.role == "assistant" and event.content.strip():
            self._last_message = event.content
        self._services.record(event)

    async def judge(self, session: WorkSession, done: WorkDone, committed: Committed) -> Outcome:
        """Run every check, record each as a score, and return the outcome."""
        details, result = session.item.details, {"iterSha": committed.sha}
        ran = list[_CheckRun]()
        gave_up = bool(done.failure) and not committed.sha
        try:
            if not gave_up:
                ran += await _check(session)
        finally:
            session.services.record(iteration_of(session, done, committed, _combined(ran)))
        if gave_up:
            return Outcome(
                status=FAIL, reason="agent_failed", error=clipped(done.failure, 2000), result=result
            )
        broken = [one.problem for one in ran if one.problem]
        if expect := details.get("expect"):
            broken += unmet_expectations(expect, self._answer(done), session.services.score)
        if any(one.finished.timed_out for one in ran):
            return Outcome(status=TIMEOUT, reason="timeout", error="; ".join(broken), result=result)
        if broken:
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(broken), result=result)
        if not ran and not expect:
            return _unchecked(session, done, committed, result)
        return Outcome(result=result)

    def _answer(self, done: WorkDone) -> str:
        # An agent in this process returns its last message; the output of a program contains more.
        returned = done.output if done.exit_code is None else ""
        return returned or self._last_message or done.output


@dataclass(frozen=True, slots=True)
class _CheckRun:
    """A finished check."""

    criterion: str
    command: str
    finished: ProgramResult
    grade: Grade | None = None
    """Of hidden tests; None: the exit code decides."""

    @property
    def problem(self) -> str:
        """Why it failed, in one line; empty: it passed."""
        finished, name = self.finished, self.criterion or f"`{clipped(self.command, 80)}`"
        if finished.timed_out:
            return f"{name}: still running when its time was over"
        if self.grade is not None:
            return "" if self.grade.passed else f"{name}: {clipped(self.grade.summary, 400)}"
        if finished.exit_code == 0:
            return ""
        lines = [line.strip() for line in finished.output.splitlines() if line.strip()]
        last = f": {clipped(lines[-1], 200)}" if lines else ""
        return f"{name}: exited with {finished.exit_code}{last}"


async def _check(session: WorkSession) -> list[_CheckRun]:
    checks: Sequence[dict[str, str]] = session.item.details.get("checks") or ()
    if digest := session.item.details.get("hidden"):
        return [await _run_hidden_tests(session, digest)]
    if checks and (digest := session.item.details.get("checkFiles")):
        await _lay_out_check_files(session, digest)
    ran = []
    for check in checks:
        finished = await run_command(session, check["command"], "check")
        one = _CheckRun(check["criterion"], check["command"], finished)
        passed = not one.problem
        session.services.score(
            Score(
                evaluator=f"check: {one.criterion or one.command}",
                value=1.0 if passed else 0.0,
                label="pass" if passed else "fail",
                explanation=one.problem or "exited with 0",
                evaluator_digest=digest_of([one.command, session.item.details.get("checkFiles", "")])[:16],
            )
        )
        ran.append(one)
    return ran


async def _run_hidden_tests(session: WorkSession, digest: str) -> _CheckRun:
    """Put the hidden tests into the tree, run them, and record their grade and what the agent changed."""
    archive, name = Path(session.item.settings["hidden"]), f"hidden-{uuid.uuid4().hex[:12]}"
    place = session.home / "tmp"
    with blame(WorkspaceError, "putting the hidden tests into the tree"):
        place.mkdir(parents=True, exist_ok=True)
        hidden, changed = await in_thread(lay_tests, archive, digest, session.tree, place / name)
    report = place / f"{name}.report"
    finished = await run_command(session, with_report(hidden.command, report), "check")
    with blame(WorkspaceError, "reading the report of the hidden tests"):
        results = await in_thread(read_results, hidden.command, report, finished.exit_code)
        report.unlink(missing_ok=True)
    graded = grade(results, hidden.fail_to_pass, hidden.pass_to_pass)
    session.services.score(
        Score(
            evaluator=HIDDEN_TESTS,
            value=graded.value,
            label="pass" if graded.passed and not finished.timed_out else "fail",
            explanation=clipped(graded.summary, 1000),
            evaluator_digest=digest[:16],
        )
    )
    session.services.score(
        Score(
            evaluator=CHANGED_TESTS,
            label="changed" if changed else "unchanged",
            explanation=clipped(", ".join(changed), 1000) if changed else "no test, test setting or CI file",
        )
    )
    if changed:
        session.note(f"the agent changed tests, their settings or CI; restored: {', '.join(changed[:50])}")
    return _CheckRun(HIDDEN_TESTS, hidden.command, finished, graded)


async def _lay_out_check_files(session: WorkSession, digest: str) -> None:
    """Replace the agent's versions: a check that the agent can rewrite proves nothing."""
    home, folder = session.services.home, Path(session.item.settings["checkFiles"])
    with blame(WorkspaceError, "putting the check's files into the tree"):
        files = await stored_files(home, folder, digest)
        await undisturbed(asyncio.to_thread(copy_over, files, session.tree.folder))


def _combined(ran: Sequence[_CheckRun]) -> ProgramResult | None:
    """All checks as one, for the iteration: the exit code is that of the first failed one."""
    if not ran:
        return None
    first = next((one.finished for one in ran if one.problem), ran[0].finished)
    return replace(
        first,
        output="\n".join(f"$ {one.command}\n{one.finished.output}" for one in ran),
        duration_ms=sum(one.finished.duration_ms for one in ran),
    )


def _unchecked(session: WorkSession, done: WorkDone, committed: Committed, result: JsonMap) -> Outcome:
    changed = bool(committed.sha)
    session.services.score(
        Score(
            evaluator=UNCHECKED,
            label="changed" if changed else "unchanged",
            explanation="nothing checks this task; it passes when anything was changed",
        )
    )
    if done.failure:
        return Outcome(status=FAIL, reason="agent_failed", error=clipped(done.failure, 2000), result=result)
    if not changed:
        why = "the agent changed nothing, and nothing checks this task"
        return Outcome(status=FAIL, reason="no_changes", error=why, result=result)
    return Outcome(result=result)
