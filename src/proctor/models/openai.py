"""OpenAI's chat completions, which most other providers and local servers support as well."""

import json
import re

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_whole_number,
    maps_in,
    member,
    require_map,
    require_maps,
    require_text,
)
from proctor.model import REFUSAL, Request, ToolRequest, WireAnswer, served_by
from proctor.models.providers import Endpoint
from proctor.session import Usage

RENAMED_LIMIT = re.compile(r"o[1-9]|gpt-5")
"""OpenAI's reasoning models reject `max_tokens` in favor of `max_completion_tokens`."""


def url(endpoint: Endpoint) -> str:
    """URL of chat completions."""
    if endpoint.provider == "azure":
        if endpoint.api_version:
            deployed = f"{endpoint.base_url}/deployments/{endpoint.model}"
            return f"{deployed}/chat/completions?api-version={endpoint.api_version}"
        return f"{endpoint.base_url}/v1/chat/completions"
    return f"{endpoint.base_url}/chat/completions"


def models_url(endpoint: Endpoint) -> str:
    """URL of the list of models."""
    if endpoint.provider == "azure":
        version = f"?api-version={endpoint.api_version}" if endpoint.api_version else ""
        return f"{endpoint.base_url}{'' if version else '/v1'}/models{version}"
    return f"{endpoint.base_url}/models"


def headers(endpoint: Endpoint) -> dict[str, str]:
    """Headers with the key as a bearer token, if there is one."""
    sent = {"Content-Type": "application/json"}
    if endpoint.key and endpoint.provider == "azure":
        sent["api-key"] = endpoint.key
    elif endpoint.key:
        sent["Authorization"] = f"Bearer {endpoint.key}"
    return sent


def body(request: Request, endpoint: Endpoint) -> JsonObject:
    """The request unchanged: `Request` has the shape of this format."""
    fields: JsonObject = {**request.parameters, "model": endpoint.model, "messages": request.messages}
    # Only complete answers are read here.
    fields.pop("stream", None)
    if request.tools:
        fields["tools"] = request.tools
    if request.seed is not None:
        fields["seed"] = request.seed
    if "max_tokens" in fields and wants_renamed_limit(endpoint):
        fields["max_completion_tokens"] = fields.pop("max_tokens")
    return fields


def wants_renamed_limit(endpoint: Endpoint) -> bool:
    """Whether a model rejects `max_tokens` in favor of `max_completion_tokens`."""
    return endpoint.provider in ("openai", "azure") and bool(RENAMED_LIMIT.match(endpoint.model))


def not_sent(request: Request) -> tuple[str, ...]:  # noqa: ARG001 (it takes everything)
    """Nothing: all parameters are sent."""
    return ()


def read(answer: JsonMap) -> WireAnswer:
    """The first choice, its tool calls, and the tokens with their cached and reasoning parts."""
    choices = require_maps(answer["choices"])
    choice, others = choices[0], choices[1:]
    message = require_map(choice["message"])
    content = message.get("content")
    refusal, tool_calls = message.get("refusal"), message.get("tool_calls")
    refusal = require_text(refusal) if refusal else ""
    text = content if isinstance(content, str) else _joined(content)
    return WireAnswer(
        text or refusal,
        _usage(as_map(answer, "usage")),
        tuple(map(_tool_request, require_maps(tool_calls))) if tool_calls else (),
        REFUSAL if refusal and not text else require_text(choice.get("finish_reason") or "stop"),
        "".join(map(_written_by, others)) if others else "",
        billed_tier(answer),
        served_by(answer),
    )


def billed_tier(answer: JsonMap) -> JsonMap:
    """The service tier of an answer, which the settings of an account may choose."""
    tier = answer.get("service_tier")
    return {"service_tier": tier} if tier and isinstance(tier, str) else {}


def _written_by(choice: JsonMap) -> str:
    """Everything in a choice that the model has written."""
    message = as_map(choice, "message")
    content = message.get("content")
    calls = maps_in(message, "tool_calls")
    arguments = "".join(written(as_map(call, "function").get("arguments")) for call in calls)
    return (content if isinstance(content, str) else _joined(content)) + arguments


def _joined(parts: object) -> str:
    """The text of an answer in parts, as some servers send it."""
    if not isinstance(parts, list):
        return ""
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _tool_request(call: JsonMap) -> ToolRequest:
    function = require_map(call["function"])
    return ToolRequest(
        id=str(call.get("id") or ""),
        name=str(function["name"]),
        arguments=written(function.get("arguments")) or "{}",
    )


def written(arguments: object) -> str:
    """Arguments as text; some servers send the object itself."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


def _usage(usage: JsonMap) -> Usage:
    read, generated = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    # DeepSeek has its own name of it.
    cached = member(read, "cached_tokens") if read else None
    cached = usage.get("prompt_cache_hit_tokens") if cached is None else cached
    reasoning = member(generated, "reasoning_tokens") if generated else None
    prompt = as_whole_number(usage.get("prompt_tokens"))
    completion = as_whole_number(usage.get("completion_tokens"))
    thought = as_whole_number(reasoning) if reasoning else 0
    # Gemini and xAI count reasoning in the total only; it is billed nevertheless. An answer cut off while
    # reasoning has no completion tokens.
    total = as_whole_number(usage.get("total_tokens"))
    hidden = max(0, total - prompt - completion) if prompt else 0
    if thought > completion + hidden:
        # It cannot be a part of the completion.
        hidden = thought
    return Usage(
        input_tokens=prompt,
        cached_tokens=as_whole_number(cached) if cached else 0,
        output_tokens=completion + hidden,
        reasoning_tokens=thought or hidden,
    )
