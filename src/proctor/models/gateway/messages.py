"""Anthropic's messages, as Claude Code and others use them."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_whole_number,
    parse_json,
    require_map,
    require_maps,
    require_text,
    tool_arguments,
)
from proctor.model import REFUSAL, Request, WireAnswer
from proctor.models import anthropic, prices
from proctor.models.gateway import chat
from proctor.models.gateway.dialect import (
    NOTHING,
    ClientRequest,
    Frame,
    event,
    read_events,
    text_of,
)
from proctor.session import Usage

NOT_TRANSLATED = frozenset(("cache_control", "output_format", "service_tier", "speed", "thinking", "top_k"))
"""Members of requests that pass (`parameters.py`), and that other formats do not have."""
STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", REFUSAL: REFUSAL}
wants_stream = chat.wants_stream
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def parse_request(body: JsonMap, model: str) -> ClientRequest:
    """The system text becomes a message, content blocks become messages, tool calls and results."""
    left_out = set(NOT_TRANSLATED.intersection(body))
    failed = set[str]()
    messages = list[JsonMap]()
    if system := text_of(body.get("system")):
        messages.append({"role": "system", "content": system})
    for turn in require_maps(body["messages"]):
        messages += _turn(turn, failed, left_out)
    request = Request(
        model=model,
        messages=messages,
        tools=tuple(_tools(require_maps(body.get("tools") or []), left_out)),
        parameters=_parameters(body),
    )
    return ClientRequest(request, tuple(sorted(left_out)), frozenset(failed))


def output_limit(body: JsonMap) -> int | None:
    """The limit, which this format requires."""
    return prices.output_limit(body)


def with_output_limit(body: JsonMap, limit: int) -> JsonObject:
    """A thinking budget has to stay below the limit, or the request is refused."""
    return prices.with_output_limit(body, limit)


def answer(reading: WireAnswer, frame: Frame) -> JsonObject:
    """A message with its text and its tool uses as blocks."""
    blocks: list[JsonObject] = [{"type": "text", "text": reading.text}] if reading.text else []
    blocks += [
        {"type": "tool_use", "id": each.id, "name": each.name, "input": tool_arguments(each.arguments)}
        for each in reading.tool_requests
    ]
    return _message(frame, reading.usage) | {"content": blocks, "stop_reason": _stop_reason(reading)}


def stream(reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
    """The message's start, its blocks piece by piece, the reason it stopped, its end."""
    begun = _message(frame, reading.usage) | {"usage": _usage(reading.usage) | {"output_tokens": 1}}
    yield _named({"type": "message_start", "message": begun})
    blocks: list[tuple[JsonObject, JsonObject]] = []
    if reading.text:
        blocks.append(({"type": "text", "text": ""}, {"type": "text_delta", "text": reading.text}))
    for request in reading.tool_requests:
        written = json.dumps(tool_arguments(request.arguments), ensure_ascii=False)
        empty: JsonObject = {"type": "tool_use", "id": request.id, "name": request.name, "input": {}}
        blocks.append((empty, {"type": "input_json_delta", "partial_json": written}))
    for index, (empty, delta) in enumerate(blocks):
        yield _named({"type": "content_block_start", "index": index, "content_block": empty})
        yield _named({"type": "content_block_delta", "index": index, "delta": delta})
        yield _named({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": _stop_reason(reading), "stop_sequence": None}
    yield _named({"type": "message_delta", "delta": ended, "usage": _usage(reading.usage)})
    yield _named({"type": "message_stop"})


def read(raw: bytes, *, streamed: bool) -> WireAnswer:
    """Text, tool uses and tokens, from a message or from the events of one."""
    try:
        return anthropic.read(_assembled(raw) if streamed else require_map(parse_json(raw)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def error(status: int, message: str) -> JsonObject:
    """Anthropic's error object."""
    return {"type": "error", "error": {"type": ERROR_TYPES.get(status, "api_error"), "message": message}}


def _turn(turn: JsonMap, failed: set[str], left_out: set[str]) -> list[JsonMap]:
    role, content = require_text(turn["role"]), turn["content"]
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    results, parts, calls = list[JsonMap](), list[JsonObject](), list[JsonObject]()
    for block in require_maps(content):
        kind = block.get("type")
        if kind == "text":
            parts.append({"type": "text", "text": block["text"]})
        elif kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": _address(require_map(block["source"]))}})
        elif kind == "tool_use":
            function = {"name": block["name"], "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block["id"], "type": "function", "function": function})
        elif kind == "tool_result":
            text = text_of(block.get("content"))
            left_out.update(_unread(block.get("content")))
            results.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": text})
            if block.get("is_error"):
                failed.add(require_text(block["tool_use_id"]))
        elif kind not in ("thinking", "redacted_thinking"):
            # Reasoning of another model is dropped silently; everything else is reported.
            left_out.add(f"content of type {kind}")
    return [*results, *_as_message(role, parts, calls)]


def _unread(content: object) -> Iterator[str]:
    """Parts of a tool result that are not text, which other formats do not support."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") != "text":
            yield f"content of type {part.get('type')} in the result of a tool"


def _as_message(role: str, parts: list[JsonObject], calls: list[JsonObject]) -> list[JsonMap]:
    only_text = all(part["type"] == "text" for part in parts)
    message: JsonObject = {"role": role, "content": text_of(parts) if only_text else parts}
    if calls:
        return [message | {"tool_calls": calls}]
    return [message] if parts else []


def _address(source: JsonMap) -> str:
    if source.get("type") == "base64":
        return f"data:{source['media_type']};base64,{source['data']}"
    return str(source.get("url", ""))


def _tools(tools: Sequence[JsonMap], left_out: set[str]) -> Iterator[JsonMap]:
    for tool in tools:
        if "input_schema" not in tool:
            # Server tools that Anthropic runs, such as web search.
            left_out.add(f"tool {tool.get('type') or tool.get('name')}")
            continue
        function = {"name": tool["name"], "description": tool.get("description", "")}
        yield {"type": "function", "function": function | {"parameters": tool["input_schema"]}}


def _parameters(body: JsonMap) -> JsonObject:
    parameters = {name: body[name] for name in ("max_tokens", "temperature", "top_p") if name in body}
    if body.get("stop_sequences"):
        parameters["stop"] = body["stop_sequences"]
    if isinstance(choice := body.get("tool_choice"), Mapping):
        named = {"type": "function", "function": {"name": choice.get("name", "")}}
        parameters["tool_choice"] = {"any": "required", "tool": named}.get(choice["type"], choice["type"])
        if choice.get("disable_parallel_tool_use") and body.get("tools"):
            parameters["parallel_tool_calls"] = False
    shape = as_map(body, "output_config", "format")
    if shape.get("type") == "json_schema":
        schema = {"name": "answer", "schema": shape.get("schema") or {}}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    return parameters


def _message(frame: Frame, usage: Usage) -> JsonObject:
    return {
        "id": f"msg_{frame.id}",
        "type": "message",
        "role": "assistant",
        "model": frame.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> JsonObject:
    """Anthropic counts cached tokens separately from the input."""
    return {
        "input_tokens": max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens),
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
    }


def _stop_reason(reading: WireAnswer) -> str:
    if reading.tool_requests:
        return "tool_use"
    return STOP_REASONS.get(reading.finish_reason, "end_turn")


def _named(data: JsonMap) -> bytes:
    return event(data, str(data["type"]))


def _assembled(raw: bytes) -> JsonObject:
    """The message that the events of a stream add up to."""
    blocks, written = dict[int, JsonMap](), defaultdict[int, list[str]](list)
    usage, stop_reason = JsonObject(), "cut_off"
    served: JsonMap = {}
    for chunk in read_events(raw):
        kind = chunk.get("type")
        if kind == "message_start":
            served = as_map(chunk, "message")
            # Only the last event knows how much was written.
            usage |= {**as_map(served, "usage"), "output_tokens": 0}
        elif kind == "content_block_start":
            blocks[as_whole_number(chunk["index"])] = require_map(chunk["content_block"])
        elif kind == "content_block_delta" and (index := as_whole_number(chunk["index"])) in blocks:
            delta = require_map(chunk["delta"])
            written[index].append(require_text(delta.get("text") or delta.get("partial_json") or ""))
        elif kind == "message_delta":
            stop_reason = require_text(require_map(chunk["delta"]).get("stop_reason") or stop_reason)
            # Final counts; some servers send null for those of `message_start`.
            counts = as_map(chunk, "usage")
            usage |= {name: count for name, count in counts.items() if count is not None}
    content = [_finished(block, "".join(written[index])) for index, block in sorted(blocks.items())]
    names = {name: served.get(name) for name in ("model", "id")}
    return {"content": content, "usage": usage, "stop_reason": stop_reason, **names}


def _finished(block: JsonMap, written: str) -> JsonMap:
    if block.get("type") == "text":
        return {**block, "text": require_text(block.get("text", "")) + written}
    if block.get("type") == "tool_use" and written:
        try:
            return {**block, "input": parse_json(written)}
        except ValueError:
            return {**block, "input": {"unreadable": written}}
    return block
