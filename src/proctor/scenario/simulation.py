"""Run a scenario, turn by turn.

A turn consists of private talks, simultaneous decisions, events, the narrator's new world state, metrics and
checks. An unfinished turn leaves nothing behind but its cost.
"""

import operator
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proctor.scenario import metrics as measuring
from proctor.scenario import talks, validation
from proctor.scenario.context import TurnState, begin_turn
from proctor.scenario.definition import CONDITION, Actor, Scenario, ScenarioEvent
from proctor.scenario.prompts import Prompts, ScenarioModels, sections, together, unlabelled
from proctor.scenario.state import Decision, ScenarioRun, ScenarioTurn, Value

_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def all_hold(conditions: Mapping[str, str], values: Mapping[str, Value]) -> bool:
    """Whether every named metric satisfies its comparison; a missing one satisfies none."""
    return all(holds(text, values.get(name)) for name, text in conditions.items())


def holds(condition: str, value: Value) -> bool:
    """Whether a value satisfies a comparison such as `>= 7`, `== true` or `!= war`."""
    match = CONDITION.fullmatch(condition.strip())
    if match is None or value is None:
        return False
    compare, bound = _COMPARED[match[1]], _parsed(match[2].strip().strip("\"'"))
    if isinstance(value, str) or isinstance(bound, str):
        return match[1] in ("==", "!=") and compare(str(value).lower(), str(bound).lower())
    return compare(float(value), float(bound))


def _parsed(text: str) -> float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def events_of_turn(
    events: Mapping[str, ScenarioEvent],
    *,
    turn: int,
    seed: int,
    metrics: Mapping[str, Value],
    before: Iterable[str],
) -> list[str]:
    """The names of the events of this turn; `before` are those of earlier turns."""
    occurred = set(before)
    return [
        name
        for name, event in events.items()
        if not (event.once and name in occurred) and _occurs(name, event, turn, seed, metrics)
    ]


def _occurs(name: str, event: ScenarioEvent, turn: int, seed: int, metrics: Mapping[str, Value]) -> bool:
    first, last = event.turn_range or (1, turn)
    if not first <= turn <= last:
        return False
    match event.type:
        case "scheduled":
            return turn == event.turn
        case "trend":
            return (turn - first) % event.frequency == 0
        case "random":
            return random.Random(f"{seed}|{turn}|{name}").random() < event.probability
        case "conditional":
            return all_hold(event.conditions, metrics)


_DECISION = ("LONG-TERM GOALS", "SHORT-TERM PRIORITIES", "REASONING", "STATEMENT", "ACTION")
NO_ACTION = "(no action)"
_WORLD = ("UPDATED STATE", "KEY CHANGES", "CONSEQUENCES")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnVerdict:
    """Whether a run is over after a turn."""

    is_over: bool = False
    halted: str = ""
    """Why the checks ended it; empty when they did not."""


