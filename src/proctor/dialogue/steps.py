"""Execute the steps of a role until it has a reply.

    ask:    send templates to the model; its answer goes `into` a variable, or fields are `read` from it
    set:    assign variables
    draw:   choose at random from a list, or from a table of weights
    rank:   choose the passage nearest to a text, by a ranking server where there is one
    rules:  answer by patterns, without a model
    say:    use a template as the reply
    for:    execute steps for each of several values
    repeat: execute steps `until` a condition holds
    http:   send the conversation to a server, which answers
    person: ask the person who plays the role
    end:    end the session, with a reason

Any step may have `when`. State variables persist; other variables last for one turn. The variable `reply` is
what the role says.

A ranking server whose URL ends with `/rerank` is called as Cohere, Jina and vLLM define it; any other as
OpenAI defines `/embeddings`.
"""

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.cache import LruCache
from proctor.dialogue.participant import (
    MARK,
    MOST_TOOL_ROUNDS,
    BrokenRole,
    ConversationState,
    Participant,
    PromptTemplates,
    RolePrompt,
    TurnStep,
    joined_messages,
)
from proctor.dialogue.templating import evaluate, names_in, nearest, value_of
from proctor.dialogue.tools import WorldError, send
from proctor.evaluators.answer_parser import field_of, instructions_for, read_answer
from proctor.item import digest_of
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_integer,
    as_map,
    as_number,
    as_sequence,
    json_object,
    maps_in,
    parse_json,
    require_map,
)
from proctor.model import ToolRequest
from proctor.patterns import Pattern, compile_pattern
from proctor.session import Invalid

_HOLE = re.compile(r"\{(\d+)\}")
LONGEST_UTTERANCE = 2_000


def answer(rules: Mapping[str, Any], utterance: str, memory: list[str], rng: random.Random) -> str:
    """The reply of rules to an utterance. `memory` holds replies for when no rule matches; it is changed."""
    utterance = utterance[:LONGEST_UTTERANCE]
    swaps = rules.get("swap") or {}
    for rule in sorted(rules["rules"], key=lambda rule: -rule.get("rank", 0)):
        match = pattern(rule["match"]).search(utterance)
        if match is None:
            continue
        parts = [swap_person(part or "", swaps) for part in match.groups()]
        if rule.get("remember"):
            memory.append(_filled(_drawn(rule["remember"], rng), parts))
        return _filled(_drawn(rule["reply"], rng), parts)
    if memory:
        return memory.pop(0)
    return _drawn(rules["otherwise"], rng)


def pattern(text: str) -> Pattern:
    """A rule's pattern, case ignored."""
    return compile_pattern(text, re.IGNORECASE)


def swap_person(text: str, swaps: Mapping[str, str]) -> str:
    """A text with first and second person exchanged."""
    words = re.findall(r"[\w'’]+|[^\w'’]+", text.strip().rstrip(".!?,;:"))
    return "".join(swaps.get(word.casefold().replace("’", "'"), word) for word in words)


def _filled(reply: str, parts: Sequence[str]) -> str:
    def part(hole: re.Match[str]) -> str:
        number = int(hole[1]) - 1
        return parts[number] if number < len(parts) else ""

    return re.sub(r"(?<!\s)\s+([?.!])", r"\1", _HOLE.sub(part, reply)).strip()


def _drawn(replies: str | Sequence[str], rng: random.Random) -> str:
    return replies if isinstance(replies, str) else rng.choice(list(replies))


