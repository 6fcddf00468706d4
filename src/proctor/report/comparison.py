"""A comparison as text, JSON, JUnit or a page: differences with intervals, verdicts, disagreements.

Also the trend of a plan's runs as a chart and in words.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from xml.etree import ElementTree

from proctor.document import (
    Cell,
    Chart,
    Column,
    Details,
    Document,
    Figure,
    FigureList,
    Sentence,
    Table,
    Tone,
    numeric,
    prose,
    table,
)
from proctor.formatting import UNKNOWN, chance, plural, relative_change
from proctor.json_values import camel_document
from proctor.metric import METRICS, find_metric
from proctor.report.charts import Bar, Point, forest, trend
from proctor.stats.comparison import Comparison, Contrast, Disagreement
from proctor.stats.differences import FAIL, INCONCLUSIVE, Difference
from proctor.stats.figures import TrendPoint


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as the documented JSON."""
    return {
        "baseline": comparison.groups[0],
        "groups": list(comparison.groups),
        "pairedBy": comparison.pair,
        "differsIn": list(comparison.varied),
        "mocks": list(comparison.stand_ins),
        "metrics": list(comparison.metrics),
        "familySize": comparison.family_size,
        "unfinished": dict(comparison.unfinished),
        "verdict": comparison.verdict if comparison.verdicts else None,
        "gates": camel_document(comparison.verdicts),
        "contrasts": [_contrast_document(each) for each in comparison.contrasts],
    }


def _contrast_document(contrast: Contrast) -> dict[str, object]:
    return {
        "metric": contrast.metric,
        "baseline": contrast.baseline,
        "candidate": contrast.candidate,
        "baselineMean": asdict(contrast.baseline_mean),
        "candidateMean": asdict(contrast.candidate_mean),
        "difference": contrast.difference and difference_document(contrast.difference),
        "pCorrected": contrast.p_corrected,
        "isTested": contrast.is_member,
        "pairs": contrast.pairs,
        "unpaired": contrast.unpaired,
        "pairsNeeded": contrast.difference.needs if contrast.difference else None,
        "errors": list(contrast.errors),
        "valueIfErrorsFail": contrast.if_errors_failed,
        "withErrors": contrast.with_errors and difference_document(contrast.with_errors),
        "dependsOnErrors": contrast.errors_decide,
        "disagreements": [_disagreement_document(one) for one in contrast.disagreements],
        "notes": list(contrast.remarks),
        "isSignificant": contrast.is_significant,
    }


def _disagreement_document(disagreement: Disagreement) -> dict[str, object]:
    return {
        "task": disagreement.words,
        "baseline": disagreement.baseline,
        "candidate": disagreement.candidate,
        "baselineItems": [item_id for _, item_id in disagreement.baseline_items],
        "candidateItems": [item_id for _, item_id in disagreement.candidate_items],
    }


def difference_document(difference: Difference) -> dict[str, object]:
    """A difference as JSON; that of a ratio is its distance from 1, so that 0 always is no difference."""
    return {
        "value": _shift(difference, difference.value),
        "low": _shift(difference, difference.low),
        "high": _shift(difference, difference.high),
        "isRatio": difference.is_ratio,
        "p": difference.p,
        "level": difference.level,
        "family": difference.family,
        "effectSize": difference.effect_size,
        "smallestDetectable": _shift(difference, difference.detectable),
        "runsNeeded": difference.needs,
        "n": list(difference.tasks),
        "runs": difference.runs,
        "isPaired": difference.is_paired,
        "test": difference.method,
        "note": f"{difference.note} {difference.needs_words}".strip(),
    }


def _shift(difference: Difference, value: float | None) -> float | None:
    return None if value is None else value - difference.null


