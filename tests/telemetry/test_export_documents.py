"""The documents of single spans, observations and runs of other tools, member by member."""

import io

import pytest
from spans_by_hand import span

from proctor.telemetry.dialects import google_adk
from proctor.telemetry.exports import conventional, exported, flatten, time_of
from proctor.telemetry.sources import rows_of_csv
from proctor.telemetry.span import span_of

SECOND = 1_000_000_000
ID = "0123456789abcdef0123456789abcdef0123"
MODEL, AGENT, OPERATION = "gen_ai.request.model", "gen_ai.agent.name", "gen_ai.operation.name"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
ANSWER, TOOLS = "gen_ai.output.messages", "gen_ai.tool.definitions"
SESSION, COST, PROVIDER = "session.id", "operation.cost", "gen_ai.provider.name"


def attributes_of(value, place=0):
    return exported(value)[place]["attributes"]


# Langfuse


def observation(kind="GENERATION", **more):
    return {"type": kind, "traceId": "t", "id": "s", "startTime": 1, "endTime": 3, **more}


def test_an_observation_is_a_span():
    (found,) = exported(observation(name="n", parentObservationId="p", agent="nobody"))
    assert found == {
        "traceId": "t",
        "spanId": "s",
        "parentSpanId": "p",
        "name": "n",
        "startTimeUnixNano": SECOND,
        "endTimeUnixNano": 3 * SECOND,
        "status": {"code": "OK"},
        "resource": {"attributes": {}},
        "scope": None,
        "attributes": {OPERATION: "chat"},
    }


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("tool", {"name": "execute_tool look"}, {"gen_ai.tool.name": "look"}),
        ("TOOL", {"name": "look", "input": 1, "output": 2}, {"gen_ai.tool.call.arguments": 1}),
        ("AGENT", {"name": "invoke_agent Ann"}, {"gen_ai.agent.name": "Ann"}),
        ("AGENT", {"name": "invoke_agent"}, {"gen_ai.agent.name": "invoke_agent"}),
        ("RETRIEVER", {"input": "q", "output": "a"}, {"input.value": "q", "output.value": "a"}),
        ("EMBEDDING", {"input": "q"}, {"gen_ai.operation.name": "embeddings", "input.value": "q"}),
        ("CHAIN", {"agent": "a"}, {"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": "a"}),
        ("CHAIN", {"agent": "a", "parentObservationId": "p", "sessionId": "s"}, {"session.id": "s"}),
        ("SPAN", {"name": "invoke_agent x"}, {"gen_ai.agent.name": "x"}),
        ("SPAN", {"name": "execute_tool x"}, {"gen_ai.tool.name": "x"}),
        ("EVENT", {"name": "execute_tool x", "sessionId": "s"}, {"session.id": "s"}),
        ("AGENT", {"totalCost": 1, "name": "a"}, {"gen_ai.agent.name": "a"}),
    ],
)
def test_what_an_observation_is(kind, more, expected):
    found = attributes_of(observation(kind, **more))
    assert {key: found.get(key) for key in expected} == expected
    assert "operation.cost" not in found
    if set(expected) == {"session.id"}:
        assert found == expected


def test_an_observation_at_the_level_of_errors_has_failed():
    (failed,) = exported(observation(level="error", statusMessage="no"))
    (warned,) = exported(observation(level="WARNING", statusMessage="no"))
    assert (failed["status"], warned["status"]) == ({"code": "ERROR", "message": "no"}, {"code": "OK"})


@pytest.mark.parametrize(
    ("times", "timestamp", "expected"),
    [
        ([(2, 5), (1, 4)], None, (1, 5)),
        ([(2, 5)], 1, (1, 5)),
        ([(2, 5)], 3, (2, 5)),
        ([(2, None)], 4, (2, 4)),
        ([], 4, (4, 4)),
        ([], None, (0, 0)),
    ],
)
def test_a_trace_lasts_as_long_as_its_observations(times, timestamp, expected):
    observations = [observation(startTime=start, endTime=end) for start, end in times]
    root, *spans = exported(
        {"id": "t", "timestamp": timestamp, "input": "q", "observations": [*observations, {"type": "SPAN"}]}
    )
    first, last = expected
    assert (root["startTimeUnixNano"], root["endTimeUnixNano"]) == (first * SECOND, last * SECOND)
    assert len(spans) == len(times)


