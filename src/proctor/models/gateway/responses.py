"""OpenAI's responses, as Codex uses them.

Freeform tools, whose input is any text, become functions with one argument `input`, and their calls are
converted back.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_whole_number,
    maps_in,
    parse_json,
    require_map,
    require_maps,
    require_text,
)
from proctor.model import FILTERED, REFUSAL, TRUNCATED, Request, ToolRequest, WireAnswer, served_by
from proctor.models import openai
from proctor.models.gateway import chat
from proctor.models.gateway.dialect import (
    NOTHING,
    ClientRequest,
    Frame,
    event,
    limit_in,
    read_events,
    text_of,
)
from proctor.session import Usage

ECHOED: JsonMap = {
    "instructions": None,
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "metadata": {},
}
"""Fields of the request that the answer repeats, with their defaults."""


def answer(reading: WireAnswer, frame: Frame) -> JsonObject:
    """A response with its text and its tool calls as items."""
    status = "incomplete" if reading.finish_reason == "length" else "completed"
    ended: JsonObject = {"status": status, "output": _items(reading, frame), "usage": _usage(reading.usage)}
    if status == "incomplete":
        ended["incomplete_details"] = {"reason": "max_output_tokens"}
    return _framed(frame) | ended


def stream(reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
    """The events of a response: created, each item added, its content, item done, completed."""
    numbers = count()

    def make_event(kind: str, **more: object) -> bytes:
        return event({"type": kind, "sequence_number": next(numbers), **more}, kind)

    begun = _framed(frame) | {"status": "in_progress", "output": [], "usage": None}
    yield make_event("response.created", response=begun)
    yield make_event("response.in_progress", response=begun)
    for index, item in enumerate(_items(reading, frame)):
        position = {"output_index": index, "item_id": item["id"]}
        yield make_event("response.output_item.added", output_index=index, item=_in_progress(item))
        if item["type"] == "message":
            for kind, more in _text_events(require_maps(item["content"])[0]):
                yield make_event(kind, **position, content_index=0, **more)
        else:
            kind, name = _argument_events(item)
            yield make_event(f"response.{kind}.delta", **position, delta=item[name])
            yield make_event(f"response.{kind}.done", **position, **{name: item[name]})
        yield make_event("response.output_item.done", output_index=index, item=item)
    whole = answer(reading, frame)
    yield make_event(f"response.{whole['status']}", response=whole)


def read(raw: bytes, *, streamed: bool) -> WireAnswer:
    """Text, tool calls and tokens, from a response or from the events of one."""
    try:
        return _reading(_assembled(raw) if streamed else require_map(parse_json(raw)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def _framed(frame: Frame) -> JsonObject:
    echoed = {name: frame.body.get(name, usual) for name, usual in ECHOED.items()}
    own = {"id": f"resp_{frame.id}", "object": "response", "created_at": frame.created, "model": frame.model}
    return own | {"error": None, "incomplete_details": None} | echoed


def _items(reading: WireAnswer, frame: Frame) -> list[JsonObject]:
    items: list[JsonObject] = []
    if reading.text:
        part = {"type": "output_text", "text": reading.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{frame.id}", "role": "assistant", "status": "completed"}
        items.append(message | {"content": [part]})
    tools = maps_in(frame.body, "tools")
    freeform = {tool["name"] for tool in tools if tool.get("type") == "custom"}
    for number, request in enumerate(reading.tool_requests):
        head = {
            "id": f"fc_{frame.id}_{number}",
            "call_id": request.id,
            "name": request.name,
            "status": "completed",
        }
        if request.name in freeform:
            items.append({"type": "custom_tool_call", **head, "input": _freeform_input(request)})
        else:
            items.append({"type": "function_call", **head, "arguments": request.arguments})
    return items


def _freeform_input(request: ToolRequest) -> str:
    try:
        return str(require_map(parse_json(request.arguments))["input"])
    except (ValueError, LookupError, TypeError):
        return request.arguments


def _in_progress(item: JsonMap) -> JsonObject:
    """An item before its content has been sent."""
    empty: JsonObject = {"content": [], "arguments": "", "input": ""}
    blank = {name: value for name, value in empty.items() if name in item}
    return {**item, "status": "in_progress", **blank}


def _text_events(part: JsonMap) -> Iterator[tuple[str, JsonObject]]:
    yield "response.content_part.added", {"part": {**part, "text": ""}}
    yield "response.output_text.delta", {"delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {"text": part["text"], "logprobs": []}
    yield "response.content_part.done", {"part": part}


def _argument_events(item: JsonMap) -> tuple[str, str]:
    if item["type"] == "custom_tool_call":
        return "custom_tool_call_input", "input"
    return "function_call_arguments", "arguments"


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _assembled(raw: bytes) -> JsonMap:
    """The final response of a stream; when it was cut off, the items so far."""
    items, text = list[object](), list[str]()
    begun: JsonMap = {}
    for chunk in read_events(raw):
        kind = str(chunk.get("type", ""))
        begun = begun or as_map(chunk, "response")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            ended = require_map(chunk["response"])
            return ended if ended.get("output") or not items else {**ended, "output": items}
        if kind == "response.output_item.done":
            items.append(chunk["item"])
            text.clear()
        elif kind == "response.output_text.delta":
            text.append(require_text(chunk["delta"]))
    if text:
        items.append({"type": "message", "content": [{"type": "output_text", "text": "".join(text)}]})
    return {**begun, "output": items, "status": "cut_off"}


def _reading(response: JsonMap) -> WireAnswer:
    items = require_maps(response["output"])
    tool_requests = tuple(
        _tool_request(item) for item in items if item.get("type") in ("function_call", "custom_tool_call")
    )
    status = str(response.get("status"))
    has_refused = any(
        part.get("type") == "refusal" for item in items for part in maps_in(item.get("content"))
    )
    incomplete = as_map(response, "incomplete_details").get("reason")
    ends = {
        "completed": "tool_calls" if tool_requests else REFUSAL if has_refused else "stop",
        "incomplete": FILTERED if incomplete == FILTERED else TRUNCATED,
        "failed": "cut_off",
    }
    usage = as_map(response, "usage")
    return WireAnswer(
        "".join(text_of(item.get("content")) for item in items if item.get("type") == "message"),
        Usage(
            input_tokens=as_whole_number(usage, "input_tokens"),
            cached_tokens=as_whole_number(usage, "input_tokens_details", "cached_tokens"),
            output_tokens=as_whole_number(usage, "output_tokens"),
            reasoning_tokens=as_whole_number(usage, "output_tokens_details", "reasoning_tokens"),
            web_searches=sum(item.get("type") == "web_search_call" for item in items),
        ),
        tool_requests,
        ends.get(status, status),
        billed_as=openai.billed_tier(response),
        served=served_by(response),
    )


def _tool_request(item: JsonMap) -> ToolRequest:
    arguments = item.get("arguments") or item.get("input") or "{}"
    return ToolRequest(id=str(item.get("call_id", "")), name=str(item["name"]), arguments=str(arguments))


NOT_TRANSLATED = ("max_tool_calls", "top_logprobs")
"""Members of requests that pass (`parameters.py`), and that other formats do not have."""
FREEFORM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
error, wants_stream = chat.error, chat.wants_stream


def parse_request(body: JsonMap, model: str) -> ClientRequest:
    """Instructions and input items become messages; features of the provider alone are left out."""
    if body.get("previous_response_id"):
        raise ValueError("previous_response_id: earlier responses are not kept here; send the whole input")
    left_out = {name for name in NOT_TRANSLATED if body.get(name) is not None}
    messages = list[JsonObject]()
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else require_maps(items):
        _add(messages, item, left_out)
    request = Request(
        model=model,
        messages=messages,
        tools=tuple(_tools(require_maps(body.get("tools") or []), left_out)),
        parameters=_parameters(body),
    )
    return ClientRequest(request, tuple(sorted(left_out)))


def output_limit(body: JsonMap) -> int | None:
    """The limit, reasoning included."""
    return limit_in(body, "max_output_tokens")


def with_output_limit(body: JsonMap, limit: int) -> JsonObject:
    """OpenAI rejects limits below 16."""
    return {**body, "max_output_tokens": max(16, limit)}


def _add(messages: list[JsonObject], item: JsonMap, left_out: set[str]) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = "system" if item["role"] == "developer" else item["role"]
        messages.append({"role": role, "content": _content(item["content"], left_out)})
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item["arguments"] if kind == "function_call" else json.dumps({"input": item["input"]})
        call = {"name": item["name"], "arguments": arguments}
        message = _assistant_message(messages)
        calls = require_maps(message.get("tool_calls", []))
        message["tool_calls"] = [*calls, {"id": item["call_id"], "type": "function", "function": call}]
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        content = output if isinstance(output, str) else text_of(output) or json.dumps(output)
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind != "reasoning":
        # Reasoning of another model is dropped silently; everything else is reported.
        left_out.add(f"input of type {kind}")


def _assistant_message(messages: list[JsonObject]) -> JsonObject:
    """The assistant message that a call belongs to: calls are separate items that follow its text."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _content(content: object, left_out: set[str]) -> object:
    if isinstance(content, str):
        return content
    parts = list[JsonObject]()
    for part in require_maps(content):
        kind = part.get("type")
        if kind in ("input_text", "output_text", "text"):
            parts.append({"type": "text", "text": part["text"]})
        elif kind == "input_image" and part.get("image_url"):
            parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
        elif kind == "refusal":
            parts.append({"type": "text", "text": part["refusal"]})
        else:
            left_out.add(f"content of type {kind}")
    return text_of(parts) if all(part["type"] == "text" for part in parts) else parts


