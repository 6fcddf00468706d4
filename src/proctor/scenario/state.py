"""State of a run: its finished turns, and the calls of unfinished ones.

A turn is recorded once, when it is over, and never changed; a resumed run continues after the last of them.
All of it is plain data, in files and in the store alike.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from proctor.formatting import plural
from proctor.score import Score

RUNNING, COMPLETED, HALTED, FAILED = "running", "completed", "halted", "failed"
EVALUATORS = "evaluators"
"""`who` of the calls of evaluators."""
_OPTIONAL = ("variables", "notes", "invalid")
Value = float | int | bool | str | None
"""Value of a metric. None: it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCall:
    """One call of a model: who needed it, tokens and cost."""

    who: str
    """An actor's short name, `narrator`, `summary`, `metrics`, `validation` or `evaluators`."""
    purpose: str
    model: str
    turn: int
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None: the price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An actor's decision."""

    action: str
    reasoning: str = ""
    long_term_goals: str = ""
    short_term_priorities: str = ""
    statement: str = ""
    """Public statement, where the scenario enables them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateTalk:
    """A private conversation, which only its participants see."""

    kind: str
    """`bilateral`, `coalition` or `room`."""
    participants: tuple[str, ...]
    messages: tuple[tuple[str, str], ...]
    """Speaker and text, in order."""
    purpose: str = ""
    outcome: str = ""
    """Of a coalition: `formed` or `rejected`."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Private notes, by actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A problem that a check reports."""

    check: str
    severity: str
    actor: str
    """Empty: it concerns the world state."""
    text: str
    explanation: str = ""
    """Why the check did not pass, where its answer has it."""
    suggestion: str = ""
    """How it can be avoided, where the scenario asks for suggestions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounts:
    """Number of checks of a run, or of several."""

    run: int = 0
    issues: int = 0
    unread: int = 0
    """Checks whose verdict could not be read: neither passed nor failed."""

    def __add__(self, other: "CheckCounts") -> "CheckCounts":
        return CheckCounts(
            run=self.run + other.run, issues=self.issues + other.issues, unread=self.unread + other.unread
        )

    def __str__(self) -> str:
        issues = plural(self.issues, "issue")
        if not self.unread:
            return f"{plural(self.run, 'check')}, {issues}"
        if self.unread == self.run:
            return f"{plural(self.run, 'check')}, no verdict could be read"
        rest = self.run - self.unread
        return (
            f"{plural(self.run, 'check')}: {plural(self.unread, 'verdict')} could not be read; "
            f"{issues} in the other {rest}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioTurn:
    """One finished turn."""

    number: int
    world_state: str
    decisions: Mapping[str, Decision]
    key_changes: str = ""
    consequences: str = ""
    talks: tuple[PrivateTalk, ...] = ()
    events: tuple[str, ...] = ()
    """Names of the events that occurred."""
    metrics: Mapping[str, Value] = field(default_factory=dict)
    """Including the numbers, texts and truth values of the variables."""
    variables: Mapping[str, Value] = field(default_factory=dict)
    """Variables of the world after the turn; `name.actor` where each actor has a value."""
    notes: tuple[str, ...] = ()
    """What actors set, and which rules were not applied."""
    invalid: Mapping[str, int] = field(default_factory=dict)
    """Counts of what makes it less valid as data."""
    issues: tuple[Issue, ...] = ()
    checks_run: int = 0
    checks_unread: int = 0
    """Checks whose verdict could not be read."""
    summary: str = ""
    """Summary of all turns that have left the context window."""
    summarised: int = 0
    """Number of these turns."""
    calls: tuple[ScenarioCall, ...] = ()
    started_at: str = ""
    ended_at: str = ""

    @property
    def checks(self) -> CheckCounts:
        return CheckCounts(run=self.checks_run, issues=len(self.issues), unread=self.checks_unread)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRun:
    """State of one run."""

    item_id: str
    label: str
    """`var-001-run-001`."""
    seed: int
    total_turns: int
    turns: tuple[ScenarioTurn, ...] = ()
    lost_calls: tuple[ScenarioCall, ...] = ()
    """Calls of turns that were never finished."""
    judge_calls: tuple[ScenarioCall, ...] = ()
    """Calls of the evaluators at its end."""
    scores: Mapping[str, Value] = field(default_factory=dict)
    """By evaluator: a number or a label. None: no score."""
    served: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By requested model, the calls that each model answered, as far as providers say."""
    status: str = RUNNING
    reason: str = ""
    """Why it ended early; empty when it did not."""
    error: str = ""
    variation_id: int = 0
    variation: str = ""
    started_at: str = ""
    ended_at: str = ""

    @property
    def calls(self) -> tuple[ScenarioCall, ...]:
        """All calls, also those of unfinished turns."""
        of_turns = tuple(call for turn in self.turns for call in turn.calls)
        return of_turns + self.lost_calls + self.judge_calls

    @property
    def cost_usd(self) -> float | None:
        """None: no call had a known price."""
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        return sum(costs) if costs else None

    @property
    def checks(self) -> CheckCounts:
        """The number of checks of its turns."""
        return sum((turn.checks for turn in self.turns), CheckCounts())

    @property
    def invalid(self) -> dict[str, int]:
        """Counts of what makes it less valid as data: in its turns, and scores without a verdict."""
        counts = sum((Counter(turn.invalid) for turn in self.turns), Counter[str]())
        counts["unreadable_verdicts"] += sum(value is None for value in self.scores.values())
        return dict(+counts)

    @property
    def final_metrics(self) -> dict[str, Value]:
        """The latest known value of each metric."""
        latest: dict[str, Value] = {}
        for turn in self.turns:
            latest |= {name: value for name, value in turn.metrics.items() if value is not None}
        return latest

    def with_turn(self, turn: ScenarioTurn) -> "ScenarioRun":
        return replace(self, turns=(*self.turns, turn))

    def until(self, number: int) -> "ScenarioRun":
        """The run as it was after turn `number`."""
        turns = tuple(turn for turn in self.turns if turn.number <= number)
        return replace(
            self, turns=turns, lost_calls=(), judge_calls=(), scores={}, status=RUNNING, reason="", error="",
            ended_at="",
        )  # fmt: skip


