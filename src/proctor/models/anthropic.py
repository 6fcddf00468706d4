"""Anthropic's messages: separate system text, tools as content blocks, separately counted cached tokens."""

import json
from collections.abc import Mapping, Sequence

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    require_map,
    require_maps,
    require_text,
    tool_arguments,
    usage_of_messages,
)
from proctor.model import Request, ToolRequest, WireAnswer, served_by
from proctor.models.providers import Endpoint

API_VERSION = "2023-06-01"

# A limit is required; every current model allows this one.
DEFAULT_MAX_TOKENS = 4096
FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
"""Anthropic's stop reason → Proctor's."""
UNKNOWN_HERE = frozenset(
    {
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "n",
        "seed",
        "parallel_tool_calls",
        "reasoning_effort",
        "verbosity",
        "user",
        "store",
        "stream_options",
        "prompt_cache_key",
        "safety_identifier",
        "modalities",
        "audio",
        "prediction",
        "functions",
    }
)
"""Parameters of OpenAI that Anthropic rejects; not sent, and reported."""


def url(endpoint: Endpoint) -> str:
    """URL of messages."""
    return f"{endpoint.base_url}/v1/messages"


def models_url(endpoint: Endpoint) -> str:
    """URL of the list of models."""
    return f"{endpoint.base_url}/v1/models"


def headers(endpoint: Endpoint) -> dict[str, str]:
    """Headers with the key in its own field."""
    sent = {"Content-Type": "application/json", "anthropic-version": API_VERSION}
    if endpoint.key:
        sent["x-api-key"] = endpoint.key
    return sent


def body(request: Request, endpoint: Endpoint) -> JsonObject:
    """The request in Anthropic's format, with renamed parameters."""
    # OpenAI accepts null for the default; Anthropic rejects it.
    parameters = {name: value for name, value in request.parameters.items() if value is not None}
    fields = {name: value for name, value in parameters.items() if name not in UNKNOWN_HERE}
    fields.pop("stream", None)
    if "tool_choice" in fields:
        fields["tool_choice"] = _tool_choice(fields["tool_choice"])
    limit = fields.pop("max_completion_tokens", None) or fields.pop("max_tokens", None)
    if (stop := fields.pop("stop", None)) is not None:
        fields["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if (shape := fields.pop("response_format", None)) and shape.get("type") == "json_schema":
        schema = shape.get("json_schema", {}).get("schema", {})
        fields["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    fields |= {"model": endpoint.model, "max_tokens": limit or DEFAULT_MAX_TOKENS}
    system = "\n\n".join(_text(each) for each in request.messages if each["role"] == "system")
    if system:
        fields["system"] = system
    fields["messages"] = _messages(request.messages)
    if request.tools:
        fields["tools"] = [_tool(each["function"]) for each in request.tools]
    return fields


def not_sent(request: Request) -> tuple[str, ...]:
    """Parameters of a request that Anthropic does not support."""
    names = {name for name, value in request.parameters.items() if value is not None}
    unsupported = sorted(UNKNOWN_HERE & names)
    if as_map(request.parameters, "response_format").get("type") == "json_object":
        # JSON without a schema.
        unsupported.append("response_format")
    return (*unsupported, *(["seed"] if request.seed is not None else []))


def read(answer: JsonMap) -> WireAnswer:
    """Text blocks joined, tool uses as tool requests, cached tokens added to the input."""
    blocks = require_maps(answer["content"])
    ended = require_text(answer.get("stop_reason") or "end_turn")
    usage = as_map(answer, "usage")
    return WireAnswer(
        "".join(require_text(block["text"]) for block in blocks if block.get("type") == "text"),
        usage_of_messages(usage),
        tuple(
            ToolRequest(
                id=str(block["id"]), name=str(block["name"]), arguments=json.dumps(block.get("input") or {})
            )
            for block in blocks
            if block.get("type") == "tool_use"
        ),
        FINISH_REASONS.get(ended, ended),
        billed_as={name: value for name in ("speed", "inference_geo") if (value := usage.get(name))},
        served=served_by(answer),
    )


def _messages(messages: Sequence[JsonMap]) -> list[JsonObject]:
    """Turns must alternate: consecutive messages of one role become one turn with several blocks."""
    turns: list[tuple[str, list[JsonObject]]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(message))
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _blocks(message: JsonMap) -> list[JsonObject]:
    text = _text(message)
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message.get("tool_call_id", ""), "content": text}]
    # Empty text blocks are rejected; a message may consist of tool calls only.
    blocks: list[JsonObject] = [{"type": "text", "text": text}] if text else []
    blocks += _images(message.get("content"))
    for call in require_maps(message.get("tool_calls") or []):
        function = require_map(call["function"])
        arguments = tool_arguments(function.get("arguments"))
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return blocks


def _images(content: object) -> list[JsonObject]:
    """Images of a message as content blocks."""
    if not isinstance(content, list):
        return []
    addresses = [part["image_url"]["url"] for part in content if part.get("type") == "image_url"]
    return [{"type": "image", "source": _image_source(address)} for address in addresses]


def _image_source(address: str) -> dict[str, str]:
    head, comma, data = address.partition(";base64,")
    if comma and head.startswith("data:"):
        return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "url", "url": address}


def _tool_choice(choice: object) -> object:
    if isinstance(choice, str):
        return {"type": {"required": "any"}.get(choice, choice)}
    if isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):
        return {"type": "tool", "name": choice["function"].get("name", "")}
    return choice


def _text(message: JsonMap) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return require_text(content or "")


def _tool(function: JsonMap) -> JsonObject:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
