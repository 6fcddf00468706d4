"""Finished items as statistics read them: streamed, without texts that no figure needs."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

from proctor.item import FINISHED
from proctor.store.database import literals, places
from proctor.store.reader import StoreReader

_FINISHED = literals(FINISHED)


class ResultRow(TypedDict):
    """One finished item, with the time of its last attempt."""

    runId: str
    id: str
    digest: str
    """Of the inputs: the same for repeats."""
    repeat: int
    runner: str
    agent: str
    model: str
    prompt: str
    factors: str
    details: str
    status: str
    reason: str
    sessionId: str | None
    costUsd: float | None
    tokensTotal: int
    workSeconds: float | None
    standIn: int | None


class PlannedRow(TypedDict):
    """One item of a run, finished or not."""

    id: str
    digest: str
    repeat: int
    runner: str
    agent: str
    model: str
    prompt: str
    factors: str
    details: str


class FinishedRow(TypedDict):
    """How one item ended, with the time of its last attempt."""

    id: str
    status: str
    sessionId: str | None
    costUsd: float | None
    workSeconds: float | None
    tokensTotal: int


class MeanSessionScore(TypedDict):
    """The mean of one evaluator and dimension in one session; of several evaluations, each."""

    sessionId: str
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


def result_rows(read: StoreReader, run_ids: Sequence[str]) -> Iterator[ResultRow]:
    """The finished items of runs, run by run, in plan order."""
    for run_id in run_ids:
        yield from read.stream(
            ResultRow,
            'SELECT i."runId", i."id", i."digest", i."repeat", i."runner", i."agent", i."model", '
            'i."prompt", i."factors", i."details", i."status", i."reason", i."sessionId", i."costUsd", '
            'i."tokensTotal", s."workSeconds", s."standIn" FROM "batch_items" i '
            'LEFT JOIN "sessions" s ON s."id" = i."sessionId" '
            f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) ORDER BY i."position"',
            (run_id,),
        )


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
        'SELECT i."id", i."status", i."sessionId", i."costUsd", i."tokensTotal", s."workSeconds" '
        'FROM "batch_items" i '
        'LEFT JOIN "sessions" s ON s."id" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({_FINISHED}) ORDER BY i."position"',
        (run_id,),
    )


def session_scores(read: StoreReader, run_ids: Sequence[str]) -> Iterator[MeanSessionScore]:
    """The mean scores of the last attempts of runs: those of later evaluations first, then their own.

    Within each, the oldest first; so the last value of a session and evaluator is the one that counts.
    """
    for column, condition in (
        ("judgedSessionId", 'sc."sessionId" <> sc."judgedSessionId"'),
        ("sessionId", "1 = 1"),
    ):
        yield from read.stream(
            MeanSessionScore,
            f'SELECT sc."{column}" AS "sessionId", sc."evaluator", sc."evaluatorDigest", sc."dimension", '
            'AVG(sc."value") AS "mean", MAX(sc."timestamp") AS "at" FROM "batch_items" i '
            f'JOIN "scores" sc ON sc."{column}" = i."sessionId" '
            f'WHERE i."runId" IN ({places(run_ids)}) AND sc."value" IS NOT NULL AND {condition} '
            f'GROUP BY sc."{column}", sc."sessionId", sc."evaluator", sc."evaluatorDigest", sc."dimension" '
            'ORDER BY "at"',
            tuple(run_ids),
        )


def session_metrics(read: StoreReader, run_ids: Sequence[str]) -> Iterator[SessionMetric]:
    """The numbers measured in the last attempts of runs, in the order of their steps."""
    yield from read.stream(
        SessionMetric,
        'SELECT m."sessionId", m."name", m."value" FROM "batch_items" i '
        'JOIN "metrics" m ON m."sessionId" = i."sessionId" '
        f'WHERE i."runId" IN ({places(run_ids)}) AND m."value" IS NOT NULL ORDER BY m."step", m."position"',
        tuple(run_ids),
    )
