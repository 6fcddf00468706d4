"""Google's generateContent, as the Gemini CLI uses it.

Most versions have no ids of calls: they are numbered in order, and a result belongs to the first open call of
its name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_list,
    as_map,
    as_text,
    as_whole_number,
    parse_json,
    require_map,
    require_maps,
    require_text,
    tool_arguments,
)
from proctor.model import NOT_SAID, Request, ToolRequest, WireAnswer, served_by
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
"""Gemini's name of a setting → Proctor's."""
SHAPE_SETTINGS = frozenset({"responseMimeType", "responseSchema", "responseJsonSchema", "seed"})
NOT_TRANSLATED = frozenset(("safetySettings", "serviceTier"))
"""Members of requests that pass (`parameters.py`), and that other formats do not have."""
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


def parse_request(body: JsonMap, model: str) -> ClientRequest:
    """Contents become messages, function calls get ids, settings the names of chat completions."""
    left_out = set(NOT_TRANSLATED.intersection(body))
    messages = list[JsonMap]()
    system = body.get("systemInstruction") or body.get("system_instruction") or {}
    if instructions := text_of(system.get("parts") if isinstance(system, Mapping) else system):
        messages.append({"role": "system", "content": instructions})
    ids = _Ids()
    for content in require_maps(body["contents"]):
        messages += _turn(content, ids, left_out)
    settings = require_map(body.get("generationConfig") or {})
    left_out |= {name for name in settings if name not in SETTINGS and name not in SHAPE_SETTINGS}
    if len(as_list(_calling(body).get("allowedFunctionNames"))) > 1:
        # Other formats can require one tool or any, not one of several.
        left_out.add("allowedFunctionNames")
    seed = settings.get("seed")
    request = Request(
        model=model,
        messages=messages,
        tools=tuple(_tools(require_maps(body.get("tools") or []), left_out)),
        parameters=_parameters(body, settings),
        seed=seed if type(seed) is int else None,
    )
    return ClientRequest(request, tuple(sorted(left_out)))


def wants_stream(body: JsonMap, operation: str) -> bool:  # noqa: ARG001 (it is in the path here)
    """Whether the streaming operation was called."""
    return operation == "streamGenerateContent"


def output_limit(body: JsonMap) -> int | None:
    """The limit in the configuration, and the thinking budget, which counts beside it."""
    settings = as_map(body, "generationConfig")
    limit = limit_in(settings, "maxOutputTokens")
    return None if limit is None else limit + _thinking_budget(settings)


def with_output_limit(body: JsonMap, limit: int) -> JsonObject:
    """The same with another configuration; at most half of the tokens are for thinking."""
    settings = as_map(body, "generationConfig")
    budget = min(_thinking_budget(settings), limit // 2)
    lowered: JsonObject = {**settings, "maxOutputTokens": limit - budget}
    if budget:
        lowered["thinkingConfig"] = {**as_map(settings, "thinkingConfig"), "thinkingBudget": budget}
    return {**body, "generationConfig": lowered}


def _thinking_budget(settings: JsonMap) -> int:
    return limit_in(as_map(settings, "thinkingConfig"), "thinkingBudget") or 0


def answer(reading: WireAnswer, frame: Frame) -> JsonObject:
    """One candidate with its text and its calls as parts."""
    parts: list[JsonObject] = [{"text": reading.text}] if reading.text else []
    parts += [
        {"functionCall": {"id": each.id, "name": each.name, "args": tool_arguments(each.arguments)}}
        for each in reading.tool_requests
    ]
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
        return _reading(_pieces(raw, streamed=streamed))
    except (ValueError, LookupError, TypeError, AttributeError):
        return NOTHING


def error(status: int, message: str) -> JsonObject:
    """Google's error object."""
    return {"error": {"code": status, "message": message, "status": STATUSES.get(status, "INTERNAL")}}


class _Ids:
    """Assigns ids to calls and matches results to them: Gemini's calls may have none."""

    def __init__(self) -> None:
        self._number = 0
        self._open: list[tuple[str, str]] = []

    def called(self, call: JsonMap) -> str:
        """The ID of a function call; the wire has none, so calls are counted."""
        self._number += 1
        call_id = str(call.get("id") or f"call_{self._number}")
        self._open.append((require_text(call["name"]), call_id))
        return call_id

    def answered(self, result: JsonMap) -> str:
        """The ID of the first open call that a result is for; empty: none."""
        for number, (name, call_id) in enumerate(self._open):
            if result.get("id") in (call_id, None) and (
                name == result.get("name") or result.get("id") == call_id
            ):
                del self._open[number]
                return call_id
        return str(result.get("id") or "")


