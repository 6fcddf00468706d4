"""Sections of results that several jobs show: leaderboard, success against cost, tasks × models, scores.

Figures come from `stats`, drawings from `charts`; here they get their marks and the items behind them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

import numpy as np

from proctor.document import (
    Cell,
    Chart,
    Column,
    Document,
    Figure,
    FigureList,
    ItemSelection,
    Matrix,
    MatrixCell,
    Section,
    Sentence,
    Table,
)
from proctor.formatting import UNKNOWN, figure, interval, one_line, percent, plural, rank, seconds, usd, whole
from proctor.item import ERROR, FAIL, FINISHED, SUCCESS, TIMEOUT
from proctor.metric import SCORE
from proctor.report.charts import Bar, bars, histogram
from proctor.report.run_charts import cost_against_success, is_tiny_cost, level_figure, rate
from proctor.results.stopping import Standing
from proctor.score import CHECK, EXPECT
from proctor.stats.figures import FactorFigures, Figures, factor_figures, figures_of
from proctor.stats.intervals import FEWEST_TASKS, Estimate
from proctor.stats.results import Floats, Labels, Results
from proctor.store import StoreReader
from proctor.store.items import change_sizes

MOST_LEVELS = 40
"""Rows of a leaderboard."""
MOST_SCORES, MOST_OPTIONAL_SCORES = 4, 40
"""Scores with a column of their own, and further ones on demand."""
MOST_TASKS = 60
MOST_COLUMNS = 12
"""Rows and columns of a matrix."""
BINS = 20
WHO = ("model", "agent")
"""Factors of the agent or model under test, the most interesting first."""
_WORST_FIRST = (ERROR, TIMEOUT, FAIL, SUCCESS)


def general_view(results: Results, sizes: "FindChanges | None" = None) -> Document:
    """The results of a run of any job: who was best, at what cost, and where they differ.

    `sizes` gives the size of what the items changed.
    """
    sections: list[Section] = []
    for name in leading_factors(results):
        factor = factor_figures(results, name)
        sections += [*success_against_cost(factor), leaderboard(factor)]
    if not sections:
        sections += overall_sections(results)
    sections += [*score_distributions(results), *task_matrix(results, sizes)]
    return Document(sections=sections, remarks=model_remarks(results))


def model_remarks(results: Results) -> list[str]:
    """Where models answered that are not the requested ones, or several under one name."""
    return [str(each) for each in (*results.answered, *(each for each in results.served if each.is_mixed))]


def leading_factors(results: Results) -> list[str]:
    """The factors of the agent or model under test that vary."""
    return [name for name in WHO if name in results.factors and len(results.factors[name].labels) > 1]


def overall_sections(results: Results) -> list[Section]:
    """The success rate of all items, where nothing is compared."""
    if not len(results) or bool(results.is_evaluation.all()):
        return []
    tasks, _ = results.tasks(pair=results.pairing())
    overall = figures_of(results, tasks)
    rate = overall.success
    if rate.value is None:
        return []
    limits = f" (95% CI {interval(rate.low, rate.high)})" if rate.low is not None else ""
    text = f"{percent(rate.value)} of {plural(rate.n, 'task')} succeeded{limits}."
    cost = overall.cost_per_success_usd.value
    parts = [
        f"Mean cost of an item: {usd(overall.cost_usd.value)}" if overall.cost_usd.value is not None else "",
        f"of a success: {usd(cost)}" if cost is not None else "",
        f"mean time: {seconds(overall.seconds.value)}" if overall.seconds.value is not None else "",
    ]
    note = ", ".join(part for part in parts if part)
    return [Sentence(text=text, note=f"{note}." if note else "")]


RANKS = " Ranks in brackets are the range that all comparisons together leave open."


def leaderboard(factor: FactorFigures) -> Table:
    """The levels of a factor, best success rate first, with intervals, and ranks where they are ranked."""
    levels = factor.levels[:MOST_LEVELS]
    named = dict.fromkeys(name for level in levels for name in level.scores)
    own = [name for name in named if not _copies_success(levels, name)]
    is_tiny = is_tiny_cost(levels)
    scores = sorted(own, key=lambda name: _importance(levels, name))[: MOST_SCORES + MOST_OPTIONAL_SCORES]
    columns = [
        Column(title=factor.name.capitalize()),
        Column(title="Success rate", is_numeric=True, limits=(0.0, 1.0)),
        *(
            Column(title=_score_title(name), is_numeric=True, is_optional=index >= MOST_SCORES)
            for index, name in enumerate(scores)
        ),
        Column(title="Cost of 1,000 successes" if is_tiny else "Cost per success", is_numeric=True),
        Column(title="Cost of 1,000 items" if is_tiny else "Cost of an item", is_numeric=True),
        Column(title="Time of an item", is_numeric=True),
        *([Column(title="Rank", is_numeric=True)] if factor.ranks else []),
        Column(title="Tasks", is_numeric=True, is_optional=True),
    ]
    return Table(
        title=f"By {factor.name}",
        columns=columns,
        rows=[_leaderboard_row(factor, level, scores, is_tiny) for level in levels],
        caption="Success rates with 95% CIs over tasks; infrastructure errors are excluded."
        + (RANKS if factor.ranks else "")
        + (" With errors counted as failures the order is another one." if factor.errors_decide else ""),
        omitted=len(factor.levels) - len(levels),
    )


def _usd_of_thousand(amount: float | None) -> str:
    return usd(None if amount is None else 1000 * amount)


def _copies_success(levels: Sequence[Figures], score: str) -> bool:
    """Whether a score is what decides success, so that it would be listed twice."""
    return all(level.scores[score].value == level.success.value for level in levels if score in level.scores)


def _importance(levels: Sequence[Figures], score: str) -> tuple[bool, float]:
    """Sorts the columns of scores: evaluators before single checks, then the largest difference first."""
    means = [mean.value for level in levels if (mean := level.scores.get(score)) and mean.value is not None]
    spread = max(means) - min(means) if means else 0.0
    return score.removeprefix(SCORE).startswith((CHECK, EXPECT)), -spread if math.isfinite(spread) else 0.0


def _score_title(metric: str) -> str:
    return metric.removeprefix(SCORE).removeprefix("Builtin.")


def _leaderboard_row(
    factor: FactorFigures, level: Figures, scores: Sequence[str], is_tiny: bool
) -> list[Cell]:
    def cell(estimate: Estimate | None, say: Callable[[float | None], str]) -> Cell:
        if estimate is None or estimate.value is None:
            return Cell(text=UNKNOWN)
        drawn = level_figure(factor.name, level.name, estimate, say)
        return Cell(text=drawn.text, figure=drawn if estimate.low is not None else None)

    money = _usd_of_thousand if is_tiny else usd
    place, success = factor.rank_of(level.name), level_figure(factor.name, level.name, level.success, percent)
    link = Figure(label=level.name, text=level.name, items=success.items) if level.name else None
    ranked = Cell(text=rank(place.rank, place.rank_low, place.rank_high) if place else UNKNOWN)
    return [
        Cell(text=success.label, figure=link),
        Cell(text=rate(level.success), figure=success),
        *(cell(level.scores.get(score), figure) for score in scores),
        cell(level.cost_per_success_usd, money),
        cell(level.cost_usd, money),
        cell(level.seconds, seconds),
        *([ranked] if factor.ranks else []),
        Cell(text=whole(level.success.n)),
    ]


def success_against_cost(factor: FactorFigures) -> list[Chart]:
    """The success rate against the mean cost of an item; none unless two levels have both."""
    marks = FigureList()
    svg = cost_against_success(factor, marks)
    if not svg or not any(level.cost_usd.value for level in factor.levels):
        return []
    return [
        Chart(
            title=f"Success against cost by {factor.name}",
            svg=svg,
            marks=marks.figures,
            caption=f"Rings: no other {factor.name} is better in both. Lines: 95% CIs.",
        )
    ]


def score_distributions(results: Results) -> list[Chart]:
    """The distribution of each score that is not just pass or fail."""
    drawn = []
    for metric, values in results.metrics.items():
        known = values[~np.isnan(values)]
        if metric.startswith(SCORE) and len(np.unique(known)) > 2:
            drawn.append(
                distribution(_score_title(metric), known, unit="item", score=metric.removeprefix(SCORE))
            )
    return drawn[:MOST_SCORES]


def distribution(title: str, values: Floats, *, unit: str, score: str = "") -> Chart:
    """A histogram of values; whole numbers have bars of their own.

    `score` names the score whose values they are: its bars open the items behind them.
    """
    edges, is_each = _edges(values)
    counts, _ = np.histogram(values, bins=edges)
    pairs = list(zip(edges.tolist(), edges[1:].tolist(), strict=False))
    marks = FigureList()
    names = [figure((low + high) / 2) for low, high in pairs] if is_each else []
    numbers = [
        marks.add(
            Figure(
                label=names[index] if is_each else f"{figure(low)} to {figure(high)}",
                text=plural(int(count), unit),
                value=float(count),
                n=int(count),
                unit=unit,
                items=_between(score, low, high, is_last=index == len(pairs) - 1)
                if score and count
                else None,
            )
        )
        for index, ((low, high), count) in enumerate(zip(pairs, counts, strict=True))
    ]
    svg = histogram(
        f"Distribution of {title}",
        pairs,
        counts.tolist(),
        say=figure,
        axis=title,
        marks=numbers,
        names=names,
    )
    middle = float(np.median(values))
    return Chart(
        title=f"Distribution of {title}",
        svg=svg,
        marks=marks.figures,
        caption=f"{plural(len(values), unit)}, median {figure(middle)}.",
    )


def _edges(values: Floats) -> tuple[Floats, bool]:
    """The ends of bars, and whether each bar is one whole number."""
    low, high = float(values.min()), float(values.max())
    if not bool((values == np.round(values)).all()):
        edges = np.histogram_bin_edges(values, bins=min(BINS, max(5, len(np.unique(values)))))
        return np.asarray(edges, dtype=np.float64), False
    width = math.ceil((high - low + 1) / BINS)
    if width == 1:
        return np.arange(low - 0.5, high + 1.0), True
    return np.arange(low, high + width + 0.5, width), False


def _between(score: str, low: float, high: float, *, is_last: bool) -> ItemSelection:
    """The items whose score is in a bar. Both limits of a filter belong to it; the end of a bar does not."""
    end = high if is_last else math.nextafter(high, -math.inf)
    # Not in exponential notation, which filters do not read.
    return {"score": [f"{score}={Decimal(low):f}..{Decimal(end):f}"]}


def mean_chart(title: str, axis: str, entries: Sequence[Figure]) -> Chart:
    """Means with intervals as bars."""
    marks = FigureList()
    drawn = [Bar.of(one, marks, note=one.text) for one in entries]
    return Chart(title=title, svg=bars(f"{title}: {axis}", drawn, say=figure), marks=marks.figures)


Changes = Mapping[str, str]
"""The size of the change of each item, by its id."""
FindChanges = Callable[[Sequence[str]], Changes]


def change_finder(read: StoreReader, run_id: str) -> FindChanges:
    """Finds what items of a run changed: `3 files +12 −4`. Nothing where no item changed a file."""

    def find(ids: Sequence[str]) -> Changes:
        rows = change_sizes(read, run_id, ids)
        if not any(row["files"] for row in rows):
            return {}
        return {
            row["id"]: f"{plural(row['files'], 'file')} +{row['added']:,} −{row['removed']:,}"
            if row["files"]
            else "no change"
            for row in rows
        }

    return find


def task_matrix(results: Results, sizes: FindChanges | None = None) -> list[Matrix]:
    """Tasks × agents or models: those first in which the columns differ; none with a single task or column.

    `sizes` gives the size of what the items changed.
    """
    names = leading_factors(results)
    if not names or bool(results.is_evaluation.all()):
        return []
    by = _joined(results, names)
    tasks, _ = results.tasks(pair=results.pairing())
    order = _rows_that_differ(results, by, tasks)
    listed, columns = order[:MOST_TASKS], by.labels[:MOST_COLUMNS]
    places: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(np.isin(tasks.codes, listed)).tolist():
        places.setdefault((int(tasks.codes[row]), int(by.codes[row])), []).append(row)
    ids = [results.item_ids[row] for rows in places.values() for row in rows]
    changed = sizes(ids) if sizes else {}
    rows = [
        (
            one_line(tasks.labels[task], 160),
            [
                _matrix_cell(results, places.get((task, column), []), by, column, changed)
                for column in range(len(columns))
            ],
        )
        for task in listed
    ]
    return [
        Matrix(
            title=f"Tasks by {' and '.join(names)}",
            row_title="Task",
            columns=columns,
            rows=rows,
            caption="Tasks first in which the columns differ most, then those that fail.",
            omitted=len(order) - len(listed),
        )
    ]


def _joined(results: Results, names: Sequence[str]) -> Labels:
    """One label for each combination of factors."""
    columns = [results.factors[name] for name in names]
    return Labels.of(
        " · ".join(column.labels[code] for column, code in zip(columns, codes, strict=True) if code >= 0)
        for codes in zip(*(column.codes.tolist() for column in columns), strict=True)
    )


def _rows_that_differ(results: Results, by: Labels, tasks: Labels) -> list[int]:
    """The codes of the tasks: the most different columns first, then the lowest success rate."""
    success = results.with_errors_failed
    known = ~np.isnan(success) & (by.codes >= 0) & (tasks.codes >= 0)
    size, width = int(tasks.codes.max(initial=-1)) + 1, len(by.labels)
    cells = tasks.codes[known] * width + by.codes[known]
    counts = np.bincount(cells, minlength=size * width).reshape(size, width)
    passed = np.bincount(cells, weights=success[known], minlength=size * width).reshape(size, width)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = passed / counts
        spread = np.nanmax(np.where(counts > 0, rates, -np.inf), axis=1) - np.nanmin(
            np.where(counts > 0, rates, np.inf), axis=1
        )
        mean = passed.sum(axis=1) / counts.sum(axis=1)
    has_items = counts.sum(axis=1) > 0
    order = np.lexsort((np.arange(size), np.where(has_items, mean, 2.0), -np.where(has_items, spread, -1.0)))
    return [int(code) for code in order if has_items[code]]


def _matrix_cell(
    results: Results, rows: Sequence[int], by: Labels, column: int, changed: Changes
) -> MatrixCell | None:
    if not rows:
        return None
    statuses = [FINISHED[results.status[row]] for row in rows]
    worst = next(status for status in _WORST_FIRST if status in statuses)
    passed = sum(status == SUCCESS for status in statuses)
    size = changed.get(results.item_ids[rows[0]], "") if len(rows) == 1 else ""
    text = size if len(rows) == 1 else f"{passed}/{len(rows)}"
    reasons = dict.fromkeys(
        results.reasons.labels[code] for row in rows if (code := int(results.reasons.codes[row])) >= 0
    )
    worst_first = sorted(rows, key=lambda row: _WORST_FIRST.index(FINISHED[results.status[row]]))
    return MatrixCell(
        status=worst,
        text=text,
        note=f"{by.labels[column]}: {', '.join(reasons)}",
        item_ids=[results.item_ids[row] for row in worst_first],
    )


# What is decided.

PLAN_ORDER = (
    "The plan has no `stop_when`, so tasks run in its order: this assumes that the next tasks are like those "
    "so far."
)

ROUGH = (
    "The number is a rough projection: in simulations it sufficed in half to three quarters of the runs, and "
    "in a fifth where only 20 tasks had finished and success rates differed by 10 pp or less."
)


def decision_sentence(standing: Standing, *, is_running: bool, is_random: bool) -> Sentence:
    """Who leads, and whether that is clear, by an interval that is valid at any time.

    `is_random`: the tasks are in random order, as with `stop_when`.
    """
    estimate, count = standing.estimate, plural(standing.tasks, standing.unit)
    rate = f"{percent(estimate.value)} of {count}"
    # Of fewer tasks, the table below has the interval of the rate, which may be wider.
    has_limits = estimate.low is not None and standing.tasks >= FEWEST_TASKS
    limits = f", 95% CI {interval(estimate.low, estimate.high)}" if has_limits else ""
    note = "" if is_random or not is_running else PLAN_ORDER
    valid = "The interval is valid at any time, however often one looks." if has_limits else ""
    if not standing.rivals:
        start = "The winner is already clear" if is_running else "The winner is clear"
        return Sentence(
            text=f"{start}: {standing.leader} ({rate}{limits}).",
            note=" ".join(part for part in (valid, note) if part),
            tone="good",
            offers_stop=is_running,
        )
    rivals = standing.rivals[0] if len(standing.rivals) == 1 else f"{len(standing.rivals)} others"
    text = f"{standing.leader} leads ({rate}{limits}), but is not separated from {rivals}."
    projected = ROUGH if standing.needs is not None else ""
    return Sentence(
        text=f"{text} {_needed(standing)}",
        note=" ".join(part for part in (valid, projected, note) if part),
        tone="open",
        offers_stop=is_running,
    )


def _needed(standing: Standing) -> str:
    if standing.needs is None:
        return f"It cannot be estimated yet how many more {standing.unit}s would decide it."
    about = f"About {_rounded(standing.needs):,} more {standing.unit}s would decide it"
    condition = "if the true difference is about as observed"
    if not standing.left:
        return f"{about}, {condition}."
    if standing.needs > standing.left:
        return f"{about}, {condition}: more than the {standing.left:,} that are left."
    return f"{about}, {condition}; {standing.left:,} are left."


def _rounded(number: int) -> int:
    """With two digits that matter: it is a projection."""
    size: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // size) * size
