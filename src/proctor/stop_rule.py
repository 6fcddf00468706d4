"""`stop_when:` of a plan: what a run has to decide before it may stop, and what it has decided."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# Pydantic describes the states of stop rules over HTTP; those of `typing` only since Python 3.12.
from typing_extensions import TypedDict

from proctor.errors import UsageError
from proctor.formatting import plural

STOP_RULE = "stop_when"
"""The name under which the rule of `stop_when:` is stored with its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """`stop_when:` of a plan: what a run has to decide before it may stop."""

    by: str = "model"
    """The factor whose levels are compared."""
    metric: str = "success"
    decided: bool = False
    """Every level is compared with the baseline."""
    baseline: str = ""
    """Empty: the first level of the plan."""
    margin: float | None = None
    """A level that is shown to be less than this worse is decided too."""
    width: float | None = None
    """The interval of every level is at most this wide."""
    ranks: int | None = None
    """Number of first places to separate from all others; 0: every pair."""
    confidence: float = 0.95
    scale: tuple[float, float] = (0.0, 1.0)
    """The ends of a score's scale."""
    pick: float | None = None
    """Name one level that is at most this much, a share of the scale, worse than the best."""
    check: float | None = None
    """Say of every other level whether it is worse than the baseline by this share of the scale."""
    unit: str = "task"
    """What is one observation: `task`, the mean of its repeats, or `repeat`, each by itself."""
    first_runs: bool = False
    """Only the first run of a task is observed, not its repeats."""
    tasks: int = 0
    """Tasks that were planned when the run started; 0: intervals are not tuned to their number."""
    against: str = ""
    """The run whose stored results are the baseline; empty: a level of this run is."""
    stored: Mapping[str, Sequence[Sequence[float | None]]] = field(default_factory=dict)
    """By level the stored mean of each task at the start: with errors left out, and as failures."""

    @property
    def is_adaptive(self) -> bool:
        """Whether it decides with a tolerance, and tasks run once before any is repeated."""
        return self.pick is not None or self.check is not None


class StopInterval(TypedDict):
    """A level of the compared factor, with an interval that is valid at any time."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    tasks: int
    """Finished tasks that count."""
    isUndecided: bool


class StopDecision(TypedDict):
    """The state of one goal of a rule after the finished tasks."""

    outcome: str
    """`open`: undecided."""
    reason: str
    undecided: list[str]


class RaceStanding(TypedDict):
    """How near a level is to the end of its race or check."""

    name: str
    state: str
    """`in`, `out` or `picked` in a race; `open`, `pass` or `fail` in a check."""
    tasks: int
    """Positions of a race after which it left, or that it has run; common tasks of a check."""
    share: float
    """Of the way to that end, 0 to 1."""
    against: str
    """The level that is nearest to putting it out, or did; the baseline of a check."""


class StopState(TypedDict):
    """What the rule of a run has decided, as the JSON of summaries and pages."""

    by: str
    metric: str
    confidence: float
    unit: str
    isDecided: bool
    taskCount: int
    decisions: list[StopDecision]
    intervals: list[StopInterval]
    mode: str
    """`pick`, `check` or `watch`."""
    tolerance: float | None
    """Of `pick` and `check`."""
    race: list[RaceStanding]
    """Empty: the rule watches intervals."""
    finishedRuns: int
    plannedRuns: int
    """Items of the run, with those that were not needed."""


def stop_lines(state: StopState, *, has_bars: bool = True) -> list[str]:
    """What `stop_when` has decided, for people: a line for each level, and one for each goal."""
    width = max(len(each["name"]) for each in state["intervals"])
    if state["race"]:
        return [*_race_lines(state, width, has_bars=has_bars), *_decision_lines(state)]
    lines = [
        f"{state['metric']} by {state['by']} with {100 * state['confidence']:g}% intervals that are valid at "
        "any time:"
    ]
    for interval in state["intervals"]:
        low, high = interval["low"], interval["high"]
        limits = "no interval yet" if low is None or high is None else f"{low:.3g} to {high:.3g}"
        value = "–" if interval["value"] is None else f"{interval['value']:.3g}"
        tasks = plural(interval["tasks"], state["unit"])
        lines.append(f"  {interval['name']:<{width}}  {value}  ({limits}), {tasks}")
    return [*lines, *_decision_lines(state)]


def _decision_lines(state: StopState) -> list[str]:
    return [
        f"{'undecided' if decision['outcome'] == 'open' else 'decided'}: {decision['reason']}"
        for decision in state["decisions"]
    ]


BAR = 20
"""Characters of a bar in a terminal."""


def _race_lines(state: StopState, width: int, *, has_bars: bool) -> list[str]:
    """The race as a picture in characters: how far each level is from leaving, or from its verdict."""
    tolerance = state["tolerance"] or 0.0
    values = {interval["name"]: interval["value"] for interval in state["intervals"]}
    if state["mode"] == "pick":
        lines = [f"{state['metric']} by {state['by']}, race with tolerance {tolerance:g}:"]
    else:
        lines = [f"{state['metric']} by {state['by']}, check with margin {tolerance:g}:"]
    for level in state["race"]:
        filled = round(BAR * level["share"])
        bar = f"{'█' * filled}{'·' * (BAR - filled)}  " if has_bars else ""
        value = values.get(level["name"])
        shown = "–" if value is None else f"{value:.3g}"
        tasks = plural(level["tasks"], state["unit"])
        lines.append(f"  {level['name']:<{width}}  {shown:<5}  {bar}{_state_text(level)}, {tasks}")
    return lines


def _state_text(level: RaceStanding) -> str:
    if level["state"] == "out":
        return "out"
    if level["state"] == "in" and level["against"]:
        return f"in, behind {level['against']}"
    return level["state"]


def make_stop_rule(settings: Mapping[str, object] | None) -> StopRule | None:
    """The rule from the checked settings of a plan; None: there are none."""
    return None if settings is None else StopRule(**settings)  # type: ignore[arg-type]


def read_stop_rule(settings: Mapping[str, object] | str | None) -> StopRule | None:
    """Check a rule that is given in Python, or as `by=model,width=0.1`. Raises `UsageError`.

    None: there is none.
    """
    if not settings:
        return None
    # pydantic takes a tenth of a second to load, and few runs have a rule.
    from pydantic import ValidationError

    from proctor.plan.validate import StopWhen, stop_settings

    values = dict(_parsed(settings) if isinstance(settings, str) else settings)
    if isinstance(values.get("scale"), tuple):
        values["scale"] = list(values["scale"])  # type: ignore[call-overload]
    try:
        StopWhen.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("stop_when", *first["loc"])))
        known = ", ".join(StopWhen.model_fields)
        problem = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"`{place}`: {problem}\nIt may have: {known}.") from error
    return make_stop_rule(stop_settings(values))


def _parsed(text: str) -> Iterator[tuple[str, object]]:
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise UsageError(f"`{part.strip()}` is not NAME=VALUE\nWrite, for example: by=model,width=0.1")
        if name == "scale":
            yield name, [_number(end) for end in value.split(":")]
        else:
            yield name, value if name in ("by", "metric", "baseline") else _number(value)


def _number(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value
