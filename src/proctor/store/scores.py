"""Scores: results of an evaluation by evaluator and by session; mean scores of items."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from proctor.item import FINISHED, SUCCESS
from proctor.score import Level
from proctor.store.codec import contains
from proctor.store.database import extended, id_pages, literals, places, substring_pattern
from proctor.store.reader import StoreReader
from proctor.store.tables import ScoreRow

_FINISHED = literals(FINISHED)
_SCORES = (
    'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
    f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED})'
)
"""The scores `sc` of the finished items `i` of one run."""
FIRST_ITEMS = 500
"""Items in which the evaluators are looked up; every session has all of them."""
MOST_VOTES = 5000
"""Results whose votes are read; more would not change the estimate of the judge's noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFilter:
    """Filter on the sessions and scores of an evaluation."""

    evaluator: str = ""
    """Only its scores; empty: all."""
    dimension: str = ""
    search: str = ""
    """Text in the name of the session."""
    reversed_: Sequence[str] = ()
    """Evaluators with high values for bad results."""


class _EvaluatedSessionRow(TypedDict):
    prompt: str
    position: int
    settings: str
    lowest: float | None
    mean: float | None
    failed: int
    valued: int
    results: int
    open: int


class SessionLowest(_EvaluatedSessionRow):
    """A session of an evaluation with its lowest and mean value."""

    sessionId: str


class SessionScores(TypedDict):
    """The scores of one evaluator and dimension in one session."""

    prompt: str
    evaluator: str
    dimension: str
    mean: float | None
    results: int
    failed: int | None
    label: str | None
    labels: int


def sessions_page(
    read: StoreReader,
    run_id: str,
    selection: JudgedFilter,
    *,
    order: str = "lowest",
    descending: bool = False,
    limit: int,
    offset: int,
) -> tuple[list[SessionLowest], int]:
    """A page of the sessions of an evaluation with their lowest value, and the number that match.

    Sessions without a value come last in both directions.
    """
    column = {"lowest": '"lowest"', "mean": '"mean"', "failed": '"failed"', "session": '"prompt"'}.get(
        order, '"position"'
    )
    turn = "DESC" if descending else "ASC"
    joined, parameters = _joined(selection)
    rows = read.rows(
        _EvaluatedSessionRow,
        'SELECT * FROM (SELECT i."prompt" AS "prompt", MIN(i."position") AS "position", '
        'MAX(i."settings") AS "settings", MIN(sc."good") AS "lowest", AVG(sc."good") AS "mean", '
        'COALESCE(SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END), 0) AS "failed", '
        'COUNT(sc."good") AS "valued", COUNT(sc."sessionId") AS "results", '
        "SUM(CASE WHEN i.\"status\" IN ('queued', 'running') THEN 1 ELSE 0 END) AS \"open\" "
        f'FROM "batch_items" i LEFT JOIN {joined} ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND {contains("i.prompt")} GROUP BY i."prompt") s '
        f'ORDER BY CASE WHEN {column} IS NULL THEN 1 ELSE 0 END, {column} {turn}, "mean", "position" '
        "LIMIT ? OFFSET ?",
        (*parameters, run_id, substring_pattern(selection.search), limit, offset),
    )
    count = read.value(
        int,
        f'SELECT COUNT(DISTINCT "prompt") FROM "batch_items" WHERE "runId" = ? AND {contains("prompt")}',
        (run_id, substring_pattern(selection.search)),
    )
    return [
        extended(SessionLowest, row, sessionId=json.loads(row["settings"])["session"]) for row in rows
    ], count or 0


def scores_by_session(read: StoreReader, run_id: str, prompts: Sequence[str]) -> list[SessionScores]:
    """Results of each evaluator in these sessions: mean, number, failures, one label."""
    if not prompts:
        return []
    among, forms = read.is_one_of("i.prompt", "batch_items.prompt", prompts)
    return read.rows(
        SessionScores,
        'SELECT i."prompt" AS "prompt", sc."evaluator", sc."dimension", AVG(sc."value") AS "mean", '
        'COUNT(*) AS "results", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'MIN(sc."label") AS "label", COUNT(DISTINCT sc."label") AS "labels" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND {among} '
        'GROUP BY i."prompt", sc."evaluator", sc."dimension"',
        (run_id, *forms),
    )


