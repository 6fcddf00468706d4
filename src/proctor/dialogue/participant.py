"""A role, and a participant: one role in one conversation, with its state and its model client."""

import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypedDict

from proctor.dialogue.templating import fill, value_of
from proctor.dialogue.tools import DialogueWorld, SideTools, ToolSpec
from proctor.errors import AgentError
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject
from proctor.model import Request, strip_reasoning
from proctor.model_client import Keep, ModelClient, ask_for_answer
from proctor.runner import Services
from proctor.session import Message, Record

MARK = "[Moderator]"
"""Prefix of the moderator's messages in every language; roles recognize them by it."""
CLIENT, THERAPIST = "client", "therapist"
SIDES = (CLIENT, THERAPIST)
"""The two sides of a dialogue, whatever they are called in its field: a customer is a client, the
support agent who answers is on the therapist's side."""


class PromptTemplates(TypedDict, total=False):
    """The templates of a prompt to the model."""

    system: str
    history: bool | int
    """Whether the conversation is sent along, or its last messages."""
    prompt: str
    instead: bool
    """Whether the prompt takes the place of the last message instead of following it."""


TurnStep = TypedDict(
    "TurnStep",
    {
        "ask": str | PromptTemplates,
        "into": str,
        "read": Mapping[str, str | Sequence[str]],
        "otherwise": JsonMap,
        "parameters": JsonMap,
        "set": JsonMap,
        "draw": str,
        "from": object,
        "rules": str,
        "say": str,
        "http": str,
        "headers": str,
        "person": str,
        "tools": bool,
        "rank": str,
        "text": str,
        "passages": str,
        "url": str,
        "model": str,
        "for": str,
        "in": object,
        "repeat": int,
        "until": object,
        "do": "Sequence[TurnStep]",
        "end": str,
        "when": object,
    },
    total=False,
)
"""A step of a turn, as `proctor.dialogue.steps` executes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role in one language: templates, steps and data."""

    name: str
    plays: Sequence[str]
    """The sides it can take: `client`, `therapist`."""
    steps: Sequence[TurnStep]
    """Executed each time the other side has spoken."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Jinja texts by name."""
    state: JsonMap = field(default_factory=dict)
    """State variables with their initial values; a text is an expression."""
    options: JsonMap = field(default_factory=dict)
    """Settings of the user, with defaults."""
    data: Mapping[str, Any] = field(default_factory=dict)
    opening: str = ""
    """Template of its first utterance when it opens. Empty: it executes its steps."""
    opens: bool = False
    """Whether it speaks first by default."""
    metrics: Sequence[str] = ()
    """State variables that are recorded after each of its turns."""
    end_words: Sequence[str] = ("END", "end", "exit")
    """It ends the session by saying exactly one of these."""
    parameters: JsonMap = field(default_factory=dict)
    """Defaults for its model: temperature and the like."""
    model: str = ""
    """The model it was made for; empty: any."""
    own_models: str = ""
    """Part of the name of models with the weights its authors trained."""
    stand_in: bool = False
    language: str = "en"
    title: str = ""
    """What it is called in transcripts: `Client`, `Tutor`. Empty: as its side."""
    tools: Sequence[ToolSpec] = ()
    """Offered to its model in every prompt with the conversation."""
    policy: str = ""
    """Rules it has to follow; part of its system prompt."""
    before: Sequence[TurnStep] = ()
    """Executed once, before its first utterance."""
    after: Sequence[TurnStep] = ()
    """Executed once, after the conversation."""
    shares: JsonMap = field(default_factory=dict)
    """What the other side knows of it from the start, as `other`; a text is an expression."""

    @property
    def asks(self) -> bool:
        """Whether it needs a model at all."""
        return any("ask" in step for step in every_step([*self.before, *self.steps, *self.after]))

    def document(self) -> JsonObject:
        """The role as plain data. Empty members of later versions are left out, so that digests stay."""
        document = asdict(self)
        return {name: value for name, value in document.items() if value or name not in LATER_MEMBERS}

    @property
    def digest(self) -> str:
        return digest_of(self.document())[:16]


LATER_MEMBERS = ("tools", "policy", "before", "after", "shares")


def role_of(document: Mapping[str, Any]) -> Role:
    """The role a document was made from."""
    return Role(**document)


def shared_by(role: Role, profile: JsonMap, options: JsonMap) -> JsonObject:
    """The values that a role shares with the other side."""
    values = {"profile": profile, "options": {**role.options, **options}, "data": role.data}
    return {name: value_of(text, values, f"`shares: {name}`") for name, text in role.shares.items()}


def every_step(steps: Sequence[TurnStep]) -> Iterator[TurnStep]:
    """The steps and those inside them."""
    for step in steps:
        yield step
        yield from every_step(step.get("do", ()))


