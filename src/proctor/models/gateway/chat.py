"""OpenAI's chat completions, as most agents use them. Requests within Proctor have the same shape."""

from collections.abc import Iterator, Mapping

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_text,
    as_whole_number,
    parse_json,
    require_map,
    require_maps,
    require_text,
)
from proctor.model import REFUSAL, Request, ToolRequest, WireAnswer
from proctor.models import openai, prices
from proctor.models.gateway.dialect import NOTHING, ClientRequest, Frame, event, read_events
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


def parse_request(body: JsonMap, model: str) -> ClientRequest:
    """The request unchanged, without its streaming options."""
    messages = [_with_system_role(message) for message in require_maps(body["messages"])]
    parameters = {name: value for name, value in body.items() if name not in NOT_PARAMETERS}
    seed = body.get("seed")
    request = Request(
        model=model,
        messages=messages,
        tools=require_maps(body.get("tools") or []),
        parameters=parameters,
        seed=seed if type(seed) is int else None,
    )
    return ClientRequest(request)


def wants_stream(body: JsonMap, operation: str) -> bool:  # noqa: ARG001 (it is in the body here)
    """Whether the client set `stream`."""
    return bool(body.get("stream"))


def wants_usage(body: JsonMap) -> bool:
    """Whether the client of a stream requests token counts."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def output_limit(body: JsonMap) -> int | None:
    """By the newer name of the limit or the older one, whichever is higher."""
    return prices.output_limit(body)


def with_output_limit(body: JsonMap, limit: int) -> JsonObject:
    """Under the name the client used; OpenAI's reasoning models know only the newer one."""
    if not any(body.get(name) for name in prices.OUTPUT_LIMITS):
        newer = openai.RENAMED_LIMIT.match(str(body.get("model", ""))) or "max_completion_tokens" in body
        body = {**body, "max_completion_tokens" if newer else "max_tokens": limit}
    return prices.with_output_limit(body, limit)


def answer(reading: WireAnswer, frame: Frame) -> JsonObject:
    """A chat completion with one choice."""
    message: JsonObject = {"role": "assistant", "content": reading.text or None}
    if reading.tool_requests:
        message["tool_calls"] = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": each.arguments}}
            for each in reading.tool_requests
        ]
    choice = {"index": 0, "message": message, "finish_reason": _ended(reading), "logprobs": None}
    return _framed(frame, "chat.completion") | {"choices": [choice], "usage": _usage(reading.usage)}


def stream(reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
    """The role, the text, each tool call, the end, token counts if requested, `[DONE]`."""
    head = _framed(frame, "chat.completion.chunk")

    def chunk(delta: JsonMap, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return event(head | {"choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    if reading.text:
        yield chunk({"content": reading.text})
    for number, request in enumerate(reading.tool_requests):
        call = {"index": number, "id": request.id, "type": "function"}
        yield chunk({"tool_calls": [call | {"function": {"name": request.name, "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": number, "function": {"arguments": request.arguments}}]})
    yield chunk({}, _ended(reading))
    if wants_usage(frame.body):
        yield event(head | {"choices": [], "usage": _usage(reading.usage)})
    yield event("[DONE]")


def read(raw: bytes, *, streamed: bool) -> WireAnswer:
    """The first choice and its tokens, from a completion or from its chunks."""
    try:
        return openai.read(_assembled(raw) if streamed else require_map(parse_json(raw)))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def error(status: int, message: str) -> JsonObject:
    """OpenAI's error object."""
    kind = ERROR_TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _ended(reading: WireAnswer) -> str:
    """OpenAI's finish reasons have none for a refusal."""
    return "stop" if reading.finish_reason == REFUSAL else reading.finish_reason


def _with_system_role(message: JsonMap) -> JsonMap:
    """`developer` is OpenAI's newer name of `system`, which all providers support."""
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _framed(frame: Frame, kind: str) -> JsonObject:
    return {"id": f"chatcmpl-{frame.id}", "object": kind, "created": frame.created, "model": frame.model}


def _usage(usage: Usage) -> JsonObject:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


_SERVED = ("model", "system_fingerprint", "id")
"""Members of chunks that say who answered."""


def _assembled(raw: bytes) -> JsonObject:
    """The completion that the chunks of a stream add up to."""
    text, calls, finish_reason, others = list[str](), dict[int, ToolRequest](), "", list[str]()
    refusal = list[str]()
    usage: JsonMap = {}
    tier: object = None
    served: JsonObject = {}
    for chunk in read_events(raw):
        served = {**{name: chunk[name] for name in _SERVED if chunk.get(name)}, **served}
        usage = as_map(chunk, "usage") or usage
        tier = chunk.get("service_tier") or tier
        for choice in require_maps(chunk.get("choices") or []):
            delta = require_map(choice.get("delta") or {})
            if choice.get("index", 0) != 0:
                others.append(as_text(delta, "content"))
                continue
            if isinstance(content := delta.get("content"), str):
                text.append(content)
            refusal.append(as_text(delta, "refusal"))
            for part in require_maps(delta.get("tool_calls") or []):
                _add_call(calls, part)
            finish_reason = require_text(choice.get("finish_reason") or finish_reason)
    tool_calls = [
        {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
        for _, call in sorted(calls.items())
    ]
    message = {"content": "".join(text), "tool_calls": tool_calls, "refusal": "".join(refusal)}
    first = {"message": message, "finish_reason": finish_reason or "cut_off"}
    choices = [first, {"message": {"content": "".join(others)}}]
    return {"choices": choices, "usage": usage, "service_tier": tier, **served}


def _add_call(calls: dict[int, ToolRequest], piece: JsonMap) -> None:
    function = require_map(piece.get("function") or {})
    name = require_text(function.get("name") or "")
    # Some servers do not number calls: then each piece with a name starts a new call.
    number = as_whole_number(piece, "index") if "index" in piece else len(calls) - (0 if name else 1)
    call = calls.get(max(0, number)) or ToolRequest(id="", name="", arguments="")
    calls[max(0, number)] = ToolRequest(
        id=str(piece.get("id") or call.id),
        name=call.name + name,
        arguments=call.arguments + openai.written(function.get("arguments")),
    )
