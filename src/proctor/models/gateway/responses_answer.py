"""OpenAI's responses: what is answered, whole and as a stream, and how an answer is read.

Knows nothing of HTTP, accesses or prices.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from proctor.model import ToolRequest
from proctor.models.gateway.dialect import NOTHING, Frame, text_of
from proctor.models.gateway.sse import event, read_events
from proctor.models.wire import Reading
from proctor.session import Usage
from proctor.untrusted import parse_json, whole_number

ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "metadata": {},
}
"""What an answer repeats of its request, and how it reads when that said nothing."""


def answer(reading: Reading, frame: Frame) -> dict[str, Any]:
    """A response with its text and its tool calls as items."""
    status = "incomplete" if reading.finish_reason == "length" else "completed"
    ended: dict[str, Any] = {
        "status": status,
        "output": _items(reading, frame),
        "usage": _usage(reading.usage),
    }
    if status == "incomplete":
        ended["incomplete_details"] = {"reason": "max_output_tokens"}
    return _framed(frame) | ended


def stream(reading: Reading, frame: Frame) -> Iterator[bytes]:
    """The response begun, each item begun, told and ended, the response ended."""
    numbers = count()

    def said(kind: str, **more: Any) -> bytes:
        return event({"type": kind, "sequence_number": next(numbers), **more}, kind)

    begun = _framed(frame) | {"status": "in_progress", "output": [], "usage": None}
    yield said("response.created", response=begun)
    yield said("response.in_progress", response=begun)
    for index, item in enumerate(_items(reading, frame)):
        place = {"output_index": index, "item_id": item["id"]}
        yield said("response.output_item.added", output_index=index, item=_unsaid(item))
        if item["type"] == "message":
            for kind, more in _text_events(item["content"][0]):
                yield said(kind, **place, content_index=0, **more)
        else:
            kind, name = _argument_events(item)
            yield said(f"response.{kind}.delta", **place, delta=item[name])
            yield said(f"response.{kind}.done", **place, **{name: item[name]})
        yield said("response.output_item.done", output_index=index, item=item)
    whole = answer(reading, frame)
    yield said(f"response.{whole['status']}", response=whole)


def read(raw: bytes, *, streamed: bool) -> Reading:
    """Text, tool calls and tokens, from a response or from the events of one."""
    try:
        return _reading(_assembled(raw) if streamed else parse_json(raw))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def _framed(frame: Frame) -> dict[str, Any]:
    echoed = {name: frame.body.get(name, usual) for name, usual in ECHOED.items()}
    own = {"id": f"resp_{frame.id}", "object": "response", "created_at": frame.created, "model": frame.model}
    return own | {"error": None, "incomplete_details": None} | echoed


def _items(reading: Reading, frame: Frame) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reading.text:
        part = {"type": "output_text", "text": reading.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{frame.id}", "role": "assistant", "status": "completed"}
        items.append(message | {"content": [part]})
    freeform = {tool["name"] for tool in frame.body.get("tools") or () if tool.get("type") == "custom"}
    for number, wanted in enumerate(reading.tool_requests):
        head = {
            "id": f"fc_{frame.id}_{number}",
            "call_id": wanted.id,
            "name": wanted.name,
            "status": "completed",
        }
        if wanted.name in freeform:
            items.append({"type": "custom_tool_call", **head, "input": _freeform_input(wanted)})
        else:
            items.append({"type": "function_call", **head, "arguments": wanted.arguments})
    return items


def _freeform_input(wanted: ToolRequest) -> str:
    try:
        return str(parse_json(wanted.arguments)["input"])
    except (ValueError, LookupError, TypeError):
        return wanted.arguments


def _unsaid(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item as it looks before anything of it has been told."""
    empty: dict[str, Any] = {"content": [], "arguments": "", "input": ""}
    blank = {name: value for name, value in empty.items() if name in item}
    return {**item, "status": "in_progress", **blank}


def _text_events(part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "response.content_part.added", {"part": {**part, "text": ""}}
    yield "response.output_text.delta", {"delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {"text": part["text"], "logprobs": []}
    yield "response.content_part.done", {"part": part}


def _argument_events(item: Mapping[str, Any]) -> tuple[str, str]:
    if item["type"] == "custom_tool_call":
        return "custom_tool_call_input", "input"
    return "function_call_arguments", "arguments"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _assembled(raw: bytes) -> Mapping[str, Any]:
    """The response a stream ends with; when it was cut off, what there was of it."""
    items, text = list[Any](), list[str]()
    for each in read_events(raw):
        kind = str(each.get("type", ""))
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            ended: Mapping[str, Any] = each["response"]
            return ended if ended.get("output") or not items else {**ended, "output": items}
        if kind == "response.output_item.done":
            items.append(each["item"])
            text.clear()
        elif kind == "response.output_text.delta":
            text.append(each["delta"])
    if text:
        items.append({"type": "message", "content": [{"type": "output_text", "text": "".join(text)}]})
    return {"output": items, "status": "cut_off"}


def _reading(response: Mapping[str, Any]) -> Reading:
    items = response["output"]
    wanted = tuple(
        _tool_request(item) for item in items if item.get("type") in ("function_call", "custom_tool_call")
    )
    status = str(response.get("status"))
    ends = {"completed": "tool_calls" if wanted else "stop", "incomplete": "length", "failed": "cut_off"}
    usage = response.get("usage") or {}
    return Reading(
        "".join(text_of(item.get("content")) for item in items if item.get("type") == "message"),
        Usage(
            input_tokens=whole_number(usage.get("input_tokens")),
            cached_tokens=whole_number((usage.get("input_tokens_details") or {}).get("cached_tokens")),
            output_tokens=whole_number(usage.get("output_tokens")),
            reasoning_tokens=whole_number((usage.get("output_tokens_details") or {}).get("reasoning_tokens")),
        ),
        wanted,
        ends.get(status, status),
    )


def _tool_request(item: Mapping[str, Any]) -> ToolRequest:
    arguments = item.get("arguments") or item.get("input") or "{}"
    return ToolRequest(id=str(item.get("call_id", "")), name=str(item["name"]), arguments=str(arguments))
