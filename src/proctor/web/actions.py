"""Stop, resume and retry runs, and answer the questions of scenarios.

A resumed run and an evaluation are detached processes: they outlive the server. All else that a page asks for
is a call of the library, in a thread where it blocks.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
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


class Questions(BaseModel):
    """The open questions of a run, oldest first."""

    questions: Sequence[runs.QuestionRow]


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
        run_id, _ = runs.status_of(site.context, run_id)
        return Questions(questions=runs.open_questions(site.context, run_id))

    @routes.post(
        "/api/runs/{run_id}/questions/{question_id}", summary="Answer a question, once", responses=ERRORS
    )
    def answered(run_id: str, question_id: str, body: QuestionAnswer) -> AcceptedAnswer:
        runs.answer_question(site.context, run_id, question_id, body.answer)
        return AcceptedAnswer(id=question_id)

    return routes


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
