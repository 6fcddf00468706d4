"""One conversation as frameworks without a recording write it: a question, a tool, an answer."""

from spans_by_hand import STRANDS, agent, as_json, chat, event, record, span, text, tool

ASKED, ANSWERED = "How is the weather in Bonn?", "It is sunny in Bonn."
TOOL = {"name": "weather", "description": "Looks out of the window.", "parameters": {"type": "object"}}


def genai_inline():
    return [
        agent(
            "Forecaster",
            asked=ASKED,
            answered=ANSWERED,
            gen_ai__agent__name="Forecaster",
            gen_ai__system_instructions=as_json([{"type": "text", "content": "Be brief."}]),
            gen_ai__tool__definitions=as_json([{"type": "function", **TOOL}]),
            seconds=9,
        ),
        chat(
            "chat one",
            parent="invoke_agent Forecaster",
            at=1,
            gen_ai__provider__name="acme",
            gen_ai__request__model="large",
            gen_ai__response__model="large-2026",
            gen_ai__usage__input_tokens=100,
            gen_ai__usage__output_tokens=20,
            **{"gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.reasoning.output_tokens": 5},
        ),
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
    return [
        agent("Forecaster", seconds=9),
        chat(
            "chat one",
            parent="invoke_agent Forecaster",
            at=4,
            events=details([text("user", ASKED)], [text("assistant", ANSWERED)]),
        ),
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


def strands_split():
    """Spans in one place, their content in event records in another."""
    return [
        agent("Forecaster", scope=STRANDS, seconds=9),
        record(
            "invoke_agent Forecaster",
            event=STRANDS,
            body={
                "input": {"messages": [{"role": "user", "content": {"content": as_json([{"text": ASKED}])}}]},
                "output": {
                    "messages": [
                        {"role": "assistant", "content": {"message": ANSWERED, "finish_reason": "end_turn"}}
                    ]
                },
            },
        ),
        tool("weather", scope=STRANDS, parent="invoke_agent Forecaster", at=3),
        record(
            "execute_tool weather",
            event=STRANDS,
            body={
                "input": {
                    "messages": [
                        {"role": "tool", "content": {"content": as_json({"city": "Bonn"}), "id": "c"}}
                    ]
                },
                "output": {
                    "messages": [
                        {"role": "assistant", "content": {"message": as_json([{"text": "sunny"}]), "id": "c"}}
                    ]
                },
            },
        ),
    ]


def strands_parts():
    """What Strands writes under `gen_ai_latest_experimental`."""
    call = {"type": "tool_call", "name": "weather", "id": "call_1", "arguments": {"city": "Bonn"}}
    response = {"type": "tool_call_response", "id": "call_1", "response": [{"text": "sunny"}]}
    return [
        agent(
            "Forecaster",
            scope=STRANDS,
            seconds=9,
            events=details([text("user", ASKED)], [text("assistant", ANSWERED)]),
        ),
        tool(
            "weather",
            scope=STRANDS,
            parent="invoke_agent Forecaster",
            at=3,
            events=details([{"role": "tool", "parts": [call]}], [{"role": "tool", "parts": [response]}]),
        ),
    ]


def claude_agent_sdk():
    scope = "openinference.instrumentation.claude_agent_sdk"
    return [
        span(
            "ClaudeAgentSDK.query",
            scope=scope,
            openinference__span__kind="AGENT",
            input__value=ASKED,
            output__value=ANSWERED,
            seconds=9,
        ),
        span(
            "weather",
            scope=scope,
            parent="ClaudeAgentSDK.query",
            at=3,
            openinference__span__kind="TOOL",
            tool__name="weather",
            input__value=as_json({"city": "Bonn"}),
            output__value=as_json([{"type": "text", "text": "sunny"}]),
        ),
    ]


def vercel_ai():
    call = {"toolCallId": "call_1", "toolName": "weather", "input": as_json({"city": "Bonn"})}
    return [
        span(
            "ai.generateText",
            scope="ai",
            ai__operationId="ai.generateText",
            ai__prompt=as_json({"system": "Be brief.", "messages": [{"role": "user", "content": ASKED}]}),
            seconds=9,
            **{"ai.response.text": ANSWERED},
        ),
        span(
            "ai.generateText.doGenerate",
            scope="ai",
            parent="ai.generateText",
            at=1,
            ai__operationId="ai.generateText.doGenerate",
            **{
                "ai.prompt.messages": as_json(
                    [{"role": "user", "content": [{"type": "text", "text": ASKED}]}]
                ),
                "ai.response.toolCalls": as_json([call]),
                "ai.prompt.tools": [as_json({"type": "function", **TOOL})],
                "ai.model.id": "large",
                "ai.usage.promptTokens": 100,
            },
        ),
        span(
            "ai.toolCall",
            scope="ai",
            parent="ai.generateText",
            at=3,
            ai__operationId="ai.toolCall",
            **{
                "ai.toolCall.name": "weather",
                "ai.toolCall.id": "call_1",
                "ai.toolCall.args": as_json({"city": "Bonn"}),
                "ai.toolCall.result": "sunny",
            },
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
