"""The GenAI semantic conventions of OpenTelemetry."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from proctor.json_values import JsonMap, JsonObject, as_map, as_text, maps_in, parsed_integer
from proctor.session import Role
from proctor.telemetry.messages import (
    ParsedMessage,
    ParsedToolResult,
    args_of,
    first,
    parse_messages,
    parse_nested,
    payload_of,
    text_of,
    tools_of,
    unquoted,
)
from proctor.telemetry.span import Span, SpanReading

Kind = Literal["agent", "inference", "tool", "step"]
OPERATIONS: Mapping[str, Kind] = {
    **dict.fromkeys(("invoke_agent", "invoke_workflow"), "agent"),
    **dict.fromkeys(("chat", "generate_content", "text_completion", "completion"), "inference"),
    "execute_tool": "tool",
    "retrieval": "step",
}
TRACELOOP: Mapping[str, Kind] = {"workflow": "agent", "agent": "agent", "tool": "tool"}
MESSAGE_EVENTS: Mapping[str, Role] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")
"""Beginning of an ID, which is no agent's name."""
DETAILS = ("gen_ai.client.inference.operation.details", "gen_ai.client.operation.details")


@dataclass(slots=True)
class Content:
    """Messages of one span in its events and event records."""

    inputs: list[ParsedMessage]
    outputs: list[ParsedMessage]
    system: str = ""
    first_input: object = None
    """The first input as it was written, for tools, whose arguments may look like anything."""
    last_output: object = None


def kind_of(span: Span) -> Kind | None:
    """The kind of a span, by the conventions."""
    attributes = span.attributes
    kind = OPERATIONS.get(str(attributes.get("gen_ai.operation.name") or ""))
    if kind is None:
        kind = TRACELOOP.get(str(attributes.get("traceloop.span.kind") or ""))
    if kind is None and attributes.get("llm.request.type") in ("chat", "completion"):
        kind = "inference"
    return kind


def read_genai(span: Span) -> SpanReading | None:
    """Read a span by the conventions."""
    kind = kind_of(span)
    if kind is None:
        return None
    if kind == "step":
        return read_step(span, "retrieval")
    content = content_of(span)
    return read_tool(span, content) if kind == "tool" else read_conversation(span, kind, content)


def read_step(span: Span, kind: str) -> SpanReading:
    """A step that is neither an agent, a model nor a tool: what it returned, such as documents."""
    attributes = span.attributes
    documents = [
        as_map(part, "document")
        for prefix in ("retrieval.documents", "reranker.output_documents")
        for part in unflattened(attributes, prefix)
    ]
    names = ("gen_ai.retrieval.documents", "output.value", "traceloop.entity.output")
    returned = documents or parse_nested(first(attributes, *names))
    return SpanReading(
        kind="step",
        tool=f"{kind} {span.name}".strip(),
        tool_result=documents_text(returned),
        has_failed=span.has_failed,
    )


