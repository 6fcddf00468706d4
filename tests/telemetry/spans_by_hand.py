"""Spans and event records written by hand, as frameworks write them."""

import hashlib
import json
from typing import Any

from proctor.evaluator import Evidence
from proctor.session import Session
from proctor.store.sessions import evidence_of_session
from proctor.telemetry import normalized, session_of, sessions_of

START = 1_776_929_864_000_000_000
SECOND = 1_000_000_000
GENAI = "my.agent"
STRANDS = "strands.telemetry.tracer"


def hexed(name: str, digits: int) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:digits]


def span(
    name: str,
    *,
    trace: str = "t1",
    parent: str = "",
    at: float = 0,
    seconds: float = 1,
    scope: str = GENAI,
    session: str | None = "s-1",
    service: str = "Calc.DEFAULT",
    events: list[dict[str, Any]] | None = None,
    status: str = "OK",
    message: str = "",
    **attributes: Any,
) -> dict[str, Any]:
    """A span document; `__` in the name of an attribute stands for a dot."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    started = START + int(at * SECOND)
    return normalized(
        {
            "traceId": hexed(trace, 32),
            "spanId": hexed(name, 16),
            "parentSpanId": hexed(parent, 16) if parent else "",
            "name": name,
            "scope": {"name": scope},
            "resource": {"attributes": {"service.name": service}},
            "startTimeUnixNano": started,
            "endTimeUnixNano": started + int(seconds * SECOND),
            "status": {"code": status, "message": message},
            "attributes": {**({"session.id": session} if session else {}), **named},
            "events": events or [],
        }
    )


def record(
    of: str, *, trace: str = "t1", body: Any = None, event: str = "", **attributes: Any
) -> dict[str, Any]:
    """An event record of the span called `of`."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return normalized(
        {
            "traceId": hexed(trace, 32),
            "spanId": hexed(of, 16),
            "scope": {"name": STRANDS},
            "resource": {"attributes": {"service.name": "Calc.DEFAULT"}},
            "timeUnixNano": START,
            "attributes": {**({"event.name": event} if event else {}), **named},
            "body": body,
        }
    )


def event(name: str, at: float = 0, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "timeUnixNano": START + int(at * SECOND), "attributes": attributes}


def agent(name: str = "A", *, asked: str = "", answered: str = "", **more: Any) -> dict[str, Any]:
    """The span of an agent, with what it was asked and answered."""
    if asked:
        more["gen_ai__input__messages"] = as_json([text("user", asked)])
    if answered:
        more["gen_ai__output__messages"] = as_json([text("assistant", answered)])
    return span(f"invoke_agent {name}", gen_ai__operation__name="invoke_agent", **more)


def chat(name: str, asked: Any = (), answered: Any = (), **more: Any) -> dict[str, Any]:
    """The span of a call of a model; `asked` and `answered` are messages."""
    if asked:
        more["gen_ai__input__messages"] = as_json(asked)
    if answered:
        more["gen_ai__output__messages"] = as_json(answered)
    return span(name, gen_ai__operation__name="chat", **more)


def tool(name: str, **more: Any) -> dict[str, Any]:
    """The span of a tool."""
    more = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": name} | more
    return span(f"execute_tool {name}", **more)


def text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def as_json(value: Any) -> str:
    return json.dumps(value)


def session(*documents: dict[str, Any], external_id: str = "s-1") -> Session:
    found = session_of(list(documents), external_id=external_id)
    assert found is not None
    return found


def evidence(*documents: dict[str, Any]) -> Evidence:
    (found,) = sessions_of(documents)
    return evidence_of_session(found)


def said(found: Evidence) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in found.messages]
