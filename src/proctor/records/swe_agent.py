"""Trajectories of SWE-agent: `*.traj`.

Steps are thought, action and observation; earlier prompts are in the history, which also has the tool of an
action with function calling. Tokens and cost are totals only. Whether the instance was resolved is in
`results.json` or `report.json` beside it, if it was evaluated. The files contain no times.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    args_of,
    as_cost,
    as_list,
    as_map,
    as_name,
    as_number,
    as_text,
    as_whole_number,
    maps_in,
    message_text,
    parse_json,
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
from proctor.score import Score
from proctor.session import ModelCall, Session, Usage

kind = "swe-agent"
SUFFIX = ".traj"
endings = (SUFFIX,)
SHELL = "bash"

# Commands from before function calling; any other first word of an action is a shell command.
_COMMANDS = frozenset(
    ("open", "goto", "create", "edit", "insert", "submit", "search_dir", "search_file", "find_file")
    + ("scroll_up", "scroll_down", "str_replace_editor", "view_image", "filemap", "exit_forfeit")
    + ("connect_start", "connect_sendline", "connect_exec", "debug_start", "debug_exec")
)

_ENDINGS: Mapping[str, tuple[str, str]] = {
    "submitted": ("success", "completed"),
    "exit_cost": ("fail", "cost_limit"),
    "exit_total_cost": ("fail", "cost_limit"),
    "exit_context": ("fail", "context_overflow"),
    "exit_total_execution_time": ("timeout", "timeout"),
    "exit_command_timeout": ("timeout", "timeout"),
    "exit_api": ("error", "model_failed"),
    "exit_environment_error": ("error", "setup_failed"),
    "exit_error": ("error", "internal_error"),
    "early_exit": ("error", "interrupted"),
}


def recognizes(path: Path) -> bool:
    """Whether suffix and beginning of a file are those of a trajectory."""
    return head_of(path, endings).lstrip()[:1] == b"{"


def read(path: Path) -> Read:
    """The session of a file."""
    yield read_session(path, lambda: _session(path))


def _session(path: Path) -> Session:
    document = as_map(load_json(path))
    attempts = maps_in(document, "attempts")
    # The chosen one of several attempts is at the top level; until then there are only `attempts`.
    chosen = document if "trajectory" in document or not attempts else attempts[-1]
    trajectory, history = maps_in(chosen, "trajectory"), maps_in(chosen, "history")
    if not trajectory and not history:
        raise ValueError("it is not a trajectory: it has neither steps nor a history")
    info, instance = as_map(chosen, "info"), path.name.removesuffix(SUFFIX)
    model = _model(chosen)
    transcript = TranscriptBuilder()
    _add_transcript(transcript, trajectory, history)
    notes = _add_usage(transcript, info, model)
    if len(attempts) > 1:
        notes.append(f"the one of {len(attempts)} attempts that was chosen")
    status, reason, error = _ending(info)
    resolved = _resolved(path, instance)
    if resolved is False and status == "success":
        status, reason = "fail", "checks_failed"
    return Session(
        external_id=place_of(path, instance),
        source=kind,
        name=instance,
        agent="swe-agent",
        agent_version=as_text(info, "swe_agent_version"),
        model=model,
        status=status,
        end_reason=reason,
        error=error,
        task=instance,
        steps=transcript.steps,
        attributes={
            "instance_id": instance,
            "exit_status": as_text(info, "exit_status"),
            "environment": as_text(chosen, "environment"),
        },
        scores=[] if resolved is None else [Score(evaluator="resolved", value=float(resolved))],
        notes=notes,
    )


def _add_transcript(
    transcript: TranscriptBuilder, trajectory: Sequence[JsonMap], history: Sequence[JsonMap]
) -> None:
    real = [each for each in history if each.get("is_demo") is not True]
    if not trajectory:
        for message in real:
            _add_message(transcript, message)
        return
    for message in real:
        if message.get("role") == "assistant":
            break
        add_chat_message(transcript, message)
    acted = [each for each in real if each.get("role") == "assistant"]
    # A history may be shortened: its messages match the steps only if there is one for each.
    calls = acted if len(acted) == len(trajectory) else [{}] * len(trajectory)
    for step, message in zip(trajectory, calls, strict=True):
        _add_step(transcript, step, message)


def _add_step(transcript: TranscriptBuilder, step: JsonMap, message: JsonMap) -> None:
    action, observation = as_text(step, "action"), message_text(step, "observation")
    transcript.add_message("assistant", as_text(step, "thought").strip() or as_text(step, "response").strip())
    seconds = as_number(step, "execution_time")
    duration_ms = None if seconds is None else seconds * 1000
    calls = maps_in(message, "tool_calls")
    for call in calls:
        function = as_map(call, "function")
        transcript.add_tool_call(
            as_text(function, "name"), args_of(function, "arguments"), as_name(call, "id")
        )
    if calls:
        transcript.add_tool_result(as_name(calls[0], "id"), observation, duration_ms=duration_ms)
    elif action.strip():
        transcript.add_tool_call(_tool_of(action), {"command": action})
        transcript.add_tool_result("", observation, duration_ms=duration_ms)
    else:
        # The agent could not parse the answer; the observation is its error message to the model.
        transcript.add_message("tool", observation)


def _add_message(transcript: TranscriptBuilder, message: JsonMap) -> None:
    if message.get("role") == "tool":
        call_id = next((as_name(each) for each in as_list(message, "tool_call_ids")), "")
        transcript.add_tool_result(call_id, message_text(message, "content"))
        return
    add_chat_message(transcript, message)
    if message.get("role") == "assistant" and not maps_in(message, "tool_calls"):
        action = as_text(message, "action")
        if action.strip():
            transcript.add_tool_call(_tool_of(action), {"command": action})


def _tool_of(action: str) -> str:
    first = action.split(maxsplit=1)[0]
    return first if first in _COMMANDS else SHELL


def _add_usage(transcript: TranscriptBuilder, info: JsonMap, model: str) -> list[str]:
    spent = as_map(info, "model_stats")
    usage = Usage(
        input_tokens=as_whole_number(spent, "tokens_sent"),
        output_tokens=as_whole_number(spent, "tokens_received"),
    )
    # It writes 0 for an unknown price.
    cost = as_cost(spent, "instance_cost") or None
    if not usage.total_tokens and cost is None:
        return []
    call = ModelCall(model=model, usage=usage, cost_usd=cost, price_source="" if cost is None else "agent")
    transcript.add_model_call(call, before=(0, 0))
    calls = as_whole_number(spent, "api_calls")
    return (
        [f"{calls} model calls, recorded as one: only their total tokens and cost are known"]
        if calls > 1
        else []
    )


def _model(chosen: JsonMap) -> str:
    config = chosen.get("replay_config")
    if isinstance(config, str):
        try:
            config = parse_json(config)
        except ValueError:
            config = None
    return as_text(config, "agent", "model", "name")


def _ending(info: JsonMap) -> tuple[str, str, str]:
    exit_status = as_text(info, "exit_status")
    if not info:
        return "success", "completed", ""
    if not exit_status:
        return "error", "interrupted", "it does not say how it ended"
    # `submitted (exit_cost)`: it reached a limit, and its changes so far were submitted.
    word = exit_status.partition("(")[2].rstrip(")") or exit_status
    status, reason = _ENDINGS.get(word, ("fail", "agent_failed"))
    return status, reason, "" if status == "success" else exit_status


def _resolved(path: Path, instance: str) -> bool | None:
    """Whether the instance was resolved, by SWE-bench's reports; None: it was not evaluated."""
    for file in (
        path.parent / "report.json",
        path.parent / "results.json",
        path.parent.parent / "results.json",
    ):
        try:
            report = as_map(load_json(file))
        except (ValueError, OSError):
            continue
        own = as_map(report, instance).get("resolved")
        if isinstance(own, bool):
            return own
        resolved = report.get("resolved_ids", report.get("resolved"))
        if isinstance(resolved, list):
            return instance in resolved
    return None