def documents_text(value: object) -> str:
    """Retrieved documents as text, one paragraph each."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in ("documents", "results", "output") if key in value), value)
    if not isinstance(value, list):
        return text_of(value)
    texts = list[object]()
    for document in value:
        fields = as_map(document, "kwargs") or as_map(document)
        texts.append(first(fields, "document.content", "content", "page_content", "text") or document)
    return "\n\n".join(text_of(each) for each in texts)


def read_conversation(span: Span, kind: Kind, content: Content) -> SpanReading:
    """A span of an agent or a model: its input and output messages."""
    attributes = span.attributes
    inputs = content.inputs or parse_messages(attributes.get("gen_ai.input.messages"), "user")
    outputs = content.outputs or parse_messages(attributes.get("gen_ai.output.messages"), "assistant")
    if kind == "agent":
        inputs = inputs or parse_messages(
            first(attributes, "gen_ai.task.input", "traceloop.entity.input"), "user"
        )
        inputs = inputs or _asked(attributes)
        outputs = outputs or parse_messages(
            first(attributes, "gen_ai.task.output", "traceloop.entity.output"), "assistant"
        )
    else:
        inputs = inputs or parse_messages(unflattened(attributes, "gen_ai.prompt"), "user")
        outputs = outputs or parse_messages(unflattened(attributes, "gen_ai.completion"), "assistant")
    return SpanReading(
        kind=kind,
        inputs=inputs,
        outputs=outputs,
        agent=agent_of(span),
        has_failed=span.has_failed,
        system=instructions(attributes.get("gen_ai.system_instructions")) or content.system,
        tools=tools_on(attributes),
    )


def _asked(attributes: JsonMap) -> list[ParsedMessage]:
    """What a run of Pydantic AI began with: its agent has all messages, with those of earlier runs first."""
    messages = parse_messages(attributes.get("pydantic_ai.all_messages"), "user")
    began = parsed_integer(attributes.get("pydantic_ai.new_message_index")) or 0
    asked = list[ParsedMessage]()
    for message in messages[began:]:
        if message.role == "assistant" or message.results:
            break
        asked.append(message)
    return asked


def read_tool(span: Span, content: Content) -> SpanReading:
    """A span of a tool: its name, arguments and result."""
    attributes = span.attributes
    arguments = first(attributes, "gen_ai.tool.call.arguments")
    if arguments is None:
        arguments = content.first_input
    if arguments is None:
        arguments = attributes.get("traceloop.entity.input", attributes.get("tool_arguments"))
    result = unquoted(first(attributes, "gen_ai.tool.call.result"))
    if result is None:
        result = content.last_output
    if result is None:
        result = attributes.get("traceloop.entity.output", attributes.get("tool_response"))
    arguments, result = entity_input(arguments), entity_output(result)
    message = tool_message(result)
    name = first(attributes, "gen_ai.tool.name", "traceloop.entity.name")
    failed = str(attributes.get("gen_ai.tool.status") or "").lower() in ("error", "failed", "failure")
    return SpanReading(
        kind="tool",
        tool=str(name or span.name.removeprefix("execute_tool ").removesuffix(".tool")),
        tool_args=None if arguments is None else args_of(payload_of(arguments)),
        tool_result=_result_text(result, message),
        tool_call_id=str(first(attributes, "gen_ai.tool.call.id", "tool_call.id") or "")
        or (message.id if message else ""),
        has_failed=span.has_failed or failed or bool(message and message.is_error),
    )


def tool_message(value: object) -> ParsedToolResult | None:
    """The result in a tool's message, as LangChain serializes it; None: the value is no such message."""
    parsed = parse_nested(value)
    fields = as_map(parsed, "kwargs") or as_map(parsed)
    if fields.get("type") == "tool" and "data" in fields:
        fields = as_map(fields, "data")
    if "content" not in fields or not ("tool_call_id" in fields or fields.get("type") == "tool"):
        return None
    messages = parse_messages({"role": "tool", **fields}, "tool")
    return next((result for message in messages for result in message.results), None)


def _result_text(result: object, message: ParsedToolResult | None) -> str | None:
    if message is not None:
        return message.text
    return None if result is None else text_of(payload_of(result))


def content_of(span: Span) -> Content:
    """Messages of the event records; if there are none, of the span's events."""
    content = Content([], [])
    for record in span.records:
        attributes = as_map(record, "attributes")
        name = str(record.get("eventName") or attributes.get("event.name") or "")
        _add_event(content, name, attributes, parse_nested(record.get("body")))
    if (
        not content.inputs
        and not content.outputs
        and content.first_input is None
        and content.last_output is None
    ):
        for event in span.events:
            _add_event(content, as_text(event["name"]), as_map(event, "attributes"), None)
    if not content.inputs and not content.outputs:
        _add_logged(content, maps_in(parse_nested(span.attributes.get("events"))))
    return content


def _add_logged(content: Content, events: Sequence[JsonMap]) -> None:
    """The events that Logfire and Pydantic AI keep in an attribute.

    What the assistant says at their end is the answer where none is marked as such.
    """
    for event in events:
        _add_event(content, str(event.get("event.name") or ""), {}, event)
    if not content.outputs:
        while content.inputs and content.inputs[-1].role == "assistant":
            content.outputs.insert(0, content.inputs.pop())


def instructions(value: object) -> str:
    """A system prompt from parts, messages or plain text."""
    return "\n".join(filter(None, (message.text for message in parse_messages(value, "system"))))


def agent_of(span: Span) -> str:
    """The name of the agent of a span; empty for a workflow around agents."""
    is_workflow = span.attributes.get("gen_ai.operation.name") == "invoke_workflow"
    if span.attributes.get("traceloop.span.kind") == "workflow" or is_workflow:
        return str(span.attributes.get("gen_ai.agent.name") or "") if is_workflow else ""
    named = first(span.attributes, "gen_ai.agent.name", "traceloop.entity.name")
    if not named and span.name.endswith((".workflow", ".task")):
        return ""
    if not named and _ID.search(span.name):
        return ""
    return str(named or span.name.removeprefix("invoke_agent").strip() or "agent")


