"""Items and sessions as objects with attributes, and how sessions are found and deleted."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from proctor.batch.deletion import delete_sessions, imported_sessions
from proctor.context import RunContext
from proctor.errors import NotFound, ProctorError, UsageError
from proctor.formatting import short, snake_case
from proctor.item import RUNNING, SCENARIO, STATUSES
from proctor.job import Job
from proctor.jobs import job_of_run
from proctor.json_values import CamelJson, JsonMap, JsonObject
from proctor.session import Message, ModelCall, ToolCall
from proctor.store import ItemFilter, Scope, Store, transcripts
from proctor.store.reviews import continued_by
from proctor.store.tables import ItemRow, SessionRow
from proctor.store.transcripts import (
    OUTLINE_EVENTS,
    PART_CHARACTERS,
    OutlineEvent,
    Search,
    TextPart,
    TranscriptEvent,
    TranscriptPiece,
    TranscriptStep,
    part_of,
)
from proctor.workspace import merge_queue
from proctor.workspace.source_repository import open_source

__all__ = [
    "PART_CHARACTERS",
    "EventPage",
    "Outline",
    "Record",
    "RunItem",
    "RunItems",
    "RunSession",
    "Scope",
    "Search",
    "SessionChanges",
    "SessionItem",
    "TextPart",
    "TranscriptStep",
    "delete_imported",
    "find_item",
    "find_session",
    "item_in_run",
    "items",
    "select_sessions",
]
MOST_CHARTS = 12
MOST_DETAILS = 20_000
"""Maximum characters of item details; those of scenarios contain the whole scenario and are omitted."""
MOST_DIFF = 1_000_000
"""Maximum characters of a diff; the patch has all of it."""
MOST_METRICS = 2000


def find_session(ctx: RunContext, session_id: str) -> "RunSession":
    """One session: by its ID or an unambiguous prefix, its name or its branch."""
    return RunSession(ctx.store, ctx.store.read.session(session_id), ctx.settings.user_environment)


def select_sessions(
    ctx: RunContext,
    *,
    run: str = "",
    session_ids: Sequence[str] = (),
    start: datetime | None = None,
    end: datetime | None = None,
) -> Scope:
    """The sessions of a run, these sessions, or those of a period, for an export or a report.

    A run and sessions may be named by unambiguous prefixes; they exist.
    """
    return Scope(
        run_id=ctx.store.read.batch(run, ctx.now())["runId"] if run else "",
        session_ids=[ctx.store.read.session(session_id)["id"] for session_id in session_ids],
        start=start,
        end=end,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunItems:
    """The first items of a run that match a filter."""

    items: "Sequence[RunItem]"
    total: int
    """Number of all that match."""


def items(
    ctx: RunContext, run_id: str, *, statuses: Sequence[str] = (), search: str = "", limit: int = 50
) -> RunItems:
    """Items of a run in plan order: all, or those with one of the statuses that contain a text."""
    selection = item_filter(statuses, search)
    rows = ctx.store.read.items(run_id, selection, limit=limit)
    environment = ctx.settings.user_environment
    return RunItems(
        items=[RunItem(ctx.store, row, environment) for row in rows],
        total=ctx.store.read.count_items(run_id, selection),
    )


def item_filter(statuses: Sequence[str], search: str) -> ItemFilter:
    """A filter of items. Raises for a status that no item can have."""
    if unknown := [status for status in statuses if status not in STATUSES]:
        raise UsageError(f"there is no status {', '.join(unknown)}\nThere are: {', '.join(STATUSES)}.")
    return ItemFilter(statuses=statuses, search=search)


def find_item(ctx: RunContext, prefix: str) -> "RunItem | None":
    """The item whose ID begins so; None: there is none."""
    rows = ctx.store.read.item(prefix)
    return RunItem(ctx.store, rows[0], ctx.settings.user_environment) if rows else None


def item_in_run(ctx: RunContext, run_id: str, item_id: str) -> "RunItem":
    """An item of a run, by its ID or an unambiguous prefix. Raises `NotFound`."""
    rows = ctx.store.read.item(item_id, ctx.store.read.batch(run_id, ctx.now())["runId"])
    if len(rows) != 1:
        raise NotFound(f"run {run_id} has no item {item_id}\nIts items are on the page of the run.")
    return RunItem(ctx.store, rows[0], ctx.settings.user_environment)


def delete_imported(
    ctx: RunContext,
    session_ids: Sequence[str] = (),
    *,
    log_group: str = "",
    before: datetime | None = None,
    is_sure: Callable[[int], bool] = lambda _: True,
) -> list[str] | None:
    """Delete the imported sessions that match all conditions, and return their IDs. Scores of them in
    evaluations stay.

    `session_ids` may be external IDs; `before`: without activity since then. `is_sure` is asked with their
    number before they are deleted; None: it was not.
    """
    ids = imported_sessions(ctx.store, ctx.now(), session_ids=session_ids, log_group=log_group, before=before)
    if ids and not is_sure(len(ids)):
        return None
    delete_sessions(ctx.store, ids)
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage(CamelJson):
    """The next events of a session."""

    events: Sequence[TranscriptEvent]
    last_position: int
    """Position of the last event; continue after it."""
    has_more: bool


def _page(rows: Sequence[TranscriptEvent], after: int, limit: int) -> EventPage:
    events = rows[:limit]
    last_position = events[-1]["position"] if events else after
    return EventPage(events=events, last_position=last_position, has_more=len(rows) > limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline(CamelJson):
    """The events of a session in short."""

    entries: Sequence[OutlineEvent]
    is_cut: bool
    """Whether the session has more events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionItem(CamelJson):
    """The item of a session."""

    id: str
    prompt: TranscriptPiece
    repeat: int
    status: str
    factors: JsonObject
    details: JsonObject
    """Further settings; empty if long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChanges(CamelJson):
    """The diff of a session and the state of its branch."""

    state: str
    """`none` (no branch), `published`, `merged`, `gone` (discarded) or `unavailable`."""
    branch: str
    base_branch: str
    diff: str
    is_cut: bool
    files: int
    problem: str = ""


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


class RunSession(Record):
    """One session: the record of an attempt, or an imported one."""

    _row: SessionRow

    def __init__(self, store: Store, row: SessionRow, environment: Mapping[str, str]) -> None:
        super().__init__(row)
        self._store, self._environment = store, environment

    def __repr__(self) -> str:
        return f"<RunSession {self.id} {self._row['status']}>"

    @property
    def id(self) -> str:
        """Its whole ID."""
        return self._row["id"]

    @property
    def item(self) -> "RunItem | None":
        """The item that it is an attempt at; None: an imported session."""
        rows = self._store.read.exact_item(self._row["runId"] or "", self._row["itemId"] or "")
        return RunItem(self._store, rows[0], self._environment) if rows else None

    @cached_property
    def transcript(self) -> Sequence[Message | ToolCall | ModelCall]:
        """Messages, tool calls and model calls in order."""
        recorded = self._store.read.recorded(self.id)
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
    def input(self) -> str:
        """The first message of a user; empty when there is none."""
        return next((each.content for each in self.messages if each.role == "user"), "")

    @property
    def answer(self) -> str:
        """The last message of the assistant; empty when there is none."""
        return next((each.content for each in reversed(self.messages) if each.role == "assistant"), "")

    @cached_property
    def diff(self) -> str:
        """The changes of a coding session as a unified diff; empty for sessions without a repository."""
        return self._changes()[0]

    @property
    def scores(self) -> Sequence[Record]:
        """Every score about this session, of its own checks and of evaluations."""
        return [Record(row) for row in transcripts.scores(self._store.read, self.id)]

    @property
    def steps(self) -> Sequence[Record]:
        """The iterations of the session."""
        return [Record(row) for row in self._store.read.of_session("iterations", self.id)]

    def details(self) -> JsonObject:
        """All that was recorded in and about it, without its transcript.

        Totals of a running session are those so far; of long texts, the beginnings.
        """
        read, item = self._store.read, self.item
        is_running = self._row["status"] == RUNNING
        so_far: JsonMap = dict(transcripts.running_totals(read, self.id)) if is_running else {}
        last_position, event_count = transcripts.extent(read, self.id)
        merges = read.of_session("merge_history", self.id)
        return {
            **self._row,
            **so_far,
            "notes": json.loads(self._row["notes"]),
            "isMock": bool(self._row["isMock"]),
            "standIn": bool(self._row["isMock"]),
            "continuedBy": continued_by(read, self.id),
            "item": item and item.summary(),
            "attempts": [each.to_dict() for each in item.attempts] if item else [self.to_dict()],
            "steps": transcripts.steps(read, self.id),
            "scores": transcripts.scores(read, self.id),
            "merges": [{**merge, "conflictFiles": json.loads(merge["conflictFiles"])} for merge in merges],
            "metrics": transcripts.first_metrics(read, self.id, limit=MOST_METRICS),
            "lastPosition": last_position,
            "eventCount": event_count,
        }

    def record(self) -> dict[str, Any]:
        """The session with its whole transcript, its steps and its scores."""
        parts = self._store.read.parts_of_session(self.id)
        return {**self._row, "notes": json.loads(self._row["notes"]), **parts}

    def state(self) -> JsonObject:
        """What changes while it runs."""
        row = self._store.read.session(self.id)
        last_position, event_count = transcripts.extent(self._store.read, self.id)
        return {
            "status": row["status"],
            "endReason": row["endReason"],
            "lastPosition": last_position,
            "eventCount": event_count,
            "stepCount": transcripts.step_count(self._store.read, self.id),
        }

    def events(self, *, after: int = 0, limit: int = 100) -> "EventPage":
        """The events after a position. Of long texts, the beginnings."""
        rows = transcripts.events(self._store.read, self.id, after=after, limit=limit + 1)
        return _page(rows, after, limit)

    def calls(self, *, after: int = 0, limit: int = 100) -> "EventPage":
        """The model and tool calls after a position, without their texts."""
        return _page(transcripts.calls(self._store.read, self.id, after=after, limit=limit + 1), after, limit)

    def outline(self) -> "Outline":
        """Its events in short."""
        rows = transcripts.outline(self._store.read, self.id, limit=OUTLINE_EVENTS + 1)
        return Outline(entries=rows[:OUTLINE_EVENTS], is_cut=len(rows) > OUTLINE_EVENTS)

    def prompt(self, *, offset: int = 0, limit: int = PART_CHARACTERS) -> TextPart:
        """A piece of the prompt of its item; empty: it has no item."""
        item = self.item
        return part_of(str(item.prompt) if item else "", offset=offset, limit=limit)

    def text(self, position: int, part: str, *, offset: int = 0, limit: int = PART_CHARACTERS) -> TextPart:
        """A piece of a long text of an event: `content`, `argsJson`, `result`, `request` or `response`."""
        return transcripts.text_part(self._store.read, self.id, position, part, offset=offset, limit=limit)

    def step_text(self, step: int, part: str, *, offset: int = 0, limit: int = PART_CHARACTERS) -> TextPart:
        """A piece of the `output`, `testOutput` or `setupOutput` of a step."""
        whole = transcripts.step_text(self._store.read, self.id, step, part)
        return part_of(whole, offset=offset, limit=limit)

    def search(self, text: str, *, after: int = 0, limit: int = 100) -> Search:
        """Search messages and tool calls after a position; continue from `last_position`."""
        return transcripts.search(self._store.read, self.id, text, after=after, limit=limit)

    @property
    def kind(self) -> Job:
        """What kind of job recorded it."""
        return job_of_run(self._row["job"])

    @property
    def has_turns(self) -> bool:
        """Whether it is a session of a scenario."""
        return self.item is not None and self.item.row["runner"] == SCENARIO

    def turns(self) -> Sequence[JsonMap]:
        """The turns of a scenario, including those that earlier attempts completed."""
        item = self.item
        if item is None or not self.has_turns:
            raise NotFound(f"session {self.id} has no turns\nOnly sessions of a scenario have.")
        # Loads scenarios, which other sessions do not need.
        from proctor.jobs.scenario.job import turns_of

        return turns_of(item.row, self._store)

    def metric_charts(self) -> dict[str, str]:
        """Charts of its metrics over its steps, as SVG, by metric."""
        # The library itself draws nothing.
        from proctor.report.charts import Point, line

        series: dict[str, list[Point]] = defaultdict(list)
        for row in transcripts.metrics_over_steps(self._store.read, self.id):
            series[row["name"]].append(
                Point(label=f"step {row['step']}", x=float(row["step"]), y=float(row["value"]))
            )
        # A line needs two points.
        drawn = [(name, points) for name, points in series.items() if len(points) > 1]
        return {
            name: line(f"{name} over turns", points, x_axis="turn", say_y=short)
            for name, points in drawn[:MOST_CHARTS]
        }

    def require_branch(self) -> None:
        """Raise if it has no branch."""
        if not self._row["branch"]:
            raise UsageError(f"session {self.id} has no branch\nOnly sessions of a repository have one.")

    def patch(self) -> str:
        """The changes as a patch file. Raises if it has no branch, or git no longer has its commits."""
        self.require_branch()
        try:
            return self.diff
        except (ProctorError, OSError) as error:
            raise NotFound(f"the changes of {self.id} cannot be read: {error}") from error

    def changes(self) -> "SessionChanges":
        """Its changes and the state of its branch."""
        none = SessionChanges(
            state="none",
            branch=self._row["branch"],
            base_branch=self._row["baseBranch"],
            diff="",
            is_cut=False,
            files=0,
        )
        if not none.branch:
            return none
        try:
            text, is_there = self._changes()
        except (ProctorError, OSError) as error:
            return replace(none, state="unavailable", problem=str(error).partition("\n")[0])
        merges = self._store.read.of_session("merge_history", self.id)
        is_merged = any(merge["result"] == "success" for merge in merges)
        return replace(
            none,
            state="merged" if is_merged else "published" if is_there else "gone",
            diff=text[:MOST_DIFF],
            is_cut=len(text) > MOST_DIFF,
            files=text.count("\ndiff --git ") + text.startswith("diff --git "),
        )

    def _changes(self) -> tuple[str, bool]:
        """The changes as a unified diff, and whether its branch still exists.

        Without the branch, the diff comes from its last commit, which git keeps for some weeks.
        """
        row = self._row
        if not row["branch"]:
            return "", False
        source = open_source(Path(row["repo"]), self._environment)
        if source.git.commit_of(f"refs/heads/{row['branch']}"):
            return merge_queue.diff(source, row["branch"], row["baseBranch"]), True
        last = transcripts.last_commit(self._store.read, self.id)
        tip = source.git.commit_of(last) if last else ""
        base = source.git.commit_of(row["baseSha"]) if row["baseSha"] else ""
        if not tip or not base:
            return "", False
        return source.git("diff", "--no-ext-diff", "--no-textconv", "--no-color", base, tip, "--"), False


class RunItem(Record):
    """One item of a run."""

    _row: ItemRow

    def __init__(self, store: Store, row: ItemRow, environment: Mapping[str, str]) -> None:
        super().__init__(row)
        self._store, self._environment = store, environment

    @property
    def row(self) -> ItemRow:
        """Its row in the store."""
        return self._row

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

    def document(self) -> JsonObject:
        """The item with its factors, details and settings decoded."""
        decoded = {name: json.loads(self._row[name]) for name in ("factors", "details", "settings")}
        return {**self._row, **decoded}

    def summary(self) -> "SessionItem":
        """The item as its sessions show it."""
        row = self._row
        return SessionItem(
            id=row["id"],
            prompt=transcripts.head_of_text(row["prompt"]),
            repeat=row["repeat"],
            status=row["status"],
            factors=json.loads(row["factors"]),
            details=json.loads(row["details"]) if len(row["details"]) <= MOST_DETAILS else {},
        )
