"""Runner of benchmark items: one task for one model, in a fresh copy of the task's files.

    starting files → work tree → agent → commit → checks, expectations → outcome

Each check becomes a score; all must pass. Hidden tests run in a fresh tree with the agent's commits once it
has ended, and decide by test ID. A task without checks ends as `unchecked` if the agent changed anything.
A task with steps runs the agent again for each, in the same tree; one with a second try runs it again with
the output of the failed checks.
"""

import asyncio
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.agent import WorkDone
from proctor.errors import WorkspaceError, blame, blame_agent
from proctor.evaluators.expect import ASSERT, CheckedAnswer, check_expectations, unchecked_score
from proctor.formatting import clipped
from proctor.item import ERROR, FAIL, TIMEOUT, UNCHECKED, Item, digest_of
from proctor.json_values import JsonMap, as_map, as_number, as_text, maps_in, texts_in
from proctor.processes import ProgramResult, undisturbed
from proctor.processes.error_lines import error_line
from proctor.runner import Outcome, Services
from proctor.runners._judging import facts_of
from proctor.runners.worktree import (
    NOT_RUN,
    commit_and_publish,
    gave_up,
    iteration_of,
    never_runs,
    outcome_of_failure,
    run_agent,
    run_command,
    run_session,
    set_up,
)
from proctor.score import Score
from proctor.session import Event, Message
from proctor.workspace import beneath
from proctor.workspace.commit import Committed
from proctor.workspace.hidden_tests import (
    carry_work,
    digest_of_archive,
    lay_patch,
    lay_tests,
    lines_about_runner,
    read_archive,
)
from proctor.workspace.setup import WorkSession, fresh_session, in_thread, remove_fresh
from proctor.workspace.starting_files import (
    Files,
    copy_over,
    files_of,
    image_repository,
    starting_repository,
    stored_files,
    write_texts,
)
from proctor.workspace.test_reports import (
    REPORT_VARIABLE,
    REWARD_VARIABLE,
    Verdict,
    grade,
    read_results,
    verdict_by_report,
    verdict_by_reward,
    with_report,
)
from proctor.workspace.worktree import restore_files

HIDDEN_TESTS = "hidden tests"
"""Score name of the tests of a commit: the share of them that passes."""
CHANGED_TESTS = "changed tests"
"""Score name for changes of an agent to tests, settings of test runners and CI; it decides nothing."""


