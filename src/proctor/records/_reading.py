"""What readers of records share: building transcripts, and bounded reading of untrusted files.

Every failure of reading a file is a `ValueError` or `OSError`.
"""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import IO, Protocol

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
    parse_json,
)
from proctor.score import LEVELS, Score
from proctor.session import Event, Message, ModelCall, Role, Session, Step, TimedEvent, ToolCall, Unreadable


@dataclass(slots=True)
class _ReadEvent:
    event: Event
    at: datetime | None


@dataclass(slots=True)
class _ReadStep:
    trace_id: str = ""
    began: datetime | None = None
    entries: list[_ReadEvent] = field(default_factory=list)

    def is_only_instructions(self) -> bool:
        """Whether there is nothing but system messages."""
        return all(isinstance(each.event, Message) and each.event.role == "system" for each in self.entries)

    def is_waiting_for_the_user(self) -> bool:
        """Whether the assistant has done nothing in this step yet."""
        return all(
            isinstance(each.event, Message) and each.event.role != "assistant" for each in self.entries
        )


class TranscriptBuilder:
    """The transcript of a session under construction."""

    def __init__(self, *, turns_by_user: bool = True) -> None:
        self.has_explicit_turns = not turns_by_user
        """Whether the record marks where turns begin; otherwise each message of the user begins one."""
        self._steps = [_ReadStep()]
        self._open: dict[str, _ReadEvent] = {}
        self._calls = 0
        self.began_at: datetime | None = None
        """The earliest time in the record; None: it has no times."""
        self.ended_at: datetime | None = None
        """The latest."""

    def begin_turn(self, trace_id: str = "", at: datetime | None = None) -> None:
        """Start a turn; instructions recorded so far belong to it."""
        now = self._steps[-1]
        if now.entries and (now.trace_id or not now.is_only_instructions()):
            self._steps.append(now := _ReadStep())
        now.trace_id, now.began = trace_id, at
        self._extend_time(at)

    def add_message(
        self, role: Role, text: str, at: datetime | None = None, name: str = "", *, keep_empty: bool = False
    ) -> None:
        """Add a message. One without text is skipped unless it is known to be a message."""
        if not text and not keep_empty:
            return
        if role == "user" and not self.has_explicit_turns and not self._steps[-1].is_waiting_for_the_user():
            self.begin_turn(at=at)
        self._add(Message(role=role, content=text, name=name), at)

    def add_tool_call(
        self,
        name: str,
        args: JsonMap,
        call_id: str = "",
        at: datetime | None = None,
        *,
        success: bool | None = None,
        result_id: str = "",
    ) -> None:
        """A tool was called; its result follows in `answer`, if `success` is not known already.

        `result_id` is the id by which results refer to it, if that is not `call_id`.
        """
        self._calls += 1
        call = ToolCall(name=name or "unnamed", args=args, call_id=call_id, success=success)
        entry = self._add(call, at)
        if success is None:
            self._open[result_id or call_id or f"\0{self._calls}"] = entry

    def add_tool_result(
        self,
        call_id: str,
        result: str,
        success: bool | None = None,
        at: datetime | None = None,
        duration_ms: float | None = None,
    ) -> None:
        """Add the result of a tool call. Without an id it belongs to the oldest call without a result; a
        result without a call is added as a message."""
        self._extend_time(at)
        known = call_id if call_id in self._open else next(iter(self._open), "") if not call_id else ""
        if not known:
            self.add_message("tool", result, at)
            return
        entry = self._open.pop(known)
        if isinstance(entry.event, ToolCall):
            entry.event = replace(entry.event, result=result, success=success, duration_ms=duration_ms)

    def add_model_call(
        self, call: ModelCall, at: datetime | None = None, *, before: tuple[int, int] | None = None
    ) -> None:
        """Add a model call before the messages it produced: at a `position`, else at the end."""
        self._extend_time(at)
        step, index = before or self.position()
        self._steps[step].entries.insert(index, _ReadEvent(call, at))

    def position(self) -> tuple[int, int]:
        """The current position, for `add_model_call`."""
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

    def _add(self, event: Event, at: datetime | None) -> _ReadEvent:
        self._extend_time(at)
        entry = _ReadEvent(event, at)
        self._steps[-1].entries.append(entry)
        return entry

    def _extend_time(self, at: datetime | None) -> None:
        if at is not None:
            self.began_at = min(self.began_at or at, at)
            self.ended_at = max(self.ended_at or at, at)


