"""Values of a record somebody else wrote, each as what it should be, or as nothing.

A member that is missing, null or of another type is the same here: not said.

Knows nothing of formats.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from proctor.session import Usage
from proctor.untrusted import parse_json, whole_number

# Seconds since 1970 are below this until the year 5138; milliseconds are above it since 1973.
_MILLISECONDS_FROM = 1e11
_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image", "output_image"), "[image]"),
    **dict.fromkeys(("audio", "input_audio"), "[audio]"),
    **dict.fromkeys(("document", "file", "input_file"), "[file]"),
    "video": "[video]",
}


def a_map(value: Any, *path: str) -> Mapping[str, Any]:
    """A mapping, or what stands in it under a path of names; empty when there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def a_list(value: Any) -> list[Any]:
    """A list; empty when it is none."""
    return value if isinstance(value, list) else []


def maps_in(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list, the rest left out."""
    return [each for each in a_list(value) if isinstance(each, dict)]


def a_text(value: Any) -> str:
    """A text; empty when it is none."""
    return value if isinstance(value, str) else ""


def a_word(value: Any) -> str:
    """A name or an id, which some write as a number; empty when it is neither."""
    return str(value) if type(value) is int else a_text(value)


def a_number(value: Any) -> float | None:
    """A number; None when it is none, or no finite one."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def a_cost(value: Any) -> float | None:
    """An amount of money; None when nobody said."""
    cost = a_number(value)
    return cost if cost is not None and cost >= 0 else None


def a_moment(value: Any) -> datetime | None:
    """A moment: ISO 8601, or seconds or milliseconds since 1970. One without a zone is taken as UTC."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
        else:
            number = a_number(value)
            if number is None:
                return None
            found = datetime.fromtimestamp(number / 1000 if number >= _MILLISECONDS_FROM else number, UTC)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def text_of(content: Any) -> str:
    """What was said, from a text or a list of parts. Thoughts are not said; a picture is `[image]`."""
    if isinstance(content, list):
        return "\n".join(text for text in map(_part, content) if text)
    return _part(content)


def args_of(value: Any) -> Mapping[str, Any]:
    """What a tool was called with; what is no mapping stands under `input`."""
    if isinstance(value, str):
        try:
            parsed = parse_json(value)
        except ValueError:
            parsed = None
        value = parsed if isinstance(parsed, dict) else value
    if isinstance(value, dict):
        return value
    return {} if value in (None, "") else {"input": value}


def usage_of_chat(value: Any) -> Usage | None:
    """Tokens as chat completions count them; None when nothing is counted."""
    counted = a_map(value)
    if not counted:
        return None
    return Usage(
        input_tokens=whole_number(counted.get("prompt_tokens")),
        cached_tokens=whole_number(a_map(counted, "prompt_tokens_details").get("cached_tokens")),
        output_tokens=whole_number(counted.get("completion_tokens")),
        reasoning_tokens=whole_number(a_map(counted, "completion_tokens_details").get("reasoning_tokens")),
    )


def tools_of(value: Any) -> list[dict[str, Any]]:
    """Definitions of tools, plain or as chat completions wrap them."""
    found = [a_map(each, "function") or each for each in maps_in(value)]
    return [
        {
            "name": a_text(each.get("name")),
            "description": a_text(each.get("description")),
            "parameters": dict(a_map(each, "parameters") or a_map(each, "input_schema")),
        }
        for each in found
        if a_text(each.get("name"))
    ]


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA:
        return _MEDIA[kind]
    return a_text(part.get("text")) or a_text(part.get("content")) or a_text(part.get("refusal"))
