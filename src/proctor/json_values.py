"""Values of a record somebody else wrote, each as what it should be, or as nothing.

A member that is missing, null or of another type is the same here: not said.

Knows nothing of formats.
"""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from proctor.session import Usage

# Read JSON that someone else wrote: a provider, an agent, a program.


# No model has been seen to read a billion tokens; a column holds far more.
MOST = 10**12


def parse_json(text: str | bytes) -> Any:
    """Parse JSON text; a `ValueError` says what is wrong with it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        found = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # Half of a pair of escapes is no character: no file and no database takes it.
            whole_characters = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
            found = _DECODER.decode(whole_characters.decode())
    except RecursionError as deep:
        raise ValueError("it is nested too deeply") from deep
    return found


def whole_number(value: Any) -> int:
    """A count as someone else gave it; what cannot be one counts as none."""
    return value if type(value) is int and 0 < value <= MOST else 0


def _nothing(name: str) -> None:  # noqa: ARG001 (the decoder says which of the three it was)
    return None


def _finite(digits: str) -> float | None:
    """`1e400` is valid JSON and becomes an infinity, which is not."""
    value = float(digits)
    return value if math.isfinite(value) else None


_DECODER = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)


# Look into JSON that an agent printed, where anything may be missing or of another kind.


SHORT = 2000
"""Characters of something shown in passing: a question, an error."""


def json_object(line: str) -> dict[str, Any] | None:
    """The line as a JSON object; None when it is anything else."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = parse_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def as_map(value: Any, *path: str) -> Mapping[str, Any]:
    """The object at the end of a path of names; empty when there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The value if it is text, else none."""
    return value if isinstance(value, str) else ""


def as_amount(value: Any) -> float | None:
    """A length or an amount as the program gave it; nonsense counts as not given."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None


def as_integer(value: Any) -> int | None:
    """A status or an exit code as the program gave it; None when it gave none."""
    return value if type(value) is int else None


def short_text(value: Any) -> str:
    """Anything as a short text for people."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:SHORT]


def content_text(content: Any) -> str:
    """The text of a message's content: plain, or in parts that each have some."""
    if isinstance(content, str):
        return content
    parts = (as_text(as_map(part).get("text")) for part in as_list(content))
    return "\n".join(part for part in parts if part)


# Seconds since 1970 are below this until the year 5138; milliseconds are above it since 1973.
_MILLISECONDS_FROM = 1e11


_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image", "output_image"), "[image]"),
    **dict.fromkeys(("audio", "input_audio"), "[audio]"),
    **dict.fromkeys(("document", "file", "input_file"), "[file]"),
    "video": "[video]",
}


def maps_in(value: Any) -> list[Mapping[str, Any]]:
    """The mappings of a list, the rest left out."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def as_name(value: Any) -> str:
    """A name or an id, which some write as a number; empty when it is neither."""
    return str(value) if type(value) is int else as_text(value)


def as_number(value: Any) -> float | None:
    """A number; None when it is none, or no finite one."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_cost(value: Any) -> float | None:
    """An amount of money; None when nobody said."""
    cost = as_number(value)
    return cost if cost is not None and cost >= 0 else None


def as_datetime(value: Any) -> datetime | None:
    """A moment: ISO 8601, or seconds or milliseconds since 1970. One without a zone is taken as UTC."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
        else:
            number = as_number(value)
            if number is None:
                return None
            found = datetime.fromtimestamp(number / 1000 if number >= _MILLISECONDS_FROM else number, UTC)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def message_text(content: Any) -> str:
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
    counted = as_map(value)
    if not counted:
        return None
    return Usage(
        input_tokens=whole_number(counted.get("prompt_tokens")),
        cached_tokens=whole_number(as_map(counted, "prompt_tokens_details").get("cached_tokens")),
        output_tokens=whole_number(counted.get("completion_tokens")),
        reasoning_tokens=whole_number(as_map(counted, "completion_tokens_details").get("reasoning_tokens")),
    )


def tools_of(value: Any) -> list[dict[str, Any]]:
    """Definitions of tools, plain or as chat completions wrap them."""
    found = [as_map(each, "function") or each for each in maps_in(value)]
    return [
        {
            "name": as_text(each.get("name")),
            "description": as_text(each.get("description")),
            "parameters": dict(as_map(each, "parameters") or as_map(each, "input_schema")),
        }
        for each in found
        if as_text(each.get("name"))
    ]


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA:
        return _MEDIA[kind]
    return as_text(part.get("text")) or as_text(part.get("content")) or as_text(part.get("refusal"))
