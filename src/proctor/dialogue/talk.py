"""A conversation from its first word to its last, with a moderator who opens, reminds and ends it.

One turn is something said by the side that opens and the other's answer. Either side can end; the
moderator ends after the last turn, and when both sides go round in circles.

Knows nothing of models, records or prompts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from proctor.dialogue import moderator
from proctor.dialogue.party import Moment, Party, Utterance
from proctor.dialogue.repetition import repeating
from proctor.dialogue.role import CLIENT, THERAPIST
from proctor.dialogue.steps import speak

MAX_TURNS, LOOP = "max_turns", "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a conversation is to go."""

    max_turns: int
    reminder_turns: int = 2
    """When so many turns or fewer are left, the side that opens is told. 0: never."""
    loop_turns: int = 3
    """After so many equal rounds it is ended. 0: never."""
    opens: str = THERAPIST
    language: str = "en"
    """What the moderator speaks."""


@dataclass(slots=True)
class Talk:
    """What has been said, and why it ended. Filled while it goes on, so that a cut one is kept."""

    history: list[Utterance] = field(default_factory=list)
    turns: int = 0
    end_reason: str = ""
    ended_by: str = ""
    """`client`, `therapist` or `moderator`; empty while it goes on."""

    def end(self, reason: str, by: str) -> None:
        """Say why it is over."""
        self.end_reason, self.ended_by = reason, by


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told what happens, as it happens."""

    said: Callable[[Utterance], None]
    moderated: Callable[[str], None]
    turned: Callable[[int], None]


async def converse(parties: dict[str, Party], course: Course, watcher: Watcher, talk: Talk) -> None:
    """Let two parties talk until one of them, or the moderator, ends it; on from where `talk` stands."""
    first, second = (CLIENT, THERAPIST) if course.opens == CLIENT else (THERAPIST, CLIENT)
    heard = _taken_up(course, watcher, talk) if talk.turns else _opened(course, watcher)
    while not talk.end_reason:
        answered = await _say(parties[first], heard, course, watcher, talk)
        if talk.end_reason:
            break
        answered = await _say(parties[second], answered, course, watcher, talk)
        if talk.end_reason and not answered:
            break
        talk.turns += 1
        watcher.turned(talk.turns)
        heard = _taken_up(course, watcher, talk)


def _opened(course: Course, watcher: Watcher) -> str:
    words = moderator.opening(course.language)
    watcher.moderated(words)
    return words


def _taken_up(course: Course, watcher: Watcher, talk: Talk) -> str:
    """What the side that opens hears behind a finished turn."""
    if not talk.end_reason:
        _moderate(course, talk)
    heard = talk.history[-1].text
    if note := _reminder(course, talk):
        watcher.moderated(note)
        heard = f"{heard}\n{note}"
    return heard


async def _say(party: Party, heard: str, course: Course, watcher: Watcher, talk: Talk) -> str:
    turn = talk.turns + 1
    moment = Moment(heard=heard, history=talk.history, turn=turn, turns_left=course.max_turns - talk.turns)
    reply = await speak(party, moment)
    if reply.text:
        said = Utterance(side=party.side, text=reply.text)
        talk.history.append(said)
        watcher.said(said)
    if reply.ends:
        reason = f"{party.side}_ended" if reply.ends == "ended" else f"{party.side}_{reply.ends}"
        talk.end(reason, party.side)
    return reply.text


def _moderate(course: Course, talk: Talk) -> None:
    if repeating(talk.history, course.loop_turns):
        talk.end(LOOP, "moderator")
    elif talk.turns >= course.max_turns:
        talk.end(MAX_TURNS, "moderator")


def _reminder(course: Course, talk: Talk) -> str:
    left = course.max_turns - talk.turns
    if talk.end_reason or not 0 < left <= course.reminder_turns:
        return ""
    return moderator.reminder(course.language, left)