def comparison_junit(comparison: Comparison) -> str:
    """The gates as JUnit XML: one test case for each gate and candidate."""
    verdicts = comparison.verdicts
    suite = ElementTree.Element(
        "testsuite",
        name="proctor compare",
        tests=str(len(verdicts)),
        failures=str(sum(each.verdict == FAIL for each in verdicts)),
        errors=str(sum(each.verdict == INCONCLUSIVE for each in verdicts)),
    )
    for verdict in verdicts:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml_text(verdict.candidate), name=_xml_text(verdict.gate)
        )
        if verdict.verdict == FAIL:
            ElementTree.SubElement(case, "failure", message=_xml_text(verdict.text), type="regression")
        elif verdict.verdict == INCONCLUSIVE:
            ElementTree.SubElement(case, "error", message=_xml_text(verdict.text), type="inconclusive")
        else:
            ElementTree.SubElement(case, "system-out").text = _xml_text(verdict.text)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml_text(value: str) -> str:
    """A text without the characters that XML cannot hold."""
    return "".join(each for each in value if each in "\t\n\r" or (each >= " " and each not in "\ufffe\uffff"))


def figure(value: float | None, metric: str) -> str:
    """A value of a metric as people read it."""
    return find_metric(metric).say(value)


TINY_USD = 0.0001
"""Costs below this are read as those of a thousand."""


def amounts(metric: str, *values: float | None) -> Callable[[float | None], str]:
    """How values that stand beside each other are read: tiny costs as those of 1,000, with three digits."""
    known = [value for value in values if value]
    if find_metric(metric).unit != "usd" or not known or min(map(abs, known)) >= TINY_USD:
        return find_metric(metric).say

    def say(value: float | None) -> str:
        places = max(2, 2 - math.floor(math.log10(1000 * value))) if value else 2
        return UNKNOWN if value is None else f"${1000 * value:,.{places}f} per 1,000"

    return say


def change(value: float | None, metric: str) -> str:
    """A difference as people read it, with its sign."""
    return find_metric(metric).say_change(value)


def shift(difference: Difference | None, value: float | None, metric: str) -> str:
    """A value or a limit of a difference with its sign; of a ratio, as a relative change."""
    if difference is None or value is None:
        return "–"
    return relative_change(value) if difference.is_ratio else change(value, metric)


def size(contrast: Contrast) -> str:
    """The difference as people read it."""
    difference = contrast.difference
    return shift(difference, difference.value if difference else None, contrast.metric)


def with_errors(contrast: Contrast) -> str:
    """The difference with every error as a failure; – without errors."""
    difference = contrast.with_errors
    return shift(difference, difference.value if difference else None, contrast.metric)


def around(contrast: Contrast) -> str:
    """The interval of a difference in words."""
    difference = contrast.difference
    if difference is None and None not in (contrast.baseline_mean.value, contrast.candidate_mean.value):
        # Enough data on both sides, but not comparable: a remark says why.
        return "not comparable"
    if difference is not None and difference.value is not None and is_uniform(difference):
        return "the same in every task"
    if difference is None or (difference.low is None and difference.high is None):
        return "not enough data"
    low = "no lower limit" if difference.low is None else shift(difference, difference.low, contrast.metric)
    high = (
        "no upper limit" if difference.high is None else shift(difference, difference.high, contrast.metric)
    )
    return f"{low} to {high}"


def numbers(contrast: Contrast) -> str:
    """How many tasks a row is about: those that pair, or those of each side; of a single task, its runs."""
    difference = contrast.difference
    if difference is None:
        return UNKNOWN
    return f"{contrast.pairs:,}" if contrast.pairs else f"{difference.tasks[0]:,} + {difference.tasks[1]:,}"


def finding(contrast: Contrast) -> str:
    """The result of a contrast in a word or two."""
    difference = contrast.difference
    if difference is None or difference.value is None:
        return "not enough data"
    if is_uniform(difference):
        return "equal" if difference.value == difference.null else "not tested"
    if difference.low is None and difference.high is None:
        return "not enough data"
    if not contrast.is_member:
        return "not tested"
    if contrast.errors_decide:
        return "depends on errors"
    if contrast.is_significant:
        return "higher" if difference.value > difference.null else "lower"
    return TOO_FEW if difference.needs and difference.needs <= MOST_FEW else "not significant"


