"""Google's generateContent, as the Gemini CLI uses it.

Most versions have no ids of calls: they are numbered in order, and a result belongs to the first open call of
its name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proctor.json_values import as_whole_number, parse_json, tool_arguments
from proctor.model import Request, ToolRequest, WireAnswer
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

SETTINGS = {
    "temperature": "temperature",
    "topP": "top_p",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
}
"""Gemini's name of a setting → ours."""
SHAPE_SETTINGS = frozenset({"responseMimeType", "responseSchema", "responseJsonSchema", "seed"})
UNDERSTOOD = frozenset(
    {
        "contents",
        "systemInstruction",
        "system_instruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "model",
    }
)
MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
FINISH_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
OUR_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def parse_request(body: Mapping[str, Any], model: str) -> ClientRequest:
    """Contents become messages, function calls get ids, the configuration our names."""
    left_out = {name for name in body if name not in UNDERSTOOD}
    messages = list[Mapping[str, Any]]()
    system = body.get("systemInstruction") or body.get("system_instruction") or {}
    if instructions := text_of(system.get("parts") if isinstance(system, Mapping) else system):
        messages.append({"role": "system", "content": instructions})
    ids = _Ids()
    for content in body["contents"]:
        messages += _turn(content, ids, left_out)
    settings = body.get("generationConfig") or {}
    left_out |= {name for name in settings if name not in SETTINGS and name not in SHAPE_SETTINGS}
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if len(calling.get("allowedFunctionNames") or ()) > 1:
        # Other formats can require one tool or any, not one of several.
        left_out.add("allowedFunctionNames")
    seed = settings.get("seed")
    request = Request(
        model=model,
        messages=messages,
        tools=tuple(_tools(body.get("tools") or (), left_out)),
        parameters=_parameters(body, settings),
        seed=seed if type(seed) is int else None,
    )
    return ClientRequest(request, tuple(sorted(left_out)))


def wants_stream(body: Mapping[str, Any], operation: str) -> bool:  # noqa: ARG001 (the path says it here)
    """Whether the streaming operation was called."""
    return operation == "streamGenerateContent"


def output_limit(body: Mapping[str, Any]) -> int | None:
    """The limit in the configuration."""
    return limit_in(body.get("generationConfig") or {}, "maxOutputTokens")


def with_output_limit(body: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The same with another configuration."""
    return {**body, "generationConfig": {**(body.get("generationConfig") or {}), "maxOutputTokens": limit}}


def answer(reading: WireAnswer, frame: Frame) -> dict[str, Any]:
    """One candidate with its text and its calls as parts."""
    parts: list[dict[str, Any]] = [{"text": reading.text}] if reading.text else []
    parts += [{"functionCall": _call(each)} for each in reading.tool_requests]
    reason = FINISH_REASONS.get(reading.finish_reason, "STOP")
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(reading.usage),
        "modelVersion": frame.model,
        "responseId": frame.id,
    }


def stream(reading: WireAnswer, frame: Frame) -> Iterator[bytes]:
    """The whole answer as one event: clients accept events of any size."""
    yield event(answer(reading, frame))


def read(raw: bytes, *, streamed: bool) -> WireAnswer:
    """Text, calls and tokens, from an answer or from the events of one."""
    try:
        pieces = _pieces(raw, streamed=streamed)
        return _reading(pieces)
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def error(status: int, message: str) -> dict[str, Any]:
    """Google's error object."""
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "INTERNAL")}}


class _Ids:
    """Assigns ids to calls and matches results to them: Gemini's calls may have none."""

    def __init__(self) -> None:
        self._number = 0
        self._open: list[tuple[str, str]] = []

    def called(self, call: Mapping[str, Any]) -> str:
        self._number += 1
        call_id = str(call.get("id") or f"call_{self._number}")
        self._open.append((call["name"], call_id))
        return call_id

    def answered(self, result: Mapping[str, Any]) -> str:
        for number, (name, call_id) in enumerate(self._open):
            if result.get("id") in (call_id, None) and (
                name == result.get("name") or result.get("id") == call_id
            ):
                del self._open[number]
                return call_id
        return str(result.get("id") or "")


