"""What a judge has said, for people who label the same targets: candidates, and means by session."""

from collections.abc import Collection
from typing import TypedDict

from proctor.store.database import id_pages, places
from proctor.store.reader import StoreReader

MOST_SCORES = 200_000
"""Of one evaluator and dimension that are read, the newest sessions of evaluations first."""
_SESSION = 'CASE WHEN x."scoredSessionId" = \'\' THEN x."sessionId" ELSE x."scoredSessionId" END'


class GivenScore(TypedDict):
    """A score of a target."""

    session: str
    target: str
    level: str
    digest: str
    at: str | None
    value: float | None
    label: str
    votes: str
    """JSON: each of several votes."""


def given_scores(read: StoreReader, evaluator: str, dimension: str) -> list[GivenScore]:
    """The scores of an evaluator and dimension, oldest first; errors are left out."""
    rows = read.rows(
        GivenScore,
        f'SELECT {_SESSION} AS "session", x."target", x."level", x."evaluatorDigest" AS "digest", '
        'x."timestamp" AS "at", x."value", x."label", x."votes" FROM "scores" x '
        'WHERE x."evaluator" = ? AND x."dimension" = ? AND x."error" = \'\' '
        f'ORDER BY x."sessionId" DESC LIMIT {MOST_SCORES}',
        (evaluator, dimension),
    )
    return sorted(rows, key=lambda row: row["at"] or "")


def scored_evaluators(read: StoreReader) -> list[tuple[str, str]]:
    """The evaluators and dimensions that have scores or labels, by name."""
    pairs = read.pairs(
        'SELECT "evaluator", "dimension" FROM "scores" GROUP BY "evaluator", "dimension" '
        'UNION SELECT "evaluator", "dimension" FROM "labels"'
    )
    return sorted((str(evaluator), str(dimension)) for evaluator, dimension in pairs)


def labeled_targets(
    read: StoreReader, evaluator: str, dimension: str, sessions: Collection[str] | None = None
) -> dict[tuple[str, str], set[str]]:
    """Who has labeled each session and target."""
    people: dict[tuple[str, str], set[str]] = {}
    for page in [()] if sessions is None else id_pages(sessions):
        some = f' AND "sessionId" IN ({places(page)})' if page else ""
        for row in read.rows(
            dict,
            'SELECT "sessionId", "target", "who" FROM "labels" '
            f'WHERE "evaluator" = ? AND "dimension" = ?{some}',
            (evaluator, dimension, *page),
        ):
            people.setdefault((row["sessionId"], row["target"]), set()).add(row["who"])
    return people
