"""Stop a run, go on with it, try again what failed.

A run that goes on is a process of its own: closing the server stops none.

Knows nothing of pages.
"""

import asyncio
import secrets
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query

from proctor.batch.abort import abort_run
from proctor.errors import UsageError
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, TIMEOUT
from proctor.store import pages
from proctor.web.answers import ERRORS
from proctor.web.launching import launch
from proctor.web.run_shapes import SteeringAnswer
from proctor.web.shapes import RunId
from proctor.web.site import Site

ANSWER_SECONDS = 5
"""A page waits so long for a run to stop; it stops in any case, and the page sees it."""
POLL_SECONDS = 0.05
START_SECONDS = 20
"""Longer than the slowest start seen on a busy machine."""
BAD_USAGE = 2


def router(site: Site) -> APIRouter:
    """The routes that change what becomes of a run."""
    made = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)
    stopping = set[asyncio.Task[Any]]()

    @made.post("/{run_id}/abort", summary="Stop a run, wherever it is carried out")
    async def abort(run_id: RunId) -> SteeringAnswer:
        """Running items stop within seconds, queued ones never start."""
        batch = await asyncio.to_thread(site.store.read.batch, run_id, site.now())
        run_id = batch["runId"]
        if batch["status"] in ("completed", "aborted"):
            raise UsageError(f"run {run_id} is already {batch['status']}\nThere is nothing left to stop.")
        work = asyncio.to_thread(abort_run, site.store, run_id, now=site.now, pause=time.sleep)
        task = asyncio.create_task(work)
        # Held on to, so that it is not forgotten half-way when the page has been answered.
        stopping.add(task)
        task.add_done_callback(stopping.discard)
        await asyncio.wait([task], timeout=ANSWER_SECONDS)
        if task.done():
            task.result()
        return await asyncio.to_thread(_answer, site, run_id)

    @made.post("/{run_id}/resume", summary="Go on with a run that was stopped, halted or killed")
    async def resume(run_id: RunId) -> SteeringAnswer:
        """Finished items are not repeated. Answers as soon as a process has taken the run over."""
        batch = await asyncio.to_thread(_at_rest, site, run_id)
        counts = await asyncio.to_thread(pages.status_counts, site.store.read, batch["runId"])
        if batch["status"] == "completed" and not counts[QUEUED]:
            # It would be taken up, end at once, and from then on have taken until today.
            raise UsageError(f"run {batch['runId']} is completed\nWhat failed in it can be tried again.")
        return await _take_up(site, batch["runId"], [])

    @made.post("/{run_id}/retry", summary="Try again what did not succeed")
    async def retry(
        run_id: RunId,
        errors: Annotated[bool, Query(description="Items that ended in `error`.")] = True,
        failed: Annotated[bool, Query(description="Items that ended in `fail` or `timeout`.")] = True,
    ) -> SteeringAnswer:
        """Adds an attempt to each such item, and goes on with what was not finished."""
        batch = await asyncio.to_thread(_at_rest, site, run_id)
        run_id = batch["runId"]
        flags = [flag for flag, wanted in (("--retry-errors", errors), ("--retry-failed", failed)) if wanted]
        counts = await asyncio.to_thread(pages.status_counts, site.store.read, run_id)
        again = counts[ERROR] * errors + (counts[FAIL] + counts[TIMEOUT]) * failed
        if not again:
            raise UsageError(f"{run_id} has nothing to be tried again\nWhat succeeded stays as it is.")
        return await _take_up(site, run_id, flags)

    return made


def _at_rest(site: Site, run_id: str) -> dict[str, Any]:
    batch = site.store.read.batch(run_id, site.now())
    if batch["status"] == RUNNING:
        raise UsageError(f"run {batch['runId']} is already running\nWait for it, or abort it first.")
    return batch


async def _take_up(site: Site, run_id: str, flags: list[str]) -> SteeringAnswer:
    """Start the process that goes on with a run; wait until it has, or says why it cannot."""
    name = f"resume-{run_id}-{secrets.token_hex(3)}"
    launched = await asyncio.to_thread(launch, site, ["resume", run_id, *flags], name)
    process, until = launched.process, time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        if process.poll() == BAD_USAGE:
            raise UsageError(problem_in(launched.said))
        if process.poll() is not None or await asyncio.to_thread(_is_owned_by, site, run_id, process.pid):
            break
        await asyncio.sleep(POLL_SECONDS)
    return await asyncio.to_thread(_answer, site, run_id)


def _is_owned_by(site: Site, run_id: str, pid: int) -> bool:
    batch = site.store.read.batch(run_id, site.now())
    return batch["status"] == RUNNING and f":{pid}:" in batch["owner"]


def _answer(site: Site, run_id: str) -> SteeringAnswer:
    return SteeringAnswer(run_id=run_id, status=site.store.read.batch(run_id, site.now())["status"])


def problem_in(said: str) -> str:
    """What a command said went wrong, of all it has printed."""
    _, found, words = said.rpartition("proctor: ")
    return (words if found else said).strip() or "the command failed without a word"
