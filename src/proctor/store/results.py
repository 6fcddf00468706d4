"""Finished items as statistics read them: streamed, without texts that no figure needs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from proctor.item import FINISHED, QUEUED
from proctor.store.batches import RetrySelection, executed_again
from proctor.store.database import literals, places
from proctor.store.reader import StoreReader

if TYPE_CHECKING:
    from proctor.store.aggregates import Selection

_FINISHED = literals(FINISHED)
WORK_SECONDS = 'COALESCE(s."agentSeconds", s."workSeconds")'
"""Work time that is compared: of a coding session the agent's own, without setup and checks."""
_COLUMNS = (
    'SELECT i."runId", i."id", i."digest", i."repeat", i."runner", i."agent", i."model", '
    'i."prompt", i."factors", i."details", i."status", i."reason", i."sessionId", i."costUsd", '
    f'i."tokensTotal", {WORK_SECONDS} AS "workSeconds", s."standIn", s."answeredModel", '
    'i."startedAt", i."finishedAt" '
    'FROM "batch_items" i '
    'LEFT JOIN "sessions" s ON s."id" = i."sessionId" '
)


class InputRow(TypedDict):
    """The inputs of one item."""

    digest: str
    """Of the inputs: the same for repeats."""
    runner: str
    agent: str
    model: str
    prompt: str
    details: str


class ResultRow(InputRow):
    """One finished item, with the work time of its last attempt."""

    runId: str
    id: str
    repeat: int
    factors: str
    status: str
    reason: str
    sessionId: str | None
    costUsd: float | None
    tokensTotal: int
    workSeconds: float | None
    standIn: int | None
    answeredModel: str | None
    """The model that answered in the last attempt; empty: the requested one, or unknown."""
    startedAt: str | None
    finishedAt: str | None


class PlannedRow(InputRow):
    """One item of a run, finished or not."""

    id: str
    repeat: int
    factors: str


class FinishedRow(TypedDict):
    """How one item ended, with the time of its last attempt."""

    id: str
    status: str
    reason: str
    sessionId: str | None
    costUsd: float | None
    workSeconds: float | None
    tokensTotal: int


class MeanSessionScore(TypedDict):
    """The mean of one evaluator and dimension in one session; of several evaluations, each."""

    sessionId: str
    judgingSessionId: str
    """The session that gave the scores: of an evaluation, or the same one."""
    evaluator: str
    evaluatorDigest: str
    dimension: str
    mean: float
    at: str | None


class SessionMetric(TypedDict):
    """One number measured in a session."""

    sessionId: str
    name: str
    value: float


class _LooseSession(TypedDict):
    """A finished session that belongs to no run."""

    id: str
    name: str
    agent: str
    model: str
    status: str
    reason: str
    costUsd: float | None
    tokensTotal: int
    workSeconds: float | None
    standIn: int


def result_rows(read: StoreReader, run_ids: Sequence[str]) -> Iterator[ResultRow]:
    """The finished items of runs, run by run, in plan order."""
    for run_id in run_ids:
        yield from read.stream(
            ResultRow,
            f'{_COLUMNS}WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) ORDER BY i."position"',
            (run_id,),
        )


def selected_rows(selection: "Selection") -> Iterator[ResultRow]:
    """The finished items of a selection, and its finished sessions that belong to no run, as items."""
    # The condition on items has sessions of its own, called `s` inside.
    yield from selection.read.stream(
        ResultRow,
        f'{_COLUMNS}WHERE ({selection.items}) AND i."status" IN ({_FINISHED}) '
        'ORDER BY i."runId", i."position"',
        selection.item_parameters,
    )
    loose = selection.of_loose_sessions(
        _LooseSession,
        's."id", s."name", s."agent", s."model", s."status", s."endReason" AS "reason", s."costUsd", '
        f's."totalTokens" AS "tokensTotal", {WORK_SECONDS} AS "workSeconds", s."standIn"',
        f'AND s."status" IN ({_FINISHED}) ORDER BY s."startedAt", s."id"',
    )
    for session in loose:
        yield _as_item(session)


def _as_item(session: _LooseSession) -> ResultRow:
    """A session without a run as an item; its name is its task."""
    task = session["name"] or session["id"]
    factors = {"agent": session["agent"], "model": session["model"]}
    return {
        "runId": "",
        "id": session["id"],
        "digest": json.dumps([session["agent"], session["model"], task]),
        "repeat": 1,
        "runner": "",
        "agent": session["agent"],
        "model": session["model"],
        "prompt": task,
        "factors": json.dumps({name: level for name, level in factors.items() if level}),
        "details": "{}",
        "status": session["status"],
        "reason": session["reason"],
        "sessionId": session["id"],
        "costUsd": session["costUsd"],
        "tokensTotal": session["tokensTotal"],
        "workSeconds": session["workSeconds"],
        "standIn": session["standIn"],
        "answeredModel": None,
        "startedAt": None,
        "finishedAt": None,
    }