KINDS = ("ask", "set", "draw", "rank", "rules", "say", "for", "repeat", "http", "person", "end")
MOST_STEPS = 200
"""Maximum steps of one turn."""
TRIES = 2
"""Attempts at a reply, and at an answer with all fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleReply:
    """The reply of a role."""

    text: str
    ends: str = ""
    """Why it ends the session; empty: it does not."""


async def speak(participant: Participant, moment: ConversationState) -> RoleReply:
    """Execute the steps of one turn; the reply."""
    if participant.role.before and not any(each.side == participant.side for each in moment.history):
        await _Turn(participant, moment, participant.rng(0)).take(participant.role.before)
    if participant.role.opening and not moment.history:
        return RoleReply(text=participant.text(participant.role.opening, participant.values(moment)))
    rng = participant.rng(moment.turn)
    for attempt in range(TRIES):
        if attempt:
            participant.record(Invalid(kind="regenerated_answers"))
        turn = _Turn(participant, moment, rng)
        await turn.take(participant.role.steps)
        reply = participant.cleaned(str(turn.values.get("reply") or ""))
        if reply or turn.ends:
            if reply in participant.role.end_words:
                return RoleReply(text="", ends="ended")
            return RoleReply(text=reply, ends=turn.ends)
    raise BrokenRole(
        participant.side, f"the {participant.side} ({participant.role.name}) said nothing", "empty_reply"
    )


REPLY_NAMES = ("reply", "text", "content", "message", "response", "output", "answer")
"""Members in which servers return a text."""


def _reply_in(answer: JsonMap) -> str:
    """The text of a server's answer: a plain one, or a chat completion."""
    choices = answer.get("choices")
    if isinstance(choices, list) and choices:
        answer = as_map(choices[0], "message")
    for name in REPLY_NAMES:
        value = answer.get(name)
        if isinstance(value, Mapping):
            value = _reply_in(value)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _tool_requests(answer: JsonMap) -> list[ToolRequest]:
    choices = answer.get("choices")
    holder = as_map(choices[0], "message") if isinstance(choices, list) and choices else answer
    requests = list[ToolRequest]()
    for number, call in enumerate(maps_in(holder.get("tool_calls")), 1):
        function = as_map(call, "function") or call
        arguments = function.get("arguments") or {}
        requests.append(
            ToolRequest(
                id=str(call.get("id") or f"call_{number}"),
                name=str(function.get("name")),
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
        )
    return requests


async def conclude(participant: Participant, moment: ConversationState) -> None:
    """Execute the steps that follow the conversation."""
    if participant.role.after:
        await _Turn(participant, moment, participant.rng(moment.turn)).take(participant.role.after)


class _Turn:
    """Executes the steps of one turn."""

    def __init__(self, participant: Participant, moment: ConversationState, rng: random.Random) -> None:
        self.participant, self.moment, self.rng = participant, moment, rng
        self.values = participant.values(moment)
        self.ends = ""
        self._executed = 0

    async def take(self, steps: Sequence[TurnStep]) -> None:
        """Execute steps until one ends the turn. Raises `BrokenRole` for a turn without end."""
        for step in steps:
            if self.ends:
                return
            self._executed += 1
            if self._executed > MOST_STEPS:
                raise BrokenRole(
                    self.participant.side,
                    f"the role {self.participant.role.name} exceeded {MOST_STEPS} steps in one turn",
                    "endless_role",
                )
            if "when" in step and not self._value(step["when"], "when"):
                continue
            await self._take(step)

    async def _take(self, step: TurnStep) -> None:
        kind = next(kind for kind in KINDS if kind in step)
        match kind:
            case "ask":
                await self._ask(step)
            case "set":
                for name, written in step["set"].items():
                    self._put(name, self._value(written, f"set {name}"))
            case "draw":
                self._put(step["draw"], self._drawn(step))
            case "rank":
                self._put(step["rank"], await self._ranked(step))
            case "rules":
                rules = self.participant.role.data[step["rules"]]
                memory = self.participant.state.get("memory", [])
                utterance = self.moment.prompt.partition(f"\n{MARK}")[0]
                self._put(step.get("into", "reply"), answer(rules, utterance, memory, self.rng))
            case "say":
                self._put("reply", self.participant.text(step["say"], self.values))
            case "for":
                for value in list(self._value(step["in"], "in")):
                    self._put(step["for"], value)
                    await self.take(step["do"])
            case "repeat":
                for _ in range(step["repeat"]):
                    await self.take(step["do"])
                    if "until" in step and self._value(step["until"], "until"):
                        break
            case "http":
                await self._send(step)
            case "person":
                await self._ask_person(step)
            case _:
                self.ends = step["end"]

    async def _ask(self, step: TurnStep) -> None:
        if "read" in step:
            await self._ask_for_fields(step)
        else:
            self._put(step.get("into", "reply"), await self.participant.ask(self._question(step)))

    async def _ask_for_fields(self, step: TurnStep) -> None:
        fields = {name: field_of(kind) for name, kind in step["read"].items()}
        question = self._question(step, instructions_for(fields))
        for attempt in range(TRIES):
            if attempt:
                self.participant.record(Invalid(kind="regenerated_answers"))
            reading = read_answer(await self.participant.ask(question), fields)
            if not reading.missing:
                break
        defaults = {
            name: value for name, value in step.get("otherwise", {}).items() if name in reading.missing
        }
        missing = [name for name in reading.missing if name not in defaults]
        if missing:
            raise BrokenRole(
                self.participant.side,
                f"the {self.participant.side} ({self.participant.role.name}) was asked for "
                f"{', '.join(missing)} and its model gave no answer that could be read",
                "unreadable_answer",
            )
        if defaults:
            names = ", ".join(defaults)
            text = f"{self.participant.role.name}: {names} could not be read; the default was used"
            self.participant.record(Invalid(kind="defaulted_states", text=text))
        for name, value in reading.values.items():
            self._put(name, value)
        for name, written in defaults.items():
            self._put(name, self._value(written, f"otherwise {name}"))

    def _question(self, step: TurnStep, field_instructions: str = "") -> RolePrompt:
        ask: PromptTemplates = {"prompt": step["ask"]} if isinstance(step["ask"], str) else step["ask"]
        messages = list[JsonMap]()
        if "system" in ask:
            messages.append({"role": "system", "content": self._system(ask["system"])})
        if history := ask.get("history"):
            messages += self.participant.as_messages(self.moment, None if history is True else history)
        prompt = self.participant.text(ask["prompt"], self.values) if "prompt" in ask else ""
        last = "\n\n".join(part for part in (prompt, field_instructions) if part)
        if last:
            if ask.get("instead") and history:
                messages.pop()
            messages.append({"role": "user", "content": last})
        if len(messages) == 1:
            # A system prompt alone is refused by many providers.
            messages = [{"role": "user", "content": messages[0]["content"]}]
        messages = joined_messages(messages, "\n\n")
        tools = self.participant.tools if history and step.get("tools", True) else None
        number = len(self.moment.history)
        if tools:
            # Calls of an earlier prompt of this turn.
            messages += tools.exchanges.get(number, [])
        return RolePrompt(
            messages=messages,
            parameters=step.get("parameters", {}),
            is_inner=not history,
            tools=tools,
            number=number,
        )

    def _system(self, template: str) -> str:
        """The system prompt, with the policy unless the template contains it."""
        role = self.participant.role
        text = self.participant.text(template, self.values)
        has_policy = not role.policy or "policy" in names_in(role.templates[template])
        return text if has_policy else f"{text}\n\n{role.policy.strip()}"

    async def _ranked(self, step: TurnStep) -> str:
        """The name of the passage nearest to a text."""
        text = str(self._value(step["text"], "in"))
        passages = {
            name: str(passage) for name, passage in require_map(self._value(step["passages"], "in")).items()
        }
        url = str(self._value(step.get("url", "''"), "in"))
        if url and text.strip() and passages:
            try:
                return await best_passage(
                    url, str(self._value(step.get("model", "''"), "in")), text, passages
                )
            except WorldError as error:
                self.participant.note(f"{error}; passages were compared by their words")
        return nearest(text, passages)

    async def _ask_person(self, step: TurnStep) -> None:
        participant = self.participant
        answer = ""
        if participant.person is not None:
            answer = await participant.person(participant.text(step["person"], self.values))
        if not answer.strip():
            raise BrokenRole(
                participant.side, f"nobody answered for the {participant.side}", "nobody_answered"
            )
        self._put(step.get("into", "reply"), answer)

    async def _send(self, step: TurnStep) -> None:
        """Send the conversation to a server until it answers with a text instead of calls of tools."""
        participant, number = self.participant, len(self.moment.history)
        url = str(self._value(step["http"], "in"))
        headers = require_map(self._value(step.get("headers", "{}"), "in"))
        body: JsonObject = {
            "side": participant.side,
            "turn": self.moment.turn,
            "message": self.moment.prompt,
            "profile": participant.profile,
            "policy": participant.role.policy,
            "tools": participant.tools.definitions() if participant.tools else [],
        }
        messages = participant.as_messages(self.moment)
        for _ in range(MOST_TOOL_ROUNDS):
            answer = await self._posted(url, {**body, "messages": messages}, headers)
            if participant.world and isinstance(state := answer.get("state"), Mapping):
                participant.world.state = dict(state)
            requests = _tool_requests(answer)
            if not requests or participant.tools is None:
                break
            messages += await participant.tools.exchange("", requests, number)
        self.ends = "ended" if answer.get("end") is True else ""
        self._put(step.get("into", "reply"), _reply_in(answer))

    async def _posted(self, url: str, body: JsonMap, headers: JsonMap) -> JsonMap:
        participant = self.participant
        what = f"the {participant.side} ({participant.role.name})"
        try:
            named = {name: str(value) for name, value in headers.items()}
            status, text = await send(url, body, headers=named, what=what)
        except WorldError as error:
            raise BrokenRole(participant.side, str(error), "endpoint_failed") from error
        if not 200 <= status < 300:
            message = f"{what}: {url} answered {status}: {text[:200]}"
            raise BrokenRole(participant.side, message, "endpoint_failed")
        try:
            answer = parse_json(text)
        except ValueError:
            answer = text
        return answer if isinstance(answer, Mapping) else {"reply": answer}

    def _drawn(self, step: TurnStep) -> object:
        options = self._value(step["from"], "from")
        rng = self.rng
        if not options:
            return ""
        if not isinstance(options, Mapping):
            return rng.choice(list(options))
        weights = [max(0.0, float(weight)) for weight in options.values()]
        if not sum(weights):
            return rng.choice(list(options))
        return rng.choices(list(options), weights)[0]

    def _put(self, name: str, value: object) -> None:
        self.values[name] = value
        if name in self.participant.state:
            self.participant.state[name] = value

    def _value(self, written: object, where: str) -> Any:
        what = f"`{where}` of role {self.participant.role.name}"
        if where in ("when", "until", "in", "from"):
            return evaluate(str(written), self.values, what) if isinstance(written, str) else written
        return value_of(written, self.values, what)


CACHED_SETS = 32
_EMBEDDED: LruCache[str, Sequence[Sequence[float]]] = LruCache(CACHED_SETS)
"""Embeddings of sets of passages: they are the same in every turn of every dialogue."""


async def best_passage(url: str, model: str, text: str, passages: Mapping[str, str]) -> str:
    """The name of the passage nearest to a text. Raises `WorldError`."""
    names, texts = list(passages), [f"{name}: {passage}" for name, passage in passages.items()]
    if url.rstrip("/").endswith("/rerank"):
        answer = await _post(url, {"model": model, "query": text, "documents": texts, "top_n": 1})
        best = max(
            maps_in(answer.get("results")),
            key=lambda each: as_number(each, "relevance_score") or 0,
            default={},
        )
        number = as_integer(best, "index")
    else:
        vectors, vector = await _passages(url, model, texts), (await _embeddings(url, model, [text]))[0]
        number = max(range(len(vectors)), key=lambda index: _cosine(vector, vectors[index]))
    if number is None or not 0 <= number < len(names):
        raise WorldError(f"the ranking server {url} returned no result")
    return names[number]


async def _passages(url: str, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    key = digest_of([url, model, list(texts)])
    vectors = _EMBEDDED.get(key)
    if vectors is None:
        vectors = await _embeddings(url, model, texts)
        _EMBEDDED.put(key, vectors)
    return vectors


async def _embeddings(url: str, model: str, texts: Sequence[str]) -> list[list[float]]:
    answer = await _post(url, {"model": model, "input": list(texts)})
    vectors = [
        [as_number(number) or 0.0 for number in as_sequence(entry.get("embedding"))]
        for entry in maps_in(answer.get("data"))
    ]
    if len(vectors) != len(texts) or not all(vectors):
        raise WorldError(
            f"the ranking server {url} returned {len(vectors)} embeddings for {len(texts)} texts"
        )
    return vectors


async def _post(url: str, body: JsonMap) -> JsonMap:
    status, text = await send(url, body, what="ranking passages")
    answer = json_object(text)
    if status != 200 or answer is None:
        raise WorldError(f"the ranking server {url} answered {status}: {json.dumps(text[:200])}")
    return answer


def _cosine(first: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*first) * math.hypot(*other)
    return sum(a * b for a, b in zip(first, other, strict=False)) / lengths if lengths else 0.0
