"""Live view of a run, drawn four times a second whatever the number of items.

Reads the store, so that it shows runs of any process.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proctor.api.failures import CountedFailure, FailureCounts
from proctor.api.run_state import (
    AgentModelProgress,
    PoolUse,
    RunFollower,
    RunningItem,
    RunningRuns,
    RunState,
)
from proctor.cli.output import count, money, printable, seconds
from proctor.context import RunContext
from proctor.formatting import interval, percent, short
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT, UNCHECKED
from proctor.job import ItemFinished
from proctor.report.as_text import fitted
from proctor.stop_rule import stop_lines

REFRESH_SECONDS = 0.25
SHOWN_MODELS = 12
"""Agents and models in the live view."""
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
            [f"{cell:>{width}}" if int(column) in self.right else f"{cell:<{width}}" for cell in cells]
            for column, cells in texts.items()
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


class LiveView:
    """Shows a run on the terminal while its context is open."""

    def __init__(self, ctx: RunContext, run_id: str) -> None:
        self._follower = RunFollower(ctx.store.read, run_id)
        self._now = ctx.now
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
        self._task: asyncio.Task[None] | None = None
        self._failures = FailureCounts()

    def item(self, end: ItemFinished) -> None:
        """Count a failure. The first of its kind is printed above the live view, equal ones are counted."""
        outcome = end.outcome
        if outcome.status == SUCCESS:
            return
        group = self._failures.add(outcome)
        if group.count == 1 and len(self._failures) <= PRINTED_FAILURES:
            line = f"{outcome.status} {end.id[:8]} {end.item.prompt}: {outcome.error}"
            self._live.console.print(
                Text(printable(line, width=200), style=COLORS[outcome.status]), soft_wrap=False
            )

    async def refresh(self) -> RunState:
        """Read the state of the run, and draw it."""
        state, agents_and_models = await asyncio.to_thread(self._look)
        self._live.update(picture(state, agents_and_models, self._failures.repeated(SHOWN_FAILURES)))
        return state

    def _look(self) -> tuple[RunState, Sequence[AgentModelProgress]]:
        state = self._follower.look(self._now())
        # The intervals of `stop_when` are more informative than those by agent and model.
        return state, [] if state.stop_when else self._follower.agents_and_models(state, self._now())

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


def picture(
    state: RunState,
    agents_and_models: Sequence[AgentModelProgress] = (),
    failures: Sequence[CountedFailure] = (),
) -> Group:
    """The progress bar, figures, models, equal failures, calls of providers, and running items of a run."""
    bar = Table.grid(expand=True, padding=(0, 1))
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    bar.add_row(
        ProgressBar(total=max(1, state.item_count), completed=state.finished_count),
        f"{state.finished_count:,} of {count(state.item_count, 'item')}",
    )
    stop = stop_lines(state.stop_when) if state.stop_when else []
    lines = [Text(printable(line, width=200)) for line in stop]
    models = [_agents_and_models(agents_and_models)] if len(agents_and_models) > 1 else []
    return Group(
        RunTitle(state.run_id, state.status),
        bar,
        *_figures(state),
        *lines,
        *models,
        *map(_failure, failures),
        *map(_pool, state.pools),
        _running(state),
    )


def _agents_and_models(rows: Sequence[AgentModelProgress]) -> Table:
    """Success rates by agent and model, with intervals that hold at every look, unless tasks are repeated."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis")
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    for row in rows[:SHOWN_MODELS]:
        limits = f"({interval(row.rate.low, row.rate.high)})" if row.rate.low is not None else ""
        done = f"{row.finished:,} of {row.items:,}"
        cells = (row.name, percent(row.rate.value), limits, done)
        table.add_row(*(Text(printable(cell, width=60)) for cell in cells))
    if len(rows) > SHOWN_MODELS:
        table.add_row(Text(f"… and {len(rows) - SHOWN_MODELS} more", style="dim"))
    return table


def _failure(group: CountedFailure) -> Text:
    text = f"{group.count:,} × {group.status}: {printable(group.example, width=160)}"
    return Text(text, style=COLORS[group.status], no_wrap=True, overflow="ellipsis")


