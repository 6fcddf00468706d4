"""The context of an actor: world state, the last turns in full, a summary of older ones, its private talks.

Public information is in every actor's context, a private talk only in that of its participants. Decisions of
the current turn are in no context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.scenario.definition import Actor, Scenario
from proctor.scenario.prompts import Prompts, ScenarioModels
from proctor.scenario.state import Decision, PrivateTalk, ScenarioTurn

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
        """The world state before this turn."""
        return self.past[-1].world_state if self.past else self.scenario.initial_world_state

    def system(self, actor: Actor) -> str:
        """The system prompt of an actor."""
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


CHARACTERS_PER_TOKEN = 4
"""An approximation; only providers count exactly."""


async def begin_turn(
    scenario: Scenario, prompts: Prompts, models: ScenarioModels, past: Sequence[ScenarioTurn]
) -> TurnState:
    """State of the turn after `past`; turns that leave the context window are summarized."""
    last = past[-1] if past else None
    state = TurnState(
        scenario=scenario,
        prompts=prompts,
        past=past,
        summary=last.summary if last else "",
        summarised=last.summarised if last else 0,
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
