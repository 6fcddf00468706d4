"""Each framework writes the same conversation in its own way, and each is read as the same session."""

import json

import pytest
from spans_by_hand import evidence, said, span
from written_dialects import (
    ANSWERED,
    ASKED,
    DIALECTS,
    TOOL,
    genai_inline,
    vercel_ai,
    weather_tool,
)

from proctor.telemetry import sessions_of
from proctor.telemetry.dialects import PROMPT, RESPONSE


@pytest.mark.parametrize("write", DIALECTS, ids=lambda write: write.__name__)
def test_every_dialect_tells_what_was_asked_done_and_answered_in_whatever_order_spans_arrive(write):
    found = evidence(*write())

    assert evidence(*reversed(write())) == found
    (turn,) = found.traces
    assert turn.prompt == ASKED
    assert turn.answer.strip() == ANSWERED
    assert [(call.name, dict(call.args), call.result) for call in found.tool_calls] == [
        ("weather", {"city": "Bonn"}, "sunny")
    ]
    talk = [(role, content.strip()) for role, content in said(found) if role != "system"]
    assert talk == [("user", ASKED), ("assistant", ANSWERED)]


def openinference_call():
    tokens = {"prompt": 100, "completion": 20, "prompt_details.cache_read": 60}
    counts = {f"llm.token_count.{name}": count for name, count in tokens.items()}
    return [span("response", openinference__span__kind="LLM", **counts)]


@pytest.mark.parametrize("write", [genai_inline, openinference_call], ids=lambda write: write.__name__)
def test_tokens_are_counted_with_what_came_from_a_cache(write):
    usage = evidence(*write()).model_calls[0].usage

    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (100, 60, 20)


@pytest.mark.parametrize("write", [genai_inline, vercel_ai], ids=lambda write: write.__name__)
def test_tools_that_could_have_been_used_are_known_with_their_schema(write):
    assert list(evidence(*write()).tools) == [TOOL]


def test_models_are_those_that_answered_and_tools_are_known_by_their_spans_and_measured():
    found = evidence(*genai_inline())

    (model,), (tool,) = found.model_calls, found.tool_calls
    assert (model.model, model.provider, model.latency_ms) == ("large-2026", "acme", 1000)
    assert (tool.call_id, tool.duration_ms, tool.success) == (weather_tool()["spanId"], 1000, True)


@pytest.mark.parametrize(
    "failed", [{"status": "ERROR"}, {"gen_ai.tool.status": "error"}, {"error.type": "Timeout"}], ids=str
)
def test_a_tool_that_failed_is_told_as_failed(failed):
    (call,) = evidence(genai_inline()[0], weather_tool(**failed)).tool_calls

    assert call.success is False


def test_what_only_carries_requests_is_no_session():
    spans = [
        span("POST", scope="opentelemetry.instrumentation.httpx"),
        span(
            "chat large",
            scope="opentelemetry.instrumentation.botocore.bedrock-runtime",
            gen_ai__operation__name="chat",
        ),
    ]

    assert sessions_of(spans) == []


def test_two_attributes_say_what_an_agent_was_asked_and_answered():
    def told(**attributes):
        return said(evidence(span("a", **attributes)))

    asked, answered = {PROMPT: "hi"}, {RESPONSE: "ho"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": "own"}
    assert told(**asked, **answered) == [("user", "hi"), ("assistant", "ho")]
    assert told(**asked) == [("user", "hi")]
    assert told(**agent, **asked, **answered) == [("user", "hi"), ("assistant", "own")]
    assert told(**{"gen_ai.operation.name": "chat"}, **asked) == []


@pytest.mark.parametrize(
    ("output", "result", "success"),
    [
        ({"blocks": [{"text": "a"}, {"text": "b"}], "tool_name": "t"}, "a\nb", True),
        ({"blocks": [], "tool_name": "t", "raw_output": "raw"}, "raw", True),
        ({"blocks": [{"text": "a"}], "tool_name": "t", "raw_output": "raw"}, "a", True),
        ({"blocks": [{"text": "a"}], "tool_name": "t", "is_error": True}, "a", False),
    ],
)
def test_the_result_of_a_tool_of_llama_index(output, result, success):
    tool = span(
        "t",
        scope="openinference.instrumentation.llama_index",
        **{"openinference.span.kind": "TOOL", "tool.name": "t", "output.value": json.dumps(output)},
    )

    (call,) = evidence(tool).tool_calls
    assert (call.result, call.success) == (result, success)


@pytest.mark.parametrize("name", ["ai.operationId", "gen_ai.operation.name", "openinference.span.kind"])
@pytest.mark.parametrize("wrong", [["ai.toolCall"], {"a": 1}, None], ids=repr)
def test_a_list_where_a_word_should_stand_is_no_word_anybody_knows(name, wrong):
    assert sessions_of([span("x", **{name: wrong})]) == []