def _finished(step: _ReadStep) -> Step:
    moments: Sequence[datetime] = [each.at for each in step.entries if each.at is not None]
    return Step(
        trace_id=step.trace_id,
        events=[TimedEvent(event=each.event, at=each.at) for each in step.entries],
        started_at=step.began or (moments[0] if moments else None),
        finished_at=moments[-1] if moments else None,
    )


def add_chat_message(transcript: TranscriptBuilder, message: JsonMap, at: datetime | None = None) -> None:
    """Add one chat message: its text, tool calls, or tool result."""
    role, text = message.get("role"), message_text(message, "content")
    if role in ("system", "developer"):
        transcript.add_message("system", text, at)
    elif role == "user":
        transcript.add_message("user", text, at)
    elif role == "assistant":
        transcript.add_message("assistant", text, at)
        add_chat_tool_calls(transcript, message, at)
    elif role in ("tool", "function"):
        # The deprecated function-calling form names functions only.
        transcript.add_tool_result(as_name(message, "tool_call_id"), text, at=at)


def add_chat_tool_calls(transcript: TranscriptBuilder, message: JsonMap, at: datetime | None = None) -> None:
    """Add the tool calls of a message."""
    for call in maps_in(message, "tool_calls"):
        function = as_map(call, "function") or call
        transcript.add_tool_call(
            as_text(function, "name"), args_of(function, "arguments"), as_name(call, "id"), at
        )
    if old := as_map(message, "function_call"):
        transcript.add_tool_call(as_text(old, "name"), args_of(old, "arguments"), at=at)


def exported_factors(exported: JsonMap) -> dict[str, str]:
    """The factors of a session, as Proctor exports them."""
    return {name: level for name, level in as_map(exported, "factors").items() if isinstance(level, str)}


def exported_scores(value: object) -> list[Score]:
    """Scores of a list, as Proctor exports them."""
    return [exported_score(each) for each in maps_in(value) if as_text(each, "evaluator")]


def exported_score(value: JsonMap) -> Score:
    """One score, as Proctor exports it."""
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


MOST_BYTES = 256 * 1024 * 1024
"""Maximum size of a file with one JSON value, of one line, or of one unpacked sample."""
HEAD_BYTES = 64 * 1024
"""Bytes of a file from which its format is recognized."""
Read = Iterator[Session | Unreadable]


@dataclass(frozen=True, slots=True)
class JsonLine:
    """One line of a JSON Lines file."""

    number: int
    """Counted from 1."""
    value: object
    problem: str = ""
    """Why it could not be read. Empty: it could."""
    is_unfinished: bool = False
    """Whether it breaks off at the end of the file, as in a file that is still being written."""