def tools_on(attributes: JsonMap) -> list[JsonObject]:
    """The tools that a span lists, those with a description first."""
    tools = tools_of(attributes.get("gen_ai.tool.definitions"))
    tools += tools_of(unflattened(attributes, "llm.request.functions"))
    return tools + tools_of(attributes.get("gen_ai.agent.tools"))


def unflattened(attributes: JsonMap, prefix: str) -> list[object]:
    """A list that was spread over attributes: `gen_ai.prompt.0.role`, `gen_ai.prompt.0.content`, …"""
    tree: JsonObject = {}
    start = f"{prefix}."
    for key, value in attributes.items():
        if key.startswith(start):
            branch, *path, leaf = tree, *key[len(start) :].split(".")
            for step in path:
                below = branch.setdefault(step, {})
                if not isinstance(below, dict):
                    break
                branch = below
            else:
                branch.setdefault(leaf, value)
    gathered = _gathered(tree)
    return gathered if isinstance(gathered, list) else []


def entity_input(value: object) -> object:
    """A tool's arguments from what Traceloop keeps of a call."""
    parsed = parse_nested(value)
    if not isinstance(parsed, Mapping):
        return parsed
    if isinstance(parsed.get("inputs"), Mapping):
        return parsed["inputs"]
    if "input_str" in parsed:
        return parsed["input_str"]
    if set(parsed) - {"sanitize_inputs_outputs"} <= {"args", "kwargs"} and isinstance(
        parsed.get("kwargs"), Mapping
    ):
        arguments = parsed["args"] if isinstance(parsed.get("args"), list) else []
        return {**{f"arg{number}": each for number, each in enumerate(arguments)}, **parsed["kwargs"]}
    return parsed


def entity_output(value: object) -> object:
    """A tool's result from what Traceloop keeps of a call."""
    parsed = parse_nested(value)
    is_wrapped = isinstance(parsed, Mapping) and "output" in parsed and set(parsed) <= {"output", "kwargs"}
    return as_map(parsed)["output"] if is_wrapped else parsed


def _add_event(content: Content, name: str, attributes: JsonMap, body: object) -> None:
    if isinstance(body, Mapping) and ("input" in body or "output" in body):
        _add_body(content, body)
    elif name in DETAILS or "gen_ai.input.messages" in attributes or "gen_ai.output.messages" in attributes:
        _add_details(content, {**attributes, **(body if isinstance(body, Mapping) else {})})
    elif name in MESSAGE_EVENTS or name == "gen_ai.choice":
        fields = dict(body) if isinstance(body, Mapping) else dict(attributes)
        if isinstance(body, str):
            fields["content"] = body
        _add_message(content, name, fields)


def _add_body(content: Content, body: JsonMap) -> None:
    prompt, answered = body.get("input"), body.get("output")
    if prompt is not None:
        content.inputs += parse_messages(prompt, "user")
        content.first_input = content.first_input if content.first_input is not None else prompt
    if answered is not None:
        content.outputs += parse_messages(answered, "assistant")
        content.last_output = answered


def _add_details(content: Content, fields: JsonMap) -> None:
    prompt, answered = fields.get("gen_ai.input.messages"), fields.get("gen_ai.output.messages")
    content.inputs += parse_messages(prompt, "user")
    content.outputs += parse_messages(answered, "assistant")
    content.first_input = content.first_input if content.first_input is not None else prompt
    content.last_output = answered if answered is not None else content.last_output
    content.system = content.system or instructions(fields.get("gen_ai.system_instructions"))


def _add_message(content: Content, name: str, fields: JsonObject) -> None:
    if name == "gen_ai.choice":
        message = fields.get("message", fields.get("content"))
        content.outputs += parse_messages(message, "assistant")
        content.last_output = message
        return
    role = MESSAGE_EVENTS[name]
    content.inputs += parse_messages({"role": role, "content": "", **fields}, role)
    if content.first_input is None:
        content.first_input = fields.get("content")


def _gathered(tree: object) -> object:
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() and len(key) < 10 for key in tree):
        return [_gathered(tree[key]) for key in sorted(tree, key=int)]
    return {key: _gathered(value) for key, value in tree.items()}


read = read_genai


def confidence(span: Span) -> int:
    """Anything that names an operation of these conventions."""
    return 1 if kind_of(span) else 0
