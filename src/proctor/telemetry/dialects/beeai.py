"""BeeAI as OpenInference records it: each event of its emitter is a span.

Of a call, one event has what was given, another what came of it; the others repeat or only mark a time.
"""

import re
from dataclasses import replace

from proctor.telemetry.dialects import openinference
from proctor.telemetry.messages import ParsedMessage, first, literal_of, parse_messages
from proctor.telemetry.span import Span, SpanReading

SCOPE = "openinference.instrumentation.beeai"
_NUMBER = re.compile(r"-\d+$")
# What its agents write around a question.
_ASKED = re.compile(r"Message: (.*?)(?:\s+This message was created at \S+)?", re.DOTALL)


def confidence(span: Span) -> int:
    """Its scope."""
    return 3 if span.scope == SCOPE else 0


def read(span: Span) -> SpanReading | None:
    """Read a span; None for an event that repeats another."""
    *call, event = _NUMBER.sub("", span.name).split(".")
    reading = openinference.read_openinference(span)
    if reading is None or not call:
        return reading and replace(reading, outputs=_answer(span))
    if reading.kind == "tool":
        return replace(reading, tool=call[-1]) if event in ("success", "error") else None
    if reading.kind == "inference" and event == "success":
        # An answer that was streamed, in its parts.
        text = "".join(message.text for message in reading.outputs)
        return replace(reading, kind="agent", outputs=[ParsedMessage("assistant", text)])
    if reading.kind == "inference" and event in ("start", "error"):
        return replace(reading, inputs=[_bare(message) for message in reading.inputs])
    return None


def _bare(message: ParsedMessage) -> ParsedMessage:
    asked = _ASKED.fullmatch(message.text)
    return replace(message, text=asked[1]) if asked else message


def _answer(span: Span) -> list[ParsedMessage]:
    """The answer of a run, which is printed as Python's dictionary."""
    return parse_messages(literal_of(str(first(span.attributes, "output.value") or "")) or None, "assistant")
