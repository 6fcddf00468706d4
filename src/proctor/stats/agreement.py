"""Agreement of raters, corrected for chance: Cohen's kappa, Krippendorff's alpha, rank correlation.

Intervals are on the scale of the inverse hyperbolic tangent, with Student's t. Where several ratings belong
to one unit (the turns of a session), units are left out one at a time (jackknife), because ratings of one
unit are alike. Below 20 units there is a value but no interval.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from proctor.stats.intervals import CONFIDENCE, LIKE, Estimate, wilson

if TYPE_CHECKING:
    from proctor.stats.samples import FloatArray

Metric = Literal["nominal", "ordinal", "interval"]
FEWEST_UNITS, FEWEST_LOPSIDED, LOPSIDED = 20, 50, 0.8
"""Units that an interval needs; units it needs where one label has more than this share."""
MOST_BLOCKS = 400
"""Units beyond this number are left out in blocks."""
MOST_CATEGORIES = 100
NEAR_ONE = 1 - 1e-9
KAPPA, ALPHA, SPEARMAN = "Cohen's kappa", "Krippendorff's alpha", "Spearman's rank correlation"


def kappa(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    *,
    order: Sequence[Hashable] = (),
    unit: Sequence[Hashable] | None = None,
    level: float = CONFIDENCE,
) -> Estimate:
    """Cohen's kappa of two raters' labels of the same things.

    With an `order` of more than two labels, disagreements count by their squared distance in it. `unit` is
    what each thing belongs to; without it each is its own. The interval is that of Fleiss, Cohen & Everitt
    (1969) on the table with one more thing, spread as chance would.

    >>> round(kappa(["y"] * 25 + ["n"] * 25, ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15).value, 2)
    0.4
    """
    import numpy as np

    pairs = list(zip(first, second, strict=True))
    units = _coded(range(len(pairs)) if unit is None else unit)
    number = len(set(units))
    blank = Estimate(value=None, n=number, runs=len(pairs), level=level, method=KAPPA)
    if not pairs:
        return replace(blank, note="Nothing was rated by both.", needs=FEWEST_UNITS)
    used = {label for pair in pairs for label in pair}
    labels = [*(label for label in order if label in used), *sorted(used - set(order), key=str)]
    places = {label: place for place, label in enumerate(order if len(order) > 2 else labels)}
    if len(used) == 1:
        # Units, not pairs: what belongs to one unit is not independent.
        rate = wilson(number, number, level=level)
        note = f"One label throughout: kappa is not defined. Agreement 1, 95% CI {rate.low:.2f} to 1."
        return replace(blank, note=note)
    weights = np.array([[_weight(a, b, places, is_ordered=len(order) > 2) for b in labels] for a in labels])
    code = {label: place for place, label in enumerate(labels)}
    tables = np.zeros((number, len(labels), len(labels)))
    for cluster, (a, b) in zip(units, pairs, strict=True):
        tables[cluster, code[a], code[b]] += 1
    total = tables.sum(axis=0)
    value = _kappa(total, weights)
    if value is None:
        return replace(blank, note="The labels never differ by chance: kappa is not defined.")
    share = max((total.sum(axis=0) + total.sum(axis=1)) / (2 * len(pairs)))
    estimate = _refused(replace(blank, value=value), FEWEST_UNITS)
    if not estimate.note and number < FEWEST_LOPSIDED and share > LOPSIDED:
        note = f"One label has {share:.0%}: no interval below {FEWEST_LOPSIDED} units."
        estimate = replace(estimate, note=note, needs=FEWEST_LOPSIDED)
    if estimate.note:
        return estimate
    if number == len(pairs):
        table = _with_chance(total)
        center = _kappa(table, weights) or 0.0
        error = _kappa_error(table / table.sum(), weights, center, len(pairs)) / (1 - center**2)
        return _on_tanh(estimate, center, error)

    def without(left: "FloatArray") -> float | None:
        return _kappa(_with_chance(left), weights)

    return _jackknifed(estimate, [without(total - block) for block in _blocks(tables)], without(total))


def alpha(
    units: Sequence[Sequence[Hashable]],
    metric: Metric = "nominal",
    *,
    cluster: Sequence[Hashable] | None = None,
    level: float = CONFIDENCE,
) -> Estimate:
    """Krippendorff's alpha: each unit has the ratings of one thing, by any raters in any order.

    For `ordinal` and `interval` ratings are numbers. `cluster` is what each unit belongs to. Perfect
    agreement gets the interval of the data with two units of opposite ratings.

    >>> round(alpha([[1, 1], [0, 1], [0, 0], [1, 1, 0]]).value, 3)
    0.2
    """
    import numpy as np

    rated = [(list(unit), place) for place, unit in enumerate(units) if len(unit) > 1]
    clusters = _coded([place if cluster is None else cluster[place] for _, place in rated])
    number = len(set(clusters))
    left_out = len(units) - len(rated)
    blank = Estimate(value=None, n=number, runs=len(rated), level=level, method=ALPHA, left_out=left_out)
    values = [value for unit, _ in rated for value in unit]
    if not values:
        return replace(blank, note="Nothing was rated twice.", needs=FEWEST_UNITS)
    labels = sorted(set(values), key=(lambda each: str(each)) if metric == "nominal" else _numeric)
    if len(labels) < 2:
        return replace(blank, note="One rating throughout: alpha is not defined.")
    code = {label: place for place, label in enumerate(labels)}
    scores = np.array(
        [float(place) if metric == "nominal" else _numeric(each) for each, place in code.items()]
    )
    tables = np.zeros((number, len(labels), len(labels)))
    for (unit, _), group in zip(rated, clusters, strict=True):
        tables[group] += _coincidences([code[each] for each in unit], len(labels))
    total = tables.sum(axis=0)
    value = _alpha(total, scores, metric)
    if value is None:
        return replace(blank, note="One rating throughout: alpha is not defined.")
    estimate = _refused(replace(blank, value=value), FEWEST_UNITS)
    if estimate.note:
        return estimate
    if value > NEAR_ONE:
        split = _coincidences([0, len(labels) - 1], len(labels))
        tables = np.concatenate([tables, [split, split]])
        total = tables.sum(axis=0)
        estimate = replace(
            estimate, note="Perfect agreement: the interval adds two units of opposite ratings."
        )
    return _jackknifed(
        estimate,
        [_alpha(total - block, scores, metric) for block in _blocks(tables)],
        _alpha(total, scores, metric),
    )


def order_of_numbers(words: Iterable[str]) -> list[str]:
    """The order of categories that are whole numbers, with those between that nobody gave; else empty.

    >>> order_of_numbers(["4", "1", "2"]), order_of_numbers(["1", "2.5"]), order_of_numbers(["1", "yes"])
    (['1', '2', '3', '4'], [], [])
    """
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        return []
    # A range of thousands is a measurement, no scale of categories.
    wide = not numbers or max(numbers) - min(numbers) > MOST_CATEGORIES
    return [] if wide else [str(number) for number in range(min(numbers), max(numbers) + 1)]


def rank_correlation(
    first: Sequence[float],
    second: Sequence[float],
    *,
    unit: Sequence[Hashable] | None = None,
    level: float = CONFIDENCE,
) -> Estimate:
    """Spearman's rank correlation; no value where either does not vary.

    >>> round(rank_correlation([1, 2, 3, 4], [10, 30, 20, 40]).value, 3)
    0.8
    """
    import numpy as np

    x, y = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    units = np.array(_coded(range(len(x)) if unit is None else unit), dtype=int)
    number = len(set(units.tolist()))
    blank = Estimate(value=None, n=number, runs=len(x), level=level, method=SPEARMAN)
    value = _spearman(x, y)
    if value is None:
        return replace(blank, note="Fewer than three things, or no variation: no correlation.")
    estimate = _refused(replace(blank, value=value), FEWEST_UNITS)
    if estimate.note:
        return estimate
    blocks = units % MOST_BLOCKS if number > MOST_BLOCKS else units
    left = [_spearman(x[blocks != block], y[blocks != block]) for block in range(int(blocks.max()) + 1)]
    return _jackknifed(estimate, left, value)


def _coded(values: Sequence[Hashable]) -> list[int]:
    places: dict[Hashable, int] = {}
    return [places.setdefault(value, len(places)) for value in values]


def _numeric(value: Hashable) -> float:
    return float(value)  # type: ignore[arg-type]


def _weight(a: Hashable, b: Hashable, places: dict[Hashable, int], *, is_ordered: bool) -> float:
    """How far two labels agree: 1 where they are equal."""
    if not is_ordered or a not in places or b not in places:
        # What is not on the scale is nowhere in its order.
        return float(a == b)
    return 1 - float((places[a] - places[b]) ** 2) / (len(places) - 1) ** 2


def _kappa(table: "FloatArray", weights: "FloatArray") -> float | None:
    shares = table / table.sum()
    observed = float((weights * shares).sum())
    by_chance = float(shares.sum(axis=1) @ weights @ shares.sum(axis=0))
    return (observed - by_chance) / (1 - by_chance) if by_chance < 1 - 1e-12 else None


def _with_chance(table: "FloatArray") -> "FloatArray":
    """A table with one more thing, spread as the product of the marginal shares."""
    total, size = table.sum(), len(table)
    rows, columns = ((table.sum(axis=axis) + 1 / size) / (total + 1) for axis in (1, 0))
    extended: FloatArray = table + rows[:, None] * columns
    return extended


def _kappa_error(shares: "FloatArray", weights: "FloatArray", value: float, n: int) -> float:
    """The standard error of kappa (Fleiss, Cohen & Everitt 1969)."""
    rows, columns = shares.sum(axis=1), shares.sum(axis=0)
    by_chance = float(rows @ weights @ columns)
    margins = (weights @ columns)[:, None] + rows @ weights
    spread = float((shares * (weights - margins * (1 - value)) ** 2).sum())
    spread -= (value - by_chance * (1 - value)) ** 2
    return math.sqrt(max(0.0, spread) / n) / (1 - by_chance)


def _coincidences(codes: Sequence[int], size: int) -> "FloatArray":
    """Pairs of ratings within a unit, weighted by the number of its raters."""
    import numpy as np

    table = np.zeros((size, size))
    counts = Counter(codes)
    for a, of_a in counts.items():
        for b, of_b in counts.items():
            table[a, b] = of_a * (of_b - (a == b)) / (len(codes) - 1)
    return table


def _alpha(table: "FloatArray", scores: "FloatArray", metric: Metric) -> float | None:
    import numpy as np

    counts = table.sum(axis=0)
    total = float(counts.sum())
    if metric == "nominal":
        apart = 1.0 - np.eye(len(counts))
    else:
        # Ordinal: as far apart as there are ratings between two values, half of their own counted.
        at = scores if metric == "interval" else np.cumsum(counts) - counts / 2
        apart = (at[:, None] - at) ** 2
    by_chance = float(counts @ apart @ counts)
    return 1 - (total - 1) * float((table * apart).sum()) / by_chance if by_chance > 0 else None


def _spearman(x: "FloatArray", y: "FloatArray") -> float | None:
    import numpy as np

    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: "FloatArray") -> "FloatArray":
    """From 1; equal values share the mean of their places."""
    import numpy as np

    _, cluster, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: FloatArray = (last - (counts - 1) / 2)[cluster]
    return ranks


def _blocks(tables: "FloatArray") -> "FloatArray":
    """Tables by unit, or sums of several where there are many."""
    import numpy as np

    if len(tables) <= MOST_BLOCKS:
        return tables
    blocks: FloatArray = np.stack([tables[start::MOST_BLOCKS].sum(axis=0) for start in range(MOST_BLOCKS)])
    return blocks


def _refused(estimate: Estimate, fewest: int) -> Estimate:
    """The estimate, with a note where it has too few units for an interval."""
    if estimate.n >= fewest:
        return estimate
    return replace(estimate, note=f"Fewer than {fewest} units: no interval.", needs=fewest)


def _jackknifed(estimate: Estimate, left: Sequence[float | None], value: float | None) -> Estimate:
    """The interval from the values without each unit."""
    import numpy as np

    known = np.array([each for each in left if each is not None])
    if value is None or len(known) < len(left):
        return replace(estimate, note="Without one unit it is not defined: no interval.")
    count = len(known)
    bent = np.arctanh(np.clip(known, -NEAR_ONE, NEAR_ONE))
    error = math.sqrt((count - 1) / count * float(((bent - bent.mean()) ** 2).sum()))
    return _on_tanh(estimate, value, error)


def _on_tanh(estimate: Estimate, center: float, error: float) -> Estimate:
    from proctor.stats.samples import t_quantile

    if error <= 1e-12 or abs(center) > NEAR_ONE:
        return replace(estimate, note="No unit changes the value: no interval.")
    reach = float(t_quantile(0.5 + estimate.level / 2, estimate.n - 1)) * error
    middle, value = math.atanh(center), estimate.value if estimate.value is not None else center
    low, high = math.tanh(middle - reach), math.tanh(middle + reach)
    return replace(
        estimate,
        low=min(low, value),
        high=max(high, value),
        sem=error * (1 - center**2),
        scope=LIKE,
    )
