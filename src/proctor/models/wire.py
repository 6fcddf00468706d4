"""The contract of wire formats, kept by the modules `openai` and `anthropic`: plain functions, no state."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from proctor.model import Request, WireAnswer

if TYPE_CHECKING:
    from proctor.models.providers import Endpoint


class WireFormat(Protocol):
    """One HTTP format of models."""

    def url(self, endpoint: "Endpoint") -> str:
        """URL of requests."""

    def models_url(self, endpoint: "Endpoint") -> str:
        """URL of the list of models."""

    def headers(self, endpoint: "Endpoint") -> dict[str, str]:
        """Headers of each request; the only place that contains a key."""

    def body(self, request: Request, endpoint: "Endpoint") -> dict[str, Any]:
        """The request in this format."""

    def not_sent(self, request: Request) -> tuple[str, ...]:
        """Parameters that this format does not support."""

    def read(self, answer: Mapping[str, Any]) -> WireAnswer:
        """Parse an answer. Missing or wrong values raise the natural error."""
