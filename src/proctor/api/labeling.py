"""The labeling queue: sessions one by one for people who label what a judge scores, and how far they are."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from proctor.api.evaluators import describe_evaluator
from proctor.api.labels import NOBODY, JudgeCalibrations, Rating, ratings_of
from proctor.api.session_search import SessionFilter, SessionSearch
from proctor.context import RunContext
from proctor.errors import NotFound
from proctor.evaluators.rendering import turns_of
from proctor.json_values import CamelJson
from proctor.stats.intervals import Estimate
from proctor.store.annotations import RATING, GivenScore, given_scores, labeled_targets, scored_evaluators

QueueOrder = Literal["random", "unsure"]
MOST_QUEUED = 1000
Target = tuple[str, str]
"""A session, and a turn or tool call of it; empty: the whole session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTarget(CamelJson):
    """A session, or a turn or tool call of it, to label."""

    session_id: str
    target: str
    """Empty: the whole session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelingQueue(CamelJson):
    """What one person has to label, in order."""

    evaluator: str
    dimension: str
    rubric: Mapping[str, str]
    """What the evaluator judges, by title."""
    ratings: Sequence[Rating]
    """The scale, lowest first; empty: any label."""
    targets: Sequence[QueuedTarget]
    total: int
    """All that can be labeled."""
    labeled: int
    """Those of them that this person has labeled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelingProgress(CamelJson):
    """How far labels agree, and what they make of the judge's mean."""

    labels: int
    targets: int
    """Labeled targets that the judge has scored."""
    people: int
    shared: int
    """Targets with labels of two people or more."""
    people_agree: int
    """Those of them on which all people agree."""
    human_alpha: float | None
    """Krippendorff's alpha of the people; null: nothing was labeled by two."""
    kappa: float | None
    """Of the judge and the people."""
    judge_mean: float | None
    """Mean of the judge's values over all sessions that it has scored."""
    corrected: float | None
    low: float | None
    high: float | None
    """Mean corrected for the judge's errors, with its 95% interval."""
    note: str
    """Why there is no corrected mean, or what limits it."""
    more_labels: int | None
    """Further labels of random sessions that an interval of the wanted width needs; null: not known,
    or not to be reached with these sessions."""
    needs: str
    """The same as a sentence."""


def evaluators_to_label(ctx: RunContext) -> list[tuple[str, str]]:
    """Evaluators and dimensions that have scores or labels."""
    return [pair for pair in scored_evaluators(ctx.store.read) if pair[0] != RATING]


def labeling_queue(
    ctx: RunContext,
    evaluator: str,
    *,
    dimension: str = "",
    author: str = "",
    order: QueueOrder = "random",
    session_ids: Sequence[str] = (),
    filters: SessionFilter | None = None,
    limit: int = 100,
) -> LabelingQueue:
    """What a person has to label: all targets of these sessions, of a filter, or of all that were scored.

    In the same random order for everybody, so that people label the same ones independently of each other; or
    where the judge was least sure first: its votes or versions differ, or it is in the middle of the scale.
    """
    if filters is not None and not session_ids:
        session_ids = SessionSearch(ctx).ids(filters, limit=MOST_QUEUED)
    scores: dict[Target, list[GivenScore]] = {}
    for row in given_scores(ctx.store.read, evaluator, dimension):
        scores.setdefault((row["session"], row["target"]), []).append(row)
    if chosen := set(session_ids):
        scores = {target: rows for target, rows in scores.items() if target[0] in chosen}
    description = _description(ctx, evaluator)
    targets = list(scores) or [_unscored(ctx, session, description.level) for session in session_ids]
    if not targets:
        raise NotFound(f"{evaluator} has no scores\nEvaluate sessions first, or select sessions to label.")
    values = [row["value"] for rows in scores.values() for row in rows if row["value"] is not None]
    ends = (min(values), max(values)) if values else (0.0, 0.0)

    def place(target: Target) -> tuple[float, str]:
        doubt = _doubt(scores.get(target, ()), *ends) if order == "unsure" else 0.0
        return -doubt, hashlib.sha256("\0".join((evaluator, *target)).encode()).hexdigest()

    done = labeled_targets(ctx.store.read, evaluator, dimension)
    author = author.strip() or NOBODY
    open_ = [target for target in targets if author not in done.get(target, ())]
    ratings = ratings_of(ctx, evaluator, dimension)
    return LabelingQueue(
        evaluator=evaluator,
        dimension=dimension,
        rubric=description.rubric,
        ratings=[
            Rating(label=label, value=value)
            for label, value in sorted(ratings.items(), key=lambda pair: (pair[1] or 0.0, pair[0]))
        ],
        targets=[
            QueuedTarget(session_id=session, target=target)
            for session, target in sorted(open_, key=place)[:limit]
        ],
        total=len(targets),
        labeled=len(targets) - len(open_),
    )


