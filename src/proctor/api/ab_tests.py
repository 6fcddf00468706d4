"""A/B tests of received sessions: the scores of two variants, compared as two runs are."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from proctor.context import RunContext
from proctor.jobs.evaluation.drift import scale_of
from proctor.stats.differences import Difference, difference
from proctor.stats.intervals import CONFIDENCE
from proctor.store.drift import ComparedScore, LineKey
from proctor.store.writer import timestamp

BUNDLE_VERSION = "aws.agentcore.configbundle_version"
"""Attribute of a session with the version of the configuration bundle that it ran with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSessions:
    """Which sessions are of a variant."""

    config_id: str
    """The online configuration that evaluates them."""
    bundle_version: str = ""
    """Only those that ran with this version of a bundle. Empty: all of the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedEvaluator:
    """The scores of one evaluator for both variants; a score is the mean of a session."""

    evaluator: str
    control: list[float]
    treatment: list[float]
    difference: Difference


def compare_variants(
    ctx: RunContext,
    control: VariantSessions,
    treatment: VariantSessions,
    *,
    since: datetime,
    until: datetime,
) -> list[ComparedEvaluator]:
    """Compare what was evaluated in a period, by evaluator; intervals and p hold for all of them together.

    Evaluators without a score on both sides are left out.
    """
    first_at, last_at = timestamp(since), timestamp(until)
    sides = [
        _by_line(
            score
            for score in ctx.store.drift.scores_of(side.config_id)
            if first_at <= score["at"] <= last_at and _is_of(score, side)
        )
        for side in (control, treatment)
    ]
    both = [line for line in sides[0] if line in sides[1]]
    config = ctx.store.definitions.config(control.config_id)
    compared = []
    for evaluator, dimension in both:
        first, second = (side[evaluator, dimension] for side in sides)
        scale = scale_of(ctx.store, config, LineKey(config["id"], evaluator, dimension), None)
        lo, hi = scale or (None, None)
        change = difference(first, second, lo=lo, hi=hi, family=len(both), paired=False, level=CONFIDENCE)
        compared.append(
            ComparedEvaluator(evaluator=evaluator, control=first, treatment=second, difference=change)
        )
    return compared


def _by_line(scores: Iterable[ComparedScore]) -> dict[tuple[str, str], list[float]]:
    lines: dict[tuple[str, str], list[float]] = defaultdict(list)
    for score in scores:
        lines[score["evaluator"], score["dimension"]].append(score["value"])
    return lines


def _is_of(score: ComparedScore, side: VariantSessions) -> bool:
    if not side.bundle_version:
        return True
    attributes = json.loads(score["attributesJson"] or "{}")
    return bool(attributes.get(BUNDLE_VERSION) == side.bundle_version)
