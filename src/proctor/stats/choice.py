"""The choice of a level of a factor: success decides, by the gates of a comparison.

The interval of each difference from the baseline, corrected for all of them, must lie within the margin.
Every sentence about the winner of a finished run is made from this.
"""

from proctor.choice import BASELINE, MARGIN, PASS, Choice, Option
from proctor.errors import NotFound
from proctor.stats.comparison import Contrast, Gate, GateResult, compare_groups, groups_by
from proctor.stats.differences import gate
from proctor.stats.figures import Figures, factor_figures
from proctor.stats.results import Results


def choose(results: Results, by: str, *, margin: float = MARGIN, baseline: str = "") -> Choice | None:
    """The level of a factor to use; None where fewer than two have a success rate."""
    factor = factor_figures(results, by)
    levels = [level for level in factor.levels if level.name and level.success.value is not None]
    if baseline and baseline not in [level.name for level in levels]:
        known = ", ".join(level.name for level in levels)
        raise NotFound(f"no item has {baseline} as its {by}\nAvailable: {known}.")
    if len(levels) < 2:
        return None
    best = min(levels, key=lambda level: (-_rate(level), _cost(level)))
    base = next((level for level in levels if level.name == baseline), best)
    condition = Gate(text="success", metric="success", sign=">=", threshold=-margin)
    comparison = compare_groups(groups_by(results, by, against=base.name), gates=[condition])
    contrasts = {contrast.candidate: contrast for contrast in comparison.contrasts}
    verdicts = {verdict.candidate: verdict for verdict in comparison.verdicts}
    options = [
        Option(name=level.name, success=level.success.value, cost_usd=level.cost_usd.value, verdict=BASELINE)
        if level is base
        else _option(level, base, contrasts[level.name], verdicts[level.name], margin)
        for level in levels
    ]
    good = {option.name for option in options if option.verdict in (BASELINE, PASS)}
    within = [level for level in levels if level.name in good]
    chosen = min(within, key=lambda level: (_cost(level), level is not base, -_rate(level)))
    differences = [contrast.difference for contrast in contrasts.values() if contrast.difference]
    return Choice(
        factor=by,
        baseline=base.name,
        is_best=_rate(base) == _rate(best),
        margin=margin,
        chosen=chosen.name,
        tasks=max((difference.n for difference in differences), default=0),
        unit="run" if any(difference.unit == "run" for difference in differences) else "task",
        options=options,
        unfinished=sum(comparison.unfinished.values()),
    )


def _option(
    level: Figures, baseline: Figures, contrast: Contrast, verdict: GateResult, margin: float
) -> Option:
    change, with_errors = contrast.difference, contrast.with_errors
    both = {gate(each, margin).verdict for each in (change, with_errors) if each}
    costs = [_per_task(one) for one in (level, baseline)]
    more = verdict.more_pairs
    return Option(
        name=level.name,
        success=level.success.value,
        cost_usd=level.cost_usd.value,
        difference=change.value if change else None,
        low=change.low if change else None,
        high=change.high if change else None,
        verdict=verdict.verdict,
        reason=verdict.text,
        depends_on_errors=len(both) > 1,
        more_tasks=more,
        more_usd=more * sum(cost for cost in costs if cost is not None)
        if more is not None and None not in costs
        else None,
    )


def _per_task(level: Figures) -> float | None:
    """What the items of one task cost."""
    cost, tasks = level.cost_usd.value, level.success.n
    return None if cost is None or not tasks else cost * level.success.runs / tasks


def _rate(level: Figures) -> float:
    return -1.0 if level.success.value is None else level.success.value


def _cost(level: Figures) -> float:
    return float("inf") if level.cost_usd.value is None else level.cost_usd.value
