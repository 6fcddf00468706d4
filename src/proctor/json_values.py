"""Typed accessors of untrusted JSON: answers of providers, output of agents, imported records.

A member that is missing, null or of another type has the same result: an empty value or None. Further
arguments of an accessor are the path of names to the value: `as_text(event, "error", "message")`.
"""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

from proctor.session import Usage

JsonObject = dict[str, object]
"""A JSON object that we build."""
JsonMap = Mapping[str, object]
"""A JSON object that we read: untrusted, so its members go through the accessors below."""

Value = TypeVar("Value")


def camel_case(name: str) -> str:
    """The name in JSON of a field: `costUsd` of `cost_usd`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def camel_document(value: object) -> Any:
    """Dataclasses as JSON objects with members in camel case, at any depth; keys of mappings stay."""
    if is_dataclass(value) and not isinstance(value, type):
        return {camel_case(each.name): camel_document(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: camel_document(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [camel_document(member) for member in value]
    return value


def _describe(schema: dict[str, Any], record: type) -> None:
    """Add the texts below the fields of a dataclass to its schema, as descriptions."""
    # Loaded by the manual of the HTTP interface alone. Pydantic would read the sources at each start.
    import ast
    import inspect

    for base in record.__mro__:
        if not is_dataclass(base):
            continue
        (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for member, text in pairwise(tree.body):
            match member, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    if property_ := schema["properties"].get(camel_case(name)):
                        property_.setdefault("description", " ".join(words.split()))


class CamelJson:
    """Base of dataclasses that the HTTP interface returns as they are.

    Their members are in camel case, and described by the texts below the fields.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[JsonMap] = {
        "alias_generator": camel_case,
        "populate_by_name": True,
        "from_attributes": True,
        "json_schema_extra": _describe,
    }


# No model reads a billion tokens; a column holds far more.
MOST = 10**12


MANY_CONTAINERS, LEAST_CHARACTERS = 2_000_000, 12
"""Text with so many objects and lists has so many characters for each. An empty one takes 30 times the memory
of its text: `{},` in a gzip file of 1 MB would take more than 1 GB, and minutes."""


def parse_json(text: str | bytes) -> object:
    """Parse JSON text; a `ValueError` says what is wrong with it."""
    if isinstance(text, bytes):
        # Not `utf-8-sig`, which is written in Python.
        text = text.decode("utf-8", "replace").removeprefix("\ufeff")
    if len(text) > 2 * MANY_CONTAINERS:
        containers = text.count("{") + text.count("[")
        if containers > max(MANY_CONTAINERS, len(text) / LEAST_CHARACTERS):
            raise ValueError(f"it has {containers:,} objects and lists, and little else")
    try:
        value = _decoded(text)
        if "\\ud" in text or "\\uD" in text:
            # A lone surrogate is not a character: files and databases reject it.
            whole_characters = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
            value = _decoded(whole_characters.decode())
    except RecursionError as deep:
        raise ValueError("it is nested too deeply") from deep
    return value


def compact_encoder(*, sort_keys: bool = False) -> Callable[[object], str]:
    """A function that writes JSON without spaces and with all characters as they are.

    As `JSONEncoder.encode`, which makes an encoder for each call.
    """
    exact = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False)
    make = vars(json.encoder).get("c_make_encoder")
    if make is None:
        return exact.encode
    # None: cycles are not looked for, and exceed the depth.
    chunks: Callable[[object, int], Iterable[str]] = make(
        None, exact.default, json.encoder.encode_basestring, None, ":", ",", sort_keys, False, True
    )

    def encode(value: object) -> str:
        try:
            return "".join(chunks(value, 0))
        except RecursionError:
            return exact.encode(value)

    return encode


def as_whole_number(value: object, *path: str) -> int:
    """A count; 0 when it is not a positive integer of a sane size."""
    if path:
        value = member(value, *path)
    return value if type(value) is int and 0 < value <= MOST else 0


def _nothing(name: str) -> None:  # noqa: ARG001 (the decoder passes NaN or an infinity)
    return None


def _finite(digits: str) -> float | None:
    """`1e400` is valid JSON and parses as infinity, which is not."""
    value = float(digits)
    return value if math.isfinite(value) else None


