"""What has happened in a run so far: finished turns, and what unfinished ones have cost.

A turn is written down once, when it is over, and never changed; a run that is taken up again begins
behind the last of them. Plain data throughout, so that a file and the store can hold it alike.

Knows nothing of files, stores or models.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from proctor.score import Score

RUNNING, COMPLETED, HALTED, FAILED = "running", "completed", "halted", "failed"


Value = float | int | bool | str | None
"""Of a metric. None: it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioCall:
    """One question to a model, as it counts."""

    who: str
    """An actor's short name, `narrator`, `summary`, `metrics`, `validation` or `evaluators`."""
    purpose: str
    model: str
    turn: int
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """None: the price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What an actor made up its mind to do."""

    action: str
    reasoning: str = ""
    long_term_goals: str = ""
    short_term_priorities: str = ""
    statement: str = ""
    """Said in public, where the scenario has such statements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateTalk:
    """A private talk: only those who took part ever read it."""

    kind: str
    """`bilateral` or `coalition`."""
    participants: tuple[str, ...]
    messages: tuple[tuple[str, str], ...]
    """Who said what, in order."""
    purpose: str = ""
    outcome: str = ""
    """Of a coalition: `formed` or `rejected`."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What each kept to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Something a check found."""

    check: str
    severity: str
    actor: str
    """Empty: it is about the state of the world."""
    text: str


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
    """Names of what happened."""
    metrics: Mapping[str, Value] = field(default_factory=dict)
    issues: tuple[Issue, ...] = ()
    checks_run: int = 0
    checks_unread: int = 0
    """Checks whose verdict could not be read: they have found nothing, and say nothing."""
    summary: str = ""
    """Of all turns that have left the window, once there are any."""
    summarised: int = 0
    """How many those are."""
    calls: tuple[ScenarioCall, ...] = ()
    started_at: str = ""
    ended_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRun:
    """A run, as far as it has come."""

    item_id: str
    label: str
    """`var-001-run-001`."""
    seed: int
    total_turns: int
    turns: tuple[ScenarioTurn, ...] = ()
    lost_calls: tuple[ScenarioCall, ...] = ()
    """Paid for in turns that were never finished."""
    judge_calls: tuple[ScenarioCall, ...] = ()
    """What those who judged it at its end have used."""
    scores: Mapping[str, Value] = field(default_factory=dict)
    """What each of them said: a number, or a word. None: it could not judge."""
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
        """Everything that was paid for."""
        of_turns = tuple(call for turn in self.turns for call in turn.calls)
        return of_turns + self.lost_calls + self.judge_calls

    @property
    def cost_usd(self) -> float | None:
        """None: no call had a known price."""
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        return sum(costs) if costs else None

    @property
    def final_metrics(self) -> dict[str, Value]:
        """The latest value of each metric that was ever read."""
        latest: dict[str, Value] = {}
        for turn in self.turns:
            latest |= {name: value for name, value in turn.metrics.items() if value is not None}
        return latest

    def with_turn(self, turn: ScenarioTurn) -> "ScenarioRun":
        """The run, one turn further."""
        return replace(self, turns=(*self.turns, turn))

    def until(self, number: int) -> "ScenarioRun":
        """The run as it was after a turn."""
        kept = tuple(turn for turn in self.turns if turn.number <= number)
        return replace(
            self, turns=kept, lost_calls=(), judge_calls=(), scores={}, status=RUNNING, reason="", error="",
            ended_at="",
        )  # fmt: skip


def turn_as_plain(turn: ScenarioTurn) -> dict[str, Any]:
    """A turn as JSON can hold it."""
    return asdict(turn)


def turn_of(plain: Mapping[str, Any]) -> ScenarioTurn:
    """The turn of its plain form. Raises `KeyError` or `TypeError` when it is none."""
    parts = dict(plain)
    return ScenarioTurn(
        **parts
        | {
            "decisions": {short: Decision(**made) for short, made in parts["decisions"].items()},
            "talks": tuple(_talk(talk) for talk in parts.get("talks", ())),
            "events": tuple(parts.get("events", ())),
            "issues": tuple(Issue(**issue) for issue in parts.get("issues", ())),
            "calls": calls_of(parts.get("calls", ())),
        }
    )


def calls_of(plain: Sequence[Mapping[str, Any]]) -> tuple[ScenarioCall, ...]:
    """Calls of their plain form."""
    return tuple(ScenarioCall(**call) for call in plain)


def _talk(plain: Mapping[str, Any]) -> PrivateTalk:
    messages = tuple((who, text) for who, text in plain["messages"])
    return PrivateTalk(**dict(plain) | {"participants": tuple(plain["participants"]), "messages": messages})


# What evaluators said of a run, in one value each.


def verdicts_of(scores: Iterable[Score]) -> dict[str, Value]:
    """By evaluator the mean of its numbers, else its first word, else None: it could not judge."""
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.evaluator, []).append(score)
    return {name: _in_one(said) for name, said in found.items()}


def _in_one(scores: list[Score]) -> Value:
    numbers = [score.value for score in scores if score.value is not None]
    if numbers:
        return fmean(numbers)
    return next((score.label for score in scores if score.label), None)
