"""One page of a long list, and the token that leads to the next.

A token names the last entry that was seen, not a position: entries that are added or removed meanwhile
move nothing. Each list has tokens of its own, and a token somebody made up is refused.

Knows nothing of what is listed.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from proctor.store.cleaning import clean
from proctor.web.agentcore.errors import told
from proctor.web.agentcore.shapes import Flaw

PAGE = 100
"""How many entries a page has when nobody says."""
FARTHEST = 10**12
"""No list has so many entries; a position beyond it was made up."""


def token_of(kind: str, key: Sequence[Any]) -> str:
    """The token for what comes after the entry with this key."""
    return base64.urlsafe_b64encode(json.dumps([kind, *key]).encode()).decode()


def key_of(kind: str, token: str | None, *parts: type) -> list[Any] | None:
    """The key in a token of this kind, whose parts are texts and positions; None: the list begins."""
    if token is None:
        return None
    try:
        found = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if isinstance(found, list) and len(found) == len(parts) + 1 and found[0] == kind:
        key = found[1:]
        if all(_is_a(part, wanted) for part, wanted in zip(key, parts, strict=True)):
            return [clean(part) if isinstance(part, str) else part for part in key]
    raise told([Flaw("nextToken", "Member must be a token that this operation returned")])


def _is_a(value: Any, wanted: type) -> bool:
    return type(value) is wanted and (not isinstance(value, int) or 0 <= value < FARTHEST)
