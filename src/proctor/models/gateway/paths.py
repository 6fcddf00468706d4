"""What a client wants, from the path it asks for.

Agents append their paths to base URLs of all kinds, so versions are left away before comparing:
`/v1/messages`, `/messages` and `/v1/v1/messages` are the same.

Knows nothing of bodies or of who asks.
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal["answer", "count", "models", "health"]


class Wanted(NamedTuple):
    """One thing a client can ask for."""

    kind: Kind
    wire: str
    """The format it is asked in, and errors are told in."""
    operation: str
    model: str = ""
    """As the path names it; empty when it does not."""


HEALTH = Wanted("health", "chat", "health")
POSTED: Mapping[str, Wanted] = {
    "/chat/completions": Wanted("answer", "chat", "chat/completions"),
    "/responses": Wanted("answer", "responses", "responses"),
    "/messages": Wanted("answer", "messages", "messages"),
    "/messages/count_tokens": Wanted("count", "messages", "messages/count_tokens"),
}
_VERSIONS = re.compile(r"(?:/(?:v1beta|v1alpha|v1))+(?=/|$)")
_GEMINI = re.compile(r"/models/(?P<model>.+):(?P<operation>\w+)")
GEMINI_KINDS: Mapping[str, Kind] = {
    "generateContent": "answer",
    "streamGenerateContent": "answer",
    "countTokens": "count",
}


def find(method: str, path: str, headers: Mapping[str, str]) -> Wanted | None:
    """What is wanted; None when there is no such thing here."""
    bare = _VERSIONS.sub("", path, count=1).rstrip("/")
    if method == "POST":
        if known := POSTED.get(bare):
            return known
        if (found := _GEMINI.fullmatch(bare)) and (kind := GEMINI_KINDS.get(found["operation"])):
            return Wanted(kind, "gemini", found["operation"], found["model"])
        return None
    if method not in ("GET", "HEAD"):
        return None
    if not bare or bare == "/health":
        return HEALTH
    if bare == "/models" or bare.startswith("/models/"):
        return Wanted("models", wire_of(path, headers), "models", bare.removeprefix("/models").lstrip("/"))
    return None


def wire_of(path: str, headers: Mapping[str, str]) -> str:
    """The format a client speaks, as far as it shows before anything was understood."""
    if "/v1beta" in path or "x-goog-api-key" in headers:
        return "gemini"
    if "anthropic-version" in headers or path.endswith("/messages"):
        return "messages"
    return "chat"
