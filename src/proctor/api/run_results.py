"""Results and charts of a run: computed beside the requests, cached until items finish."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, replace
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING

from proctor.api.loaded_results import LARGE, STOP_SECONDS, ItemCounts, LoadedResults, Reading, finished_count
from proctor.cache import LruCache, ResultCache
from proctor.choice import MARGIN, Choice
from proctor.context import RunContext
from proctor.document import Cell, Chart, Column, Document, Figure, FigureList, Section, Sentence, Table
from proctor.errors import ProctorError
from proctor.formatting import percent, whole
from proctor.item import FAIL, FINISHED, RUNNING, SUCCESS, TIMEOUT
from proctor.jobs import job_of_run
from proctor.json_values import CamelJson
from proctor.report import run_charts
from proctor.results.summary import durations
from proctor.stop_rule import STOP_RULE, StopRule
from proctor.store import Scope
from proctor.store import items as stored_items
from proctor.store.aggregates import ranked_durations, select
from proctor.store.runs import last_change
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    from proctor.stats.figures import Figures
    from proctor.stats.ranking import Rank
    from proctor.stats.results import Results

WAIT_SECONDS = 0.3
"""How long pages wait for new results; they get the last ones, or counts alone, if those take longer."""
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
CHARTS_HOLD, LEVELS_HOLD = timedelta(seconds=3), timedelta(seconds=20)
"""Cache time while a run is executed; pages poll every five seconds. Figures of levels read all items."""
LIVE_REMARK = (
    "The run is not finished. Intervals are of the tasks finished so far; they are valid for one look, "
    "not for repeated looks while it runs."
)
READING_REMARK = "All items are being read. The charts follow."


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResults(CamelJson):
    """The results of a run so far."""

    sections: Sequence[Section]
    notes: Sequence[str]
    """What limits the figures."""
    finished_count: int
    """Finished items that they are computed from."""
    is_current: bool = True
    """False: newer results are being computed; ask again."""
    reading: Reading | None = None
    """Progress of reading the items of a large run. Null: nothing is read."""
    choice: Choice | None = None
    """What to use. Null: the run compares nothing, or is not finished."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """Results, and the state of the run they are of."""

    answer: RunResults
    state: State
    ended: float
    seconds: float


class ResultsOfRuns:
    """Results of runs, computed by threads of their own so that pages stay quick; thread-safe."""

    def __init__(self, ctx: RunContext, results: LoadedResults, item_counts: ItemCounts) -> None:
        self._ctx = ctx
        self._results = results
        self._item_counts = item_counts
        self._lock = threading.Lock()
        self._computed: LruCache[str, _Computed] = LruCache(MOST_CACHED)
        self._counts: LruCache[str, tuple[State, RunResults]] = LruCache(MOST_CACHED)
        self._pending: dict[str, Future[None]] = {}
        self._decisions = _Decisions(ctx, item_counts)
        self._queue: SimpleQueue[tuple[BatchRow, State, Future[None]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_closed = False

    def of(self, run_id: str, wait: float, *, margin: float | None = None, baseline: str = "") -> RunResults:
        """The results of a run: current ones if they come within `wait` seconds, else the last ones.

        `margin` and `baseline` are those of the answer that the results begin with.
        """
        answer = self._of(run_id, wait)
        if answer.choice is None or (not baseline and margin in (None, answer.choice.margin)):
            return answer
        from proctor.stats.choice import choose

        margin = MARGIN if margin is None else margin
        choice = choose(self._results.of(run_id), answer.choice.factor, margin=margin, baseline=baseline)
        first = [_answer(choice)] if choice else []
        return replace(answer, choice=choice, sections=[*first, *answer.sections[1:]])

    def _of(self, run_id: str, wait: float) -> RunResults:
        batch = self._ctx.store.read.batch(run_id, self._ctx.now())
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
            return replace(answer, reading=self._results.reading(batch["runId"]))
        is_current = last.state == state or (last.state[0] == state[0] == RUNNING and pending is None)
        return replace(last.answer, is_current=is_current)

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
            choice = self._choice(batch)
            sentences = [_answer(choice)] if choice else self._decisions.sentences(batch)
            view = replace(view, sections=[*sentences, *view.sections])
            self._put(run_id, view, state, began, choice)
        finally:
            with self._lock:
                self._pending.pop(run_id, None)

    def _choice(self, batch: BatchRow) -> Choice | None:
        return _choice(self._ctx, batch, self._results.of)

    def _put(
        self, run_id: str, view: Document, state: State, began: float, choice: Choice | None = None
    ) -> None:
        answer = RunResults(
            sections=view.sections,
            notes=view.remarks,
            finished_count=self._finished(run_id),
            choice=choice,
        )
        ended = time.monotonic()
        with self._lock:
            self._computed.put(run_id, _Computed(answer, state, ended, ended - began))

    def _view(self, batch: BatchRow) -> Document:
        # numpy is loaded with the first results, not with the server.
        from proctor.report.result_sections import change_finder, general_view

        read, run_id = self._ctx.store.read, batch["runId"]
        results = job_of_run(batch["job"]).documents(run_id, self._ctx).results
        view = results() if results else None
        if view is None:
            view = general_view(self._results.of(run_id), change_finder(read, run_id))
        if batch["status"] == RUNNING and view.sections:
            return replace(view, remarks=[LIVE_REMARK, *view.remarks])
        if read.resource(run_id, STOP_RULE) is not None:
            return replace(view, remarks=[EARLY_REMARK, *view.remarks])
        return view

    def _counted(self, batch: BatchRow) -> RunResults:
        """Counts alone, which the store has at once."""
        read, run_id = self._ctx.store.read, batch["runId"]
        levels: dict[str, dict[str, int]] = {}
        if not job_of_run(batch["job"]).evaluates_sessions:
            for row in stored_items.status_counts_by(read, run_id, "model"):
                levels.setdefault(row["level"], {})[row["status"]] = row["n"]
        return RunResults(
            sections=_counted_sections(levels, "model"),
            notes=(),
            finished_count=self._finished(run_id),
            is_current=False,
        )

    def _finished(self, run_id: str) -> int:
        counts = self._item_counts.of(self._ctx.store.read.batch(run_id, self._ctx.now()))
        return finished_count(counts)

    def _state(self, batch: BatchRow) -> State:
        """A value that changes whenever the results may have changed; the first part is the status."""
        read = self._ctx.store.read
        counts = self._item_counts.of(batch)
        # Later evaluations add scores to a run that has ended.
        last = last_change(read) if batch["status"] != RUNNING else {"at": "", "end": ""}
        finished = tuple(counts[status] for status in FINISHED)
        return batch["status"], batch["finishedAt"], finished, last["at"], last["end"]


def answer_of_run(ctx: RunContext, run_id: str) -> Sentence | None:
    """What to use, as the results of a run begin; None while it is executed, or compares nothing."""
    from proctor.report.answer import stop_verdict
    from proctor.results.loading import load_results
    from proctor.results.stopping import StopMonitor, stored_rule

    batch = ctx.store.read.batch(run_id, ctx.now())
    rule = stored_rule(ctx.store.read, batch["runId"])
    if rule is not None and rule.is_adaptive and batch["status"] != RUNNING:
        return stop_verdict(StopMonitor(rule, ctx.store.read, batch["runId"]).document())
    choice = _choice(ctx, batch, lambda run: load_results(ctx.store.read, [run], ctx.now()))
    return _answer(choice) if choice else None


def _choice(ctx: RunContext, batch: BatchRow, load: "Callable[[str], Results]") -> Choice | None:
    """What to use; None while a run is executed, and where it compares nothing or could stop early."""
    run_id, by = batch["runId"], _compared_factor(ctx, batch)
    if not by or batch["status"] == RUNNING or ctx.store.read.resource(run_id, STOP_RULE) is not None:
        return None
    from proctor.stats.choice import choose

    return choose(load(run_id), by)


def _compared_factor(ctx: RunContext, batch: BatchRow) -> str:
    """What a run compares: its models, else its agents, if they vary and are few enough to compare."""
    if not job_of_run(batch["job"]).view.is_comparison:
        return ""
    pairs = stored_items.agent_model_counts(ctx.store.read, batch["runId"])
    levels = {"agent": {row["agent"] for row in pairs}, "model": {row["model"] for row in pairs}}
    varied = [name for name, names in levels.items() if 1 < len(names - {""}) <= MOST_COMPARED]
    return next((name for name in ("model", "agent") if name in varied), "")


def _answer(choice: Choice) -> Sentence:
    from proctor.report.answer import answer

    return answer(choice)


class _Decisions:
    """Who leads each run, and how many more tasks would decide it."""

    def __init__(self, ctx: RunContext, item_counts: ItemCounts) -> None:
        self._ctx = ctx
        self._item_counts = item_counts
        self._lock = threading.Lock()
        self._followers: LruCache[str, object] = LruCache(MOST_CACHED)

    def sentences(self, batch: BatchRow) -> list[Sentence]:
        """The sentence about the leader; none where a run compares nothing."""
        from proctor.report.answer import stop_verdicts
        from proctor.report.result_sections import decision_sentence
        from proctor.results.stopping import StopFollower, stored_rule

        read, run_id = self._ctx.store.read, batch["runId"]
        counts = self._item_counts.of(batch)
        total, finished = sum(counts.values()), finished_count(counts)
        rule = own = stored_rule(read, run_id)
        if own is None or (own.ranks is None and not own.is_adaptive):
            by = _compared_factor(self._ctx, batch)
            rule = StopRule(by=by, ranks=1) if by else None
        if rule is None or not finished:
            return []
        with self._lock:
            follower = self._followers.get(run_id)
            if not isinstance(follower, StopFollower):
                follower = StopFollower(rule, read, run_id)
                self._followers.put(run_id, follower)
        if rule.is_adaptive:
            return stop_verdicts(follower.document(total, finished))
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


def _counted_sections(levels: Mapping[str, Mapping[str, int]], by: str) -> list[Section]:
    """Success rates by counts alone, while the intervals of a large run are computed."""
    rows = []
    for name, counts in levels.items():
        judged = sum(counts.get(status, 0) for status in (SUCCESS, FAIL, TIMEOUT))
        share = counts.get(SUCCESS, 0) / judged if judged else None
        rows.append((share, name, judged))
    rows.sort(key=lambda row: (row[0] is None, -(row[0] or 0.0), row[1]))
    if not rows:
        return []
    return [
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCharts:
    """The charts of a run; by a factor, with the figures behind them."""

    by: str = ""
    note: str = ""
    """Why a chart is missing, or what limits the intervals."""
    charts: Sequence[Chart] = ()
    levels: "Sequence[Figures]" = ()
    """Levels of the factor, best success rate first."""
    ranks: "Sequence[Rank]" = ()
    """Of the factor's levels, by success."""
    is_current: bool = True


