"""OpenAI's chat completions, which nearly every other provider and local server speaks as well.

Knows nothing of HTTP, prices or retries.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from proctor.json_values import whole_number
from proctor.model import Request, ToolRequest
from proctor.models.providers import Endpoint
from proctor.models.wire import WireAnswer
from proctor.session import Usage

RENAMED_LIMIT = re.compile(r"o[1-9]|gpt-5")
"""OpenAI's reasoning models refuse `max_tokens`; they want `max_completion_tokens`."""


def url(endpoint: Endpoint) -> str:
    """Where chat completions are posted."""
    if endpoint.provider == "azure":
        if endpoint.api_version:
            deployed = f"{endpoint.base_url}/deployments/{endpoint.model}"
            return f"{deployed}/chat/completions?api-version={endpoint.api_version}"
        return f"{endpoint.base_url}/v1/chat/completions"
    return f"{endpoint.base_url}/chat/completions"


def models_url(endpoint: Endpoint) -> str:
    """Where its models are listed."""
    if endpoint.provider == "azure":
        version = f"?api-version={endpoint.api_version}" if endpoint.api_version else ""
        return f"{endpoint.base_url}{'' if version else '/v1'}/models{version}"
    return f"{endpoint.base_url}/models"


def headers(endpoint: Endpoint) -> dict[str, str]:
    """The key goes in a bearer token; without a key nothing is sent."""
    sent = {"Content-Type": "application/json"}
    if endpoint.key and endpoint.provider == "azure":
        sent["api-key"] = endpoint.key
    elif endpoint.key:
        sent["Authorization"] = f"Bearer {endpoint.key}"
    return sent


def body(request: Request, endpoint: Endpoint) -> dict[str, Any]:
    """Everything as it is: requests are kept in this format's shape."""
    asked: dict[str, Any] = {**request.parameters, "model": endpoint.model, "messages": request.messages}
    # A whole answer is read here; a stream would come out as nonsense.
    asked.pop("stream", None)
    if request.tools:
        asked["tools"] = request.tools
    if request.seed is not None:
        asked["seed"] = request.seed
    if "max_tokens" in asked and wants_renamed_limit(endpoint):
        asked["max_completion_tokens"] = asked.pop("max_tokens")
    return asked


def wants_renamed_limit(endpoint: Endpoint) -> bool:
    """Whether a model refuses `max_tokens` and wants `max_completion_tokens`."""
    return endpoint.provider in ("openai", "azure") and bool(RENAMED_LIMIT.match(endpoint.model))


def not_sent(request: Request) -> tuple[str, ...]:  # noqa: ARG001 (it takes everything)
    """Nothing is left out: whoever does not know a parameter says so."""
    return ()


def read(answer: Mapping[str, Any]) -> WireAnswer:
    """The first choice, its tool calls, and the tokens with their cached and reasoning parts."""
    choice = answer["choices"][0]
    message = choice["message"]
    said = message.get("content")
    wanted = message.get("tool_calls")
    return WireAnswer(
        said if isinstance(said, str) else _joined(said) or message.get("refusal") or "",
        _usage(answer.get("usage") or {}),
        tuple(map(_tool_request, wanted)) if wanted else (),
        choice.get("finish_reason") or "stop",
    )


def _joined(parts: Any) -> str:
    """Some servers answer in parts; only the text of them is an answer."""
    if not isinstance(parts, list):
        return ""
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def _tool_request(call: Mapping[str, Any]) -> ToolRequest:
    function = call["function"]
    return ToolRequest(
        id=str(call.get("id") or ""),
        name=str(function["name"]),
        arguments=written(function.get("arguments")) or "{}",
    )


def written(arguments: Any) -> str:
    """Arguments as text, which they should be; some servers send the object itself."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


def _usage(usage: Mapping[str, Any]) -> Usage:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    read, said = whole_number(usage.get("prompt_tokens")), whole_number(usage.get("completion_tokens"))
    # Gemini and xAI count their thoughts in the total only. They are paid for all the same.
    # One that was cut short in its thoughts has said nothing.
    thoughts = max(0, whole_number(usage.get("total_tokens")) - read - said) if read else 0
    return Usage(
        input_tokens=read,
        # DeepSeek has a name of its own for it.
        cached_tokens=whole_number(usage.get("prompt_cache_hit_tokens") if cached is None else cached),
        output_tokens=said + thoughts,
        reasoning_tokens=whole_number(reasoning) or thoughts,
    )
