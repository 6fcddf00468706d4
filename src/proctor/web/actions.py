"""Stop a run, go on with it, try again what failed.

A run that goes on is a process of its own: closing the server stops none.

Knows nothing of pages.
"""

import asyncio
import secrets
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from proctor.batch.lifecycle import abort_run
from proctor.errors import UsageError
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, TIMEOUT
from proctor.store import items
from proctor.store.batches import LONGEST_ANSWER
from proctor.store.tables import BatchRow, QuestionRow
from proctor.web.launching import launch
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RunId, SteeringAnswer
from proctor.web.state import AppState

# Questions to people who play an actor in a scenario: what is open, and their answers.


class PendingQuestion(BaseModel):
    """Something a run waits to be told."""

    id: str
    itemId: str  # noqa: N815  names as in the record
    sessionId: str  # noqa: N815
    actor: str
    """Whom the person plays."""
    prompt: str
    askedAt: str  # noqa: N815


class Questions(BaseModel):
    """What a run waits to be told, the oldest first."""

    questions: list[PendingQuestion]


class QuestionAnswer(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid")

    answer: Annotated[str, Field(min_length=1, max_length=LONGEST_ANSWER)]


class AcceptedAnswer(BaseModel):
    """The answer was taken down."""

    id: str


def router(site: AppState) -> APIRouter:
    """What is asked and answered."""
    made = APIRouter(tags=["runs"])

    @made.get("/api/runs/{run_id}/questions", summary="What people are asked", responses=ERRORS)
    def listed(run_id: str) -> Questions:
        return Questions(questions=_open(site, site.store.read.batch(run_id, site.now())["runId"]))

    @made.post("/api/runs/{run_id}/questions/{question_id}", summary="Answer, once", responses=ERRORS)
    def answered(run_id: str, question_id: str, said: QuestionAnswer) -> AcceptedAnswer:
        site.store.answer_question(run_id, question_id, said.answer, site.now())
        return AcceptedAnswer(id=question_id)

    return made


class QuestionsTopic:
    """The open questions of one run."""

    def __init__(self, site: AppState, run_id: str) -> None:
        self._site = site
        self._run_id = site.store.read.batch(run_id, site.now())["runId"]
        self._version = 1
        self._known: list[PendingQuestion] = []

    async def state(self, version: int) -> tuple[int, Any]:
        """All that are open; there are never many."""
        found = await asyncio.to_thread(_open, self._site, self._run_id)
        if found != self._known:
            self._known = found
            self._version += 1
        changed = version != self._version
        return self._version, {"questions": [each.model_dump() for each in found]} if changed else None


def _open(site: AppState, run_id: str) -> list[PendingQuestion]:
    return [_question(row) for row in site.store.open_questions(run_id)]


def _question(row: QuestionRow) -> PendingQuestion:
    return PendingQuestion(
        id=row["id"],
        itemId=row["itemId"],
        sessionId=row["sessionId"] or "",
        actor=row["actor"],
        prompt=row["prompt"],
        askedAt=row["askedAt"],
    )


ANSWER_SECONDS = 5
"""A page waits so long for a run to stop; it stops in any case, and the page sees it."""


POLL_SECONDS = 0.05


START_SECONDS = 20
"""Longer than the slowest start seen on a busy machine."""


BAD_USAGE = 2


def steering_router(site: AppState) -> APIRouter:
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
        counts = await asyncio.to_thread(items.status_counts, site.store.read, batch["runId"])
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
        counts = await asyncio.to_thread(items.status_counts, site.store.read, run_id)
        again = counts[ERROR] * errors + (counts[FAIL] + counts[TIMEOUT]) * failed
        if not again:
            raise UsageError(f"{run_id} has nothing to be tried again\nWhat succeeded stays as it is.")
        return await _take_up(site, run_id, flags)

    return made


def _at_rest(site: AppState, run_id: str) -> BatchRow:
    batch = site.store.read.batch(run_id, site.now())
    if batch["status"] == RUNNING:
        raise UsageError(f"run {batch['runId']} is already running\nWait for it, or abort it first.")
    return batch


async def _take_up(site: AppState, run_id: str, flags: list[str]) -> SteeringAnswer:
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


def _is_owned_by(site: AppState, run_id: str, pid: int) -> bool:
    batch = site.store.read.batch(run_id, site.now())
    return batch["status"] == RUNNING and f":{pid}:" in batch["owner"]


def _answer(site: AppState, run_id: str) -> SteeringAnswer:
    return SteeringAnswer(run_id=run_id, status=site.store.read.batch(run_id, site.now())["status"])


def problem_in(said: str) -> str:
    """What a command said went wrong, of all it has printed."""
    _, found, words = said.rpartition("proctor: ")
    return (words if found else said).strip() or "the command failed without a word"