def is_uniform(difference: Difference) -> bool:
    """Whether all of several tasks differ by the same amount, of which no interval can be computed."""
    has_spread = difference.spread != 0 and not difference.is_constant
    return difference.n > 1 and difference.low is None and difference.high is None and not has_spread


TOO_FEW = "too few tasks"
MOST_FEW = 6
"""Tasks below which there is no verdict at all."""


def _means(contrast: Contrast) -> list[Cell]:
    """The means of baseline and candidate, each with its standard error, where there is one."""
    means = contrast.baseline_mean, contrast.candidate_mean
    say = amounts(contrast.metric, *(mean.value for mean in means))
    return [
        Cell(text=say(mean.value), note="" if mean.sem is None else f"± {say(mean.sem)}") for mean in means
    ]


_METHODS = {
    "plus, paired": "plus interval of paired differences",
    "plus, Welch": "Welch's interval of plus means",
}


def method(difference: Difference) -> str:
    """The method behind an interval, in words."""
    return _METHODS.get(difference.method, difference.method)


METHOD = (
    "Differences are candidate − baseline, averaged over tasks; repeats of a task count once, as their mean. "
    "±: standard error of the mean over {unit}s. Means, difference, interval and p of a row are of the same "
    "tasks and generalize to {population}. Cost, time and tokens are compared as ratios. A gate "
    "passes only if the whole 95% CI lies within the margin, there are enough tasks, and counting errors as "
    "failures changes nothing."
)
ANYTIME = (
    "The run could stop early by its results (`stop_when`): intervals are confidence sequences, valid at any "
    "time, and there is no p."
)
GATE_TONES: Mapping[str, Tone] = {"pass": "good", FAIL: "bad", INCONCLUSIVE: "open"}


def comparison_document(comparison: Comparison) -> Document:
    """The comparison as a document: verdict, gates, differences, and what each metric says."""
    unit = "run" if comparison.is_one_task else "task"
    number = comparison.family_size
    family = [f"CIs and p-values are corrected for {number} comparisons (Bonferroni)"] if number > 1 else []
    population = "further runs of this task" if comparison.is_one_task else "tasks like these"
    varied = f"; varies: {', '.join(comparison.varied)}" if comparison.varied else ""
    names = ", ".join(comparison.stand_ins)
    mock = [f"mock results ({names}): draw no conclusions about real agents or models"] if names else []
    metrics = dict.fromkeys(each.metric for each in comparison.contrasts)
    return Document(
        title=f"{', '.join(comparison.groups[1:])} vs. {comparison.groups[0]}",
        subtitle=f"Baseline: {comparison.groups[0]}; paired by {comparison.pair}{varied}",
        warnings=mock,
        verdict=_verdict(comparison),
        sections=[
            *([_gates(comparison)] if comparison.verdicts else []),
            *([Sentence(text=ANYTIME)] if comparison.is_anytime else []),
            *_plot(comparison),
            _differences(comparison),
            *(_of_metric(comparison, metric) for metric in metrics),
            *_details_of_notes(comparison),
        ],
        remarks=[
            *family,
            *(
                f"{run} has {plural(left, 'item')} without a result: figures will change, and gates need a "
                "finished run"
                for run, left in comparison.unfinished.items()
            ),
            *_merged(comparison, _limits),
        ],
        method=METHOD.format(unit=unit, population=population),
    )


def _verdict(comparison: Comparison) -> Sentence | None:
    if comparison.verdicts:
        word = comparison.verdict
        return Sentence(text=f"Gates: {word}", tone=GATE_TONES[word])
    return Sentence(text=headline(comparison)) if comparison.contrasts else None


