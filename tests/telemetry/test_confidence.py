"""How sure each dialect is of a span, and parts that all dialects share."""

from dataclasses import replace
from importlib import import_module

import pytest

from proctor.telemetry import exports
from proctor.telemetry.span import Span, usage_of

SPAN = Span(
    trace_id="t",
    span_id="s",
    parent_id="",
    scope="",
    name="n",
    started=1,
    ended=2,
    has_failed=False,
    error="",
    attributes={},
    events=(),
    records=(),
)
DIALECTS = {
    name: import_module(f"proctor.telemetry.dialects.{name}")
    for name in (
        *(
            "genai",
            "google_adk",
            "langchain",
            "llama_index",
            "openinference",
            "proctor",
            "smolagents",
            "strands",
        ),
        *("traceloop", "vercel_ai"),
    )
}


@pytest.mark.parametrize(
    ("scope", "attributes", "confidence"),
    [
        ("", {}, {}),
        ("other", {"unknown": 1}, {}),
        ("", {"gen_ai.operation.name": "chat"}, {"genai": 1}),
        ("", {"openinference.span.kind": "LLM"}, {"openinference": 2}),
        ("", {"traceloop.span.kind": "tool"}, {"genai": 1, "traceloop": 2}),
        ("", {"gen_ai.prompt.0.role": "user"}, {"traceloop": 2}),
        ("", {"ai.operationId": "ai.toolCall"}, {"vercel_ai": 3}),
        ("", {"gcp.vertex.agent.event_id": "1"}, {"google_adk": 3}),
        (DIALECTS["google_adk"].SCOPE, {}, {"google_adk": 3}),
        (DIALECTS["smolagents"].SCOPE, {}, {"smolagents": 3}),
        (DIALECTS["proctor"].SCOPE, {}, {"proctor": 3}),
        (next(iter(DIALECTS["strands"].SCOPES)), {}, {"strands": 3}),
        (next(iter(DIALECTS["langchain"].SCOPES)), {}, {"langchain": 3}),
        (DIALECTS["llama_index"].OPENINFERENCE, {}, {"llama_index": 3}),
        (next(iter(DIALECTS["llama_index"].TRACELOOP)), {}, {"llama_index": 3}),
    ],
)
def test_a_span_is_read_by_the_dialect_that_is_surest(scope, attributes, confidence):
    span = replace(SPAN, scope=scope, attributes=attributes)

    assert {
        name: sure for name, module in DIALECTS.items() if (sure := module.confidence(span))
    } == confidence


@pytest.mark.parametrize(
    ("input_tokens", "read", "written", "total"),
    [(10, 6, 4, 10), (10, 6, 5, 21), (10, 11, 0, 21), (10, 0, 0, 10), (0, 1, 2, 3)],
)
def test_cached_tokens_are_part_of_the_prompt(input_tokens, read, written, total):
    """Some frameworks leave them out of its count."""
    attributes = {
        "gen_ai.usage.input_tokens": input_tokens,
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": written,
    }
    usage = usage_of(replace(SPAN, attributes=attributes))
    assert (usage.input_tokens, usage.cached_tokens) == (total, read)


def test_only_functions_of_tools_are_definitions():
    function = {"type": "function"}
    assert exports._is_definition({"role": "tool", "content": function})
    assert not exports._is_definition({"role": "tool", "content": {"type": "text"}})
    assert not exports._is_definition({"role": "user", "content": function})