MOST_TOOL_ROUNDS = 30
"""Maximum answers with tool calls before an utterance."""
LONGEST_REPLY = 20_000
"""Maximum characters of an utterance."""
RECENT = 8
TEMPLATE_NAMES = (
    "profile",
    "options",
    "data",
    "heard",
    "turn",
    "turns_left",
    "transcript",
    "recent",
    "excerpt",
    "said_by_me",
    "titles",
    "policy",
    "world",
    "previous",
    "other",
    "own_weights",
)
"""Variables of templates and expressions, besides the state of the role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A message of one side."""

    side: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolePrompt:
    """A prompt of a role to its model."""

    messages: Sequence[JsonMap]
    parameters: JsonMap
    """Parameters of this prompt alone, such as temperature 0 for a classification."""
    is_inner: bool
    """Whether it is internal: not part of the conversation."""
    tools: SideTools | None = None
    """Tools that the model may call; None: none."""
    number: int = 0
    """Number of utterances before it."""


Ask = Callable[[RolePrompt], Awaitable[str]]
AskPerson = Callable[[str], Awaitable[str]]
"""Shows a text to the person who plays a role; returns the answer, empty if nobody answers."""
MakeRandom = Callable[[int], random.Random]
"""Random generator of one turn, so that a conversation can resume anywhere."""
AddNote = Callable[[str], None]
"""Adds a note to the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationState:
    """The conversation before an utterance of a role."""

    prompt: str
    """The last utterance of the other side and the moderator's message; at the start only the latter."""
    history: Sequence[Utterance]
    turn: int
    turns_left: int
    notes: Mapping[int, str] = field(default_factory=dict)
    """The moderator's messages to this side, each by the number of utterances before it."""


class BrokenRole(AgentError):
    """A role has no valid reply."""

    def __init__(self, side: str, message: str, reason: str) -> None:
        super().__init__(message, reason=reason)
        self.side = side


class Participant:
    """A role in one conversation."""

    def __init__(
        self,
        role: Role,
        side: str,
        profile: JsonMap,
        options: JsonMap,
        *,
        ask: Ask,
        note: AddNote,
        rng: MakeRandom,
        titles: Mapping[str, str],
        tools: SideTools | None = None,
        world: DialogueWorld | None = None,
        person: AskPerson | None = None,
        previous: JsonMap | None = None,
        other: JsonMap | None = None,
        own_weights: bool = False,
        record: Record = lambda _: None,
    ) -> None:
        """`previous` is the session before this one: its `messages` and the last `states` of this role.

        `other` is what the other side shares; `own_weights` says whether the model has the role's weights.
        """
        self.tools, self.world, self.person = tools, world, person
        self.previous = previous or {}
        self.role, self.side, self.profile = role, side, profile
        self.ask, self.note, self.rng, self.record = ask, note, rng, record
        self.titles = titles
        self.options = {**role.options, **options}
        self._fixed: JsonMap = {
            "profile": profile,
            "options": self.options,
            "data": role.data,
            "previous": self.previous,
            "other": other or {},
            "own_weights": own_weights,
        }
        self.state: dict[str, Any] = {}
        for name, start in role.state.items():
            what = f"the state `{name}` of {role.name}"
            self.state[name] = _copied(value_of(start, {**self._fixed, **self.state}, what))

    def values(self, moment: ConversationState) -> JsonObject:
        """The variables of templates and expressions."""
        return {
            **self._fixed,
            "heard": moment.prompt,
            "turn": moment.turn,
            "turns_left": moment.turns_left,
            "transcript": self.transcript(moment.history),
            "recent": self.transcript(moment.history[-RECENT:]),
            "excerpt": lambda number: self.transcript(moment.history[-number:]),
            "said_by_me": [each.text for each in moment.history if each.side == self.side],
            "titles": self.titles,
            "policy": self.role.policy,
            "world": self.world.state if self.world else {},
            **self.state,
        }

    def transcript(self, history: Sequence[Utterance]) -> str:
        """A conversation as text, one line a message."""
        return "\n".join(f"{self.titles[each.side]}: {each.text}" for each in history)

    def text(self, template: str, values: JsonMap) -> str:
        """One of the role's templates, filled."""
        return fill(
            self.role.templates[template], values, f"the template `{template}` of role {self.role.name}"
        )

    def cleaned(self, text: str) -> str:
        """A reply without the speaker's name at its start, and without a continuation by the other side."""
        mine, other = self.titles[self.side], next(self.titles[s] for s in self.titles if s != self.side)
        text = re.sub(rf"^\s*\**{re.escape(mine)}\**\s*:\**\s*", "", text, flags=re.IGNORECASE)
        text = re.split(rf"\n\s*\**{re.escape(other)}\**\s*:", text, maxsplit=1, flags=re.IGNORECASE)[0]
        text = text.strip()
        if len(text) > 1 and text[0] == text[-1] == '"' and text.count('"') == 2:
            text = text[1:-1]
        if len(text) > LONGEST_REPLY:
            self.note(f"a reply of the {self.side} had {len(text):,} characters; {LONGEST_REPLY:,} were kept")
        return text[:LONGEST_REPLY].strip()

    def as_messages(self, moment: ConversationState, last: int | None = None) -> list[JsonMap]:
        """The conversation as this role's model sees it: the other side and the moderator are its user.

        User and assistant alternate and the user begins, which the chat templates of many models require.
        With `last`, only the last messages, and those before them until one is the user's. Calls of tools are
        before the utterance they led to; those of this turn are not included.
        """
        history = list(moment.history)
        # The last utterance is in `prompt`, with the moderator's message.
        if history and history[-1].side != self.side:
            history.pop()
        messages = list[JsonMap]()
        for number, utterance in enumerate(history):
            if note := moment.notes.get(number):
                messages.append({"role": "user", "content": note})
            if utterance.side == self.side and self.tools:
                messages += self.tools.exchanges.get(number, [])
            role = "assistant" if utterance.side == self.side else "user"
            messages.append({"role": role, "content": utterance.text})
        messages = joined_messages([*messages, {"role": "user", "content": moment.prompt}])
        start = 0 if last is None else max(0, len(messages) - last - 1)
        while start and messages[start]["role"] != "user":
            start -= 1
        return messages[start:]