@dataclass(frozen=True, slots=True)
class BenchmarkRunner:
    """Runs benchmark items."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """One attempt, as the module docstring describes."""
        capture = _AnswerCapture(services)
        repo = item.settings.get("repo") or await _repository(item, services)
        item = replace(item, settings={**item.settings, "repo": str(repo)})
        return await run_session(
            item, replace(services, record=capture.record), capture.judge, _lay_out_places
        )


async def _lay_out_places(session: WorkSession) -> None:
    """Make the folders that programs of the task see at absolute paths, before the agent."""
    if "logs" in (session.item.details.get("places") or {}).values():
        for name in ("agent", "verifier", "artifacts"):
            beneath.make_folder(session.tree.place, f"{session.logs.name}/{name}")
    if session.item.settings.get("solution"):
        with blame(WorkspaceError, "putting the reference solution beside the tree"):
            solution = await _task_files(session.services, session.item.settings["solution"])
            assert solution is not None
            beneath.make_folder(session.tree.place, "solution")
            if isinstance(solution, Path):
                await undisturbed(asyncio.to_thread(copy_over, solution, session.tree.place, "solution"))
            else:
                write_texts(solution, session.tree.place, "solution")


async def _repository(item: Item, services: Services) -> Path:
    if image := item.settings.get("image"):
        if services.driver_files:
            raise WorkspaceError("a task with an image runs only on the driver's machine: use --engine local")
        return await image_repository(services.home, image, item.details["start"], services.environment)
    files, digest = files_of(item.settings.get("start")), item.details["start"]
    if services.driver_files:
        return await services.driver_files.starting_repository(files, digest)
    return await starting_repository(services.home, files, digest, services.environment)


async def _task_files(services: Services, setting: object) -> Files | None:
    """The files of a task that a setting names, on this machine; None: none."""
    files = files_of(setting)
    if isinstance(files, Path) and services.driver_files:
        return await services.driver_files.fetch(files)
    return files


class _AnswerCapture:
    """Captures the agent's last message: the answer that is checked."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._last_message = ""

    def record(self, event: Event) -> None:
        """Record an event, and keep the last message of the assistant: the answer."""
        if isinstance(event, Message) and event.role == "assistant" and event.content.strip():
            self._last_message = event.content
        self._services.record(event)

    async def judge(self, session: WorkSession, done: WorkDone, committed: Committed) -> Outcome:
        """Run every check, record each as a score, and return the outcome."""
        details = session.item.details
        first = _Round(details.get("checks") or (), details.get("checkFiles", ""), "checkFiles")
        ran, committed, done = await self._rounds(session, first, done, committed)
        result = {"iterSha": committed.sha}
        if ran is None:
            return outcome_of_failure(done, committed)
        broken = [one.problem for one in ran if one.problem]
        if await _never_ran(session, committed, ran, first):
            return Outcome(status=ERROR, reason=WorkspaceError.reason, error="; ".join(broken), result=result)
        expect, checked = details.get("expect"), CheckedAnswer([], [])
        if expect:
            answer, facts = self._answer(done), None
            if ASSERT in expect:
                sandbox = session.item.settings.get("sandbox")
                facts = await facts_of(as_map(expect, ASSERT), answer, session.services, sandbox)
            checked = check_expectations(expect, answer, session.services.score, facts)
            broken += checked.unmet
        if any(one.finished.timed_out for one in ran):
            return Outcome(status=TIMEOUT, reason="timeout", error="; ".join(broken), result=result)
        if broken:
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(broken), result=result)
        if not ran and not expect:
            return _unchecked(session, done, committed, result)
        if checked.unchecked:
            session.services.score(unchecked_score(checked))
            return Outcome(reason=UNCHECKED, result=result, is_answer_checked=True)
        return Outcome(result=result, is_answer_checked=bool(expect))

    async def _rounds(
        self, session: WorkSession, current: "_Round", done: WorkDone, committed: Committed
    ) -> "tuple[list[_CheckRun] | None, Committed, WorkDone]":
        """Check the agent's work, and run it again as the item says: a second try, then each step.

        None in place of the checks: the agent gave up.
        """
        details = session.item.details
        steps: Sequence[JsonMap] = details.get("steps") or ()
        has_given_up = gave_up(done, committed)
        ran = await _checked(session, current, done, committed, has_given_up=has_given_up)
        if has_given_up:
            return None, committed, done
        if details.get("secondTry") and any(one.problem for one in ran):
            await _remove_check_files(session, current)
            done = await run_agent(session, second_prompt(session.item.prompt, _output_of(ran)))
            committed = _later(committed, await undisturbed(commit_and_publish(session)))
            ran = await _checked(session, current, done, committed)
        prompts, rewards = [session.item.prompt], [_reward(ran)]
        every, minimum = list(ran), details.get("minReward")
        for number, step in enumerate(steps):
            if minimum is not None and rewards[-1] < minimum:
                session.note(f"step {number + 2} was not run: reward {rewards[-1]:g} is below {minimum:g}")
                break
            await _remove_check_files(session, current)
            current = _Round(maps_in(step, "checks"), as_text(step, "checkFiles"), f"checkFiles{number}")
            await _add_step_files(session, step, number)
            done = await run_agent(session, _step_prompt(prompts, step))
            committed = _later(committed, await undisturbed(commit_and_publish(session)))
            ran = await _checked(session, current, done, committed)
            prompts.append(str(step["prompt"]))
            every += ran
            rewards.append(_reward(ran))
            minimum = step.get("minReward")
        if steps and every:
            value = rewards[-1] if details.get("reward") == "final" else sum(rewards) / (len(steps) + 1)
            session.services.score(
                Score(evaluator="reward", value=value, explanation=f"of {len(rewards)} steps")
            )
        return every, committed, done

    def _answer(self, done: WorkDone) -> str:
        # An agent in this process returns its last message; the output of a program contains more.
        returned = done.output if done.exit_code is None else ""
        return returned or self._last_message or done.output


