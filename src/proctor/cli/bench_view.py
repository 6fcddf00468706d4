"""What is shown while a benchmark runs: a table of its models on a terminal, else a line for each run.

Whatever is shown, each model's result file is written as its runs end.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from proctor.analyse.standing import Standing, standing
from proctor.batch.house import ItemEnd
from proctor.cli.house import now
from proctor.cli.views import beginning
from proctor.cli.words import count, money, printable, say, seconds
from proctor.item import SUCCESS
from proctor.store import Store

if TYPE_CHECKING:
    from rich.table import Table

REFRESH_SECONDS = 0.25


class BenchView:
    """Watches a benchmark: writes files, and shows how far it is."""

    def __init__(
        self,
        store: Store,
        run_id: str,
        keep: Callable[[str], None],
        *,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        """`keep` writes the files of one model."""
        self._store = store
        self._run_id = run_id
        self._keep = keep
        self._quiet = quiet
        self._verbose = verbose
        self._is_live = not quiet and sys.stderr.isatty()
        self._task: asyncio.Task[None] | None = None
        totals = store.read.totals(run_id)
        self._items, self._finished = totals["items"], totals["finished"]

    def item(self, end: ItemEnd) -> None:
        """A run has ended, and that is committed."""
        self._finished += 1
        if not self._quiet and not self._is_live:
            say(f"[{self._finished}/{self._items}] {self._line(end)}")
        if self._verbose and not self._is_live:
            for score in self._store.read.of_session("scores", end.session_id):
                say(f"        {score['label'] or '–':<5}  {printable(score['evaluator'], width=100)}")
        self._keep(end.item.factors["model"])

    async def __aenter__(self) -> Self:
        if self._is_live:
            self._task = asyncio.create_task(self._draw())
        elif not self._quiet:
            say(beginning(self._run_id, count(self._items, "run"), self._finished))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _line(self, end: ItemEnd) -> str:
        factors, outcome = end.item.factors, end.outcome
        parts = [f"{outcome.status:<7}", factors["model"], factors["task"]]
        if end.item.repeat > 1:
            parts.append(f"run {end.item.repeat}")
        parts.append(seconds(end.work_seconds))
        parts += [f"{end.tokens:,} tokens"] if end.tokens else []
        parts += [money(end.cost_usd)] if end.cost_usd is not None else []
        line = "  ".join(printable(part, width=60) for part in parts)
        why = f"  {outcome.reason}: {printable(outcome.error, width=160)}"
        return line if outcome.status == SUCCESS else line + why

    async def _draw(self) -> None:
        # Drawing takes libraries that a run in a script need not load.
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
        return picture(standing(self._store.read, self._run_id, now()), printable(self._run_id))


def picture(rows: Sequence[Standing], title: str) -> "Table":
    """A benchmark as it stands, as a table of its models."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", expand=False)
    for head, justify in (("Model", "left"), ("State", "left"), ("Elapsed", "right"), ("Tokens", "right")):
        table.add_column(head, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    table.add_column("Cost", justify="right", no_wrap=True)
    for row in rows:
        elapsed = seconds(row.elapsed_seconds) if row.elapsed_seconds else "–"
        cost = money(row.cost_usd) if row.cost_usd is not None else "–"
        cells = (row.model, row.state, elapsed, f"{row.tokens:,}" if row.tokens else "–", cost)
        table.add_row(*(Text(printable(cell, width=60)) for cell in cells))
    return table
