"""What the button "Download trace" of Langfuse saves: `{trace, observations}`.

Langfuse moves the content of spans of other instrumentations out of their attributes, which it keeps in the
metadata of the observation.
"""

import json
from datetime import UTC, datetime

import pytest
from test_recorded_cases import story
from test_recorded_frameworks import RECORDED

from proctor.session import ModelCall
from proctor.telemetry.sessions import sessions_of
from proctor.telemetry.sources import read_documents, recognizes

CONTENT = {
    "gen_ai.input.messages": "input",
    "gen_ai.output.messages": "output",
    "gen_ai.tool.call.arguments": "input",
    "gen_ai.tool.call.result": "output",
    "ai.prompt": "input",
    "ai.prompt.messages": "input",
    "ai.response.text": "output",
    "ai.response.toolCalls": "output",
    "ai.toolCall.args": "input",
    "ai.toolCall.result": "output",
}
TYPES = {"chat": "GENERATION", "execute_tool": "TOOL", "invoke_agent": "AGENT"}


def iso(nanoseconds):
    return datetime.fromtimestamp(int(nanoseconds) / 1e9, UTC).isoformat().replace("+00:00", "Z")


def observation(span):
    attributes = span["attributes"]
    moved = {CONTENT[key]: value for key, value in attributes.items() if key in CONTENT}
    kept = {key: str(value) for key, value in attributes.items() if key not in CONTENT}
    return {
        "id": span["spanId"],
        "traceId": span["traceId"],
        "parentObservationId": span["parentSpanId"] or None,
        "type": TYPES.get(attributes.get("gen_ai.operation.name"), "SPAN"),
        "name": span["name"],
        "startTime": iso(span["startTimeUnixNano"]),
        "endTime": iso(span["endTimeUnixNano"]),
        "level": "DEFAULT",
        "usageDetails": {},
        "totalCost": 0,
        **moved,
        "metadata": json.dumps(
            {"attributes": kept, "resourceAttributes": {"service.name": "weather"}, "scope": span["scope"]}
        ),
    }


def save(file, observations, **trace):
    head = {"id": "7d" * 16, "name": "run", "timestamp": "2026-04-23T07:37:44.000Z", "sessionId": "talk-1"}
    file.write_text(json.dumps({"trace": {**head, **trace}, "observations": observations}))
    assert recognizes(file)
    (session,) = sessions_of(read_documents(file))
    return session


def calls_of_models(session):
    events = (timed.event for step in session.steps for timed in step.events)
    return [(each.model, each.usage) for each in events if isinstance(each, ModelCall)]


@pytest.mark.parametrize(
    "name",
    [
        "openai-agents.openinference",
        "langgraph.openinference",
        "smolagents.openinference",
        "pydantic-ai.own",
        "vercel-ai.own",
    ],
)
def test_a_download_tells_what_the_spans_tell(tmp_path, name):
    spans = list(read_documents(RECORDED / f"{name}.json"))
    (received,) = sessions_of(spans)

    session = save(tmp_path / "trace.json", [observation(span) for span in spans])

    assert story(session) == story(received)
    assert calls_of_models(session) == calls_of_models(received)
    assert (session.external_id, session.service, session.agent) == ("talk-1", "weather", received.agent)


def made(number, kind, name, payload, returned, **more):
    times = {"startTime": f"2026-04-23T07:37:4{number}.000Z", "endTime": f"2026-04-23T07:37:4{number}.900Z"}
    head = {"id": f"{number:016x}", "traceId": "7d" * 16, "type": kind, "name": name, "level": "DEFAULT"}
    return {**head, **times, "input": payload, "output": returned, "metadata": "{}", **more}


def test_observations_of_langfuse_and_of_providers_have_their_messages_tools_and_cost(tmp_path):
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "Oslo"}'}}
    definition = {"type": "function", "function": {"name": "look_up", "parameters": {"required": ["q"]}}}
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Oslo?"},
        {"role": "tool", "content": definition},
    ]
    answered = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"type": "tool", "content": "sunny", "name": "look_up", "tool_call_id": "c1"}
    # Langfuse's callback writes the name of a tool in place of the role.
    told = {"role": "look_up", "content": "sunny", "additional_kwargs": {}}
    gemini = {"candidates": [{"content": {"role": "model", "parts": [{"text": "It is sunny."}]}}]}
    openai = {"choices": [{"index": 0, "message": answered, "finish_reason": "tool_calls"}]}

    session = save(
        tmp_path / "trace.json",
        [
            made(1, "GENERATION", "ChatOpenAI", json.dumps(asked), json.dumps(openai), totalCost=0.25),
            made(2, "SPAN", "look_up", '{"q": "Oslo"}', json.dumps(result)),
            made(
                3,
                "GENERATION",
                "GenerateContent",
                json.dumps([*asked[:2], answered, told]),
                json.dumps(gemini),
                usageDetails={"input": 7, "output": 3},
            ),
        ],
        input=json.dumps(json.dumps({"messages": [{"role": "user", "content": "Oslo?"}]})),
    )

    assert story(session) == [
        ("system", "", "Be brief."),
        ("user", "", "Oslo?"),
        ("look_up", {"q": "Oslo"}, "sunny", True),
        ("assistant", "", "It is sunny."),
    ]
    assert [tool["name"] for tool in session.tools] == ["look_up"]
    costs = [timed.event.cost_usd for timed in session.steps[0].events if isinstance(timed.event, ModelCall)]
    assert costs == [0.25, None]


def test_a_trace_whose_observations_say_nothing_has_its_own_question_and_answer(tmp_path):
    session = save(
        tmp_path / "trace.json",
        [made(1, "GENERATION", "chat", None, None, model="gpt-4o")],
        input='"Say hello"',
        output='"Hello!"',
    )

    assert story(session) == [("user", "", "Say hello"), ("assistant", "", "Hello!")]


def test_a_request_that_is_one_text_becomes_its_messages(tmp_path):
    asked = "system: Be brief.\nOr silent.\nuser: Hello?"

    session = save(tmp_path / "trace.json", [made(1, "GENERATION", "chat", asked, "Hello!")])

    assert story(session) == [
        ("system", "", "Be brief.\nOr silent."),
        ("user", "", "Hello?"),
        ("assistant", "", "Hello!"),
    ]
