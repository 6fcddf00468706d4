"""The coding session: an agent in a worktree of its own, whose work is checked.

    prepare → setup → agent → commit and publish → check → merge → clean up

The agent's report and exit code do not count: the check decides, or without one, whether anything changed.
However a session ends, its changes are committed and published first.
"""

import asyncio
import json
import platform
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from proctor.agent import Access, Agent, Assignment, WorkDone
from proctor.errors import (
    CONTEXT_OVERFLOW,
    AgentError,
    AgentNotStarted,
    ModelError,
    ProctorError,
    WorkspaceError,
    blame,
    blame_agent,
    of_worker,
)
from proctor.formatting import Clip, clipped, plural
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT, UNCHECKED, Item, digest_of
from proctor.json_values import JsonMap, texts_in, timestamp
from proctor.processes import ProgramResult, run, undisturbed
from proctor.processes.error_lines import error_line
from proctor.runner import MergeRequest, MergeResult, Outcome, Services, agent_settings, seed_of
from proctor.session import Event, Intervention, Iteration, Message, ToolCall, Workspace
from proctor.workspace import beneath, live_session
from proctor.workspace.commit import Committed, commit_changes
from proctor.workspace.folders import files_above, remove_folder
from proctor.workspace.live_session import LiveOutput
from proctor.workspace.locks import file_lock
from proctor.workspace.nested_repositories import watch_submodules
from proctor.workspace.setup import (
    ENVIRONMENT,
    WorkSession,
    clean_up,
    fresh_session,
    in_thread,
    prepare,
    remove_fresh,
)
from proctor.workspace.transfer import bundle_branch
from proctor.workspace.worktree import Worktree, ignore_untracked, publish, restore

if TYPE_CHECKING:
    from proctor.processes import Confinement
    from proctor.sandbox import Phase

VERSION_SECONDS = 20.0
"""How long the end of an attempt waits for the version of its agent."""


NOT_RUN = (126, 127)
"""Exit codes of a shell that could not start a program: it cannot be executed, or was not found."""


