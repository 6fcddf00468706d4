"""What is told of earlier turns: the last ones in full, those before in short.

A turn leaves the window when it is older than the scenario's window, and sooner when someone's context
would pass the scenario's number of tokens. The state of the world and who an actor is are told whatever
they take.

Knows nothing of decisions or of the world.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.scenario.context import Moment
from proctor.scenario.definition import Scenario
from proctor.scenario.prompts import Prompts
from proctor.scenario.state import Turn
from proctor.scenario.voices import Voices

CHARACTERS_PER_TOKEN = 4
"""About right for the models and languages we know; whoever counts exactly is a provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    summary: str
    summarised: int


async def remember(scenario: Scenario, prompts: Prompts, voices: Voices, past: Sequence[Turn]) -> Moment:
    """Where a run stands behind these turns, with what has left the window put in short."""
    last = past[-1] if past else None
    moment = _moment(
        scenario, prompts, past, _Kept(summary=last.summary, summarised=last.summarised) if last else None
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
        kept = _Kept(summary=summary, summarised=moment.summarised + 1)
        moment = _moment(scenario, prompts, past, kept)
    return moment


def _moment(scenario: Scenario, prompts: Prompts, past: Sequence[Turn], kept: _Kept | None) -> Moment:
    kept = kept or _Kept(summary="", summarised=0)
    return Moment(
        scenario=scenario, prompts=prompts, past=past, summary=kept.summary, summarised=kept.summarised
    )


def _must_leave(moment: Moment) -> bool:
    """Whether the oldest turn that is told in full can be so no longer."""
    in_full = len(moment.past) - moment.summarised
    if in_full > moment.scenario.context_window_size:
        return True
    most = moment.scenario.max_context_tokens
    return most is not None and in_full > 0 and _largest(moment) > most


def _largest(moment: Moment) -> int:
    """The tokens of what the actor who is told most is going to be told, about."""
    told = (
        len(moment.system(actor)) + len(moment.prompt("decision", actor))
        for actor in moment.scenario.actors.values()
    )
    return max(told) // CHARACTERS_PER_TOKEN + 1
