"""Exports sessions as trajectories of the Agent Trajectory Interchange Format (ATIF), one file each.

`extra` contains what the format lacks, so that `proctor import atif` gives back the same session.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from proctor.export.sessions import (
    OURS,
    ExportedMessage,
    about,
    exported_messages,
    moment,
    origin_digest,
    score_document,
    total_usage,
    without_nothing,
)
from proctor.export.tables import file_name
from proctor.json_values import JsonObject, without_empty, without_none
from proctor.session import ModelCall, Session, ToolCall, Usage

VERSION = "ATIF-v1.7"
UNKNOWN = "unknown"
"""Value of members that the format requires and the session does not have."""
_SOURCES = {"assistant": "agent", "user": "user", "system": "system", "tool": "system"}


def write(sessions: Iterable[Session], out: Path, label: str) -> list[Path]:
    """A file `atif-<label>-<session>.json` for each session in which something happened."""
    written = []
    for session in sessions:
        trajectory = trajectory_of(session)
        if trajectory["steps"]:
            name = f"atif-{label}-{file_name(session.external_id)[:60]}-{origin_digest(session)}.json"
            path = out / name
            path.write_text(json.dumps(trajectory, ensure_ascii=False, indent=1), encoding="utf-8")
            written.append(path)
    return written


def trajectory_of(session: Session) -> JsonObject:
    """A session as a trajectory."""
    steps = [
        _step(number, message, session) for number, message in enumerate(exported_messages(session), start=1)
    ]
    return without_nothing(
        {
            "schema_version": VERSION,
            "session_id": session.external_id,
            "agent": without_nothing(
                {
                    "name": session.agent or session.source or UNKNOWN,
                    "version": session.agent_version or UNKNOWN,
                    "model_name": session.model or None,
                    "tool_definitions": [
                        {"type": "function", "function": dict(tool)} for tool in session.tools
                    ],
                }
            ),
            "final_metrics": _final_metrics(session, len(steps)),
            "extra": {OURS: _about(session)},
        }
    ) | {"steps": steps}


def _about(session: Session) -> JsonObject:
    return without_nothing(
        {
            **about(session),
            "error": session.error or None,
            "started_at": moment(session.started_at),
            "finished_at": moment(session.finished_at),
            "scores": [score_document(score) for score in session.scores],
        }
    )


def _step(number: int, message: ExportedMessage, session: Session) -> JsonObject:
    ours, calls = dict(message.ours), [call for call, _ in message.model_calls]
    is_agent = message.role == "assistant"
    if message.role == "tool":
        ours["role"] = "tool"
    if calls:
        ours["model_calls"] = [_model_call(call) for call in calls]
    done = [(name, call) for name, (call, _) in zip(message.call_names, message.tool_calls, strict=True)]
    step = {
        "step_id": number,
        "timestamp": moment(message.at),
        "source": _SOURCES[message.role],
        "message": message.text,
        "model_name": calls[-1].model or None if calls and calls[-1].model != session.model else None,
        "tool_calls": [_tool_call(name, call) for name, call in done],
        "observation": _observation(done),
        "metrics": _metrics(calls) if calls and is_agent else None,
        "llm_call_count": len(calls) if calls and is_agent else None,
        "extra": {OURS: ours} if ours else None,
    }
    return without_nothing(step) | {"message": message.text}


def _tool_call(name: str, call: ToolCall) -> JsonObject:
    extra = {"success": call.success, "duration_ms": call.duration_ms}
    return without_nothing(
        {
            "tool_call_id": name,
            "function_name": call.name,
            "extra": without_none(extra),
        }
    ) | {"arguments": dict(call.args)}


def _observation(done: list[tuple[str, ToolCall]]) -> JsonObject | None:
    results = [
        {"source_call_id": name, "content": call.result}
        for name, call in done
        if call.result or call.success is not None or call.duration_ms is not None
    ]
    return {"results": results} if results else None


def _model_call(call: ModelCall) -> JsonObject:
    known = {
        "model": call.model,
        "provider": call.provider,
        "input_tokens": call.usage.input_tokens,
        "cached_tokens": call.usage.cached_tokens,
        "output_tokens": call.usage.output_tokens,
        "reasoning_tokens": call.usage.reasoning_tokens,
        "cost_usd": call.cost_usd,
        "price_source": call.price_source,
        "latency_ms": call.latency_ms,
        "waiting_ms": call.waiting_ms or None,
        "status": call.status,
        "error": call.error,
        "call_id": call.call_id,
        **call.provenance,
    }
    return without_empty(known)


def _metrics(calls: list[ModelCall]) -> JsonObject:
    usage = sum((call.usage for call in calls), Usage())
    costs = [call.cost_usd for call in calls if call.cost_usd is not None]
    return without_nothing(
        {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "cost_usd": sum(costs) if costs else None,
            "extra": {"reasoning_tokens": usage.reasoning_tokens} if usage.reasoning_tokens else None,
        }
    )


def _final_metrics(session: Session, steps: int) -> JsonObject:
    used = total_usage(session).values()
    usage = sum((each for each, _ in used), Usage())
    costs = [cost for _, cost in used if cost is not None]
    return without_nothing(
        {
            "total_prompt_tokens": usage.input_tokens,
            "total_completion_tokens": usage.output_tokens,
            "total_cached_tokens": usage.cached_tokens,
            "total_cost_usd": sum(costs) if costs else None,
            "total_steps": steps,
        }
    )
