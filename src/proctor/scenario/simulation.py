"""Play a scenario, one turn after the other.

In a turn there are first the private talks, then everyone decides at the same moment, then the world
moves: what happens besides, the narrator's new state, the metrics read from it, the checks. A turn that
does not come to its end leaves nothing behind but its cost.

Knows nothing of files, stores or batches.
"""

import operator
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proctor.scenario import metrics as measuring
from proctor.scenario import talks, validation
from proctor.scenario.context import TurnState, remember
from proctor.scenario.definition import CONDITION, Actor, Scenario, ScenarioEvent
from proctor.scenario.prompts import Prompts, ScenarioModels, sections, together, unlabelled
from proctor.scenario.state import Decision, ScenarioRun, ScenarioTurn, Value

# Whether metrics stand a comparison: `>= 7`, `== true`, `!= war`.


_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def all_hold(conditions: Mapping[str, str], values: Mapping[str, Value]) -> bool:
    """Whether every metric named stands its comparison; one that is missing stands none."""
    return all(holds(text, values.get(name)) for name, text in conditions.items())


def holds(condition: str, value: Value) -> bool:
    """Whether one value stands one comparison."""
    found = CONDITION.fullmatch(condition.strip())
    if found is None or value is None:
        return False
    compare, wanted = _COMPARED[found[1]], _meant(found[2].strip().strip("\"'"))
    if isinstance(value, str) or isinstance(wanted, str):
        return found[1] in ("==", "!=") and compare(str(value).lower(), str(wanted).lower())
    return compare(float(value), float(wanted))


def _meant(text: str) -> float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


# What happens to everyone, whatever they decide: trends, chance, consequences and dates.


def happening(
    events: Mapping[str, ScenarioEvent],
    *,
    turn: int,
    seed: int,
    metrics: Mapping[str, Value],
    before: Iterable[str],
) -> list[str]:
    """The names of the events of this turn; `before` are those that have happened already."""
    gone = set(before)
    return [
        name
        for name, event in events.items()
        if not (event.once and name in gone) and _happens(name, event, turn, seed, metrics)
    ]


def _happens(name: str, event: ScenarioEvent, turn: int, seed: int, metrics: Mapping[str, Value]) -> bool:
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
    """Whether a run goes on behind a turn."""

    is_over: bool = False
    halted: str = ""
    """Why the checks ended it; empty when they did not."""


class ScenarioSimulation:
    """One run of a scenario."""

    def __init__(
        self, scenario: Scenario, voices: ScenarioModels, *, seed: int, now: Callable[[], str]
    ) -> None:
        self._scenario = scenario
        self._voices = voices
        self._seed = seed
        self._now = now
        self._prompts = Prompts(scenario.prompts)

    async def turn(self, past: Sequence[ScenarioTurn]) -> ScenarioTurn:
        """Play the turn behind these."""
        scenario, voices, started = self._scenario, self._voices, self._now()
        moment = await remember(scenario, self._prompts, voices, past)
        await talks.hold_talks(moment, voices)
        actors = list(scenario.actors.values())
        made = await together([self._decide(moment, actor) for actor in actors])
        decisions = {actor.short_name: one for actor, one in zip(actors, made, strict=True)}
        happened = self._happening(past, moment.turn)
        world = await self._narrate(moment, decisions, happened)
        read = await measuring.measure(
            scenario,
            self._prompts,
            voices,
            turn=moment.turn,
            world_state=world["UPDATED STATE"],
            decisions=decisions,
            besides="\n".join(filter(None, (world["KEY CHANGES"], world["CONSEQUENCES"]))),
        )
        turn = ScenarioTurn(
            number=moment.turn,
            world_state=world["UPDATED STATE"],
            key_changes=world["KEY CHANGES"],
            consequences=world["CONSEQUENCES"],
            decisions=decisions,
            talks=tuple(moment.talks),
            events=tuple(happened),
            metrics=read,
            summary=moment.summary,
            summarised=moment.summarised,
            started_at=started,
        )
        turn = await self._checked(turn, moment.world_state)
        calls, voices.calls = tuple(voices.calls), []
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

    async def _decide(self, moment: TurnState, actor: Actor) -> Decision:
        answer = await self._voices.ask(
            actor.short_name,
            "decision",
            model=talks.model_of(actor),
            system=moment.system(actor),
            prompt=moment.prompt("decision", actor),
            turn=moment.turn,
        )
        said = sections(answer, _DECISION)
        return Decision(
            # Who ignores the headings has still said what it does.
            action=said.get("ACTION") or unlabelled(answer, _DECISION) or NO_ACTION,
            reasoning=said.get("REASONING", ""),
            long_term_goals=said.get("LONG-TERM GOALS", ""),
            short_term_priorities=said.get("SHORT-TERM PRIORITIES", ""),
            statement=said.get("STATEMENT", "") if moment.scenario.enable_public_statements else "",
        )

    def _happening(self, past: Sequence[ScenarioTurn], turn: int) -> list[str]:
        latest: dict[str, Value] = measuring.at_start(self._scenario)
        for one in past:
            latest |= {name: value for name, value in one.metrics.items() if value is not None}
        before = [name for one in past for name in one.events]
        return happening(self._scenario.events, turn=turn, seed=self._seed, metrics=latest, before=before)

    async def _narrate(
        self, moment: TurnState, decisions: dict[str, Decision], happened: Sequence[str]
    ) -> dict[str, str]:
        scenario = self._scenario
        wanted = [
            f"{name} ({measure.description})" if measure.description else name
            for name, measure in scenario.metrics.items()
            if measure.method == "regex" and not measure.actor_specific and not measure.actor
        ]
        answer = await self._voices.ask(
            "narrator",
            "world state",
            model=scenario.world_state_model,
            system=self._prompts.render("narrator_system", scenario=scenario),
            prompt=self._prompts.render(
                "narrator",
                scenario=scenario,
                turn=moment.turn,
                summary=moment.summary,
                world_state=moment.world_state,
                decisions=decisions,
                events=[(name, scenario.events[name]) for name in happened],
                wanted=", ".join(wanted),
            ),
            turn=moment.turn,
        )
        said = sections(answer, _WORLD)
        return {
            **dict.fromkeys(_WORLD, ""),
            **said,
            "UPDATED STATE": said.get("UPDATED STATE") or answer.strip(),
        }

    async def _checked(self, turn: ScenarioTurn, before: str) -> ScenarioTurn:
        rules = self._scenario.validation
        met = bool(self._scenario.stop_when) and all_hold(self._scenario.stop_when, turn.metrics)
        is_last = met or turn.number >= self._scenario.turns
        if rules is None or not (rules.run_after_each_turn or (rules.run_at_scenario_end and is_last)):
            return turn
        found = await validation.check_turn(self._scenario, self._prompts, self._voices, turn, before)
        return replace(turn, issues=found.issues, checks_run=found.run, checks_unread=found.unread)
