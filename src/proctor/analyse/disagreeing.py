"""The tasks on which two groups came to something different: all of them, searched and a page at a time.

A comparison names the few that differ most; whoever wants to know why looks at the others too.

Knows nothing of statistics or of how it is shown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from proctor.analyse.compared_items import Compared, Groups
from proctor.errors import NotFound

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreeing:
    """One task that came out differently."""

    words: str
    """What people call it."""
    baseline: float
    """The mean over its repeats, as `candidate`."""
    candidate: float
    baseline_items: tuple[Compared, ...]
    candidate_items: tuple[Compared, ...]

    @property
    def difference(self) -> float:
        """Candidate minus baseline."""
        return self.candidate - self.baseline


def disagreements(
    groups: Groups, metric: str, candidate: str, *, search: str = "", direction: str = ""
) -> list[Disagreeing]:
    """The tasks on which a candidate differs from the baseline, the largest differences first.

    `direction` keeps those where the candidate is `higher` or `lower`; `search` those whose words hold it.
    """
    baseline = groups.names[0]
    if candidate not in groups.names[1:]:
        raise NotFound(f"{candidate} is not compared here\nThere are: {', '.join(groups.names[1:])}.")
    first, second = (_by_task(groups.items, name, metric) for name in (baseline, candidate))
    found = [_held(first[key], second[key], metric) for key in first if key in second]
    kept = [each for each in found if _is_wanted(each, search.casefold(), direction)]
    return sorted(kept, key=lambda each: (-abs(each.difference), each.words))


def _is_wanted(each: Disagreeing, search: str, direction: str) -> bool:
    if each.difference == 0 or search not in each.words.casefold():
        return False
    return not direction or (each.difference > 0) == (direction == HIGHER)


def _by_task(items: Iterable[Compared], group: str, metric: str) -> Mapping[str, Sequence[Compared]]:
    found: dict[str, list[Compared]] = defaultdict(list)
    for item in items:
        if item.group == group and item.values.get(metric) is not None:
            found[item.key].append(item)
    return found


def _held(before: Sequence[Compared], after: Sequence[Compared], metric: str) -> Disagreeing:
    return Disagreeing(
        words=before[0].words,
        baseline=fmean(item.values[metric] or 0.0 for item in before),
        candidate=fmean(item.values[metric] or 0.0 for item in after),
        baseline_items=tuple(before),
        candidate_items=tuple(after),
    )