def _tools(tools: Sequence[JsonMap], left_out: set[str]) -> Iterator[JsonMap]:
    for tool in tools:
        if tool.get("type") == "function":
            function: JsonObject = {
                name: tool[name] for name in ("name", "description", "parameters", "strict") if name in tool
            }
        elif tool.get("type") == "custom":
            function = {
                "name": tool["name"],
                "description": tool.get("description", ""),
                "parameters": FREEFORM,
            }
        else:
            left_out.add(f"tool {tool.get('type')}")
            continue
        yield {"type": "function", "function": function}


def _parameters(body: JsonMap) -> JsonObject:
    parameters = {name: body[name] for name in ("temperature", "top_p") if body.get(name) is not None}
    if (limit := limit_in(body, "max_output_tokens")) is not None:
        parameters["max_tokens"] = limit
    if body.get("tools"):
        parameters |= {name: body[name] for name in ("parallel_tool_calls",) if body.get(name) is not None}
        if (choice := body.get("tool_choice")) is not None:
            if isinstance(choice, Mapping) and "name" in choice:
                choice = {"type": "function", "function": {"name": choice["name"]}}
            parameters["tool_choice"] = choice
    if effort := as_map(body, "reasoning").get("effort"):
        parameters["reasoning_effort"] = effort
    shape = as_map(body, "text", "format")
    if shape.get("type") == "json_schema":
        schema = {name: shape[name] for name in ("name", "schema", "strict") if name in shape}
        parameters["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif shape.get("type") == "json_object":
        parameters["response_format"] = {"type": "json_object"}
    return parameters