@dataclass(frozen=True, slots=True)
class WorktreeRunner:
    """Runs coding items."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """One attempt, as the module docstring describes."""
        return await run_session(item, services, _judge)


Judge = Callable[[WorkSession, WorkDone, Committed], Awaitable[Outcome]]
"""Decides the outcome, and records the iteration."""


async def run_session(
    item: Item,
    services: Services,
    judge: Judge,
    lay_out: Callable[[WorkSession], Awaitable[None]] | None = None,
) -> Outcome:
    """One attempt in a worktree of its own; `judge` decides its outcome. `lay_out` adds folders beside it
    before anything runs."""
    services.record(Message(role="user", content=item.prompt))
    session = await prepare(item, services)
    succeeded = False
    try:
        try:
            if lay_out is not None:
                await lay_out(session)
            session = await _prepare_files(session)
        except BaseException:
            tree = session.tree
            await in_thread(tree.source.remove_branch, tree.branch, tree.base_sha)
            raise
        outcome = await _run_in_worktree(session, judge)
        succeeded = outcome.status == SUCCESS
        return outcome
    finally:
        await undisturbed(clean_up(session, succeeded))


async def _prepare_files(session: WorkSession) -> WorkSession:
    """What happens in the worktree before the agent starts."""
    if "setupOnce" in session.item.details:
        session = await with_environment(session)
    if left := await set_up(session):
        session.note(f"not counted as the agent's work, since setup made it: {', '.join(left[:20])}")
    if session.check and session.item.settings.get("baseline"):
        await _run_baseline(session)
    with blame(WorkspaceError, "listing the files of submodules"):
        await in_thread(watch_submodules, session.tree)
    return session


async def _run_in_worktree(session: WorkSession, judge: Judge) -> Outcome:
    output = LiveOutput(session.tree.place.parent, session.services.redact)
    try:
        try:
            done = await run_agent(session, output=output)
        finally:
            output.close()
        committed = await undisturbed(commit_and_publish(session))
    except AgentError:
        # Its changes cannot be committed.
        session.services.record(Iteration(model=session.item.model, output=output.text))
        raise
    except BaseException:
        await undisturbed(_rescue(session, output.text))
        raise
    outcome = await judge(session, done, committed)
    if outcome.status == SUCCESS and session.item.settings.get("mergeOnPass") and committed.sha:
        outcome = await _merge_to_base(session, outcome)
    return outcome


async def set_up(session: WorkSession, *, agent_follows: bool = True) -> list[str]:
    """Run the setup command of the item; returns the files that it made. Raises `WorkspaceError`."""
    command = session.item.details.get("setup")
    if not command:
        return []
    with blame(WorkspaceError, "making the shared caches"):
        variables = session.cache_variables
    finished = await run_command(session, str(command), "setup", variables=variables)
    if agent_follows:
        record_setup(session, str(command), finished)
    if finished.timed_out:
        limit = session.command_limit("setup")
        raise WorkspaceError(f"`{command}` was still running after {limit:g} s")
    if finished.exit_code != 0:
        raise WorkspaceError(f"{why_failed(str(command), finished)}\n{finished.output.strip()[-2000:]}")
    await session.homes.save(agent_follows=agent_follows)
    with blame(WorkspaceError, "listing the files that setup made"):
        return await in_thread(ignore_untracked, session.tree)


def record_setup(session: WorkSession, command: str, finished: ProgramResult) -> None:
    """Record what a command that prepares a session has printed; after a failure no other step follows."""
    session.services.record(Workspace(setup_output=f"$ {command}\n{finished.output}"))
    if finished.timed_out or finished.exit_code != 0:
        session.services.record(Iteration(model=session.item.model))


async def _run_baseline(session: WorkSession) -> None:
    """Run the check before the agent: one that passes already proves nothing about its work."""
    finished = await run_command(session, session.check, "check")
    passed = finished.exit_code == 0 and not finished.timed_out
    session.services.record(Workspace(baseline="pass" if passed else "fail"))
    if passed:
        session.note(
            f"`{session.check}` passes already before the agent: it does not show what the agent did"
        )
    with blame(WorkspaceError, "restoring the worktree after the first check"):
        await in_thread(restore, session.tree)


async def run_agent(session: WorkSession, prompt: str = "", output: Clip | None = None) -> WorkDone:
    """Run the agent; a failure it reports is part of the result, not an exception. `prompt` replaces the
    item's; `output` gets what it prints, also if it is cut off."""
    item, services = session.item, session.services
    agent = services.agent(item.agent, agent_settings(item))
    access = await services.access(agent)
    assignment = Assignment(
        prompt=prompt or item.prompt,
        folder=session.tree.folder,
        home=session.home,
        environment=session.environment,
        attempt=services.session_id,
        model=item.model,
        seed=seed_of(item),
        models=services.models,
        access=access,
        confinement=_agent_confinement(session, agent, access),
        keep_events=bool(item.settings.get("jsonLogs", True)),
        output=output or Clip(),
    )
    await in_thread(session.settle)
    copied = await in_thread(_copy_login, agent.copied_logins(), services.environment, session.home)
    tools = list[str]()

    def record(event: Event) -> None:
        if isinstance(event, ToolCall):
            tools.append(event.name)
        services.record(event)

    try:
        async with _recorded_version(agent, services):
            with services.phase("agent"):
                async with (
                    _open_to_people(session, agent, assignment),
                    services.time_limit(session.time_limit, "the agent"),
                ):
                    done = await agent.work(assignment, record)
    except AgentError as error:
        return WorkDone(failure=str(error) or "the agent failed")
    except ModelError as error:
        if error.reason == CONTEXT_OVERFLOW or agent.reach != "gateway" or services.model_calls():
            raise of_worker(error) from error
        # What the program takes for a failure of its model never reached the gateway.
        raise AgentNotStarted(str(error)) from error
    finally:
        # Neither the check nor a kept worktree may have them.
        for name in copied:
            await in_thread(beneath.remove, session.home, name)
    if done.exit_code is None or services.model_calls():
        return done
    return replace(done, has_started=agent.reach != "gateway" and not _is_bad_start(agent, done, tools))


