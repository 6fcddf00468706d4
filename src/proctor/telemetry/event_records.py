"""Event records of spans that carry their content themselves, as AWS's distribution writes them.

Clients of CloudWatch look for messages in records, in the log group of the agent.
"""

import json

from proctor.json_values import JsonObject
from proctor.telemetry.dialects import read_span
from proctor.telemetry.documents import Document
from proctor.telemetry.messages import ParsedMessage
from proctor.telemetry.span import SpanReading, span_of


def event_record(document: Document, session_id: str) -> Document | None:
    """The record of a span's messages; None: it has none."""
    span = span_of(document, [])
    reading = read_span(span)
    if reading is None:
        return None
    given, returned = _tool(reading) if reading.kind == "tool" else _talk(reading)
    if not given and not returned:
        return None
    return {
        **{name: document[name] for name in ("traceId", "spanId", "resource", "scope")},
        "timeUnixNano": span.ended,
        "observedTimeUnixNano": span.ended,
        "attributes": {"event.name": span.scope, "session.id": session_id},
        "body": {"input": {"messages": given}, "output": {"messages": returned}},
    }


def _tool(reading: SpanReading) -> tuple[list[JsonObject], list[JsonObject]]:
    about = {"role": "tool", "id": reading.tool_call_id}
    arguments = json.dumps(dict(reading.tool_args or {}), ensure_ascii=False)
    result = json.dumps([{"text": reading.tool_result or ""}], ensure_ascii=False)
    return (
        [{"role": "tool", "content": {**about, "content": arguments}}],
        [{"role": "tool", "content": {**about, "message": result}}],
    )


def _talk(reading: SpanReading) -> tuple[list[JsonObject], list[JsonObject]]:
    system = [ParsedMessage("system", reading.system)] if reading.system else []
    return (
        [{"role": each.role, "content": {"content": _blocks(each)}} for each in (*system, *reading.inputs)],
        [{"role": each.role, "content": {"message": _blocks(each)}} for each in reading.outputs],
    )


def _blocks(message: ParsedMessage) -> str:
    blocks: list[JsonObject] = [{"text": message.text}] if message.text else []
    blocks += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": dict(call.args)}}
        for call in message.calls
    ]
    blocks += [
        {
            "toolResult": {
                "toolUseId": result.id,
                "status": "error" if result.is_error else "success",
                "content": [{"text": result.text}],
            }
        }
        for result in message.results
    ]
    return json.dumps(blocks, ensure_ascii=False)
