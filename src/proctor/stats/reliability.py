"""Reliability of raters, people and judges alike: every pair of them, all together, and where they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from proctor.stats.agreement import Metric, alpha, kappa, order_of_numbers
from proctor.stats.intervals import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedTarget:
    """One target with the category that each rater gave it."""

    session: str
    target: str = ""
    ratings: Mapping[str, str]
    """By rater; those who did not rate it are absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterPair:
    """How far two raters agree, chance corrected, on what both have rated."""

    first: str
    second: str
    targets: int
    same: int
    """Targets with the same category from both."""
    kappa: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Agreement of several raters on one scale."""

    people: Sequence[str]
    judges: Sequence[str]
    targets: int
    """Targets with two ratings or more."""
    weighted: bool
    """Whether the scale is ordinal: disagreements count by their squared distance."""
    off_scale: int
    """Ratings that are not on the ordinal scale, and are left out."""
    alpha: Estimate
    """Of all raters."""
    people_alpha: Estimate
    judges_alpha: Estimate
    pairs: Sequence[RaterPair]
    disagreements: Sequence[RatedTarget]
    """Targets with different ratings, the furthest apart first."""


def reliability(
    targets: Sequence[RatedTarget],
    *,
    people: Sequence[str],
    judges: Sequence[str],
    order: Sequence[str] = (),
) -> Reliability:
    """Compare raters. `order` are the labels of an ordinal scale, lowest first; without one, ratings that are
    whole numbers have theirs. Intervals are those of sessions like these.
    """
    order = order or order_of_numbers(word for each in targets for word in each.ratings.values())
    places = {label: place for place, label in enumerate(order)} if len(order) > 2 else {}
    metric: Metric = "ordinal" if places else "nominal"
    given = sum(len(each.ratings) for each in targets)
    if places:
        # What is not on the scale has no place in its order.
        targets = [
            RatedTarget(
                session=each.session,
                target=each.target,
                ratings={who: word for who, word in each.ratings.items() if word in places},
            )
            for each in targets
        ]

    def alpha_of(raters: Sequence[str]) -> Estimate:
        units = [[each.ratings[who] for who in raters if who in each.ratings] for each in targets]
        numbered = [[places.get(word, word) for word in unit] for unit in units]
        return alpha(numbered, metric, cluster=[each.session for each in targets])

    def pair_of(first: str, second: str) -> RaterPair:
        both = [each for each in targets if first in each.ratings and second in each.ratings]
        ratings = [(each.ratings[first], each.ratings[second]) for each in both]
        return RaterPair(
            first=first,
            second=second,
            targets=len(both),
            same=sum(a == b for a, b in ratings),
            kappa=kappa(
                [a for a, _ in ratings],
                [b for _, b in ratings],
                order=order,
                unit=[each.session for each in both],
            ),
        )

    def distance(each: RatedTarget) -> int:
        words = set(each.ratings.values())
        ranks = [places[word] for word in words if word in places]
        return max(ranks) - min(ranks) if ranks else len(words) - 1

    return Reliability(
        people=people,
        judges=judges,
        targets=sum(len(each.ratings) > 1 for each in targets),
        weighted=bool(places),
        off_scale=given - sum(len(each.ratings) for each in targets),
        alpha=alpha_of([*people, *judges]),
        people_alpha=alpha_of(people),
        judges_alpha=alpha_of(judges),
        pairs=[pair_of(*pair) for pair in combinations([*people, *judges], 2)],
        disagreements=sorted((each for each in targets if distance(each) > 0), key=distance, reverse=True),
    )