def turn_as_plain(turn: ScenarioTurn) -> dict[str, Any]:
    """A turn in JSON-compatible form; variables, notes and invalid events only where there are any."""
    return {name: value for name, value in asdict(turn).items() if value or name not in _OPTIONAL}


def turn_of(plain: Mapping[str, Any]) -> ScenarioTurn:
    """The turn of a plain form. Raises `KeyError` or `TypeError` when it is not one."""
    parts = dict(plain)
    return ScenarioTurn(
        **parts
        | {
            "decisions": {short: Decision(**values) for short, values in parts["decisions"].items()},
            "talks": tuple(_talk(talk) for talk in parts.get("talks", ())),
            "events": tuple(parts.get("events", ())),
            "notes": tuple(parts.get("notes", ())),
            "issues": tuple(Issue(**issue) for issue in parts.get("issues", ())),
            "calls": calls_of(parts.get("calls", ())),
        }
    )


def calls_of(plain: Sequence[Mapping[str, Any]]) -> tuple[ScenarioCall, ...]:
    """The calls of a plain form."""
    return tuple(ScenarioCall(**call) for call in plain)


def _talk(plain: Mapping[str, Any]) -> PrivateTalk:
    messages = tuple((who, text) for who, text in plain["messages"])
    return PrivateTalk(**dict(plain) | {"participants": tuple(plain["participants"]), "messages": messages})


def verdicts_of(scores: Iterable[Score]) -> dict[str, Value]:
    """One value per evaluator: the mean of its numbers, else its first label, else None."""
    by_evaluator: dict[str, list[Score]] = {}
    for score in scores:
        by_evaluator.setdefault(score.evaluator, []).append(score)
    return {name: _combined(group) for name, group in by_evaluator.items()}


def _combined(scores: list[Score]) -> Value:
    numbers = [score.value for score in scores if score.value is not None]
    if numbers:
        return fmean(numbers)
    return next((score.label for score in scores if score.label), None)
