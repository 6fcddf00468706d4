"""A conversation of two participants, with a moderator that opens it, counts its turns and ends it.

A turn is an utterance of the side that opens, and the reply. Either side can end the conversation; the
moderator ends it after the last turn, and when both sides repeat themselves.
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
from proctor.json_values import JsonMap, JsonObject
from proctor.model_client import ClientTotals
from proctor.score import Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """State of one side after a turn."""

    state: JsonMap
    usage: ClientTotals
    """Tokens and cost of its model calls so far."""
    exchanges: Mapping[int, Sequence[JsonMap]] = field(default_factory=dict)
    """Messages with its tool calls, by the number of utterances before them."""

    def to_json(self) -> JsonObject:
        """As a checkpoint stores it."""
        exchanges = {str(number): messages for number, messages in self.exchanges.items()}
        return {"state": self.state, "usage": self.usage, **({"exchanges": exchanges} if exchanges else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationCheckpoint:
    """State after a turn from which a conversation resumes, in addition to its messages."""

    turns: int
    seed: int
    sides: Mapping[str, Side]
    end_reason: str = ""
    ended_by: str = ""
    world: JsonMap | None = None
    """State and actions of the world; None: there is none."""
    invalid: Mapping[str, int] = field(default_factory=dict)
    """Counts so far of what makes it less valid as data."""

    def to_json(self) -> str:
        sides = {name: side.to_json() for name, side in self.sides.items()}
        return json.dumps(
            {
                "turn": self.turns,
                "seed": self.seed,
                "sides": sides,
                "end_reason": self.end_reason,
                "ended_by": self.ended_by,
                **({} if self.world is None else {"world": self.world}),
                **({"invalid": self.invalid} if self.invalid else {}),
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that an interrupted conversation resumes from."""

    conversation: ConversationCheckpoint
    messages: Sequence[Mapping[str, str]]
    """All messages so far with role and name, the moderator's and instructions included."""
    metrics: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Metrics of each turn: name, value, step."""
    is_finished: bool = False
    """Whether the conversation has ended and only evaluators are left."""
    scores: Sequence[Score] = ()
    """Scores of a finished conversation."""


def parse_conversation(text: str) -> ConversationCheckpoint:
    """Read `ConversationCheckpoint.to_json`. Raises `ValueError`, `KeyError` or `TypeError` otherwise."""
    plain = json.loads(text)
    return ConversationCheckpoint(
        turns=plain["turn"],
        seed=plain["seed"],
        sides={name: _parse_side(side) for name, side in plain["sides"].items()},
        end_reason=plain["end_reason"],
        ended_by=plain["ended_by"],
        world=plain.get("world"),
        invalid=plain.get("invalid", {}),
    )


def _parse_side(side: Mapping[str, Any]) -> Side:
    exchanges = {int(number): messages for number, messages in (side.get("exchanges") or {}).items()}
    return Side(state=side["state"], usage=side["usage"], exchanges=exchanges)


def survives_json(state: JsonMap) -> bool:
    """Whether a state is unchanged by a round trip through JSON."""
    if not state:
        return True
    try:
        return bool(json.loads(json.dumps(state)) == state)
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class _ModeratorText:
    opening: str
    one_left: str
    some_left: str


_ENGLISH = _ModeratorText(
    opening="You may start the session now.",
    one_left="1 turn is left in this session. Please begin to bring it to a close.",
    some_left="{left} turns are left in this session. Please begin to bring it to a close.",
)

_TEXTS: Mapping[str, _ModeratorText] = {
    "en": _ENGLISH,
    "de": _ModeratorText(
        opening="Sie können jetzt mit der Sitzung beginnen.",
        one_left="In dieser Sitzung bleibt noch 1 Runde. Bitte kommen Sie allmählich zum Schluss.",
        some_left="In dieser Sitzung bleiben noch {left} Runden. Bitte kommen Sie allmählich zum Schluss.",
    ),
    "zh": _ModeratorText(
        opening="现在可以开始了。",
        one_left="本次会谈还剩 1 轮，请开始收尾。",
        some_left="本次会谈还剩 {left} 轮，请开始收尾。",
    ),
}


def opening(language: str) -> str:
    """The moderator's message to the side that opens."""
    return f"{MARK} {_texts(language).opening}"


def reminder(language: str, left: int) -> str:
    """The moderator's message when `left` turns are left."""
    texts = _texts(language)
    return f"{MARK} {texts.one_left if left == 1 else texts.some_left.format(left=left)}"


def has_moderator(language: str) -> bool:
    """Whether the moderator speaks a language."""
    return language in _TEXTS or language.partition("-")[0] in _TEXTS


def _texts(language: str) -> _ModeratorText:
    return _TEXTS.get(language) or _TEXTS.get(language.partition("-")[0]) or _ENGLISH


LONGEST_CYCLE = 2
"""Utterances of a cycle: a side that alternates between two of them repeats itself."""


