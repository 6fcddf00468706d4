"""Results of tau-bench and tau2-bench: each simulation a session, its reward a score.

tau-bench writes a list of runs. tau2-bench writes one file, or `results.json` with a folder `simulations`
beside it. There the user has tools too: what it did with them is told as its words, so that no one takes
them for the agent's.

Knows nothing of how rewards are found.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.imported import ImportedSession, Unreadable
from proctor.records._chat import tell
from proctor.records._files import Read, head_of, load_json, told, unreadable
from proctor.records._story import Story
from proctor.records._values import (
    a_cost,
    a_list,
    a_map,
    a_moment,
    a_number,
    a_text,
    a_word,
    args_of,
    maps_in,
    text_of,
    usage_of_chat,
)
from proctor.score import Score
from proctor.session import ModelCall, Usage

kind = "tau-bench"

RESULTS, SIMULATIONS = "results.json", "simulations"
USER = "user"
# What tau-bench calls its files: `tool-calling-gpt-4o-0.0_range_0--1_user-gpt-4o-llm_0820.json`.
_NAMED = re.compile(r"(tool-calling|act|react|few-shot)-(.+)-\d+\.\d+_range_")
_ENDINGS: Mapping[str, tuple[str, str]] = {
    "timeout": ("timeout", "timeout"),
    "max_steps": ("fail", "agent_failed"),
    "too_many_errors": ("fail", "agent_failed"),
    "agent_error": ("fail", "agent_failed"),
    "context_window_exceeded": ("fail", "agent_failed"),
    "user_error": ("error", "model_failed"),
    "infrastructure_error": ("error", "model_failed"),
    "unexpected_error": ("error", "internal_error"),
}


def recognises(path: Path) -> bool:
    """Whether a file begins like results, or a folder holds some in pieces."""
    if path.is_dir():
        return (path / SIMULATIONS).is_dir() and recognises(path / RESULTS)
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
    elif "simulations" in a_map(document) or (file.parent / SIMULATIONS).is_dir():
        yield from _read_simulations(file, document)
    else:
        yield unreadable(file, "it holds no results: neither a list of runs nor simulations")


def _read_runs(file: Path, runs: Sequence[Any]) -> Read:
    for number, run in enumerate(runs, start=1):
        part = f"run {number}"
        if isinstance(run, dict) and isinstance(run.get("traj"), list):
            yield told(file, lambda it=run: _run(file, it), part)  # type: ignore[misc]
        else:
            yield unreadable(file, "it has no `traj`", part)


def _read_simulations(file: Path, document: Any) -> Read:
    info = a_map(document, "info")
    for part, simulation in _simulations(file, document):
        if isinstance(simulation, Unreadable):
            yield simulation
        elif isinstance(simulation, dict) and a_word(simulation.get("id")):
            yield told(file, lambda it=simulation: _simulation(it, info), part)  # type: ignore[misc]
        else:
            yield unreadable(file, "it has no `id`", part)


def _simulations(file: Path, document: Any) -> Iterator[tuple[str, Any]]:
    for number, simulation in enumerate(a_list(a_map(document).get("simulations")), start=1):
        yield f"simulation {number}", simulation
    folder = file.parent / SIMULATIONS
    if file.name == RESULTS and folder.is_dir():
        for piece in sorted(folder.glob("*.json")):
            try:
                yield piece.name, load_json(piece)
            except (ValueError, OSError) as error:
                yield piece.name, unreadable(piece, error)


def _run(file: Path, run: Mapping[str, Any]) -> ImportedSession:
    info, named = a_map(run, "info"), _NAMED.match(file.name)
    story = Story()
    for message in maps_in(run.get("traj")):
        tell(story, message)
    reward = a_number(run.get("reward"))
    status, reason = _passed(reward)
    error = a_text(info.get("error"))
    if error:
        status, reason = "error", "internal_error"
    task, trial = a_word(run.get("task_id")), a_word(run.get("trial"))
    scores = [] if reward is None else [Score(evaluator="reward", value=reward)]
    return ImportedSession(
        external_id=f"{file.stem}/{task}/{trial}",
        source=kind,
        name=f"task {task}, trial {trial}",
        agent=named[1] if named else "",
        model=named[2] if named else "",
        status=status,
        end_reason=reason,
        error=error,
        steps=story.steps,
        attributes=_known(task_id=task, trial=trial, source=a_text(info.get("source"))),
        scores=scores,
    )


def _simulation(simulation: Mapping[str, Any], info: Mapping[str, Any]) -> ImportedSession:
    agent, user = a_map(info, "agent_info"), a_map(info, "user_info")
    models = {"assistant": a_text(agent.get("llm")), USER: a_text(user.get("llm"))}
    story = Story()
    environment = a_map(info, "environment_info")
    story.say("system", a_text(simulation.get("policy")) or a_text(environment.get("policy")))
    for message in maps_in(simulation.get("messages")):
        _tell(story, message, models)
    rewarded = a_map(simulation, "reward_info")
    reward, ended = a_number(rewarded.get("reward")), a_text(simulation.get("termination_reason"))
    status, reason = _ENDINGS.get(ended) or _passed(reward)
    task, trial = a_word(simulation.get("task_id")), a_word(simulation.get("trial"))
    return ImportedSession(
        external_id=a_word(simulation.get("id")),
        source=kind,
        name=f"task {task}, trial {trial}",
        agent=a_text(agent.get("implementation")),
        model=models["assistant"],
        status=status,
        end_reason=reason,
        error="" if status in ("success", "fail") else ended,
        started_at=a_moment(simulation.get("start_time")) or story.began_at,
        finished_at=a_moment(simulation.get("end_time")) or story.ended_at,
        steps=story.steps,
        attributes=_known(
            task_id=task,
            trial=trial,
            domain=a_text(environment.get("domain_name")),
            termination_reason=ended,
            user_model=models[USER],
            commit=a_text(info.get("git_commit")),
        ),
        scores=_rewards(reward, a_map(rewarded, "reward_breakdown")),
        notes=[]
        if maps_in(simulation.get("messages"))
        else ["it has no messages: what was spoken is not read"],
    )


def _tell(story: Story, message: Mapping[str, Any], models: Mapping[str, str]) -> None:
    role, at = a_text(message.get("role")), a_moment(message.get("timestamp"))
    for result in maps_in(message.get("tool_messages")) or ([message] if role == "tool" else []):
        if result.get("requestor") == USER:
            story.say("user", f"[result: {text_of(result.get('content'))}]", at)
            continue
        failed = result.get("error")
        success = not failed if isinstance(failed, bool) else None
        story.answer(a_word(result.get("id")), text_of(result.get("content")), success, at)
    if role not in models:
        return
    _spend(story, message, models[role])
    if role == USER:
        story.say("user", text_of(message.get("content")), at)
    else:
        story.say("assistant", text_of(message.get("content")), at)
    for call in maps_in(message.get("tool_calls")):
        name, args = a_text(call.get("name")), args_of(call.get("arguments"))
        if role == USER:
            story.say("user", f"[uses {name} {json.dumps(args, ensure_ascii=False)}]", at)
        else:
            story.call(name, args, a_word(call.get("id")), at)


def _spend(story: Story, message: Mapping[str, Any], model: str) -> None:
    cost, usage = a_cost(message.get("cost")), usage_of_chat(message.get("usage"))
    if usage is None and not cost:
        return
    seconds = a_number(message.get("generation_time_seconds"))
    call = ModelCall(
        model=model,
        usage=usage or Usage(),
        cost_usd=cost,
        price_source="" if cost is None else "agent",
        latency_ms=None if seconds is None else seconds * 1000,
    )
    story.spend(call, a_moment(message.get("timestamp")))


def _passed(reward: float | None) -> tuple[str, str]:
    """A reward of 1 is a pass, as the benchmark has it; without one nobody said."""
    if reward is not None and reward < 1 - 1e-6:
        return "fail", "checks_failed"
    return "success", "completed"


def _rewards(reward: float | None, parts: Mapping[str, Any]) -> list[Score]:
    scores = [] if reward is None else [Score(evaluator="reward", value=reward)]
    for name, part in parts.items():
        value = a_number(part)
        if value is not None:
            scores.append(Score(evaluator="reward", value=value, dimension=name))
    return scores


def _known(**named: str) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value}
