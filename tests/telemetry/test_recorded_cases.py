"""What is read of runs that failed, delegated, handed over, or asked twice.

`tools/record_frameworks.py` records them.
"""

from itertools import takewhile
from pathlib import Path

import pytest
from test_recorded_frameworks import ANSWER, CALLS, EXPECTED, MANUAL, QUESTION, RECORDED

from proctor.session import Message, ModelCall, ToolCall
from proctor.telemetry.documents import nanoseconds
from proctor.telemetry.sessions import sessions_of
from proctor.telemetry.sources import read_documents

CASES = Path(__file__).parent / "recorded_cases"
EXPERT = "Sunny, as always."


def story(session):
    """Messages and calls in order: `(role, name, text)` and `(tool, arguments, result, success)`."""
    events = [timed.event for step in session.steps for timed in step.events]
    return [
        (each.role, each.name, each.content)
        if isinstance(each, Message)
        else (each.name, dict(each.args), each.result, each.success)
        for each in events
        if isinstance(each, Message | ToolCall)
    ]


def recorded(name):
    (session,) = sessions_of(read_documents(CASES / f"{name}.json"))
    return session


@pytest.mark.parametrize(
    ("name", "agent", "error", "question"),
    [
        # The instrumentations do not write the request of a failed call.
        ("openai-agents.openinference-failed", "Guide", "Error in agent run", ""),
        ("openai-agents.traceloop-failed", "Guide", "Error in agent run", ""),
        # The span of the agent is never ended.
        ("smolagents.openinference-failed", "", "BadRequestError", QUESTION),
        ("pydantic-ai.own-failed", "Guide", "ModelRequestRejectedError", QUESTION),
        # Its message is in an event that recordings leave out.
        ("openai-agents.logfire-failed", "Guide", "it failed", ""),
        ("agent-framework.own-failed", "Guide", "no such model", QUESTION),
        ("haystack.openinference-failed", "Agent", "no such model", QUESTION),
        ("mastra.own-failed", "Guide", "no such model", QUESTION),
        ("vercel-ai.own-failed", "Guide", "no such model", QUESTION),
    ],
)
def test_a_run_that_ended_with_an_error_has_failed(name, agent, error, question):
    session = recorded(name)

    assert (session.status, session.end_reason, session.agent) == ("fail", "agent_failed", agent)
    assert error in session.error
    assert [text for role, _, text in story(session) if role == "user"] == ([question] if question else [])


def test_an_agent_that_failed_and_was_run_again_has_not_failed_the_session():
    failed = list(read_documents(CASES / "openai-agents.traceloop-failed.json"))
    again = list(read_documents(CASES / "openai-agents.traceloop-two-runs.json"))
    one_trace = [{**each, "traceId": failed[0]["traceId"]} for each in again if each["parentSpanId"]]
    root = next(each for each in failed if not each["parentSpanId"])
    roots = {each["spanId"] for each in again if not each["parentSpanId"]}
    for each in one_trace:
        if each["parentSpanId"] in roots:
            each["parentSpanId"] = root["spanId"]

    (session,) = sessions_of([*failed, *one_trace])

    assert session.status == "success"


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("autogen.own-failed-tool", {}, "ValueError: no such city"),
        ("autogen.openinference-failed-tool", {"city": "Is it sunny in Oslo?"}, "no such city"),
    ],
)
def test_a_tool_has_failed_whichever_instrumentation_says_so(name, arguments, result):
    calls = [each for each in story(recorded(name)) if len(each) == 4]

    assert calls == [("look_up", arguments, result, False)]


@pytest.mark.parametrize(
    ("name", "agent", "expert", "call", "model_calls"),
    [
        ("pydantic-ai.own-delegation", "Guide", "Expert", ("ask_expert", "question"), 3),
        ("google-adk.own-delegation", "guide", "expert", ("expert", "request"), 3),
        # It writes each model call over the one before.
        ("google-adk.openinference-delegation", "guide", "expert", ("expert", "request"), 2),
        ("openai-agents.openinference-delegation", "Guide", "Expert", ("ask_expert", "input"), 3),
        ("openai-agents.traceloop-delegation", "Guide", "Expert", ("ask_expert", "input"), 3),
        ("openai-agents.logfire-delegation", "Guide", "Expert", ("ask_expert", "input"), 3),
        ("agent-framework.own-delegation", "Guide", "Expert", ("ask_expert", "question"), 3),
        ("vercel-ai.own-delegation", "Guide", "Expert", ("ask_expert", "question"), 3),
        # It has no spans of tools: the call stands where the model asked for it.
        ("haystack.openinference-delegation", "Agent", "Agent", ("ask_expert", "question"), 3),
        ("mastra.own-delegation", "Guide", "Expert", ("agent-expert", "prompt"), 3),
    ],
)
def test_an_agent_that_a_tool_runs_is_part_of_the_session_under_its_name(
    name, agent, expert, call, model_calls
):
    session = recorded(name)

    told = [each for each in story(session) if each[0] != "system"]
    asked, *between, answered = told
    assert (asked, answered) == (("user", "", QUESTION), ("assistant", "", ANSWER))
    (delegated,) = (each for each in between if each[0] == call[0])
    has_tool_spans = not name.startswith("haystack")
    assert between.index(delegated) == has_tool_spans
    assert between[not has_tool_spans] == ("assistant", expert, EXPERT)
    assert delegated[1] == {call[1]: "Is it sunny in Oslo?"} and EXPERT in delegated[2] and delegated[3]
    models = [timed.event for timed in session.steps[0].events if isinstance(timed.event, ModelCall)]
    assert [(each.usage.input_tokens, each.usage.output_tokens) for each in models] == [
        (50, 10)
    ] * model_calls
    assert session.agent == agent


