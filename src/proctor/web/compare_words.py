"""What a comparison says, in sentences: plain where something was found, and plain where nothing was.

Knows nothing of statistics or pages.
"""

from collections.abc import Sequence

from proctor.analyse.comparing import Contrast
from proctor.report.comparison import around, chance, change

LOWER_IS_BETTER = ("cost", "time", "tokens")
_MORE = {
    "success": ("succeeds more often", "succeeds less often"),
    "cost": ("costs more", "costs less"),
    "time": ("takes longer", "takes less time"),
    "tokens": ("uses more tokens", "uses fewer tokens"),
}


def is_better(contrast: Contrast, high_is_bad: Sequence[str] = ()) -> bool | None:
    """Whether what was found speaks for the candidate; None where nothing was, or nobody can say."""
    if not contrast.is_significant or contrast.difference is None or contrast.metric.startswith("metric:"):
        return None
    is_less_better = contrast.metric in LOWER_IS_BETTER or any(
        contrast.metric.partition("/")[0] == f"score:{name}" for name in high_is_bad
    )
    return (contrast.difference.value > 0) != is_less_better


def sentence(contrast: Contrast) -> str:
    """What a contrast comes to; where it is inconclusive, what it leaves open and what would settle it."""
    difference, metric = contrast.difference, contrast.metric
    if difference is None:
        return f"Nothing can be said: {'; '.join(contrast.remarks) or 'there are too few values'}."
    if difference.low is None or difference.high is None:
        return f"{change(difference.value, metric)}, from too few tasks to say what that is worth."
    if contrast.is_significant:
        more, less = _MORE.get(metric, ("is higher", "is lower"))
        verb = more if difference.value > 0 else less
        beyond = f"{change(difference.value, metric)}, likely {around(contrast)}"
        return f"{contrast.candidate} {verb}: {beyond} (p {_p(contrast)}{_of(contrast)})."
    if difference.low == difference.high == 0:
        return f"No difference at all{_of(contrast)}."
    if difference.low == difference.high:
        told = f"{change(difference.value, metric)} in every one of {contrast.pairs:,} shared tasks"
        return f"{told}: without any spread there is nothing to test it by."
    if difference.low > 0 or difference.high < 0:
        alone = f"{change(difference.value, metric)} ({around(contrast)}) would stand alone"
        together = f"among all these comparisons it may be chance (p {_p(contrast)}{_of(contrast)})"
        return f"Not sure: {alone}, but {together}.{_would_settle(contrast)}"
    left_open = f"it may be anything from {around(contrast)} (p {_p(contrast)}{_of(contrast)})"
    return f"No difference is shown: {left_open}.{_would_settle(contrast)}"


def _p(contrast: Contrast) -> str:
    said = chance(contrast.p_corrected)
    return said if said.startswith("<") else f"= {said}"


def _of(contrast: Contrast) -> str:
    return f", {contrast.pairs:,} shared tasks" if contrast.pairs else ""


def _would_settle(contrast: Contrast) -> str:
    difference = contrast.difference
    assert difference is not None
    parts = []
    if difference.smallest_detectable:
        least = change(difference.smallest_detectable, contrast.metric).lstrip("+")
        parts.append(f" A difference of {least} would have been found in four of five cases.")
    if contrast.pairs_needed and contrast.pairs_needed > contrast.pairs:
        parts.append(f" One of this size needs about {contrast.pairs_needed:,} shared tasks.")
    elif not contrast.pairs and (needed := difference.runs_needed) and needed > min(difference.n):
        parts.append(f" One of this size needs about {needed:,} of each.")
    return "".join(parts)
