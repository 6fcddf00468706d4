"""How good the judges are, as far as people have said what they think of the same things.

Labels that people gave are held against the verdicts the record already has: nobody is asked again. Of
several versions of an evaluator it is the last one that counts, since that is the one in use.

Knows nothing of models, pages or of what an evaluator asks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.analyse.calibration import Calibration, Judged, Opinion, calibrate
from proctor.store import Reader

Row = dict[str, Any]
Order = Callable[[str, str], Sequence[str]]
"""The labels of an evaluator and dimension, lowest first; empty when they have no order."""
_VERDICTS = (
    'SELECT l."evaluator", l."dimension", l."sessionId" AS "about", l."target", l."who", '
    'l."label" AS "said", l."value" AS "worth", l."level", s."evaluatorDigest", s."label", s."value", '
    's."timestamp", s."sessionId", s."position" FROM "labels" l JOIN "scores" s ON {joined} '
    'AND s."evaluator" = l."evaluator" AND s."target" = l."target" AND s."dimension" = l."dimension" '
    "AND s.\"error\" = '' WHERE {wanted}"
)
_JOINS = (
    's."judgedSessionId" = l."sessionId"',
    's."sessionId" = l."sessionId" AND s."judgedSessionId" = \'\'',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """An evaluator that people have given labels for."""

    evaluator: str
    dimension: str
    level: str
    digest: str
    """Of the version its verdicts are of; empty: it has given none yet."""
    labels: int
    """All that people gave, also of things it never judged."""
    calibration: Calibration
    """Of the things that both have looked at."""


def judges(read: Reader, order: Order, *, evaluator: str = "") -> list[Judge]:
    """Every evaluator that has labels, the most labelled first; or one of them."""
    verdicts: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in _rows(read, evaluator):
        verdicts[row["evaluator"], row["dimension"]].append(row)
    return [
        _judge(row, verdicts[row["evaluator"], row["dimension"]], order) for row in _named(read, evaluator)
    ]


def _named(read: Reader, evaluator: str) -> list[Row]:
    wanted, given = ('WHERE "evaluator" = ?', (evaluator,)) if evaluator else ("", ())
    return read.query(
        'SELECT "evaluator", "dimension", MAX("level") AS "level", COUNT(*) AS "labels" FROM "labels" '
        f'{wanted} GROUP BY "evaluator", "dimension" ORDER BY "labels" DESC, "evaluator", "dimension"',
        given,
    )


def _rows(read: Reader, evaluator: str) -> list[Row]:
    wanted, given = ('l."evaluator" = ?', (evaluator,)) if evaluator else ("1 = 1", ())
    return [
        row for joined in _JOINS for row in read.query(_VERDICTS.format(joined=joined, wanted=wanted), given)
    ]


def _judge(named: Row, rows: Sequence[Row], order: Order) -> Judge:
    last = max(rows, key=lambda row: row["timestamp"] or "", default=None)
    digest = last["evaluatorDigest"] if last else ""
    things = _things(row for row in rows if row["evaluatorDigest"] == digest)
    ranked = order(named["evaluator"], named["dimension"])
    return Judge(
        evaluator=named["evaluator"],
        dimension=named["dimension"],
        level=named["level"],
        digest=digest,
        labels=named["labels"],
        calibration=calibrate(things, order=ranked),
    )


def _things(rows: Iterable[Row]) -> list[Judged]:
    people: dict[tuple[str, str], dict[str, Opinion]] = defaultdict(dict)
    machine: dict[tuple[str, str], dict[tuple[str, str, int], Opinion]] = defaultdict(dict)
    for row in rows:
        thing = row["about"], row["target"]
        people[thing][row["who"]] = Opinion(label=row["said"], value=row["worth"])
        asked = row["timestamp"] or "", row["sessionId"], row["position"]
        machine[thing][asked] = Opinion(label=row["label"], value=row["value"])
    return [
        Judged(
            session=session,
            target=target,
            human=said,
            # The last verdict is the one a reader sees, and the one that is held against people.
            machine=[machine[session, target][at] for at in sorted(machine[session, target], reverse=True)],
        )
        for (session, target), said in people.items()
    ]