def joined_messages(messages: Sequence[JsonMap], separator: str = "\n") -> list[JsonMap]:
    """Messages with successive texts of the user, or of the assistant, joined into one."""
    joined = list[JsonMap]()
    for message in messages:
        before = joined[-1] if joined else {}
        if message.keys() == before.keys() == {"role", "content"} and message["role"] == before["role"]:
            content = f"{before['content']}{separator}{message['content']}"
            joined[-1] = {"role": message["role"], "content": content}
        else:
            joined.append(message)
    return joined


def _copied(value: object) -> object:
    """A deep copy: changes of the state must not change the profile."""
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


class SideClient:
    """The model of one side of a dialogue."""

    def __init__(self, side: str, model: str, parameters: JsonMap, services: Services, seed: int) -> None:
        self.client = ModelClient(services.models, services.record)
        self._record = services.record
        self._side, self._model, self._parameters, self._seed = side, model, parameters, seed
        self._instructions = ""

    async def ask(self, prompt: RolePrompt) -> str:
        """The model's answer, without its reasoning."""
        if not prompt.is_inner:
            self._record_instructions(prompt.messages)
        keep: Keep = "bodies" if prompt.is_inner else "call"
        messages = list(prompt.messages)
        for _ in range(MOST_TOOL_ROUNDS):
            request = Request(
                model=self._model,
                messages=messages,
                tools=prompt.tools.definitions() if prompt.tools else (),
                parameters={**self._parameters, **prompt.parameters},
                seed=self._seed,
            )
            answer = await ask_for_answer(
                lambda request: self.client.ask(request, keep=keep),
                request,
                self._record,
                # A part of a state cannot be read; a part of an utterance can be answered.
                whole=prompt.is_inner,
            )
            if prompt.tools is None or not answer.tool_requests:
                return strip_reasoning(answer.text)
            messages += await prompt.tools.exchange(answer.text, answer.tool_requests, prompt.number)
        raise BrokenRole(
            self._side,
            f"the {self._side} called tools in {MOST_TOOL_ROUNDS} successive answers and said nothing",
            "endless_tools",
        )

    def restore_instructions(self, instructions: str) -> None:
        """Set the instructions that the record already contains."""
        self._instructions = instructions

    @property
    def label(self) -> str:
        """The name of its instructions in the record."""
        return f"instructions of the {self._side}"

    def _record_instructions(self, messages: Sequence[JsonMap]) -> None:
        """Record a role's system prompt once, and again when it changes."""
        system = next((str(message["content"]) for message in messages if message["role"] == "system"), "")
        if system and system != self._instructions:
            self._instructions = system
            self._record(Message(role="system", content=system, name=self.label))


def usage_metrics(client: ModelClient) -> dict[str, float | None]:
    """Usage of a client so far, by the names of metrics. An unknown cost is None, not 0."""
    return {
        "prompt_tokens": float(client.usage.input_tokens),
        "completion_tokens": float(client.usage.output_tokens),
        "total_tokens": float(client.usage.total_tokens),
        "total_cost": client.cost_usd,
    }