def _is_bad_start(agent: Agent, done: WorkDone, tools: Sequence[str]) -> bool:
    """Whether an agent that reaches models by itself, and has reported no call, failed before its first one.

    Those with a key or login of their own report what they do; any other may call models without a word.
    """
    reports = agent.keys or agent.login
    return bool(done.failure) and (done.exit_code in NOT_RUN or bool(reports and not tools))


@asynccontextmanager
async def _open_to_people(session: WorkSession, agent: Agent, assignment: Assignment) -> AsyncIterator[None]:
    """Pass the agent what people tell it while it works, and record it: its work is not its alone then."""
    services = session.services

    def deliver(text: str) -> None:
        services.record(Message(role="user", content=text))
        services.record(Intervention(kind="message", text=clipped(text)))
        assignment.messages.put_nowait(text)

    folder = session.tree.place.parent
    async with live_session.followed(folder, deliver, takes_messages=agent.takes_messages):
        yield
    if left := assignment.messages.qsize():
        session.note(f"the agent had ended before it read the last {plural(left, 'message')}")


def _copy_login(names: Sequence[str], environment: Mapping[str, str], home: Path) -> list[str]:
    """Copy the files of the user's login to the agent's HOME; their names."""
    if not names:
        return []
    copied = list[str]()
    users = Path(environment.get("HOME") or "/nonexistent")
    try:
        for name in names:
            if (users / name).is_file():
                beneath.write_private(home, name, (users / name).read_text(encoding="utf-8"))
                copied.append(name)
    except (OSError, ValueError) as error:
        raise WorkspaceError(f"copying the login of the agent: {error}") from error
    if not copied:
        raise WorkspaceError(f"there is no login of the agent: none of {', '.join(names)} is in {users}")
    return copied


@asynccontextmanager
async def _recorded_version(agent: Agent, services: Services) -> AsyncIterator[None]:
    """Record the version of the agent, which is read while it works: that may take seconds."""
    # Of its own: a version that cannot be read fails nothing.
    reading = asyncio.create_task(asyncio.to_thread(_version_of, agent, services.environment))
    try:
        yield
        await asyncio.wait([reading], timeout=VERSION_SECONDS)
    finally:
        if reading.done() and (version := reading.result()):
            services.record(Workspace(agent_version=version))
        else:
            reading.cancel()


def _version_of(agent: Agent, environment: Mapping[str, str]) -> str:
    try:
        return agent.installed_version(environment)
    except Exception:
        return ""


def _agent_confinement(session: WorkSession, agent: Agent, access: Access | None) -> "Confinement | None":
    with blame(WorkspaceError, "confining the agent"):
        settings = agent_settings(session.item)
        return session.confinement(
            "agent",
            # Only settings of the plan: the prompt may be untrusted.
            named=[settings.get("command"), settings.get("arguments")],
            serve=access.ports if access else None,
            # Which hosts its service has is not known.
            usual_network="full" if agent.needs_network else None,
            concealed=session.answers,
        )


async def commit_and_publish(session: WorkSession) -> Committed:
    """Commit the changes of the agent, and make them visible in the user's repository."""
    with blame_agent("committing the agent's changes"):
        await in_thread(_check_sizes, session.tree)
        committed = await in_thread(commit_changes, session.tree, session.message)
    for text in committed.notes:
        session.note(text)
    await in_thread(publish, session.tree)
    if driver := session.services.driver_files:
        sha, bundle = await in_thread(bundle_branch, session.tree)
        await driver.publish(session.tree.source.root, session.tree.branch, sha, bundle)
    return committed


# git would read it for five minutes, and then give up.
LARGEST_FILE_BYTES = 8 << 30


