"""Runs, items and sessions of the store as objects with attributes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from proctor.batch.lifecycle import RunSummary, run_summary
from proctor.context import Notice
from proctor.errors import NotFound, UsageError
from proctor.export import tables
from proctor.export.tables import TABLES, columns
from proctor.formatting import snake_case
from proctor.item import STATUSES
from proctor.json_values import JsonMap, JsonObject
from proctor.session import Message, ModelCall, ToolCall
from proctor.store import ItemFilter, Scope, Store
from proctor.store.tables import BatchRow, ItemRow, SessionRow
from proctor.store.transcripts import last_commit, scores
from proctor.workspace import merge_queue
from proctor.workspace.source_repository import open_source

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

PAGE = 500
"""Items read at a time."""
Retry = Literal["errors", "failed", "all"]
_TABLE_NAMES = {"items": "batch_items", "runs": "batches"}
"""Tables of the store by the names that they have here."""


class Record:
    """A row of the store with its columns as attributes: `costUsd` is `cost_usd`."""

    def __init__(self, row: JsonMap) -> None:
        self._row = row
        self._names = {snake_case(name): name for name in row}

    def __getattr__(self, name: str) -> Any:
        # Only columns: names with an underscore in front are Python's own protocols.
        if not name.startswith("_") and name in self._names:
            return self._row[self._names[name]]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._names})

    def to_dict(self) -> JsonObject:
        """The row as plain data, with the column names of the store."""
        return dict(self._row)


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


class RunSession(Record):
    """One session: the record of an attempt, or an imported one."""

    _row: SessionRow

    def __init__(self, store: Store, row: SessionRow, environment: Mapping[str, str]) -> None:
        super().__init__(row)
        self._store, self._environment = store, environment

    def __repr__(self) -> str:
        return f"<RunSession {self._row['id']} {self._row['status']}>"

    @cached_property
    def transcript(self) -> Sequence[Message | ToolCall | ModelCall]:
        """Messages, tool calls and model calls in order."""
        recorded = self._store.read.recorded(self._row["id"])
        events = (each.event for step in recorded.steps for each in step.events)
        return [event for event in events if isinstance(event, Message | ToolCall | ModelCall)]

    @property
    def messages(self) -> Sequence[Message]:
        """The messages, oldest first."""
        return [event for event in self.transcript if isinstance(event, Message)]

    @property
    def tool_uses(self) -> Sequence[ToolCall]:
        """The tool calls, oldest first."""
        return [event for event in self.transcript if isinstance(event, ToolCall)]

    @property
    def answer(self) -> str:
        """The last message of the assistant; empty when there is none."""
        return next((each.content for each in reversed(self.messages) if each.role == "assistant"), "")

    @cached_property
    def diff(self) -> str:
        """The changes of a coding session as a unified diff; empty for sessions without a repository."""
        return session_diff(self._store, self._row, self._environment)[0]

    @property
    def scores(self) -> Sequence[Record]:
        """Every score about this session, of its own checks and of evaluations."""
        return [Record(row) for row in scores(self._store.read, self._row["id"])]

    @property
    def steps(self) -> Sequence[Record]:
        """The iterations of the session."""
        return [Record(row) for row in self._store.read.of_session("iterations", self._row["id"])]


class RunItem(Record):
    """One item of a run."""

    _row: ItemRow

    def __init__(self, store: Store, row: ItemRow, environment: Mapping[str, str]) -> None:
        super().__init__(row)
        self._store, self._environment = store, environment

    def __repr__(self) -> str:
        return f"<RunItem {self._row['id']} {self._row['status']}>"

    @cached_property
    def session(self) -> RunSession:
        """The session of its last attempt."""
        if not self._row["sessionId"]:
            raise NotFound(f"item {self._row['id']} has no session yet")
        return RunSession(self._store, self._store.read.session(self._row["sessionId"]), self._environment)

    @property
    def attempts(self) -> Sequence[RunSession]:
        """The sessions of all attempts, oldest first."""
        rows = self._store.read.attempts(self._row["runId"], self._row["id"])
        return [RunSession(self._store, row, self._environment) for row in rows]


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
        return f"<Run {self.id} {self.status}>"

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
        if unknown := [each for each in statuses if each not in STATUSES]:
            raise UsageError(f"there is no status {', '.join(unknown)}\nThere are: {', '.join(STATUSES)}.")
        return self._pages(ItemFilter(statuses=statuses, search=search))

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
        return _library("polars").from_arrow(self.to_arrow(table))

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


def session_diff(store: Store, row: SessionRow, environment: Mapping[str, str]) -> tuple[str, bool]:
    """The changes of a coding session as a unified diff, and whether its branch still exists.

    Without the branch, the diff comes from its last commit, which git keeps for some weeks.
    """
    if not row["branch"]:
        return "", False
    source = open_source(Path(row["repo"]), environment)
    if source.git.commit_of(f"refs/heads/{row['branch']}"):
        return merge_queue.diff(source, row["branch"], row["baseBranch"]), True
    last = last_commit(store.read, row["id"])
    tip = source.git.commit_of(last) if last else ""
    base = source.git.commit_of(row["baseSha"]) if row["baseSha"] else ""
    if not tip or not base:
        return "", False
    return source.git("diff", "--no-ext-diff", "--no-textconv", "--no-color", base, tip, "--"), False


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
