"""Session files of Codex: `~/.codex/sessions/**/rollout-*.jsonl`.

Since 2025 each line is an envelope with a type and a payload; lines of older files are the payloads. New
files contain tokens per response and as a running total: the former are preferred.
"""

import re
from datetime import datetime
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    args_of,
    as_datetime,
    as_integer,
    as_map,
    as_number,
    as_text,
    as_whole_number,
    maps_in,
    message_text,
    parse_json,
    without_empty,
)
from proctor.records._reading import (
    Read,
    TranscriptBuilder,
    head_of,
    load_json,
    read_lines,
    read_session,
)
from proctor.session import ModelCall, Role, Session, Usage

kind = "codex"
_ENVELOPES = (b'"session_meta"', b'"response_item"', b'"record_type"', b'"turn_context"')

# Text that the program sends in the user's name.
_INSTRUCTIONS = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<skills_instructions>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<collaboration_mode>",
)
_EXIT = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})\b", re.MULTILINE)
_DESCRIBED = ("cwd", "originator", "model_provider")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def recognizes(path: Path) -> bool:
    """Whether name and beginning of a file are those of a session of Codex."""
    head = head_of(path)
    if path.name.startswith("rollout-") and path.suffix == ".json":
        return b'"session"' in head and b'"items"' in head
    if not path.name.endswith(".jsonl"):
        return False
    is_old = path.name.startswith("rollout-") and b'"instructions"' in head
    return is_old or (b'"payload"' in head and any(word in head for word in _ENVELOPES))


def read(path: Path) -> Read:
    """The session of a file, and lines of it that could not be read."""
    if path.suffix == ".json":
        return iter([read_session(path, lambda: _whole(path))])
    return read_lines(path, _CodexSession(path))


def _whole(path: Path) -> Session:
    """The session of a file of the first version: one JSON value."""
    value, session = as_map(load_json(path)), _CodexSession(path)
    session.take({"instructions": "", **as_map(value, "session")})
    for item in maps_in(value, "items"):
        session.take(item)
    return session.finish()


