"""Live view of a run, drawn four times a second whatever the number of items.

Reads the store, so that it shows runs of any process.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proctor.bootstrap import now
from proctor.cli.output import count, money, print_note, printable, seconds
from proctor.cli.run import beginning
from proctor.formatting import interval, percent, short
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT, UNCHECKED, shown_status
from proctor.job import ItemFinished
from proctor.report.as_text import fitted
from proctor.stats.leaderboard import ModelStanding, models_with_agents, ranked_name, standing
from proctor.stats.outcomes import message_pattern
from proctor.stats.progress import MakerProgress, PoolUse, Progress, RunningItem, progress, stop_lines
from proctor.store import Store
from proctor.store.items import benchmark_items

REFRESH_SECONDS = 0.25
SHOWN_MAKERS = 12
SHOWN_FAILURES = 5
"""Groups of equal failures in the live view."""
PRINTED_FAILURES = 20
"""Kinds of failures that are printed above it; more would flood the terminal."""
COLORS = {
    SUCCESS: "green",
    FAIL: "red",
    TIMEOUT: "yellow",
    ERROR: "magenta",
    RUNNING: "cyan",
    QUEUED: "dim",
    UNCHECKED: "blue",
}


@dataclass(frozen=True, slots=True)
class FittedTable:
    """Rows in columns that fit the terminal: empty columns are left out, the widest ones are cut.

    A table of rich takes from all columns, so that times and figures end in `…` beside long names.
    """

    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    """Columns that are aligned to the right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {str(place): list(cells) for place, cells in enumerate(zip(*self.rows, strict=True))}
        texts = fitted(columns, options.max_width, ()) if columns else {}
        lines = [
            [f"{cell:>{width}}" if int(place) in self.right else f"{cell:<{width}}" for cell in cells]
            for place, cells in texts.items()
            for width in [max(map(len, cells))]
        ]
        for cells in zip(*lines, strict=True):
            yield Text("  ".join(cells).rstrip(), no_wrap=True, overflow="crop")


@dataclass(frozen=True, slots=True)
class FittedLine:
    """Parts of a line as far as they fit the terminal: the last ones are left out, not cut."""

    parts: Sequence[str]
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = list(self.parts)
        while len(parts) > 1 and len(" · ".join(parts)) > options.max_width:
            parts.pop()
        yield Text(" · ".join(parts), style=self.style, no_wrap=True, overflow="ellipsis")


@dataclass(frozen=True, slots=True)
class RunTitle:
    """A run with its status on one line; a long ID is cut."""

    run_id: str
    status: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, options.max_width - len(f" · {self.status}"))
        yield Text(f"{printable(self.run_id, width=room)} · {self.status}", style="bold", no_wrap=True)


@dataclass(slots=True)
class CountedFailure:
    """Failures whose messages differ only in values."""

    status: str
    example: str
    count: int = 0


class LiveView:
    """Shows a run on the terminal while its context is open."""

    def __init__(self, store: Store, run_id: str, *, clock: Callable[[], datetime] = now) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
        self._task: asyncio.Task[None] | None = None
        self._failures: dict[tuple[str, str], CountedFailure] = {}
        self.last: Progress | None = None
        """The progress that was drawn last."""

    def item(self, end: ItemFinished) -> None:
        """Count a failure. The first of its kind is printed above the live view, equal ones are counted."""
        outcome = end.outcome
        if outcome.status == SUCCESS:
            return
        key = (outcome.status, message_pattern(outcome.error or outcome.reason))
        group = self._failures.setdefault(
            key, CountedFailure(outcome.status, outcome.error or outcome.reason)
        )
        group.count += 1
        if group.count == 1 and len(self._failures) <= PRINTED_FAILURES:
            line = f"{outcome.status} {end.id[:8]} {end.item.prompt}: {outcome.error}"
            self._live.console.print(
                Text(printable(line, width=200), style=COLORS[outcome.status]), soft_wrap=False
            )

    async def refresh(self) -> Progress:
        """Read the progress, and draw it."""
        self.last = await asyncio.to_thread(
            progress, self._store.read, self._run_id, self._clock(), self.last, with_makers=True
        )
        self._live.update(picture(self.last, list(self._failures.values())))
        return self.last

    async def __aenter__(self) -> Self:
        self._live.start()
        self._task = asyncio.create_task(self._keep_drawing())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])
        if kind is None:
            await self.refresh()
        self._live.stop()

    async def _keep_drawing(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)


def picture(progress: Progress, failures: Sequence[CountedFailure] = ()) -> Group:
    """The progress bar, figures, models, equal failures, calls of providers, and running items of a run."""
    bar = Table.grid(expand=True, padding=(0, 1))
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    bar.add_row(
        ProgressBar(total=max(1, progress.total), completed=progress.finished),
        f"{progress.finished:,} of {count(progress.total, 'item')}",
    )
    stop = stop_lines(progress.stop_when) if progress.stop_when else []
    lines = [Text(printable(line, width=200)) for line in stop]
    # The intervals of `stop_when` are more informative than those by model.
    models = [] if stop or len(progress.makers) < 2 else [_makers(progress.makers)]
    groups = [_failure(group) for group in _most(failures)]
    return Group(
        RunTitle(progress.run_id, progress.status),
        bar,
        *_figures(progress),
        *lines,
        *models,
        *groups,
        *map(_pool, progress.pools),
        _running(progress),
    )