def repeating(history: Sequence[Utterance], rounds: int) -> tuple[str, ...]:
    """The sides that repeat themselves, when both do; empty otherwise.

    Both must have repeated the same utterance, or the same two, `rounds` times in a row.
    """
    if rounds < 2:
        return ()
    sides = tuple(side for side in SIDES if _cycles(_texts_of(history, side), rounds))
    return sides if len(sides) == len(SIDES) else ()


def _texts_of(history: Sequence[Utterance], side: str) -> list[str]:
    return [_normalized(each.text) for each in history if each.side == side]


def _cycles(texts: list[str], rounds: int) -> bool:
    for length in range(1, LONGEST_CYCLE + 1):
        last = texts[-length * rounds :]
        if len(last) == length * rounds and last == last[:length] * rounds:
            return True
    return False


def _normalized(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold())) or text


MAX_TURNS, LOOP = "max_turns", "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
    """Limits and order of a conversation."""

    max_turns: int
    reminder_turns: int = 2
    """The side that opens is reminded when this many turns or fewer are left. 0: never."""
    loop_turns: int = 3
    """The conversation ends after this many equal rounds. 0: never."""
    opens: str = THERAPIST
    language: str = "en"
    """Language of the moderator."""


@dataclass(slots=True)
class Conversation:
    """Utterances so far, and why it ended. Updated in place, so that an interrupted one is kept."""

    history: list[Utterance] = field(default_factory=list)
    turns: int = 0
    end_reason: str = ""
    ended_by: str = ""
    """`client`, `therapist` or `moderator`; empty before the end."""
    notes: dict[int, str] = field(default_factory=dict)
    """The moderator's messages to the side that opens, each by the number of utterances before it."""

    def end(self, reason: str, by: str) -> None:
        """Set the reason of its end, and the side that ended it."""
        self.end_reason, self.ended_by = reason, by


@dataclass(frozen=True, slots=True)
class ConversationObserver:
    """Callbacks for what happens in a conversation."""

    utterance: Callable[[Utterance], None]
    moderator_message: Callable[[str], None]
    turn_finished: Callable[[int], None]


async def converse(
    participants: dict[str, Participant],
    settings: ConversationSettings,
    observer: ConversationObserver,
    conversation: Conversation,
) -> None:
    """Run a conversation, from where it is, until a participant or the moderator ends it."""
    if conversation.end_reason:
        return
    first, second = (CLIENT, THERAPIST) if settings.opens == CLIENT else (THERAPIST, CLIENT)
    prompt = (
        _next_message(settings, observer, conversation)
        if conversation.turns
        else _opening_message(settings, observer, conversation)
    )
    while not conversation.end_reason:
        answered = await _say(participants[first], prompt, settings, observer, conversation)
        if conversation.end_reason:
            break
        answered = await _say(participants[second], answered, settings, observer, conversation)
        if conversation.end_reason and not answered:
            break
        conversation.turns += 1
        observer.turn_finished(conversation.turns)
        prompt = _next_message(settings, observer, conversation)


def _opening_message(
    settings: ConversationSettings, observer: ConversationObserver, conversation: Conversation
) -> str:
    message = opening(settings.language)
    conversation.notes[0] = message
    observer.moderator_message(message)
    return message


def _next_message(
    settings: ConversationSettings, observer: ConversationObserver, conversation: Conversation
) -> str:
    """The last message for the side that opens, after a finished turn."""
    if not conversation.end_reason:
        _moderate(settings, conversation)
    prompt = conversation.history[-1].text
    if note := _reminder(settings, conversation):
        conversation.notes[len(conversation.history)] = note
        observer.moderator_message(note)
        prompt = f"{prompt}\n{note}"
    return prompt


async def _say(
    participant: Participant,
    prompt: str,
    settings: ConversationSettings,
    observer: ConversationObserver,
    conversation: Conversation,
) -> str:
    turn = conversation.turns + 1
    moment = ConversationState(
        prompt=prompt,
        history=conversation.history,
        turn=turn,
        turns_left=settings.max_turns - conversation.turns,
        notes=conversation.notes if participant.side == settings.opens else {},
    )
    reply = await speak(participant, moment)
    if reply.text:
        utterance = Utterance(side=participant.side, text=reply.text)
        conversation.history.append(utterance)
        observer.utterance(utterance)
    if reply.ends:
        reason = f"{participant.side}_ended" if reply.ends == "ended" else f"{participant.side}_{reply.ends}"
        conversation.end(reason, participant.side)
    return reply.text


def _moderate(settings: ConversationSettings, conversation: Conversation) -> None:
    if repeating(conversation.history, settings.loop_turns):
        conversation.end(LOOP, "moderator")
    elif conversation.turns >= settings.max_turns:
        conversation.end(MAX_TURNS, "moderator")


def _reminder(settings: ConversationSettings, conversation: Conversation) -> str:
    left = settings.max_turns - conversation.turns
    if conversation.end_reason or not 0 < left <= settings.reminder_turns:
        return ""
    return reminder(settings.language, left)
