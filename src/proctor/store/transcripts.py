"""Transcripts by pages: events in order, long texts in pieces, and full-text search.

A transcript may have ten thousand events and a message of megabytes; a page shows the beginnings and loads
the rest on demand.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, cast

from typing_extensions import TypedDict

from proctor.errors import NotFound
from proctor.json_values import CamelJson
from proctor.store.codec import head
from proctor.store.database import Row
from proctor.store.reader import StoreReader
from proctor.store.tables import IterationRow, MetricRow, ScoreRow

HEAD_CHARACTERS = 4000
"""Of a long text in a list of events: about a screen and a half."""
PART_CHARACTERS = 400_000
"""Of a long text in one request."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "messages": ("content",),
    "tool_calls": ("argsJson", "result"),
    "model_calls": ("request", "response"),
}
KINDS = {"messages": "message", "tool_calls": "tool_call", "model_calls": "model_call"}
_PLAIN = {
    "messages": ("position", "step", "timestamp", "role", "name"),
    "tool_calls": ("position", "step", "timestamp", "toolName", "success", "durationMs"),
    "model_calls": (
        "position",
        "step",
        "timestamp",
        "provider",
        "model",
        "promptTokens",
        "cachedTokens",
        "completionTokens",
        "reasoningTokens",
        "costUsd",
        "priceSource",
        "latencyMs",
        "waitingMs",
        "status",
        "error",
        "servedModel",
        "fingerprint",
        "requestId",
        "finishReason",
        "parametersJson",
        "notSent",
    ),
}


class MetricPoint(TypedDict):
    """A number measured at a step."""

    name: str
    step: int
    value: float


class CallFigures(TypedDict):
    """One model call: who it was for, and its figures."""

    speaker: str
    purpose: str
    model: str
    promptTokens: int
    completionTokens: int
    costUsd: float | None


class RunningTotals(TypedDict):
    """The totals of a session that has not ended."""

    modelCalls: int
    promptTokens: int
    cachedTokens: int
    completionTokens: int
    reasoningTokens: int
    costUsd: float | None