@dataclass(frozen=True, slots=True)
class _Description:
    level: str
    rubric: Mapping[str, str]


def _description(ctx: RunContext, evaluator: str) -> _Description:
    try:
        known = describe_evaluator(ctx, evaluator)
    except NotFound:
        # Labels and scores may be of an evaluator that is elsewhere by now.
        return _Description("session", {})
    about = {"What it judges": known.listing.judges} if known.listing.judges else {}
    return _Description(known.listing.level, {**about, **known.texts})


def _unscored(ctx: RunContext, session: str, level: str) -> Target:
    """What to label of a session that has no score: its last turn, or the whole."""
    turns = turns_of(ctx.store.read.evidence(session)) if level == "trace" else ()
    return session, turns[-1].id if turns else ""


def _doubt(rows: Sequence[GivenScore], low: float, high: float) -> float:
    """How unsure a judge was: the share of its votes and versions that differ from most, and half as much for
    the middle of the scale."""
    votes = [str(vote) for row in rows for vote in json.loads(row["votes"] or "[]")]
    votes = votes or [row["label"] or str(row["value"]) for row in rows]
    differing = 1 - Counter(votes).most_common(1)[0][1] / len(votes) if votes else 0.0
    values = [row["value"] for row in rows if row["value"] is not None]
    middle = 1 - abs(2 * (fmean(values) - low) / (high - low) - 1) if values and high > low else 0.0
    return differing + middle / 2


class LabelingProgressOf:
    """Progress of labeling, computed anew when labels or scores change."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx, self._calibrations = ctx, JudgeCalibrations(ctx)

    def __call__(
        self, evaluator: str, dimension: str = "", *, width: float | None = None
    ) -> LabelingProgress:
        """Of an evaluator and dimension; `width` is that of the wanted interval."""
        # numpy is loaded with the first progress, not with the server.
        import numpy as np

        from proctor.stats.corrected_means import corrected_mean, labels_for_width

        judge = next((each for each in self._calibrations.of(evaluator) if each.dimension == dimension), None)
        rows = given_scores(self._ctx.store.read, evaluator, dimension)
        digest = judge.digest if judge and judge.digest else rows[-1]["digest"] if rows else ""
        by_session: dict[str, list[float]] = {}
        for row in rows:
            if row["digest"] == digest and row["value"] is not None:
                by_session.setdefault(row["session"], []).append(row["value"])
        judged = np.array([fmean(values) for values in by_session.values()], dtype=np.float64)
        known = judge.calibration if judge else None
        pairs = known.pairs if known else ()
        scale = [value for value in ratings_of(self._ctx, evaluator, dimension).values() if value is not None]
        scale += [*judged.tolist(), *(value for pair in pairs for value in (pair.human, pair.judge))]
        ends = (min(scale), max(scale)) if scale else (0.0, 1.0)
        corrected = Estimate(value=None, note="There are no scores with values yet.")
        more, needs = None, ""
        if len(judged) and ends[0] < ends[1]:
            evaluated = set(by_session)
            corrected = corrected_mean(judged, pairs, lo=ends[0], hi=ends[1], evaluated=evaluated)
            if width:
                more, needs = labels_for_width(
                    judged, pairs, lo=ends[0], hi=ends[1], evaluated=evaluated, width=width
                )
        people = labeled_targets(self._ctx.store.read, evaluator, dimension)
        shared = {target for target, who in people.items() if len(who) > 1}
        return LabelingProgress(
            labels=sum(map(len, people.values())),
            targets=known.things if known else 0,
            people=len(set().union(*people.values())) if people else 0,
            shared=len(shared),
            people_agree=self._agreeing(evaluator, dimension, shared),
            human_alpha=known.human_alpha if known else None,
            kappa=known.kappa.value if known else None,
            judge_mean=float(judged.mean()) if len(judged) else None,
            corrected=corrected.value,
            low=corrected.low,
            high=corrected.high,
            note=corrected.note,
            more_labels=more,
            needs=needs,
        )

    def _agreeing(self, evaluator: str, dimension: str, shared: set[Target]) -> int:
        """Targets on which all people agree."""
        words: dict[Target, set[str]] = {}
        for row in self._ctx.store.labels(evaluator=evaluator) if shared else ():
            target = row["sessionId"], row["target"]
            if row["dimension"] == dimension and target in shared:
                words.setdefault(target, set()).add(row["label"] or str(row["value"]))
        return sum(len(each) == 1 for each in words.values())
