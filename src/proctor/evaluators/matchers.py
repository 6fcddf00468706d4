"""Evaluators without a model: trajectories of tool calls.

They compare names only. Each expected call needs a call of its own: expecting `search` twice is not
met by one call, in any order.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.evaluator import Evidence
from proctor.evaluators.rendering import calls_of, ignored_of
from proctor.item import digest_of
from proctor.score import Level, Score

# Calls shown in an explanation; an agent may make ten thousand.
MOST_SHOWN = 30


def exactly(expected: Sequence[str], actual: Sequence[str]) -> str:
    """The first difference of two sequences; empty when they are equal."""
    if list(expected) == list(actual):
        return ""
    for number, (name, called) in enumerate(zip(expected, actual, strict=False), start=1):
        if name != called:
            return f"call {number} is {called}, not {name}"
    missing, extra = expected[len(actual) :], actual[len(expected) :]
    return f"missing {_listed(missing)}" if missing else f"beyond what is expected: {_listed(extra)}"


def in_order(expected: Sequence[str], actual: Sequence[str]) -> str:
    """Why one sequence is not a subsequence of the other; empty when it is."""
    remaining = iter(actual)
    for number, name in enumerate(expected, start=1):
        if name not in remaining:
            return f"{name}, number {number} of the expected, is not called after those before it"
    return ""


def any_order(expected: Sequence[str], actual: Sequence[str]) -> str:
    """The expected calls that are missing; empty when none is."""
    missing = Counter(expected) - Counter(actual)
    return f"missing {_listed(sorted(missing.elements()))}" if missing else ""


@dataclass(frozen=True, slots=True)
class _Matching:
    description: str
    differs: Callable[[Sequence[str], Sequence[str]], str]


MATCHINGS = {
    "Builtin.TrajectoryExactOrderMatch": _Matching("Exact match", exactly),
    "Builtin.TrajectoryInOrderMatch": _Matching("In-order match", in_order),
    "Builtin.TrajectoryAnyOrderMatch": _Matching("Any-order match", any_order),
}


@dataclass(frozen=True, slots=True)
class TrajectoryMatcher:
    """Whether the expected tools were called."""

    name: str
    """One of `MATCHINGS`."""

    @property
    def level(self) -> Level:
        return "session"

    @property
    def digest(self) -> str:
        """Changes with the comparison."""
        return digest_of([self.name, "names", "each expected call once"])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """One score; an error when there is no expected trajectory."""
        expected = evidence.reference.trajectory if evidence.reference else None
        ignored = ignored_of(evidence, ("expectedTrajectory",))
        if expected is None:
            return [
                Score(
                    evaluator=self.name,
                    evaluator_digest=self.digest,
                    error="there is no expectedTrajectory to compare with",
                    error_code="ValidationException",
                    ignored=ignored,
                )
            ]
        actual = [call.name for call in calls_of(evidence)]
        matching = MATCHINGS[self.name]
        difference = matching.differs(expected, actual)
        result = difference or "everything expected was called as expected"
        compared = f"Expected {_listed(expected)}, called {_listed(actual)}."
        return [
            Score(
                evaluator=self.name,
                evaluator_digest=self.digest,
                value=0.0 if difference else 1.0,
                label="No" if difference else "Yes",
                explanation=f"{matching.description}: {result}. {compared}",
                ignored=ignored,
            )
        ]


def _listed(names: Sequence[str]) -> str:
    listed_names = ", ".join(name[:100] for name in names[:MOST_SHOWN])
    more = f", … {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"[{listed_names}{more}]"
