"""Events, scores and a session with a value in every member, for tests that write and read them."""

from datetime import UTC, datetime
from typing import Any

from proctor.score import Score
from proctor.session import ModelCall, Session, ToolCall, Usage

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CALL = ModelCall(
    model="m",
    provider="p",
    usage=Usage(input_tokens=10, cached_tokens=2, output_tokens=5, reasoning_tokens=1),
    cost_usd=0.5,
    price={"input": 1.0},
    price_source="plan",
    latency_ms=7.0,
    waiting_ms=8.0,
    status="ok",
    error="none",
    request="asked",
    response="answered",
    call_id="c1",
    speaker="ann",
    purpose="turn",
)
SCORE = Score(
    evaluator="tidy",
    evaluator_digest="d",
    level="session",
    target="t",
    value=0.5,
    label="good",
    explanation="why",
    error="e",
    cost_usd=0.25,
    dimension="x",
    error_code="ec",
    input_tokens=3,
    output_tokens=4,
    votes=("yes", 0.5, True),
    ignored=("i",),
    judged_session="j",
)
TOOL_CALL = ToolCall(name="bash", args={"a": 1}, success=True, duration_ms=3.0, result="r", call_id="c")


def whole_session(**values: Any) -> Session:
    known = {"external_id": "outside", "source": "phoenix", "service": "shop", "log_group": "/logs"}
    known |= {"name": "A title", "agent": "codex", "agent_version": "1.2", "model": "openai/x"}
    known |= {"status": "fail", "end_reason": "limit", "error": "it broke", "notes": ["one note"]}
    known |= {"is_mock": True, "started_at": START, "attributes": {"team": "a"}}
    return Session(**known | values)
