"""One role at work in one conversation: what it remembers, and how it comes to its next words.

Knows nothing of models: it is handed a way to ask one, and draws its luck from a source it is given.
"""

import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.dialogue.language import fill, value_of
from proctor.dialogue.role import Role

LONGEST_REPLY = 20_000
"""Characters of an utterance that are kept; nobody says more in one breath."""
RECENT = 8
SPOKEN_OF = (
    *("profile", "options", "data", "heard", "turn", "turns_left"),
    *("transcript", "recent", "said_by_me", "titles"),
)
"""What templates and expressions of every role may speak of, besides what the role itself keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """Something one side said."""

    side: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a role asks its model."""

    messages: Sequence[Mapping[str, str]]
    parameters: Mapping[str, Any]
    """Which this question wants otherwise than the rest: a temperature of 0 for a classification."""
    is_inner: bool
    """Whether it is a thought: nothing of it is in the conversation."""


Ask = Callable[[Question], Awaitable[str]]
Chance = Callable[[int], random.Random]
"""The luck of a turn. Each has its own, so that a conversation can go on at any of them."""
Tell = Callable[[str], None]
"""Told what a reader of the session should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where the conversation stands when a role is to speak."""

    heard: str
    """The other's words, with the moderator's below them; the moderator's alone at the start."""
    history: Sequence[Utterance]
    turn: int
    turns_left: int


class Party:
    """A role in one conversation."""

    def __init__(
        self,
        role: Role,
        side: str,
        profile: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        ask: Ask,
        tell: Tell,
        chance: Chance,
        titles: Mapping[str, str],
    ) -> None:
        self.role, self.side, self.profile = role, side, profile
        self.ask, self.tell, self.chance = ask, tell, chance
        self.titles = titles
        self.options = {**role.options, **options}
        fixed = {"profile": profile, "options": self.options, "data": role.data}
        self.state: dict[str, Any] = {}
        for name, start in role.state.items():
            what = f"the state `{name}` of {role.name}"
            self.state[name] = _own(value_of(start, {**fixed, **self.state}, what))

    def values(self, moment: Moment) -> dict[str, Any]:
        """What templates and expressions may speak of."""
        return {
            "profile": self.profile,
            "options": self.options,
            "data": self.role.data,
            "heard": moment.heard,
            "turn": moment.turn,
            "turns_left": moment.turns_left,
            "transcript": self.transcript(moment.history),
            "recent": self.transcript(moment.history[-RECENT:]),
            "said_by_me": [said.text for said in moment.history if said.side == self.side],
            "titles": self.titles,
            **self.state,
        }

    def transcript(self, history: Sequence[Utterance]) -> str:
        """A conversation as text, one line a message."""
        return "\n".join(f"{self.titles[said.side]}: {said.text}" for said in history)

    def text(self, template: str, values: Mapping[str, Any]) -> str:
        """One of the role's templates, filled."""
        return fill(
            self.role.templates[template], values, f"the template `{template}` of role {self.role.name}"
        )

    def cleaned(self, text: str) -> str:
        """A reply as it was meant: without the speaker's name before it, or another's words behind it."""
        mine, other = self.titles[self.side], next(self.titles[s] for s in self.titles if s != self.side)
        text = re.sub(rf"^\s*\**{re.escape(mine)}\**\s*:\**\s*", "", text, flags=re.IGNORECASE)
        text = re.split(rf"\n\s*\**{re.escape(other)}\**\s*:", text, maxsplit=1, flags=re.IGNORECASE)[0]
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] == '"' and text.count('"') == 2:
            text = text[1:-1]
        if len(text) > LONGEST_REPLY:
            self.tell(f"a reply of the {self.side} had {len(text):,} characters; {LONGEST_REPLY:,} were kept")
        return text[:LONGEST_REPLY].strip()

    def as_messages(self, moment: Moment, last: int | None = None) -> list[Mapping[str, str]]:
        """The conversation as this role's model sees it: the other is its user."""
        history = list(moment.history)
        # The last thing heard is said with the moderator's words; before it stand only the others'.
        if history and history[-1].side != self.side:
            history.pop()
        kept = history if last is None else history[-last:]
        roles = {self.side: "assistant"}
        messages = [{"role": roles.get(said.side, "user"), "content": said.text} for said in kept]
        return [*messages, {"role": "user", "content": moment.heard}]


def _own(value: Any) -> Any:
    """A list or table of its own: what a role remembers must not change its profile."""
    if isinstance(value, dict):
        return {name: _own(inner) for name, inner in value.items()}
    return [_own(inner) for inner in value] if isinstance(value, list) else value