def test_the_observations_of_a_trace_are_below_it_and_of_its_session():
    root, child, grandchild = exported(
        {
            "id": "t",
            "sessionId": "session",
            "name": "n",
            "input": "in",
            "output": "",
            "observations": [
                observation(id="a", traceId="other"),
                observation(id="b", parentObservationId="a", sessionId="own"),
            ],
        }
    )
    assert root["attributes"] == {
        "gen_ai.operation.name": "invoke_workflow",
        "session.id": "session",
        "gen_ai.input.messages": "in",
    }
    assert (root["traceId"], root["spanId"], root["name"]) == ("t", "t", "n")
    assert [(each["traceId"], each["spanId"], each["parentSpanId"]) for each in (child, grandchild)] == [
        ("t", "a", "t"),
        ("t", "b", "a"),
    ]
    assert [each["attributes"]["session.id"] for each in (child, grandchild)] == ["session", "own"]


# LangSmith


NAMED = {"metadata": {"lc_agent_name": "a"}}


def run(kind="llm", **more):
    return {"run_type": kind, "id": "r", "start_time": 1, "end_time": 2, **more}


def used(**tokens):
    return {"metadata": {"usage_metadata": tokens}}


def test_a_run_is_a_span_and_so_are_those_below_it():
    below = [run("tool", id="c", name="look"), {"id": "no run"}]
    own, child = exported(run(name="n", parent_run_id="p", child_runs=below))
    assert own == {
        "traceId": "r",
        "spanId": "r",
        "parentSpanId": "p",
        "name": "n",
        "startTimeUnixNano": SECOND,
        "endTimeUnixNano": 2 * SECOND,
        "status": {"code": "OK"},
        "attributes": {OPERATION: "chat"},
    }
    assert (child["traceId"], child["spanId"], child["parentSpanId"]) == ("r", "c", "r")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (observation(providedModelName="m"), {MODEL: "m"}),
        (observation(model="a", providedModelName="b"), {MODEL: "a"}),
        (observation(model=""), {MODEL: None}),
        (observation(promptTokens=5), {INPUT: 5}),
        (observation(usage={"input": 6}, promptTokens=5), {INPUT: 6}),
        (observation(usageDetails={"input": 7}, usage={"input": 6}), {INPUT: 7}),
        (observation(completionTokens=5), {OUTPUT: 5}),
        (observation(usage={"output": 6}, completionTokens=5), {OUTPUT: 6}),
        (observation(usage={"cache_read_input_tokens": 3}), {"gen_ai.usage.cache_read.input_tokens": 3}),
        (observation(totalCost=0, calculatedTotalCost=2), {COST: 0.0}),
        (observation(calculatedTotalCost=2, costDetails={"total": 3}), {COST: 2.0}),
        (observation(costDetails={"total": 3}), {COST: 3.0}),
        (observation(tools=[]), {TOOLS: None}),
        (observation(tools=[{"name": "x"}]), {TOOLS: [{"name": "x"}]}),
        (observation(input="in", output="out"), {"gen_ai.input.messages": "in", ANSWER: "out"}),
        (observation(sessionId="s"), {SESSION: "s"}),
        (observation(toolCallId="c"), {"gen_ai.tool.call.id": "c"}),
        (observation(usageDetails={"input_cached_tokens": 4}), {"gen_ai.usage.cache_read.input_tokens": 4}),
        (run(inputs={"messages": "in"}), {"gen_ai.input.messages": {"messages": "in"}}),
        (run(extra={"metadata": {"thread_id": "t", "ls_provider": "x"}}), {SESSION: "t", PROVIDER: "x"}),
        (run(extra={"metadata": {"ls_model_name": "m"}, "invocation_params": {"model": "o"}}), {MODEL: "m"}),
        (run(extra={"invocation_params": {"tools": [1]}}, total_cost=0.25), {TOOLS: [1], COST: 0.25}),
        (run(completion_tokens=6), {OUTPUT: 6}),
        (run(extra={"invocation_params": {"model": "m"}}), {MODEL: "m"}),
        (run(extra=used(input_tokens=3)), {INPUT: 3}),
        (run(extra=used(output_tokens=3)), {OUTPUT: 3}),
        (run(extra=used(input_tokens=3), prompt_tokens=4), {INPUT: 4}),
        (run(extra={"metadata": {"session_id": "", "conversation_id": "c"}}), {SESSION: "c"}),
        (run(extra={"metadata": {"session_id": "s", "thread_id": "t"}}), {SESSION: "s"}),
        (run(session_id="project"), {SESSION: None}),
        (run("tool", inputs={"input": 1}), {"gen_ai.tool.call.arguments": 1}),
        (run("tool", inputs={"input": 1, "b": 2}), {"gen_ai.tool.call.arguments": {"input": 1, "b": 2}}),
        (run("llm", inputs={"input": 1}), {"gen_ai.input.messages": {"input": 1}}),
        (run("tool", total_cost=1), {COST: None}),
        (run("tool", extra={"invocation_params": {"tools": [1]}}), {TOOLS: None}),
        (run("retriever", inputs={"q": 1}), {"input.value": {"q": 1}}),
        (run("chain", extra=NAMED), {OPERATION: "invoke_workflow", AGENT: "a"}),
        (run("chain", parent_run_id="p", extra=NAMED), {OPERATION: None, AGENT: None}),
        (run("llm", extra=NAMED), {AGENT: None}),
        (run(outputs={"choices": [{"message": "m"}, {"message": "n"}]}), {ANSWER: "m"}),
        (run(outputs={"choices": [{"text": "t"}]}), {ANSWER: {"text": "t"}}),
        (run(outputs={"generations": [[{"message": "m"}, {"message": "n"}]]}), {ANSWER: "m"}),
        (run(outputs={"generations": [{"text": "t"}]}), {ANSWER: "t"}),
        (run(outputs={"generations": []}), {ANSWER: {"generations": []}}),
        (run(outputs={"output": "o", "other": 1}), {ANSWER: "o"}),
        (run(outputs={"other": 1}), {ANSWER: {"other": 1}}),
        (run(outputs={}), {ANSWER: None}),
    ],
)
def test_where_the_figures_of_an_observation_or_a_run_come_from(value, expected):
    found = attributes_of(value)
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("order", "parent"),
    [
        ("", ""),
        (f"20260101T000000000001Z{ID}", ""),
        (f"20260101T000000000001Z{ID}.20260101T000000000002Zx", ID),
        (f"x.20260101T000000000001Z{ID}.20260101T000000000002Zx", ID),
        (f"20260101T000000000001Z{ID}.x.20260101T000000000002Zx", ""),
    ],
)
def test_the_parent_of_a_run_by_its_order(order, parent):
    (span,) = exported(run(dotted_order=order))
    assert span["parentSpanId"] == parent
    (span,) = exported(run(dotted_order=order, parent_run_id="p"))
    assert span["parentSpanId"] == "p"


