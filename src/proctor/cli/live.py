"""A live picture of a run, drawn four times a second whatever the number of items.

Reads the store, so that it shows a run of this process and of any other alike.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proctor.analyse.progress import PoolUse, Progress, progress
from proctor.batch.house import ItemEnd
from proctor.cli.house import now
from proctor.cli.words import count, money, printable, seconds
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, TIMEOUT
from proctor.store import Store

REFRESH_SECONDS = 0.25
COLOURS = {SUCCESS: "green", FAIL: "red", TIMEOUT: "yellow", ERROR: "magenta", RUNNING: "cyan", QUEUED: "dim"}


class LiveView:
    """Shows a run on the terminal until it is left."""

    def __init__(self, store: Store, run_id: str, *, clock: Callable[[], datetime] = now) -> None:
        self._store = store
        self._run_id = run_id
        self._clock = clock
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=False)
        self._task: asyncio.Task[None] | None = None
        self.last: Progress | None = None
        """What was seen last."""

    def item(self, end: ItemEnd) -> None:
        """Failures scroll by above the picture, as they happen."""
        if end.outcome.status != SUCCESS:
            words = f"{end.outcome.status} {end.id[:8]} {end.item.prompt}: {end.outcome.error}"
            self._live.console.print(
                Text(printable(words, width=200), style=COLOURS[end.outcome.status]), soft_wrap=False
            )

    async def refresh(self) -> Progress:
        """Look again, and draw what is seen."""
        self.last = await asyncio.to_thread(
            progress, self._store.read, self._run_id, self._clock(), self.last
        )
        self._live.update(picture(self.last))
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


def picture(seen: Progress) -> Group:
    """A run as it stands: the bar, the figures, what is asked of providers, what is running."""
    bar = Table.grid(expand=True, padding=(0, 1))
    bar.add_column(ratio=1)
    bar.add_column(justify="right", no_wrap=True)
    bar.add_row(
        ProgressBar(total=max(1, seen.total), completed=seen.finished),
        f"{seen.finished:,} of {count(seen.total, 'item')}",
    )
    head = Text(f"{printable(seen.run_id)} · {seen.status}", style="bold")
    return Group(head, bar, _figures(seen), *map(_pool, seen.pools), _running(seen))


def _figures(seen: Progress) -> Text:
    words = Text()
    for status, number in seen.counts.items():
        if number:
            words.append(f"{number:,} {status}", style=COLOURS[status]).append("  ")
    parts = [seconds(seen.elapsed_seconds)]
    if seen.eta_seconds is not None:
        parts.append(f"about {seconds(seen.eta_seconds)} left")
    if seen.tokens:
        parts.append(f"{seen.tokens:,} tokens")
    if seen.cost_usd is not None:
        limit = "" if seen.budget_usd is None else f" of {money(seen.budget_usd)}"
        parts.append(money(seen.cost_usd) + limit)
    return words.append(" · ".join(parts), style="dim")


def _pool(pool: PoolUse) -> Text:
    """One line for each provider: its limit, its use, who waits and for how long."""
    parts = [f"{pool.in_use} of {pool.limit} calls"]
    if pool.waiting:
        parts.append(f"{pool.waiting} waiting")
    if pool.waited_seconds >= 1:
        parts.append(f"{seconds(pool.waited_seconds)} waited")
    if pool.refused:
        parts.append(f"{pool.refused} refused")
    if pool.held_seconds:
        parts.append(f"held for {seconds(pool.held_seconds)}")
    return Text(f"{printable(pool.name)}: {', '.join(parts)}", style="yellow" if pool.held_seconds else "dim")


def _running(seen: Progress) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="cyan", no_wrap=True)
    for _ in range(4):
        table.add_column(no_wrap=True, overflow="ellipsis")
    for item in seen.running:
        where = item.repo.rstrip("/").rpartition("/")[2]
        who = " ".join(part for part in (item.agent, item.model) if part)
        tokens = f"{item.tokens:,} tokens" if item.tokens else ""
        cells = (seconds(item.elapsed_seconds), where, who, printable(item.prompt, width=60), tokens)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
