"""The parts messages are made of: text, calls of tools, their results; in every provider's notation.

Nothing here fails: what cannot be understood is kept as text.

Knows nothing of messages around the parts, of spans or attributes.
"""

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from proctor.session import Role
from proctor.untrusted import parse_json

LONGEST_LITERAL = 200_000
"""Characters of Python notation that are read; it costs much more than JSON."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the assistant asked for."""

    id: str
    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered."""

    id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """One message."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    name: str = ""


def opened(value: Any) -> Any:
    """Plain data where a string holds JSON that is an object or a list; else the value itself."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return value
    try:
        return parse_json(text)
    except ValueError:
        return value


def args_of(value: Any) -> dict[str, Any]:
    """A tool's arguments as an object, from JSON, from Python's notation, or from plain text."""
    found = opened(value)
    if isinstance(found, str):
        found = _literal(found)
    if isinstance(found, Mapping):
        return {str(key): each for key, each in found.items()}
    return {} if found in (None, "", []) else {"input": found}


def as_text(value: Any) -> str:
    """Anything as text: as it is, or as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


def is_block(value: Any) -> bool:
    """Whether this is a part of a message, not a message: it has a type of part, and no role."""
    if not isinstance(value, Mapping) or value.get("role"):
        return False
    kind = value.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        return True
    return kind is None and (any(key in value for key in _KEYS) or set(value) == {"text"})


def of_blocks(blocks: Iterable[Any], role: Role) -> Said:
    """The message that consists of these parts."""
    texts, calls, results = list[str](), list[Call](), list[Result]()
    for block in map(opened, blocks):
        if not isinstance(block, Mapping):
            texts.append("" if block is None else as_text(block))
        elif (call := _call(block)) is not None:
            calls.append(call)
        elif (result := _result(block)) is not None:
            results.append(result)
        else:
            texts.append(_block_text(block))
    said = Said(role, "\n".join(filter(None, texts)), tuple(calls), tuple(results))
    return replace(said, role="tool") if results and not said.text and not calls else said


def calls_of(values: Any) -> tuple[Call, ...]:
    """Calls of tools that stand beside what was said, as OpenAI and LangChain write them."""
    found = list[Call]()
    for each in map(opened, values if isinstance(values, list) else ()):
        if isinstance(each, Mapping):
            inner = _first(each, "function", "tool_call", "functionCall")
            inner = inner if isinstance(inner, Mapping) else each
            name = _first(inner, "name", "toolName")
            named = _first(each, "id", "toolCallId") or inner.get("id")
            if name:
                given = args_of(_first(inner, "arguments", "args", "input"))
                found.append(Call(str(named or ""), str(name), given))
    return tuple(found)


def _call(block: Mapping[str, Any]) -> Call | None:
    use = block.get("toolUse") or block.get("functionCall")
    kind = block.get("type")
    if use is None and str(kind) in _CALL_TYPES:
        use = block
    if use is None and kind is None:
        use = block.get("function_call")
    if not isinstance(use, Mapping):
        return None
    named = _first(use, "toolUseId", "call_id", "toolCallId", "id")
    name = _first(use, "name", "toolName")
    return Call(str(named or ""), str(name or ""), args_of(_first(use, "input", "arguments", "args")))


def _result(block: Mapping[str, Any]) -> Result | None:
    found = _first(block, "toolResult", "functionResponse", "function_response")
    if found is None and str(block.get("type")) in _RESULT_TYPES:
        found = block
    if not isinstance(found, Mapping):
        return None
    named = _first(found, "toolUseId", "tool_use_id", "toolCallId", "call_id", "id")
    failed = found.get("is_error") is True or str(found.get("status") or "").lower() == "error"
    return Result(
        str(named or ""), _result_text(_first(found, "content", "response", "result", "output")), failed
    )


def _result_text(value: Any) -> str:
    found = opened(value)
    if found is None or isinstance(found, str):
        return found or ""
    blocks = found if isinstance(found, list) else [found]
    return of_blocks(blocks, "tool").text if blocks and all(map(is_block, blocks)) else as_text(found)


def _block_text(block: Mapping[str, Any]) -> str:
    kind = str(block.get("type") or "")
    if kind in _UNSAID or "reasoningContent" in block or "cachePoint" in block:
        return ""
    what = str(block.get("modality") or kind)
    if kind in _PICTURES:
        # What a picture is made of is no text, though it is written in letters.
        return f"[{what}]"
    for key in ("text", "content", "refusal"):
        if isinstance(block.get(key), str):
            return str(block[key])
    return "" if what == "text" else f"[{what}]" if what else as_text(block)


def _first(mapping: Mapping[str, Any], *names: str) -> Any:
    return next((mapping[name] for name in names if mapping.get(name) not in (None, "")), None)


def _literal(text: str) -> Any:
    """What Python's own notation stands for: some frameworks write `{'city': 'Bonn'}`."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[") or len(stripped) > LONGEST_LITERAL:
        return text
    try:
        found = ast.literal_eval(stripped)
        json.dumps(found)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return found


_UNSAID = frozenset(("reasoning", "thinking", "redacted_thinking"))
_PICTURES = frozenset(
    (
        *("image", "image_url", "input_image", "input_file", "file", "blob", "uri", "audio", "input_audio"),
        *("document", "video"),
    )
)
_CALL_TYPES = frozenset(("tool_use", "tool_call", "tool-call", "function_call", "server_tool_call"))
_RESULT_TYPES = frozenset(
    (
        *("tool_result", "tool_call_response", "tool-result", "function_call_output"),
        "server_tool_call_response",
    )
)
_TYPES = _UNSAID | _PICTURES | _CALL_TYPES | _RESULT_TYPES | {"text", "input_text", "output_text", "refusal"}
_KEYS = (
    *("toolUse", "toolResult", "reasoningContent", "functionCall", "function_call", "functionResponse"),
    *("function_response", "inlineData", "cachePoint", "guardContent"),
)