def verdicts_of(read: StoreReader, run_id: str, session_id: str, *, limit: int = 500) -> list[ScoreRow]:
    """All scores of one session in an evaluation, with explanations, in plan order."""
    rows = read.rows(
        ScoreRow,
        'SELECT sc.* FROM "scores" sc JOIN "batch_items" i ON i."sessionId" = sc."sessionId" '
        'AND i."runId" = ? WHERE sc."scoredSessionId" = ? ORDER BY i."position", sc."position" LIMIT ?',
        (run_id, session_id, limit),
    )
    return list(read.with_long_texts(rows))


def _joined(selection: JudgedFilter) -> tuple[str, list[object]]:
    """Subquery of the selected scores; `good` is 1 minus the value for reversed evaluators."""
    parameters: list[object] = list(selection.reversed_)
    condition = "1 = 1"
    if selection.evaluator:
        condition = '"evaluator" = ? AND "dimension" = ?'
        parameters += [selection.evaluator, selection.dimension]
    return (
        '(SELECT "sessionId", "scoredSessionId", "error", '
        f'CASE WHEN "evaluator" IN ({places(selection.reversed_)}) THEN 1 - "value" ELSE "value" END '
        f'AS "good" FROM "scores" WHERE {condition}) sc',
        parameters,
    )


class ComparedPair(TypedDict):
    """The verdict about two sessions."""

    factors: str
    """JSON, of the item."""
    label: str
    error: str


def compared_pairs(read: StoreReader, run_id: str, evaluator: str) -> list[ComparedPair]:
    """The verdicts of the finished items of a pairwise evaluation, in plan order."""
    return read.rows(
        ComparedPair,
        f'SELECT i."factors", sc."label", sc."error" {_SCORES} AND sc."evaluator" = ? ORDER BY i."position"',
        (run_id, evaluator),
    )


class EvaluationItem(TypedDict):
    """One session with one evaluator."""

    id: str
    sessionId: str | None
    """Of the attempt; None: not started."""
    details: str
    settings: str
    factors: str


def items_page(read: StoreReader, run_id: str, position: int, size: int) -> list[EvaluationItem] | None:
    """The items of a run from a position on; None: there are no items from there on."""
    rows = read.rows(
        EvaluationItem,
        'SELECT "id", "sessionId", "details", "settings", "factors" FROM "batch_items" '
        'WHERE "runId" = ? AND "position" >= ? AND "position" < ? ORDER BY "position"',
        (run_id, position, position + size),
    )
    if not rows:
        is_last = not read.count('"batch_items" WHERE "runId" = ? AND "position" >= ?', (run_id, position))
        return None if is_last else []
    return rows


def scores_of_attempts(read: StoreReader, attempts: Sequence[str]) -> list[ScoreRow]:
    """All scores of these attempts, whole, in their order."""
    rows = read.rows(
        ScoreRow,
        f'SELECT * FROM "scores" WHERE "sessionId" IN ({places(attempts)}) ORDER BY "sessionId", "position"',
        tuple(attempts),
    )
    return list(read.with_long_texts(rows))


class EvaluatedSession(TypedDict):
    """A session that results are about."""

    id: str
    externalId: str
    service: str


def evaluated_sessions(read: StoreReader, ids: Sequence[str]) -> dict[str, EvaluatedSession]:
    """Sessions by id; those that were deleted are missing."""
    rows = read.rows(
        EvaluatedSession,
        f'SELECT "id", "externalId", "service" FROM "sessions" WHERE "id" IN ({places(ids)})',
        tuple(ids),
    )
    return {row["id"]: row for row in rows}


