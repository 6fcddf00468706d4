"""OpenAI's chat completions, as most agents use them. Our own requests have the same shape."""

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.json_values import as_whole_number, parse_json
from proctor.model import Request, WireAnswer
from proctor.models import openai
from proctor.models.gateway.dialect import NOTHING, ClientRequest, Frame, event, limit_in, read_events
from proctor.session import Usage

NOT_PARAMETERS = frozenset({"model", "messages", "tools", "stream", "stream_options", "seed"})
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "not_found_error",
    409: "not_recorded",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


def parse_request(body: Mapping[str, Any], model: str) -> ClientRequest:
    """The request unchanged, without its streaming options."""
    messages = [_with_system_role(message) for message in body["messages"]]
    parameters = {name: value for name, value in body.items() if name not in NOT_PARAMETERS}
    seed = body.get("seed")
    request = Request(
        model=model,
        messages=messages,
        tools=body.get("tools") or (),
        parameters=parameters,
        seed=seed if type(seed) is int else None,
    )
    return ClientRequest(request)


def wants_stream(body: Mapping[str, Any], operation: str) -> bool:  # noqa: ARG001 (the body says it here)
    """Whether the client set `stream`."""
    return bool(body.get("stream"))


def wants_usage(body: Mapping[str, Any]) -> bool:
    """Whether the client of a stream requests token counts."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def output_limit(body: Mapping[str, Any]) -> int | None:
    """The newer name of the limit, or the older one."""
    return limit_in(body, "max_completion_tokens", "max_tokens")


def with_output_limit(body: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Under the name the client used; OpenAI's reasoning models know only the newer one."""
    older = "max_tokens" in body or not openai.RENAMED_LIMIT.match(str(body.get("model", "")))
    name = "max_completion_tokens" if "max_completion_tokens" in body or not older else "max_tokens"
    return {**body, name: limit}


def answer(reading: WireAnswer, frame: Frame) -> dict[str, Any]:
    """A chat completion with one choice."""
    message: dict[str, Any] = {"role": "assistant", "content": reading.text or None}
    if reading.tool_requests:
        message["tool_calls"] = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
            for each in reading.tool_requests
        ]
    choice = {"index": 0, "message": message, "finish_reason": reading.finish_reason, "logprobs": None}
    return _framed(frame, "chat.completion") | {"choices": [choice], "usage": _usage(reading.usage)}


def stream(reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
    """The role, the text, each tool call, the end, token counts if requested, `[DONE]`."""
    head = _framed(frame, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return event(head | {"choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    if reading.text:
        yield chunk({"content": reading.text})
    for number, each in enumerate(reading.tool_requests):
        call = {"index": number, "id": each.id, "type": "function"}
        yield chunk({"tool_calls": [call | {"function": {"name": each.name, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": number, "function": {"arguments": each.arguments}}]})
    yield chunk({}, reading.finish_reason)
    if wants_usage(frame.body):
        yield event(head | {"choices": [], "usage": _usage(reading.usage)})
    yield event("[DONE]")


def read(raw: bytes, *, streamed: bool) -> WireAnswer:
    """The first choice and its tokens, from a completion or from its chunks."""
    try:
        return openai.read(_assembled(raw) if streamed else parse_json(raw))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def error(status: int, message: str) -> dict[str, Any]:
    """OpenAI's error object."""
    kind = ERROR_TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _with_system_role(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """`developer` is OpenAI's newer name of `system`, which all providers support."""
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _framed(frame: Frame, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{frame.id}", "object": kind, "created": frame.created, "model": frame.model}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _assembled(raw: bytes) -> dict[str, Any]:
    """The completion that the chunks of a stream add up to."""
    text, calls, finish_reason = list[str](), dict[int, dict[str, Any]](), ""
    usage: Mapping[str, Any] = {}
    for chunk in read_events(raw):
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or {}
            if isinstance(content := delta.get("content"), str):
                text.append(content)
            for each in delta.get("tool_calls") or ():
                _add_call(calls, each)
            finish_reason = choice.get("finish_reason") or finish_reason
    message = {"content": "".join(text), "tool_calls": [calls[number] for number in sorted(calls)]}
    return {"choices": [{"message": message, "finish_reason": finish_reason or "cut_off"}], "usage": usage}


def _add_call(calls: dict[int, dict[str, Any]], piece: Mapping[str, Any]) -> None:
    # Some servers do not number calls: then each piece with a name starts a new call.
    named = (piece.get("function") or {}).get("name")
    number = as_whole_number(piece.get("index")) if "index" in piece else len(calls) - (0 if named else 1)
    call = calls.setdefault(max(0, number), {"id": "", "function": {"name": "", "arguments": ""}})
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += openai.written(function.get("arguments"))