def _makers(makers: Sequence[MakerProgress]) -> Table:
    """Success rates by agent and model, with intervals that hold at every look, unless tasks are repeated."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    for each in makers[:SHOWN_MAKERS]:
        limits = f"({interval(each.rate.low, each.rate.high)})" if each.rate.low is not None else ""
        done = f"{each.finished:,} of {each.items:,}"
        cells = (each.name, percent(each.rate.value), limits, done)
        table.add_row(*(Text(printable(cell, width=60)) for cell in cells))
    if len(makers) > SHOWN_MAKERS:
        table.add_row(Text(f"… and {len(makers) - SHOWN_MAKERS} more", style="dim"))
    return table


def _most(failures: Sequence[CountedFailure]) -> list[CountedFailure]:
    repeated = [group for group in failures if group.count > 1]
    return sorted(repeated, key=lambda group: -group.count)[:SHOWN_FAILURES]


def _failure(group: CountedFailure) -> Text:
    text = f"{group.count:,} × {group.status}: {printable(group.example, width=160)}"
    return Text(text, style=COLORS[group.status], no_wrap=True, overflow="ellipsis")


def _figures(progress: Progress) -> "Sequence[Text | FittedLine]":
    text = Text(no_wrap=True, overflow="ellipsis")
    counts = {**progress.counts, SUCCESS: progress.counts[SUCCESS] - progress.unchecked}
    for status, number in (*counts.items(), (UNCHECKED, progress.unchecked)):
        if number:
            text.append(f"{number:,} {status}", style=COLORS[status]).append("  ")
    parts = [seconds(progress.elapsed_seconds)]
    if progress.items_per_second and progress.status == RUNNING:
        parts.append(f"{short(60 * progress.items_per_second)} items/min")
    if progress.eta_seconds is not None:
        parts.append(f"about {seconds(progress.eta_seconds)} remaining")
    if progress.cost_usd is not None:
        limit = "" if progress.budget_usd is None else f" of {money(progress.budget_usd)}"
        parts.append(money(progress.cost_usd) + limit)
    if progress.tokens:
        parts.append(f"{progress.tokens:,} tokens")
    # On a line of its own: both together are wider than most terminals.
    return [*([text] if text else []), FittedLine(parts, style="dim")]


def _pool(pool: PoolUse) -> Text:
    """One line per provider: its limit, its use, and how long calls wait."""
    parts = [f"{pool.in_use} of {pool.limit} calls"]
    if pool.waiting:
        parts.append(f"{pool.waiting} waiting")
    if pool.waited_seconds >= 1:
        parts.append(f"{seconds(pool.waited_seconds)} waited")
    if pool.refused:
        parts.append(f"{pool.refused} rate limited (429)")
    if pool.held_seconds:
        parts.append(f"paused for {seconds(pool.held_seconds)}")
    return Text(f"{printable(pool.name)}: {', '.join(parts)}", style="yellow" if pool.held_seconds else "dim")


def _running(progress: Progress) -> "FittedTable":
    rows = list[tuple[str, ...]]()
    for item in progress.running:
        where = item.repo.rstrip("/").rpartition("/")[2]
        who = " ".join(part for part in (item.agent, item.model) if part)
        tokens = f"{item.tokens:,} tokens" if item.tokens else ""
        name = item.item_id[:8] + (f" #{item.repeat}" if item.repeat > 1 else "")
        prompt = printable(item.prompt, width=60)
        cells = (seconds(item.elapsed_seconds), name, where, who, _action(item), tokens, prompt)
        rows.append(tuple(map(printable, cells)))
    return FittedTable(rows, right=[0])


def _action(item: RunningItem) -> str:
    """What an item is doing: its last tool call, or whose turn it is."""
    return "waiting for model" if item.action in ("user", "system") else item.action


class TopView:
    """All live runs of a store, drawn until Ctrl-C."""

    def __init__(self, store: Store, *, clock: Callable[[], datetime] = now) -> None:
        self._store = store
        self._clock = clock
        self._last: dict[str, Progress] = {}

    def read(self) -> list[Progress]:
        """The progress of each running run, newest first."""
        batches = self._store.read.live_batches(self._clock())
        self._last = {
            row["runId"]: progress(
                self._store.read, row["runId"], self._clock(), self._last.get(row["runId"]), with_makers=True
            )
            for row in batches
        }
        return list(self._last.values())

    async def show(self) -> None:
        """Draw until Ctrl-C."""
        with Live(console=Console(stderr=True), refresh_per_second=2, screen=False) as live:
            while True:
                live.update(top_picture(await asyncio.to_thread(self.read)))
                await asyncio.sleep(2 * REFRESH_SECONDS)


def top_cells(run: Progress) -> tuple[str, ...]:
    """One live run in a row: run, items, success rate, items a minute, time remaining, and cost."""
    succeeded = sum(each.rate.successes for each in run.makers)
    judged = sum(each.rate.trials for each in run.makers)
    rate = "–" if run.items_per_second is None else short(60 * run.items_per_second)
    left = "–" if run.eta_seconds is None else seconds(run.eta_seconds)
    cost = "–" if run.cost_usd is None else money(run.cost_usd)
    passed = percent(succeeded / judged if judged else None)
    return run.run_id, f"{run.finished:,}/{run.total:,}", passed, rate, left, cost


TOP_HEADS = ("RUN", "DONE", "PASSED", "ITEMS/MIN", "LEFT", "COST")


def top_picture(runs: Sequence[Progress]) -> Group | Text:
    """All live runs: a row each, with what its longest item is doing."""
    if not runs:
        return Text("No live runs. Ctrl-C ends.", style="dim")
    rows = [TOP_HEADS, *(tuple(printable(cell, width=60) for cell in top_cells(run)) for run in runs)]
    table = FittedTable(rows, right=range(1, len(TOP_HEADS)))
    return Group(table, *(line for run in runs for line in _longest(run)))


def _longest(run: Progress) -> list[Text]:
    """What the item of a run that has been running for longest is doing."""
    lines = []
    for item in run.running[:1]:
        parts = (run.run_id, seconds(item.elapsed_seconds), item.item_id[:8], item.agent, item.model)
        text = "  ".join(printable(part, width=24) for part in (*parts, _action(item)) if part)
        lines.append(Text(text, style="cyan", no_wrap=True, overflow="ellipsis"))
    return lines


class BenchView:
    """Shows a benchmark as a table of its models on a terminal, else as a line per run; writes its files."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        *,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._quiet = quiet
        self._verbose = verbose
        self._is_live = not quiet and sys.stderr.isatty()
        self._task: asyncio.Task[None] | None = None
        totals = store.read.totals(run_id)
        self._items, self._finished = totals["items"], totals["finished"]
        self._split = models_with_agents(
            json.loads(row["factors"]) for row in benchmark_items(store.read, run_id)
        )

    def item(self, end: ItemFinished) -> None:
        """A run has finished and is committed."""
        self._finished += 1
        if not self._quiet and not self._is_live:
            print_note(f"[{self._finished}/{self._items}] {self._line(end)}")
        if self._verbose and not self._is_live:
            for score in self._store.read.of_session("scores", end.session_id):
                print_note(f"        {score['label'] or '–':<5}  {printable(score['evaluator'], width=100)}")

    async def __aenter__(self) -> Self:
        if self._is_live:
            self._task = asyncio.create_task(self._draw())
        elif not self._quiet:
            print_note(beginning(self._run_id, count(self._items, "run"), self._finished))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _line(self, end: ItemFinished) -> str:
        factors, outcome = end.item.factors, end.outcome
        status = shown_status(outcome.status, outcome.reason)
        parts = [f"{status:<7}", ranked_name(factors, self._split), factors["task"]]
        if end.item.repeat > 1:
            parts.append(f"run {end.item.repeat}")
        parts.append(seconds(end.work_seconds))
        parts += [f"{end.tokens:,} tokens"] if end.tokens else []
        parts += [money(end.cost_usd)] if end.cost_usd is not None else []
        line = "  ".join(printable(part, width=60) for part in parts)
        why = f"  {outcome.reason}: {printable(outcome.error, width=160)}"
        return line if outcome.status == SUCCESS else line + why

    async def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=4) as live:
            try:
                while True:
                    live.update(await asyncio.to_thread(self._picture))
                    await asyncio.sleep(REFRESH_SECONDS)
            finally:
                live.update(self._picture())

    def _picture(self) -> "Table":
        return leaderboard_picture(standing(self._store.read, self._run_id, now()), printable(self._run_id))


def leaderboard_picture(rows: Sequence[ModelStanding], title: str) -> "Table":
    """A table of the models of a benchmark."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", expand=False)
    for head, justify in (("Model", "left"), ("State", "left"), ("Elapsed", "right"), ("Tokens", "right")):
        table.add_column(head, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    table.add_column("Cost", justify="right", no_wrap=True)
    has_several = any(sum(row.counts.values()) > 1 for row in rows)
    if has_several:
        has_limits = not any(row.is_clustered for row in rows)
        title = "Passed (95% interval)" if has_limits else "Passed"
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        elapsed = seconds(row.elapsed_seconds) if row.elapsed_seconds else "–"
        cost = money(row.cost_usd) if row.cost_usd is not None else "–"
        tokens = f"{row.tokens:,}" if row.tokens else "–"
        limits = f" ({interval(row.rate.low, row.rate.high)})" if row.rate.low is not None else ""
        passed = [percent(row.rate.value) + limits] if has_several else []
        cells = (row.model, row.state, elapsed, tokens, cost, *passed)
        table.add_row(*(Text(printable(cell, width=60)) for cell in cells))
    return table
