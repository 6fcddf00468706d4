"""Search of all sessions by their properties, with counts of what they have in common.

Filters of columns, the order and the counts are read from two indexes; tools, scores, labels, tags and words
select sessions by an index of their own. No query reads more rows than it shows, whatever the size of the
store; the counts read one index, which has no texts.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NotRequired

from typing_extensions import TypedDict

from proctor.errors import NotFound
from proctor.item import ERROR, FAIL, RUNNING, TIMEOUT
from proctor.store.annotations import TAG
from proctor.store.database import Connection, literals, places
from proctor.store.item_lists import Range, ScoreRange, texts_of
from proctor.store.reader import StoreReader, uses_postgres
from proctor.store.tables import SessionFilterRow
from proctor.store.transcripts import head_of_blob
from proctor.store.writer import timestamp

FACETS = ("service", "agent", "version", "prompt", "model", "status")
"""What sessions are counted by."""
MOST_FACET_VALUES = 100
MOST_GROUPS = 50_000
FEW = 5_000
"""Sessions that are sorted; more are read in order until there are enough."""
LISTED = 20_000
"""Sessions that rows of another table select, to be listed once; of more, each session is looked up."""
SAMPLE = 50_000
"""When tools, scores, labels or tags select more than `LISTED`, only so many new ones are counted."""
MOST_TEXTS = 10_000
"""Sessions with the words of a text."""
OPEN: Range = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """A filter of sessions. Several values of one member: any of them; all members have to match."""

    services: Sequence[str] = ()
    agents: Sequence[str] = ()
    versions: Sequence[str] = ()
    prompts: Sequence[str] = ()
    models: Sequence[str] = ()
    """As served: the model that answered, if it is another than the one asked for."""
    statuses: Sequence[str] = ()
    runs: Sequence[str] = ()
    jobs: Sequence[str] = ()
    excluded_jobs: Sequence[str] = ()
    start: datetime | None = None
    end: datetime | None = None
    """Exclusive; both are about the start of the session."""
    cost_usd: Range = OPEN
    tokens: Range = OPEN
    seconds: Range = OPEN
    tools: Sequence[str] = ()
    scores: Sequence[ScoreRange] = ()
    """All of them; a session has a score in the range."""
    labels: Sequence[ScoreRange] = ()
    """All of them; a person's label of an evaluator, with a value in the range."""
    tags: Sequence[str] = ()
    session_ids: Sequence[str] | None = None
    """Only some of these; None: any."""


class FoundSession(TypedDict):
    """A session in a list."""

    id: str
    externalId: str
    runId: str | None
    job: str
    name: str
    agent: str
    agentVersion: str
    promptName: str
    model: str
    """As served."""
    isMock: int
    status: str
    endReason: str
    service: str
    startedAt: str | None
    seconds: float | None
    tokens: int
    costUsd: float | None
    modelCalls: int
    toolCalls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetValue:
    """A value, and the number of matching sessions that have it; its own facet's filter aside."""

    value: str
    sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """How many sessions match, in all and by value."""

    total: int
    is_cut: bool
    """Whether only the newest sessions were counted: `total` and the counts are lower limits."""
    newest: str
    """When the last of them started."""
    jobs: Sequence[str]
    """Job types of those that match, by which an index finds the sessions of a service. Empty: unknown."""
    values: Mapping[str, Sequence[FacetValue]] = field(default_factory=dict)
    """By facet, the most frequent first."""


_SERVED = 'CASE WHEN s."answeredModel" = \'\' THEN s."model" ELSE s."answeredModel" END'
_COLUMNS = (
    's."id", s."externalId", s."runId", s."job", s."name", s."agent", s."agentVersion", s."promptName", '
    f'{_SERVED} AS "model", s."isMock", s."status", s."endReason", s."service", s."startedAt", '
    's."workSeconds" AS "seconds", s."totalTokens" AS "tokens", s."costUsd", s."modelCalls", s."toolCalls"'
)
_FACET_COLUMNS = ("service", "agent", "agentVersion", "promptName", "model", "answeredModel", "status")


class _Group(TypedDict):
    job: NotRequired[str]
    """Missing in samples."""
    service: str
    agent: str
    agentVersion: str
    promptName: str
    model: str
    answeredModel: str
    status: str
    sessions: int
    newest: str | None


Condition = tuple[str, list[object]]


