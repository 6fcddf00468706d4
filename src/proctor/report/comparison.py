"""A comparison as a page: differences with their intervals, results of gates, and disagreements."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from proctor.formatting import percent, seconds, short, usd
from proctor.report.charts import Stem, forest
from proctor.report.render import page, text
from proctor.stats.comparison import Comparison, Contrast


def comparison_html(comparison: Comparison) -> str:
    """The page as one HTML file that needs nothing else."""
    plots = {
        metric: Markup(_plot(comparison, metric))
        for metric in dict.fromkeys(each.metric for each in comparison.contrasts)
    }
    return page("comparison.html.j2", c=comparison, plots=plots, **_WORDS)


def comparison_markdown(comparison: Comparison) -> str:
    """The page as Markdown."""
    return text("comparison.md.j2", c=comparison, **_WORDS)


def figure(value: float | None, metric: str) -> str:
    """A value of a metric as people read it."""
    if value is None:
        return "–"
    if metric == "success":
        return percent(value)
    if metric == "cost":
        return usd(value)
    if metric == "time":
        return seconds(value)
    return short(value) if metric == "tokens" else f"{value:.4g}"


def change(value: float | None, metric: str) -> str:
    """A difference as people read it, with its sign."""
    if value is None:
        return "–"
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    if metric == "success":
        return f"{sign}{abs(value) * 100:.1f} pp"
    return f"{sign}{figure(abs(value), metric)}"


def around(contrast: Contrast) -> str:
    """The interval of a difference in words."""
    difference = contrast.difference
    if difference is None and None not in (contrast.baseline_mean.value, contrast.candidate_mean.value):
        # Enough data on both sides, but not comparable: a remark says why.
        return "not comparable"
    if difference is None or difference.low is None or difference.high is None:
        return "not enough data"
    return f"{change(difference.low, contrast.metric)} to {change(difference.high, contrast.metric)}"


def chance(p: float | None) -> str:
    """A p-value with the digits that matter."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def finding(contrast: Contrast) -> str:
    """The result of a contrast in a word or two."""
    if contrast.difference is None:
        return "not enough data"
    if contrast.is_significant:
        return "higher" if contrast.difference.value > 0 else "lower"
    return "not significant"


_WORDS: Mapping[str, object] = {
    "figure": figure,
    "change": change,
    "around": around,
    "chance": chance,
    "finding": finding,
}


def _plot(comparison: Comparison, metric: str) -> str:
    mine = [each for each in comparison.contrasts if each.metric == metric]
    stems = [
        Stem(
            label=each.candidate,
            value=each.difference.value if each.difference else None,
            low=each.difference.low if each.difference else None,
            high=each.difference.high if each.difference else None,
            note=change(each.difference.value, metric) if each.difference else "–",
        )
        for each in mine
    ]
    return forest(
        f"{metric}: difference from {comparison.groups[0]}, with 95% CI",
        stems,
        say=lambda value: change(value, metric),
    )


# One-sentence summaries of contrasts: verdict, estimate, confidence interval, p-value, and number of tasks.


LOWER_IS_BETTER = ("cost", "time", "tokens")
_VERBS = {
    "success": ("succeeds more often", "succeeds less often"),
    "cost": ("costs more", "costs less"),
    "time": ("takes longer", "takes less time"),
    "tokens": ("uses more tokens", "uses fewer tokens"),
}


def is_better(contrast: Contrast, high_is_bad: Sequence[str] = ()) -> bool | None:
    """Whether a significant difference favors the candidate; None if there is none or no direction."""
    if not contrast.is_significant or contrast.difference is None or contrast.metric.startswith("metric:"):
        return None
    is_less_better = contrast.metric in LOWER_IS_BETTER or any(
        contrast.metric.partition("/")[0] == f"score:{name}" for name in high_is_bad
    )
    return (contrast.difference.value > 0) != is_less_better


def sentence(contrast: Contrast) -> str:
    """Summarize a contrast; if not significant, with the minimum detectable effect and required tasks."""
    difference, metric = contrast.difference, contrast.metric
    if difference is None:
        return f"Not enough data: {'; '.join(contrast.remarks) or 'too few values'}."
    estimate = change(difference.value, metric)
    if difference.low is None or difference.high is None:
        return f"{estimate}; too few tasks for a confidence interval."
    statistics = f"{estimate} (95% CI {around(contrast)}, p {_p(contrast)}{_tasks(contrast)})"
    if contrast.is_significant:
        more, less = _VERBS.get(metric, ("is higher", "is lower"))
        return f"Significant: {contrast.candidate} {more if difference.value > 0 else less}, {statistics}."
    if difference.low == difference.high == 0:
        return f"No difference{_tasks(contrast)}."
    if difference.low == difference.high:
        return f"{estimate} in each of {contrast.pairs:,} paired tasks: no variance, so no test is possible."
    if difference.low > 0 or difference.high < 0:
        return f"Not significant after Holm correction: {statistics}.{_power(contrast)}"
    return f"No significant difference: {statistics}.{_power(contrast)}"


def _p(contrast: Contrast) -> str:
    value = chance(contrast.p_corrected)
    return value if value.startswith("<") else f"= {value}"


def _tasks(contrast: Contrast) -> str:
    return f", {contrast.pairs:,} paired tasks" if contrast.pairs else ""


def _power(contrast: Contrast) -> str:
    """The minimum detectable effect, and the sample size that would detect the observed difference."""
    difference = contrast.difference
    assert difference is not None
    parts = []
    if difference.smallest_detectable:
        effect = change(difference.smallest_detectable, contrast.metric).lstrip("+")
        parts.append(f" Minimum detectable effect: {effect} at 80% power.")
    observed = change(difference.value, contrast.metric)
    if contrast.pairs_needed and contrast.pairs_needed > contrast.pairs:
        parts.append(f" Detecting {observed} needs about {contrast.pairs_needed:,} paired tasks.")
    elif not contrast.pairs and (needed := difference.runs_needed) and needed > min(difference.n):
        parts.append(f" Detecting {observed} needs about {needed:,} values per group.")
    return "".join(parts)
