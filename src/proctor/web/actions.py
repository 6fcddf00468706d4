"""Stop, resume and retry runs, and answer the questions of scenarios.

A resumed run and an evaluation are detached processes: they outlive the server. All else that a page asks for
is a call of the library, in a thread where it blocks.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from proctor.api import runs
from proctor.api.launch import resume_run
from proctor.errors import ProctorError, UsageError
from proctor.job import BatchChanges
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RunId, SteeringAnswer
from proctor.web.state import AppState

T = TypeVar("T")
ABORT_SECONDS = 5
"""How long a request waits for a run to stop; it stops in any case, and the page shows it."""
MOST_ITEMS = 500
"""In one request."""


class PendingQuestion(BaseModel):
    """A question to a person who plays an actor of a scenario."""

    id: str
    itemId: str  # noqa: N815  names as in the record
    sessionId: str  # noqa: N815
    actor: str
    """The actor the person plays."""
    prompt: str
    askedAt: str  # noqa: N815


class Questions(BaseModel):
    """The open questions of a run, oldest first."""

    questions: list[PendingQuestion]


class QuestionAnswer(BaseModel):
    """An answer to a question."""

    model_config = ConfigDict(extra="forbid")

    answer: Annotated[str, Field(min_length=1, max_length=runs.LONGEST_ANSWER)]


class AcceptedAnswer(BaseModel):
    """The question whose answer was stored."""

    id: str


def router(site: AppState) -> APIRouter:
    """The routes of questions."""
    routes = APIRouter(tags=["runs"])

    @routes.get("/api/runs/{run_id}/questions", summary="Open questions to people", responses=ERRORS)
    def listed(run_id: str) -> Questions:
        return Questions(questions=_open_questions(site, runs.status_of(site.context, run_id)[0]))

    @routes.post(
        "/api/runs/{run_id}/questions/{question_id}", summary="Answer a question, once", responses=ERRORS
    )
    def answered(run_id: str, question_id: str, body: QuestionAnswer) -> AcceptedAnswer:
        runs.answer_question(site.context, run_id, question_id, body.answer)
        return AcceptedAnswer(id=question_id)

    return routes


class QuestionsTopic:
    """The open questions of one run."""

    def __init__(self, site: AppState, run_id: str) -> None:
        self._site = site
        self._run_id, _ = runs.status_of(site.context, run_id)
        self._version = 1
        self._known: list[PendingQuestion] = []

    async def state(self, version: int) -> tuple[int, Any]:
        """All open questions; there are never many."""
        questions = await asyncio.to_thread(_open_questions, self._site, self._run_id)
        if questions != self._known:
            self._known = questions
            self._version += 1
        changed = version != self._version
        return self._version, {"questions": [each.model_dump() for each in questions]} if changed else None


def _open_questions(site: AppState, run_id: str) -> list[PendingQuestion]:
    return [
        PendingQuestion(
            id=row["id"],
            itemId=row["itemId"],
            sessionId=row["sessionId"] or "",
            actor=row["actor"],
            prompt=row["prompt"],
            askedAt=row["askedAt"],
        )
        for row in runs.open_questions(site.context, run_id)
    ]


def steering_router(site: AppState) -> APIRouter:
    """The routes that stop, resume and retry."""
    routes = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)
    stopping = set[asyncio.Task[Any]]()

    @routes.post("/{run_id}/abort", summary="Stop a run, including one started by another process")
    async def abort(run_id: RunId) -> SteeringAnswer:
        """Running items stop within seconds, queued ones never start."""
        run_id, status = await asyncio.to_thread(runs.status_of, site.context, run_id)
        if status in ("completed", "aborted"):
            raise UsageError(f"run {run_id} is already {status}\nThere is nothing left to stop.")
        task = asyncio.create_task(asyncio.to_thread(runs.abort, site.context, run_id))
        # Referenced, so that it is not garbage-collected once the request has been answered.
        stopping.add(task)
        task.add_done_callback(stopping.discard)
        await asyncio.wait([task], timeout=ABORT_SECONDS)
        if task.done():
            task.result()
        return await _answer(site, run_id)

    @routes.post("/{run_id}/resume", summary="Resume a run that was stopped, halted, or killed")
    async def resume(
        run_id: RunId,
        stop_early: Annotated[
            bool,
            Query(alias="stopEarly", description="False: also run the items that `stop_when` did not need."),
        ] = True,
        budget: Annotated[
            float | None, Query(gt=0, allow_inf_nan=False, description="New budget of the run in US dollars.")
        ] = None,
    ) -> SteeringAnswer:
        """Finished items are not repeated. Responds as soon as a process owns the run."""
        run_id = await asyncio.to_thread(runs.resumable_run, site.context, run_id)
        changes = BatchChanges(budget_usd=budget, stops_early=stop_early)
        await resume_run(site.context, site.launcher, run_id, changes=changes)
        return await _answer(site, run_id)

    @routes.post("/{run_id}/retry", summary="Retry items that did not succeed")
    async def retry(
        run_id: RunId,
        errors: Annotated[bool, Query(description="Items that ended in `error`.")] = True,
        failed: Annotated[bool, Query(description="Items that ended in `fail` or `timeout`.")] = True,
        item: Annotated[
            list[str] | None,
            Query(max_length=MOST_ITEMS, description="Only these items, by their whole IDs."),
        ] = None,
    ) -> SteeringAnswer:
        """Adds an attempt to each of these items, and resumes the unfinished ones."""
        ids = [one.replace("\0", "") for one in item or ()]
        run_id, selection = await asyncio.to_thread(
            runs.items_to_retry, site.context, run_id, errors=errors, failures=failed, item_ids=ids
        )
        await resume_run(site.context, site.launcher, run_id, retry=selection)
        return await _answer(site, run_id)

    return routes


async def _answer(site: AppState, run_id: str) -> SteeringAnswer:
    run_id, status = await asyncio.to_thread(runs.status_of, site.context, run_id)
    return SteeringAnswer(run_id=run_id, status=status)


@contextmanager
def errors_of_request() -> Iterator[None]:
    """Report an error of the body as one of the request (400): what is wrong or missing is a name in the
    request, neither its address (404) nor another server (502)."""
    try:
        yield
    except ProctorError as error:
        raise UsageError(str(error)) from error


async def run_in_thread(make: Callable[[], Coroutine[Any, Any, T]], *, seconds: float) -> T:
    """The result of a coroutine that runs in a thread with an event loop of its own, so that what blocks in
    it delays no other request.

    It is cancelled with the caller, and after `seconds`, which raises a `TimeoutError`.
    """
    started = Future[Callable[[], object]]()

    async def execute() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        started.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        async with asyncio.timeout(seconds):
            return await make()

    work = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(execute())))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancel = await asyncio.wrap_future(started)
        # The loop is closed if the coroutine has just ended by itself.
        with suppress(RuntimeError):
            cancel()
        # Everything it started has stopped when the request ends.
        await asyncio.wait([work])
        raise
