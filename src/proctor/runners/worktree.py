"""The coding session: an agent in a work tree of its own, and what the check says about its work.

    prepare → setup → agent → commit and publish → check → merge → tidy

The agent's own word and exit code prove nothing: the check decides, or without one the changes.
Whatever ends a session, what was changed until then is committed and published first.

Knows nothing of how agents are found, where records go, or what else is running.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proctor.agent import Assignment, WorkDone
from proctor.errors import AgentError, ProctorError, WorkspaceError, blame
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT, Item
from proctor.processes import ProgramResult, clipped, run, undisturbed
from proctor.runner import Outcome, Services, agent_settings
from proctor.session import Iteration, Message
from proctor.workspace.commit import Committed, keep
from proctor.workspace.merge_queue import MergeRequest, MergeResult, checker, merge
from proctor.workspace.setup import WorkSession, in_thread, prepare, tidy
from proctor.workspace.worktree import leave_out, publish


@dataclass(frozen=True, slots=True)
class WorktreeRunner:
    """Carries out coding items."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """One attempt: see the top of this module."""
        return await run_session(item, services, _judge)


Judge = Callable[[WorkSession, WorkDone, Committed], Awaitable[Outcome]]
"""Says what the work came to, and records the iteration."""


async def run_session(item: Item, services: Services, judge: Judge) -> Outcome:
    """One attempt in a work tree of its own, judged by whoever knows what the item is for."""
    services.record(Message(role="user", content=item.prompt))
    session = await prepare(item, services)
    succeeded = False
    try:
        outcome = await _carry_out(session, judge)
        succeeded = outcome.status == SUCCESS
        return outcome
    finally:
        await undisturbed(tidy(session, succeeded))


async def _carry_out(session: WorkSession, judge: Judge) -> Outcome:
    await _set_up(session)
    try:
        done = await _let_agent_work(session)
        kept = await undisturbed(_keep_and_publish(session))
    except BaseException:
        await undisturbed(_rescue(session))
        raise
    outcome = await judge(session, done, kept)
    if outcome.status == SUCCESS and session.item.settings.get("mergeOnPass") and kept.sha:
        outcome = await _bring_to_base(session, outcome)
    return outcome


async def _set_up(session: WorkSession) -> None:
    command = session.item.details.get("setup")
    if not command:
        return
    finished = await run_command(session, str(command))
    if finished.timed_out:
        raise WorkspaceError(f"`{command}` was still running after {session.time_limit:g} s")
    if finished.exit_code != 0:
        tail = finished.output.strip()[-2000:]
        raise WorkspaceError(f"`{command}` exited with {finished.exit_code}:\n{tail}")
    with blame(WorkspaceError, "looking at what setup made"):
        left = await in_thread(leave_out, session.tree)
    if left:
        session.note(f"not counted as the agent's work, since setup made it: {', '.join(left[:20])}")


async def _let_agent_work(session: WorkSession) -> WorkDone:
    """The agent's own account of its work; a failure it reports is one, not an exception."""
    item, services = session.item, session.services
    agent = services.agent(item.agent, agent_settings(item))
    assignment = Assignment(
        prompt=item.prompt,
        folder=session.tree.folder,
        home=session.home,
        environment=session.environment,
        attempt=services.attempt,
        model=item.model,
        seed=_seed(item),
        models=services.models,
        access=await services.access(agent),
        keep_events=bool(item.settings.get("jsonLogs", True)),
    )
    try:
        async with services.time_limit(session.time_limit, "the agent"):
            return await agent.work(assignment, services.record)
    except AgentError as error:
        return WorkDone(failure=str(error) or "the agent failed")


def _seed(item: Item) -> int | None:
    """Repeats differ, each in a way that can be repeated."""
    seed: Any = item.details.get("seed")
    return None if seed is None else int(seed) + item.repeat - 1


async def _keep_and_publish(session: WorkSession) -> Committed:
    kept = await in_thread(keep, session.tree, session.message)
    for text in kept.notes:
        session.note(text)
    await in_thread(publish, session.tree)
    return kept