_DECODER = json.JSONDecoder(parse_constant=_nothing, parse_float=_finite)
_scan: Callable[[str, int], tuple[object, int]] = vars(_DECODER)["scan_once"]


def _decoded(text: str) -> object:
    try:
        # Without looking for spaces around it, which takes as long as reading a short text.
        value, end = _scan(text, 0)
    except StopIteration:
        return _DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


SHORT = 2000
"""Maximum length of a short text, such as a question or an error."""


def json_object(line: str) -> JsonObject | None:
    """The line as a JSON object; None when it is anything else."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = parse_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def tool_arguments(written: object) -> JsonMap:
    """The arguments of a tool call, parsed unless they are already. What a model wrote may be no JSON object:
    then it is under `unreadable`."""
    try:
        parsed = parse_json(written or "{}") if isinstance(written, str) else written or {}
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        return parsed
    return {"unreadable": written if isinstance(written, str) else json.dumps(written)}


def without_none(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """The members that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def without_empty(values: Mapping[str, Value]) -> dict[str, Value]:
    """The members that have a value other than an empty text, list or object."""
    return {name: value for name, value in values.items() if value not in (None, "", [], (), {})}


def changed(document: Mapping[str, Any], changes: JsonMap) -> dict[str, Any]:
    """A copy of a document with these values at these paths, whose steps are joined by dots."""
    copied = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *outer, last = path.split(".")
        part = copied
        for step in outer:
            part = part.setdefault(step, {})
        part[last] = value
    return copied


def member(value: object, *path: str) -> object:
    """The value at the end of a path of names; None when there is none."""
    for name in path:
        # The first check is an order of magnitude faster than that of the abstract class.
        value = value.get(name) if type(value) is dict or isinstance(value, Mapping) else None
    return value


def as_map(value: object, *path: str) -> JsonMap:
    """The object at the end of a path of names; empty when there is none."""
    value = member(value, *path)
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def as_list(value: object, *path: str) -> list[object]:
    """The value if it is a list, else an empty one."""
    value = member(value, *path)
    return value if isinstance(value, list) else []


def require_map(value: object) -> JsonMap:
    """The value if it is an object; a `TypeError` otherwise."""
    if type(value) is not dict and not isinstance(value, Mapping):
        raise TypeError(f"{short_text(value)} is not an object")
    return value


def require_maps(value: object) -> Sequence[JsonMap]:
    """The value if it is a list of objects; a `TypeError` otherwise."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"{short_text(value)} is not a list")
    return [require_map(each) for each in value]


def require_text(value: object) -> str:
    """The value if it is a string; a `TypeError` otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"{short_text(value)} is not a string")
    return value


def require_number(value: object) -> float:
    """The value if it is a finite number; a `TypeError` otherwise."""
    number = as_number(value)
    if number is None:
        raise TypeError(f"{short_text(value)} is not a number")
    return number


def as_text(value: object, *path: str) -> str:
    """The value if it is a string, else an empty one."""
    value = member(value, *path)
    return value if isinstance(value, str) else ""