class SessionSoFar(RunningTotals):
    """Running totals, with tool calls."""

    toolCalls: int
    totalTokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptPiece(CamelJson):
    """A text, or a part of a long one."""

    text: str
    size: int
    """Of the whole text in characters; of a blob that is not decompressed, in bytes."""
    is_cut: bool
    """Whether the text goes on after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart(TranscriptPiece):
    """A part of a long text."""

    offset: int


class _EventPlace(TypedDict):
    # What can be None is left out of answers of the HTTP interface.
    position: int
    step: int
    timestamp: NotRequired[str | None]


class MessageEvent(_EventPlace):
    """A message of a transcript."""

    kind: Literal["message"]
    role: str
    name: str
    content: TranscriptPiece


class ToolCallEvent(_EventPlace):
    """A tool call of a transcript; `calls` leaves out its texts."""

    kind: Literal["tool_call"]
    toolName: str
    success: NotRequired[bool | None]
    durationMs: NotRequired[float | None]
    argsJson: NotRequired[TranscriptPiece]
    result: NotRequired[TranscriptPiece]


class ModelCallEvent(_EventPlace):
    """A model call of a transcript; `calls` leaves out its texts."""

    kind: Literal["model_call"]
    provider: str
    model: str
    promptTokens: int
    cachedTokens: int
    completionTokens: int
    reasoningTokens: int
    costUsd: NotRequired[float | None]
    priceSource: str
    latencyMs: NotRequired[float | None]
    waitingMs: NotRequired[float | None]
    status: str
    error: str
    servedModel: str
    fingerprint: str
    requestId: str
    finishReason: str
    parametersJson: str
    notSent: str
    request: NotRequired[TranscriptPiece]
    response: NotRequired[TranscriptPiece]


CallEvent = ToolCallEvent | ModelCallEvent
TranscriptEvent = MessageEvent | CallEvent


class OutlineEvent(_EventPlace):
    """An event in short."""

    kind: Literal["message", "tool_call", "model_call"]
    name: str
    """The tool or the model; of a message, the name of who wrote it."""
    text: str
    """The beginning of the message or of the arguments; of a model call empty."""
    role: str
    success: NotRequired[bool | None]
    promptTokens: int
    completionTokens: int
    costUsd: NotRequired[float | None]


STEP_TEXTS = ("testOutput", "output", "setupOutput")
"""Columns of a step with output of programs."""


class TranscriptStep(TypedDict):
    """A step of a session with the heads of its outputs."""

    sessionId: str
    step: int
    startTime: str | None
    endTime: str | None
    commitSha: str
    changedFiles: int
    linesAdded: int
    linesRemoved: int
    testResult: str
    testExitCode: int | None
    testDurationMs: float | None
    testOutput: TranscriptPiece
    model: str
    exitCode: int | None
    promptTokens: int
    completionTokens: int
    totalTokens: int
    costUsd: float | None
    output: TranscriptPiece
    traceId: str
    setupOutput: TranscriptPiece


def events(read: StoreReader, session_id: str, *, after: int, limit: int) -> list[TranscriptEvent]:
    """The next events after a position, in order; long texts are cut."""
    rows = [row for table in PARTS for row in _events(read, table, session_id, after, limit)]
    return sorted(rows, key=lambda row: row["position"])[:limit]


def calls(read: StoreReader, session_id: str, *, after: int, limit: int) -> list[CallEvent]:
    """The next model and tool calls after a position, without their texts."""
    rows = [
        cast(CallEvent, _with_kind(table, row))
        for table in ("tool_calls", "model_calls")
        for row in read.rows(
            Row,
            f'SELECT {_quoted(_PLAIN[table])} FROM "{table}" '
            'WHERE "sessionId" = ? AND "position" > ? ORDER BY "position" LIMIT ?',
            (session_id, after, limit),
        )
    ]
    return sorted(rows, key=lambda row: row["position"])[:limit]


OUTLINE_EVENTS = 3000
TITLE_CHARACTERS = 160
_BLANK: Row = {
    **dict.fromkeys(("kind", "position", "step", "timestamp"), None),
    "role": "",
    "name": "",
    "success": None,
    "text": "",
    "promptTokens": 0,
    "completionTokens": 0,
    "costUsd": None,
}


def outline(read: StoreReader, session_id: str, *, limit: int = OUTLINE_EVENTS) -> list[OutlineEvent]:
    """The first events of a session in order: what each is about, and the tokens and cost of model calls."""
    queries = {
        "messages": '"position", "step", "timestamp", "role", "name", "contentBlob" AS "blob", '
        + head("content", TITLE_CHARACTERS, "text"),
        "tool_calls": '"position", "step", "timestamp", "toolName" AS "name", "success", '
        '"argsJsonBlob" AS "blob", ' + head("argsJson", TITLE_CHARACTERS, "text"),
        "model_calls": '"position", "step", "timestamp", "model" AS "name", "promptTokens", '
        '"completionTokens", "costUsd"',
    }
    rows = [
        {**_BLANK, **_with_kind(table, row)}
        for table, columns in queries.items()
        for row in read.rows(
            Row,
            f'SELECT {columns} FROM "{table}" WHERE "sessionId" = ? ORDER BY "position" LIMIT ?',
            (session_id, limit),
        )
    ]
    rows = sorted(rows, key=lambda row: row["position"])[:limit]
    for row in rows:
        blob = row.pop("blob", None)
        text = head_of_blob(read, blob).text if blob else row.get("text", "")
        row["text"] = text[:TITLE_CHARACTERS]
    return cast("list[OutlineEvent]", rows)


def extent(read: StoreReader, session_id: str) -> tuple[int, int]:
    """The position of a session's last event, and how many events it has."""
    last = count = 0
    for table in PARTS:
        sql = f'SELECT COALESCE(MAX("position"), 0), COUNT(*) FROM "{table}" WHERE "sessionId" = ?'
        ((position, number),) = read.pairs(sql, (session_id,))
        last, count = max(last, position), count + number
    return last, count


def step_count(read: StoreReader, session_id: str) -> int:
    """How many steps of a session have ended."""
    return read.count('"iterations" WHERE "sessionId" = ?', (session_id,))


def running_totals(read: StoreReader, session_id: str) -> SessionSoFar:
    """The totals of a session that has not ended: its row gets them when it ends."""
    (totals,) = read.rows(
        RunningTotals,
        'SELECT COUNT(*) AS "modelCalls", COALESCE(SUM("promptTokens"), 0) AS "promptTokens", '
        'COALESCE(SUM("cachedTokens"), 0) AS "cachedTokens", '
        'COALESCE(SUM("completionTokens"), 0) AS "completionTokens", '
        'COALESCE(SUM("reasoningTokens"), 0) AS "reasoningTokens", SUM("costUsd") AS "costUsd" '
        'FROM "model_calls" WHERE "sessionId" = ?',
        (session_id,),
    )
    return {
        **totals,
        "toolCalls": read.count('"tool_calls" WHERE "sessionId" = ?', (session_id,)),
        "totalTokens": totals["promptTokens"] + totals["completionTokens"],
    }


