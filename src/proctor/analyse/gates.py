"""Conditions that a change has to meet: `score:Builtin.Helpfulness>=-0.02`, `cost<=+10%`.

A gate speaks of the difference, candidate minus baseline; with `%`, of the difference as a share of the
baseline's mean. It passes when all of the 95 % interval meets it, fails when none of it does, and is
inconclusive otherwise: then there were too few pairs to say, and the answer is to run more of them.

Knows nothing of how differences are come by.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import ge, gt, le, lt

from proctor.errors import UsageError

PASS, FAIL, INCONCLUSIVE = "pass", "fail", "inconclusive"
_GATE = re.compile(
    r"\s*(?P<metric>.+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<number>[+-]?\d*\.?\d+)\s*(?P<share>%?)\s*"
)
_SIGNS: Mapping[str, Callable[[float, float], bool]] = {">=": ge, ">": gt, "<=": le, "<": lt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One condition."""

    text: str
    metric: str
    sign: str
    threshold: float
    is_share: bool = False
    """Whether the threshold is a share of the baseline's mean."""

    def judge(self, value: float | None, low: float | None, high: float | None) -> str:
        """`pass`, `fail` or `inconclusive`, for a difference and its interval."""
        if value is None or low is None or high is None:
            return INCONCLUSIVE
        meets = _SIGNS[self.sign]
        ends = (meets(low, self.threshold), meets(high, self.threshold))
        return PASS if all(ends) else INCONCLUSIVE if any(ends) else FAIL

    def verdict(
        self,
        candidate: str,
        difference: tuple[float, float | None, float | None],
        baseline: float | None,
        pairs: int,
    ) -> "Verdict":
        """What it says of a candidate: of a difference with its interval, and of so many pairs."""
        scale = abs(baseline or 0.0) if self.is_share else 1.0
        if baseline == 0.0 and self.is_share and not any(difference):
            # Two that are free differ by nothing, whatever it is a share of.
            scale = 1.0
        if not scale:
            why = "the baseline's mean is 0, of which nothing is a share"
            return Verdict(gate=self.text, candidate=candidate, verdict=INCONCLUSIVE, words=why)
        value, low, high = (None if each is None else each / scale for each in difference)
        said = self.judge(value, low, high)
        more = self._more_pairs(value, low, high, pairs) if said == INCONCLUSIVE else None
        words = self._told(value, low, high)
        return Verdict(gate=self.text, candidate=candidate, verdict=said, words=words, more_pairs=more)

    def _told(self, value: float | None, low: float | None, high: float | None) -> str:
        def say(number: float) -> str:
            return f"{number:+.1%}" if self.is_share else f"{number:+.4g}"

        if value is None or low is None or high is None:
            return (
                "too few to say" if value is None else f"the difference is {say(value)}; too few to say more"
            )
        return f"the difference is {say(value)} ({say(low)} to {say(high)})"

    def _more_pairs(
        self, value: float | None, low: float | None, high: float | None, pairs: int
    ) -> int | None:
        """How many more pairs would bring the interval to one side of the threshold."""
        if value is None or low is None or high is None or not pairs or value == self.threshold:
            return None
        # An interval shrinks with the root of the number of pairs.
        needed = pairs * ((high - low) / 2 / abs(value - self.threshold)) ** 2
        return max(1, round(needed) - pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one gate says of one candidate."""

    gate: str
    candidate: str
    verdict: str
    words: str
    """Why."""
    more_pairs: int | None = None
    """About how many more would decide it, if the difference stays as it is. None: cannot be said."""


def gate_of(text: str) -> Gate:
    """Read a gate; raises with what one looks like."""
    found = _GATE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"`{text}` is no gate\n"
            "Write a metric, >= or <=, and the difference that is allowed: score:Builtin.Helpfulness>=-0.02, "
            "cost<=10%."
        )
    is_share = bool(found["share"])
    number = float(found["number"]) / (100 if is_share else 1)
    return Gate(
        text=text.strip(), metric=found["metric"], sign=found["sign"], threshold=number, is_share=is_share
    )
