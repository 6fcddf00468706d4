"""Start a `proctor` of its own for what a page asks: a batch, a resume, a look at a plan.

What is started to work is nobody's child for long: it has a session of its own, writes to a log in the
server's folder, and neither the server's end nor a closed browser stops it.

Knows nothing of what the commands do.
"""

import asyncio
import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.web.site import Site

PRIVATE = ("PROCTOR_TOKEN", "PROCTOR_ACCESS_KEYS")
"""What only the server itself needs to know."""
MOST_LOG_BYTES = 1_000_000
"""Of the end of a log, to tell why something did not start."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A command under way."""

    process: "subprocess.Popen[bytes]"
    log: Path
    """What it tells people."""
    output: Path
    """What it prints for programs."""

    @property
    def said(self) -> str:
        """The end of what it has told people so far."""
        return _end_of(self.log)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document it has printed; empty when there is none."""
        return _document(_end_of(self.output))


def launch(site: Site, words: Sequence[str], name: str) -> Launched:
    """Start a command that outlives the server; what it prints goes to files called `name`."""
    logs = site.kept / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    path, printed = logs / f"{name}.log", logs / f"{name}.json"
    with path.open("ab") as log, printed.open("ab") as output:
        process = subprocess.Popen(
            [*site.command, *words],
            cwd=site.folder,
            env=_environment(site),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            start_new_session=True,
        )
    # Somebody has to take its exit code, or it would stay as a zombie until the server ends.
    threading.Thread(target=process.wait, daemon=True).start()
    return Launched(process, path, printed)


async def asked(site: Site, words: Sequence[str], *, seconds: float) -> tuple[int, dict[str, Any], str]:
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


def _end_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - MOST_LOG_BYTES))
            return opened.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _environment(site: Site) -> dict[str, str]:
    return {name: value for name, value in site.environment.items() if name not in PRIVATE}