def first_metrics(read: StoreReader, session_id: str, *, limit: int) -> list[MetricRow]:
    """The first measured values of a session."""
    return read.rows(
        MetricRow,
        'SELECT * FROM "metrics" WHERE "sessionId" = ? ORDER BY "position" LIMIT ?',
        (session_id, limit),
    )


def metrics_over_steps(read: StoreReader, session_id: str) -> list[MetricPoint]:
    """The numbers measured at the steps of a session, by name and step."""
    return read.rows(
        MetricPoint,
        'SELECT "name", "step", "value" FROM "metrics" WHERE "sessionId" = ? AND "step" > 0 '
        'AND "value" IS NOT NULL ORDER BY "name", "step" LIMIT 20000',
        (session_id,),
    )


def last_commit(read: StoreReader, session_id: str) -> str:
    """The last commit of a session; empty when it made none."""
    last = read.value(
        str,
        'SELECT "commitSha" FROM "iterations" WHERE "sessionId" = ? AND "commitSha" <> \'\' '
        'ORDER BY "step" DESC LIMIT 1',
        (session_id,),
    )
    return last or ""


def calls_after_step(read: StoreReader, session_id: str, step: int) -> list[CallFigures]:
    """The model calls of a session after a step, in order."""
    return read.rows(
        CallFigures,
        'SELECT "speaker", "purpose", "model", "promptTokens", "completionTokens", "costUsd" '
        'FROM "model_calls" WHERE "sessionId" = ? AND "step" > ? ORDER BY "position"',
        (session_id, step),
    )


def text_part(
    read: StoreReader, session_id: str, position: int, part: str, *, offset: int, limit: int
) -> TextPart:
    """A piece of one long text of an event."""
    for table, parts in PARTS.items():
        if part in parts:
            sql = f'SELECT "{part}", "{part}Blob" FROM "{table}" WHERE "sessionId" = ? AND "position" = ?'
            for whole, blob in read.pairs(sql, (session_id, position)):
                return part_of(read.blob(blob) if blob else whole, offset=offset, limit=limit)
    raise NotFound(f"session {session_id} has no {part} at {position}")


def part_of(whole: str, *, offset: int, limit: int) -> TextPart:
    """A piece of a long text."""
    text = whole[offset : offset + limit]
    return TextPart(text=text, size=len(whole), is_cut=offset + len(text) < len(whole), offset=offset)


def steps(read: StoreReader, session_id: str) -> list[TranscriptStep]:
    """The steps of a session, with the heads of their outputs."""
    rows = read.rows(
        IterationRow, 'SELECT * FROM "iterations" WHERE "sessionId" = ? ORDER BY "step"', (session_id,)
    )
    return [cast(TranscriptStep, _with_heads(read, cast(Row, row), STEP_TEXTS)) for row in rows]


def step_text(read: StoreReader, session_id: str, step: int, part: str) -> str:
    """The whole `output`, `testOutput` or `setupOutput` of a step."""
    rows = read.rows(
        IterationRow, 'SELECT * FROM "iterations" WHERE "sessionId" = ? AND "step" = ?', (session_id, step)
    )
    if not rows or part not in STEP_TEXTS:
        raise NotFound(f"session {session_id} has no {part} of step {step}")
    (row,) = read.with_long_texts(rows)
    return str(cast(Row, row)[part])


def scores(read: StoreReader, session_id: str) -> list[ScoreRow]:
    """The scores of a session: its own, and those of evaluations."""
    rows = read.rows(
        ScoreRow,
        'SELECT * FROM "scores" WHERE "sessionId" = ? OR "scoredSessionId" = ? '
        'ORDER BY "timestamp", "position"',
        (session_id, session_id),
    )
    return list(read.with_long_texts(rows))


def _events(read: StoreReader, table: str, session_id: str, after: int, limit: int) -> list[TranscriptEvent]:
    long = [name for part in PARTS[table] for name in (part, f"{part}Blob")]
    rows = read.rows(
        Row,
        f'SELECT {_quoted((*_PLAIN[table], *long))} FROM "{table}" '
        'WHERE "sessionId" = ? AND "position" > ? ORDER BY "position" LIMIT ?',
        (session_id, after, limit),
    )
    return [cast(TranscriptEvent, _with_kind(table, _with_heads(read, row, PARTS[table]))) for row in rows]


