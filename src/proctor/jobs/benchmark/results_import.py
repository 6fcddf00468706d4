"""Import result files of a benchmark from another machine into the store.

A result file has the item and the outcome of each run, so that the benchmark can be resumed from the folder
alone. A file that cannot be read is renamed, and its runs are repeated.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from proctor.item import ERROR, FINISHED, QUEUED
from proctor.json_values import JsonMap, JsonObject, parse_json
from proctor.store import Store, Writer, timestamp
from proctor.store.batches import moment
from proctor.store.tables import ItemRow

RESULT = "_result.json"
"""Suffix of result files."""
DAMAGED = ".damaged"
LARGEST_BYTES = 64 * 1024 * 1024
SESSION_ID = re.compile(r"[0-9a-f]{8,40}")
TEXTS = ("item_id", "model", "task", "status", "reason", "timestamp", "session_id", "agent")
COUNTS = (
    *("run", "prompts_sent", "human_interventions", "files_modified", "lines_added", "lines_removed"),
    *("tool_calls", "prompt_tokens", "completion_tokens", "total_tokens", "unpriced_calls", "attempts"),
)
NUMBERS = ("completion_time", "wall_time", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedResult:
    """A damaged result file, renamed."""

    name: str
    why: str
    aside: str
    """Its new name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedResults:
    """The result files of a folder."""

    runs: tuple[JsonMap, ...]
    damaged: tuple[DamagedResult, ...]


def read_results(folder: Path) -> ImportedResults:
    """Read every result file of a folder; damaged files are renamed, so that none is lost."""
    runs, damaged = list[JsonMap](), list[DamagedResult]()
    for file in sorted(folder.glob(f"*{RESULT}")):
        try:
            runs += _runs_in(file)
        except (OSError, ValueError) as error:
            damaged.append(DamagedResult(name=file.name, why=str(error), aside=_set_aside(file)))
    return ImportedResults(runs=tuple(runs), damaged=tuple(damaged))


def import_runs(store: Store, run_id: str, runs: Iterable[Mapping[str, Any]], source: str) -> int:
    """Import the finished runs of items that were never started here; their number."""
    waiting = {
        row["id"]: row
        for row in store.read.items(run_id, limit=1_000_000)
        if row["status"] == QUEUED and row["sessionId"] is None
    }
    finished = [run for run in runs if run["item_id"] in waiting and run["status"] != ERROR]
    if not finished:
        return 0
    writer = store.writer()
    try:
        for run in finished:
            _ImportedRun(store, run_id, waiting[run["item_id"]], run, source).write(writer)
    finally:
        writer.close()
    return len(finished)


def requeue(store: Store, run_id: str, models: Iterable[str]) -> int:
    """Queue every finished item of these models again; their number."""
    names = set(models)
    rows = [
        row
        for row in store.read.items(run_id, limit=1_000_000)
        if row["status"] in FINISHED and json.loads(row["factors"]).get("model") in names
    ]
    store.requeue(run_id, [row["id"] for row in rows])
    return len(rows)


def _runs_in(file: Path) -> Sequence[JsonMap]:
    if file.stat().st_size > LARGEST_BYTES:
        raise ValueError(f"it is larger than {LARGEST_BYTES >> 20} MiB")
    document = parse_json(file.read_bytes())
    runs = document.get("runs") if isinstance(document, dict) else None
    if not isinstance(runs, list):
        raise ValueError("it lacks the list `runs`")
    for run in runs:
        _check(run)
    return runs


def _check(run: object) -> None:
    if not isinstance(run, dict):
        raise ValueError("one of its runs is no object")
    for name in TEXTS:
        if not isinstance(run.get(name), str):
            raise ValueError(f"`{name}` of a run is no text")
    for name in COUNTS:
        if type(run.get(name)) is not int or run[name] < 0:
            raise ValueError(f"`{name}` of a run is no count")
    for name in NUMBERS:
        value = run.get(name)
        if value is not None and type(value) not in (int, float):
            raise ValueError(f"`{name}` of a run is no number")
    try:
        moment(run["timestamp"] or None)
    except ValueError as error:
        raise ValueError("`timestamp` of a run is no moment") from error
    if run["status"] not in FINISHED:
        raise ValueError(f"a run has the status {run['status'][:20]!r}, which is none")
    if not isinstance(run.get("criteria"), list):
        raise ValueError("`criteria` of a run is no list")


