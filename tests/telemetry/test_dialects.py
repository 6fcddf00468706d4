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
    langgraph_traceloop,
    openai_agents_openinference,
    strands_unified,
    vercel_ai,
    weather_tool,
)

from proctor.telemetry.dialects import PROMPT, RESPONSE


@pytest.mark.parametrize("write", DIALECTS, ids=lambda write: write.__name__)
def test_every_dialect_tells_what_was_asked_done_and_answered(write):
    found = evidence(*write())

    (turn,) = found.traces
    assert turn.prompt == ASKED
    assert turn.answer.strip() == ANSWERED
    assert [(call.name, dict(call.args), call.result) for call in found.tool_calls] == [
        ("weather", {"city": "Bonn"}, "sunny")
    ]
    talk = [(role, content.strip()) for role, content in said(found) if role != "system"]
    assert talk == [("user", ASKED), ("assistant", ANSWERED)]


@pytest.mark.parametrize("write", DIALECTS, ids=lambda write: write.__name__)
def test_the_order_in_which_spans_arrive_changes_nothing(write):
    spans = write()

    assert evidence(*reversed(spans)) == evidence(*spans)


@pytest.mark.parametrize(
    "write", [genai_inline, openai_agents_openinference], ids=lambda write: write.__name__
)
def test_tokens_are_counted_with_what_came_from_a_cache(write):
    usage = evidence(*write()).model_calls[0].usage

    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (100, 60, 20)


@pytest.mark.parametrize(
    "write",
    [genai_inline, openai_agents_openinference, langgraph_traceloop, vercel_ai],
    ids=lambda w: w.__name__,
)
def test_tools_that_could_have_been_used_are_known_with_their_schema(write):
    assert list(evidence(*write()).tools) == [TOOL]


def test_tools_may_be_known_by_name_alone():
    assert list(evidence(*strands_unified()).tools) == [{"name": "weather"}]


@pytest.mark.parametrize(
    "write", [genai_inline, openai_agents_openinference, vercel_ai], ids=lambda w: w.__name__
)
def test_the_system_prompt_is_told_once(write):
    found = evidence(*write())

    assert found.system_prompt == "Be brief."
    assert [role for role, _ in said(found)].count("system") == 1


def test_model_and_provider_are_those_that_answered():
    (call,) = evidence(*genai_inline()).model_calls

    assert (call.model, call.provider, call.latency_ms) == ("large-2026", "acme", 1000)


def test_a_tool_is_known_by_its_span_and_measured():
    (call,) = evidence(*genai_inline()).tool_calls

    assert call.call_id == weather_tool()["spanId"]
    assert call.duration_ms == 1000 and call.success is True


@pytest.mark.parametrize(
    "failed", [{"status": "ERROR"}, {"gen_ai.tool.status": "error"}, {"error.type": "Timeout"}], ids=str
)
def test_a_tool_that_failed_is_told_as_failed(failed):
    (call,) = evidence(genai_inline()[0], weather_tool(**failed)).tool_calls

    assert call.success is False


def test_what_only_carries_requests_is_no_session():
    from proctor.telemetry import sessions_of

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
