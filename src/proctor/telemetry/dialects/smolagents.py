"""smolagents as OpenInference records it.

The run of an agent is recorded by its models and tools. Its steps are objects in Python's notation, and what
the tool `final_answer` returns is the answer of the run.
"""

from dataclasses import replace

from proctor.json_values import as_map
from proctor.telemetry.dialects import openinference
from proctor.telemetry.messages import ParsedMessage, args_of, first, parse_nested
from proctor.telemetry.span import Span, SpanReading

SCOPE = "openinference.instrumentation.smolagents"
NEW_TASK = "New task:"
FINAL_ANSWER = "final_answer"


def confidence(span: Span) -> int:
    """Its own scope."""
    return 3 if span.scope == SCOPE else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; None for a step and for the final answer, which the run repeats."""
    kind, attributes = openinference.kind_of(span), span.attributes
    if kind == "CHAIN":
        return None
    reading = openinference.read_openinference(span)
    if reading is None:
        return None
    if kind == "AGENT":
        task = as_map(parse_nested(first(attributes, "input.value"))).get("task")
        inputs = [ParsedMessage("user", str(task))] if task else reading.inputs
        return replace(reading, inputs=inputs, agent=reading.agent.removesuffix(".run"))
    if kind == "TOOL":
        return None if reading.tool == FINAL_ANSWER else replace(reading, tool_args=_named(reading, span))
    return replace(
        reading,
        inputs=[_without_prefix(message) for message in reading.inputs],
        outputs=[_without_answer(message) for message in reading.outputs],
    )


def _without_answer(message: ParsedMessage) -> ParsedMessage:
    """A message without the call that ends the run, which is no use of a tool."""
    return replace(message, calls=tuple(call for call in message.calls if call.name != FINAL_ANSWER))


def _named(reading: SpanReading, span: Span) -> dict[str, object]:
    """Arguments by name: positional ones have the names of the tool's parameters, in order."""
    parameters = list(args_of(first(span.attributes, "tool.parameters")))
    names = {f"arg{position}": name for position, name in enumerate(parameters)}
    return {names.get(name, name): value for name, value in (reading.tool_args or {}).items()}


def _without_prefix(message: ParsedMessage) -> ParsedMessage:
    if message.role != "user" or not message.text.startswith(NEW_TASK):
        return message
    return replace(message, text=message.text.removeprefix(NEW_TASK).strip())