def _check_sizes(tree: Worktree) -> None:
    """Reject a file that is too large to be committed, such as a sparse one. Raises `AgentError`."""
    for path in files_above(tree.folder, LARGEST_FILE_BYTES):
        name = str(path.relative_to(tree.folder))
        if tree.git.run("check-ignore", "--quiet", "--", name)[0] == 1:
            raise AgentError(
                f"the agent left a file of more than {LARGEST_FILE_BYTES >> 30} GiB: {name}",
                reason="workspace_broken",
            )


async def _rescue(session: WorkSession, output: str) -> None:
    """Save the work and the output of an attempt that was cut off; the reason of that stays the outcome."""
    try:
        committed = await commit_and_publish(session)
    except ProctorError as error:
        session.note(f"the agent's changes could not be committed: {error}")
        session.services.record(Iteration(model=session.item.model, output=output))
        return
    session.services.record(iteration_of(session, WorkDone(output=output), committed, None))


def iteration_of(
    session: WorkSession, done: WorkDone, committed: Committed, checked: ProgramResult | None
) -> Iteration:
    """The record of an agent's run, with the result of its check if there was one."""
    passed = checked is not None and checked.exit_code == 0 and not checked.timed_out
    return Iteration(
        commit_sha=committed.sha,
        changed_files=committed.changes.files,
        lines_added=committed.changes.lines_added,
        lines_removed=committed.changes.lines_removed,
        test_result="" if checked is None else "pass" if passed else "fail",
        test_exit_code=None if checked is None else checked.exit_code,
        test_duration_ms=None if checked is None else checked.duration_ms,
        test_output="" if checked is None else checked.output,
        model=session.item.model,
        exit_code=done.exit_code,
        output=done.output or done.failure,
    )


def gave_up(done: WorkDone, committed: Committed) -> bool:
    """Whether an agent has failed or never started, and left nothing that could be checked."""
    return not committed.sha and bool(done.failure or not done.has_started)


def outcome_of_failure(done: WorkDone, committed: Committed) -> Outcome:
    """The outcome of an agent that failed and whose work is not checked."""
    line = "" if done.failure else error_line(done.output)
    silent = f"it ended without a model call{f': {line}' if line else ''}"
    result, why = {"iterSha": committed.sha}, clipped(done.failure or silent, 2000)
    if not done.has_started and not committed.sha:
        return Outcome(status=ERROR, reason=AgentNotStarted.reason, error=why, result=result)
    return Outcome(status=FAIL, reason=AgentError.reason, error=why, result=result)


async def _judge(session: WorkSession, done: WorkDone, committed: Committed) -> Outcome:
    unchanged = not committed.sha
    checked, has_given_up = None, gave_up(done, committed)
    try:
        if session.check and not has_given_up:
            checked = await run_command(session, session.check, "check", is_last=True)
    finally:
        session.services.record(iteration_of(session, done, committed, checked))
    result = {"iterSha": committed.sha}
    if checked is not None:
        if checked.exit_code in NOT_RUN and await never_runs(session, committed, session.check):
            why = why_failed(session.check, checked)
            return Outcome(status=ERROR, reason=WorkspaceError.reason, error=why, result=result)
        outcome = _verdict(session, checked, result)
        if outcome.status == SUCCESS or not committed.submodules:
            return outcome
        return replace(outcome, error=f"{outcome.error}; {_without(committed)}")
    if done.failure or has_given_up:
        return outcome_of_failure(done, committed)
    if unchanged:
        why = "the agent made no changes, and the plan has no scriptCommand to check the result"
        if committed.submodules:
            why = f"the agent changed nothing else: {_without(committed)}"
        return Outcome(status=FAIL, reason="no_changes", error=why, result=result)
    return Outcome(reason=UNCHECKED, result=result)


def _without(committed: Committed) -> str:
    return f"its changes in submodules ({', '.join(committed.submodules[:20])}) are not in the branch"


