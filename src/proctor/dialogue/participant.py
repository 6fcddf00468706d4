"""One role at work in one conversation: what it remembers, and how it comes to its next words.

Knows nothing of models: it is handed a way to ask one, and draws its luck from a source it is given.
"""

import json
import random
import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from proctor.answer_parser import spoken
from proctor.dialogue.templating import fill, value_of
from proctor.errors import AttemptError
from proctor.item import digest_of
from proctor.model import Answer, Request
from proctor.runner import Services
from proctor.session import Message, ModelCall, Note, Usage

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


# How one side of a dialogue reaches its model, with a record of each call and a sum of what it used.


_COUNTED = tuple(each.name for each in fields(Usage))


class SideSettings:
    """Asks one model on someone's behalf, and adds up what that used."""

    def __init__(self, services: Services, seed: int) -> None:
        self._services = services
        self._seed = seed
        self._usage = Usage()
        self._cost: float | None = None
        self.calls = 0

    async def put(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        parameters: Mapping[str, Any],
        *,
        keep: bool,
    ) -> Answer:
        """Ask, record the call, count it. `keep` keeps question and answer with the call."""
        record = self._services.record
        request = Request(model=model, messages=messages, parameters=parameters, seed=self._seed)
        try:
            answer = await self._services.models.answer(request)
        except AttemptError as error:
            record(ModelCall(model=model, status=error.reason, error=str(error)))
            raise
        except CancelledError:
            record(ModelCall(model=model, status="cancelled"))
            raise
        self._count(answer.call)
        said = spoken(answer.text)
        # Thoughts are in no conversation; the record has them with the call.
        keep = keep or said != answer.text
        record(_with_words(answer.call, messages, answer.text) if keep else answer.call)
        if answer.finish_reason == "length":
            record(Note(text=f"an answer of {model} was cut off at its length limit"))
        return replace(answer, text=said)

    def usage(self) -> dict[str, float | None]:
        """What it has used so far. A cost nobody knows is None, not 0."""
        return {
            "prompt_tokens": float(self._usage.input_tokens),
            "completion_tokens": float(self._usage.output_tokens),
            "total_tokens": float(self._usage.total_tokens),
            "total_cost": self._cost,
        }

    def kept(self) -> dict[str, Any]:
        """What it has used so far, for one who takes its place."""
        # By hand: `asdict` copies deeply, and this is done after every turn of every dialogue.
        usage = {name: getattr(self._usage, name) for name in _COUNTED}
        return {"usage": usage, "cost": self._cost, "calls": self.calls}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on counting from what another has used."""
        self._usage, self._cost = Usage(**kept["usage"]), kept["cost"]
        self.calls = kept["calls"]

    def _count(self, call: ModelCall) -> None:
        self.calls += 1
        self._usage += call.usage
        if call.cost_usd is not None:
            self._cost = (self._cost or 0.0) + call.cost_usd


class SideClient(SideSettings):
    """The way of one side of a dialogue to its model."""

    def __init__(
        self, side: str, model: str, parameters: Mapping[str, Any], services: Services, seed: int
    ) -> None:
        super().__init__(services, seed)
        self._side, self._model, self._parameters = side, model, parameters
        self._instructed = ""

    async def ask(self, question: RolePrompt) -> str:
        """What its model says."""
        if not question.is_inner:
            self._tell_instructions(question.messages)
        parameters = {**self._parameters, **question.parameters}
        answer = await self.put(self._model, question.messages, parameters, keep=question.is_inner)
        return answer.text

    def was_told(self, instructions: str) -> None:
        """What its model was last told to be is in the record already."""
        self._instructed = instructions

    @property
    def label(self) -> str:
        """The name its instructions have in the record."""
        return f"instructions of the {self._side}"

    def _tell_instructions(self, messages: Sequence[Mapping[str, str]]) -> None:
        """What a role is told to be is part of the record, once, and again when it changes."""
        told = next((message["content"] for message in messages if message["role"] == "system"), "")
        if told and told != self._instructed:
            self._instructed = told
            self._services.record(Message(role="system", content=told, name=self.label))


def _with_words(call: ModelCall, messages: Sequence[Mapping[str, str]], text: str) -> ModelCall:
    if call.request:
        return call
    return replace(call, request=json.dumps(list(messages), ensure_ascii=False), response=text)
