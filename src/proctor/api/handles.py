"""Runs, items and sessions of the store as objects with attributes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proctor.api.sessions import RunItem, RunSession, item_filter
from proctor.batch.executor import RunSummary, run_summary
from proctor.context import Notice
from proctor.errors import NotFound, UsageError
from proctor.export import tables
from proctor.export.tables import TABLES, columns
from proctor.item import SUCCESS
from proctor.json_values import JsonMap, JsonObject
from proctor.store import ItemFilter, Scope, Store
from proctor.store.tables import BatchRow

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

PAGE = 500
"""Items read at a time."""
Retry = Literal["errors", "failed", "all"]
_TABLE_NAMES = {"items": "batch_items", "runs": "batches"}
"""Tables of the store by the names that they have here."""


class Table(list[JsonObject]):
    """Rows that print as an aligned table and convert to a data frame."""

    def __str__(self) -> str:
        if not self:
            return "(no rows)"
        names = list(self[0])
        cells = [[_cell(row.get(name)) for name in names] for row in self]
        widths = [max(len(name), *(len(line[k]) for line in cells)) for k, name in enumerate(names)]
        lines = [names, *cells]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a pandas DataFrame."""
        return _library("pandas").DataFrame(list(self))


class Run:
    """A run in the store, finished or not. Its attributes are read from the store on each access."""

    def __init__(
        self,
        run_id: str,
        store: Store,
        *,
        now: Callable[[], datetime],
        environment: Mapping[str, str],
        notices: Sequence[Notice] = (),
        resume: "Callable[..., Run] | None" = None,
        make_report: Callable[[str, str], str],
    ) -> None:
        """`make_report` makes the report of a run as `md`, `html`, `portable` or `json`."""
        self.id = run_id
        self.notices = tuple(notices)
        """Messages of the library while it ran: remarks on the plan, changes, warnings."""
        self._store, self._now, self._environment, self._resume = store, now, environment, resume
        self._make_report = make_report

    def __repr__(self) -> str:
        totals = self._store.read.totals(self.id)
        return (
            f"<Run {self.id} {self.status}: {totals['counts'][SUCCESS]:,} of {totals['items']:,} succeeded>"
        )

    @property
    def status(self) -> str:
        """`running`, `completed`, `aborted`, `halted` or `interrupted`."""
        return str(self._batch()["status"])

    @property
    def reason(self) -> str:
        """Why it stopped before its end; empty when it did not."""
        return str(self._batch()["reason"] or "")

    def summary(self) -> RunSummary:
        """Counts, tokens, cost and failures: the document of the command's `--json`."""
        return run_summary(self._store, self._batch(), self._now())

    def items(self, *, status: str | Sequence[str] = (), search: str = "") -> Iterator[RunItem]:
        """The items in plan order, read page by page; only those of a status, or that contain a text."""
        statuses = ((status,) if status else ()) if isinstance(status, str) else tuple(status)
        return self._pages(item_filter(statuses, search))

    def _pages(self, filter_: ItemFilter) -> Iterator[RunItem]:
        offset = 0
        while rows := self._store.read.items(self.id, filter_, limit=PAGE, offset=offset):
            yield from (RunItem(self._store, row, self._environment) for row in rows)
            offset += len(rows)

    def item(self, item_id: str) -> RunItem:
        """The item of this id."""
        rows = self._store.read.item(item_id, self.id)
        if not rows:
            raise NotFound(f"run {self.id} has no item {item_id}")
        return RunItem(self._store, rows[0], self._environment)

    def sessions(self) -> Iterator[RunSession]:
        """The sessions of the run, all attempts included."""
        rows = self._store.read.sessions(Scope(run_id=self.id), limit=1_000_000)
        return (RunSession(self._store, row, self._environment) for row in rows)

    def session(self, session_id: str) -> RunSession:
        """The session of this id, or of the beginning of one."""
        return RunSession(self._store, self._store.read.session(session_id), self._environment)

    def rows(self, table: str = "items") -> Iterator[JsonObject]:
        """The rows of one exported table that belong to this run."""
        name = _TABLE_NAMES.get(table, table)
        if name not in TABLES:
            raise UsageError(f"there is no table {table}\nThere are: items, {', '.join(TABLES)}.")
        return tables.rows(self._store.read, name, Scope(run_id=self.id))

    def to_pandas(self, table: str = "items") -> "pandas.DataFrame":
        """One table of the run as a pandas DataFrame: `items`, `sessions`, `model_calls`, `scores`, …"""
        return _library("pandas").DataFrame(list(self.rows(table)), columns=self._columns(table))

    def to_polars(self, table: str = "items") -> "polars.DataFrame":
        """The same as a polars DataFrame."""
        polars = _library("polars")
        rows = [_plain(row) for row in self.rows(table)]
        return polars.DataFrame(rows, schema=None if rows else self._columns(table), infer_schema_length=None)

    def to_arrow(self, table: str = "items") -> "pyarrow.Table":
        """The same as an Arrow table."""
        arrow = _library("pyarrow")
        rows = [_plain(row) for row in self.rows(table)]
        # Without rows it would have no columns either.
        return arrow.Table.from_pylist(rows) if rows else arrow.table({c: [] for c in self._columns(table)})

    def report(self, path: str | Path) -> Path:
        """Write the report of the run, HTML or Markdown by the suffix of the file."""
        target = Path(path)
        is_markdown = target.suffix in (".md", ".markdown")
        if not is_markdown and target.suffix not in (".html", ".htm"):
            raise UsageError(
                f"a report has no format {target.suffix or 'without a suffix'}\n"
                "Name a file that ends in .html, .htm, .md or .markdown."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        text = self._make_report(self.id, "md" if is_markdown else "html")
        target.write_text(text, encoding="utf-8")
        return target

    def resume(
        self,
        *,
        retry: Retry | None = None,
        budget_usd: float | None = None,
        concurrency: int | None = None,
        workers: int | None = None,
    ) -> "Run":
        """Execute what is left of the run; `retry` also repeats errors, or errors and failures."""
        if self._resume is None:
            raise UsageError("this run was opened for reading only\nUse proctor.resume(run).")
        return self._resume(
            self.id, retry=retry, budget_usd=budget_usd, concurrency=concurrency, workers=workers
        )

    def _batch(self) -> BatchRow:
        return self._store.read.batch(self.id, self._now())

    def _columns(self, table: str) -> list[str]:
        return list(columns(_TABLE_NAMES.get(table, table)))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(row: JsonMap) -> JsonObject:
    return {
        name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
        for name, value in row.items()
    }


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(f"this needs the library {name}\nInstall it: pip install {name}") from error