class EvaluatedCall(TypedDict):
    """A tool call that results are about."""

    sessionId: str
    callId: str
    position: int
    toolName: str
    traceId: str | None


def evaluated_calls(read: StoreReader, ids: Sequence[str]) -> dict[tuple[str, str], EvaluatedCall]:
    """The tool calls of sessions, by session and call id."""
    rows = read.rows(
        EvaluatedCall,
        'SELECT c."sessionId", c."callId", c."position", c."toolName", t."traceId" FROM "tool_calls" c '
        'LEFT JOIN "iterations" t ON t."sessionId" = c."sessionId" AND t."step" = c."step" '
        f'WHERE c."sessionId" IN ({places(ids)})',
        tuple(ids),
    )
    return {(row["sessionId"], row["callId"] or f"call-{row['position']}"): row for row in rows}


def failed_sessions(read: StoreReader, run_id: str) -> tuple[int, int]:
    """How many sessions have an item that did not succeed, and how many sessions there are."""
    ((failed, total),) = read.pairs(
        'SELECT COALESCE(SUM("bad"), 0), COUNT(*) FROM (SELECT '
        'MAX(CASE WHEN "status" = ? THEN 0 ELSE 1 END) AS "bad" FROM "batch_items" WHERE "runId" = ? '
        'GROUP BY "prompt") s',
        (SUCCESS, run_id),
    )
    return int(failed), int(total)


class ResultHeader(TypedDict):
    """What results need of an evaluation's row."""

    sessionsIgnored: int
    requestJson: str
    definitionsJson: str


def result_header(read: StoreReader, run_id: str) -> ResultHeader:
    """What results need of an evaluation's row; defaults for a run that has none."""
    rows = read.rows(
        ResultHeader,
        'SELECT "sessionsIgnored", "requestJson", "definitionsJson" FROM "evaluations" WHERE "id" = ?',
        (run_id,),
    )
    return rows[0] if rows else ResultHeader(sessionsIgnored=0, requestJson="{}", definitionsJson="{}")


class _SessionStates(TypedDict):
    open: int
    bad: int
    n: int


class SessionCounts(TypedDict):
    """How far the sessions of an evaluation are."""

    completed: int
    in_progress: int
    failed: int


def session_counts(read: StoreReader, run_id: str) -> SessionCounts:
    """Count the sessions of an evaluation by state."""
    rows = read.rows(
        _SessionStates,
        'SELECT "open", "bad", COUNT(*) AS "n" FROM (SELECT '
        f'MAX(CASE WHEN "status" IN ({_FINISHED}) THEN 0 ELSE 1 END) AS "open", '
        f'MAX(CASE WHEN "status" IN ({_FINISHED}) AND "status" <> ? THEN 1 ELSE 0 END) AS "bad" '
        'FROM "batch_items" WHERE "runId" = ? GROUP BY "prompt") s GROUP BY "open", "bad"',
        (SUCCESS, run_id),
    )
    counts = SessionCounts(completed=0, in_progress=0, failed=0)
    for row in rows:
        if row["open"]:
            counts["in_progress"] += row["n"]
        elif row["bad"]:
            counts["failed"] += row["n"]
        else:
            counts["completed"] += row["n"]
    return counts


