"""Start a `proctor` of its own for what a page asks: a batch, a resume, a look at a plan.

What is started to work is nobody's child for long: it has a session of its own, writes to a log in the
server's folder, and neither the server's end nor a closed browser stops it.

Knows nothing of what the commands do.
"""

import asyncio
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from proctor.web.state import AppState

PRIVATE = ("PROCTOR_TOKEN", "PROCTOR_ACCESS_KEYS")
"""What only the server itself needs to know."""


MOST_LOG_BYTES = 1_000_000
"""Of the end of a log, to tell why something did not start."""


@dataclass(frozen=True, slots=True)
class LaunchedProcess:
    """A command under way."""

    process: "subprocess.Popen[bytes]"
    log: Path
    """Where what it tells people is, unless the store is sealed: then that lies in no file with a name."""
    told: IO[bytes]
    """What it tells people."""
    printed: IO[bytes]
    """What it prints for programs."""

    @property
    def said(self) -> str:
        """The end of what it has told people so far."""
        return _end_of(self.told)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document it has printed; empty when there is none."""
        return _document(_end_of(self.printed))


def launch(site: AppState, words: Sequence[str], name: str) -> LaunchedProcess:
    """Start a command that outlives the server; what it prints goes to files called `name`."""
    logs = site.kept / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    path = logs / f"{name}.log"
    if site.store.data_keys.is_sealed:
        # What it prints may tell what somebody said, which must not lie open.
        told: IO[bytes] = tempfile.TemporaryFile(dir=logs)  # noqa: SIM115  as long as the answer is
        printed: IO[bytes] = tempfile.TemporaryFile(dir=logs)  # noqa: SIM115
    else:
        told, printed = path.open("a+b"), (logs / f"{name}.json").open("a+b")
    process = subprocess.Popen(
        [*site.command, *words],
        cwd=site.folder,
        env=_environment(site),
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=told,
        start_new_session=True,
    )
    # Somebody has to take its exit code, or it would stay as a zombie until the server ends.
    threading.Thread(target=process.wait, daemon=True).start()
    return LaunchedProcess(process, path, told, printed)


async def asked(site: AppState, words: Sequence[str], *, seconds: float) -> tuple[int, dict[str, Any], str]:
    """Run a command that answers soon; its exit code, its JSON document and what it told people.

    A `TimeoutError` when it does not, after which it has been stopped.
    """
    process = await asyncio.create_subprocess_exec(
        *site.command,
        *words,
        cwd=site.folder,
        env=_environment(site),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        printed, told = await asyncio.wait_for(process.communicate(), seconds)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode or 0, _document(printed), told.decode("utf-8", "replace")


def _document(printed: str | bytes) -> dict[str, Any]:
    try:
        found = json.loads(printed)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _end_of(file: IO[bytes]) -> str:
    # Not by seeking: the command writes at the place this file is at.
    size = os.fstat(file.fileno()).st_size
    data = os.pread(file.fileno(), MOST_LOG_BYTES, max(0, size - MOST_LOG_BYTES))
    return data.decode("utf-8", "replace")


def _environment(site: AppState) -> dict[str, str]:
    return {name: value for name, value in site.environment.items() if name not in PRIVATE}
