"""The contract of models: a request in, an answer out. Implementations are in `models/`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from proctor.frozen import fast_init
from proctor.session import ModelCall, Usage


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model call, independent of wire formats."""

    model: str
    """`provider/model`, or a bare name that only one provider has."""
    messages: Sequence[Mapping[str, Any]]
    """In the shape of OpenAI's chat completions: role, content, tool_calls, tool_call_id."""
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON-schema function definitions, in the same shape."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """temperature, max_tokens, top_p, stop, response_format and the like."""
    seed: int | None = None
    alone: bool = False
    """Not as part of a provider's batch, where the route has batches."""
    answer_tokens: int | None = None
    """Maximum length of the answer that a provider is sent where `parameters` set none. Not in recordings."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """A tool call that the model requests."""

    id: str
    name: str
    arguments: str
    """JSON as the model wrote it: it may not parse."""


REFUSAL, FILTERED, TRUNCATED = "refusal", "content_filter", "length"
"""Reasons why an answer ended that make it no answer to the question, or only a part of one."""


class ServedBy(NamedTuple):
    """What an answer says about who gave it; empty where it says nothing."""

    model: str = ""
    fingerprint: str = ""
    request_id: str = ""


NOT_SAID = ServedBy()


def served_by(answer: Mapping[str, Any]) -> ServedBy:
    """Model, configuration and id that an answer names, in the words of any of the formats."""

    def text(*names: str) -> str:
        return next((value for name in names if isinstance(value := answer.get(name), str)), "")

    return ServedBy(text("model", "modelVersion"), text("system_fingerprint"), text("id", "responseId"))


class WireAnswer(NamedTuple):
    """A parsed answer, independent of wire formats."""

    text: str
    usage: Usage
    tool_requests: tuple[ToolRequest, ...] = ()
    finish_reason: str = "stop"
    other_text: str = ""
    """Text of further answers to the same request: not used, but billed."""
    billed_as: Mapping[str, Any] = MappingProxyType({})
    """Parameters that set the price, as the provider says it has applied them: an account has defaults."""
    served: ServedBy = NOT_SAID


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The model's answer, with the record of the call."""

    text: str
    call: ModelCall
    tool_requests: tuple[ToolRequest, ...] = ()
    finish_reason: str = "stop"


class Model(Protocol):
    """Anything that answers requests: a provider, a script, a recording."""

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `ModelError`. When cancelled, close the connection."""


_VERSION = re.compile(r"(-latest|[-@]?\d{4}-?\d{2}-?\d{2})?(-v\d+)?(:\d+)?")


def is_same_model(requested: str, answered: str) -> bool:
    """Whether two names mean one model: provider, case and the date of its version do not matter."""
    short, long = (name.rpartition("/")[2].lower() for name in (requested, answered))
    if len(short) > len(long):
        short, long = long, short
    return bool(short) and long.startswith(short) and bool(_VERSION.fullmatch(long[len(short) :]))


_OVERFLOW = re.compile(
    r"context.{0,2}(length|window|overflow|limit|size)|(prompt|input).{0,4}too.{0,2}long|maximum context"
    r"|too many tokens|token count.{0,40}exceeds",
    re.IGNORECASE,
)


def is_overflow(report: str, status: int | None) -> bool:
    """Whether a provider rejected a prompt that is too long for the model; `status` if it is known."""
    return status in (None, 400, 413, 422) and bool(_OVERFLOW.search(report))


class ModelDirectory(Protocol):
    """Checks of models before anything starts."""

    def check(self, model: str) -> None:
        """Raise `NotFound` when there is no such model."""

    def check_request(self, model: str) -> None:
        """Raise `UsageError` when agents cannot be allowed to request it."""

    def missing_key(self, model: str) -> str | None:
        """The environment variable that has to be set; None: nothing is missing."""

    def has_price(self, model: str) -> bool:
        """Whether the price of its calls is known."""


REASONING_START = re.compile(r"\A\s*<(think|thinking)>", re.IGNORECASE)
REASONING_END = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)


def strip_reasoning(text: str) -> str:
    """An answer without the reasoning block before it; empty when the block is never closed."""
    closed = list(REASONING_END.finditer(text))
    if closed:
        return text[closed[-1].end() :].lstrip()
    return "" if REASONING_START.match(text) else text
