"""A conversation from its first word to its last, with a moderator who opens, reminds and ends it.

One turn is something said by the side that opens and the other's answer. Either side can end; the
moderator ends after the last turn, and when both sides go round in circles.

Knows nothing of models, records or prompts.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.dialogue.participant import (
    CLIENT,
    MARK,
    SIDES,
    THERAPIST,
    ConversationState,
    Participant,
    Utterance,
)
from proctor.dialogue.steps import speak
from proctor.model_client import ClientTotals

# A conversation as it stood behind its last finished turn, so that one that was cut off can go on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one side has kept."""

    state: Mapping[str, Any]
    usage: ClientTotals
    """What it has used so far, as its seat counts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCheckpoint:
    """What has to be known behind a turn besides what was said."""

    turns: int
    seed: int
    sides: Mapping[str, Side]
    end_reason: str = ""
    ended_by: str = ""

    def written(self) -> str:
        """As one line of JSON."""
        sides = {name: {"state": side.state, "usage": side.usage} for name, side in self.sides.items()}
        return json.dumps(
            {
                "turn": self.turns,
                "seed": self.seed,
                "sides": sides,
                "end_reason": self.end_reason,
                "ended_by": self.ended_by,
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that a conversation goes on from."""

    item_id: str
    standing: ConversationCheckpoint
    messages: Sequence[Mapping[str, str]]
    """Everything said until then, by whom and in what role, the moderator's and instructions included."""
    metrics: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """What was measured at each turn: name, value, step."""

    def document(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "item_id": self.item_id,
            "standing": self.standing.written(),
            "messages": list(self.messages),
            "metrics": list(self.metrics),
        }


def checkpoint_of(document: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of its document. Raises `ValueError`, `KeyError` or `TypeError` when it is none."""
    return Checkpoint(
        item_id=document["item_id"],
        standing=standing_of(document["standing"]),
        messages=document["messages"],
        metrics=document["metrics"],
    )


def standing_of(written: str) -> ConversationCheckpoint:
    """What was written behind a turn. Raises `ValueError`, `KeyError` or `TypeError` for anything else."""
    plain = json.loads(written)
    return ConversationCheckpoint(
        turns=plain["turn"],
        seed=plain["seed"],
        sides={name: Side(state=side["state"], usage=side["usage"]) for name, side in plain["sides"].items()},
        end_reason=plain["end_reason"],
        ended_by=plain["ended_by"],
    )


def can_be_kept(state: Mapping[str, Any]) -> bool:
    """Whether a state comes back from JSON as it was."""
    if not state:
        return True
    try:
        return bool(json.loads(json.dumps(state)) == state)
    except (TypeError, ValueError):
        return False


# What the moderator of a dialogue says, in the language of the session.


@dataclass(frozen=True, slots=True)
class _Words:
    opening: str
    one_left: str
    some_left: str


_ENGLISH = _Words(
    opening="You may start the session now.",
    one_left="1 turn is left in this session. Please begin to bring it to a close.",
    some_left="{left} turns are left in this session. Please begin to bring it to a close.",
)


_IN: Mapping[str, _Words] = {
    "en": _ENGLISH,
    "de": _Words(
        opening="Sie können jetzt mit der Sitzung beginnen.",
        one_left="In dieser Sitzung bleibt noch 1 Runde. Bitte kommen Sie allmählich zum Schluss.",
        some_left="In dieser Sitzung bleiben noch {left} Runden. Bitte kommen Sie allmählich zum Schluss.",
    ),
    "zh": _Words(
        opening="现在可以开始了。",
        one_left="本次会谈还剩 1 轮，请开始收尾。",
        some_left="本次会谈还剩 {left} 轮，请开始收尾。",
    ),
}


def opening(language: str) -> str:
    """What is said to the side that opens."""
    return f"{MARK} {_words(language).opening}"


def reminder(language: str, left: int) -> str:
    """What is said when so many turns are left."""
    words = _words(language)
    return f"{MARK} {words.one_left if left == 1 else words.some_left.format(left=left)}"


def _words(language: str) -> _Words:
    return _IN.get(language) or _IN.get(language.partition("-")[0]) or _ENGLISH


# Notice when a conversation goes round in circles.


LONGEST_CIRCLE = 2
"""Turns a circle may have: two people who say the same two things in turn."""


def repeating(history: Sequence[Utterance], rounds: int) -> tuple[str, ...]:
    """The sides that repeat themselves, when both do; empty when the conversation still moves.

    Both must have said the same `rounds` times on end, or gone through the same two things so often.
    """
    if rounds < 2:
        return ()
    circling = tuple(side for side in SIDES if _circles(_of(history, side), rounds))
    return circling if len(circling) == len(SIDES) else ()


def _of(history: Sequence[Utterance], side: str) -> list[str]:
    return [_bare(said.text) for said in history if said.side == side]


def _circles(said: list[str], rounds: int) -> bool:
    for length in range(1, LONGEST_CIRCLE + 1):
        last = said[-length * rounds :]
        if len(last) == length * rounds and last == last[:length] * rounds:
            return True
    return False


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold())) or text


MAX_TURNS, LOOP = "max_turns", "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
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
class Conversation:
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


async def converse(
    parties: dict[str, Participant], course: ConversationSettings, watcher: Watcher, talk: Conversation
) -> None:
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


def _opened(course: ConversationSettings, watcher: Watcher) -> str:
    words = opening(course.language)
    watcher.moderated(words)
    return words


def _taken_up(course: ConversationSettings, watcher: Watcher, talk: Conversation) -> str:
    """What the side that opens hears behind a finished turn."""
    if not talk.end_reason:
        _moderate(course, talk)
    heard = talk.history[-1].text
    if note := _reminder(course, talk):
        watcher.moderated(note)
        heard = f"{heard}\n{note}"
    return heard


async def _say(
    party: Participant, heard: str, course: ConversationSettings, watcher: Watcher, talk: Conversation
) -> str:
    turn = talk.turns + 1
    moment = ConversationState(
        heard=heard, history=talk.history, turn=turn, turns_left=course.max_turns - talk.turns
    )
    reply = await speak(party, moment)
    if reply.text:
        said = Utterance(side=party.side, text=reply.text)
        talk.history.append(said)
        watcher.said(said)
    if reply.ends:
        reason = f"{party.side}_ended" if reply.ends == "ended" else f"{party.side}_{reply.ends}"
        talk.end(reason, party.side)
    return reply.text


def _moderate(course: ConversationSettings, talk: Conversation) -> None:
    if repeating(talk.history, course.loop_turns):
        talk.end(LOOP, "moderator")
    elif talk.turns >= course.max_turns:
        talk.end(MAX_TURNS, "moderator")


def _reminder(course: ConversationSettings, talk: Conversation) -> str:
    left = course.max_turns - talk.turns
    if talk.end_reason or not 0 < left <= course.reminder_turns:
        return ""
    return reminder(course.language, left)