def facets(read: StoreReader, query: SessionQuery) -> Facets:
    """How many sessions match, and how many of them have each value."""
    # The filters of facets are applied to the groups, so that each facet counts without its own.
    base = replace(query, services=(), agents=(), versions=(), prompts=(), models=(), statuses=())
    columns, parameters = _column_conditions(base)
    selecting, more, is_sampled = _selections(read, query)
    source, limit = '"sessions" s', list[object]()
    if is_sampled:
        names = ", ".join(f's."{name}"' for name in ("id", "startedAt", *_FACET_COLUMNS))
        source = (
            f'(SELECT {names} FROM "sessions" s WHERE {columns} ORDER BY s."startedAt" DESC LIMIT {SAMPLE}) s'
        )
        columns, limit, parameters = "1 = 1", parameters, []
    # In the order of the index, which needs no sorting.
    ordered = _FACET_COLUMNS if is_sampled else ("job", *_FACET_COLUMNS)
    by = ", ".join(f's."{name}"' for name in ordered)
    groups = read.rows(
        _Group,
        f'SELECT {by}, COUNT(*) AS "sessions", MAX(s."startedAt") AS "newest" FROM {source} '
        f"WHERE {columns}{selecting} GROUP BY {by} LIMIT {MOST_GROUPS}",
        (*limit, *parameters, *more),
    )
    chosen = {
        "service": query.services,
        "agent": query.agents,
        "version": query.versions,
        "prompt": query.prompts,
        "model": query.models,
        "status": query.statuses,
    }
    counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    total, newest, jobs = 0, "", set[str]()
    for group in groups:
        values = {
            "service": group["service"],
            "agent": group["agent"],
            "version": group["agentVersion"],
            "prompt": group["promptName"],
            "model": group["answeredModel"] or group["model"],
            "status": group["status"],
        }
        misses = [name for name in FACETS if chosen[name] and values[name] not in chosen[name]]
        if not misses:
            total += group["sessions"]
            newest = max(newest, group["newest"] or "")
            jobs |= {group["job"]} if "job" in group else set()
        for name in FACETS:
            if not misses or misses == [name]:
                counts[name][values[name]] += group["sessions"]
    return Facets(
        total=total,
        newest=newest,
        jobs=sorted(jobs),
        is_cut=len(groups) == MOST_GROUPS or (is_sampled and _is_large(read, base)),
        values={
            name: [
                FacetValue(value=value, sessions=count)
                for value, count in sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))
            ][:MOST_FACET_VALUES]
            for name, counter in counts.items()
        },
    )


def _is_large(read: StoreReader, query: SessionQuery) -> bool:
    columns, parameters = _column_conditions(query)
    row = f'SELECT s."id" FROM "sessions" s WHERE {columns} LIMIT 1 OFFSET {SAMPLE}'
    return read.value(str, row, parameters) is not None


def find_sessions(
    read: StoreReader,
    query: SessionQuery,
    *,
    total: int | None = None,
    newest: str = "",
    after: tuple[str, str] | None = None,
    limit: int = 50,
) -> list[FoundSession]:
    """Sessions that match, newest first. `after` is start and id of the last one of the page before.

    `total` is how many there are and `newest` when the last one started, if that is known: few are sorted; of
    many, the newest are read in order.
    """
    columns, parameters = _column_conditions(query)
    selecting, more, _ = _selections(read, query)
    where, values = f"{columns}{selecting}", [*parameters, *more]
    if after:
        where += ' AND s."startedAt" <= ? AND (s."startedAt" < ? OR s."id" < ?)'
        values += [after[0], *after]
    elif newest:
        where += ' AND s."startedAt" <= ?'
        values.append(newest)
    start = 's."startedAt"'
    if total is not None and total <= FEW:
        # The sign keeps SQLite from reading all sessions in the order of time.
        by = start if uses_postgres(read) else f"+{start}"
        where = (
            f's."id" IN (SELECT s."id" FROM "sessions" s WHERE {where} '
            f'ORDER BY {by} DESC, s."id" DESC LIMIT ?)'
        )
        values.append(limit)
        start = by
    return read.rows(
        FoundSession,
        f'SELECT {_COLUMNS} FROM "sessions" s WHERE {where} ORDER BY {start} DESC, s."id" DESC LIMIT ?',
        (*values, limit),
    )


def first_prompts(read: StoreReader, session_ids: Sequence[str], *, characters: int) -> dict[str, str]:
    """The start of the first message of a user, by session."""
    return {
        row["sessionId"]: (head_of_blob(read, row["textBlob"]).text if row["textBlob"] else row["text"])[
            :characters
        ]
        for row in texts_of(read, session_ids, "messages", "position", "content", _FIRST_PROMPT)
    }


_FIRST_PROMPT = (
    'SELECT m."position" FROM "messages" m WHERE m."sessionId" = s."id" AND m."role" = \'user\' '
    'ORDER BY m."position" LIMIT 1'
)


