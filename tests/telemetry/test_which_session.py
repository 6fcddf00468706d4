"""A span belongs to the session it names, or to the one its surroundings name."""

import pytest
from spans_by_hand import hexed, record, span

from proctor.telemetry import sessions_of
from proctor.telemetry.documents import nanoseconds, normalized

AGENT = {"gen_ai.operation.name": "invoke_agent"}


def names(*documents, **more):
    found = sessions_of(documents, **more)
    return sorted((session.external_id, session.service, session.log_group) for session in found)


def steps(*documents):
    return {session.external_id: len(session.steps) for session in sessions_of(documents)}


def test_a_conversation_id_will_do_and_a_session_id_is_better():
    assert names(span("a", session=None, gen_ai__conversation__id="c-1", **AGENT))[0][0] == "c-1"
    assert names(span("a", gen_ai__conversation__id="c-1", **AGENT))[0][0] == "s-1"


def test_a_span_without_a_name_inherits_it_from_above_or_from_its_trace():
    spans = [
        span("root", session=None, scope="opentelemetry.instrumentation.starlette", seconds=9),
        span("a", parent="root", **AGENT),
        span("t", parent="a", session=None, gen_ai__operation__name="execute_tool", gen_ai__tool__name="t"),
    ]

    (found,) = sessions_of(spans)
    assert found.external_id == "s-1"
    assert [happening.event.name for happening in found.steps[0].events] == ["t"]


def test_two_sessions_in_one_trace_stay_apart_each_with_what_is_below_it():
    def tool(name, parent):
        return span(name, parent=parent, session=None, gen_ai__operation__name="execute_tool")

    spans = [
        span("a", session="one", **AGENT),
        span("b", session="two", at=5, **AGENT),
        tool("x", "a"),
        tool("y", "b"),
    ]

    found = {session.external_id: session for session in sessions_of(spans)}
    assert {name: session.steps[0].events[0].event.name for name, session in found.items()} == {
        "one": "x",
        "two": "y",
    }


def test_an_agent_below_another_is_in_its_session_also_if_it_names_its_own():
    spans = [
        span("a", session="whole", **AGENT),
        span("t", parent="a", session=None, gen_ai__operation__name="execute_tool", at=1),
        span("b", parent="t", session="own", at=2, **AGENT),
        span("m", parent="b", session="own", at=3, gen_ai__operation__name="chat"),
    ]

    assert names(*reversed(spans)) == [("whole", "Calc.DEFAULT", "")]


def test_a_trace_that_names_no_session_is_one():
    assert names(span("a", session=None, **AGENT)) == [(hexed("t1", 32), "Calc.DEFAULT", "")]


def test_a_record_may_name_the_session_of_its_span():
    documents = [span("a", session=None, **AGENT), record("a", body={"input": "hi"}, session__id="s-9")]

    assert names(*documents)[0][0] == "s-9"


def test_the_same_session_id_in_two_services_is_two_sessions():
    spans = [span("a", trace="t1", service="one", **AGENT), span("b", trace="t2", service="two", **AGENT)]

    assert names(*spans) == [("s-1", "one", ""), ("s-1", "two", "")]


def test_the_log_group_is_the_one_a_resource_names_first():
    document = span("a", **AGENT)
    for named, first in (("/x,/y", "/x"), ("/x&/y", "/x"), (["/x", "/y"], "/x"), ("", "/else")):
        document["resource"]["attributes"]["aws.log.group.names"] = named
        assert names(document, log_group="/else")[0][2] == first


def test_ids_are_the_same_in_capitals():
    document = span("a", **AGENT)
    shouted = normalized(
        {**document, "traceId": document["traceId"].upper(), "spanId": document["spanId"].upper()}
    )

    assert shouted == document


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (0, "UNSPECIFIED"),
        (1, "INTERNAL"),
        ("3", "CLIENT"),
        (5, "CONSUMER"),
        (6, "UNSPECIFIED"),
        (-1, "UNSPECIFIED"),
        (None, "UNSPECIFIED"),
        ("SPAN_KIND_SERVER", "SERVER"),
        ("SpanKind.client", "CLIENT"),
        ("x" * 50, "X" * 40),
    ],
)
def test_a_span_has_the_name_of_its_kind(kind, name):
    assert normalized({**span("a", **AGENT), "kind": kind})["kind"] == name


def test_a_time_is_a_number_that_the_store_can_hold():
    assert [nanoseconds(value) for value in (1, "7", 2**63 - 1)] == [1, 7, 2**63 - 1]
    assert [nanoseconds(value) for value in (0, -1, 2**63, "x", None, 1e30)] == [0] * 6
