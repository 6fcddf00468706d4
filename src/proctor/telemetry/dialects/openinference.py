"""OpenInference, for any framework: the OpenAI Agents SDK, LlamaIndex, the Claude Agent SDK."""

from collections.abc import Mapping
from dataclasses import replace

from proctor.json_values import JsonMap, JsonObject, as_list, as_map, maps_in
from proctor.session import Role
from proctor.telemetry.dialects.genai import content_of, entity_input, read_step, tool_message, unflattened
from proctor.telemetry.messages import (
    ParsedMessage,
    args_of,
    as_text,
    first,
    parse_messages,
    parse_nested,
    payload_of,
    text_of,
    tools_of,
)
from proctor.telemetry.span import Span, SpanReading

AGENTS, MODEL, TOOL = ("AGENT", "CHAIN"), "LLM", "TOOL"
_CONTENT = ("input.", "output.", "llm.")
STEPS = ("RETRIEVER", "RERANKER", "GUARDRAIL", "EVALUATOR")


def kind_of(span: Span) -> str:
    """What a span is about, in capitals; empty when it does not say."""
    return str(span.attributes.get("openinference.span.kind") or "").upper()


def read_openinference(span: Span) -> SpanReading | None:
    """Read a span as OpenInference has it."""
    kind = kind_of(span)
    if kind == TOOL:
        return None if _is_handoff(span) else read_tool(span)
    if kind == MODEL:
        return _read_model(span)
    if kind in STEPS:
        return read_step(span, kind.lower())
    return _read_agent(span) if kind in AGENTS else None


def read_tool(span: Span) -> SpanReading:
    """A tool: its name, what it was given, what it gave back."""
    attributes, content = span.attributes, content_of(span)
    arguments = first(attributes, "input.value")
    arguments = content.first_input if arguments is None else arguments
    # Of some, the schema of its arguments.
    arguments = first(attributes, "tool.parameters") if arguments is None else arguments
    result = first(attributes, "output.value")
    result = content.last_output if result is None else result
    message = tool_message(result)
    text = message.text if message else None if result is None else text_of(payload_of(result))
    named = str(first(attributes, "tool_call.id", "tool.id", "gen_ai.tool.call.id") or "")
    return SpanReading(
        kind="tool",
        tool=str(first(attributes, "tool.name") or span.name),
        tool_args=None if arguments is None else args_of(payload_of(entity_input(arguments))),
        tool_result=text,
        tool_call_id=named or (message.id if message else ""),
        has_failed=span.has_failed or bool(message and message.is_error),
    )


def flattened_messages(attributes: JsonMap, prefix: str, role: Role) -> list[ParsedMessage]:
    """The messages that are spread over attributes: `llm.input_messages.0.message.role`, …"""
    messages = list[ParsedMessage]()
    for entry in unflattened(attributes, prefix):
        message = entry.get("message") if isinstance(entry, Mapping) else None
        if isinstance(message, Mapping):
            messages += parse_messages(_plain(message), role)
    return messages


def _read_agent(span: Span) -> SpanReading:
    attributes, content = span.attributes, content_of(span)
    kind = kind_of(span)
    named = str(
        first(attributes, "agent.name", "gen_ai.agent.name", "graph.node.name", "graph.node.id") or ""
    )
    # The OpenAI Agents SDK names the span around all agents after the workflow.
    is_around = not span.parent_id and not any(key.startswith(_CONTENT) for key in attributes)
    named = named or ("" if is_around or span.name == "Agent workflow" else span.name)
    return SpanReading(
        kind="agent",
        inputs=parse_messages(first(attributes, "input.value"), "user") or content.inputs,
        outputs=parse_messages(_answer(first(attributes, "output.value")), "assistant") or content.outputs,
        agent=named if kind == "AGENT" else "",
        has_failed=span.has_failed,
    )


def _is_handoff(span: Span) -> bool:
    """Whether the OpenAI Agents SDK hands over to another agent: the model's call has a span of its own."""
    return span.name.startswith("handoff to ") and "tool.name" not in span.attributes


def _answer(value: object) -> object:
    """The output of an agent; of CrewAI's crews, the text of their answer."""
    parsed = parse_nested(value)
    if isinstance(parsed, Mapping) and {"raw", "pydantic", "json_dict"} <= set(parsed):
        return parsed["raw"]
    return value


def _read_model(span: Span) -> SpanReading:
    attributes, content = span.attributes, content_of(span)
    inputs = _filled(flattened_messages(attributes, "llm.input_messages", "user"), content.first_input)
    outputs = flattened_messages(attributes, "llm.output_messages", "assistant")
    schemas = [as_map(each, "tool").get("json_schema") for each in unflattened(attributes, "llm.tools")]
    return SpanReading(
        kind="inference",
        inputs=inputs
        or parse_messages(first(attributes, "llm.prompts", "input.value"), "user")
        or content.inputs,
        outputs=outputs or parse_messages(first(attributes, "output.value"), "assistant") or content.outputs,
        has_failed=span.has_failed,
        tools=[tool for schema in schemas for tool in tools_of(schema)],
    )


def _filled(messages: list[ParsedMessage], moved: object) -> list[ParsedMessage]:
    """Messages with the texts that AWS's distribution has moved to a record of the span.

    They stand there in order, after the request as a whole, and all as messages of the user.
    """
    texts = [each.get("content") for each in maps_in(as_map(moved), "messages")]
    blank = [each for each in messages if not (each.text or each.calls or any(r.text for r in each.results))]
    if not blank or len(texts) < len(blank):
        return messages
    waiting = iter(texts[-len(blank) :])
    return [_with_text(each, as_text(next(waiting))) if each in blank else each for each in messages]


def _with_text(message: ParsedMessage, text: str) -> ParsedMessage:
    if message.results:
        return replace(message, results=(replace(message.results[0], text=text),))
    return replace(message, text=text)


def _plain(message: JsonMap) -> JsonObject:
    """A message as OpenAI would write it: without the names that OpenInference puts in between."""
    blocks = _inside(message.get("contents"), "message_content")
    if isinstance(message.get("content"), list):
        # The steps of the Claude Agent SDK: `message.content.0`, `message.content.1`, …
        blocks = [
            {"type": "text", "text": each} if isinstance(each, str) else each
            for each in as_list(message, "content")
        ]
        message = {**message, "content": blocks}
    plain = dict(message) | {"tool_calls": _inside(message.get("tool_calls"), "tool_call")}
    plain.pop("contents", None)
    return plain | {"content": blocks} if blocks and not plain.get("content") else plain


def _inside(value: object, name: str) -> list[object]:
    parsed = parse_nested(value)
    entries = parsed if isinstance(parsed, list) else []
    return [inner for entry in entries if isinstance(entry, Mapping) and (inner := entry.get(name))]


read = read_openinference


def confidence(span: Span) -> int:
    """Anything that names one of its kinds of span."""
    return 2 if kind_of(span) else 0
