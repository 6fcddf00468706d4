"""What an actor has before its eyes: the world, the last turns in full, older ones in short, its own talks.

Public things are told to all, private talks to those who held them. What others decide in this turn
is in nobody's context, and a talk of this turn is in that of everyone who held it.

Knows nothing of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.scenario.definition import Actor, Scenario
from proctor.scenario.prompts import Prompts, ScenarioModels
from proctor.scenario.state import Decision, PrivateTalk, ScenarioTurn

REMEMBERED_GOALS = 2
"""Turns of its own goals that an actor is reminded of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """Where a run stands while a turn is under way."""

    scenario: Scenario
    prompts: Prompts
    past: Sequence[ScenarioTurn]
    talks: list[PrivateTalk] = field(default_factory=list)
    """Of this turn; grows while they are held."""
    summary: str = ""
    """Of the turns that are no longer told in full."""
    summarised: int = 0
    """How many those are."""

    @property
    def recent(self) -> Sequence[ScenarioTurn]:
        """The turns that are told in full."""
        return self.past[self.summarised :]

    @property
    def turn(self) -> int:
        """The number of the turn under way."""
        return len(self.past) + 1

    @property
    def world_state(self) -> str:
        """As it is before this turn."""
        return self.past[-1].world_state if self.past else self.scenario.initial_world_state

    def system(self, actor: Actor) -> str:
        """Who an actor is, in its own eyes."""
        return self.prompts.render("actor", scenario=self.scenario, actor=actor)

    def history(self, actor: Actor) -> str:
        """What an actor knows at this moment."""
        return self.prompts.render(
            "history",
            scenario=self.scenario,
            turn=self.turn,
            summary=self.summary,
            recent=self.recent,
            world_state=self.world_state,
            talks=self._talks_of(actor.short_name),
            goals=self._goals_of(actor.short_name),
        )

    def prompt(self, template: str, actor: Actor, **values: Any) -> str:
        """One of the questions an actor is asked, with all it knows."""
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
        return [self._seen_by(short, number, talk) for number, talk in dated if short in talk.participants]

    def _seen_by(self, short: str, number: int, talk: PrivateTalk) -> dict[str, Any]:
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
        return [(n, made) for n, made in own if made.long_term_goals or made.short_term_priorities][
            -REMEMBERED_GOALS:
        ]


# What is told of earlier turns: the last ones in full, those before in short.


CHARACTERS_PER_TOKEN = 4
"""About right for the models and languages we know; whoever counts exactly is a provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RememberedMessage:
    summary: str
    summarised: int


async def remember(
    scenario: Scenario, prompts: Prompts, voices: ScenarioModels, past: Sequence[ScenarioTurn]
) -> TurnState:
    """Where a run stands behind these turns, with what has left the window put in short."""
    last = past[-1] if past else None
    moment = _moment(
        scenario,
        prompts,
        past,
        _RememberedMessage(summary=last.summary, summarised=last.summarised) if last else None,
    )
    while _must_leave(moment):
        leaving = past[moment.summarised]
        summary = await voices.ask(
            "summary",
            "summary",
            model=scenario.summarization_model or scenario.world_state_model,
            prompt=prompts.render("summary", scenario=scenario, summary=moment.summary, leaving=leaving),
            turn=moment.turn,
            about=str(leaving.number),
        )
        kept = _RememberedMessage(summary=summary, summarised=moment.summarised + 1)
        moment = _moment(scenario, prompts, past, kept)
    return moment


def _moment(
    scenario: Scenario, prompts: Prompts, past: Sequence[ScenarioTurn], kept: _RememberedMessage | None
) -> TurnState:
    kept = kept or _RememberedMessage(summary="", summarised=0)
    return TurnState(
        scenario=scenario, prompts=prompts, past=past, summary=kept.summary, summarised=kept.summarised
    )


def _must_leave(moment: TurnState) -> bool:
    """Whether the oldest turn that is told in full can be so no longer."""
    in_full = len(moment.past) - moment.summarised
    if in_full > moment.scenario.context_window_size:
        return True
    most = moment.scenario.max_context_tokens
    return most is not None and in_full > 0 and _largest(moment) > most


def _largest(moment: TurnState) -> int:
    """The tokens of what the actor who is told most is going to be told, about."""
    told = (
        len(moment.system(actor)) + len(moment.prompt("decision", actor))
        for actor in moment.scenario.actors.values()
    )
    return max(told) // CHARACTERS_PER_TOKEN + 1
