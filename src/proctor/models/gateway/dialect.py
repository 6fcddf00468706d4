"""What a wire format must be able to do for clients that speak it to us.

Four modules keep this promise: `chat`, `responses`, `messages`, `gemini`. They turn a client's
request into our own words, and an answer in our words into what that client expects, whole or as a
stream; and they read what a provider of the same format answered, so that it can be recorded.

Knows nothing of HTTP, accesses or prices.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from proctor.model import Request
from proctor.models.wire import Reading
from proctor.session import Usage


class Asked(NamedTuple):
    """A client's request in our own words."""

    request: Request
    left_out: tuple[str, ...] = ()
    """What it asked for that cannot be said in our words."""
    failed_tools: frozenset[str] | None = None
    """The ids of tool calls whose results are marked as failures. None: this format marks none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What an answer says besides what the model said."""

    id: str
    """Unlike that of any other answer."""
    model: str
    """As the client called it."""
    created: int
    """Seconds since 1970."""
    body: Mapping[str, Any]
    """The request that is answered."""


class Dialect(Protocol):
    """One way in which clients ask."""

    def asked(self, body: Mapping[str, Any], model: str) -> Asked:
        """Read a request. Whatever is missing or of the wrong type raises the natural error."""

    def wants_stream(self, body: Mapping[str, Any], operation: str) -> bool:
        """Whether the answer is to come as a stream."""

    def output_limit(self, body: Mapping[str, Any]) -> int | None:
        """The most tokens the answer may have; None: the client did not say."""

    def with_output_limit(self, body: Mapping[str, Any], limit: int) -> dict[str, Any]:
        """The same request with a lower limit."""

    def answer(self, reading: Reading, frame: Frame) -> dict[str, Any]:
        """A whole answer."""

    def stream(self, reading: Reading, frame: Frame) -> Iterator[bytes]:
        """The same answer as the events of a stream."""

    def read(self, raw: bytes, *, streamed: bool) -> Reading:
        """What an answer in this format says, as far as it has come."""

    def error(self, status: int, message: str) -> dict[str, Any]:
        """An error as clients of this format expect it."""


NOTHING = Reading("", Usage(), (), "")
"""What an answer says that never came."""


def text_of(content: Any) -> str:
    """The text of a message, whether it is given as such or in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part["text"] for part in content if isinstance(part, Mapping) and _is_text(part))


def limit_in(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of several settings that holds a sensible limit."""
    for name in names:
        value = body.get(name)
        if type(value) is int and value > 0:
            return value
    return None


def _is_text(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("text"), str)
