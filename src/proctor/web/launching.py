"""Run `proctor` commands for a page, with a time limit."""

import asyncio
import subprocess
from collections.abc import Sequence

from proctor.api.launch import LaunchedProcess, LaunchRequest, parse_document
from proctor.jobs.evaluation.job import JOB
from proctor.json_values import JsonMap, JsonObject
from proctor.web.state import AppState


async def run_command(site: AppState, words: Sequence[str], *, seconds: float) -> tuple[int, JsonObject, str]:
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


def execute_evaluation(site: AppState, evaluation_id: str) -> LaunchedProcess:
    """Execute an opened evaluation in a process that outlives the server, unless it is stopped before."""
    request = LaunchRequest(job=JOB.name, run_id=evaluation_id, only_unfinished=True)
    return site.launcher.launch(request, f"evaluate-{evaluation_id}")


def error_message(document: JsonMap, messages: str) -> str:
    """Why a command failed: the error in its document, or the last one among its messages."""
    if error := document.get("error"):
        return str(error)
    _, marker, message = messages.rpartition("proctor: ")
    return (message if marker else messages).strip()[:2000]
