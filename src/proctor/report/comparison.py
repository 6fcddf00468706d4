"""A comparison as a page: differences with their intervals, what the gates say, where groups disagree.

Knows nothing of stores; computes nothing.
"""

from collections.abc import Mapping

from markupsafe import Markup

from proctor.analyse.comparing import Comparison, Contrast
from proctor.report.forest import Stem, forest
from proctor.report.render import page, text
from proctor.report.words import percent, seconds, short, usd


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
        return f"{sign}{abs(value) * 100:.1f} points"
    return f"{sign}{figure(abs(value), metric)}"


def around(contrast: Contrast) -> str:
    """The interval of a difference in words."""
    found = contrast.difference
    if found is None and None not in (contrast.baseline_mean.value, contrast.candidate_mean.value):
        # There is enough on both sides, and it would mean nothing together: a remark says why.
        return "not comparable"
    if found is None or found.low is None or found.high is None:
        return "too few to say"
    return f"{change(found.low, contrast.metric)} to {change(found.high, contrast.metric)}"


def chance(p: float | None) -> str:
    """A p-value with the digits that matter."""
    return "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def finding(contrast: Contrast) -> str:
    """What a contrast says, in a word or two."""
    if contrast.difference is None:
        return "cannot be said"
    if contrast.is_significant:
        return "higher" if contrast.difference.value > 0 else "lower"
    return "none shown"


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
        f"{metric}: difference from {comparison.groups[0]}, with 95 % intervals",
        stems,
        say=lambda value: change(value, metric),
    )
