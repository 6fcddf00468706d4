"""Trajectories in the Agent Trajectory Interchange Format (ATIF), as Harbor and others write them.

Each trajectory is a session, including those of subagents. The reward of a Harbor trial (`result.json` beside
the agent's folder) becomes a score. Proctor's exports store in `extra` what the format lacks, so that they
are imported without loss.
"""

from collections.abc import Mapping
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    args_of,
    as_cost,
    as_datetime,
    as_list,
    as_map,
    as_name,
    as_number,
    as_text,
    as_whole_number,
    maps_in,
    message_text,
    tools_of,
    without_empty,
)
from proctor.records._reading import (
    Read,
    TranscriptBuilder,
    exported_factors,
    exported_scores,
    head_of,
    load_json,
    place_of,
    read_session,
    unreadable,
)
from proctor.score import Score
from proctor.session import ModelCall, Role, Session, Usage, provenance_of

kind = "atif"
ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "agent": "assistant"}
OURS = "proctor"
"""Key of `extra` under which Proctor exports what the format has no member for."""


def recognizes(path: Path) -> bool:
    """Whether a file declares this format."""
    return b'"ATIF-v' in head_of(path, (".json",))


def read(path: Path) -> Read:
    """The trajectory of a file, and those of the agents within."""
    try:
        document = load_json(path)
    except (ValueError, OSError) as error:
        yield unreadable(path, error)
        return
    outer = as_map(document)
    waiting = [outer]
    while waiting:
        trajectory = waiting.pop(0)
        yield read_session(path, lambda it=trajectory: _session(path, it, outer))  # type: ignore[misc]
        waiting += maps_in(trajectory, "subagent_trajectories")


def _session(path: Path, trajectory: JsonMap, outer: JsonMap) -> Session:
    if not as_text(trajectory, "schema_version").startswith("ATIF-v"):
        raise ValueError("it does not say that it is a trajectory: no `schema_version` ATIF-v…")
    agent, ours = as_map(trajectory, "agent"), as_map(trajectory, "extra", OURS)
    default_model = as_text(agent, "model_name")
    transcript = TranscriptBuilder(turns_by_user=not ours)
    for step in maps_in(trajectory, "steps"):
        _add_step(transcript, step, default_model)
    trial = _trial(path) if trajectory is outer else {}
    status, reason, error = _ending(trial, ours)
    return Session(
        external_id=_id(path, trajectory, outer),
        source=kind,
        service=as_text(ours, "service"),
        log_group=as_text(ours, "log_group"),
        name=as_text(ours, "name") or as_text(trial, "task_name"),
        agent=as_text(ours, "agent") if ours else as_text(agent, "name"),
        agent_version=as_text(ours, "agent_version") if ours else as_text(agent, "version"),
        model=default_model,
        is_mock=ours.get("is_stand_in") is True,
        status=status,
        end_reason=reason,
        error=error,
        task=as_text(ours, "task") or as_text(trial, "task_name"),
        repeat=as_whole_number(ours, "repeat") or None,
        factors=exported_factors(ours) or without_empty({"dataset": as_text(trial, "source")}),
        started_at=as_datetime(ours, "started_at") or as_datetime(trial, "started_at") or transcript.began_at,
        finished_at=as_datetime(ours, "finished_at")
        or as_datetime(trial, "finished_at")
        or transcript.ended_at,
        steps=transcript.steps,
        tools=tools_of(agent.get("tool_definitions")),
        attributes=_attributes(trajectory, outer, trial, ours),
        scores=[*_rewards(trial), *exported_scores(ours.get("scores"))],
        notes=[note for note in map(as_text, [trajectory.get("notes"), *as_list(ours, "notes")]) if note],
    )


def _id(path: Path, trajectory: JsonMap, outer: JsonMap) -> str:
    run, own = as_text(trajectory, "session_id"), as_text(trajectory, "trajectory_id")
    run = run or as_text(outer, "session_id") or place_of(path, path.stem)
    return f"{run}/{own}" if own and own != run else run


def _add_step(transcript: TranscriptBuilder, step: JsonMap, default_model: str) -> None:
    source = ROLES.get(as_text(step, "source"))
    # Steps copied from an earlier trajectory are recorded there.
    if source is None or step.get("is_copied_context") is True:
        return
    at, ours = as_datetime(step, "timestamp"), as_map(step, "extra", OURS)
    if "turn" in ours:
        transcript.begin_turn(as_text(ours["turn"]), at)
    for call in _model_calls(step, ours, default_model):
        transcript.add_model_call(call, at)
    role = "tool" if ours.get("role") == "tool" else source
    is_ours = transcript.has_explicit_turns and not ours.get("is_silent")
    transcript.add_message(role, message_text(step, "message"), at, as_text(ours, "name"), keep_empty=is_ours)
    extras = dict[str, JsonMap]()
    for request in maps_in(step, "tool_calls"):
        call_id = as_name(request, "tool_call_id")
        extras[call_id] = as_map(request, "extra")
        own_id = as_text(as_map(ours, "call_ids").get(call_id, call_id))
        args = args_of(request, "arguments")
        transcript.add_tool_call(as_text(request, "function_name"), args, own_id, at, result_id=call_id)
    for result in maps_in(step, "observation", "results"):
        _add_tool_result(transcript, result, extras)