class ChartsOfRuns:
    """Charts of runs, cached until items finish; thread-safe."""

    def __init__(self, ctx: RunContext, results: LoadedResults) -> None:
        self._ctx = ctx
        self._results = results
        self._charts = ResultCache[RunCharts](ctx.now, while_running=CHARTS_HOLD)
        self._by_level = ResultCache[RunCharts](ctx.now, while_running=LEVELS_HOLD)

    def of(self, run_id: str, by: str, wait: float) -> RunCharts:
        """Outcomes and durations of all items; by a factor: success rate, cost and duration.

        Charts by a factor are missing if the items of a large run have not been read after `wait` seconds.
        """
        batch = self._ctx.store.read.batch(run_id, self._ctx.now())
        if not by:
            return self._charts.get(batch, by, lambda: self._overall(batch["runId"]))
        results, _ = self._results.within([batch], wait)
        if results is None:
            return RunCharts(by=by, note=READING_REMARK, is_current=False)
        return self._by_level.get(batch, by, lambda: _level_charts(results, batch, by))

    def _overall(self, run_id: str) -> RunCharts:
        read = self._ctx.store.read
        marks = FigureList()
        outcomes = run_charts.outcome_bar(stored_items.status_counts(read, run_id), marks)
        charts = [Chart(title="Outcomes", svg=outcomes, marks=marks.figures)]
        took = durations(ranked_durations(select(read, Scope(run_id=run_id))))
        if took.items:
            lasting = FigureList()
            histogram = run_charts.duration_histogram(took, lasting)
            charts.append(Chart(title="How long items took", svg=histogram, marks=lasting.figures))
        return RunCharts(charts=charts)


def _level_charts(results: "Results", batch: BatchRow, by: str) -> RunCharts:
    """The levels of a factor, from the finished items of a run."""
    # numpy is loaded with the first figures, not with the server.
    from proctor.stats.figures import factor_figures

    factor = factor_figures(results, by)
    notes = [f"{by} has too many levels to compare."] if factor.is_too_many else []
    if batch["status"] == RUNNING and factor.levels:
        notes.append(LIVE_REMARK)
    return RunCharts(
        by=by,
        note=" ".join(notes),
        charts=run_charts.plots(factor),
        levels=factor.levels,
        ranks=factor.ranks,
    )
