"""Exports sessions as a Harbor job: a folder with the result of the job, and a folder for each trial."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from proctor.errors import UsageError
from proctor.export.atif import trajectory_of
from proctor.export.sessions import moment, origin_digest, total_usage
from proctor.export.tables import file_name
from proctor.item import ERROR, SUCCESS, TIMEOUT
from proctor.json_values import JsonObject
from proctor.session import Session

EXCEPTIONS = {ERROR: "RuntimeError", TIMEOUT: "AgentTimeoutError"}


def write(sessions: Iterable[Session], out: Path, label: str) -> list[Path]:
    """One folder, `harbor-<label>`, with `result.json` and a folder for each session."""
    job = out / f"harbor-{label}"
    if (out.parent / job.name).exists():
        raise UsageError(
            f"{out.parent / job.name} exists already\nRemove it, or give another folder with --out."
        )
    job.mkdir()
    trials = list[JsonObject]()
    for session in sessions:
        trial = _trial(session)
        folder = job / str(trial["trial_name"])
        (folder / "agent").mkdir(parents=True)
        _write(folder / "result.json", trial)
        _write(folder / "agent" / "trajectory.json", trajectory_of(session))
        trials.append(trial)
    _write(job / "result.json", _job_result(label, trials))
    return [job]


def _write(file: Path, document: JsonObject) -> None:
    file.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")


def _trial(session: Session) -> JsonObject:
    task = session.task or session.name or session.external_id
    usages = total_usage(session)
    costs = [cost for _, cost in usages.values() if cost is not None]
    provider, _, model = session.model.rpartition("/")
    times = {"started_at": moment(session.started_at), "finished_at": moment(session.finished_at)}
    return {
        "task_name": task,
        "trial_name": f"{file_name(task)[:60]}__{origin_digest(session)}",
        "source": session.source,
        "agent_info": {
            "name": session.agent,
            "version": session.agent_version,
            "model_info": {"name": model, "provider": provider} if session.model else None,
        },
        "agent_result": {
            "n_input_tokens": sum(usage.input_tokens for usage, _ in usages.values()),
            "n_cache_tokens": sum(usage.cached_tokens for usage, _ in usages.values()),
            "n_output_tokens": sum(usage.output_tokens for usage, _ in usages.values()),
            "cost_usd": sum(costs) if costs else None,
        },
        "verifier_result": {"rewards": {"reward": reward_of(session)}} if session.status != ERROR else None,
        "exception_info": _exception(session),
        **times,
    }


def reward_of(session: Session) -> float:
    """The reward of a session: its score `reward` or `hidden tests`, the mean of its checks, or 1 for a
    success."""
    for names in ("reward", "hidden tests", "check: "):
        values = [
            score.value
            for score in session.scores
            if score.evaluator.startswith(names) and score.value is not None
        ]
        if values:
            return sum(values) / len(values)
    return 1.0 if session.status == SUCCESS else 0.0


def _exception(session: Session) -> JsonObject | None:
    if session.status not in EXCEPTIONS:
        return None
    return {"exception_type": EXCEPTIONS[session.status], "exception_message": session.error}


def _job_result(label: str, trials: Sequence[JsonObject]) -> JsonObject:
    failed = [trial for trial in trials if trial["exception_info"]]
    return {
        "id": label,
        "started_at": min(
            (str(trial["started_at"]) for trial in trials if trial["started_at"]), default=None
        ),
        "finished_at": max(
            (str(trial["finished_at"]) for trial in trials if trial["finished_at"]), default=None
        ),
        "n_total_trials": len(trials),
        "stats": {
            "n_completed_trials": len(trials) - len(failed),
            "n_errored_trials": len(failed),
            "evals": _evals(trials),
        },
    }


def _evals(trials: Sequence[JsonObject]) -> JsonObject:
    """Figures by agent and model. A missing reward counts as 0, as in Harbor."""
    groups: dict[str, list[JsonObject]] = {}
    for trial in trials:
        info = trial["agent_info"]
        assert isinstance(info, dict)
        model = info["model_info"]["name"] if info["model_info"] else "none"
        groups.setdefault(f"{info['name'] or 'none'}__{model}__proctor", []).append(trial)
    return {
        name: {
            "n_trials": len(group),
            "n_errors": sum(1 for trial in group if trial["exception_info"]),
            "metrics": [{"mean": sum(map(_reward, group)) / len(group)}],
        }
        for name, group in groups.items()
    }


def _reward(trial: JsonObject) -> float:
    result = trial["verifier_result"]
    return float(result["rewards"]["reward"]) if isinstance(result, dict) else 0.0