def _with_kind(table: str, row: Row) -> Row:
    success = row.get("success")
    ended = {"success": None if success is None else bool(success)} if table == "tool_calls" else {}
    return {"kind": KINDS[table]} | row | ended


def _with_heads(read: StoreReader, row: Row, parts: Sequence[str]) -> Row:
    """The row with the heads of its long texts as pieces."""
    opened = dict(row)
    for part in parts:
        digest = opened.pop(f"{part}Blob")
        opened[part] = head_of_blob(read, digest) if digest else head_of_text(str(row[part]))
    return opened


def head_of_text(text: str) -> TranscriptPiece:
    """The beginning of a text."""
    return TranscriptPiece(text=text[:HEAD_CHARACTERS], size=len(text), is_cut=len(text) > HEAD_CHARACTERS)


def head_of_blob(read: StoreReader, digest: str) -> TranscriptPiece:
    """The beginning of a long text by its digest; the rest is not decompressed."""
    for size, data in read.pairs('SELECT "size", "data" FROM "blobs" WHERE "digest" = ?', (digest,)):
        # A character has at most four bytes; one that was cut is dropped.
        start = zlib.decompressobj().decompress(data, 4 * HEAD_CHARACTERS)
        text = start.decode("utf-8", "ignore")[:HEAD_CHARACTERS]
        return TranscriptPiece(text=text, size=size, is_cut=len(text.encode()) < size)
    return TranscriptPiece(text="", size=0, is_cut=False)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


# Full-text search in one session.

AROUND_CHARACTERS = 80
"""Context before and after a hit."""
READ_CHARACTERS = 20_000_000
"""For one request; takes some tenths of a second."""
EVENTS_AT_ONCE = 200

# The bodies of model calls repeat what the messages say, and are many times as long.
SEARCHED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "messages": ("role", ("content",)),
    "tool_calls": ("toolName", ("argsJson", "result")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(CamelJson):
    """The first occurrence in one text of an event."""

    kind: str
    """`message` or `tool_call`."""
    position: int
    name: str
    """The role or the tool."""
    part: str
    """Which text of the event: `content`, `argsJson` or `result`."""
    offset: int
    """In characters."""
    before: str
    match: str
    after: str
    behind: str
    """Deprecated: `after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search(CamelJson):
    """Result of one search request."""

    hits: tuple[Hit, ...]
    last_position: int
    """Position searched up to; continue after it."""
    has_more: bool
    """Whether there are events after that."""


def search(read: StoreReader, session_id: str, text: str, *, after: int = 0, limit: int = 100) -> Search:
    """Search for a text after a position, ignoring case; continue from `last_position`."""
    pattern, hits, unread = re.compile(re.escape(text), re.IGNORECASE), list[Hit](), READ_CHARACTERS
    while rows := _matching_events(read, session_id, after):
        for row in rows:
            after = row["position"]
            for part in SEARCHED[row["table"]][1]:
                whole = read.blob(row[f"{part}Blob"]) if row[f"{part}Blob"] else str(row[part])
                unread -= len(whole)
                if match := pattern.search(whole):
                    hits.append(_hit(row, part, whole, match))
            if len(hits) >= limit or unread <= 0:
                return Search(hits=tuple(hits), last_position=after, has_more=True)
    return Search(hits=tuple(hits), last_position=after, has_more=False)


def _matching_events(read: StoreReader, session_id: str, after: int) -> list[Row]:
    """The next events with their texts, in order."""
    rows = [
        row | {"table": table}
        for table, (name, parts) in SEARCHED.items()
        for row in read.rows(
            Row,
            f'SELECT "position", "{name}" AS "name", {_texts(parts)} '
            f'FROM "{table}" WHERE "sessionId" = ? AND "position" > ? ORDER BY "position" LIMIT ?',
            (session_id, after, EVENTS_AT_ONCE),
        )
    ]
    return sorted(rows, key=lambda row: row["position"])[:EVENTS_AT_ONCE]


def _texts(parts: Sequence[str]) -> str:
    return ", ".join(f'"{part}", "{part}Blob"' for part in parts)


def _hit(row: Row, part: str, whole: str, match: re.Match[str]) -> Hit:
    start, end = match.span()
    after = whole[end : end + AROUND_CHARACTERS]
    return Hit(
        kind=KINDS[row["table"]],
        position=row["position"],
        name=row["name"],
        part=part,
        offset=start,
        before=whole[max(0, start - AROUND_CHARACTERS) : start],
        match=whole[start:end],
        after=after,
        behind=after,
    )