class ScoreSums(TypedDict):
    """Sums over the sessions of an evaluation, of one evaluator and dimension."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    level: Level
    n: int
    """Results."""
    failed: int
    valued: int
    """Results with a value."""
    total: float
    sessions: int
    read: int | None
    """Input tokens."""
    written: int | None
    """Output tokens."""
    cost: float | None


def score_sums(read: StoreReader, run_id: str) -> list[ScoreSums]:
    """For each evaluator and dimension what its average is made of, summed over sessions in the database."""
    by_session = (
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", MAX(sc."level") AS "level", '
        'COUNT(*) AS "n", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'COUNT(sc."value") AS "valued", COALESCE(SUM(sc."value"), 0.0) AS "total", '
        'SUM(sc."inputTokens") AS "read", SUM(sc."outputTokens") AS "written", SUM(sc."costUsd") AS "cost" '
        f'{_SCORES} GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."scoredSessionId"'
    )
    return read.rows(
        ScoreSums,
        'SELECT "evaluator", "evaluatorDigest", "dimension", MAX("level") AS "level", SUM("n") AS "n", '
        'SUM("failed") AS "failed", SUM("valued") AS "valued", SUM("total") AS "total", '
        'SUM(CASE WHEN "n" > "failed" THEN 1 ELSE 0 END) AS "sessions", '
        'SUM("read") AS "read", SUM("written") AS "written", SUM("cost") AS "cost" '
        f'FROM ({by_session}) s GROUP BY "evaluator", "evaluatorDigest", "dimension"',
        (run_id,),
    )


class SessionTotals(TypedDict):
    """Sessions of an evaluation with equal totals, of one evaluator and dimension."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    valued: int
    """Results with a value, in one session."""
    total: float
    low: float
    high: float
    n: int
    """Sessions."""


def session_totals(read: StoreReader, run_id: str) -> list[SessionTotals]:
    """For each evaluator and dimension the totals of its sessions; equal ones are one row."""
    by_session = (
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", COUNT(sc."value") AS "valued", '
        'SUM(sc."value") AS "total", MIN(sc."value") AS "low", MAX(sc."value") AS "high" '
        f'{_SCORES} AND sc."value" IS NOT NULL '
        'GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."scoredSessionId"'
    )
    return read.rows(
        SessionTotals,
        'SELECT "evaluator", "evaluatorDigest", "dimension", "valued", "total", MIN("low") AS "low", '
        f'MAX("high") AS "high", COUNT(*) AS "n" FROM ({by_session}) s '
        'GROUP BY "evaluator", "evaluatorDigest", "dimension", "valued", "total" '
        'ORDER BY "evaluator", "evaluatorDigest", "dimension", "valued", "total"',
        (run_id,),
    )


def judged_sessions(read: StoreReader, run_id: str, among: Sequence[str]) -> set[str]:
    """Which of some sessions an evaluation has judged, by the id in the store or the external id."""
    judged: set[str] = set()
    for names in id_pages(among):
        rows = read.pairs(
            'SELECT DISTINCT sc."scoredSessionId", j."externalId" FROM "batch_items" i '
            'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
            'LEFT JOIN "sessions" j ON j."id" = sc."scoredSessionId" WHERE i."runId" = ? '
            f'AND (sc."scoredSessionId" IN ({places(names)}) OR j."externalId" IN ({places(names)}))',
            (run_id, *names, *names),
        )
        judged |= {name for row in rows for name in row if name in names}
    return judged


class FirstItem(TypedDict):
    """Details and settings of an item, as JSON."""

    details: str
    settings: str


def first_items(read: StoreReader, run_id: str) -> list[FirstItem]:
    """The first items of an evaluation, which name all of its evaluators."""
    return read.rows(
        FirstItem,
        'SELECT "details", "settings" FROM "batch_items" WHERE "runId" = ? ORDER BY "position" LIMIT ?',
        (run_id, FIRST_ITEMS),
    )


class LabelCount(TypedDict):
    """How often an evaluator gave a label."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    label: str
    n: int


def label_counts(read: StoreReader, run_id: str) -> list[LabelCount]:
    """The labels of each evaluator, the most frequent first."""
    return read.rows(
        LabelCount,
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."label", COUNT(*) AS "n" '
        f"{_SCORES} AND sc.\"label\" <> '' AND sc.\"error\" = '' "
        'GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."label" '
        'ORDER BY "n" DESC, sc."label"',
        (run_id,),
    )


class ScoreVotes(TypedDict):
    """The single votes behind one result."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    votes: str
    """JSON."""


def score_votes(read: StoreReader, run_id: str) -> list[ScoreVotes]:
    """Results of several votes of one judge."""
    return read.rows(
        ScoreVotes,
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."votes" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? AND sc."votes" <> ? '
        'AND sc."ballots" = ? LIMIT ?',
        (run_id, "[]", "[]", MOST_VOTES),
    )