def _figures(state: RunState) -> "Sequence[Text | FittedLine]":
    text = Text(no_wrap=True, overflow="ellipsis")
    counts = {**state.counts, SUCCESS: state.counts[SUCCESS] - state.unchecked_count}
    for status, number in (*counts.items(), (UNCHECKED, state.unchecked_count)):
        if number:
            text.append(f"{number:,} {status}", style=COLORS[status]).append("  ")
    parts = [seconds(state.elapsed_seconds)]
    if state.items_per_minute and state.status == RUNNING:
        parts.append(f"{short(state.items_per_minute)} items/min")
    if state.eta_seconds is not None:
        parts.append(f"about {seconds(state.eta_seconds)} remaining")
    if state.cost_usd is not None:
        limit = "" if state.budget_usd is None else f" of {money(state.budget_usd)}"
        parts.append(money(state.cost_usd) + limit)
    if state.tokens:
        parts.append(f"{state.tokens:,} tokens")
    # On a line of its own: both together are wider than most terminals.
    return [*([text] if text else []), FittedLine(parts, style="dim")]


def _pool(pool: PoolUse) -> Text:
    """One line per provider: its limit, its use, and how long calls wait."""
    parts = [f"{pool.in_use} of {pool.limit} calls"]
    if pool.waiting:
        parts.append(f"{pool.waiting} waiting")
    if pool.waited_seconds >= 1:
        parts.append(f"{seconds(pool.waited_seconds)} waited")
    if pool.rate_limited:
        parts.append(f"{pool.rate_limited} rate limited (429)")
    if pool.paused_seconds:
        parts.append(f"paused for {seconds(pool.paused_seconds)}")
    style = "yellow" if pool.paused_seconds else "dim"
    return Text(f"{printable(pool.name)}: {', '.join(parts)}", style=style)


def _running(state: RunState) -> "FittedTable":
    rows = list[tuple[str, ...]]()
    for item in state.running:
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
    if item.action not in ("user", "system"):
        return item.action
    # A program of the user, or one without a model, may call none.
    return "waiting for model" if item.model and item.agent != "command" else "working"


async def show_running(runs: RunningRuns) -> None:
    """Draw the runs that are executed until Ctrl-C."""
    with Live(console=Console(stderr=True), refresh_per_second=2, screen=False) as live:
        while True:
            live.update(top_picture(await asyncio.to_thread(runs.look)))
            await asyncio.sleep(2 * REFRESH_SECONDS)


def top_cells(run: RunState) -> tuple[str, ...]:
    """One live run in a row: run, items, success rate, items a minute, time remaining, and cost."""
    succeeded = run.counts[SUCCESS] - run.unchecked_count
    judged = succeeded + run.counts[FAIL] + run.counts[TIMEOUT]
    rate = "–" if run.items_per_minute is None else short(run.items_per_minute)
    left = "–" if run.eta_seconds is None else seconds(run.eta_seconds)
    cost = "–" if run.cost_usd is None else money(run.cost_usd)
    passed = percent(succeeded / judged if judged else None)
    return run.run_id, f"{run.finished_count:,}/{run.item_count:,}", passed, rate, left, cost


TOP_HEADS = ("RUN", "DONE", "PASSED", "ITEMS/MIN", "LEFT", "COST")


def top_picture(runs: Sequence[RunState]) -> Group | Text:
    """All live runs: a row each, with what its longest item is doing."""
    if not runs:
        return Text("No live runs. Ctrl-C ends.", style="dim")
    rows = [TOP_HEADS, *(tuple(printable(cell, width=60) for cell in top_cells(run)) for run in runs)]
    table = FittedTable(rows, right=range(1, len(TOP_HEADS)))
    return Group(table, *(line for run in runs for line in _longest(run)))


def _longest(run: RunState) -> list[Text]:
    """What the item of a run that has been running for longest is doing."""
    lines = []
    for item in run.running[:1]:
        parts = (run.run_id, seconds(item.elapsed_seconds), item.item_id[:8], item.agent, item.model)
        text = "  ".join(printable(part, width=24) for part in (*parts, _action(item)) if part)
        lines.append(Text(text, style="cyan", no_wrap=True, overflow="ellipsis"))
    return lines