def _gates(comparison: Comparison) -> Table:
    rows = [
        (
            Cell(text=result.verdict.upper(), tone=GATE_TONES[result.verdict]),
            result.gate,
            result.candidate,
            result.text,
        )
        for result in comparison.verdicts
    ]
    return table(["Verdict", "Gate", "Candidate", prose("Reason")], rows, "Gates")


def _differences(comparison: Comparison) -> Table:
    unit = "Runs" if comparison.is_one_task else "Tasks"
    columns: list[Column | str] = [
        "Metric",
        "Result",
        "Candidate",
        Column(title="Baseline mean", is_numeric=True, narrow="Baseline"),
        Column(title="Candidate mean", is_numeric=True, narrow="Mean"),
        *numeric("Diff"),
        *([Column(title="Errors as failures", is_numeric=True, narrow="")] if comparison.has_errors else []),
        *numeric("95% CI"),
        Column(title="p", is_numeric=True, narrow=""),
        Column(title=unit, is_numeric=True, narrow=""),
    ]
    order = sorted(comparison.contrasts, key=_informs, reverse=True)
    rows = [
        (
            contrast.metric,
            finding(contrast),
            contrast.candidate,
            *_means(contrast),
            size(contrast),
            *([with_errors(contrast)] if comparison.has_errors else []),
            around(contrast),
            chance(contrast.p_corrected),
            numbers(contrast),
        )
        for contrast in order
    ]
    shown = min(sum(map(_informs, order)) or len(rows), MOST_IN_TERMINAL)
    return replace(table(columns, rows, "Differences"), most_in_terminal=shown)


def _informs(contrast: Contrast) -> bool:
    """Whether a contrast says what no other one says: it is tested, or of one of our own metrics."""
    return contrast.is_member or (contrast.metric in METRICS and finding(contrast) != "equal")


MOST_IN_TERMINAL = 15
"""Differences that a terminal shows without its details."""


def _plot(comparison: Comparison) -> list[Chart]:
    """The differences of the first metric as a forest plot."""
    if not comparison.contrasts:
        return []
    metric = comparison.contrasts[0].metric
    return [_forest(comparison, metric)] if _has_values(comparison, metric) else []


def _forest(comparison: Comparison, metric: str) -> Chart:
    baseline = comparison.groups[0]
    title = f"Difference in {find_metric(metric).word} from {baseline}, with 95% CI"
    return Chart(title=title, svg=plot_of(comparison.contrasts, metric, baseline))


def _has_values(comparison: Comparison, metric: str) -> bool:
    return any(each.difference for each in comparison.contrasts if each.metric == metric)


def _disagreements(contrast: Contrast) -> Table:
    metric = find_metric(contrast.metric)
    rows = [
        (
            task.words,
            *map(amounts(contrast.metric, task.baseline, task.candidate), (task.baseline, task.candidate)),
            metric.say_change(task.difference),
        )
        for task in contrast.disagreements
    ]
    columns = [prose("Largest differences"), *numeric(contrast.baseline, contrast.candidate, "Difference")]
    listed = table(columns, rows, f"Disagreements on {contrast.metric}: {contrast.candidate}")
    return replace(listed, most_in_terminal=MOST_DISAGREEMENTS)


MOST_DISAGREEMENTS = 10
"""Disagreements that a terminal shows; files have more."""


def _of_metric(comparison: Comparison, metric: str) -> Details:
    """The plot of a metric, and each of its contrasts in words."""
    contrasts = [each for each in comparison.contrasts if each.metric == metric]
    is_first = metric == comparison.contrasts[0].metric
    return Details(
        title=metric,
        is_folded=True,
        sections=[
            *([_forest(comparison, metric)] if not is_first and _has_values(comparison, metric) else []),
            *(Sentence(text=f"{each.candidate}: {_in_words(each)}") for each in contrasts),
            *(_disagreements(each) for each in contrasts if each.disagreements),
        ],
    )


