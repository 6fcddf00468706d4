"""mini-swe-agent's trajectories: `*.traj.json`, of both its generations.

The first generation has its commands in the text and their results as the user's messages; the second names
them in `extra`, and with tool calls as chat completions do. The last message says how it ended.

Knows nothing of what a patch is worth, beyond a report beside it.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.imported import ImportedSession
from proctor.records._chat import tell
from proctor.records._files import Read, head_of, load_json, place_of, told
from proctor.records._story import Story
from proctor.records._values import (
    a_cost,
    a_map,
    a_moment,
    a_text,
    a_word,
    maps_in,
    text_of,
    usage_of_chat,
)
from proctor.session import ModelCall, Usage

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
    "ContextWindowExceededError": ("fail", "agent_failed"),
}


def recognises(path: Path) -> bool:
    """Whether a file is called like a trajectory, or says that it is one."""
    head = head_of(path, SUFFIXES)
    begins = head.lstrip()[:1] in (b"{", b"[")
    return begins and (path.name.endswith(SUFFIXES[0]) or b'"mini_version"' in head)


def read(path: Path) -> Read:
    """The session of a file."""
    yield told(path, lambda: _session(path))


def _session(path: Path) -> ImportedSession:
    document = load_json(path)
    messages = maps_in(document if isinstance(document, list) else a_map(document).get("messages"))
    if not messages:
        raise ValueError("it is no trajectory: it has no messages")
    info = a_map(document, "info")
    config = a_map(info, "config")
    model = a_text(a_map(config, "model").get("model_name"))
    instance = path.name.removesuffix(SUFFIXES[0]).removesuffix(SUFFIXES[1])
    story = Story()
    _tell(story, messages, model)
    status, reason, error = _ending(info, messages)
    return ImportedSession(
        external_id=_id(path, instance, story),
        source=kind,
        name=a_text(a_map(document).get("instance_id")) or instance,
        agent="mini-swe-agent",
        agent_version=a_text(info.get("mini_version")),
        model=model,
        status=status,
        end_reason=reason,
        error=error,
        started_at=story.began_at,
        finished_at=story.ended_at,
        steps=story.steps,
        attributes={
            name: value
            for name, value in (
                ("exit_status", a_text(info.get("exit_status"))),
                ("environment", a_text(config.get("environment_type"))),
                ("instance_id", a_text(a_map(document).get("instance_id"))),
            )
            if value
        },
    )


def _id(path: Path, instance: str, story: Story) -> str:
    # The same file is written for each run by hand: when it began tells one from the other.
    began = f"@{story.began_at:%Y%m%dT%H%M%S.%f}" if story.began_at else ""
    return place_of(path, instance) + began


def _tell(story: Story, messages: Sequence[Mapping[str, Any]], model: str) -> None:
    waiting = 0
    for message in messages:
        extra, role = a_map(message, "extra"), message.get("role")
        at = a_moment(extra.get("timestamp"))
        if role == "assistant":
            _spend(story, extra, model, at)
            tell(story, message, at)
            waiting = 0 if maps_in(message.get("tool_calls")) else _tell_commands(story, message, at)
        elif role == "tool" or (role == "user" and waiting and _is_result(message)):
            code = _code(message)
            result = a_text(extra.get("raw_output")) or text_of(message.get("content"))
            called = a_word(message.get("tool_call_id"))
            story.answer(called, result, None if code is None else code == 0, at)
            waiting -= role == "user"
        elif role == "user" and a_map(extra, "response"):
            # An answer nobody could read; it was paid for all the same.
            _spend(story, extra, model, at)
            story.say("tool", text_of(message.get("content")), at)
        elif role != "exit":
            tell(story, message, at)


def _tell_commands(story: Story, message: Mapping[str, Any], at: Any) -> int:
    """Tell the commands of a message without tool calls; how many results will follow."""
    named = [a_text(each.get("command")) for each in maps_in(a_map(message, "extra").get("actions"))]
    commands = named or _COMMAND.findall(text_of(message.get("content")))
    for command in commands:
        story.call(SHELL, {"command": command}, at=at)
    return len(commands)


def _is_result(message: Mapping[str, Any]) -> bool:
    said = text_of(message.get("content")).lstrip()
    return "returncode" in a_map(message, "extra") or said.startswith(("<returncode>", "Observation:"))


def _code(message: Mapping[str, Any]) -> int | None:
    code = a_map(message, "extra").get("returncode")
    if type(code) is int:
        return code
    found = _RESULT.search(text_of(message.get("content"))[:2_000])
    return int(found[1]) if found else None


def _spend(story: Story, extra: Mapping[str, Any], model: str, at: Any) -> None:
    response = a_map(extra, "response")
    if not response and "cost" not in extra:
        return
    cost = a_cost(extra.get("cost"))
    # It writes 0 for a price it does not know.
    cost = cost or None
    story.spend(
        ModelCall(
            model=a_text(response.get("model")) or model,
            usage=usage_of_chat(response.get("usage")) or Usage(),
            cost_usd=cost,
            price_source="" if cost is None else "agent",
            call_id=a_text(response.get("id")),
        ),
        at,
    )


def _ending(info: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> tuple[str, str, str]:
    last = messages[-1]
    said = a_text(info.get("exit_status")) or a_text(a_map(last, "extra").get("exit_status"))
    if not said:
        if info:
            return "error", "interrupted", "it does not say how it ended"
        return "success", "completed", ""
    # Whatever else ends it is the name of an exception.
    status, reason = _ENDINGS.get(said, ("error", "internal_error"))
    told_why = text_of(last.get("content")) if last.get("role") == "exit" else ""
    return status, reason, "" if status == "success" else f"{said}: {told_why}" if told_why else said
