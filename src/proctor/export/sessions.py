"""Exports sessions in the formats of other tools, one module per format.

A module named in `SESSION_FORMATS` has one function, which streams sessions and returns the written files:

    def write(sessions: Iterable[Session], out: Path, label: str) -> list[Path]
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from proctor.errors import UsageError
from proctor.export.tables import file_name, write_into
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, without_empty, without_none
from proctor.score import Score
from proctor.session import Message, ModelCall, Role, Session, ToolCall, Usage
from proctor.store import Scope, StoreReader
from proctor.telemetry.otlp import encode_spans
from proctor.telemetry.span_writer import documents_of

SESSION_FORMATS: Mapping[str, str] = {
    "otlp": "proctor.export.sessions",
    "atif": "proctor.export.atif",
    "inspect": "proctor.export.inspect",
    "harbor": "proctor.export.harbor",
}
"""Each format, and the module that writes it."""


class Format(Protocol):
    """A module that writes sessions."""

    def write(self, sessions: Iterable[Session], out: Path, label: str) -> list[Path]:
        """Write sessions to the folder `out`; the files that were made."""


def export_sessions(read: StoreReader, scope: Scope, *, out: Path, form: str, label: str) -> list[Path]:
    """Write the sessions of a scope to the folder `out`; returns the files."""
    writer = cast(Format, import_module(SESSION_FORMATS[form]))
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file\nSessions are written into a folder: give one with --out.")
    sessions = (read.recorded(session_id) for session_id in read.session_ids(scope))
    return write_into(out, lambda folder: writer.write(sessions, folder, file_name(label)))


def write(sessions: Iterable[Session], out: Path, label: str) -> list[Path]:
    """One file, `otlp-<label>.jsonl`."""
    path = out / f"otlp-{label}.jsonl"
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for session in sessions:
            if session.steps:
                file.write(json.dumps(encode_spans(documents_of(session)), ensure_ascii=False) + "\n")
    return [path]


OURS = "proctor"
"""Member of another tool's file with what its format has no place for."""


@dataclass(slots=True, kw_only=True)
class ExportedMessage:
    """One message, or calls without a message."""

    role: Role = "assistant"
    text: str = ""
    name: str = ""
    at: datetime | None = None
    is_silent: bool = True
    """Whether it has no text, only tool calls."""
    turn: str | None = None
    """The id of the turn that begins here. None: no turn does."""
    tool_calls: list[tuple[ToolCall, datetime | None]] = field(default_factory=list)
    call_names: list[str] = field(default_factory=list)
    """A unique name of each tool call: its id, unless another call of the session has the same."""
    model_calls: list[tuple[ModelCall, datetime | None]] = field(default_factory=list)

    @property
    def ours(self) -> JsonObject:
        """What other formats have no place for."""
        named = zip(self.call_names, self.tool_calls, strict=True)
        others = {name: call.call_id for name, (call, _) in named if name != call.call_id}
        known = {"turn": self.turn, "name": self.name or None, "is_silent": self.is_silent or None}
        return without_none(known) | ({"call_ids": others} if others else {})


def exported_messages(session: Session) -> Iterator[ExportedMessage]:
    """The messages and tool calls of a session, in order."""
    names: set[str] = set()
    for step in session.steps:
        turn: str | None = step.trace_id
        for message in _grouped([(each.event, each.at) for each in step.events]):
            message.turn, turn = turn, None
            message.call_names = [_name(call, names) for call, _ in message.tool_calls]
            yield message


def about(session: Session) -> JsonObject:
    """The facts of a session as a whole, for formats without members of their own for them."""
    known = {
        "source": session.source,
        "service": session.service,
        "log_group": session.log_group,
        "name": session.name,
        "agent": session.agent,
        "agent_version": session.agent_version,
        "model": session.model,
        "is_stand_in": session.is_mock,
        "status": session.status,
        "end_reason": session.end_reason,
        "task": session.task,
        "repeat": session.repeat,
        "factors": dict(session.factors),
        "attributes": dict(session.attributes),
        "notes": list(session.notes),
    }
    return {name: value for name, value in known.items() if value}


def origin_digest(session: Session) -> str:
    """Distinguishes sessions whose ids are the same: those of two services, or cut for the name of a file."""
    return digest_of([session.source, session.log_group, session.service, session.external_id])[:8]


def score_document(score: Score) -> JsonObject:
    """The members of a score that have a value, as plain data."""
    known = {
        "evaluator": score.evaluator,
        "value": score.value,
        "label": score.label,
        "explanation": score.explanation,
        "level": score.level,
        "target": score.target,
        "evaluator_digest": score.evaluator_digest,
        "error": score.error,
        "cost_usd": score.cost_usd,
        "dimension": score.dimension,
        "error_code": score.error_code,
        "input_tokens": score.input_tokens or None,
        "output_tokens": score.output_tokens or None,
    }
    return without_empty(known)


def total_usage(session: Session) -> dict[str, tuple[Usage, float | None]]:
    """Tokens and cost of a session by model; a cost of None: no call of it had a known price."""
    by_model: dict[str, tuple[Usage, float | None]] = {}
    for step in session.steps:
        for timed in step.events:
            if isinstance(timed.event, ModelCall):
                usage, cost = by_model.get(timed.event.model, (Usage(), None))
                more = timed.event.cost_usd
                cost = cost if more is None else (cost or 0.0) + more
                by_model[timed.event.model] = (usage + timed.event.usage, cost)
    return by_model


def moment(at: datetime | None) -> str | None:
    """A time in ISO 8601; None: unknown."""
    return None if at is None else at.isoformat()


def without_nothing(document: JsonMap) -> JsonObject:
    """The members with a value: not None, not an empty list or mapping."""
    return {name: value for name, value in document.items() if value is not None and value not in ([], {})}


def _grouped(events: list[tuple[object, datetime | None]]) -> Iterator[ExportedMessage]:
    message: ExportedMessage | None = None
    for event, at in events:
        if isinstance(event, ModelCall):
            # The result of a call follows it; messages of others in between do not belong to it.
            if message is not None and not _is_only_models(message):
                yield message
                message = None
            message = message or ExportedMessage(at=at)
            message.model_calls.append((event, at))
        elif isinstance(event, ToolCall):
            if message is not None and message.role != "assistant":
                yield message
                message = None
            message = message or ExportedMessage(at=at)
            message.tool_calls.append((event, at))
        elif isinstance(event, Message):
            if message is not None and not (_is_only_models(message) and event.role == "assistant"):
                yield message
                message = None
            message = message or ExportedMessage(at=at)
            message.role, message.text, message.name, message.is_silent = (
                event.role,
                event.content,
                event.name,
                False,
            )
            message.at = at or message.at
    if message is not None:
        yield message


def _name(call: ToolCall, names: set[str]) -> str:
    name = call.call_id
    if not name or name in names:
        name = f"{name or 'call'}#{len(names) + 1}"
    names.add(name)
    return name


def _is_only_models(message: ExportedMessage) -> bool:
    return message.is_silent and not message.tool_calls
