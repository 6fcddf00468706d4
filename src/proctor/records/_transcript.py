"""Builds a session's transcript from a record: turns, messages, and tool calls with their results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from proctor.json_values import (
    JsonMap,
    args_of,
    as_cost,
    as_map,
    as_name,
    as_number,
    as_text,
    as_whole_number,
    maps_in,
    message_text,
)
from proctor.score import LEVELS, Score
from proctor.session import Event, Message, ModelCall, Role, Step, TimedEvent, ToolCall


@dataclass(slots=True)
class _Entry:
    event: Event
    at: datetime | None


@dataclass(slots=True)
class _Step:
    trace_id: str = ""
    began: datetime | None = None
    entries: list[_Entry] = field(default_factory=list)

    def is_only_instructions(self) -> bool:
        return all(isinstance(each.event, Message) and each.event.role == "system" for each in self.entries)

    def is_waiting_for_the_user(self) -> bool:
        return all(
            isinstance(each.event, Message) and each.event.role != "assistant" for each in self.entries
        )


class TranscriptBuilder:
    """The transcript of a session under construction."""

    def __init__(self, *, turns_by_user: bool = True) -> None:
        self.turns_are_told = not turns_by_user
        """Whether the record says itself where turns begin."""
        self._steps = [_Step()]
        self._open: dict[str, _Entry] = {}
        self._calls = 0
        self.began_at: datetime | None = None
        """The earliest moment that was told; None: no moment was."""
        self.ended_at: datetime | None = None
        """The latest."""

    def begin(self, trace_id: str = "", at: datetime | None = None) -> None:
        """Start a turn; instructions recorded so far belong to it."""
        now = self._steps[-1]
        if now.entries and (now.trace_id or not now.is_only_instructions()):
            self._steps.append(now := _Step())
        now.trace_id, now.began = trace_id, at
        self._extend_time(at)

    def say(
        self, role: Role, text: str, at: datetime | None = None, name: str = "", *, even_nothing: bool = False
    ) -> None:
        """Add a message. One without text is skipped unless it is known to be a message."""
        if not text and not even_nothing:
            return
        if role == "user" and not self.turns_are_told and not self._steps[-1].is_waiting_for_the_user():
            self.begin(at=at)
        self._add(Message(role=role, content=text, name=name), at)

    def call(
        self,
        name: str,
        args: JsonMap,
        call_id: str = "",
        at: datetime | None = None,
        *,
        success: bool | None = None,
        known_as: str = "",
    ) -> None:
        """A tool was called; its result follows in `answer`, if `success` is not known already.

        `known_as` is what the record's results call it, where that is not its id.
        """
        self._calls += 1
        call = ToolCall(name=name or "unnamed", args=args, call_id=call_id, success=success)
        entry = self._add(call, at)
        if success is None:
            self._open[known_as or call_id or f"\0{self._calls}"] = entry

    def answer(
        self,
        call_id: str,
        result: str,
        success: bool | None = None,
        at: datetime | None = None,
        duration_ms: float | None = None,
    ) -> None:
        """Add the result of a tool call; without an id it belongs to the oldest open call; a result without a
        call is added as a message."""
        self._extend_time(at)
        known = call_id if call_id in self._open else next(iter(self._open), "") if not call_id else ""
        if not known:
            self.say("tool", result, at)
            return
        entry = self._open.pop(known)
        if isinstance(entry.event, ToolCall):
            entry.event = replace(entry.event, result=result, success=success, duration_ms=duration_ms)

    def spend(
        self, call: ModelCall, at: datetime | None = None, *, before: tuple[int, int] | None = None
    ) -> None:
        """Add a model call, before its outcome: at a position from `here`, else at the end."""
        self._extend_time(at)
        step, index = before or self.here()
        self._steps[step].entries.insert(index, _Entry(call, at))

    def here(self) -> tuple[int, int]:
        """The current position, for `spend`."""
        return len(self._steps) - 1, len(self._steps[-1].entries)

    @property
    def is_waiting_for_a_tool(self) -> bool:
        """Whether it ends with a tool call without a result."""
        last = self._last
        return isinstance(last, ToolCall) and last.success is None and not last.result and bool(self._open)

    @property
    def is_waiting_for_the_agent(self) -> bool:
        """Whether it ends with a message of the user."""
        last = self._last
        return isinstance(last, Message) and last.role == "user"

    @property
    def steps(self) -> list[Step]:
        """The turns so far."""
        return [_finished(step) for step in self._steps if step.entries]

    @property
    def _last(self) -> Event | None:
        entries = self._steps[-1].entries
        return entries[-1].event if entries else None

    def _add(self, event: Event, at: datetime | None) -> _Entry:
        self._extend_time(at)
        entry = _Entry(event, at)
        self._steps[-1].entries.append(entry)
        return entry

    def _extend_time(self, at: datetime | None) -> None:
        if at is not None:
            self.began_at = min(self.began_at or at, at)
            self.ended_at = max(self.ended_at or at, at)


def _finished(step: _Step) -> Step:
    moments: Sequence[datetime] = [each.at for each in step.entries if each.at is not None]
    return Step(
        trace_id=step.trace_id,
        events=[TimedEvent(event=each.event, at=each.at) for each in step.entries],
        started_at=step.began or (moments[0] if moments else None),
        finished_at=moments[-1] if moments else None,
    )


def add_message(transcript: TranscriptBuilder, message: JsonMap, at: datetime | None = None) -> None:
    """Add one chat message: its text, tool calls, or tool result."""
    role, text = message.get("role"), message_text(message, "content")
    if role in ("system", "developer"):
        transcript.say("system", text, at)
    elif role == "user":
        transcript.say("user", text, at)
    elif role == "assistant":
        transcript.say("assistant", text, at)
        add_calls(transcript, message, at)
    elif role in ("tool", "function"):
        # The deprecated function-calling form names functions only.
        transcript.answer(as_name(message, "tool_call_id"), text, at=at)


def add_calls(transcript: TranscriptBuilder, message: JsonMap, at: datetime | None = None) -> None:
    """Add the tool calls of a message."""
    for call in maps_in(message, "tool_calls"):
        function = as_map(call, "function") or call
        transcript.call(as_text(function, "name"), args_of(function, "arguments"), as_name(call, "id"), at)
    if old := as_map(message, "function_call"):
        transcript.call(as_text(old, "name"), args_of(old, "arguments"), at=at)


# Scores and factors as our exports write them to other tools' files.


def exported_factors(ours: JsonMap) -> dict[str, str]:
    """The factors of a session, as our exports write them."""
    return {name: level for name, level in as_map(ours, "factors").items() if isinstance(level, str)}


def exported_scores(value: object) -> list[Score]:
    """Scores of a list, as our exports write them."""
    return [exported_score(each) for each in maps_in(value) if as_text(each, "evaluator")]


def exported_score(value: JsonMap) -> Score:
    """One score, as our exports write it."""
    return Score(
        evaluator=as_text(value, "evaluator"),
        value=as_number(value, "value"),
        label=as_text(value, "label"),
        explanation=as_text(value, "explanation"),
        level=LEVELS.get(as_text(value, "level"), "session"),
        target=as_text(value, "target"),
        evaluator_digest=as_text(value, "evaluator_digest") or as_text(value, "digest"),
        error=as_text(value, "error"),
        cost_usd=as_cost(value, "cost_usd"),
        dimension=as_text(value, "dimension"),
        error_code=as_text(value, "error_code"),
        input_tokens=as_whole_number(value, "input_tokens"),
        output_tokens=as_whole_number(value, "output_tokens"),
    )