def _turn(content: Mapping[str, Any], ids: _Ids, left_out: set[str]) -> list[Mapping[str, Any]]:
    results, parts, calls = list[Mapping[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for part in content.get("parts") or ():
        if part.get("thought"):
            continue
        if isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif "functionCall" in part:
            call = part["functionCall"]
            function = {"name": call["name"], "arguments": json.dumps(call.get("args") or {})}
            calls.append({"id": ids.called(call), "type": "function", "function": function})
        elif "functionResponse" in part:
            result = part["functionResponse"]
            text = _result(result.get("response"))
            results.append({"role": "tool", "tool_call_id": ids.answered(result), "content": text})
        elif "inlineData" in part:
            data = part["inlineData"]
            address = f"data:{data['mimeType']};base64,{data['data']}"
            parts.append({"type": "image_url", "image_url": {"url": address}})
        else:
            left_out.update(f"part {name}" for name in part if name != "thoughtSignature")
    role = "assistant" if content.get("role") == "model" else "user"
    only_text = all(part["type"] == "text" for part in parts)
    message: dict[str, Any] = {"role": role, "content": text_of(parts) if only_text else parts}
    if calls:
        message["tool_calls"] = calls
    return [*results, *([message] if parts or calls else [])]


def _result(response: Any) -> str:
    if isinstance(response, Mapping) and set(response) <= {"output", "error"} and len(response) == 1:
        return str(next(iter(response.values())))
    return json.dumps(response, ensure_ascii=False)


def _tools(tools: Any, left_out: set[str]) -> Iterator[Mapping[str, Any]]:
    for tool in tools:
        left_out.update(f"tool {name}" for name in tool if name != "functionDeclarations")
        for each in tool.get("functionDeclarations") or ():
            schema = each.get("parametersJsonSchema") or _schema(each.get("parameters") or {})
            function = {"name": each["name"], "description": each.get("description", "")}
            usual = {"type": "object", "properties": {}}
            yield {"type": "function", "function": function | {"parameters": schema or usual}}


def _schema(schema: Any) -> Any:
    """Google writes the types of its schemas in capitals."""
    if isinstance(schema, Mapping):
        return {
            name: value.lower() if name == "type" and isinstance(value, str) else _schema(value)
            for name, value in schema.items()
        }
    return [_schema(each) for each in schema] if isinstance(schema, list) else schema


def _parameters(body: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {
        ours: settings[theirs] for theirs, ours in SETTINGS.items() if settings.get(theirs) is not None
    }
    calling = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if mode := MODES.get(calling.get("mode", "")):
        parameters["tool_choice"] = mode
        names = list(calling.get("allowedFunctionNames") or ())
        if mode == "required" and len(names) == 1:
            parameters["tool_choice"] = {"type": "function", "function": {"name": names[0]}}
    if schema := settings.get("responseJsonSchema") or _schema(settings.get("responseSchema")):
        parameters["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema},
        }
    elif settings.get("responseMimeType") == "application/json":
        parameters["response_format"] = {"type": "json_object"}
    return parameters


def _call(request: ToolRequest) -> dict[str, Any]:
    return {"id": request.id, "name": request.name, "args": tool_arguments(request.arguments)}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }


def _pieces(raw: bytes, *, streamed: bool) -> Sequence[Mapping[str, Any]]:
    if streamed and not raw.lstrip().startswith(b"["):
        return list(read_events(raw))
    # Without `alt=sse` a stream is one JSON list.
    whole = parse_json(raw)
    return whole if isinstance(whole, list) else [whole]


def _reading(pieces: Sequence[Mapping[str, Any]]) -> WireAnswer:
    text, tool_requests, usage, reason = list[str](), list[ToolRequest](), dict[str, Any](), "cut_off"
    for piece in pieces:
        usage = piece.get("usageMetadata") or usage
        if (piece.get("promptFeedback") or {}).get("blockReason"):
            # A blocked prompt is an answer without a candidate.
            reason = "SAFETY"
        for candidate in (piece.get("candidates") or ())[:1]:
            for part in (candidate.get("content") or {}).get("parts") or ():
                if isinstance(part.get("text"), str) and not part.get("thought"):
                    text.append(part["text"])
                if "functionCall" in part:
                    tool_requests.append(_tool_request(part["functionCall"], len(tool_requests) + 1))
            reason = candidate.get("finishReason") or reason
    thoughts = as_whole_number(usage.get("thoughtsTokenCount"))
    tool_results = as_whole_number(usage.get("toolUsePromptTokenCount"))
    return WireAnswer(
        "".join(text),
        Usage(
            input_tokens=as_whole_number(usage.get("promptTokenCount")) + tool_results,
            cached_tokens=as_whole_number(usage.get("cachedContentTokenCount")),
            output_tokens=as_whole_number(usage.get("candidatesTokenCount")) + thoughts,
            reasoning_tokens=thoughts,
        ),
        tuple(tool_requests),
        "tool_calls" if tool_requests else OUR_REASONS.get(reason, reason),
    )


def _tool_request(call: Mapping[str, Any], number: int) -> ToolRequest:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolRequest(
        id=str(call.get("id") or f"call_{number}"), name=str(call["name"]), arguments=arguments
    )