async def _rescue(session: WorkSession) -> None:
    """The attempt has been cut short: save what there is, and let what cut it short be the reason."""
    try:
        kept = await _keep_and_publish(session)
    except ProctorError as error:
        session.note(f"what the agent left could not be kept: {error}")
        session.services.record(Iteration(model=session.item.model))
        return
    session.services.record(iteration_of(session, WorkDone(), kept, None))


def iteration_of(
    session: WorkSession, done: WorkDone, kept: Committed, checked: ProgramResult | None
) -> Iteration:
    """What an agent's run is recorded as, with the check that was made of it, if one was."""
    passed = checked is not None and checked.exit_code == 0 and not checked.timed_out
    return Iteration(
        commit_sha=kept.sha,
        changed_files=kept.changes.files,
        lines_added=kept.changes.lines_added,
        lines_removed=kept.changes.lines_removed,
        test_result="" if checked is None else "pass" if passed else "fail",
        test_exit_code=None if checked is None else checked.exit_code,
        test_duration_ms=None if checked is None else checked.duration_ms,
        test_output="" if checked is None else checked.output,
        model=session.item.model,
        exit_code=done.exit_code,
        output=done.output or done.failure,
    )


async def _judge(session: WorkSession, done: WorkDone, kept: Committed) -> Outcome:
    unchanged = not kept.sha
    checked = None
    try:
        if session.check and not (done.failure and unchanged):
            checked = await run_command(session, session.check)
    finally:
        session.services.record(iteration_of(session, done, kept, checked))
    result = {"iterSha": kept.sha}
    if checked is not None:
        return _verdict(session, checked, result)
    if done.failure:
        return Outcome(status=FAIL, reason="agent_failed", error=clipped(done.failure, 2000), result=result)
    if unchanged:
        why = "the agent changed nothing, and there is no scriptCommand to say that this is right"
        return Outcome(status=FAIL, reason="no_changes", error=why, result=result)
    return Outcome(result=result)


def _verdict(
    session: WorkSession, checked: ProgramResult, result: Mapping[str, Any], failed: str = "checks_failed"
) -> Outcome:
    """What the check's end means."""
    if checked.timed_out:
        why = f"`{session.check}` was still running after {session.time_limit:g} s"
        return Outcome(status=TIMEOUT, reason="timeout", error=why, result=result)
    if checked.exit_code == 0:
        return Outcome(result=result)
    lines = [line.strip() for line in checked.output.splitlines() if line.strip()]
    why = f"`{session.check}` exited with {checked.exit_code}"
    why += f": {clipped(lines[-1], 200)}" if lines else ""
    return Outcome(status=FAIL, reason=failed, error=why, result=result)


async def _bring_to_base(session: WorkSession, passed: Outcome) -> Outcome:
    request = MergeRequest(
        source=session.tree.source,
        branch=session.tree.branch,
        base_branch=session.base_branch,
        message=session.message,
        home=session.services.home,
    )
    attempt, limit = session.services.attempt, session.time_limit
    check = checker(session.check, session.environment, attempt, limit) if session.check else None
    merged = await merge(request, check)
    for tried in merged.merges:
        session.services.record(tried)
    return _after_merge(session, passed, merged)


def _after_merge(session: WorkSession, passed: Outcome, merged: MergeResult) -> Outcome:
    end = merged.result
    if end.result == "success":
        return passed
    if end.result == "conflict":
        why = f"conflicts with {end.base_branch} in {', '.join(end.conflict_files[:20])}"
        return Outcome(status=FAIL, reason="merge_conflict", error=why, result=passed.result)
    if merged.recheck is not None:
        return _verdict(session, merged.recheck, passed.result, failed="checks_failed_after_rebase")
    return Outcome(status=ERROR, reason="merge_failed", error=end.error, result=passed.result)


async def run_command(session: WorkSession, command: str) -> ProgramResult:
    """Run a command in the session's tree, within its time limit, and end whatever it leaves running."""
    with blame(WorkspaceError, f"running `{command}`"):
        finished = await run(
            command,
            folder=session.tree.folder,
            environment=session.environment,
            attempt=session.services.attempt,
            time_limit=session.time_limit,
        )
    if finished.leftovers:
        session.note(f"`{command}` left running, and was ended: {'; '.join(finished.leftovers)}")
    return finished
