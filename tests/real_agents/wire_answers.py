"""What a model says, in the four wire formats agents use, whole and streamed.

Each wire reads a request into `Asked` and writes `Said` as an answer. Every call counts the same:
1234 tokens in, 200 of them cached, and 56 out, so that totals can be checked.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TOKENS_IN, TOKENS_CACHED, TOKENS_OUT = 1234, 200, 56


@dataclass(frozen=True)
class Asked:
    """What of a request decides the answer."""

    model: str
    tools: list[dict[str, Any]]
    """Name and JSON schema of each."""
    results: int
    """How many results of tools are in the conversation."""
    text: str
    """All of it as JSON, to look for words in."""
    streams: bool


@dataclass(frozen=True)
class Said:
    """A text, or one tool to be called."""

    text: str = ""
    tool: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wire:
    read: Callable[[Mapping[str, Any]], Asked]
    whole: Callable[[Said, Asked], dict[str, Any]]
    streamed: Callable[[Said, Asked], Iterator[str]]


def _data(event: Mapping[str, Any], name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(event)}\n\n"


def _read_chat(body: Mapping[str, Any]) -> Asked:
    functions = [tool["function"] for tool in body.get("tools") or []]
    return Asked(
        model=body.get("model", ""),
        tools=[{"name": each["name"], "schema": each.get("parameters", {})} for each in functions],
        results=sum(message["role"] == "tool" for message in body["messages"]),
        text=json.dumps(body["messages"]),
        streams=bool(body.get("stream")),
    )


CHAT_USAGE = {
    "prompt_tokens": TOKENS_IN,
    "completion_tokens": TOKENS_OUT,
    "total_tokens": TOKENS_IN + TOKENS_OUT,
    "prompt_tokens_details": {"cached_tokens": TOKENS_CACHED},
}


def _chat_message(said: Said) -> dict[str, Any]:
    if not said.tool:
        return {"role": "assistant", "content": said.text}
    function = {"name": said.tool, "arguments": json.dumps(said.arguments)}
    call = {"id": "call_1", "type": "function", "index": 0, "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _chat(said: Said, asked: Asked) -> dict[str, Any]:
    choice = {"index": 0, "message": _chat_message(said), "finish_reason": _chat_finish(said)}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": asked.model}
    return {**whole, "choices": [choice], "usage": CHAT_USAGE}


def _chat_finish(said: Said) -> str:
    return "tool_calls" if said.tool else "stop"


def _chat_stream(said: Said, asked: Asked) -> Iterator[str]:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": asked.model}
    yield _data({**chunk, "choices": [{"index": 0, "delta": _chat_message(said), "finish_reason": None}]})
    yield _data({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": _chat_finish(said)}]})
    yield _data({**chunk, "choices": [], "usage": CHAT_USAGE})
    yield "data: [DONE]\n\n"


def _read_responses(body: Mapping[str, Any]) -> Asked:
    tools = [tool for tool in body.get("tools") or [] if tool.get("type") == "function"]
    items = body["input"] if isinstance(body["input"], list) else []
    return Asked(
        model=body.get("model", ""),
        tools=[{"name": each["name"], "schema": each.get("parameters", {})} for each in tools],
        results=sum(str(item.get("type", "")).endswith("_call_output") for item in items),
        text=json.dumps(body["input"]),
        streams=bool(body.get("stream")),
    )


def _responses_item(said: Said) -> dict[str, Any]:
    if said.tool:
        call = {"name": said.tool, "arguments": json.dumps(said.arguments), "call_id": "call_1"}
        return {"type": "function_call", "id": "fc_1", **call, "status": "completed"}
    content = [{"type": "output_text", "text": said.text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def _responses(said: Said, asked: Asked) -> dict[str, Any]:
    usage = {
        "input_tokens": TOKENS_IN,
        "input_tokens_details": {"cached_tokens": TOKENS_CACHED},
        "output_tokens": TOKENS_OUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": TOKENS_IN + TOKENS_OUT,
    }
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed"}
    return {**whole, "model": asked.model, "output": [_responses_item(said)], "usage": usage}


def _responses_stream(said: Said, asked: Asked) -> Iterator[str]:
    whole, item = _responses(said, asked), _responses_item(said)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    for event in events:
        yield _data(event, event["type"])


def _read_messages(body: Mapping[str, Any]) -> Asked:
    blocks = [block for message in body["messages"] for block in _blocks(message["content"])]
    tools = body.get("tools") or []
    return Asked(
        model=body.get("model", ""),
        tools=[{"name": each["name"], "schema": each.get("input_schema", {})} for each in tools],
        results=sum(block.get("type") == "tool_result" for block in blocks),
        text=json.dumps(body["messages"]),
        streams=bool(body.get("stream")),
    )


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else []


def _messages_block(said: Said) -> dict[str, Any]:
    if said.tool:
        return {"type": "tool_use", "id": "toolu_1", "name": said.tool, "input": said.arguments}
    return {"type": "text", "text": said.text}


def _messages(said: Said, asked: Asked) -> dict[str, Any]:
    usage = {"input_tokens": TOKENS_IN - TOKENS_CACHED, "cache_read_input_tokens": TOKENS_CACHED}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [_messages_block(said)],
        "stop_reason": "tool_use" if said.tool else "end_turn",
        "stop_sequence": None,
        "usage": {**usage, "cache_creation_input_tokens": 0, "output_tokens": TOKENS_OUT},
    }


def _messages_stream(said: Said, asked: Asked) -> Iterator[str]:
    whole, block = _messages(said, asked), _messages_block(said)
    begun = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    if said.tool:
        empty: dict[str, Any] = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
    else:
        empty = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": said.text}
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": whole["usage"]},
        {"type": "message_stop"},
    ]
    for event in events:
        yield _data(event, event["type"])


def _read_gemini(body: Mapping[str, Any]) -> Asked:
    declared = [each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations") or []]
    parts = [part for content in body["contents"] for part in content.get("parts", [])]
    return Asked(
        model="",
        tools=[
            {"name": each["name"], "schema": each.get("parametersJsonSchema") or each.get("parameters") or {}}
            for each in declared
        ],
        results=sum("functionResponse" in part for part in parts),
        text=json.dumps(body["contents"]),
        streams=False,
    )


def _gemini(said: Said, asked: Asked) -> dict[str, Any]:
    part: dict[str, Any] = {"text": said.text}
    if said.tool:
        part = {"functionCall": {"id": "call_1", "name": said.tool, "args": said.arguments}}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    usage = {
        "promptTokenCount": TOKENS_IN,
        "cachedContentTokenCount": TOKENS_CACHED,
        "candidatesTokenCount": TOKENS_OUT,
        "totalTokenCount": TOKENS_IN + TOKENS_OUT,
    }
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": asked.model}


def _gemini_stream(said: Said, asked: Asked) -> Iterator[str]:
    yield _data(_gemini(said, asked))


WIRES: Mapping[str, Wire] = {
    r"/chat/completions$": Wire(_read_chat, _chat, _chat_stream),
    r"/responses$": Wire(_read_responses, _responses, _responses_stream),
    r"/messages$": Wire(_read_messages, _messages, _messages_stream),
    r":(streamGenerateContent|generateContent)$": Wire(_read_gemini, _gemini, _gemini_stream),
}
"""By the end of the path."""