SECOND_TRY = """{prompt}

Your changes so far are in this folder, and these are the results of the tests:

{output}

The tests are correct. Fix the code so that they pass."""
"""Prompt of the second try."""
SHOWN_OUTPUT = 20_000
_TIMINGS = re.compile(r"\bin \d+(?:\.\d+)?\s?m?s\b|\(\d+(?:\.\d+)?\s?m?s\)")


def second_prompt(prompt: str, output: str) -> str:
    """The prompt of the second try, with the output of the failed checks."""
    return SECOND_TRY.format(prompt=prompt, output=clipped(_TIMINGS.sub("", output), SHOWN_OUTPUT))


def _output_of(ran: "Sequence[_CheckRun]") -> str:
    return "\n".join(one.finished.output or one.problem for one in ran if one.problem)


def _step_prompt(earlier: Sequence[str], step: JsonMap) -> str:
    if not step.get("continues"):
        return str(step["prompt"])
    requests = "\n\n".join(earlier)
    return f"These requests are done; the results are in this folder:\n\n{requests}\n\nNow: {step['prompt']}"


def _later(earlier: Committed, committed: Committed) -> Committed:
    """The later commit, unless it contains nothing new."""
    return committed if committed.sha else earlier


@dataclass(frozen=True, slots=True)
class _Round:
    """The checks of one run of the agent."""

    checks: Sequence[JsonMap]
    files_digest: str
    setting: str
    """Setting with the path of the files."""


@dataclass(frozen=True, slots=True)
class _CheckRun:
    """A finished check."""

    criterion: str
    command: str
    finished: ProgramResult
    verdict: Verdict | None = None
    """None: the exit code decides."""

    @property
    def problem(self) -> str:
        """Why it failed, in one line; empty: it passed."""
        finished, name = self.finished, self.criterion or f"`{clipped(self.command, 80)}`"
        if finished.timed_out:
            return f"{name}: still running when its time was over"
        if self.verdict is not None:
            return "" if self.verdict.passed else f"{name}: {self.verdict.explanation}"
        if finished.exit_code == 0:
            return ""
        line = error_line(finished.output, most=200)
        return f"{name}: exited with {finished.exit_code}{f': {line}' if line else ''}"

    @property
    def value(self) -> float:
        """From 0 to 1, or the reward."""
        if self.finished.timed_out or self.verdict is None:
            return 0.0 if self.problem else 1.0
        return self.verdict.value


def _reward(ran: Sequence[_CheckRun]) -> float:
    return sum(one.value for one in ran) / len(ran) if ran else 0.0


async def _checked(
    session: WorkSession,
    current: _Round,
    done: WorkDone,
    committed: Committed,
    *,
    has_given_up: bool = False,
) -> list[_CheckRun]:
    """Run the checks of a round, and record the iteration in any case."""
    ran = list[_CheckRun]()
    try:
        if not has_given_up:
            await _check(session, current, ran)
    finally:
        session.services.record(iteration_of(session, done, committed, _combined(ran)))
    return ran


async def _check(session: WorkSession, current: _Round, ran: list[_CheckRun]) -> None:
    details = session.item.details
    if not {"hidden", "testPatch"} & details.keys():
        agent_follows = bool(details.get("steps") or details.get("secondTry"))
        await _run_checks(session, current, ran, agent_follows=agent_follows)
        return
    try:
        with blame(WorkspaceError, "making a fresh tree for the hidden tests"):
            fresh = await fresh_session(session)
        await set_up(fresh, agent_follows=False)
        if digest := as_text(details, "hidden"):
            ran.append(await _run_hidden_tests(session, fresh, digest))
        else:
            patch = str(session.item.settings["testPatch"])
            with blame(WorkspaceError, "putting the hidden tests into the tree"):
                # First without the agent's work: whether the patch applies then is not up to the agent.
                await in_thread(lay_patch, patch, fresh.tree)
            await _carry(session, fresh, texts_in(details, "solutionPaths"))
            with blame_agent("putting the hidden tests into the tree"):
                await in_thread(lay_patch, patch, fresh.tree)
            await _run_checks(fresh, current, ran, agent_follows=False)
    finally:
        await undisturbed(remove_fresh(session))


