"""Evaluation jobs and what they found, as pages list them: searched, sorted and cut by the database.

Knows nothing of evaluators, of averages with intervals, or of pages.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.store.conditions import containing, places
from proctor.store.database import Row
from proctor.store.reading import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFilter:
    """Which sessions of a job, and by whose eyes."""

    evaluator: str = ""
    """Scores of this one alone; empty: of all."""
    dimension: str = ""
    search: str = ""
    """Text in what the session is called."""
    reversed_: Sequence[str] = ()
    """Evaluators of which a high value is the bad one."""


def jobs_page(read: Reader, search: str, *, limit: int, offset: int) -> tuple[list[str], int]:
    """The ids of a page of jobs, newest first, and how many hold the text in their id."""
    wanted = '"deletedAt" IS NULL AND LOWER("id") LIKE ? ESCAPE \'!\''
    given = (containing(search),)
    rows = read.query(
        f'SELECT "id" FROM "evaluations" WHERE {wanted} ORDER BY "createdAt" DESC, "id" DESC '
        "LIMIT ? OFFSET ?",
        (*given, limit, offset),
    )
    (counted,) = read.query(f'SELECT COUNT(*) AS "n" FROM "evaluations" WHERE {wanted}', given)
    return [row["id"] for row in rows], counted["n"]


def log_groups(read: Reader, *, limit: int = 200) -> list[Row]:
    """Where sessions have arrived that were not carried out here: log group, service, how many, the last."""
    return read.query(
        'SELECT "logGroup", "service", COUNT(*) AS "sessions", '
        'MAX(COALESCE("finishedAt", "startedAt")) AS "last" FROM "sessions" WHERE "runId" IS NULL '
        'GROUP BY "logGroup", "service" ORDER BY "last" DESC, "logGroup", "service" LIMIT ?',
        (limit,),
    )


def sessions_page(
    read: Reader,
    run_id: str,
    wanted: JudgedFilter,
    *,
    order: str = "lowest",
    descending: bool = False,
    limit: int,
    offset: int,
) -> tuple[list[Row], int]:
    """A page of the sessions of a job with what is lowest in each, and how many the filter leaves.

    A session that has no value yet, or none at all, comes last whichever way it is sorted.
    """
    column = {"lowest": '"lowest"', "mean": '"mean"', "failed": '"failed"', "session": '"words"'}.get(
        order, '"position"'
    )
    turn = "DESC" if descending else "ASC"
    joined, parameters = _joined(wanted)
    rows = read.query(
        'SELECT * FROM (SELECT i."prompt" AS "words", MIN(i."position") AS "position", '
        'MAX(i."settings") AS "settings", MIN(sc."good") AS "lowest", AVG(sc."good") AS "mean", '
        'COALESCE(SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END), 0) AS "failed", '
        'COUNT(sc."good") AS "valued", COUNT(sc."sessionId") AS "results", '
        "SUM(CASE WHEN i.\"status\" IN ('queued', 'running') THEN 1 ELSE 0 END) AS \"open\" "
        f'FROM "batch_items" i LEFT JOIN {joined} ON sc."sessionId" = i."sessionId" '
        'WHERE i."runId" = ? AND LOWER(i."prompt") LIKE ? ESCAPE \'!\' GROUP BY i."prompt") s '
        f'ORDER BY CASE WHEN {column} IS NULL THEN 1 ELSE 0 END, {column} {turn}, "mean", "position" '
        "LIMIT ? OFFSET ?",
        (*parameters, run_id, containing(wanted.search), limit, offset),
    )
    (counted,) = read.query(
        'SELECT COUNT(DISTINCT "prompt") AS "n" FROM "batch_items" WHERE "runId" = ? '
        "AND LOWER(\"prompt\") LIKE ? ESCAPE '!'",
        (run_id, containing(wanted.search)),
    )
    return [row | {"sessionId": json.loads(row["settings"])["session"]} for row in rows], counted["n"]


def scores_by_session(read: Reader, run_id: str, words: Sequence[str]) -> list[Row]:
    """What each evaluator came to in these sessions: the mean, how many, how many failed, one label."""
    if not words:
        return []
    return read.query(
        'SELECT i."prompt" AS "words", sc."evaluator", sc."dimension", AVG(sc."value") AS "mean", '
        'COUNT(*) AS "results", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'MIN(sc."label") AS "label", COUNT(DISTINCT sc."label") AS "labels" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."prompt" IN ({places(words)}) '
        'GROUP BY i."prompt", sc."evaluator", sc."dimension"',
        (run_id, *words),
    )


def verdicts_of(read: Reader, run_id: str, session_id: str, *, limit: int = 500) -> list[Row]:
    """Every result of a job about one session, with its reasons, in the order of the job."""
    rows = read.query(
        'SELECT sc.* FROM "scores" sc JOIN "batch_items" i ON i."sessionId" = sc."sessionId" '
        'AND i."runId" = ? WHERE sc."judgedSessionId" = ? ORDER BY i."position", sc."position" LIMIT ?',
        (run_id, session_id, limit),
    )
    return list(read.whole(rows))


def _joined(wanted: JudgedFilter) -> tuple[str, list[Any]]:
    """The scores that count, each with how good it is: a value, or what is left of it where high is bad."""
    parameters: list[Any] = [*wanted.reversed_]
    condition = "1 = 1"
    if wanted.evaluator:
        condition = '"evaluator" = ? AND "dimension" = ?'
        parameters += [wanted.evaluator, wanted.dimension]
    return (
        '(SELECT "sessionId", "judgedSessionId", "error", '
        f'CASE WHEN "evaluator" IN ({places(wanted.reversed_)}) THEN 1 - "value" ELSE "value" END AS "good" '
        f'FROM "scores" WHERE {condition}) sc',
        parameters,
    )
