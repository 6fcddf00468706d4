"""Results of tau-bench and tau2-bench: each simulation is a session, its reward a score.

tau-bench writes a list of runs; tau2-bench one file, or `results.json` beside a folder `simulations`. In
tau2-bench the user has tools too: their calls are recorded as messages of the user, not as tool calls of the
agent.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
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
    read_session,
    unreadable,
)
from proctor.score import Score
from proctor.session import ModelCall, Session, Unreadable, Usage

kind = "tau-bench"
RESULTS, SIMULATIONS = "results.json", "simulations"
USER = "user"

# File names of tau-bench: `tool-calling-gpt-4o-0.0_range_0--1_user-gpt-4o-llm_0820.json`.
_NAMED = re.compile(r"(tool-calling|act|react|few-shot)-(.+)-\d+\.\d+_range_")
_ENDINGS: Mapping[str, tuple[str, str]] = {
    "timeout": ("timeout", "timeout"),
    "max_steps": ("fail", "agent_failed"),
    "too_many_errors": ("fail", "agent_failed"),
    "agent_error": ("fail", "agent_failed"),
    "context_window_exceeded": ("fail", "context_overflow"),
    "user_error": ("error", "model_failed"),
    "infrastructure_error": ("error", "model_failed"),
    "unexpected_error": ("error", "internal_error"),
}


def recognizes(path: Path) -> bool:
    """Whether a file begins like results, or a folder contains results in several files."""
    if path.is_dir():
        return (path / SIMULATIONS).is_dir() and recognizes(path / RESULTS)
    head = head_of(path, (".json",))
    is_old = head.lstrip()[:1] == b"[" and all(word in head for word in (b'"task_id"', b'"reward"'))
    return is_old or all(word in head for word in (b'"num_trials"', b'"agent_info"', b'"user_info"'))


def read(path: Path) -> Read:
    """The sessions of a file or folder of results."""
    file = path / RESULTS if path.is_dir() else path
    try:
        document = load_json(file)
    except (ValueError, OSError) as error:
        yield unreadable(file, error)
        return
    if isinstance(document, list):
        yield from _read_runs(file, document)
    elif "simulations" in as_map(document) or (file.parent / SIMULATIONS).is_dir():
        yield from _read_simulations(file, document)
    else:
        yield unreadable(file, "it holds no results: neither a list of runs nor simulations")


def _read_runs(file: Path, runs: Sequence[object]) -> Read:
    for number, run in enumerate(runs, start=1):
        part = f"run {number}"
        if isinstance(run, dict) and isinstance(run.get("traj"), list):
            yield read_session(file, lambda it=run: _run(file, it), part)  # type: ignore[misc]
        else:
            yield unreadable(file, "it has no `traj`", part)


def _read_simulations(file: Path, document: object) -> Read:
    info = as_map(document, "info")
    for part, simulation in _simulations(file, document):
        if isinstance(simulation, Unreadable):
            yield simulation
        elif isinstance(simulation, dict) and as_name(simulation, "id"):
            yield read_session(file, lambda it=simulation: _simulation(it, info), part)  # type: ignore[misc]
        else:
            yield unreadable(file, "it has no `id`", part)


def _simulations(file: Path, document: object) -> Iterator[tuple[str, object]]:
    for number, simulation in enumerate(as_list(document, "simulations"), start=1):
        yield f"simulation {number}", simulation
    folder = file.parent / SIMULATIONS
    if file.name == RESULTS and folder.is_dir():
        for piece in sorted(folder.glob("*.json")):
            try:
                yield piece.name, load_json(piece)
            except (ValueError, OSError) as error:
                yield piece.name, unreadable(piece, error)


def _run(file: Path, run: JsonMap) -> Session:
    info, named = as_map(run, "info"), _NAMED.match(file.name)
    transcript = TranscriptBuilder()
    for message in maps_in(run, "traj"):
        add_chat_message(transcript, message)
    reward = as_number(run, "reward")
    status, reason = _passed(reward)
    error = as_text(info, "error")
    if error:
        status, reason = "error", "internal_error"
    task, trial = as_name(run, "task_id"), as_name(run, "trial")
    scores = [] if reward is None else [Score(evaluator="reward", value=reward)]
    return Session(
        external_id=f"{file.stem}/{task}/{trial}",
        source=kind,
        name=f"task {task}, trial {trial}",
        agent=named[1] if named else "",
        model=named[2] if named else "",
        status=status,
        end_reason=reason,
        error=error,
        task=task,
        repeat=_repeat(trial),
        steps=transcript.steps,
        attributes=without_empty({"task_id": task, "trial": trial, "source": as_text(info, "source")}),
        scores=scores,
    )


def _simulation(simulation: JsonMap, info: JsonMap) -> Session:
    agent, user = as_map(info, "agent_info"), as_map(info, "user_info")
    models = {"assistant": as_text(agent, "llm"), USER: as_text(user, "llm")}
    transcript = TranscriptBuilder()
    environment = as_map(info, "environment_info")
    transcript.add_message("system", as_text(simulation, "policy") or as_text(environment, "policy"))
    for message in maps_in(simulation, "messages"):
        _add_message(transcript, message, models)
    rewarded = as_map(simulation, "reward_info")
    reward, ended = as_number(rewarded, "reward"), as_text(simulation, "termination_reason")
    status, reason = _ENDINGS.get(ended) or _passed(reward)
    task, trial = as_name(simulation, "task_id"), as_name(simulation, "trial")
    return Session(
        external_id=as_name(simulation, "id"),
        source=kind,
        name=f"task {task}, trial {trial}",
        agent=as_text(agent, "implementation"),
        model=models["assistant"],
        status=status,
        end_reason=reason,
        error="" if status in ("success", "fail") else ended,
        task=task,
        repeat=_repeat(trial),
        factors=without_empty({"domain": as_text(environment, "domain_name")}),
        started_at=as_datetime(simulation, "start_time") or transcript.began_at,
        finished_at=as_datetime(simulation, "end_time") or transcript.ended_at,
        steps=transcript.steps,
        attributes=without_empty(
            {
                "task_id": task,
                "trial": trial,
                "domain": as_text(environment, "domain_name"),
                "termination_reason": ended,
                "user_model": models[USER],
                "commit": as_text(info, "git_commit"),
            }
        ),
        scores=_rewards(reward, as_map(rewarded, "reward_breakdown")),
        notes=[] if maps_in(simulation, "messages") else ["it has no messages: what was spoken is not read"],
    )


def _add_message(transcript: TranscriptBuilder, message: JsonMap, models: Mapping[str, str]) -> None:
    role, at = as_text(message, "role"), as_datetime(message, "timestamp")
    for result in maps_in(message, "tool_messages") or ([message] if role == "tool" else []):
        if result.get("requestor") == USER:
            transcript.add_message("user", f"[result: {message_text(result.get('content'))}]", at)
            continue
        failed = result.get("error")
        success = not failed if isinstance(failed, bool) else None
        transcript.add_tool_result(as_name(result, "id"), message_text(result, "content"), success, at)
    if role not in models:
        return
    _add_model_call(transcript, message, models[role])
    transcript.add_message("user" if role == USER else "assistant", message_text(message, "content"), at)
    for call in maps_in(message, "tool_calls"):
        name, args = as_text(call, "name"), args_of(call, "arguments")
        if role == USER:
            transcript.add_message("user", f"[uses {name} {json.dumps(args, ensure_ascii=False)}]", at)
        else:
            transcript.add_tool_call(name, args, as_name(call, "id"), at)


def _add_model_call(transcript: TranscriptBuilder, message: JsonMap, model: str) -> None:
    cost, usage = as_cost(message, "cost"), usage_of_chat(message.get("usage"))
    if usage is None and not cost:
        return
    seconds = as_number(message, "generation_time_seconds")
    call = ModelCall(
        model=model,
        usage=usage or Usage(),
        cost_usd=cost,
        price_source="" if cost is None else "agent",
        latency_ms=None if seconds is None else seconds * 1000,
    )
    transcript.add_model_call(call, as_datetime(message, "timestamp"))


def _repeat(trial: str) -> int | None:
    """Trials are counted from 0."""
    return int(trial) + 1 if trial.isdecimal() and len(trial) < 10 else None


def _passed(reward: float | None) -> tuple[str, str]:
    """A reward of 1 is a pass, as in the benchmark; so is a missing one."""
    if reward is not None and reward < 1 - 1e-6:
        return "fail", "checks_failed"
    return "success", "completed"


def _rewards(reward: float | None, parts: JsonMap) -> list[Score]:
    scores = [] if reward is None else [Score(evaluator="reward", value=reward)]
    for name, part in parts.items():
        value = as_number(part)
        if value is not None:
            scores.append(Score(evaluator="reward", value=value, dimension=name))
    return scores
