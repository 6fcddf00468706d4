"""Judges and the labels that people gave for the same targets, from the store."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from proctor.stats.calibration import (
    Calibration,
    CalibrationPair,
    JudgedTargetPair,
    LabelValue,
    Ratings,
    calibrate,
    consensus_of,
    ends_of,
    on_scale,
    order_of,
)
from proctor.store import StoreReader
from proctor.store.annotations import LabeledEvaluator, LabeledScore, labeled_evaluators, labeled_scores

NO_RATINGS: Ratings = {}
RatingsOf = Callable[[str, str], Ratings]
"""The rating scale of an evaluator and dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabeledJudge:
    """An evaluator that people have given labels for."""

    evaluator: str
    dimension: str
    level: str
    digest: str
    """Of the version its verdicts are of; empty: it has given none yet."""
    labels: int
    """Labels by people, including those of targets without a score."""
    calibration: Calibration
    """Of the targets that both have scored."""


def judges(read: StoreReader, ratings: RatingsOf, *, evaluator: str = "") -> list[LabeledJudge]:
    """Every evaluator that has labels, the most labeled first; or one of them."""
    verdicts: dict[tuple[str, str], list[LabeledScore]] = defaultdict(list)
    for row in labeled_scores(read, evaluator):
        verdicts[row["evaluator"], row["dimension"]].append(row)
    return [
        _judge(
            named,
            verdicts[named["evaluator"], named["dimension"]],
            ratings(named["evaluator"], named["dimension"]),
        )
        for named in labeled_evaluators(read, evaluator)
    ]


def _judge(named: LabeledEvaluator, rows: Sequence[LabeledScore], ratings: Ratings) -> LabeledJudge:
    last = max(rows, key=lambda row: row["timestamp"] or "", default=None)
    digest = last["evaluatorDigest"] if last else ""
    targets = _judged_targets((row for row in rows if row["evaluatorDigest"] == digest), ratings)
    return LabeledJudge(
        evaluator=named["evaluator"],
        dimension=named["dimension"],
        level=named["level"],
        digest=digest,
        labels=named["labels"],
        calibration=calibrate(targets, order=order_of(ratings), scale=ends_of(ratings)),
    )


def _judged_targets(rows: Iterable[LabeledScore], ratings: Ratings = NO_RATINGS) -> list[JudgedTargetPair]:
    people: dict[tuple[str, str], dict[str, LabelValue]] = defaultdict(dict)
    machine: dict[tuple[str, str], dict[tuple[str, str, int], LabelValue]] = defaultdict(dict)
    for row in rows:
        key = row["about"], row["target"]
        opinion = LabelValue(label=row["humanLabel"], value=row["humanValue"])
        people[key][row["who"]] = on_scale(ratings, opinion)
        order_key = row["timestamp"] or "", row["sessionId"], row["position"]
        machine[key][order_key] = LabelValue(label=row["label"], value=row["value"])
    return [
        JudgedTargetPair(
            session=session,
            target=target,
            human=labels_by_person,
            # The last score is the one that readers see, and the one compared with people.
            machine=[machine[session, target][at] for at in sorted(machine[session, target], reverse=True)],
        )
        for (session, target), labels_by_person in people.items()
    ]


def label_pairs(read: StoreReader, evaluator: str, digest: str, dimension: str = "") -> list[CalibrationPair]:
    """Values of people and of one version of an evaluator, from the labels and scores that are stored."""
    rows = [
        row
        for row in labeled_scores(read, evaluator)
        if row["evaluatorDigest"] == digest and row["dimension"] == dimension
    ]
    return list(calibrate(_judged_targets(rows)).pairs) if rows else []


def people_labels(
    read: StoreReader, evaluator: str, digest: str, dimension: str = ""
) -> dict[tuple[str, str], str]:
    """What people say of the targets that one version of an evaluator has scored; ties are left out."""
    targets = _judged_targets(
        row
        for row in labeled_scores(read, evaluator)
        if row["evaluatorDigest"] == digest and row["dimension"] == dimension
    )
    known = ((target, consensus_of(target)) for target in targets)
    return {(target.session, target.target): human.word for target, human in known if human is not None}