def _add_tool_result(transcript: TranscriptBuilder, result: JsonMap, extras: Mapping[str, JsonMap]) -> None:
    call_id = as_name(result, "source_call_id")
    known = extras.get(call_id, {})
    success = known.get("success")
    if not isinstance(success, bool):
        is_error = as_map(result, "extra").get("is_error")
        success = not is_error if isinstance(is_error, bool) else None
    content = message_text(result, "content")
    transcript.add_tool_result(call_id, content, success, duration_ms=as_number(known, "duration_ms"))


def _model_calls(step: JsonMap, ours: JsonMap, default_model: str) -> list[ModelCall]:
    if calls := maps_in(ours, "model_calls"):
        return [_exported_call(call) for call in calls]
    metrics = as_map(step, "metrics")
    if not metrics:
        return []
    extra = as_map(metrics, "extra")
    cost = as_cost(metrics, "cost_usd")
    return [
        ModelCall(
            model=as_text(step, "model_name") or default_model,
            usage=Usage(
                input_tokens=as_whole_number(metrics, "prompt_tokens"),
                cached_tokens=as_whole_number(metrics, "cached_tokens"),
                output_tokens=as_whole_number(metrics, "completion_tokens"),
                reasoning_tokens=as_whole_number(extra, "reasoning_tokens"),
            ),
            cost_usd=cost,
            price_source="" if cost is None else "agent",
        )
    ]


def _exported_call(call: JsonMap) -> ModelCall:
    return ModelCall(
        model=as_text(call, "model"),
        provider=as_text(call, "provider"),
        usage=Usage(
            input_tokens=as_whole_number(call, "input_tokens"),
            cached_tokens=as_whole_number(call, "cached_tokens"),
            output_tokens=as_whole_number(call, "output_tokens"),
            reasoning_tokens=as_whole_number(call, "reasoning_tokens"),
        ),
        cost_usd=as_cost(call, "cost_usd"),
        price_source=as_text(call, "price_source"),
        latency_ms=as_number(call, "latency_ms"),
        waiting_ms=as_number(call, "waiting_ms") or 0.0,
        status=as_text(call, "status") or "ok",
        error=as_text(call, "error"),
        call_id=as_text(call, "call_id"),
        **provenance_of(call),
    )


def _trial(path: Path) -> JsonMap:
    """Harbor's result of the trial that a trajectory belongs to; empty when there is none."""
    if path.parent.name != "agent":
        return {}
    try:
        result = as_map(load_json(path.parent.parent / "result.json"))
    except (ValueError, OSError):
        return {}
    return result if "trial_name" in result else {}


def _rewards(trial: JsonMap) -> list[Score]:
    rewards = as_map(trial, "verifier_result", "rewards")
    return [
        Score(evaluator=name, value=value)
        for name, value in ((name, as_number(reward)) for name, reward in rewards.items())
        if value is not None
    ]


def _ending(trial: JsonMap, ours: JsonMap) -> tuple[str, str, str]:
    if ours:
        status, reason = as_text(ours, "status"), as_text(ours, "end_reason")
        return status or "success", reason or "completed", as_text(ours, "error")
    if wrong := as_map(trial, "exception_info"):
        named, message = as_text(wrong, "exception_type"), as_text(wrong, "exception_message")
        if "timeout" in named.casefold():
            return "timeout", "timeout", message
        return "error", "internal_error", f"{named}: {message}"
    rewards = _rewards(trial)
    if rewards and all(reward.value is not None and reward.value < 1 for reward in rewards):
        return "fail", "checks_failed", ""
    return "success", "completed", ""


def _attributes(trajectory: JsonMap, outer: JsonMap, trial: JsonMap, ours: JsonMap) -> JsonMap:
    values = {
        "schema_version": as_text(trajectory, "schema_version"),
        "task": as_text(trial, "task_name"),
        "trial": as_text(trial, "trial_name"),
        "dataset": as_text(trial, "source"),
        "parent": "" if trajectory is outer else as_text(outer, "session_id"),
        "continued_in": as_text(trajectory, "continued_trajectory_ref"),
    }
    return as_map(ours, "attributes") if ours else without_empty(values)