def test_a_run_with_an_error_has_failed():
    (failed,) = exported(run(error="no", trace_id="t"))
    assert failed["status"] == {"code": "ERROR", "message": "no"}
    assert failed["traceId"] == "t"


# Flat spans


def snake(**more):
    return {"trace_id": "t", "span_id": "s", "start_time": 1, "end_time": 2, **more}


def test_a_flat_span():
    value = snake(
        parent_span_id="p",
        parent_id="other",
        name="n",
        kind="CLIENT",
        attributes={"a": 1},
        scope="scope",
        resource={"r": 1},
        status_code="ERROR",
        status_message="no",
        span_events=[{"event_name": "e", "name": "f", "timestamp": 1, "attributes": {"b": 2}}],
        events=[{"name": "g", "time_unix_nano": 2}, {"body": "text", "span_id": "own", "timestamp": 3}],
    )
    place = {"traceId": "t", "spanId": "s", "resource": {"r": 1}, "scope": {"name": "scope"}}
    assert exported(value) == [
        {
            **place,
            "parentSpanId": "p",
            "name": "n",
            "kind": "CLIENT",
            "startTimeUnixNano": SECOND,
            "endTimeUnixNano": 2 * SECOND,
            "status": {"code": "ERROR", "message": "no"},
            "attributes": {"a": 1},
            "events": [
                {"name": "e", "timeUnixNano": SECOND, "attributes": {"b": 2}},
                {"name": "g", "timeUnixNano": 2 * SECOND, "attributes": None},
            ],
        },
        {**place, "spanId": "own", "timeUnixNano": 3 * SECOND, "attributes": {}, "body": "text"},
    ]