def _details_of_notes(comparison: Comparison) -> list[Details]:
    notes = _merged(comparison, _remarks)
    return (
        [Details(title="Notes", is_folded=True, sections=[Sentence(text=note) for note in notes])]
        if notes
        else []
    )


def _merged(comparison: Comparison, notes_of: Callable[[Contrast], list[str]]) -> list[str]:
    """Notes on contrasts, each once with the candidates that it is about."""
    candidates = dict[tuple[str, str], list[str]]()
    for contrast in comparison.contrasts:
        for note in notes_of(contrast):
            candidates.setdefault((contrast.metric, note), []).append(contrast.candidate)
    return [f"{metric}, {', '.join(names)}: {note}" for (metric, note), names in candidates.items()]


def _in_words(contrast: Contrast) -> str:
    """How a difference was measured, and what it takes to show more."""
    difference = contrast.difference
    if difference is None:
        return "not enough data."
    pairs = (
        plural(contrast.pairs, "paired task")
        if contrast.pairs
        else f"not paired, {numbers(contrast)} {difference.unit}s"
    )
    parts = [part for part in (pairs, method(difference)) if part]
    parts += (
        [f"effect size {difference.effect_size:.2f}".replace("-", "−")]
        if difference.effect_size is not None
        else []
    )
    if difference.detectable is not None:
        detectable = shift(difference, difference.detectable, contrast.metric)
        parts.append(f"minimum detectable effect {detectable} at 80% power")
    return f"{'; '.join(parts)}."


def _limits(contrast: Contrast) -> list[str]:
    """What keeps readers from taking a difference as it stands."""
    if not contrast.is_member:
        # Copies and constants are in the details.
        return [remark for remark in contrast.remarks if "missing in" in remark]
    notes = []
    if any(contrast.errors):
        counted = (
            f"; counted as failures, the difference would be {with_errors(contrast)}"
            if contrast.with_errors
            else ""
        )
        notes.append(f"{contrast.errors[0]} and {contrast.errors[1]} items with errors excluded{counted}")
    notes += [f"{plural(contrast.unpaired, 'unpaired task')} excluded"] if contrast.unpaired else []
    notes += contrast.remarks
    if contrast.difference and finding(contrast) == TOO_FEW:
        notes.append(contrast.difference.needs_words)
    return notes


def _remarks(contrast: Contrast) -> list[str]:
    """What else there is to say of a difference."""
    notes = list(contrast.remarks)
    if difference := contrast.difference:
        needs = "" if contrast.is_significant else difference.needs_words
        notes += [note for note in (difference.note, needs) if note]
    shown = _limits(contrast)
    return [note for note in notes if note not in shown]


def plot_of(contrasts: Sequence[Contrast], metric: str, baseline: str, *, is_marked: bool = False) -> str:
    """The differences of one metric from the baseline as an SVG plot; with marks by the number of a stem."""
    selected = [each for each in contrasts if each.metric == metric]
    stems = [
        Bar(
            label=contrast.candidate,
            value=_of(contrast, "value"),
            low=_of(contrast, "low"),
            high=_of(contrast, "high"),
            note=size(contrast),
            mark=number if is_marked else None,
        )
        for number, contrast in enumerate(selected)
    ]
    is_ratio = any(each.difference and each.difference.is_ratio for each in selected)
    # Nothing costs less than nothing, and a wide interval does not make the other differences invisible.
    largest = max((abs(stem.value) for stem in stems if stem.value is not None), default=0.0)
    return forest(
        f"{metric}: {'relative change' if is_ratio else 'difference'} from {baseline}, with 95% CI",
        stems,
        say=lambda value: f"{value:+,.0%}".replace("-", "−") if is_ratio else change(value, metric),
        limits=(-1.0, max(1.0, 3 * largest)) if is_ratio else None,
    )


def _of(contrast: Contrast, name: str) -> float | None:
    difference = contrast.difference
    if difference is None:
        return None
    return _shift(difference, getattr(difference, name))