def matching_ids(read: StoreReader, query: SessionQuery, *, limit: int) -> list[str]:
    """Ids of the sessions that match, newest first."""
    columns, parameters = _column_conditions(query)
    selecting, more, _ = _selections(read, query)
    return read.values(
        str,
        f'SELECT s."id" FROM "sessions" s WHERE {columns}{selecting} '
        'ORDER BY s."startedAt" DESC, s."id" DESC LIMIT ?',
        (*parameters, *more, limit),
    )


def _column_conditions(query: SessionQuery) -> Condition:
    parts, parameters = ["1 = 1"], list[object]()
    for expression, values in (
        ('s."service"', query.services),
        ('s."agent"', query.agents),
        ('s."agentVersion"', query.versions),
        ('s."promptName"', query.prompts),
        (_SERVED, query.models),
        ('s."status"', query.statuses),
        ('s."runId"', query.runs),
        ('s."job"', query.jobs),
    ):
        if values:
            parts.append(f"{expression} IN ({places(values)})")
            parameters += values
    if query.excluded_jobs:
        parts.append(f's."job" NOT IN ({places(query.excluded_jobs)})')
        parameters += query.excluded_jobs
    for sign, moment in ((">=", query.start), ("<", query.end)):
        if moment:
            parts.append(f's."startedAt" {sign} ?')
            parameters.append(timestamp(moment))
    for column, (low, high) in (
        ("costUsd", query.cost_usd),
        ("totalTokens", query.tokens),
        ("workSeconds", query.seconds),
    ):
        for sign, edge in ((">=", low), ("<=", high)):
            if edge is not None:
                parts.append(f's."{column}" {sign} ?')
                parameters.append(edge)
    if query.session_ids is not None:
        ids = query.session_ids[:MOST_TEXTS]
        parts.append(f's."id" IN ({places(ids)})' if ids else "1 = 0")
        parameters += ids
    return " AND ".join(parts), parameters


@dataclass(frozen=True, slots=True)
class _Selection:
    """Sessions selected by rows of another table."""

    table: str
    column: str
    """The session, in a row `x` of the table."""
    condition: str
    parameters: list[object]


def _selections(read: StoreReader, query: SessionQuery) -> tuple[str, list[object], bool]:
    """The conditions of other tables, their parameters, and whether the sessions have to be sampled."""
    alternatives = list(_selecting(read, query))
    if not alternatives:
        return "", [], False
    is_common = all(sum(_size(read, each) for each in any_of) > LISTED for any_of in alternatives)
    text, parameters = "", list[object]()
    for any_of in alternatives:
        # Few are listed once; of many, each session is looked up.
        form = (
            'EXISTS (SELECT 1 FROM "{0.table}" x WHERE x."{0.column}" = s."id" AND {0.condition})'
            if is_common
            else 's."id" IN (SELECT x."{0.column}" FROM "{0.table}" x WHERE {0.condition})'
        )
        text += f" AND ({' OR '.join(form.format(each) for each in any_of)})"
        parameters += [value for each in any_of for value in each.parameters]
    return text, parameters, is_common


def _size(read: StoreReader, each: _Selection) -> int:
    """Its rows, up to a few more than are listed."""
    rows = f'SELECT 1 AS "one" FROM "{each.table}" x WHERE {each.condition} LIMIT {LISTED + 1}'
    return read.value(int, f'SELECT COUNT(*) AS "n" FROM ({rows}) c', each.parameters) or 0


def _selecting(read: StoreReader, query: SessionQuery) -> Iterator[list[_Selection]]:
    if query.tools:
        condition = f'x."toolName" IN ({places(query.tools)})'
        yield [_Selection("tool_calls", "sessionId", condition, list(query.tools))]
    for score in query.scores:
        condition, parameters = _in_range(score)
        yield [
            _Selection(
                "scores", "scoredSessionId", f"{condition} AND x.\"scoredSessionId\" <> ''", parameters
            ),
            _Selection("scores", "sessionId", f"{condition} AND x.\"scoredSessionId\" = ''", parameters),
        ]
    for label in query.labels:
        yield [_Selection("labels", "sessionId", *_in_range(label))]
    if query.tags:
        is_tag, tags = read.is_one_of("x.text", "annotations.text", query.tags)
        yield [_Selection("annotations", "sessionId", f'x."kind" = ? AND {is_tag}', [TAG, *tags])]


def _in_range(score: ScoreRange) -> Condition:
    """Of an evaluator, or of one of its dimensions: `Evaluator/dimension`."""
    evaluator, _, dimension = score.name.partition("/")
    condition = '(x."evaluator" = ? AND x."dimension" = \'\''
    parameters: list[object] = [score.name]
    if dimension:
        condition += ' OR x."evaluator" = ? AND x."dimension" = ?'
        parameters += [evaluator, dimension]
    condition += ")"
    for sign, edge in ((">=", score.low), ("<=", score.high)):
        if edge is not None:
            condition += f' AND x."value" {sign} ?'
            parameters.append(edge)
    return condition, parameters


