"""OpenAI's responses, as Codex speaks it: what was asked, in our own words.

The answering half is in `responses_answer`. Freeform tools, whose input is any text, become
functions with one argument `input`, and their calls are turned back again.

Knows nothing of HTTP, accesses or prices.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from proctor.model import Request
from proctor.models.gateway import chat
from proctor.models.gateway.dialect import Asked, limit_in, text_of
from proctor.models.gateway.responses_answer import answer, read, stream

__all__ = [
    "answer",
    "asked",
    "error",
    "output_limit",
    "read",
    "stream",
    "wants_stream",
    "with_output_limit",
]

UNDERSTOOD = frozenset(
    {
        *("model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream"),
        *("max_output_tokens", "temperature", "top_p", "text", "reasoning"),
        # These change nothing about the answer.
        *("store", "include", "metadata", "user", "prompt_cache_key", "client_metadata", "stream_options"),
        *("safety_identifier", "service_tier", "truncation", "prompt_cache_retention", "background"),
    }
)
FREEFORM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}

error = chat.error


def asked(body: Mapping[str, Any], model: str) -> Asked:
    """Instructions and input items become messages; what only the provider can do is left out."""
    if body.get("previous_response_id"):
        raise ValueError("previous_response_id: earlier responses are not kept here; send the whole input")
    left_out = {name for name, value in body.items() if name not in UNDERSTOOD and value is not None}
    messages = list[dict[str, Any]]()
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        _add(messages, item, left_out)
    request = Request(
        model=model,
        messages=messages,
        tools=tuple(_tools(body.get("tools") or (), left_out)),
        parameters=_parameters(body),
    )
    return Asked(request, tuple(sorted(left_out)))


def wants_stream(body: Mapping[str, Any], operation: str) -> bool:  # noqa: ARG001 (the body says it here)
    """Whether the client set `stream`."""
    return bool(body.get("stream"))


def output_limit(body: Mapping[str, Any]) -> int | None:
    """The limit, reasoning included."""
    return limit_in(body, "max_output_tokens")


def with_output_limit(body: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """OpenAI refuses limits below 16."""
    return {**body, "max_output_tokens": max(16, limit)}


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], left_out: set[str]) -> None:
    kind = item.get("type", "message")
    if kind == "message":
        role = "system" if item["role"] == "developer" else item["role"]
        messages.append({"role": role, "content": _content(item["content"], left_out)})
    elif kind in ("function_call", "custom_tool_call"):
        arguments = item["arguments"] if kind == "function_call" else json.dumps({"input": item["input"]})
        call = {"name": item["name"], "arguments": arguments}
        _called(messages)["tool_calls"].append({"id": item["call_id"], "type": "function", "function": call})
    elif kind in ("function_call_output", "custom_tool_call_output"):
        said = item.get("output")
        content = said if isinstance(said, str) else text_of(said) or json.dumps(said)
        messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    elif kind != "reasoning":
        # A model is not shown the thoughts of another; all else is missed.
        left_out.add(f"input of type {kind}")


def _called(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's turn that a call belongs to: calls follow what it said, each as an item."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", [])
    return messages[-1]


def _content(content: Any, left_out: set[str]) -> Any:
    if isinstance(content, str):
        return content
    parts = list[dict[str, Any]]()
    for part in content:
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


def _tools(tools: Any, left_out: set[str]) -> Iterator[Mapping[str, Any]]:
    for tool in tools:
        if tool.get("type") == "function":
            function = {
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


def _parameters(body: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: body[name] for name in ("temperature", "top_p") if body.get(name) is not None}
    if (limit := limit_in(body, "max_output_tokens")) is not None:
        kept["max_tokens"] = limit
    if body.get("tools"):
        kept |= {name: body[name] for name in ("parallel_tool_calls",) if body.get(name) is not None}
        if (choice := body.get("tool_choice")) is not None:
            named = isinstance(choice, Mapping) and "name" in choice
            kept["tool_choice"] = (
                {"type": "function", "function": {"name": choice["name"]}} if named else choice
            )
    if effort := (body.get("reasoning") or {}).get("effort"):
        kept["reasoning_effort"] = effort
    shape = (body.get("text") or {}).get("format") or {}
    if shape.get("type") == "json_schema":
        schema = {name: shape[name] for name in ("name", "schema", "strict") if name in shape}
        kept["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif shape.get("type") == "json_object":
        kept["response_format"] = {"type": "json_object"}
    return kept
