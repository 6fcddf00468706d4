"""Run a scenario, turn by turn.

A turn consists of private talks, simultaneous decisions, events, rules, the narrator's new world state,
metrics and checks. An unfinished turn leaves nothing behind but its cost.

Public information is in every actor's prompts, a private talk only in those of its participants. Decisions of
the current turn are in none.
"""

import operator
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.evaluators.answer_parser import is_yes, listed, sections, unlabeled
from proctor.model_client import together
from proctor.patterns import compile_pattern
from proctor.scenario import metrics as measuring
from proctor.scenario import validation
from proctor.scenario.definition import (
    CONDITION,
    Actor,
    Room,
    Scenario,
    ScenarioEvent,
    TextCondition,
    comparisons_of,
)
from proctor.scenario.prompts import HUMAN, Prompts, ScenarioModels
from proctor.scenario.state import Decision, PrivateTalk, ScenarioRun, ScenarioTurn, Value
from proctor.scenario.world import SET, ScenarioWorld, WorldUpdate
from proctor.session import CHARACTERS_PER_TOKEN, Invalid

REMEMBERED_GOALS = 2
"""Number of turns whose goals are repeated to an actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """State of a run during one turn."""

    scenario: Scenario
    prompts: Prompts
    past: Sequence[ScenarioTurn]
    talks: list[PrivateTalk] = field(default_factory=list)
    """Talks of this turn; grows as they take place."""
    summary: str = ""
    """Summary of the turns that have left the context window."""
    summarised: int = 0
    """Number of these turns."""
    variables: Mapping[str, Value] = field(default_factory=dict)
    """Variables of the world before this turn."""
    world: ScenarioWorld | None = None
    """None: the scenario has no variables."""

    @property
    def recent(self) -> Sequence[ScenarioTurn]:
        """The turns in the context window."""
        return self.past[self.summarised :]

    @property
    def turn(self) -> int:
        """The number of the current turn."""
        return len(self.past) + 1

    @property
    def world_state(self) -> str:
        return self.past[-1].world_state if self.past else self.scenario.initial_world_state

    def system(self, actor: Actor) -> str:
        return self.prompts.render("actor", scenario=self.scenario, actor=actor)

    def history(self, actor: Actor) -> str:
        """The information an actor has at this moment."""
        return self.prompts.render(
            "history",
            scenario=self.scenario,
            turn=self.turn,
            summary=self.summary,
            recent=self.recent,
            world_state=self.world_state,
            talks=self._talks_of(actor.short_name),
            goals=self._goals_of(actor.short_name),
            variables=self.world.visible(self.variables, actor) if self.world else (),
        )

    def prompt(self, template: str, actor: Actor, **values: Any) -> str:
        """A prompt to an actor, with its context."""
        return self.prompts.render(
            template,
            scenario=self.scenario,
            turn=self.turn,
            actor=actor,
            history=self.history(actor),
            **values,
        )

    def _talks_of(self, short: str) -> list[dict[str, Any]]:
        dated = [(past.number, talk) for past in self.recent for talk in past.talks]
        dated += [(self.turn, talk) for talk in self.talks]
        return [self._talk_for(short, number, talk) for number, talk in dated if short in talk.participants]

    def _talk_for(self, short: str, number: int, talk: PrivateTalk) -> dict[str, Any]:
        names = {other.short_name: other.name for other in self.scenario.actors.values()}
        return {
            "turn": number,
            "kind": f"{talk.kind} talk",
            "others": ", ".join(names[other] for other in talk.participants if other != short),
            "purpose": talk.purpose,
            "outcome": talk.outcome,
            "messages": [(names[who], text) for who, text in talk.messages],
            "note": talk.notes.get(short, ""),
        }

    def _goals_of(self, short: str) -> list[tuple[int, Decision]]:
        own = [(past.number, past.decisions[short]) for past in self.past if short in past.decisions]
        return [
            (n, decision) for n, decision in own if decision.long_term_goals or decision.short_term_priorities
        ][-REMEMBERED_GOALS:]


async def begin_turn(
    scenario: Scenario,
    prompts: Prompts,
    models: ScenarioModels,
    past: Sequence[ScenarioTurn],
    world: ScenarioWorld | None = None,
) -> TurnState:
    """State of the turn after `past`; turns that leave the context window are summarized."""
    last = past[-1] if past else None
    state = TurnState(
        scenario=scenario,
        prompts=prompts,
        past=past,
        summary=last.summary if last else "",
        summarised=last.summarised if last else 0,
        variables=last.variables if last else world.initial() if world else {},
        world=world,
    )
    while _exceeds_window(state):
        leaving = past[state.summarised]
        summary = await models.ask(
            "summary",
            "summary",
            model=scenario.summarization_model or scenario.world_state_model,
            prompt=prompts.render("summary", scenario=scenario, summary=state.summary, leaving=leaving),
            turn=state.turn,
            about=str(leaving.number),
            whole=True,
        )
        state = replace(state, summary=summary, summarised=state.summarised + 1)
    return state


def _exceeds_window(state: TurnState) -> bool:
    """Whether the oldest turn has to leave the context window."""
    in_full = len(state.past) - state.summarised
    if in_full > state.scenario.context_window_size:
        return True
    most = state.scenario.max_context_tokens
    return most is not None and in_full > 0 and _largest(state) > most


def _largest(state: TurnState) -> int:
    """Approximate number of tokens of the longest prompt to an actor."""
    lengths = (
        len(state.system(actor)) + len(state.prompt("decision", actor))
        for actor in state.scenario.actors.values()
    )
    return max(lengths) // CHARACTERS_PER_TOKEN + 1


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
    """Whether a value satisfies a condition such as `>= 7`, `== true`, `!= war` or `> 3 and < 7`."""
    return all(_satisfies(comparison, value) for comparison in comparisons_of(condition))


def _satisfies(comparison: str, value: Value) -> bool:
    match = CONDITION.fullmatch(comparison.strip())
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
    world_state: str = "",
) -> list[str]:
    """The names of the events of this turn; `before` are those of earlier turns."""
    occurred = set(before)

    def occurs(name: str, event: ScenarioEvent) -> bool:
        first, last = event.turn_range or (1, turn)
        if not first <= turn <= last or (event.once and name in occurred):
            return False
        if event.type == "scheduled":
            return turn == event.turn or turn in event.turns
        if event.type == "conditional":
            return all_hold(event.conditions, metrics) and all(
                _contains(world_state, condition) for condition in event.world_state_contains
            )
        if event.type == "trend" and (turn - first) % event.frequency:
            return False
        probability = event.probability
        if probability is None:
            return event.type == "trend"
        return random.Random(f"{seed}|{turn}|{name}").random() < probability

    return [name for name, event in events.items() if occurs(name, event)]


_PARAGRAPHS = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+#]|\d+[.)]))")


def _contains(text: str, condition: TextCondition) -> bool:
    """Whether both patterns of a condition match in one paragraph or list entry of a text."""
    texts = [condition.pattern, *filter(None, [condition.sensitivity])]
    patterns = [compile_pattern(text, re.IGNORECASE) for text in texts]
    return any(
        all(pattern.search(paragraph) for pattern in patterns)
        for paragraph in _PARAGRAPHS.split(text[: measuring.LONGEST_TEXT])
    )


_DECISION = ("LONG-TERM GOALS", "SHORT-TERM PRIORITIES", "REASONING", "STATEMENT", "ACTION")
NO_ACTION = "(no action)"
DECISION_TRIES = 2
"""Requests for a decision, until it sets every variable that it should."""
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
        self._world = ScenarioWorld(scenario) if scenario.variables else None

    async def turn(self, past: Sequence[ScenarioTurn]) -> ScenarioTurn:
        """Run the turn after `past`."""
        scenario, models, started = self._scenario, self._models, self._now()
        state = await begin_turn(scenario, self._prompts, models, past, self._world)
        await hold_talks(state, models)
        actors = list(scenario.actors.values())
        results = await together([self._decide(state, actor) for actor in actors])
        decisions = {actor.short_name: result[0] for actor, result in zip(actors, results, strict=True)}
        latest = self._latest(past)
        events = self._events(past, state, latest)
        update = WorldUpdate(values={})
        if self._world:
            settings = {actor.short_name: result[1] for actor, result in zip(actors, results, strict=True)}
            update = self._world.update(
                state.variables,
                settings=settings,
                metrics=latest,
                events=events,
                turn=state.turn,
                seed=self._seed,
            )
        world = await self._narrate(state, decisions, events, update)
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
            metrics={**metrics, **update.values},
            variables=update.values,
            notes=update.notes,
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

    async def _decide(self, state: TurnState, actor: Actor) -> tuple[Decision, Mapping[str, Value]]:
        """What an actor does, and the variables that it sets."""
        settable = self._world.settable(actor, state.variables) if self._world else []
        prompt, labels = state.prompt("decision", actor), list(_DECISION)
        if settable:
            prompt += "\n\n" + self._prompts.render("set_variables", settable=settable, actor=actor)
            labels.append(SET)
        answer, values = "", dict[str, Value]()
        for attempt in range(1 if actor.control == "human" else DECISION_TRIES):
            if attempt:
                self._models.record(Invalid(kind="regenerated_answers"))
            answer = await self._models.ask(
                actor.short_name,
                "decision",
                model=model_of(actor),
                system=state.system(actor),
                prompt=prompt,
                turn=state.turn,
                about=f"try {attempt + 1}" if attempt else "",
            )
            values = self._world.read_settings(actor, answer) if self._world else {}
            if len([value for value in values.values() if value is not None]) == len(settable):
                break
        else:
            self._models.record(Invalid(kind="invalid_decisions"))
        fields = sections(answer, labels)
        decision = Decision(
            # An answer without headings is the action.
            action=fields.get("ACTION") or unlabeled(answer, labels) or NO_ACTION,
            reasoning=fields.get("REASONING", ""),
            long_term_goals=fields.get("LONG-TERM GOALS", ""),
            short_term_priorities=fields.get("SHORT-TERM PRIORITIES", ""),
            statement=fields.get("STATEMENT", "") if state.scenario.enable_public_statements else "",
        )
        return decision, values

    def _latest(self, past: Sequence[ScenarioTurn]) -> dict[str, Value]:
        """The latest known value of each metric and variable before a turn."""
        latest: dict[str, Value] = measuring.at_start(self._scenario)
        if self._world:
            latest |= self._world.initial()
        for turn in past:
            latest |= {name: value for name, value in turn.metrics.items() if value is not None}
        return latest

    def _events(
        self, past: Sequence[ScenarioTurn], state: TurnState, latest: Mapping[str, Value]
    ) -> list[str]:
        before = [name for one in past for name in one.events]
        return events_of_turn(
            self._scenario.events,
            turn=state.turn,
            seed=self._seed,
            metrics=latest,
            before=before,
            world_state=state.world_state,
        )

    async def _narrate(
        self, state: TurnState, decisions: dict[str, Decision], events: Sequence[str], update: WorldUpdate
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
                events=[
                    (name, replace(event, description=event.text_in(state.turn)))
                    for name, event in ((name, scenario.events[name]) for name in events)
                ],
                wanted=", ".join(expected),
                variables=self._world.visible(update.values) if self._world else (),
            ),
            turn=state.turn,
            whole=True,
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


_OPENING = ("INITIATE_BILATERAL", "TARGET_ACTOR", "PROPOSED_MESSAGE", "REASONING")
_REPLY = ("RESPONSE", "INTERNAL_NOTES")
NO_ANSWER = "(no answer)"
_IN_ROOM = ("SAY", "INTERNAL_NOTES")
_PASS = re.compile(r"\W*pass(?:es)?\W*", re.IGNORECASE)
_PROPOSAL = ("PROPOSE_COALITION", "COALITION_MEMBERS", "COALITION_PURPOSE", "REASONING")


def model_of(actor: Actor) -> str:
    """The model, or person, that plays an actor."""
    return HUMAN + actor.short_name if actor.control == "human" else actor.llm_model


async def hold_talks(state: TurnState, models: ScenarioModels) -> None:
    """Run all private talks and coalitions of a turn; they are added to `state.talks`."""
    scenario = state.scenario
    if scenario.enable_bilateral_communication and len(scenario.actors) > 1:
        for actor in scenario.actors.values():
            for number in range(scenario.max_communications_per_turn):
                if not await _open_talk(state, models, actor, number):
                    break
    # With two actors, a coalition is the same as a private talk.
    if scenario.enable_coalition_formation and len(scenario.actors) > 2:
        for actor in scenario.actors.values():
            await _propose(state, models, actor)
    for name, room in scenario.rooms.items():
        first, last = room.turn_range or (1, state.turn)
        if first <= state.turn <= last:
            await _meet(state, models, name, room)


async def _meet(state: TurnState, models: ScenarioModels, name: str, room: Room) -> None:
    """Let the members of a room speak in turn, until all pass or the rounds are over."""
    members = [state.scenario.actors[short] for short in room.members or state.scenario.actors]
    messages: list[tuple[str, str]] = []
    notes: dict[str, str] = {}
    for number in range(room.rounds):
        has_spoken = False
        for actor in members:
            answer = await _ask_member(
                state,
                models,
                actor,
                ("word in a room", "room"),
                members,
                purpose=room.description.strip(),
                messages=messages,
                about=f"{name} {number}",
            )
            fields = sections(answer, _IN_ROOM)
            message = fields.get("SAY") or unlabeled(answer, _IN_ROOM)
            if note := fields.get("INTERNAL_NOTES", ""):
                notes[actor.short_name] = (
                    f"{notes[actor.short_name]}\n{note}" if actor.short_name in notes else note
                )
            if message and not _PASS.fullmatch(message):
                messages.append((actor.short_name, message))
                has_spoken = True
        if not has_spoken:
            break
    participants = tuple(member.short_name for member in members)
    state.talks.append(
        PrivateTalk(
            kind="room", participants=participants, messages=tuple(messages), purpose=name, notes=notes
        )
    )


async def _open_talk(state: TurnState, models: ScenarioModels, actor: Actor, number: int) -> bool:
    others = _others(state, actor)
    opening = await models.ask(
        actor.short_name,
        "private talk",
        model=model_of(actor),
        system=state.system(actor),
        prompt=state.prompt("bilateral", actor, others=others),
        turn=state.turn,
        about=str(number),
    )
    fields = sections(opening, _OPENING)
    target = _find(others, fields.get("TARGET_ACTOR", ""))
    message = fields.get("PROPOSED_MESSAGE", "")
    if not is_yes(fields.get("INITIATE_BILATERAL", "")) or target is None or not message:
        return False
    answer = await models.ask(
        target.short_name,
        "answer in a private talk",
        model=model_of(target),
        system=state.system(target),
        prompt=state.prompt("bilateral_reply", target, sender=actor, message=message),
        turn=state.turn,
        about=f"{actor.short_name} {number}",
    )
    reply = sections(answer, _REPLY)
    response = reply.get("RESPONSE") or unlabeled(answer, _REPLY) or NO_ANSWER
    notes = {
        actor.short_name: fields.get("REASONING", ""),
        target.short_name: reply.get("INTERNAL_NOTES", ""),
    }
    state.talks.append(
        PrivateTalk(
            kind="bilateral",
            participants=(actor.short_name, target.short_name),
            messages=((actor.short_name, message), (target.short_name, response)),
            notes={who: note for who, note in notes.items() if note},
        )
    )
    return True


async def _propose(state: TurnState, models: ScenarioModels, actor: Actor) -> None:
    members = {who for talk in state.talks if talk.outcome == "formed" for who in talk.participants}
    others = [other for other in _others(state, actor) if other.short_name not in members]
    if actor.short_name in members or len(others) < 2:
        return
    answer = await models.ask(
        actor.short_name,
        "coalition",
        model=model_of(actor),
        system=state.system(actor),
        prompt=state.prompt("coalition", actor, others=others),
        turn=state.turn,
    )
    proposal = sections(answer, _PROPOSAL)
    named = [_find(others, name) for name in listed(proposal.get("COALITION_MEMBERS", ""))]
    invited = list({other.short_name: other for other in named if other is not None}.values())
    if not is_yes(proposal.get("PROPOSE_COALITION", "")) or not invited:
        return
    await _form(state, models, actor, invited, proposal.get("COALITION_PURPOSE", ""))


async def _form(
    state: TurnState, models: ScenarioModels, actor: Actor, invited: list[Actor], purpose: str
) -> None:
    members = [actor, *invited]
    stated = purpose or "not said"
    agreed = True
    for member in invited:
        answer = await _ask_member(
            state,
            models,
            member,
            ("answer to a coalition", "coalition_answer"),
            members,
            purpose=stated,
            about=actor.short_name,
            sender=actor,
        )
        agreed = is_yes(sections(answer, ("DECISION", "REASONING")).get("DECISION", "")) and agreed
    messages: list[tuple[str, str]] = []
    for member in members if agreed else ():
        message = await _ask_member(
            state,
            models,
            member,
            ("word to a coalition", "coalition_message"),
            members,
            purpose=stated,
            messages=messages,
            about=actor.short_name,
        )
        messages.append((member.short_name, message.strip()))
    state.talks.append(
        PrivateTalk(
            kind="coalition",
            participants=tuple(member.short_name for member in members),
            messages=tuple(messages),
            purpose=purpose,
            outcome="formed" if agreed else "rejected",
        )
    )


async def _ask_member(
    state: TurnState,
    models: ScenarioModels,
    member: Actor,
    call: tuple[str, str],
    members: Sequence[Actor],
    *,
    purpose: str,
    about: str,
    messages: Sequence[tuple[str, str]] = (),
    **values: object,
) -> str:
    """The answer of a member of a room or a coalition; `call` is the name of the call and its template."""
    name, template = call
    return await models.ask(
        member.short_name,
        name,
        model=model_of(member),
        system=state.system(member),
        prompt=state.prompt(
            template,
            member,
            members=", ".join(each.name for each in members),
            purpose=purpose,
            messages=[(state.scenario.actors[who].name, text) for who, text in messages],
            **values,
        ),
        turn=state.turn,
        about=about,
    )


def _others(state: TurnState, actor: Actor) -> list[Actor]:
    return [other for other in state.scenario.actors.values() if other is not actor]


def _find(actors: list[Actor], written: str) -> Actor | None:
    """The actor that a model names, by short name or name, with any markup around it."""
    name = written.strip().strip("*_`\"'.[]() ").lower()
    for actor in actors:
        if name in (actor.short_name.lower(), actor.name.lower()):
            return actor
    matches = [a for a in actors if a.short_name.lower() in name.split() or a.name.lower() in name]
    return matches[0] if len(matches) == 1 else None
