"""What is read of the spans that frameworks wrote in real runs: `tools/record_frameworks.py` records them.

Each ran the same agent: a system prompt, a question, a call of `get_weather`, one of `add`, and the answer.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from proctor.session import Message, ModelCall, ToolCall
from proctor.telemetry.sessions import sessions_of
from proctor.telemetry.sources import read_documents

RECORDED = Path(__file__).parent / "recorded"
MANUAL = Path(__file__).parents[2] / "docs" / "importing.md"
QUESTION = "What is the weather in Oslo, and what is 2 + 3?"
ANSWER = "It is sunny in Oslo, and 2 + 3 is 5."
CALLS = [("get_weather", {"city": "Oslo"}, "sunny"), ("add", {"a": 2, "b": 3}, "5")]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the recording of a framework has that not all have."""

    agent: str = "Guide"
    system: str = "Be brief."
    model: str = "gpt-4o-mini"
    model_calls: int = 3
    tools: tuple[list[str] | None, ...] = (["city"], ["a", "b"])
    """Of each tool that the agent had, the arguments that it needs; None: the spans do not say them."""
    session: str = ""
    """Empty: the trace is the session."""
    service: str = "weather"
    file: str = "json"
    """How the name of the recording ends."""


EXPECTED = {
    "openai-agents.openinference": Expected(),
    "openai-agents.traceloop": Expected(),
    "openai-agents.logfire": Expected(),
    "openai-agents.adot": Expected(),
    "haystack.openinference": Expected(agent="Agent", tools=()),
    "mastra.own": Expected(session="mastra-session", tools=(None, None)),
    "agent-framework.own": Expected(),
    "langgraph.openinference": Expected(),
    "langgraph.traceloop": Expected(),
    "langgraph.langfuse": Expected(),
    "langgraph.langsmith": Expected(session="langsmith-thread", service=""),
    "langgraph.langsmith-otel": Expected(session="langsmith-thread"),
    "openai-agents.phoenix.csv": Expected(session="phoenix-session", service="", file="csv"),
    "openai-agents.phoenix.parquet": Expected(session="phoenix-session", service="", file="parquet"),
    "strands.own": Expected(session="strands-session", tools=(None, None)),
    "pydantic-ai.own": Expected(session="*"),
    "smolagents.openinference": Expected(system="You are an expert assistant"),
    "google-adk.own": Expected(agent="guide", model="openai/gpt-4o-mini", session="*"),
    # It writes every model call over one span.
    "google-adk.openinference": Expected(
        agent="guide", model="openai/gpt-4o-mini", model_calls=1, session="*", tools=(None, None)
    ),
    "llama-index.openinference": Expected(agent=""),
    "llama-index.traceloop": Expected(agent="", tools=()),
    "vercel-ai.own": Expected(),
    "vercel-ai.own-streamed": Expected(),
    "crewai.openinference": Expected(system="You are Guide. Be brief."),
    "crewai.traceloop": Expected(system="You are Guide. Be brief."),
}


def recorded(name):
    file = RECORDED / (name if EXPECTED[name].file != "json" else f"{name}.json")
    documents = list(read_documents(file))
    (session,) = sessions_of(documents)
    assert sessions_of(reversed(documents)) == [session], "in whatever order spans arrive"
    return session, [timed.event for step in session.steps for timed in step.events]


def test_every_recording_is_expected_and_in_the_manual():
    names = {path.name.removesuffix(".json") for path in RECORDED.iterdir()}

    assert names == set(EXPECTED)
    manual = MANUAL.read_text()
    assert [name for name in sorted(names) if f"`{name}`" not in manual] == []


@pytest.mark.parametrize("name", EXPECTED)
def test_each_message_and_call_of_a_real_run_is_read_once_and_in_order(name):
    expected = EXPECTED[name]

    session, events = recorded(name)

    said = [(each.role, each.name, each.content) for each in events if isinstance(each, Message)]
    (system,) = [content for role, _, content in said if role == "system"]
    (user,) = [content for role, _, content in said if role == "user"]
    assert system.startswith(expected.system)
    assert QUESTION in user
    assert [each for each in said if each[0] not in ("system", "user")] == [("assistant", "", ANSWER)]
    calls = [each for each in events if isinstance(each, ToolCall)]
    assert [(call.name, dict(call.args), call.result) for call in calls] == CALLS
    assert all(call.success for call in calls)
    models = [each for each in events if isinstance(each, ModelCall)]
    assert [(each.model, each.usage.input_tokens, each.usage.output_tokens) for each in models] == [
        (expected.model, 50, 10)
    ] * expected.model_calls
    assert (session.agent, session.status, session.service) == (
        expected.agent,
        "success",
        expected.service,
    )
    offered = [tool for tool in session.tools if tool["name"] != "final_answer"]
    assert [tool["name"] for tool in offered] == ["get_weather", "add"][: len(expected.tools)]
    needed = tuple(tool.get("parameters", {}).get("required") for tool in offered)
    assert needed == expected.tools
    happened = [
        each.name if isinstance(each, ToolCall) else each.role
        for each in events
        if isinstance(each, ToolCall | Message)
    ]
    assert happened[2:] == ["get_weather", "add", "assistant"]
    assert set(happened[:2]) == {"system", "user"}
    if expected.session:
        assert session.external_id == expected.session or (
            expected.session == "*" and len(session.external_id) == 36
        )
