"""What the gateway writes to clients and reads from servers in each format is as recorded."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proctor.model import ToolRequest, WireAnswer
from proctor.models.gateway import chat, gemini, messages, responses
from proctor.models.gateway.dialect import Frame
from proctor.session import Usage
from recorded_files import check

RECORDED = Path(__file__).parent / "recorded"
DIALECTS: dict[str, ModuleType] = {
    "chat": chat,
    "messages": messages,
    "responses": responses,
    "gemini": gemini,
}
USAGE = Usage(input_tokens=50, cached_tokens=20, cache_write_tokens=5, output_tokens=30, reasoning_tokens=11)
CALLS = (
    ToolRequest(id="c1", name="add", arguments='{"a": 1}'),
    ToolRequest(id="c2", name="say", arguments="ü"),
)
ANSWERS = {
    "text": WireAnswer("Good ✓", USAGE, (), "stop"),
    "text, with counts": WireAnswer("Good ✓", USAGE, (), "stop"),
    "nothing": WireAnswer("", Usage(), (), "length"),
    "calls": WireAnswer("", USAGE, CALLS, "tool_calls"),
    "text and a call": WireAnswer("Wait.", USAGE, CALLS[:1], "stop"),
    "filtered": WireAnswer("", Usage(input_tokens=1), (), "content_filter"),
}
PLAIN: dict[str, Any] = {"model": "m"}
WITH_COUNTS = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}


def events_of(stream: str) -> list[Any]:
    """Each event of a stream: its name, where it has one, and its document or text."""
    events: list[Any] = []
    for event in stream.removesuffix("\n\n").split("\n\n"):
        name, _, text = event.rpartition("data: ")
        data = json.loads(text) if text.startswith("{") else text
        events.append({"event": name.removeprefix("event: ").removesuffix("\n"), "data": data})
    return events


@pytest.mark.parametrize("name", DIALECTS)
def test_an_answer_in_each_format_is_as_recorded(name: str) -> None:
    dialect = DIALECTS[name]
    written: dict[str, Any] = {}
    for title, answer in ANSWERS.items():
        body = WITH_COUNTS if title == "text, with counts" else PLAIN
        frame = Frame(id="id1", model="their-model", created=1_700_000_000, body=body)
        written[title] = {
            "whole": dialect.answer(answer, frame),
            "stream": events_of(b"".join(dialect.stream(answer, frame)).decode()),
        }
    written["errors"] = {
        str(status): dialect.error(status, "why")
        for status in (400, 401, 402, 403, 404, 409, 413, 429, 500, 503, 529)
    }
    check(RECORDED / f"{name}.txt", written)


def chunk(delta: object = None, *, index: int | None = 0, **more: object) -> dict[str, Any]:
    return {"choices": [{"delta": delta} | ({} if index is None else {"index": index}) | more]}


def call_chunk(**piece: object) -> dict[str, Any]:
    return chunk({"tool_calls": [piece]})


def candidate(*parts: object, **more: object) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": list(parts)}, **more}]}


STREAMS: dict[str, dict[str, list[Any]]] = {
    "chat": {
        "no index": [chunk({"content": "a"}, index=None), chunk({"content": "b"}, index=None)],
        "several choices": [
            chunk({"content": "a"}),
            chunk({"content": "x"}, index=1),
            chunk({"content": "b"}, finish_reason="stop"),
            chunk({"content": "y"}, index=1, finish_reason="length"),
        ],
        "numbered calls": [
            call_chunk(index=1, id="c2", function={"name": "g", "arguments": '{"b"'}),
            call_chunk(index=0, id="c1", function={"name": "f", "arguments": "{}"}),
            call_chunk(index=1, function={"arguments": ": 2}"}),
            chunk(None, finish_reason="tool_calls"),
        ],
        "calls without numbers": [
            call_chunk(id="c1", function={"name": "f", "arguments": '{"a"'}),
            call_chunk(function={"arguments": ": 1}"}),
            call_chunk(id="c2", function={"name": "g", "arguments": {"b": 2}}),
        ],
        "the rest of a call alone": [call_chunk(function={"arguments": "{}"})],
        "a negative number": [call_chunk(index=-3, id="c1", function={"name": "f"})],
        "counts at the end": [
            chunk({"content": "a"}, finish_reason="stop"),
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "total_tokens": 20,
                    "prompt_tokens_details": {"cached_tokens": 3},
                },
            },
            {"choices": [], "usage": None},
        ],
        "no chunk": [],
    },
    "messages": {
        "counts": [
            {
                "type": "message_start",
                "message": {
                    "usage": {
                        "input_tokens": 7,
                        "cache_read_input_tokens": 3,
                        "cache_creation_input_tokens": 2,
                        "output_tokens": 1,
                    }
                },
            },
            {"type": "ping"},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"text": "a"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 6}},
            {"type": "message_delta", "delta": {}, "usage": {"input_tokens": None}},
        ],
        "cut off": [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        ],
    },
    "responses": {
        "text after an item": [
            {
                "type": "response.output_item.done",
                "item": {"type": "custom_tool_call", "name": "f", "call_id": "c", "input": "ls"},
            },
            {"type": "response.output_text.delta", "delta": "so"},
        ],
        "output in the end": [
            {"type": "response.output_item.done", "item": {"type": "message", "content": "early"}},
            {
                "type": "response.completed",
                "response": {
                    "status": "completed",
                    "output": [
                        {"type": "message", "content": [{"type": "output_text", "text": "late"}]},
                        {"type": "reasoning", "content": [{"type": "output_text", "text": "no"}]},
                        {"type": "function_call", "name": "g"},
                    ],
                },
            },
        ],
    },
    "gemini": {
        "counts": [
            candidate({"text": "a"}, {"text": "hidden", "thought": True}),
            candidate(
                {"functionCall": {"name": "f", "args": {"é": 1}}},
                {"functionCall": {"name": "g", "id": "own"}},
            ),
            {
                "usageMetadata": {
                    "promptTokenCount": 9,
                    "toolUsePromptTokenCount": 2,
                    "cachedContentTokenCount": 3,
                    "candidatesTokenCount": 5,
                    "thoughtsTokenCount": 4,
                }
            },
        ],
        "several candidates": [
            {
                "candidates": [
                    {"content": {"parts": [{"text": "a"}]}, "finishReason": "MAX_TOKENS"},
                    {"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"},
                    {"content": {"parts": [{"text": "y"}]}},
                ]
            }
        ],
        "blocked": [{"promptFeedback": {"blockReason": "OTHER"}}],
        "an unknown reason": [candidate({"text": "a"}, finishReason="RECITATION"), candidate()],
        "cut off": [candidate({"text": "a"})],
    },
}


@pytest.mark.parametrize("name", DIALECTS)
def test_what_is_read_from_a_stream_in_each_format_is_as_recorded(name: str) -> None:
    read = {}
    for title, events in STREAMS[name].items():
        raw = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)
        read[title] = plain(DIALECTS[name].read(raw, streamed=True))
    check(RECORDED / f"{name}-read.txt", read)


def test_a_stream_of_gemini_may_be_one_list_or_one_answer() -> None:
    pieces = STREAMS["gemini"]["counts"]
    raw = b" " + json.dumps(pieces).encode()
    stream = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in pieces)

    assert gemini.read(raw, streamed=True) == gemini.read(stream, streamed=True)
    assert gemini.read(json.dumps(pieces[0]).encode(), streamed=False).text == "a"


def plain(answer: WireAnswer) -> dict[str, Any]:
    calls = [[call.id, call.name, call.arguments] for call in answer.tool_requests]
    usage = answer.usage
    return {
        "text": answer.text,
        "other text": answer.other_text,
        "calls": calls,
        "finish_reason": answer.finish_reason,
        "input": [usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens],
        "output": [usage.output_tokens, usage.reasoning_tokens],
    }