class ScenarioSimulation:
    """One run of a scenario."""

    def __init__(
        self, scenario: Scenario, models: ScenarioModels, *, seed: int, now: Callable[[], str]
    ) -> None:
        self._scenario = scenario
        self._models = models
        self._seed = seed
        self._now = now
        self._prompts = Prompts(scenario.prompts)

    async def turn(self, past: Sequence[ScenarioTurn]) -> ScenarioTurn:
        """Run the turn after `past`."""
        scenario, models, started = self._scenario, self._models, self._now()
        state = await begin_turn(scenario, self._prompts, models, past)
        await talks.hold_talks(state, models)
        actors = list(scenario.actors.values())
        results = await together([self._decide(state, actor) for actor in actors])
        decisions = {actor.short_name: result for actor, result in zip(actors, results, strict=True)}
        events = self._events(past, state.turn)
        world = await self._narrate(state, decisions, events)
        metrics = await measuring.measure(
            scenario,
            self._prompts,
            models,
            turn=state.turn,
            world_state=world["UPDATED STATE"],
            decisions=decisions,
            besides="\n".join(filter(None, (world["KEY CHANGES"], world["CONSEQUENCES"]))),
        )
        turn = ScenarioTurn(
            number=state.turn,
            world_state=world["UPDATED STATE"],
            key_changes=world["KEY CHANGES"],
            consequences=world["CONSEQUENCES"],
            decisions=decisions,
            talks=tuple(state.talks),
            events=tuple(events),
            metrics=metrics,
            summary=state.summary,
            summarised=state.summarised,
            started_at=started,
        )
        turn = await self._checked(turn, state.world_state)
        calls, models.calls = tuple(models.calls), []
        return replace(turn, calls=calls, ended_at=self._now())

    def verdict(self, run: ScenarioRun) -> TurnVerdict:
        """Whether a run is over, and whether its checks ended it."""
        issues = [issue for turn in run.turns for issue in turn.issues]
        halted = validation.halting(self._scenario.validation, issues)
        if halted:
            return TurnVerdict(is_over=True, halted=halted)
        met = bool(self._scenario.stop_when) and bool(run.turns)
        met = met and all_hold(self._scenario.stop_when, run.turns[-1].metrics)
        return TurnVerdict(is_over=met or len(run.turns) >= self._scenario.turns)

    async def _decide(self, state: TurnState, actor: Actor) -> Decision:
        answer = await self._models.ask(
            actor.short_name,
            "decision",
            model=talks.model_of(actor),
            system=state.system(actor),
            prompt=state.prompt("decision", actor),
            turn=state.turn,
        )
        fields = sections(answer, _DECISION)
        return Decision(
            # An answer without headings is the action.
            action=fields.get("ACTION") or unlabelled(answer, _DECISION) or NO_ACTION,
            reasoning=fields.get("REASONING", ""),
            long_term_goals=fields.get("LONG-TERM GOALS", ""),
            short_term_priorities=fields.get("SHORT-TERM PRIORITIES", ""),
            statement=fields.get("STATEMENT", "") if state.scenario.enable_public_statements else "",
        )

    def _events(self, past: Sequence[ScenarioTurn], turn: int) -> list[str]:
        latest: dict[str, Value] = measuring.at_start(self._scenario)
        for one in past:
            latest |= {name: value for name, value in one.metrics.items() if value is not None}
        before = [name for one in past for name in one.events]
        return events_of_turn(
            self._scenario.events, turn=turn, seed=self._seed, metrics=latest, before=before
        )

    async def _narrate(
        self, state: TurnState, decisions: dict[str, Decision], events: Sequence[str]
    ) -> dict[str, str]:
        scenario = self._scenario
        expected = [
            f"{name} ({measure.description})" if measure.description else name
            for name, measure in scenario.metrics.items()
            if measure.method == "regex" and not measure.actor_specific and not measure.actor
        ]
        answer = await self._models.ask(
            "narrator",
            "world state",
            model=scenario.world_state_model,
            system=self._prompts.render("narrator_system", scenario=scenario),
            prompt=self._prompts.render(
                "narrator",
                scenario=scenario,
                turn=state.turn,
                summary=state.summary,
                world_state=state.world_state,
                decisions=decisions,
                events=[(name, scenario.events[name]) for name in events],
                wanted=", ".join(expected),
            ),
            turn=state.turn,
        )
        fields = sections(answer, _WORLD)
        return {
            **dict.fromkeys(_WORLD, ""),
            **fields,
            "UPDATED STATE": fields.get("UPDATED STATE") or answer.strip(),
        }

    async def _checked(self, turn: ScenarioTurn, before: str) -> ScenarioTurn:
        rules = self._scenario.validation
        met = bool(self._scenario.stop_when) and all_hold(self._scenario.stop_when, turn.metrics)
        is_last = met or turn.number >= self._scenario.turns
        if rules is None or not (rules.run_after_each_turn or (rules.run_at_scenario_end and is_last)):
            return turn
        result = await validation.check_turn(self._scenario, self._prompts, self._models, turn, before)
        return replace(turn, issues=result.issues, checks_run=result.run, checks_unread=result.unread)
