"""One conversation as frameworks without a recording write it: a question, a tool, an answer."""

from spans_by_hand import STRANDS, agent, as_json, chat, event, record, span, text, tool

ASKED, ANSWERED = "How is the weather in Bonn?", "It is sunny in Bonn."
TOOL = {"name": "weather", "description": "Looks out of the window.", "parameters": {"type": "object"}}


def genai_inline():
    told = {
        "gen_ai.agent.name": "Forecaster",
        "gen_ai.system_instructions": as_json([{"type": "text", "content": "Be brief."}]),
        "gen_ai.tool.definitions": as_json([{"type": "function", **TOOL}]),
    }
    model = {"provider.name": "acme", "request.model": "large", "response.model": "large-2026"}
    used = {"input_tokens": 100, "output_tokens": 20, "cache_read.input_tokens": 60}
    used |= {"reasoning.output_tokens": 5}
    called = {f"gen_ai.{name}": value for name, value in model.items()}
    called |= {f"gen_ai.usage.{name}": count for name, count in used.items()}
    return [
        agent("Forecaster", asked=ASKED, answered=ANSWERED, seconds=9, **told),
        chat("chat one", parent="invoke_agent Forecaster", at=1, **called),
        weather_tool(),
    ]


def weather_tool(**more):
    given = {
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": as_json({"city": "Bonn"}),
        "gen_ai.tool.call.result": "sunny",
    }
    return tool("weather", parent="invoke_agent Forecaster", at=3, **{**given, **more})


def details(asked, answered):
    """The event with both messages that newer instrumentations write."""
    written = {"gen_ai.input.messages": as_json(asked), "gen_ai.output.messages": as_json(answered)}
    return [event("gen_ai.client.inference.operation.details", **written)]


def genai_details_as_records():
    """Spans without content, and one event record a span with the current event."""
    asked = {
        "gen_ai.input.messages": [text("user", ASKED)],
        "gen_ai.output.messages": [text("assistant", ANSWERED)],
    }
    return [
        agent("Forecaster", seconds=9),
        chat("chat one", parent="invoke_agent Forecaster", at=4),
        record("chat one", event="gen_ai.client.inference.operation.details", **asked),
        weather_tool(),
    ]


def genai_details_as_span_event():
    events = details([text("user", ASKED)], [text("assistant", ANSWERED)])
    return [
        agent("Forecaster", seconds=9),
        chat("chat one", parent="invoke_agent Forecaster", at=4, events=events),
        weather_tool(),
    ]


def genai_message_records():
    """The older events, one for each message, with their fields in the body of the log record."""
    return [
        chat("chat one", at=4),
        record("chat one", event="gen_ai.user.message", body={"content": ASKED}),
        record(
            "chat one",
            event="gen_ai.choice",
            body={"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWERED}},
        ),
        weather_tool(),
    ]


IN_AGENT = {"scope": STRANDS, "parent": "invoke_agent Forecaster", "at": 3}


def strands_split():
    """Spans in one place, their content in event records in another."""

    def content_of(name, role, given, returned):
        asked = {"messages": [{"role": role, "content": given}]}
        answered = {"messages": [{"role": "assistant", "content": returned}]}
        return record(name, event=STRANDS, body={"input": asked, "output": answered})

    asked, answered = (
        {"content": as_json([{"text": ASKED}])},
        {"message": ANSWERED, "finish_reason": "end_turn"},
    )
    given, returned = {"content": as_json({"city": "Bonn"})}, {"message": as_json([{"text": "sunny"}])}
    return [
        agent("Forecaster", scope=STRANDS, seconds=9),
        content_of("invoke_agent Forecaster", "user", asked, answered),
        tool("weather", **IN_AGENT),
        content_of("execute_tool weather", "tool", given | {"id": "c"}, returned | {"id": "c"}),
    ]


def strands_parts():
    """What Strands writes under `gen_ai_latest_experimental`."""
    call = {"type": "tool_call", "name": "weather", "id": "call_1", "arguments": {"city": "Bonn"}}
    response = {"type": "tool_call_response", "id": "call_1", "response": [{"text": "sunny"}]}
    talk = details([text("user", ASKED)], [text("assistant", ANSWERED)])
    use = details([{"role": "tool", "parts": [call]}], [{"role": "tool", "parts": [response]}])
    return [
        agent("Forecaster", scope=STRANDS, seconds=9, events=talk),
        tool("weather", events=use, **IN_AGENT),
    ]


def claude_agent_sdk():
    def written(name, kind, given, returned, **more):
        told = {"openinference.span.kind": kind, "input.value": given, "output.value": returned}
        return span(name, scope="openinference.instrumentation.claude_agent_sdk", **told, **more)

    query, returned = "ClaudeAgentSDK.query", as_json([{"type": "text", "text": "sunny"}])
    used = {"parent": query, "at": 3, "tool.name": "weather"}
    return [
        written(query, "AGENT", ASKED, ANSWERED, seconds=9),
        written("weather", "TOOL", as_json({"city": "Bonn"}), returned, **used),
    ]


def vercel_ai():
    call = {"toolCallId": "call_1", "toolName": "weather", "input": as_json({"city": "Bonn"})}
    messages = [{"role": "user", "content": [{"type": "text", "text": ASKED}]}]

    def written(operation, *, at=0, parent="", seconds=1, **told):
        named = {f"ai.{name.replace('__', '.')}": value for name, value in told.items()}
        place = {"at": at, "parent": parent, "seconds": seconds, "ai.operationId": operation}
        return span(operation, scope="ai", **place, **named)

    return [
        written(
            "ai.generateText",
            prompt=as_json({"system": "Be brief.", "messages": [{"role": "user", "content": ASKED}]}),
            response__text=ANSWERED,
            seconds=9,
        ),
        written(
            "ai.generateText.doGenerate",
            prompt__messages=as_json(messages),
            prompt__tools=[as_json({"type": "function", **TOOL})],
            response__toolCalls=as_json([call]),
            model__id="large",
            usage__promptTokens=100,
            parent="ai.generateText",
            at=1,
        ),
        written(
            "ai.toolCall",
            toolCall__name="weather",
            toolCall__id="call_1",
            toolCall__args=as_json({"city": "Bonn"}),
            toolCall__result="sunny",
            parent="ai.generateText",
            at=3,
        ),
    ]


def invocation_attributes():
    """Two attributes that any span may have, also one that only carries requests."""
    return [
        span(
            "POST /invocations",
            scope="opentelemetry.instrumentation.starlette",
            seconds=9,
            agentcore__invocation__user_prompt=ASKED,
            agentcore__invocation__agent_response=ANSWERED,
        ),
        weather_tool(),
    ]


DIALECTS = [
    genai_inline,
    genai_details_as_records,
    genai_details_as_span_event,
    genai_message_records,
    strands_split,
    strands_parts,
    claude_agent_sdk,
    vercel_ai,
    invocation_attributes,
]