async def _run_checks(
    session: WorkSession, current: _Round, ran: list[_CheckRun], *, agent_follows: bool
) -> None:
    if current.checks and current.files_digest:
        await _lay_out_check_files(session, current)
    for number, check in enumerate(current.checks, 1):
        command, criterion = str(check["command"]), str(check["criterion"])
        is_last = number == len(current.checks) and not agent_follows
        check_run = await _run_check(session, check, command, criterion, is_last=is_last)
        passed = not check_run.problem
        session.services.score(
            Score(
                evaluator=f"check: {criterion or command}",
                value=check_run.value,
                label="pass" if passed else "fail",
                explanation=check_run.problem
                or (check_run.verdict.explanation if check_run.verdict else "exited with 0"),
                evaluator_digest=digest_of([command, current.files_digest])[:16],
            )
        )
        ran.append(check_run)


async def _run_check(
    session: WorkSession, check: JsonMap, command: str, criterion: str, *, is_last: bool
) -> _CheckRun:
    kind = check.get("verdict")
    seconds = as_number(check, "timeoutSec")
    if not kind:
        finished = await run_command(session, command, "check", time_limit=seconds, is_last=is_last)
        return _CheckRun(criterion, command, finished)
    verifier = session.logs / "verifier"
    report = verifier / "junit.xml"
    with blame(WorkspaceError, "making the folder for the results of checks"):
        # The agent can write there: what it left must not be taken for a result.
        await undisturbed(asyncio.to_thread(_empty_folder, session, verifier))
    inside = next((place for place, folder in session.mounts.items() if folder == session.logs), "")
    logs = f"{inside}/verifier" if inside else str(verifier)
    variables = {REPORT_VARIABLE: str(report), REWARD_VARIABLE: logs}
    finished = await run_command(
        session, command, "check", time_limit=seconds, variables=variables, is_last=is_last
    )
    if kind == "reward":
        return _CheckRun(criterion, command, finished, verdict_by_reward(verifier))
    fixed, intact = texts_in(check, "failToPass"), texts_in(check, "passToPass")
    verdict = verdict_by_report(report, fixed, intact, finished.exit_code)
    return _CheckRun(criterion, command, finished, verdict)


async def _never_ran(
    session: WorkSession, committed: Committed, ran: Sequence[_CheckRun], current: _Round
) -> bool:
    """Whether the program of a check could not be started, and cannot be without the agent's work either."""

    async def lay_out(fresh: WorkSession) -> None:
        if current.checks and current.files_digest:
            await _lay_out_check_files(fresh, current)

    commands = [one.command for one in ran if one.problem and one.finished.exit_code in NOT_RUN]
    return bool(commands) and await never_runs(session, committed, commands[0], lay_out)


def _empty_folder(session: WorkSession, folder: Path) -> None:
    path = session.tree.inside(folder)
    beneath.remove(session.tree.place, path)
    beneath.make_folder(session.tree.place, path)


async def _run_hidden_tests(session: WorkSession, fresh: WorkSession, digest: str) -> _CheckRun:
    """Put the agent's work and the hidden tests into a fresh tree, run them, and record their grade."""
    name = f"hidden-{uuid.uuid4().hex[:12]}"
    archive = await _task_files(session.services, session.item.settings["hidden"])
    assert isinstance(archive, Path)
    if await in_thread(digest_of_archive, archive) != digest:
        raise WorkspaceError(f"{archive} has changed since this was planned; start it again")
    hidden = await in_thread(read_archive, archive)
    await _carry(session, fresh, hidden.solution_paths)
    with blame(WorkspaceError, "putting the hidden tests into the tree"):
        await in_thread(lay_tests, archive, fresh.tree)
        # Beside HOME, which exists only while the tests run.
        await in_thread(beneath.make_folder, fresh.tree.place, fresh.logs.name)
    report = fresh.logs / f"{name}.report"
    finished = await run_command(fresh, with_report(hidden.command, report), "check", is_last=True)
    with blame(WorkspaceError, "reading the report of the hidden tests"):
        results = await in_thread(read_results, hidden.command, report, finished.exit_code)
    graded = grade(results, hidden.fail_to_pass, hidden.pass_to_pass)
    session.services.score(
        Score(
            evaluator=HIDDEN_TESTS,
            value=graded.value,
            label="pass" if graded.passed and not finished.timed_out else "fail",
            explanation=clipped(graded.summary, 1000),
        )
    )
    return _CheckRun(HIDDEN_TESTS, hidden.command, finished, graded.verdict)