def _turn(content: JsonMap, ids: _Ids, left_out: set[str]) -> list[JsonMap]:
    results, parts, calls = list[JsonMap](), list[JsonObject](), list[JsonObject]()
    for part in require_maps(content.get("parts") or []):
        if part.get("thought"):
            continue
        if isinstance(part.get("text"), str):
            parts.append({"type": "text", "text": part["text"]})
        elif "functionCall" in part:
            call = require_map(part["functionCall"])
            function = {"name": call["name"], "arguments": json.dumps(call.get("args") or {})}
            calls.append({"id": ids.called(call), "type": "function", "function": function})
        elif "functionResponse" in part:
            result = require_map(part["functionResponse"])
            text = _result(result.get("response"))
            results.append({"role": "tool", "tool_call_id": ids.answered(result), "content": text})
        elif "inlineData" in part:
            data = require_map(part["inlineData"])
            address = f"data:{data['mimeType']};base64,{data['data']}"
            parts.append({"type": "image_url", "image_url": {"url": address}})
        else:
            left_out.update(f"part {name}" for name in part if name != "thoughtSignature")
    role = "assistant" if content.get("role") == "model" else "user"
    only_text = all(part["type"] == "text" for part in parts)
    message: JsonObject = {"role": role, "content": text_of(parts) if only_text else parts}
    if calls:
        message["tool_calls"] = calls
    return [*results, *([message] if parts or calls else [])]


def _result(response: object) -> str:
    if isinstance(response, Mapping) and set(response) <= {"output", "error"} and len(response) == 1:
        return str(next(iter(response.values())))
    return json.dumps(response, ensure_ascii=False)


def _tools(tools: Sequence[JsonMap], left_out: set[str]) -> Iterator[JsonMap]:
    for tool in tools:
        left_out.update(f"tool {name}" for name in tool if name != "functionDeclarations")
        for declaration in require_maps(tool.get("functionDeclarations") or []):
            schema = declaration.get("parametersJsonSchema") or _schema(declaration.get("parameters") or {})
            function = {"name": declaration["name"], "description": declaration.get("description", "")}
            usual = {"type": "object", "properties": {}}
            yield {"type": "function", "function": function | {"parameters": schema or usual}}


def _schema(schema: object) -> object:
    """Google writes the types of its schemas in capitals."""
    if isinstance(schema, Mapping):
        return {
            name: value.lower() if name == "type" and isinstance(value, str) else _schema(value)
            for name, value in schema.items()
        }
    return [_schema(each) for each in schema] if isinstance(schema, list) else schema


def _calling(body: JsonMap) -> JsonMap:
    return as_map(body, "toolConfig", "functionCallingConfig")


def _parameters(body: JsonMap, settings: JsonMap) -> JsonObject:
    parameters = {
        ours: settings[theirs] for theirs, ours in SETTINGS.items() if settings.get(theirs) is not None
    }
    if mode := MODES.get(as_text(_calling(body).get("mode"))):
        parameters["tool_choice"] = mode
        names = as_list(_calling(body).get("allowedFunctionNames"))
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


def _usage(usage: Usage) -> JsonObject:
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }


def _pieces(raw: bytes, *, streamed: bool) -> Sequence[JsonMap]:
    if streamed and not raw.lstrip().startswith(b"["):
        return list(read_events(raw))
    # Without `alt=sse` a stream is one JSON list.
    whole = parse_json(raw)
    return require_maps(whole if isinstance(whole, list) else [whole])


def _reading(pieces: Sequence[JsonMap]) -> WireAnswer:
    text, tool_requests, reason, others = list[str](), list[ToolRequest](), "cut_off", list[str]()
    usage: JsonMap = {}
    served = NOT_SAID
    for piece in pieces:
        served = served_by(piece) if served == NOT_SAID else served
        usage = as_map(piece, "usageMetadata") or usage
        if as_map(piece, "promptFeedback").get("blockReason"):
            # A blocked prompt is an answer without a candidate.
            reason = "SAFETY"
        candidates = require_maps(piece.get("candidates") or [])
        others += [text_of(as_map(other, "content").get("parts")) for other in candidates[1:]]
        for candidate in candidates[:1]:
            for part in require_maps(as_map(candidate, "content").get("parts") or []):
                if not part.get("thought"):
                    text.append(as_text(part, "text"))
                if "functionCall" in part:
                    call = require_map(part["functionCall"])
                    tool_requests.append(_tool_request(call, len(tool_requests) + 1))
            reason = require_text(candidate.get("finishReason") or reason)
    thoughts = as_whole_number(usage, "thoughtsTokenCount")
    tool_results = as_whole_number(usage, "toolUsePromptTokenCount")
    return WireAnswer(
        "".join(text),
        Usage(
            input_tokens=as_whole_number(usage, "promptTokenCount") + tool_results,
            cached_tokens=as_whole_number(usage, "cachedContentTokenCount"),
            output_tokens=as_whole_number(usage, "candidatesTokenCount") + thoughts,
            reasoning_tokens=thoughts,
        ),
        tuple(tool_requests),
        "tool_calls" if tool_requests else OUR_REASONS.get(reason, reason),
        "".join(others),
        served=served,
    )


def _tool_request(call: JsonMap, number: int) -> ToolRequest:
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolRequest(
        id=str(call.get("id") or f"call_{number}"), name=str(call["name"]), arguments=arguments
    )