@pytest.mark.parametrize("instrumentation", ["openinference", "traceloop"])
def test_each_run_in_one_trace_has_its_question(instrumentation):
    session = recorded(f"openai-agents.{instrumentation}-two-runs")

    assert session.agent == "Guide"
    assert story(session) == [
        ("system", "", "Be brief."),
        ("user", "", "Is it sunny in Oslo?"),
        ("assistant", "", ANSWER),
        ("user", "", "And in Rome?"),
        ("assistant", "", ANSWER),
    ]


def test_a_second_turn_has_the_first_before_its_question_and_does_not_count_its_calls():
    documents = list(read_documents(CASES / "agent-framework.own-two-turns.json"))
    first, second = sorted(sessions_of(documents), key=lambda session: session.started_at)
    for each in documents:
        each["attributes"]["session.id"] = "talk-1"
    (whole,) = sessions_of(documents)

    turn = [("system", "", "Be brief."), ("user", "", QUESTION)]
    calls = [(*call, True) for call in CALLS]
    assert story(first) == [*turn, *calls, ("assistant", "", ANSWER)]
    again = [("user", "", "And again?"), ("assistant", "", ANSWER)]
    assert story(second) == [*turn, ("assistant", "", ANSWER), *again]
    assert story(whole) == [*story(first), *again]


@pytest.mark.parametrize("instrumentation", ["openinference", "traceloop"])
def test_a_handoff_is_one_call(instrumentation):
    session = recorded(f"openai-agents.{instrumentation}-handoff")

    assert story(session) == [
        ("system", "", "Be brief."),
        ("user", "", QUESTION),
        ("transfer_to_expert", {}, '{"assistant": "Expert"}', True),
        ("system", "", "You are an expert."),
        ("assistant", "", EXPERT),
    ]


def test_the_task_of_a_team_is_its_question():
    assert story(recorded("autogen.openinference-team")) == [
        ("user", "", QUESTION),
        ("system", "", "You are an expert."),
        ("assistant", "Expert", EXPERT),
        ("system", "", "Be brief."),
        ("assistant", "Guide", ANSWER),
    ]


def test_a_parent_that_ends_before_its_last_child_repeats_no_answer():
    # JavaScript's SDK rounds starts to milliseconds and adds exact durations.
    documents = list(read_documents(RECORDED / "vercel-ai.own.json"))
    (root,) = (each for each in documents if not each["parentSpanId"])
    root["endTimeUnixNano"] = max(nanoseconds(each["endTimeUnixNano"]) for each in documents[:-1]) - 5_000

    (session,) = sessions_of(documents)

    assert [text for role, _, text in (each for each in story(session) if len(each) == 3)] == [
        "Be brief.",
        QUESTION,
        ANSWER,
    ]


COLUMNS = ("messages", "tools", "tokens", "nesting", "errors", "session ID")
NESTED, FAILED = ("delegation", "handoff", "team"), ("failed", "failed-tool")
NOT_RECORDED = "–"


def rows_of_the_manual():
    table = MANUAL.read_text().partition(f"| recording | {' | '.join(COLUMNS)} |")[2]
    own = takewhile(lambda line: line.startswith("|"), table.splitlines()[2:])
    lines = (line.strip("|").split("|") for line in own)
    return {
        name.strip(" `"): dict(zip(COLUMNS, map(str.strip, cells), strict=True)) for name, *cells in lines
    }


def test_each_cell_of_the_manuals_table_is_held_by_a_recording():
    rows = rows_of_the_manual()
    cases = {path.stem for path in CASES.iterdir()}

    assert {name for name in rows if not name.startswith("autogen.")} == set(EXPECTED)
    for name, cells in rows.items():
        recorded_kinds = {case.removeprefix(f"{name}-") for case in cases if case.startswith(f"{name}-")}
        assert (cells["nesting"] != NOT_RECORDED) == bool(recorded_kinds & {*NESTED}), name
        assert (cells["errors"] != NOT_RECORDED) == bool(recorded_kinds & {*FAILED}), name
        if name in EXPECTED:
            assert (cells["session ID"] == "✓") == bool(EXPECTED[name].session), name
            assert (cells["tokens"] == "✓") == (EXPECTED[name].model_calls == 3), name