def planned_rows(read: StoreReader, run_id: str) -> Iterator[PlannedRow]:
    """All items of a run in plan order."""
    return read.stream(
        PlannedRow,
        'SELECT "id", "digest", "repeat", "runner", "agent", "model", "prompt", "factors", "details" '
        'FROM "batch_items" WHERE "runId" = ? ORDER BY "position"',
        (run_id,),
    )


def finished_rows(read: StoreReader, run_id: str) -> Iterator[FinishedRow]:
    """How the finished items of a run ended, in plan order, without their inputs."""
    return read.stream(
        FinishedRow,
        'SELECT i."id", i."status", i."reason", i."sessionId", i."costUsd", i."tokensTotal", '
        f'{WORK_SECONDS} AS "workSeconds" '
        'FROM "batch_items" i '
        'LEFT JOIN "sessions" s ON s."id" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) ORDER BY i."position"',
        (run_id,),
    )


@dataclass(frozen=True, slots=True)
class ScoredSessions:
    """The last attempts of items, or sessions of no run, as the middle of a query."""

    tables: str
    session: str
    """The column with the session."""
    condition: str
    parameters: tuple[object, ...]


def of_runs(run_ids: Sequence[str]) -> list[ScoredSessions]:
    """The last attempts of runs."""
    condition = f'i."runId" IN ({places(run_ids)})'
    return [ScoredSessions('"batch_items" i', 'i."sessionId"', condition, tuple(run_ids))]


def of_selection(selection: "Selection") -> list[ScoredSessions]:
    """The last attempts of the items of a selection, and its sessions that belong to no run."""
    # The condition on items has sessions of its own, called `s` inside.
    sources = [
        ScoredSessions(
            '"batch_items" i', 'i."sessionId"', f"({selection.items})", tuple(selection.item_parameters)
        )
    ]
    if selection.has_loose:
        loose = f'({selection.sessions}) AND s."runId" IS NULL'
        sources.append(ScoredSessions('"sessions" s', 's."id"', loose, tuple(selection.session_parameters)))
    return sources


class SettledItem(TypedDict):
    """The id of an item that a resume leaves alone."""

    id: str


def settled_items(read: StoreReader, run_id: str, again: RetrySelection) -> set[str]:
    """The ids of the items that resuming a run does not execute."""
    condition, parameters = executed_again(again)
    rows = read.stream(
        SettledItem,
        f'SELECT "id" FROM "batch_items" WHERE "runId" = ? AND "status" <> ? AND NOT ({condition})',
        (run_id, QUEUED, *parameters),
    )
    return {row["id"] for row in rows}


def session_scores(read: StoreReader, sources: Sequence[ScoredSessions]) -> Iterator[MeanSessionScore]:
    """The mean scores of sessions: those of later evaluations first, then their own.

    Within each, the oldest first; so the last value of a session and evaluator is the one that counts.
    """
    for column, condition in (
        ("judgedSessionId", 'sc."sessionId" <> sc."judgedSessionId"'),
        ("sessionId", "1 = 1"),
    ):
        for source in sources:
            yield from read.stream(
                MeanSessionScore,
                f'SELECT sc."{column}" AS "sessionId", sc."sessionId" AS "judgingSessionId", sc."evaluator", '
                'sc."evaluatorDigest", sc."dimension", AVG(sc."value") AS "mean", '
                f'MAX(sc."timestamp") AS "at" FROM {source.tables} '
                f'JOIN "scores" sc ON sc."{column}" = {source.session} '
                f'WHERE {source.condition} AND sc."value" IS NOT NULL AND {condition} '
                f'GROUP BY sc."{column}", sc."sessionId", sc."evaluator", sc."evaluatorDigest", '
                'sc."dimension" ORDER BY "at"',
                source.parameters,
            )


def session_metrics(read: StoreReader, sources: Sequence[ScoredSessions]) -> Iterator[SessionMetric]:
    """The numbers measured in sessions, in the order of their steps."""
    for source in sources:
        yield from read.stream(
            SessionMetric,
            f'SELECT m."sessionId", m."name", m."value" FROM {source.tables} '
            f'JOIN "metrics" m ON m."sessionId" = {source.session} '
            f'WHERE {source.condition} AND m."value" IS NOT NULL ORDER BY m."step", m."position"',
            source.parameters,
        )


class EvaluatorSource(TypedDict):
    """What declares the evaluators that a session applied."""

    settings: str
    """Of its item: the criteria of a dialogue or scenario are there."""
    definitionsJson: str | None
    """Of its evaluation, by the names of the request. None: it is no evaluation."""


def evaluator_source(read: StoreReader, judging_session: str) -> EvaluatorSource | None:
    """What declares the evaluators that a session applied; None: it is of no run."""
    rows = read.rows(
        EvaluatorSource,
        'SELECT i."settings", e."definitionsJson" FROM "sessions" s '
        'JOIN "batch_items" i ON i."runId" = s."runId" AND i."id" = s."itemId" '
        'LEFT JOIN "evaluations" e ON e."id" = s."runId" WHERE s."id" = ?',
        (judging_session,),
    )
    return rows[0] if rows else None