def save_filter(connection: Connection, row: SessionFilterRow) -> None:
    """Keep a filter under its name; an earlier one of that name is replaced."""
    connection.run('DELETE FROM "session_filters" WHERE "name" = ?', (row["name"],))
    connection.insert("session_filters", row)


def delete_filter(connection: Connection, name: str) -> None:
    """Delete a filter."""
    if not connection.run('DELETE FROM "session_filters" WHERE "name" = ?', (name,)):
        raise NotFound(f"no saved filter `{name}`")


def filters(read: StoreReader) -> list[SessionFilterRow]:
    """The filters, by name."""
    return read.rows(SessionFilterRow, 'SELECT * FROM "session_filters" ORDER BY "name"')


BY = {
    "version": "agentVersion",
    "prompt": "promptName",
    "agent": "agent",
    "service": "service",
    "model": _SERVED,
}
"""What lines over time are drawn by: the column, or an expression."""


class PeriodSums(TypedDict):
    """Finished sessions of one period and one group."""

    period: str
    name: str
    sessions: int
    failed: int
    priced: int
    cost: float | None
    costSquares: float | None
    tokens: int
    timed: int
    seconds: float | None
    secondsSquares: float | None


class PeriodScores(TypedDict):
    """Scores of sessions of one period and one group; several of one session are its mean."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    period: str
    name: str
    sessions: int
    total: float
    squares: float
    low: float
    high: float


def _period_parts(
    read: StoreReader, query: SessionQuery, by: str, characters: int
) -> tuple[str, str, str, list[object]]:
    columns, parameters = _column_conditions(query)
    selecting, more, _ = _selections(read, query)
    # No constant, which PostgreSQL does not group by.
    expression = BY.get(by, 'substr(s."service", 1, 0)')
    name = f's."{expression}"' if expression.isalpha() else expression
    period = f'substr(s."startedAt", 1, {characters})'
    return period, name, f"{columns}{selecting} AND s.\"status\" <> '{RUNNING}'", [*parameters, *more]


def period_sums(read: StoreReader, query: SessionQuery, by: str, characters: int) -> list[PeriodSums]:
    """Sums of the sessions that match, by period and group; `characters` of a time are the period."""
    period, name, where, parameters = _period_parts(read, query, by, characters)
    failed = literals((FAIL, TIMEOUT, ERROR))
    return read.rows(
        PeriodSums,
        f'SELECT {period} AS "period", {name} AS "name", COUNT(*) AS "sessions", '
        f'SUM(CASE WHEN s."status" IN ({failed}) THEN 1 ELSE 0 END) AS "failed", '
        'COUNT(s."costUsd") AS "priced", SUM(s."costUsd") AS "cost", '
        'SUM(s."costUsd" * s."costUsd") AS "costSquares", SUM(s."totalTokens") AS "tokens", '
        'COUNT(s."workSeconds") AS "timed", SUM(s."workSeconds") AS "seconds", '
        'SUM(s."workSeconds" * s."workSeconds") AS "secondsSquares" '
        f'FROM "sessions" s WHERE {where} GROUP BY {period}, {name} ORDER BY {period}, {name}',
        parameters,
    )


def period_scores(read: StoreReader, query: SessionQuery, by: str, characters: int) -> list[PeriodScores]:
    """Scores of the sessions that match, by version of an evaluator, dimension, period and group."""
    period, name, where, parameters = _period_parts(read, query, by, characters)
    return read.rows(
        PeriodScores,
        'SELECT v."evaluator", v."evaluatorDigest", v."dimension", v."period", v."name", '
        'COUNT(*) AS "sessions", SUM(v."value") AS "total", SUM(v."value" * v."value") AS "squares", '
        'MIN(v."value") AS "low", MAX(v."value") AS "high" '
        'FROM (SELECT x."evaluator", x."evaluatorDigest", x."dimension", '
        f'{period} AS "period", {name} AS "name", AVG(x."value") AS "value" FROM "sessions" s '
        'JOIN "scores" x ON x."scoredSessionId" = s."id" '
        f'WHERE {where} AND x."error" = \'\' AND x."value" IS NOT NULL '
        f'GROUP BY s."id", x."evaluator", x."evaluatorDigest", x."dimension", {period}, {name}) v '
        'GROUP BY v."evaluator", v."evaluatorDigest", v."dimension", v."period", v."name" '
        'ORDER BY v."evaluator", v."evaluatorDigest", v."dimension", v."period", v."name"',
        parameters,
    )
