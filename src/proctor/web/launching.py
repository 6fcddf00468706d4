"""Run `proctor` commands for a page: detached, or awaited with a time limit."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.api.launch import LaunchedProcess, parse_document
from proctor.web.state import AppState

__all__ = ["LaunchedProcess", "asked", "error_message", "launch", "run_command"]


def launch(site: AppState, words: Sequence[str], name: str) -> LaunchedProcess:
    """Start a command that outlives the server; its output goes to files called `name`."""
    return site.launcher.start(words, name)


async def run_command(
    site: AppState, words: Sequence[str], *, seconds: float
) -> tuple[int, dict[str, Any], str]:
    """Run a command to its end; its exit code, its JSON document and its messages.

    After `seconds` it is killed and a `TimeoutError` raised.
    """
    launcher = site.launcher
    process = await asyncio.create_subprocess_exec(
        *launcher.command,
        *words,
        cwd=launcher.folder,
        env=launcher.child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), seconds)
    except BaseException:
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise
    return process.returncode or 0, parse_document(stdout), stderr.decode("utf-8", "replace")


asked = run_command


def error_message(document: Mapping[str, Any], messages: str) -> str:
    """Why a command failed: the error in its document, or the last one among its messages."""
    if error := document.get("error"):
        return str(error)
    _, marker, message = messages.rpartition("proctor: ")
    return (message if marker else messages).strip()[:2000]
