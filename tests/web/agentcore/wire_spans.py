"""Spans of small sessions, in the form in which CloudWatch has them."""

import hashlib
import json

NANOSECONDS = 1_800_000_000 * 10**9


def hex_of(text, length):
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def trace_id(session, turn=0):
    return hex_of(f"{session} turn {turn}", 32)


def root_span_id(session, turn=0):
    return hex_of(f"{session} turn {turn}", 16)


def tool_span_id(session, turn, number):
    return hex_of(f"{session} turn {turn} tool {number}", 16)


def spans(session, turns=(("What is 15 + 27?", "It is 42.", ("calculator",)),), *, service="Calc.DEFAULT"):
    """One session: each turn is what was asked, what was answered, and the tools between."""
    found = []
    for turn, (asked, answered, tools) in enumerate(turns):
        at = NANOSECONDS + turn * 10**10
        root = root_span_id(session, turn)
        trace = trace_id(session, turn)
        talk = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "Calc",
            "gen_ai.input.messages": said("user", asked),
            "gen_ai.output.messages": said("assistant", answered),
        }
        found.append(span(session, trace, root, "invoke_agent Calc", at, service, talk))
        for number, tool in enumerate(tools):
            used = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.tool.call.arguments": '{"sum": "15 + 27"}',
                "gen_ai.tool.call.result": "42",
            }
            own, began = tool_span_id(session, turn, number), at + 10**9 * (number + 1)
            found.append(span(session, trace, own, f"execute_tool {tool}", began, service, used, parent=root))
    return found


def span(session, trace, span_id, name, at, service, attributes, parent=None):
    return {
        "resource": {"attributes": {"service.name": service}},
        "scope": {"name": "opentelemetry.instrumentation.calc", "version": "1"},
        "traceId": trace,
        "spanId": span_id,
        "parentSpanId": parent,
        "name": name,
        "kind": "INTERNAL",
        "startTimeUnixNano": at,
        "endTimeUnixNano": at + 5 * 10**9,
        "attributes": {"session.id": session, **attributes},
        "status": {"code": "OK"},
        "events": [],
    }


def said(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