def as_amount(value: object, *path: str) -> float | None:
    """A nonnegative number, such as a duration; None when it is not one."""
    value = member(value, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e15 else None


def as_integer(value: object, *path: str) -> int | None:
    """An integer, such as a status or an exit code; None when it is not one."""
    value = member(value, *path)
    return value if type(value) is int else None


def parsed_integer(value: object) -> int | None:
    """An integer from a number or from digits; None when it is neither."""
    try:
        return int(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def short_text(value: object) -> str:
    """Any value as a short text for people."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:SHORT]


def content_text(content: object, *path: str) -> str:
    """The text of a message's content: plain, or in parts."""
    content = member(content, *path)
    if isinstance(content, str):
        return content
    parts = (as_text(part, "text") for part in as_list(content))
    return "\n".join(part for part in parts if part)


# Seconds since 1970 are below this until the year 5138; milliseconds are above it since 1973.
_MILLISECONDS_FROM = 1e11
_MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image", "output_image"), "[image]"),
    **dict.fromkeys(("audio", "input_audio"), "[audio]"),
    **dict.fromkeys(("document", "file", "input_file"), "[file]"),
    "video": "[video]",
}


def maps_in(value: object, *path: str) -> list[JsonMap]:
    """The objects of a list, the rest left out."""
    return [each for each in as_list(value, *path) if isinstance(each, dict)]


def texts_in(value: object, *path: str) -> list[str]:
    """The strings of a list, the rest left out."""
    return [each for each in as_list(value, *path) if isinstance(each, str)]


def as_name(value: object, *path: str) -> str:
    """A name or an id, which some write as a number; empty when it is neither."""
    value = member(value, *path)
    return str(value) if type(value) is int else as_text(value)


def as_number(value: object, *path: str) -> float | None:
    """A finite number; None when it is not one."""
    value = member(value, *path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def as_cost(value: object, *path: str) -> float | None:
    """An amount of money; None when it is not one."""
    cost = as_number(value, *path)
    return cost if cost is not None and cost >= 0 else None


def as_datetime(value: object, *path: str) -> datetime | None:
    """A time: ISO 8601, or Unix time in seconds or milliseconds. Without a zone it is UTC."""
    value = member(value, *path)
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
        else:
            number = as_number(value)
            if number is None:
                return None
            moment = datetime.fromtimestamp(number / 1000 if number >= _MILLISECONDS_FROM else number, UTC)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def message_text(content: object, *path: str) -> str:
    """The text of a message, plain or in parts. Reasoning is left out; an image is `[image]`."""
    content = member(content, *path)
    if isinstance(content, list):
        return "\n".join(text for text in map(_part, content) if text)
    return _part(content)


def args_of(value: object, *path: str) -> JsonMap:
    """Arguments of a tool call; anything but an object is returned under `input`."""
    value = member(value, *path)
    if isinstance(value, str):
        try:
            parsed = parse_json(value)
        except ValueError:
            parsed = None
        value = parsed if isinstance(parsed, dict) else value
    if isinstance(value, dict):
        return value
    return {} if value in (None, "") else {"input": value}


def usage_of_chat(value: object) -> Usage | None:
    """Token counts in the shape of chat completions; None when there are none."""
    counts = as_map(value)
    if not counts:
        return None
    return Usage(
        input_tokens=as_whole_number(counts, "prompt_tokens"),
        cached_tokens=as_whole_number(counts, "prompt_tokens_details", "cached_tokens"),
        output_tokens=as_whole_number(counts, "completion_tokens"),
        reasoning_tokens=as_whole_number(counts, "completion_tokens_details", "reasoning_tokens"),
    )


def usage_of_messages(value: object) -> Usage:
    """Token counts in the shape of Anthropic's messages, which counts cached tokens apart from the input."""
    cached = as_whole_number(value, "cache_read_input_tokens")
    written = as_whole_number(value, "cache_creation_input_tokens")
    by_duration = as_map(value, "cache_creation")
    hourly = as_whole_number(by_duration, "ephemeral_1h_input_tokens") if by_duration else 0
    written = max(written, hourly + as_whole_number(by_duration, "ephemeral_5m_input_tokens"))
    return Usage(
        input_tokens=as_whole_number(value, "input_tokens") + cached + written,
        cached_tokens=cached,
        cache_write_tokens=written,
        long_cache_write_tokens=hourly,
        output_tokens=as_whole_number(value, "output_tokens"),
        web_searches=as_whole_number(value, "server_tool_use", "web_search_requests"),
    )


def tools_of(value: object) -> list[JsonObject]:
    """Definitions of tools, plain or wrapped as in chat completions."""
    definitions = [as_map(each, "function") or each for each in maps_in(value)]
    return [
        {
            "name": as_text(definition, "name"),
            "description": as_text(definition, "description"),
            "parameters": dict(as_map(definition, "parameters") or as_map(definition, "input_schema")),
        }
        for definition in definitions
        if as_text(definition, "name")
    ]


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    kind = part.get("type")
    if isinstance(kind, str) and kind in _MEDIA:
        return _MEDIA[kind]
    return as_text(part, "text") or as_text(part, "content") or as_text(part, "refusal")


def as_sequence(value: object) -> Sequence[object]:
    """The value if it is a list or a tuple, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


_latest: tuple[datetime | None, str] = (None, "")


def timestamp(moment: datetime) -> str:
    """A time as the store and our documents write it: UTC, in milliseconds, sortable as text."""
    global _latest
    latest = _latest
    # The clock of a batch returns the same object within a millisecond.
    if latest[0] is not moment:
        text = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        _latest = latest = (moment, text)
    return latest[1]
