"""What `setupOnce` installs: once for the files that it depends on, then read-only for every attempt.

    home/environments/<digest>/        what the command wrote, at the path where it wrote it
    home/environments/<digest>.json    written when it is complete
    home/environments/<digest>.lock    held while it is made

The command runs in a fresh tree of the base commit, in which no attempt has run. With `setupOnceFiles`, only
these are in the tree: what it depends on is then what the digest covers. It writes to `$PROCTOR_ENVIRONMENT`;
all else that it leaves is discarded.
"""

import json
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from proctor.errors import WorkspaceError, blame
from proctor.item import digest_of
from proctor.json_values import texts_in, timestamp
from proctor.processes import undisturbed
from proctor.runners.worktree import record_setup, run_command, why_failed
from proctor.workspace import beneath
from proctor.workspace.folders import remove_folder
from proctor.workspace.locks import file_lock
from proctor.workspace.setup import ENVIRONMENT, WorkSession, fresh_session, in_thread, remove_fresh

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
