"""What a wire format must be able to do, and what it reads out of an answer.

Two modules keep this promise, `openai` and `anthropic`: plain functions, no state.

Knows nothing of HTTP, prices or retries.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from proctor.model import Request, ToolRequest

if TYPE_CHECKING:
    from proctor.models.providers import Endpoint
from proctor.session import Usage


class WireAnswer(NamedTuple):
    """What an answer says, in nobody's wire format."""

    text: str
    usage: Usage
    tool_requests: tuple[ToolRequest, ...] = ()
    finish_reason: str = "stop"


class WireFormat(Protocol):
    """One way of asking a model over HTTP."""

    def url(self, endpoint: "Endpoint") -> str:
        """The address requests are posted to."""

    def models_url(self, endpoint: "Endpoint") -> str:
        """Where its models are listed."""

    def headers(self, endpoint: "Endpoint") -> dict[str, str]:
        """What is sent with each request; the only place a key is written to."""

    def body(self, request: Request, endpoint: "Endpoint") -> dict[str, Any]:
        """The request as this format has it."""

    def not_sent(self, request: Request) -> tuple[str, ...]:
        """Which of the request's parameters this format has no place for."""

    def read(self, answer: Mapping[str, Any]) -> WireAnswer:
        """Read an answer. Whatever is missing or of the wrong type raises the natural error."""
