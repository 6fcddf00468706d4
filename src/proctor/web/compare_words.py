"""One-sentence summaries of contrasts: verdict, estimate, confidence interval, p-value, and number of tasks.

Knows nothing of statistics or pages.
"""

from collections.abc import Sequence

from proctor.analyse.comparing import Contrast
from proctor.report.comparison import around, chance, change

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