class ScoreBallots(TypedDict):
    """What several judges said about one target."""

    evaluator: str
    evaluatorDigest: str
    dimension: str
    scoredSessionId: str
    target: str
    label: str
    value: float | None
    ballots: str
    """JSON."""


def score_ballots(read: StoreReader, run_id: str) -> list[ScoreBallots]:
    """Results of several judges."""
    return read.rows(
        ScoreBallots,
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."scoredSessionId", sc."target", '
        'sc."label", sc."value", sc."ballots" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? AND sc."ballots" <> ? '
        'AND sc."error" = \'\' ORDER BY i."position", sc."position" LIMIT ?',
        (run_id, "[]", MOST_VOTES),
    )


class _Ignored(TypedDict):
    evaluator: str
    ignored: str


def ignored_references(read: StoreReader, run_id: str) -> list[tuple[str, list[str]]]:
    """Evaluators with members of the ground truth that they did not use."""
    rows = read.pairs(
        'SELECT sc."evaluator", sc."ignored" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? '
        'GROUP BY sc."evaluator", sc."ignored" ORDER BY sc."evaluator", sc."ignored"',
        (run_id,),
    )
    return [(evaluator, json.loads(ignored or "[]")) for evaluator, ignored in rows]


_TARGETS = {
    "lowest": 'sc."value" IS NOT NULL ORDER BY sc."value" ASC',
    "highest": 'sc."value" IS NOT NULL ORDER BY sc."value" DESC',
    "failed": 'sc."error" <> \'\' ORDER BY sc."error"',
}


class TargetRow(ScoreRow):
    """A score with the session it is about."""

    details: str
    """Of the item, as JSON."""
    externalId: str | None
    """None: the session was deleted."""


def result_targets(
    read: StoreReader, run_id: str, which: str, key: tuple[str, str, str], *, limit: int
) -> list[TargetRow]:
    """Scores of an evaluator, whole: the `lowest`, the `highest` or the `failed`.

    `key` is its name, its digest and the dimension.
    """
    rows = read.rows(
        TargetRow,
        'SELECT sc.*, i."details", j."externalId" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        'LEFT JOIN "sessions" j ON j."id" = sc."scoredSessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) AND sc."evaluator" = ? '
        'AND sc."evaluatorDigest" = ? AND sc."dimension" = ? '
        f'AND {_TARGETS[which]}, i."position", sc."position" LIMIT ?',
        (run_id, *key, limit),
    )
    return list(read.with_long_texts(rows))


class InsightRow(TypedDict):
    """A finding of an insight."""

    label: str
    explanation: str
    """JSON."""
    explanationBlob: NotRequired[str | None]
    scoredSessionId: str
    details: str


def insight_rows(read: StoreReader, run_id: str, insight: str) -> list[InsightRow]:
    """The findings of an insight, in the order of the sessions."""
    rows = read.rows(
        InsightRow,
        'SELECT sc."label", sc."explanation", sc."explanationBlob", sc."scoredSessionId", i."details" '
        f'{_SCORES} AND sc."evaluator" = ? AND sc."error" = \'\' '
        'ORDER BY i."position", sc."position"',
        (run_id, insight),
    )
    return list(read.with_long_texts(rows))


class ItemScore(TypedDict):
    """The mean of one evaluator for one item."""

    id: str
    evaluator: str
    value: float


def item_scores(read: StoreReader, run_id: str) -> list[ItemScore]:
    """The mean of each evaluator for each item of a batch."""
    return read.rows(
        ItemScore,
        'SELECT i."id", s."evaluator", AVG(s."value") AS "value" FROM "batch_items" i '
        'JOIN "scores" s ON s."sessionId" = i."sessionId" WHERE i."runId" = ? AND s."value" IS NOT NULL '
        'GROUP BY i."id", s."evaluator"',
        (run_id,),
    )