@pytest.mark.parametrize(
    ("more", "key", "expected"),
    [
        ({"parent_id": "p"}, "parentSpanId", "p"),
        ({"status": {"code": "OK"}, "status_code": "ERROR"}, "status", {"code": "OK"}),
        ({"instrumentation_scope": {"name": "x"}}, "scope", {"name": "x"}),
        ({"scope": {"name": "y"}, "instrumentation_scope": {"name": "x"}}, "scope", {"name": "y"}),
        ({"end_time": None}, "endTimeUnixNano", 0),
        ({"start_time": None}, "startTimeUnixNano", 0),
        ({"start_time": None, "end_time": None}, "startTimeUnixNano", 0),
    ],
)
def test_members_of_a_flat_span(more, key, expected):
    (span,) = exported(snake(**more))
    assert span[key] == expected


@pytest.mark.parametrize(
    ("more", "time", "name"),
    [
        ({"event_name": "e", "name": "n", "timestamp": 2}, 2, "e"),
        ({"name": "n", "time_unix_nano": 1, "timestamp": 2}, 1, "n"),
        ({"attributes": {"event.name": "a"}, "observed_timestamp": 3}, 3, "a"),
        ({"name": "n", "attributes": {"event.name": "a"}}, 0, "n"),
        ({}, 0, None),
    ],
)
def test_a_flat_document_without_times_is_a_record(more, time, name):
    (record,) = exported({"trace_id": "t", "span_id": "s", "body": "b", **more})
    assert (record["timeUnixNano"], record["body"]) == (time * SECOND, "b")
    assert record["attributes"].get("event.name") == name
    (event,) = exported({"trace_id": "t", "span_id": "s", "end_time": 4})
    assert event["endTimeUnixNano"] == 4 * SECOND


@pytest.mark.parametrize(
    "value",
    [
        {"trace_id": "t"},
        {"span_id": "t"},
        {"context.trace_id": "t"},
        {"context.span_id": "t"},
        {"context": {"trace_id": ""}},
        {"context": "x"},
        {"run_type": "llm"},
        {"id": "r"},
        {"run_type": 3, "id": "r"},
        {"observations": []},
        {"observations": {}, "id": "t"},
        {"type": "GENERATION", "traceId": "t"},
        {"type": "GENERATION", "startTime": 1},
        {"type": "OTHER", "traceId": "t", "startTime": 1},
    ],
)
def test_what_belongs_to_no_tool(value):
    assert exported(value) is None


def test_a_span_with_a_context_and_one_of_columns_are_the_same():
    ids, more = {"trace_id": "t", "span_id": "s"}, {"start_time": 1, "span_kind": "LLM"}
    calls = [{"c": 1}, {"c": 2}]
    columns = {"attributes.a.b": calls, "attributes.d": [1], "attributes.e": {}, "attributes.f": None, "g": 1}
    (one,) = exported({"context": ids, **more, "attributes": {"a": {"b": calls}, "d": [1], "e": {}}})
    (other,) = exported({**{f"context.{name}": value for name, value in ids.items()}, **more, **columns})

    assert one == other
    assert (one["traceId"], one["spanId"]) == ("t", "s")
    kind = {"openinference.span.kind": "LLM"}
    assert one["attributes"] == {"a.b.0.c": 1, "a.b.1.c": 2, "d": [1], "e": {}, **kind}
    tool = {"openinference": {"span": {"kind": "TOOL"}}}
    (own,) = exported({"context": ids, **more, "attributes": tool})
    assert own["attributes"] == {"openinference.span.kind": "TOOL"}


def test_attributes_nest_twenty_deep():
    value = {"x": 1}
    for _ in range(21):
        value = {"k": value}
    assert dict(flatten(value)) == {".".join("k" * 21): {"x": 1}}
    assert dict(flatten(value["k"])) == {".".join("k" * 20) + ".x": 1}


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        ("1970-01-02T00:00:01.000002Z", (86_401 * 1_000_000 + 2) * 1000),
        ("1970-01-01 00:00:01 UTC", SECOND),
        ("never", 0),
        ("7", 7 * SECOND),
        (0, 0),
        (-5, 0),
        (None, 0),
        (1_776_929_864.5, 1_776_929_864_500_000_000),
        (1e11, 10**17),
        (10**11 - 1, (10**11 - 1) * 10**9),
        (10**11, 10**17),
        (10**14 - 1, (10**14 - 1) * 10**6),
        (10**14, 10**17),
        (10**17 - 1, (10**17 - 1) * 10**3),
        (10**17, 10**17),
    ],
)
def test_the_unit_of_a_time_is_known_by_its_size(value, nanoseconds):
    assert time_of(value) == nanoseconds


