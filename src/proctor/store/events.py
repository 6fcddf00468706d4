"""What happened in a session, back from its rows.

Knows nothing of how the rows were come by, or of who wants the events.
"""

import json
from typing import TypeVar

from proctor.session import Message, ModelCall, ToolCall, Usage
from proctor.store.database import Row

Kind = TypeVar("Kind")


def message_of(row: Row) -> Message:
    """A row of `messages` as what was said."""
    return Message(role=row["role"], content=row["content"], name=row["name"])


def tool_call_of(row: Row) -> ToolCall:
    """A row of `tool_calls` as what was done. A call that has no name is known by its place."""
    return ToolCall(
        name=row["toolName"],
        args=parsed(row["argsJson"], dict),
        success=None if row["success"] is None else bool(row["success"]),
        result=row["result"],
        duration_ms=row["durationMs"],
        call_id=row["callId"] or f"call-{row['position']}",
    )


def model_call_of(row: Row) -> ModelCall:
    """A row of `model_calls` as what the call took. What was said in it is among the messages."""
    return ModelCall(
        model=row["model"],
        provider=row["provider"],
        usage=Usage(
            input_tokens=row["promptTokens"],
            cached_tokens=row["cachedTokens"],
            output_tokens=row["completionTokens"],
            reasoning_tokens=row["reasoningTokens"],
        ),
        cost_usd=row["costUsd"],
        price_source=row["priceSource"],
        latency_ms=row["latencyMs"],
        waiting_ms=row["waitingMs"],
        status=row["status"],
        error=row["error"],
        call_id=row["callId"],
    )


def parsed(text: str, kind: type[Kind]) -> Kind:
    """JSON that was kept; what cannot be read any more is nothing."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, kind) else kind()
