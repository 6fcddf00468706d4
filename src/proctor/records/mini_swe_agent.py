"""Trajectories of mini-swe-agent: `*.traj.json`, versions 1 and 2.

Version 1 has commands in the text and their results as user messages; version 2 has them in `extra`, or as
tool calls of chat completions. The last message states how the run ended.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    as_cost,
    as_datetime,
    as_map,
    as_name,
    as_text,
    maps_in,
    message_text,
    usage_of_chat,
    without_empty,
)
from proctor.records._reading import (
    Read,
    TranscriptBuilder,
    add_chat_message,
    head_of,
    load_json,
    place_of,
    read_session,
)
from proctor.session import ModelCall, Session, Usage

kind = "mini-swe-agent"
SUFFIXES = (".traj.json", ".json")
SHELL = "bash"
_COMMAND = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
_RESULT = re.compile(r"<returncode>(-?\d{1,10})</returncode>")
_ENDINGS: Mapping[str, tuple[str, str]] = {
    "Submitted": ("success", "completed"),
    "LimitsExceeded": ("fail", "cost_limit"),
    "TimeExceeded": ("timeout", "timeout"),
    "RepeatedFormatError": ("fail", "agent_failed"),
    "UserInterruption": ("error", "aborted"),
    "KeyboardInterrupt": ("error", "aborted"),
    "RateLimitError": ("error", "rate_limit"),
    **dict.fromkeys(
        ("AuthenticationError", "BadRequestError", "NotFoundError", "APIError", "APIConnectionError")
        + ("InternalServerError", "ServiceUnavailableError", "PermissionDeniedError", "Timeout"),
        ("error", "model_failed"),
    ),
    "ContextWindowExceededError": ("fail", "context_overflow"),
}


def recognizes(path: Path) -> bool:
    """Whether a file has the suffix of trajectories, or the version of the agent."""
    head = head_of(path, SUFFIXES)
    begins = head.lstrip()[:1] in (b"{", b"[")
    return begins and (path.name.endswith(SUFFIXES[0]) or b'"mini_version"' in head)


def read(path: Path) -> Read:
    """The session of a file."""
    yield read_session(path, lambda: _session(path))


def _session(path: Path) -> Session:
    document = load_json(path)
    messages = maps_in(document if isinstance(document, list) else as_map(document).get("messages"))
    if not messages:
        raise ValueError("it is not a trajectory: it has no messages")
    info = as_map(document, "info")
    config = as_map(info, "config")
    model = as_text(config, "model", "model_name")
    instance = path.name.removesuffix(SUFFIXES[0]).removesuffix(SUFFIXES[1])
    transcript = TranscriptBuilder()
    _add_messages(transcript, messages, model)
    status, reason, error = _ending(info, messages)
    task = as_text(document, "instance_id") or instance
    return Session(
        external_id=_id(path, instance, transcript),
        source=kind,
        name=task,
        task=task,
        agent="mini-swe-agent",
        agent_version=as_text(info, "mini_version"),
        model=model,
        status=status,
        end_reason=reason,
        error=error,
        started_at=transcript.began_at,
        finished_at=transcript.ended_at,
        steps=transcript.steps,
        attributes=without_empty(
            {
                "exit_status": as_text(info, "exit_status"),
                "environment": as_text(config, "environment_type"),
                "instance_id": as_text(document, "instance_id"),
            }
        ),
    )


def _id(path: Path, instance: str, transcript: TranscriptBuilder) -> str:
    # Runs by hand overwrite the same file; the start time distinguishes them.
    began = f"@{transcript.began_at:%Y%m%dT%H%M%S.%f}" if transcript.began_at else ""
    return place_of(path, instance) + began


def _add_messages(transcript: TranscriptBuilder, messages: Sequence[JsonMap], model: str) -> None:
    waiting = 0
    for message in messages:
        extra, role = as_map(message, "extra"), message.get("role")
        at = as_datetime(extra, "timestamp")
        if role == "assistant":
            _add_model_call(transcript, extra, model, at)
            add_chat_message(transcript, message, at)
            waiting = 0 if maps_in(message, "tool_calls") else _add_commands(transcript, message, at)
        elif role == "tool" or (role == "user" and waiting and _is_result(message)):
            code = _code(message)
            result = as_text(extra, "raw_output") or message_text(message, "content")
            call_id = as_name(message, "tool_call_id")
            transcript.add_tool_result(call_id, result, None if code is None else code == 0, at)
            waiting -= role == "user"
        elif role == "user" and as_map(extra, "response"):
            # An answer that the agent could not parse; it was billed nevertheless.
            _add_model_call(transcript, extra, model, at)
            transcript.add_message("tool", message_text(message, "content"), at)
        elif role != "exit":
            add_chat_message(transcript, message, at)


def _add_commands(transcript: TranscriptBuilder, message: JsonMap, at: datetime | None) -> int:
    """Add the commands of a message without tool calls; returns how many results will follow."""
    named = [as_text(each, "command") for each in maps_in(message, "extra", "actions")]
    commands = named or _COMMAND.findall(message_text(message, "content"))
    for command in commands:
        transcript.add_tool_call(SHELL, {"command": command}, at=at)
    return len(commands)


def _is_result(message: JsonMap) -> bool:
    text = message_text(message, "content").lstrip()
    return "returncode" in as_map(message, "extra") or text.startswith(("<returncode>", "Observation:"))


def _code(message: JsonMap) -> int | None:
    code = as_map(message, "extra").get("returncode")
    if type(code) is int:
        return code
    match = _RESULT.search(message_text(message, "content")[:2_000])
    return int(match[1]) if match else None


def _add_model_call(transcript: TranscriptBuilder, extra: JsonMap, model: str, at: datetime | None) -> None:
    response = as_map(extra, "response")
    if not response and "cost" not in extra:
        return
    # It writes 0 for an unknown price.
    cost = as_cost(extra, "cost") or None
    transcript.add_model_call(
        ModelCall(
            model=as_text(response, "model") or model,
            usage=usage_of_chat(response.get("usage")) or Usage(),
            cost_usd=cost,
            price_source="" if cost is None else "agent",
            call_id=as_text(response, "id"),
        ),
        at,
    )


def _ending(info: JsonMap, messages: Sequence[JsonMap]) -> tuple[str, str, str]:
    last = messages[-1]
    exit_status = as_text(info, "exit_status") or as_text(last, "extra", "exit_status")
    if not exit_status:
        if info:
            return "error", "interrupted", "it does not say how it ended"
        return "success", "completed", ""
    # Whatever else ends it is the name of an exception.
    status, reason = _ENDINGS.get(exit_status, ("error", "internal_error"))
    message = message_text(last, "content") if last.get("role") == "exit" else ""
    return (
        status,
        reason,
        "" if status == "success" else f"{exit_status}: {message}" if message else exit_status,
    )
