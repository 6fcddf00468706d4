"""What a model promises: a request in, an answer out.

The folder `models/` holds those who keep it. Runners and agents see only this.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proctor.session import ModelCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model, in nobody's wire format."""

    model: str
    """`provider/model`, or a bare name that only one provider has."""
    messages: Sequence[Mapping[str, Any]]
    """In the shape of OpenAI's chat completions: role, content, tool_calls, tool_call_id."""
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON-schema function descriptions, in the same shape."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """temperature, max_tokens, top_p, stop, response_format and the like."""
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRequest:
    """The model wants a tool called."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it: it may not parse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the model said, and the record of the call."""

    text: str
    call: ModelCall
    tool_requests: tuple[ToolRequest, ...] = ()
    finish_reason: str = "stop"


class Model(Protocol):
    """Anyone who answers requests: a provider, a script, a recording."""

    async def answer(self, request: Request) -> Answer:
        """Answer, or raise a `ModelError`. When cancelled, close the connection."""


# Look before anything starts: what the plan names must exist.


class ModelDirectory(Protocol):
    """Who knows which models there are."""

    def check(self, model: str) -> None:
        """Raise `NotFound` when nobody has this model."""

    def missing_key(self, model: str) -> str | None:
        """The environment variable that is not set and would have to be."""

    def has_price(self, model: str) -> bool:
        """Whether a call can be priced."""
