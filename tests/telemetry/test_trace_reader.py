"""The spans of one trace: which tool runs an agent whose span does not stand below it."""

import pytest

from proctor.telemetry.messages import ParsedMessage
from proctor.telemetry.sessions import DEEPEST, SpanTranscript, TraceReader
from proctor.telemetry.span import Span, SpanReading

PLANNER = ("planner", "", 0, 100, SpanReading(kind="agent", agent="Planner"))


def tool(name, started, ended, *, parent="planner", **arguments):
    return name, parent, started, ended, SpanReading(kind="tool", tool=name, tool_args=arguments)


def agent(name, started, ended, *, parent="", question=""):
    inputs = [ParsedMessage("user", question)] if question else []
    return name, parent, started, ended, SpanReading(kind="agent", agent=name, inputs=inputs)


def asked(name, parent, question, *, role="user"):
    return name, parent, 30, 31, SpanReading(kind="inference", inputs=[ParsedMessage(role, question)])


def reader_of(*rows):
    spans = [
        Span(
            trace_id="t",
            span_id=name,
            parent_id=parent,
            scope="",
            name=name,
            started=started,
            ended=ended,
            has_failed=False,
            error="",
            attributes={},
            events=(),
            records=(),
        )
        for name, parent, started, ended, _ in rows
    ]
    return TraceReader(spans, {row[0]: row[4] for row in rows}, SpanTranscript())


@pytest.mark.parametrize(
    ("started", "ended", "is_inside"),
    [
        (20, 40, True),
        (10, 50, True),
        (9, 40, False),
        (20, 51, False),
        (9, 51, False),
        (50, 60, False),
    ],
)
def test_a_tool_runs_an_agent_that_works_within_its_time(started, ended, is_inside):
    reader = reader_of(PLANNER, tool("ask", 10, 50), agent("expert", started, ended))

    assert [root.span_id for root in reader.roots] == ["planner", *([] if is_inside else ["expert"])]
    assert reader._tool_of == ({"expert": "ask"} if is_inside else {})


def test_a_tool_whose_end_is_not_known_runs_no_agent():
    reader = reader_of(PLANNER, tool("ask", 20, 20), agent("expert", 20, 20))

    assert reader._tool_of == {}


def test_a_tool_does_not_run_the_agent_that_called_it():
    reader = reader_of(tool("ask", 0, 100, parent="planner"), agent("planner", 0, 100))

    assert reader._tool_of == {}
    assert [root.span_id for root in reader.roots] == ["planner"]


def test_an_agent_below_a_tool_stays_there():
    reader = reader_of(
        PLANNER, tool("long", 0, 90), tool("short", 10, 50), agent("expert", 20, 40, parent="long")
    )

    assert reader._tool_of == {}


def test_of_tools_that_run_at_once_the_shortest_around_the_agent_runs_it():
    reader = reader_of(
        PLANNER, tool("long", 0, 90), tool("short", 10, 50), tool("longer", 0, 95), agent("expert", 20, 40)
    )

    assert reader._tool_of == {"expert": "short"}


@pytest.mark.parametrize(
    "rows",
    [
        [agent("expert", 20, 40, question="How  far\nis it?")],
        [agent("expert", 20, 40), asked("model", "expert", "How far is it?")],
        [
            agent("expert", 20, 40),
            asked("first", "expert", "How far is it?"),
            asked("other", "expert", "another", role="assistant"),
        ],
    ],
    ids=["of the agent", "of its model", "of a user"],
)
def test_of_tools_that_run_at_once_the_one_with_the_agents_question_runs_it(rows):
    tools = [tool("long", 0, 90, input=" How far is it?", n=3), tool("short", 10, 50, input="another")]
    reader = reader_of(PLANNER, *tools, *rows)

    assert reader._tool_of == {"expert": "long"}


def test_the_question_of_an_agent_further_down_is_not_the_agents_own():
    rows = [
        agent("expert", 20, 40),
        agent("helper", 25, 35, parent="expert"),
        asked("model", "helper", "How far?"),
    ]
    tools = [tool("long", 0, 90, input="How far?"), tool("short", 10, 50, input="another")]

    assert reader_of(PLANNER, *tools, *rows)._tool_of["expert"] == "short"


def test_spans_are_looked_for_at_most_so_far_above():
    chain = [("step 0", "planner", 0, 1, SpanReading(kind="step"))]
    for depth in range(1, DEEPEST + 1):
        chain.append((f"step {depth}", f"step {depth - 1}", 0, 1, SpanReading(kind="step")))
    reader = reader_of(PLANNER, *chain)
    by_name = {span.span_id: span for span in reader._spans}

    assert [span.span_id for span in reader._above(by_name[f"step {DEEPEST - 2}"], "agent")] == ["planner"]
    assert reader._above(by_name[f"step {DEEPEST - 1}"], "agent") == []
