"""What an actor has before its eyes: the world, the last turns in full, older ones in short, its own talks.

Public things are told to all, private talks to those who held them. What others decide in this turn
is in nobody's context, and a talk of this turn is in that of everyone who held it.

Knows nothing of models.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.scenario.definition import Actor, Scenario
from proctor.scenario.prompts import Prompts
from proctor.scenario.state import Decision, Talk, Turn

REMEMBERED_GOALS = 2
"""Turns of its own goals that an actor is reminded of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where a run stands while a turn is under way."""

    scenario: Scenario
    prompts: Prompts
    past: Sequence[Turn]
    talks: list[Talk] = field(default_factory=list)
    """Of this turn; grows while they are held."""
    summary: str = ""
    """Of the turns that are no longer told in full."""
    summarised: int = 0
    """How many those are."""

    @property
    def recent(self) -> Sequence[Turn]:
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

    def _seen_by(self, short: str, number: int, talk: Talk) -> dict[str, Any]:
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
