"""Results of a run as its job shows them: computed beside the requests, cached until items finish."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Annotated, Literal

from fastapi import APIRouter, FastAPI
from pydantic import Field

from proctor.api.loaded_results import LARGE, STOP_SECONDS, Reading, finished_count
from proctor.cache import LruCache
from proctor.document import (
    Cell,
    Column,
    Document,
    Figure,
    Sentence,
    Table,
)
from proctor.errors import ProctorError
from proctor.formatting import percent, whole
from proctor.item import FAIL, FINISHED, RUNNING, SUCCESS, TIMEOUT
from proctor.job import STOP_RULE
from proctor.jobs import job_of_run
from proctor.store import items as stored_items
from proctor.store.runs import last_change
from proctor.store.tables import BatchRow
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import ResultFigureShape, RowModel, RunId, WaitSeconds
from proctor.web.runs import LIVE_REMARK
from proctor.web.state import AppState

WAIT_SECONDS = 0.3
"""How long a request waits for new results; it gets the last ones, or counts alone, if they take longer."""
REFRESH_SECONDS = 3.0
REFRESH_SHARE = 10
"""Results of a running run are at least so old before they are computed again, and computing them takes at
most one part in so many of the time."""
THREADS = 2
"""So that the results of a small run do not wait for those of a large one."""
MOST_CACHED = 50
MOST_LISTED = 40
EARLY_REMARK = (
    "The run could stop early. The intervals of `stop_when` take account of that, those of tables and charts "
    "do not."
)
MOST_COMPARED = 12
"""Levels of which the leader is named: every pair of them is followed."""

State = tuple[str, str | None, tuple[int, ...], str | None, str | None]
"""Status and end of the run, finished items by status, and the last changes of any run."""


class SentenceShape(RowModel):
    """A conclusion in words."""

    kind: Literal["sentence"]
    text: str
    note: str = Field(description="What it assumes, or what limits it.")
    tone: Literal["plain", "good", "open"] = Field(description="`good`: decided; `open`: undecided.")
    offers_stop: bool = Field(description="Whether the run can be stopped now.")


class ColumnShape(RowModel):
    """A column of a table."""

    title: str
    is_numeric: bool
    limits: tuple[float, float] | None = Field(description="Scale on which figures are drawn. Null: none.")
    is_optional: bool = Field(description="Whether pages show it on demand only.")


class CellShape(RowModel):
    """A cell of a table."""

    text: str
    figure: ResultFigureShape | None
    session: str = Field(description="ID of the session that it links to. Empty: none.")


class TableShape(RowModel):
    """A leaderboard, or a list of scores."""

    kind: Literal["table"]
    title: str
    caption: str
    columns: list[ColumnShape]
    rows: list[list[CellShape]]
    omitted: int = Field(description="Rows that are not listed.")


class MarkedChartShape(RowModel):
    """A chart whose marks have figures: the attribute `data-mark` is an index in `marks`."""

    kind: Literal["chart"]
    title: str
    caption: str
    svg: str
    marks: list[ResultFigureShape]


class MatrixCellShape(RowModel):
    """The items of one task and one column."""

    status: str = Field(description="Of several items, the worst.")
    text: str
    note: str
    item_ids: list[str] = Field(description="The worst first.")


class MatrixShape(RowModel):
    """Tasks × agents or models."""

    kind: Literal["matrix"]
    title: str
    caption: str
    row_title: str
    columns: list[str]
    rows: list[tuple[str, list[MatrixCellShape | None]]]
    omitted: int = Field(description="Rows that are not listed.")


SectionShape = Annotated[
    SentenceShape | TableShape | MarkedChartShape | MatrixShape, Field(discriminator="kind")
]


class ResultsAnswer(RowModel):
    """The results of a run so far."""

    sections: list[SectionShape]
    remarks: list[str] = Field(description="What limits the figures.")
    finished_count: int = Field(description="Finished items that they are computed from.")
    is_current: bool = Field(description="False: newer results are being computed; ask again.")
    reading: Reading | None = Field(
        default=None, description="Progress of reading the items of a large run. Null: nothing is read."
    )


@dataclass(frozen=True, slots=True)
class _Computed:
    """Results, and the state of the run they are of."""

    answer: ResultsAnswer
    state: State
    ended: float
    seconds: float


class RunResults:
    """Results of runs, computed by threads of their own so that pages stay quick; thread-safe."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._computed: LruCache[str, _Computed] = LruCache(MOST_CACHED)
        self._counts: LruCache[str, tuple[State, ResultsAnswer]] = LruCache(MOST_CACHED)
        self._pending: dict[str, Future[None]] = {}
        self._decisions = _Decisions(site)
        self._queue: SimpleQueue[tuple[BatchRow, State, Future[None]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def of(self, run_id: str, wait: float) -> ResultsAnswer:
        """The results of a run: current ones if they come within `wait` seconds, else the last ones."""
        batch = self._site.context.store.read.batch(run_id, self._site.now())
        state = self._state(batch)
        pending = self._start(batch, state)
        if pending is not None:
            # A large run takes longer than anybody waits.
            is_large = wait == WAIT_SECONDS and sum(state[2]) > LARGE
            wait_for([pending], timeout=0 if is_large else wait)
            if pending.done():
                # Raises what the computation raised.
                pending.result()
        with self._lock:
            last, counted = self._computed.get(batch["runId"]), self._counts.get(batch["runId"])
        if last is None:
            answer = counted[1] if counted and counted[0] == state else self._counted(batch)
            with self._lock:
                self._counts.put(batch["runId"], (state, answer))
            return answer.model_copy(update={"reading": self._site.results.reading(batch["runId"])})
        is_current = last.state == state or (last.state[0] == state[0] == RUNNING and pending is None)
        return last.answer.model_copy(update={"is_current": is_current})

    def _start(self, batch: BatchRow, state: State) -> "Future[None] | None":
        """Begin to compute the results of a run, unless they are current or recent; what computes them."""
        run_id = batch["runId"]
        with self._lock:
            if run_id in self._pending:
                return self._pending[run_id]
            last = self._computed.get(run_id)
            if last is not None and last.state == state:
                return None
            if last is not None and batch["status"] == RUNNING == last.state[0]:
                rest = max(REFRESH_SECONDS, REFRESH_SHARE * last.seconds)
                if time.monotonic() - last.ended < rest:
                    return None
            pending = self._pending[run_id] = Future()
            self._queue.put((batch, state, pending))
            if len(self._threads) < THREADS and not self._is_closed:
                # Daemons: a server that ends does not wait long for figures that nobody will see.
                self._threads.append(threading.Thread(target=self._work, daemon=True, name="results"))
                self._threads[-1].start()
            return pending

    def close(self) -> None:
        """Stop the threads; what was not begun is not computed."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads)
        for _ in threads:
            self._queue.put(None)
        for thread in threads:
            thread.join(STOP_SECONDS)

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            batch, state, pending = task
            if self._is_closed:
                pending.cancel()
                continue
            try:
                self._compute(batch, state)
            except Exception as error:
                pending.set_exception(error)
            else:
                pending.set_result(None)

    def _compute(self, batch: BatchRow, state: State) -> None:
        run_id, began = batch["runId"], time.monotonic()
        try:
            view = self._view(batch)
            with self._lock:
                is_first = self._computed.get(run_id) is None
            if is_first:
                # What is known already, while the leader of a large run is computed.
                self._put(run_id, view, ("", *state[1:]), began)
            sentences = self._decisions.sentences(batch)
            self._put(run_id, replace(view, sections=[*sentences, *view.sections]), state, began)
        finally:
            with self._lock:
                self._pending.pop(run_id, None)

    def _put(self, run_id: str, view: Document, state: State, began: float) -> None:
        answer, ended = _answer(view, self._finished(run_id)), time.monotonic()
        with self._lock:
            self._computed.put(run_id, _Computed(answer, state, ended, ended - began))

    def _view(self, batch: BatchRow) -> Document:
        # numpy is loaded with the first results, not with the server.
        from proctor.report.result_sections import change_finder, general_view

        read, run_id = self._site.context.store.read, batch["runId"]
        job = job_of_run(batch["job"])
        view = job.results_view(run_id, self._site.context)
        if view is None:
            view = general_view(self._site.results.of(run_id), change_finder(read, run_id))
        if batch["status"] == RUNNING and view.sections:
            return replace(view, remarks=[LIVE_REMARK, *view.remarks])
        if read.resource(run_id, STOP_RULE) is not None:
            return replace(view, remarks=[EARLY_REMARK, *view.remarks])
        return view

    def _counted(self, batch: BatchRow) -> ResultsAnswer:
        """Counts alone, which the store has at once."""
        read, run_id = self._site.context.store.read, batch["runId"]
        levels: dict[str, dict[str, int]] = {}
        if not job_of_run(batch["job"]).evaluates_sessions:
            for row in stored_items.status_counts_by(read, run_id, "model"):
                levels.setdefault(row["level"], {})[row["status"]] = row["n"]
        answer = _answer(_counted_view(levels, "model"), self._finished(run_id))
        return answer.model_copy(update={"is_current": False})

    def _finished(self, run_id: str) -> int:
        counts = self._site.item_counts.of(self._site.context.store.read.batch(run_id, self._site.now()))
        return finished_count(counts)

    def _state(self, batch: BatchRow) -> State:
        """A value that changes whenever the results may have changed; the first part is the status."""
        read = self._site.context.store.read
        counts = self._site.item_counts.of(batch)
        # Later evaluations add scores to a run that has ended.
        last = last_change(read) if batch["status"] != RUNNING else {"at": "", "end": ""}
        finished = tuple(counts[status] for status in FINISHED)
        return batch["status"], batch["finishedAt"], finished, last["at"], last["end"]


class _Decisions:
    """Who leads each run, and how many more tasks would decide it."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._followers: LruCache[str, object] = LruCache(MOST_CACHED)

    def sentences(self, batch: BatchRow) -> list[Sentence]:
        """The sentence about the leader; none where a run compares nothing."""
        from proctor.report.result_sections import decision_sentence
        from proctor.stats.stopping import StopFollower, stored_rule

        read, run_id = self._site.context.store.read, batch["runId"]
        counts = self._site.item_counts.of(batch)
        total, finished = sum(counts.values()), finished_count(counts)
        rule = own = stored_rule(read, run_id)
        if own is None or own.ranks is None:
            rule = job_of_run(batch["job"]).decision_rule(self._varied(run_id))
        if rule is None or not finished:
            return []
        with self._lock:
            follower = self._followers.get(run_id)
            if not isinstance(follower, StopFollower):
                follower = StopFollower(rule, read, run_id)
                self._followers.put(run_id, follower)
        try:
            standing = follower.monitor(total, finished).standing()
        except ProctorError:
            # Items without the factor, or all of one level: there is no leader.
            return []
        if standing is None:
            return []
        is_running = batch["status"] == RUNNING
        # With a rule of their own, runs have their tasks in random order.
        return [decision_sentence(standing, is_running=is_running, is_random=own is not None)]

    def _varied(self, run_id: str) -> list[str]:
        """Which of agent and model vary, with few enough levels to compare every pair."""
        pairs = stored_items.agent_model_counts(self._site.context.store.read, run_id)
        levels = {"agent": {row["agent"] for row in pairs}, "model": {row["model"] for row in pairs}}
        return [name for name, names in levels.items() if 1 < len(names - {""}) <= MOST_COMPARED]


def _answer(view: Document, finished: int) -> ResultsAnswer:
    return ResultsAnswer.model_validate(
        {
            "sections": view.sections,
            "remarks": view.remarks,
            "finished_count": finished,
            "is_current": True,
        }
    )


def _counted_view(levels: Mapping[str, Mapping[str, int]], by: str) -> Document:
    """Success rates by counts alone, while the intervals of a large run are computed."""
    rows = []
    for name, counts in levels.items():
        judged = sum(counts.get(status, 0) for status in (SUCCESS, FAIL, TIMEOUT))
        share = counts.get(SUCCESS, 0) / judged if judged else None
        rows.append((share, name, judged))
    rows.sort(key=lambda row: (row[0] is None, -(row[0] or 0.0), row[1]))
    return Document(
        sections=[
            Table(
                title=f"By {by}",
                columns=[
                    Column(title=by.capitalize()),
                    Column(title="Success rate", is_numeric=True),
                    Column(title="Items", is_numeric=True),
                ],
                rows=[
                    [
                        Cell(
                            text=name or "(none)",
                            figure=Figure(label=name, text=name, items={by: [name]} if name else None),
                        ),
                        Cell(text=percent(share)),
                        Cell(text=whole(judged)),
                    ]
                    for share, name, judged in rows[:MOST_LISTED]
                ],
                caption="Confidence intervals are being computed.",
            )
        ]
        if rows
        else []
    )


def router(site: AppState) -> APIRouter:
    """The results of runs."""
    results = RunResults(site)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        site.results.open()
        yield
        # First what they wait for.
        await asyncio.to_thread(site.results.close)
        await asyncio.to_thread(results.close)

    routes = APIRouter(responses=ERRORS, lifespan=lifespan)

    @routes.get("/api/runs/{run_id}/results", tags=["runs"], summary="The results of a run so far")
    def of_run(
        run_id: RunId,
        wait: WaitSeconds = WAIT_SECONDS,
    ) -> ResultsAnswer:
        """Sections as the job of the run has them; computed again when items have finished."""
        return results.of(run_id, wait)

    return routes
