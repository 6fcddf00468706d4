"""One role at work in one conversation: what it remembers, and how it comes to its next words.

Knows nothing of models: it is handed a way to ask one, and draws its luck from a source it is given.
"""

import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from proctor.answer_parser import strip_reasoning
from proctor.dialogue.templating import fill, value_of
from proctor.item import digest_of
from proctor.model import Request
from proctor.model_client import ModelClient
from proctor.runner import Services
from proctor.session import Message

# What the moderator of a dialogue says, in the language of the session.


MARK = "[Moderator]"
"""Before everything the moderator says, in any language: roles tell its words from the other side's by it."""


# What a role is once it has been read: prompts, steps and data, as one plain document.


CLIENT, THERAPIST = "client", "therapist"


SIDES = (CLIENT, THERAPIST)
"""The two sides of a dialogue, whatever they are called in its field: a customer is a client, the
support agent who answers is on the therapist's side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A part to be played, in one language."""

    name: str
    plays: Sequence[str]
    """The sides it can take: `client`, `therapist`."""
    steps: Sequence[Mapping[str, Any]]
    """What it does each time it has been spoken to."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Jinja texts by name."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What it remembers, and from what it starts: a value, or a text that is an expression."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a user may set, with defaults."""
    data: Mapping[str, Any] = field(default_factory=dict)
    opening: str = ""
    """The template of what it says first, when it opens. Empty: it takes its steps."""
    opens: bool = False
    """Whether it speaks first, where nothing else is said."""
    metrics: Sequence[str] = ()
    """What of its state is recorded after each of its turns."""
    end_words: Sequence[str] = ("END", "end", "exit")
    """It ends the session by saying exactly one of these."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for its model: temperature and the like."""
    model: str = ""
    """The model it was made for; empty: any."""
    own_models: str = ""
    """A pattern of names: what matches are the weights its authors trained."""
    stand_in: bool = False
    language: str = "en"
    title: str = ""
    """What it is called in transcripts: `Client`, `Tutor`. Empty: as its side."""

    @property
    def asks(self) -> bool:
        """Whether it needs a model at all."""
        return any("ask" in step for step in every_step(self.steps))

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Of everything that bears on what it says."""
        return digest_of(self.document())[:16]


def role_of(document: Mapping[str, Any]) -> Role:
    """The role a document was made from."""
    return Role(**document)


def every_step(steps: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The steps and those inside them."""
    for step in steps:
        yield step
        yield from every_step(step.get("do", ()))


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
class RolePrompt:
    """What a role asks its model."""

    messages: Sequence[Mapping[str, str]]
    parameters: Mapping[str, Any]
    """Which this question wants otherwise than the rest: a temperature of 0 for a classification."""
    is_inner: bool
    """Whether it is a thought: nothing of it is in the conversation."""


Ask = Callable[[RolePrompt], Awaitable[str]]


Chance = Callable[[int], random.Random]
"""The luck of a turn. Each has its own, so that a conversation can go on at any of them."""


Tell = Callable[[str], None]
"""Told what a reader of the session should know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    """Where the conversation stands when a role is to speak."""

    heard: str
    """The other's words, with the moderator's below them; the moderator's alone at the start."""
    history: Sequence[Utterance]
    turn: int
    turns_left: int


class Participant:
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

    def values(self, moment: ConversationState) -> dict[str, Any]:
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

    def as_messages(self, moment: ConversationState, last: int | None = None) -> list[Mapping[str, str]]:
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


class SideClient:
    """The model of one side of a dialogue."""

    def __init__(
        self, side: str, model: str, parameters: Mapping[str, Any], services: Services, seed: int
    ) -> None:
        self.client = ModelClient(services.models, services.record)
        self._record = services.record
        self._side, self._model, self._parameters, self._seed = side, model, parameters, seed
        self._instructions = ""

    async def ask(self, prompt: RolePrompt) -> str:
        """The model's answer, without its reasoning."""
        if not prompt.is_inner:
            self._record_instructions(prompt.messages)
        request = Request(
            model=self._model,
            messages=prompt.messages,
            parameters={**self._parameters, **prompt.parameters},
            seed=self._seed,
        )
        answer = await self.client.ask(request, keep="bodies" if prompt.is_inner else "call")
        return strip_reasoning(answer.text)

    def restore_instructions(self, instructions: str) -> None:
        """Set the instructions that the record already contains."""
        self._instructions = instructions

    @property
    def label(self) -> str:
        """The name of its instructions in the record."""
        return f"instructions of the {self._side}"

    def _record_instructions(self, messages: Sequence[Mapping[str, str]]) -> None:
        """Record a role's system prompt once, and again when it changes."""
        system = next((message["content"] for message in messages if message["role"] == "system"), "")
        if system and system != self._instructions:
            self._instructions = system
            self._record(Message(role="system", content=system, name=self.label))


def usage_metrics(client: ModelClient) -> dict[str, float | None]:
    """What a client has used so far, by the names of metrics. An unknown cost is None, not 0."""
    return {
        "prompt_tokens": float(client.usage.input_tokens),
        "completion_tokens": float(client.usage.output_tokens),
        "total_tokens": float(client.usage.total_tokens),
        "total_cost": client.cost_usd,
    }