class _CodexSession:
    """The session of the lines read so far."""

    def __init__(self, path: Path) -> None:
        self.transcript = TranscriptBuilder()
        self.notes: list[str] = []
        self._path = path
        self._about: JsonMap = {}
        self._model = ""
        self._error = ""
        self._aborted = False
        self._is_running = False
        self._place: tuple[int, int] | None = None
        self._counted = self._per_response = 0
        self._spent: list[tuple[tuple[int, int], datetime | None, ModelCall, bool]] = []
        self._total: object = None
        self._exits: dict[str, tuple[bool, float | None]] = {}
        self._spoken: list[tuple[Role, str, datetime | None]] = []
        """Messages in events, which most files repeat as items."""
        self._has_items = False

    def take(self, line: JsonMap) -> None:
        """One line: an envelope, or an old file's payload."""
        at, what = as_datetime(line, "timestamp"), line.get("type")
        payload = as_map(line, "payload")
        if what == "session_meta":
            self._begin(payload, at)
        elif what == "turn_context":
            self._model = as_text(payload, "model") or self._model
        elif what == "response_item":
            self._item(payload, at)
        elif what == "event_msg":
            self._event(payload, at)
        elif what == "token_usage_record":
            self._count(as_map(payload, "usage"), at, per_response=True)
        elif what == "compacted":
            self.notes.append("the conversation was summarized to save room")
        elif "payload" not in line:
            self._begin(line, at) if "instructions" in line else self._item(line, at)

    def finish(self) -> Session:
        """The session, after the last line."""
        for role, text, at in () if self._has_items else self._spoken:
            self.transcript.add_message(role, text, at)
        in_order = sorted(self._spent, key=lambda each: each[0])
        # The last first: an insertion moves everything behind it.
        for position, at, call, per_response in reversed(in_order):
            # The running total and the usage of responses describe the same calls.
            if per_response or not self._per_response:
                self.transcript.add_model_call(call, at, before=position)
        status, reason, error = self._ending()
        match = _ID.search(self._path.stem)
        git = as_map(self._about, "git")
        known = {name: as_text(self._about.get(name)) for name in _DESCRIBED}
        known |= {"branch": as_text(git, "branch"), "commit": as_text(git, "commit_hash")}
        return Session(
            external_id=as_text(self._about, "id") or (match[0] if match else self._path.stem),
            source=kind,
            agent="codex",
            agent_version=as_text(self._about, "cli_version"),
            model=self._model,
            status=status,
            end_reason=reason,
            error=error,
            started_at=self.transcript.began_at,
            finished_at=self.transcript.ended_at,
            steps=self.transcript.steps,
            attributes=without_empty(known),
            notes=self.notes,
        )

    def _begin(self, about: JsonMap, at: datetime | None) -> None:
        # A thread that continues another repeats the metadata of the other after its own.
        if not self._about:
            self._about = about
            instructions = as_map(about, "base_instructions").get("text") or about.get("instructions")
            self.transcript.add_message("system", as_text(instructions), at)

    def _item(self, item: JsonMap, at: datetime | None) -> None:
        what, call_id = as_text(item, "type"), as_text(item, "call_id")
        self._has_items = True
        if what == "message":
            self._message(item, at)
        elif what.endswith("_output"):
            self._answer(call_id, item.get("output"), at)
        elif what == "local_shell_call":
            self._call("shell", as_map(item, "action"), call_id or as_text(item, "id"), at)
        elif what == "custom_tool_call":
            self._call(as_text(item, "name"), args_of(item, "input"), call_id, at)
        elif what == "web_search_call":
            self._response_began()
            query = args_of(item, "action")
            self.transcript.add_tool_call(
                "web_search", query, as_text(item, "id"), at, success=_success_of(item)
            )
        elif what in ("function_call", "tool_search_call"):
            self._call(as_text(item, "name") or "tool_search", args_of(item, "arguments"), call_id, at)

    def _message(self, item: JsonMap, at: datetime | None) -> None:
        text, role = message_text(item, "content"), item.get("role")
        if role == "assistant":
            self._response_began()
            self.transcript.add_message("assistant", text, at)
        elif role == "user" and not text.lstrip().startswith(_INSTRUCTIONS):
            self.transcript.add_message("user", text, at)
        else:
            self.transcript.add_message("system", text, at)

    def _call(self, name: str, args: JsonMap, call_id: str, at: datetime | None) -> None:
        self._response_began()
        self.transcript.add_tool_call(name, args, call_id, at)

    def _answer(self, call_id: str, output: object, at: datetime | None) -> None:
        text, success = _output(output)
        known, duration_ms = self._exits.get(call_id, (success, None))
        self.transcript.add_tool_result(call_id, text, known, at, duration_ms)

    def _event(self, event: JsonMap, at: datetime | None) -> None:
        what = event.get("type")
        if what in ("task_started", "turn_started"):
            self._is_running, self._error, self._aborted = True, "", False
            self.transcript.begin_turn(as_text(event, "turn_id"), at)
        elif what in ("task_complete", "turn_complete"):
            self._is_running = False
            self._error = as_text(event, "error", "message")
            self.transcript.ended_at = at or self.transcript.ended_at
        elif what == "turn_aborted":
            self._is_running, self._aborted = False, True
        elif what in ("error", "stream_error"):
            self._error = as_text(event, "message")
        elif what in ("user_message", "agent_message"):
            role: Role = "user" if what == "user_message" else "assistant"
            self._spoken.append((role, as_text(event, "message"), at))
        elif what == "token_count":
            self._running_count(as_map(event, "info"), at)
        elif what == "exec_command_end":
            self._exit(as_text(event, "call_id"), event)
        elif what == "item_completed" and as_map(event, "item").get("type") == "CommandExecution":
            self._exit(as_text(event, "item", "id"), as_map(event, "item"))

    def _exit(self, call_id: str, ended: JsonMap) -> None:
        code, lasted = ended.get("exit_code"), as_map(ended, "duration")
        seconds, nanos = as_number(lasted, "secs"), as_number(lasted, "nanos")
        duration = None if seconds is None else seconds * 1000 + (nanos or 0) / 1e6
        if type(code) is int:
            self._exits[call_id] = (code == 0, duration)

    def _response_began(self) -> None:
        self._place = self._place or self.transcript.position()

    def _running_count(self, info: JsonMap, at: datetime | None) -> None:
        total = info.get("total_token_usage")
        # Repeated whenever rate limits change, without a new call.
        if total and total != self._total:
            self._total = total
            self._count(as_map(info, "last_token_usage"), at, per_response=False)

    def _count(self, used: JsonMap, at: datetime | None, *, per_response: bool) -> None:
        if not used:
            return
        call = ModelCall(
            model=self._model,
            provider=as_text(self._about, "model_provider"),
            usage=Usage(
                input_tokens=as_whole_number(used, "input_tokens"),
                cached_tokens=as_whole_number(used, "cached_input_tokens"),
                cache_write_tokens=as_whole_number(used, "cache_write_input_tokens"),
                output_tokens=as_whole_number(used, "output_tokens"),
                reasoning_tokens=as_whole_number(used, "reasoning_output_tokens"),
            ),
        )
        self._per_response += per_response
        self._spent.append((self._place or self.transcript.position(), at, call, per_response))
        self._place = None

    def _ending(self) -> tuple[str, str, str]:
        if self._aborted:
            return "error", "aborted", "the turn was aborted"
        if self._error:
            return "error", "model_failed", self._error
        if (
            self._is_running
            or self.transcript.is_waiting_for_a_tool
            or self.transcript.is_waiting_for_the_agent
        ):
            return "error", "interrupted", "the file ends before the agent had answered"
        return "success", "completed", ""


def _success_of(item: JsonMap) -> bool | None:
    status = item.get("status")
    return status == "completed" if isinstance(status, str) else None


def _output(output: object) -> tuple[str, bool | None]:
    """Result of a tool and whether it succeeded, in the formats of different versions."""
    if isinstance(output, dict):
        success = output.get("success")
        return message_text(output, "content"), success if isinstance(success, bool) else None
    text = message_text(output if not isinstance(output, list) else maps_in(output))
    if text.startswith("{"):
        try:
            packed = as_map(parse_json(text))
        except ValueError:
            packed = {}
        code, unpacked = as_integer(packed, "metadata", "exit_code"), packed.get("output")
        if isinstance(unpacked, str) and code is not None:
            return unpacked, code == 0
    if match := _EXIT.search(text[:2_000]):
        return text, int(match[1]) == 0
    return text, None