async def _carry(session: WorkSession, fresh: WorkSession, part_of_work: Sequence[str]) -> None:
    """Put the agent's work into a fresh tree, and record what it had changed of tests, settings and CI."""
    with blame_agent("putting the agent's work into the fresh tree"):
        changed = await in_thread(carry_work, session.tree, fresh.tree, part_of_work)
        suspicious = await in_thread(lines_about_runner, fresh.tree)
    session.services.score(
        Score(
            evaluator=CHANGED_TESTS,
            label="changed" if changed else "unchanged",
            explanation=clipped(", ".join(changed), 1000) if changed else "no test, test setting or CI file",
        )
    )
    if changed:
        session.note(
            f"the agent changed tests, their settings or CI; this does not count: {', '.join(changed[:50])}"
        )
    if suspicious:
        listed = "; ".join(suspicious[:10])
        session.note(f"read the patch before you trust its result, it refers to the test runner: {listed}")


async def _lay_out_check_files(session: WorkSession, current: _Round) -> None:
    """Replace the agent's versions: a check that the agent can rewrite proves nothing."""
    with blame(WorkspaceError, "reading the check's files"):
        files = await _check_files(session, current)
    with blame_agent("putting the check's files into the tree"):
        await undisturbed(asyncio.to_thread(copy_over, files, session.tree.place, _check_folder(session)))


def _check_folder(session: WorkSession) -> str:
    """The worktree, or the folder that programs see at a path of its own; below the place of the session."""
    if "check_files" not in (session.item.details.get("places") or {}).values():
        beneath.make_folder(session.tree.place, session.tree.folder.name)
        return session.tree.folder.name
    beneath.make_folder(session.tree.place, "check_files")
    return "check_files"


async def _check_files(session: WorkSession, current: _Round) -> Path:
    folder = await _task_files(session.services, session.item.settings[current.setting])
    assert folder is not None
    return await stored_files(session.services.home, folder, current.files_digest)


async def _remove_check_files(session: WorkSession, current: _Round) -> None:
    """Remove the files and results of a check before the agent continues: they are hidden from it."""
    await in_thread(_remove_results, session)
    if not current.files_digest or not current.checks:
        return
    with blame(WorkspaceError, "reading the check's files"):
        files = await _check_files(session, current)
    with blame_agent("removing the check's files from the tree"):
        await undisturbed(asyncio.to_thread(_restore, session, files))


def _remove_results(session: WorkSession) -> None:
    beneath.remove(session.tree.place, "check_files")
    if beneath.is_folder(session.tree.place, session.logs.name):
        _empty_folder(session, session.logs / "verifier")


def _restore(session: WorkSession, files: Path) -> None:
    folder, tree = _check_folder(session), session.tree
    listed = [file for file in files.rglob("*") if not file.is_dir() or file.is_symlink()]
    paths = [file.relative_to(files).as_posix() for file in listed]
    if folder == tree.folder.name:
        # The agent's versions come back.
        restore_files(tree, paths)
        return
    for path in paths:
        beneath.remove(tree.place, f"{folder}/{path}")


async def _add_step_files(session: WorkSession, step: JsonMap, number: int) -> None:
    digest = as_text(step, "files")
    if not digest:
        return
    with blame(WorkspaceError, "reading the step's files"):
        folder = await _task_files(session.services, session.item.settings[f"files{number}"])
        assert folder is not None
        files = await stored_files(session.services.home, folder, digest)
    with blame_agent("putting the step's files into the tree"):
        place, name = session.tree.place, session.tree.folder.name
        await undisturbed(asyncio.to_thread(copy_over, files, place, name))


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
            explanation="nothing checks this task",
        )
    )
    if done.failure:
        return outcome_of_failure(done, committed)
    if not changed:
        why = "the agent changed nothing, and nothing checks this task"
        return Outcome(status=FAIL, reason="no_changes", error=why, result=result)
    return Outcome(reason=UNCHECKED, result=result)