def is_better(contrast: Contrast, high_is_bad: Sequence[str] = ()) -> bool | None:
    """Whether a significant difference favors the candidate; None if there is none or no direction."""
    difference = contrast.difference
    metric = find_metric(contrast.metric)
    if (
        not contrast.is_significant
        or difference is None
        or difference.value is None
        or metric.better == "neither"
    ):
        return None
    is_less_better = metric.better == "lower" or any(
        contrast.metric.partition("/")[0] == f"score:{name}" for name in high_is_bad
    )
    return (difference.value > difference.null) != is_less_better


def headline(comparison: Comparison) -> str:
    """What a comparison shows in its first metric, in one sentence."""
    first = [each for each in comparison.contrasts if each.metric == comparison.contrasts[0].metric]
    baseline = comparison.groups[0]
    if len(first) == 1:
        return f"{_plain_difference(first[0])}."
    subject = f"from {baseline} in {find_metric(first[0].metric).word}"
    clear = [each for each in first if each.is_significant]
    if not clear:
        return f"None of the {len(first)} candidates differs significantly {subject}."
    listed = ", ".join(f"{each.candidate} ({size(each)})" for each in clear[:LISTED_CANDIDATES])
    more = f" and {len(clear) - LISTED_CANDIDATES} more" if len(clear) > LISTED_CANDIDATES else ""
    return f"{len(clear)} of {len(first)} candidates differ significantly {subject}: {listed}{more}."


LISTED_CANDIDATES = 4


def _plain_difference(contrast: Contrast) -> str:
    difference, names = contrast.difference, f"{contrast.candidate} and {contrast.baseline}"
    metric = find_metric(contrast.metric)
    if difference is None or difference.value is None or (difference.low is None and difference.high is None):
        return f"There is not enough data to compare {metric.word} of {names}"
    statistics = f"{size(contrast)} (95% CI {around(contrast)}{_tasks(contrast)})"
    if contrast.errors_decide:
        return f"Infrastructure errors decide whether {names} differ in {metric.word}: {statistics}"
    if finding(contrast) == TOO_FEW:
        return f"No verdict: too few tasks to compare {metric.word} of {names}: {statistics}"
    if not contrast.is_significant:
        return f"{names} do not differ significantly in {metric.word}: {statistics}"
    more, less = metric.more or f"is higher in {metric.word}", metric.less or f"is lower in {metric.word}"
    verb = more if difference.value > difference.null else less
    return f"{contrast.candidate} {verb} than {contrast.baseline}: {statistics}"


def sentence(contrast: Contrast) -> str:
    """Summarize a contrast; if not significant, with the minimum detectable effect and required tasks."""
    difference = contrast.difference
    if difference is None or difference.value is None:
        reason = (
            "; ".join(contrast.remarks)
            or (difference.note.rstrip(".") if difference else "")
            or "too few values"
        )
        return f"Not enough data: {reason}."
    estimate = size(contrast)
    if difference.low is None and difference.high is None:
        return f"{estimate}; no confidence interval: {difference.note or 'too few tasks.'}"
    statistics = f"{estimate} (95% CI {around(contrast)}, p {_p(contrast)}{_tasks(contrast)})"
    if not contrast.is_member:
        return f"Descriptive, no verdict: {estimate} (95% CI {around(contrast)}{_tasks(contrast)})."
    if contrast.errors_decide:
        return (
            f"Inconclusive: infrastructure errors decide it. Errors excluded {estimate}, "
            f"errors as failures {with_errors(contrast)}{_tasks(contrast)}."
        )
    if contrast.is_significant:
        metric = find_metric(contrast.metric)
        verb = metric.more or "is higher" if difference.value > difference.null else metric.less or "is lower"
        return f"Significant: {contrast.candidate} {verb}, {statistics}."
    return f"No significant difference: {statistics}.{_power(contrast, difference)}"


def _p(contrast: Contrast) -> str:
    value = chance(contrast.p_corrected)
    return value if value.startswith("<") else f"= {value}"