# Spans of the SDKs


def test_a_span_of_the_sdk_of_langfuse_has_the_conventional_attributes():
    prefix = "langfuse.observation."
    definition = {"role": "tool", "content": {"type": "function", "name": "f"}}
    attributes = {
        f"{prefix}type": "generation",
        f"{prefix}input": '[{"role": "user", "content": "q"}, '
        '{"role": "tool", "content": {"type": "function", "name": "f"}}, {"role": "tool", "content": "r"}]',
        f"{prefix}output": "plain",
        f"{prefix}model.name": "m",
        f"{prefix}usage_details": '{"input": 3}',
        f"{prefix}cost_details": '{"total": 2}',
    }
    found = conventional(attributes, "n", "p")
    assert {key: value for key, value in found.items() if key not in attributes} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": [{"role": "user", "content": "q"}, {"role": "tool", "content": "r"}],
        "gen_ai.output.messages": "plain",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 3,
        "operation.cost": 2.0,
        "gen_ai.tool.definitions": [definition["content"]],
    }
    tool = {f"{prefix}type": "tool", f"{prefix}input": '{"a": 1}', f"{prefix}metadata.tool_call_id": '"c"'}
    found = conventional(tool, "look", "p")
    assert (found["gen_ai.tool.call.arguments"], found["gen_ai.tool.call.id"]) == ({"a": 1}, "c")
    chain = {f"{prefix}type": "chain", f"{prefix}metadata.lc_agent_name": "a"}
    assert conventional(chain, "n", "")["gen_ai.agent.name"] == "a"
    assert "gen_ai.agent.name" not in conventional(chain, "n", "p")


def test_a_span_of_the_sdk_of_langsmith_has_the_conventional_attributes():
    attributes = {
        "langsmith.span.kind": "llm",
        "langsmith.metadata.thread_id": "s",
        "langsmith.metadata.usage_metadata": '{"input_tokens": 3}',
        "gen_ai.prompt": '{"messages": [1]}',
        "gen_ai.completion": "{broken",
        "gen_ai.operation.name": "own",
    }
    found = conventional(attributes, "n", "p")
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.input.messages"] == {"messages": [1]}
    assert (found["session.id"], found["gen_ai.usage.input_tokens"]) == ("s", 3)
    assert "gen_ai.output.messages" not in found
    chain = {"langsmith.span.kind": "chain"}
    assert conventional(chain, "n", "")["gen_ai.operation.name"] == "invoke_workflow"
    assert "gen_ai.operation.name" not in conventional(chain, "n", "p")


@pytest.mark.parametrize(
    "attributes",
    [
        {"langfuse.observation.type": "generation", "gen_ai.input.messages": "x"},
        {"langfuse.observation.type": "generation", "openinference.span.kind": "LLM"},
        {"langfuse.observation.type": "generation", "gen_ai.operation.name": "chat"},
        {"langsmith.span.kind": "llm", "gen_ai.input.messages": "x"},
        {"other": 1},
    ],
)
def test_spans_of_another_instrumentation_stay_as_they_are(attributes):
    assert conventional(attributes, "n", "p") is attributes


# Smaller parts


def test_cells_without_a_name_or_a_value_are_left_out():
    text = b"trace_id,empty,\nt,,nameless\nu,full,x,y\n"
    assert list(rows_of_csv(io.BytesIO(text))) == [{"trace_id": "t"}, {"trace_id": "u", "empty": "full"}]


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ('{"name": "look", "response": {"result": "seen"}}', "seen"),
        ('{"name": "look", "response": {"result": "seen", "x": 1}}', '{"result": "seen", "x": 1}'),
        ('{"name": "look", "response": {"result": "seen"}, "id": "1"}', "seen"),
    ],
)
def test_the_result_of_a_tool_of_google_adk(output, result):
    attributes = {"openinference.span.kind": "TOOL", "tool.name": "look", "output.value": output}
    reading = google_adk.read(span_of(span("look", scope=google_adk.SCOPE, **attributes), []))
    assert reading is not None and reading.kind == "tool"
    assert reading.tool_result == result