def _verdict(
    session: WorkSession, checked: ProgramResult, result: JsonMap, failed: str = "checks_failed"
) -> Outcome:
    if checked.timed_out:
        why = f"`{session.check}` was still running after {session.command_limit('check'):g} s"
        return Outcome(status=TIMEOUT, reason="timeout", error=why, result=result)
    if checked.exit_code == 0:
        return Outcome(result=result)
    return Outcome(status=FAIL, reason=failed, error=why_failed(session.check, checked), result=result)


def why_failed(command: str, finished: ProgramResult) -> str:
    """Why a command failed, in one line."""
    line = error_line(finished.output, most=200)
    return f"`{command}` exited with {finished.exit_code}{f': {line}' if line else ''}"


async def never_runs(
    session: WorkSession,
    committed: Committed,
    command: str,
    lay_out: Callable[[WorkSession], Awaitable[None]] | None = None,
) -> bool:
    """Whether a check whose program could not be started cannot be run without the agent's work either.

    What an agent has removed is a failure of its work, not of the set-up. `lay_out` adds files of the check.
    """
    if not committed.sha:
        return True
    try:
        with blame(WorkspaceError, "making a fresh tree for the check"):
            fresh = await fresh_session(session)
        await set_up(fresh, agent_follows=False)
        if lay_out is not None:
            await lay_out(fresh)
        again = await run_command(fresh, command, "check", is_last=True)
    finally:
        await undisturbed(remove_fresh(session))
    return again.exit_code in NOT_RUN


async def _merge_to_base(session: WorkSession, passed: Outcome) -> Outcome:
    request = MergeRequest(
        repo=session.tree.source.root,
        branch=session.tree.branch,
        base_branch=session.base_branch,
        message=session.message,
        check=session.check,
        environment=session.environment,
        attempt=session.services.session_id,
        time_limit=session.command_limit("check"),
        sandbox=session.item.settings.get("sandbox"),
        read=[session.shared] if session.shared else [],
    )
    merged = await session.services.merge(request)
    for attempted in merged.merges:
        session.services.record(attempted)
    for text in merged.notes:
        session.note(text)
    outcome = _after_merge(session, passed, merged)
    return replace(outcome, result={**outcome.result, "merge": merged.result.result})


def _after_merge(session: WorkSession, passed: Outcome, merged: MergeResult) -> Outcome:
    end = merged.result
    if end.result == "success":
        return passed
    if merged.recheck is not None:
        return _verdict(session, merged.recheck, passed.result, failed="checks_failed_after_rebase")
    # The work passed its check; that others changed the same lines or files is no fault of the agent.
    if end.result == "conflict":
        session.note(f"not merged: conflicts with {end.base_branch} in {', '.join(end.conflict_files[:20])}")
    else:
        later = f"proctor sessions merge {session.services.session_id}"
        session.note(f"not merged: {clipped(end.error, 2000)}; merge it later:  {later}")
    return passed