def _tasks(contrast: Contrast) -> str:
    difference = contrast.difference
    if difference is None:
        return ""
    return (
        f", {contrast.pairs:,} paired tasks"
        if contrast.pairs
        else f", {numbers(contrast)} {difference.unit}s"
    )


def _power(contrast: Contrast, difference: Difference) -> str:
    """The minimum detectable effect, and the number of tasks that would detect the observed difference."""
    parts = []
    if difference.detectable:
        effect = shift(difference, difference.detectable, contrast.metric).lstrip("+")
        parts.append(f" Minimum detectable effect: {effect} at 80% power.")
    if difference.needs_words:
        parts.append(f" {difference.needs_words}")
    return "".join(parts)


def is_regression(contrast: Contrast) -> bool | None:
    """Whether a significant change is for the worse; None: it has no direction."""
    better = is_better(contrast)
    return None if better is None else not better


def change_text(contrast: Contrast) -> str:
    """A change from one run to the next: its size, its interval and how many tasks."""
    tasks = f", {plural(contrast.pairs, 'paired task')}" if contrast.pairs else ""
    return f"{size(contrast)} (95% CI {around(contrast)}{tasks})"


def trend_plot(
    name: str, points: Sequence[TrendPoint], metric: str, at: Mapping[str, str]
) -> tuple[str, list[Figure]]:
    """The chart of a trend, and the figures of its marks; `at` are the times of the runs.

    The first run of a day has its date below it, the others their time.
    """
    marks = FigureList()
    drawn, names, changes = list[Point](), list[str](), list[int]()
    last = "", ""
    for point in points:
        if point.estimate.value is None:
            continue
        mark = Figure(
            label=point.run_id,
            text=figure(point.estimate.value, metric),
            value=point.estimate.value,
            low=point.estimate.low,
            high=point.estimate.high,
            n=point.estimate.n,
            note=_against(point.change),
        )
        drawn.append(
            Point(
                label=f"{point.run_id}: {mark.text}",
                x=float(len(drawn)),
                y=point.estimate.value,
                low=point.estimate.low,
                high=point.estimate.high,
                mark=marks.add(mark),
            )
        )
        day, time = at[point.run_id][5:10], at[point.run_id][11:16]
        # Runs of one minute are told apart by their seconds.
        is_again = last == (day, time)
        names.append(at[point.run_id][11:19] if is_again else time if day == last[0] else day)
        last = day, time
        changes.append(_sign(point.change))
    title = f"{name}: {metric} of each run, with 95% CI"
    # Values of a score may be shares; those of money and time never are.
    is_share = find_metric(metric).unit == "share" if metric in METRICS else None
    say = partial(figure, metric=metric)
    return trend(title, drawn, names, changes, say_y=say, is_share=is_share), marks.figures


def _against(contrast: Contrast | None) -> str:
    if contrast is None or contrast.difference is None:
        return ""
    verdict = "" if contrast.is_significant else ", not significant"
    return f"{size(contrast)} against {contrast.baseline}{verdict}"


def _sign(contrast: Contrast | None) -> int:
    """1 for a significant change for the better, -1 for the worse, 0 otherwise."""
    if contrast is None or not contrast.is_significant:
        return 0
    better = is_better(contrast)
    return 0 if better is None else 1 if better else -1


def trend_summary(points: Sequence[TrendPoint], metric: str) -> str:
    """The last value and the latest significant change, in a sentence."""
    last = points[-1]
    text = f"{figure(last.estimate.value, metric)} in the last of {plural(len(points), 'run')}"
    signs = [(each, _sign(each.change)) for each in points]
    latest = next((each for each, sign in reversed(signs) if sign), None)
    if latest is None or latest.change is None:
        return f"{text}; no significant change from run to run."
    what = "regression" if _sign(latest.change) < 0 else "improvement"
    return f"{text}; latest {what}: {latest.run_id}, {change_text(latest.change)}."