def _set_aside(file: Path) -> str:
    """Rename a damaged file, without replacing another."""
    names = (file.with_name(f"{file.name}{DAMAGED}{number}") for number in ("", *map(str, range(2, 1000))))
    target = next(name for name in names if not name.exists())
    file.rename(target)
    return target.name


@dataclass(frozen=True, slots=True)
class _ImportedRun:
    """One run to import."""

    store: Store
    run_id: str
    item: ItemRow
    run: Mapping[str, Any]
    source: str

    def write(self, writer: Writer) -> None:
        run, session_id = self.run, self._session_id()
        writer.add("sessions", (session_id,), self._session(session_id))
        # By the names of columns: what a file from elsewhere does not tell has the usual value of its column.
        writer.add("iterations", (session_id,), self._iteration(session_id))
        for position, score in enumerate(self._scores(), 1):
            row = {"sessionId": session_id, "position": position, "timestamp": run["timestamp"], **score}
            writer.add("scores", (session_id, str(position)), row)
        finished = {
            "status": run["status"],
            "reason": run["reason"],
            "error": str(run.get("error") or ""),
            "startedAt": self._began(),
            "finishedAt": run["timestamp"] or None,
            "sessionId": session_id,
            "tokensTotal": run["total_tokens"],
            "toolCalls": run["tool_calls"],
            "costUsd": run["cost_usd"],
        }
        writer.change("batch_items", (self.run_id, self.item["id"]), finished)

    def _session_id(self) -> str:
        """Its own ID, unless that is not valid or in use."""
        session_id = self.run["session_id"]
        existing = self.store.read.exact_session(session_id)
        return (
            session_id
            if SESSION_ID.fullmatch(session_id) and not existing
            else f"{self.item['id']}{len(existing):04x}"
        )

    def _began(self) -> str | None:
        ended = moment(self.run["timestamp"] or None)
        return timestamp(ended - timedelta(seconds=self.run["wall_time"] or 0)) if ended else None

    def _session(self, session_id: str) -> JsonObject:
        run = self.run
        return {
            "id": session_id,
            "runId": self.run_id,
            "itemId": self.item["id"],
            "attempt": max(1, run["attempts"]),
            "job": "benchmark",
            "agent": self.item["agent"],
            "model": self.item["model"],
            "standIn": int(bool(run.get("stand_in"))),
            "status": run["status"],
            "endReason": run["reason"],
            "error": str(run.get("error") or ""),
            "source": self.source,
            "startedAt": self._began(),
            "finishedAt": run["timestamp"] or None,
            "workSeconds": run["completion_time"],
            "promptTokens": run["prompt_tokens"],
            "completionTokens": run["completion_tokens"],
            "totalTokens": run["total_tokens"],
            "costUsd": run["cost_usd"],
            "unpricedCalls": run["unpriced_calls"],
            "modelCalls": run["prompts_sent"],
            "toolCalls": run["tool_calls"],
            "interventions": run["human_interventions"],
            "notes": json.dumps([f"imported from {self.source}, without its transcript"]),
        }

    def _iteration(self, session_id: str) -> JsonObject:
        run = self.run
        when = run["timestamp"] or None
        return {
            "sessionId": session_id,
            "step": 1,
            "startTime": when,
            "endTime": when,
            "changedFiles": run["files_modified"],
            "linesAdded": run["lines_added"],
            "linesRemoved": run["lines_removed"],
            "model": self.item["model"],
            "promptTokens": run["prompt_tokens"],
            "completionTokens": run["completion_tokens"],
            "totalTokens": run["total_tokens"],
            "costUsd": run["cost_usd"],
        }

    def _scores(self) -> Iterable[JsonObject]:
        for one in self.run["criteria"]:
            passed = one.get("passed") if isinstance(one, dict) else None
            if isinstance(passed, bool) and isinstance(name := one.get("criterion"), str):
                evaluator = name if name.startswith("expect.") else f"check: {name}"
                yield {
                    "evaluator": evaluator,
                    "level": "session",
                    "value": float(passed),
                    "label": "pass" if passed else "fail",
                    "explanation": str(one.get("explanation") or ""),
                }
        if self.run.get("unchecked") is True:
            yield {"evaluator": "unchecked", "level": "session"}
