"""Whether what a file holds can be read as a session: files come from other tools and from other hands.

Knows nothing of files or tables.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

SIDES = ("client", "therapist")


def misshapen(session: Mapping[str, Any]) -> str:
    """What is wrong with the parts of a session that tables are made of; empty when nothing is."""
    return next(_problems(session), "")


def _problems(session: Mapping[str, Any]) -> Iterator[str]:
    for name in ("roles", "record", "usage"):
        if session.get(name) and not isinstance(session[name], Mapping):
            yield f"`{name}` is no mapping"
            return
    for side in SIDES:
        role, used = (session.get("roles") or {}).get(side), (session.get("usage") or {}).get(side)
        if role and not isinstance(role, Mapping):
            yield f"`roles.{side}` is no mapping"
        if isinstance(used, Mapping) and not _is_figure(used.get("total_tokens")):
            yield f"`usage.{side}.total_tokens` is no number"
    if not _is_figure(session.get("num_turns")):
        yield "`num_turns` is no number"
    yield from _score_problems(session.get("scores") or [])


def _score_problems(scores: Any) -> Iterator[str]:
    if not isinstance(scores, list):
        yield "`scores` is no list"
        return
    for number, score in enumerate(scores):
        if not isinstance(score, Mapping) or not isinstance(score.get("evaluator"), str):
            yield f"`scores[{number}]` names no evaluator"
        elif not _is_figure(score.get("value")):
            yield f"`scores[{number}].value` is no number"


def _is_figure(value: Any) -> bool:
    """A number that can be summed up, or nothing at all."""
    if value is None:
        return True
    return isinstance(value, int | float) and abs(value) < 1e300 and not math.isnan(value)