def head_of(path: Path, suffixes: tuple[str, ...] = ()) -> bytes:
    """The beginning of a file; empty when it cannot be read or has another suffix."""
    if suffixes and not path.name.endswith(suffixes):
        return b""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def load_json(path: Path) -> object:
    """The JSON value of a file; a `ValueError` or `OSError` when there is none."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
    if not data.strip():
        raise ValueError("it is empty")
    try:
        return parse_json(data)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error


def json_lines(path: Path) -> Iterator[JsonLine]:
    """The nonempty lines of a file."""
    number = 0
    with path.open("rb") as file:
        while data := file.readline(MOST_BYTES):
            number += 1
            if not data.strip():
                continue
            try:
                yield JsonLine(number, parse_json(data))
            except ValueError as error:
                is_last = not data.endswith(b"\n") and len(data) < MOST_BYTES
                yield JsonLine(number, None, f"it is not JSON: {error}", is_unfinished=is_last)


class LineSession(Protocol):
    """A session that is read from the lines of a file, one by one."""

    transcript: TranscriptBuilder
    notes: list[str]

    def take(self, line: JsonMap) -> None:
        """Read one line."""

    def finish(self) -> Session:
        """The session, after the last line."""


def read_lines(path: Path, session: LineSession) -> Read:
    """The session of a file of JSON lines, and the lines that could not be read."""
    try:
        for line in json_lines(path):
            if line.is_unfinished:
                session.notes.append("the last line is not finished: the file was being written")
            elif line.problem:
                yield Unreadable(path=str(path), line=line.number, problem=line.problem)
            else:
                session.take(as_map(line.value))
    except OSError as error:
        yield unreadable(path, error)
        return
    finished = session.finish()
    yield finished if finished.steps else unreadable(path, "it has no messages")


def read_session(path: Path, make: Callable[[], Session], part: str = "") -> Session | Unreadable:
    """The session that `make` returns, or an `Unreadable`; `part` names it within its file."""
    try:
        session = make()
        if not session.steps and not session.scores and session.status == "success":
            raise ValueError("nothing was said or done in it")
        return session
    except (ValueError, RecursionError, OSError) as error:
        return unreadable(path, error, part)


def unreadable(path: Path, error: Exception | str, part: str = "") -> Unreadable:
    """An `Unreadable` with a one-line reason."""
    deep = "it is nested too deeply" if isinstance(error, RecursionError) else ""
    message = deep or str(getattr(error, "strerror", None) or error) or type(error).__name__
    return Unreadable(path=str(path), problem=f"{part}: {message}" if part else message)


def place_of(path: Path, name: str) -> str:
    """An id for a record that has none: its name below the innermost folder with another name.

    Two experiments have the same tasks in different folders, often with one folder per task.
    """
    folders = [folder for folder in path.absolute().parent.parts if folder not in (name, path.anchor)]
    return f"{folders[-1]}/{name}" if folders else name


_ZSTANDARD = 93
_LOCAL = struct.Struct("<4s5H3I2H")
_CHUNK = 1024 * 1024
MOST_MEMBERS = 1_000_000
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OverflowError,
    # Raised by zipfile for an unknown compression and for an encrypted member.
    RuntimeError,
)


class ZipMembers:
    """An open zip file; every problem with it is a `ValueError`."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        try:
            self._archive = zipfile.ZipFile(stream)
            # Of two members with one name the later counts.
            self._members = {each.filename: each for each in self._archive.infolist()[:MOST_MEMBERS]}
        except _BROKEN as error:
            raise ValueError(f"it is not a readable zip file: {error}") from error

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def load(self, name: str) -> object:
        """The JSON value of a member."""
        try:
            return parse_json(self._bytes(self._members[name]))
        except _BROKEN as error:
            raise ValueError(f"it cannot be unpacked: {error}") from error

    def _bytes(self, member: zipfile.ZipInfo) -> bytes:
        if member.compress_type == _ZSTANDARD:
            data = _unpacked(self._raw(member))
        else:
            with self._archive.open(member) as file:
                data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB when unpacked")
        return data

    def _raw(self, member: zipfile.ZipInfo) -> bytes:
        if member.flag_bits & 0x1:
            raise ValueError("it is encrypted")
        self._stream.seek(member.header_offset)
        header = self._stream.read(_LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            raise ValueError("it has no beginning")
        *_, name_length, extra_length = _LOCAL.unpack(header)
        self._stream.seek(name_length + extra_length, 1)
        if member.compress_size > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MB")
        return self._stream.read(member.compress_size)


@contextmanager
def open_zip(path: Path) -> Iterator[ZipMembers]:
    """An open zip file, closed at the end of the block."""
    with path.open("rb") as stream:
        yield ZipMembers(stream)


def _unpacked(data: bytes) -> bytes:
    """Zstandard data, in one or more frames, decompressed to little more than `MOST_BYTES`."""
    # Imported here: only these files need it; part of Python from 3.14 on.
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        from backports import zstd
    parts, size = list[bytes](), 0
    while data and size <= MOST_BYTES:
        frame, fed = zstd.ZstdDecompressor(), data
        try:
            while not frame.eof and size <= MOST_BYTES:
                part = frame.decompress(fed, _CHUNK)
                if not part and not frame.eof and frame.needs_input:
                    raise ValueError("it breaks off")
                parts.append(part)
                size, fed = size + len(part), b""
        except zstd.ZstdError as error:
            raise ValueError(f"it cannot be unpacked: {error}") from error
        data = frame.unused_data if frame.eof else b""
    return b"".join(parts)