async def run_command(
    session: WorkSession,
    command: str,
    phase: "Phase",
    *,
    time_limit: float | None = None,
    variables: Mapping[str, str] | None = None,
    is_last: bool = False,
) -> ProgramResult:
    """Run a command in the session's worktree within its time limit; end what it leaves running.

    A check has a HOME of its own; `is_last`: no other check follows. `time_limit` replaces the item's;
    `variables` are added to the environment.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(blame(WorkspaceError, f"running `{command}`"))
        stack.enter_context(session.services.phase(phase))
        await in_thread(session.settle)
        if phase == "check":
            await stack.enter_async_context(session.homes.for_check(is_last=is_last))
        finished = await run(
            command,
            folder=session.tree.folder,
            environment={**session.environment, **(variables or {})},
            attempt=session.services.session_id,
            time_limit=time_limit or session.command_limit(phase),
            confinement=session.confinement(phase, named=[command]),
        )
    if finished.leftovers:
        session.note(f"`{command}` left running, and was ended: {'; '.join(finished.leftovers)}")
    return finished


# What `setupOnce` installs: once for the files that it depends on, then read-only for every attempt.


FOLDER = "environments"
_failures: dict[Path, tuple[float, str]] = {}
"""When making an environment last failed in this process, and why: who waited for it does not try again."""


async def with_environment(session: WorkSession) -> WorkSession:
    """The session with the environment that its `setupOnce` makes. Raises `WorkspaceError`."""
    with blame(WorkspaceError, "listing the files that `setupOnce` depends on"):
        digest = await in_thread(_digest, session)
    # Resolved: a sandbox shows it under this path only.
    folder = (session.services.home / FOLDER).resolve() / digest
    asked = time.monotonic()
    async with file_lock(folder.with_suffix(".lock")):
        if not folder.with_suffix(".json").exists():
            failed, why = _failures.get(folder, (0.0, ""))
            if failed > asked:
                raise WorkspaceError(why)
            try:
                await _make(session, folder)
            except WorkspaceError as error:
                _failures[folder] = (time.monotonic(), str(error))
                raise
    environment = {**session.environment, ENVIRONMENT: str(folder)}
    return replace(session, environment=environment, shared=folder)


def _digest(session: WorkSession) -> str:
    """Of everything that the environment depends on."""
    listed = [line for line, path in _tracked(session) if _is_needed(session, path)]
    settings = session.services.sandbox.settings_of(session.item.settings.get("sandbox"))
    machine = [sys.platform, platform.machine(), *platform.libc_ver(), settings.container]
    parts = [_command(session), listed, session.item.details.get("env") or {}, machine]
    return digest_of(parts)[:32]


def _command(session: WorkSession) -> str:
    return str(session.item.details["setupOnce"])


def _tracked(session: WorkSession) -> Iterator[tuple[str, str]]:
    """Mode, object and path of each file of the base commit, as a line; and the path."""
    listed = session.tree.git("ls-tree", "-r", "-z", "--full-tree", session.tree.base_sha)
    for line in listed.split("\0"):
        if line:
            yield line, line.partition("\t")[2]


def _is_needed(session: WorkSession, path: str) -> bool:
    patterns = texts_in(session.item.details, "setupOnceFiles")
    return not patterns or any(PurePosixPath(path).match(pattern) for pattern in patterns)


async def _make(session: WorkSession, folder: Path) -> None:
    command, started = _command(session), time.monotonic()
    try:
        with blame(WorkspaceError, "making a fresh tree for `setupOnce`"):
            # Left by a process that died while it made one.
            await in_thread(remove_folder, folder)
            folder.mkdir(parents=True)
            fresh = await fresh_session(session)
            await in_thread(_remove_others, fresh)
        making = replace(fresh, shared=folder, makes_shared=True)
        variables = {**session.cache_variables, ENVIRONMENT: str(folder)}
        finished = await run_command(making, command, "setup", variables=variables)
    finally:
        await undisturbed(remove_fresh(session))
    if finished.timed_out or finished.exit_code != 0:
        record_setup(session, command, finished)
    if finished.timed_out:
        raise WorkspaceError(
            f"`setupOnce` was still running after {session.command_limit('setup'):g} s: `{command}`"
        )
    if finished.exit_code != 0:
        tail = finished.output.strip()[-2000:]
        raise WorkspaceError(f"`setupOnce`: {why_failed(command, finished)}\n{tail}")
    seconds = round(time.monotonic() - started, 3)
    with blame(WorkspaceError, "keeping the environment"):
        about = {"command": command, "madeAt": timestamp(session.services.now()), "seconds": seconds}
        folder.with_suffix(".json").write_text(json.dumps(about))
    session.note(f"`setupOnce` made the environment {folder.name} in {seconds:.1f} s")


def _remove_others(fresh: WorkSession) -> None:
    for _, path in _tracked(fresh):
        if not _is_needed(fresh, path):
            beneath.remove(fresh.tree.place, f"{fresh.tree.folder.name}/{path}")
