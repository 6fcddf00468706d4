"""Sessions as Inspect's logs, an `.eval` file for each agent and model; Inspect's own reader opens them.

Each session is a sample with its messages, events, usage and scores. Samples are written as they come; only
the few numbers of a log's header wait for the end. `metadata` holds what Inspect has no place for, so that
`proctor import inspect` gives back the same session.

Knows nothing of stores or commands.
"""

import json
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.export.files import file_name
from proctor.export.inspect_sample import sample_of, usage_document
from proctor.export.said import total_usage
from proctor.imported import ImportedSession
from proctor.item import digest_of
from proctor.score import Score
from proctor.session import Usage

VERSION = 2
"""Of Inspect's log format."""
SUMMARIES_AT_ONCE = 100
MOST_LOGS = 100
"""Files that are open at once; what further agents and models did goes into one log together."""
SEVERAL = ("", "several")
UNKNOWN = "unknown"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT = ("id", "epoch", "target", "scores", "model_usage", "uuid", "total_time", "working_time")


def write(sessions: Iterable[ImportedSession], out: Path, label: str) -> list[Path]:
    """A file `inspect-<label>-<agent>-<model>.eval` for each agent and model there is."""
    logs: dict[tuple[str, str], _Log] = {}
    with ExitStack() as open_files:
        for session in sessions:
            who = (session.agent, session.model)
            if who not in logs and len(logs) >= MOST_LOGS:
                who = SEVERAL
            if who not in logs:
                path = out / f"inspect-{label}-{_who(*who)}.eval"
                archive = zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED)
                logs[who] = _Log(path, open_files.enter_context(archive), label, *who)
            logs[who].add(session)
        for log in logs.values():
            log.close()
    return [log.path for log in logs.values()]


def _who(agent: str, model: str) -> str:
    name = file_name("-".join(filter(None, (agent, model))) or UNKNOWN)
    # Two names may be the same once they are fit for a file.
    return f"{name[:60]}-{digest_of([agent, model])[:6]}"


@dataclass(slots=True)
class _Log:
    """One log as it is being written."""

    path: Path
    archive: zipfile.ZipFile
    label: str
    agent: str
    model: str
    began: datetime | None = None
    ended: datetime | None = None
    samples: int = 0
    completed: int = 0
    scores: dict[str, tuple[int, float]] = field(default_factory=dict)
    """How many there were of each that is a number, and their sum."""
    used: dict[str, tuple[Usage, float | None]] = field(default_factory=dict)
    _waiting: list[dict[str, Any]] = field(default_factory=list)
    _summaries: int = 0
    _epochs: dict[str, int] = field(default_factory=dict)

    def add(self, session: ImportedSession) -> None:
        """Write a session."""
        if not self.samples:
            self.began = session.started_at
            self._put("_journal/start.json", {"version": VERSION, "eval": self._spec(), "plan": self._plan()})
        name = file_name(session.external_id)
        epoch = self._epochs[name] = self._epochs.get(name, 0) + 1
        sample = sample_of(session, name, epoch)
        self._put(f"samples/{name}_epoch_{epoch}.json", sample)
        self.samples += 1
        self.completed += "error" not in sample
        self._count(session)
        self._waiting.append(_summary(sample))
        if len(self._waiting) == SUMMARIES_AT_ONCE:
            self._put_summaries()

    def close(self) -> None:
        """Write what is known only now."""
        self._put_summaries()
        self._put("header.json", self._header())

    def _put(self, name: str, document: Any) -> None:
        self.archive.writestr(name, json.dumps(document, ensure_ascii=False, default=str))

    def _put_summaries(self) -> None:
        if self._waiting:
            self._summaries += 1
            self._put(f"_journal/summaries/{self._summaries}.json", self._waiting)
            self._waiting = []

    def _count(self, session: ImportedSession) -> None:
        self.began = min(filter(None, (self.began, session.started_at)), default=None)
        self.ended = max(filter(None, (self.ended, session.finished_at)), default=None)
        for model, (usage, cost) in total_usage(session).items():
            known, spent = self.used.get(model, (Usage(), None))
            self.used[model] = (known + usage, spent if cost is None else (spent or 0.0) + cost)
        for score in session.scores:
            if score.value is not None and not score.error:
                count, total = self.scores.get(name_of(score), (0, 0.0))
                self.scores[name_of(score)] = (count + 1, total + score.value)

    def _spec(self) -> dict[str, Any]:
        """What was run, as far as Inspect asks."""
        run = digest_of([self.label, self.agent, self.model])
        return {
            "eval_id": run[:22],
            "run_id": self.label,
            "created": _stamp(self.began),
            "task": self.label,
            "task_id": run[22:44],
            "task_version": 0,
            "solver": self.agent or None,
            "dataset": {"name": self.label},
            "model": self.model or UNKNOWN,
            "config": {},
            "packages": {},
        }

    def _plan(self) -> dict[str, Any]:
        steps = [{"solver": self.agent, "params": {}}] if self.agent else []
        return {"name": "plan", "steps": steps, "config": {}}

    def _header(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "status": "success",
            "eval": self._spec() | {"dataset": {"name": self.label, "samples": self.samples}},
            "plan": self._plan(),
            "results": {
                "total_samples": self.samples,
                "completed_samples": self.completed,
                "scores": [
                    {
                        "name": name,
                        "scorer": name,
                        "params": {},
                        "metrics": {"mean": {"name": "mean", "value": total / count, "params": {}}},
                    }
                    for name, (count, total) in self.scores.items()
                ],
            },
            "stats": {
                "started_at": _stamp(self.began),
                "completed_at": _stamp(self.ended),
                "model_usage": {model or UNKNOWN: usage_document(*used) for model, used in self.used.items()},
            },
        }


def name_of(score: Score) -> str:
    """What a score is called in a log: its evaluator, and the dimension of a scale with several."""
    return "/".join(filter(None, (score.evaluator, score.dimension)))


def _stamp(at: datetime | None) -> str:
    return (at or _EPOCH).isoformat()


def _summary(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample without what was said in it."""
    short = {name: sample[name] for name in _SHORT if name in sample}
    asked = sample["input"][:1_000]
    error = sample.get("error", {}).get("message")
    return short | {"input": asked, "completed": True, "metadata": {}} | ({"error": error} if error else {})
