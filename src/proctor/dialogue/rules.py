"""Answer by rules: keywords with a rank, patterns, replies with the speaker's words turned round.

The method of Weizenbaum's ELIZA (Communications of the ACM 9/1, 1966): the highest keyword that
occurs and whose pattern fits makes the reply; `I am` comes back as `you are`; what was said about
oneself is kept and brought up again when nothing else fits.

Knows nothing of models or conversations.
"""

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

_HOLE = re.compile(r"\{(\d+)\}")
LONGEST_HEARD = 2_000


def answer(rules: Mapping[str, Any], heard: str, memory: list[str], chance: random.Random) -> str:
    """The reply to what was heard; `memory` is added to and taken from."""
    heard = heard[:LONGEST_HEARD]
    swaps = rules.get("swap") or {}
    for rule in sorted(rules["rules"], key=lambda rule: -rule.get("rank", 0)):
        found = pattern(rule["match"]).search(heard)
        if found is None:
            continue
        parts = [turned_round(part or "", swaps) for part in found.groups()]
        if rule.get("remember"):
            memory.append(_filled(_drawn(rule["remember"], chance), parts))
        return _filled(_drawn(rule["reply"], chance), parts)
    if memory:
        return memory.pop(0)
    return _drawn(rules["otherwise"], chance)


@lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str]:
    """A rule's pattern, case ignored."""
    return re.compile(text, re.IGNORECASE)


def turned_round(text: str, swaps: Mapping[str, str]) -> str:
    """The words of one person as another would say them."""
    words = re.findall(r"[\w'’]+|[^\w'’]+", text.strip().rstrip(".!?,;:"))
    return "".join(swaps.get(word.casefold().replace("’", "'"), word) for word in words)


def _filled(reply: str, parts: Sequence[str]) -> str:
    def part(hole: re.Match[str]) -> str:
        number = int(hole[1]) - 1
        return parts[number] if number < len(parts) else ""

    return re.sub(r"\s+([?.!])", r"\1", _HOLE.sub(part, reply)).strip()


def _drawn(replies: str | Sequence[str], chance: random.Random) -> str:
    return replies if isinstance(replies, str) else chance.choice(list(replies))
