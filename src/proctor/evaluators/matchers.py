"""Evaluators without a model: trajectories of tool calls.

They compare names, and arguments where the ground truth states them. Each expected call needs a call of its
own: expecting `search` twice is not met by one call, in any order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from proctor.evaluator import Evidence
from proctor.evaluators.rendering import calls_of, ignored_of
from proctor.item import digest_of
from proctor.score import Level, Score
from proctor.session import ToolCall

# Calls shown in an explanation; an agent may make ten thousand.
MOST_SHOWN = 30


Fits = Callable[[int, int], bool]
"""Whether an actual call, by position, is an expected one."""


@dataclass(frozen=True, slots=True)
class Trajectories:
    """Expected and actual calls, and which of them are equal."""

    expected: Sequence[str]
    actual: Sequence[str]
    fits: Fits
    with_arguments: frozenset[int] = frozenset()
    """Positions of expected calls whose arguments are compared."""

    def unmatched(self) -> tuple[list[int], list[int]]:
        """Positions of expected and of actual calls without a partner, after pairing as many as possible."""
        free: dict[str, list[int]] = {}
        for called, name in enumerate(self.actual):
            free.setdefault(name, []).append(called)
        pairs: dict[int, int] = {}

        def pair(position: int, tried: set[int]) -> bool:
            for called in free.get(self.expected[position], ()):
                if called not in tried and self.fits(position, called):
                    tried.add(called)
                    if called not in pairs or pair(pairs[called], tried):
                        pairs[called] = position
                        return True
            return False

        # Calls with arguments first: the others match any remaining call with their name.
        missing = [position for position in sorted(self.with_arguments) if not pair(position, set())]
        left = {name: [each for each in calls if each not in pairs] for name, calls in free.items()}
        for position, name in enumerate(self.expected):
            if position not in self.with_arguments:
                if left.get(name):
                    pairs[left[name].pop()] = position
                else:
                    missing.append(position)
        return sorted(missing), [called for called in range(len(self.actual)) if called not in pairs]


def exactly(calls: Trajectories) -> str:
    """The first difference of two sequences; empty when they are equal."""
    expected, actual = calls.expected, calls.actual
    for position, (name, called) in enumerate(zip(expected, actual, strict=False)):
        if name != called:
            return f"call {position + 1} is {called}, not {name}"
        if not calls.fits(position, position):
            return f"call {position + 1}, {called}, has other arguments"
    missing, extra = expected[len(actual) :], actual[len(expected) :]
    if missing:
        return f"missing {_listed(missing)}"
    return f"beyond what is expected: {_listed(extra)}" if extra else ""


def in_order(calls: Trajectories) -> str:
    """Why one sequence is not a subsequence of the other; empty when it is."""
    remaining = iter(range(len(calls.actual)))
    for position, name in enumerate(calls.expected):
        if not any(calls.fits(position, called) for called in remaining):
            return f"{name}, number {position + 1} of the expected, is not called after those before it"
    return ""


def any_order(calls: Trajectories) -> str:
    """The expected calls that are missing; empty when none is."""
    missing, _ = calls.unmatched()
    return f"missing {_listed(sorted(calls.expected[each] for each in missing))}" if missing else ""


def unordered(calls: Trajectories) -> str:
    """Calls of one side that the other does not have; empty when both have the same, in any order."""
    return any_order(calls) or within(calls)


def within(calls: Trajectories) -> str:
    """The calls that are not expected; empty when all are among the expected."""
    _, extra = calls.unmatched()
    return f"beyond what is expected: {_listed([calls.actual[each] for each in extra])}" if extra else ""


@dataclass(frozen=True, slots=True)
class _Matching:
    description: str
    differs: Callable[[Trajectories], str]


MATCHINGS = {
    "Builtin.TrajectoryExactOrderMatch": _Matching("Exact match", exactly),
    "Builtin.TrajectoryInOrderMatch": _Matching("In-order match", in_order),
    "Builtin.TrajectoryAnyOrderMatch": _Matching("Any-order match", any_order),
    "Builtin.TrajectoryUnorderedMatch": _Matching("Unordered match", unordered),
    "Builtin.TrajectorySubsetMatch": _Matching("Subset match", within),
    "Builtin.TrajectorySupersetMatch": _Matching("Superset match", any_order),
}
MODES = {
    "exact": exactly,
    "in_order": in_order,
    "any_order": any_order,
    "unordered": unordered,
    "subset": within,
    "superset": any_order,
}
"""Modes of `match_trajectory`."""
Arguments = Mapping[str, object]
Comparison = Callable[[Arguments, Arguments], bool]


def equal_arguments(expected: Arguments, actual: Arguments) -> bool:
    """Whether two calls have the same arguments."""
    return dict(expected) == dict(actual)


def has_arguments(expected: Arguments, actual: Arguments) -> bool:
    """Whether a call has at least the expected arguments, with these values."""
    return all(name in actual and actual[name] == value for name, value in expected.items())


def only_arguments(expected: Arguments, actual: Arguments) -> bool:
    """Whether a call has no arguments but expected ones, with these values."""
    return has_arguments(actual, expected)


def any_arguments(expected: Arguments, actual: Arguments) -> bool:  # noqa: ARG001
    """Arguments are not compared."""
    return True


ARGUMENTS: Mapping[str, Comparison] = {
    "exact": equal_arguments,
    "subset": has_arguments,
    "superset": only_arguments,
    "ignore": any_arguments,
}
"""How arguments are compared: `subset`: the expected ones are among those of the call."""


def match_trajectory(
    expected: Sequence[str | tuple[str, Arguments]],
    actual: Sequence[ToolCall],
    *,
    mode: str = "exact",
    arguments: str | Comparison = "exact",
    overrides: Mapping[str, str | Comparison] | None = None,
) -> str:
    """Compare tool calls with the expected ones, for evaluators of one's own; empty: they match.

    An expected call is a name, or a name with arguments, which are compared as `arguments` says, or for a
    tool as `overrides` says: the name of a comparison in `ARGUMENTS`, or a function of both.
    """
    if mode not in MODES:
        raise ValueError(f"there is no mode {mode}; there are {', '.join(MODES)}")
    pairs = [(each, None) if isinstance(each, str) else each for each in expected]

    def comparison(name: str) -> Comparison:
        chosen = (overrides or {}).get(name, arguments)
        return ARGUMENTS[chosen] if isinstance(chosen, str) else chosen

    def fits(position: int, called: int) -> bool:
        name, reference = pairs[position]
        call = actual[called]
        return name == call.name and (reference is None or comparison(name)(reference, call.args))

    with_arguments = frozenset(number for number, (_, reference) in enumerate(pairs) if reference is not None)
    names = [name for name, _ in pairs]
    return MODES[mode](Trajectories(names, [call.name for call in actual], fits, with_arguments))


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
        return _digest(self.name)

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
        calls, matching = calls_of(evidence), MATCHINGS[self.name]
        actual = [call.name for call in calls]
        arguments = evidence.reference.arguments if evidence.reference else {}

        def fits(position: int, called: int) -> bool:
            if expected[position] != actual[called]:
                return False
            how, reference = arguments.get(position, ("ignore", {}))
            return ARGUMENTS[how](reference, calls[called].args)

        difference = matching.differs(Trajectories(expected, actual, fits, frozenset(arguments)))
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


@cache
def _digest(name: str) -> str:
    return digest_of([name, "names", "each expected call once"])[:16]


def _listed(names: Sequence[str]) -> str:
    listed_names = ", ".join(name[:100] for name in names[:MOST_SHOWN])
    more = f", … {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"[{listed_names}{more}]"
