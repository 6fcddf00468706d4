"""SWE-bench predictions of a run: the patch of each finished attempt, as its harness takes them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from proctor.errors import ProctorError, UsageError
from proctor.export.tables import file_name
from proctor.json_values import JsonObject
from proctor.store import Store
from proctor.store.tables import ItemRow
from proctor.tasks.task import models_with_agents, ranked_name
from proctor.workspace.merge_queue import diff
from proctor.workspace.source_repository import open_source


def write_predictions(store: Store, run_id: str, file: Path, environment: Mapping[str, str]) -> int:
    """Write one line for each item of a run; returns how many. An unchanged task has an empty patch."""
    rows = [row for _, row in _rows(store, run_id, environment)]
    file.write_text(_lines(rows), encoding="utf-8")
    return len(rows)


def export_predictions(store: Store, run_id: str, out: Path, environment: Mapping[str, str]) -> list[Path]:
    """Write a file for each model (with its agent, if there are several) and repeat of a run: the harness
    takes one patch for each task. Returns the files."""
    files: dict[str, list[JsonObject]] = {}
    for item, row in _rows(store, run_id, environment):
        repeat = f"-run{item['repeat']}" if item["repeat"] > 1 else ""
        name = file_name(f"swe-bench-{run_id}-{row['model_name_or_path']}{repeat}")
        files.setdefault(f"{name}.jsonl", []).append(row)
    if not files:
        raise UsageError(f"{run_id} has no finished task\nExport a benchmark that has run.")
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in files.items():
        (out / name).write_text(_lines(rows), encoding="utf-8")
    return [out / name for name in files]


def _lines(rows: Iterable[JsonObject]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _rows(store: Store, run_id: str, environment: Mapping[str, str]) -> Iterator[tuple[ItemRow, JsonObject]]:
    items = [item for item in store.read.items(run_id, limit=1_000_000) if item["sessionId"]]
    factors = [json.loads(item["factors"]) for item in items]
    if not all("task" in each for each in factors):
        raise UsageError(f"{run_id} is not a run of tasks\nGive the run of a benchmark.")
    split = models_with_agents(factors)
    for item, factor_values in zip(items, factors, strict=True):
        yield (
            item,
            {
                "instance_id": factor_values["task"],
                "model_name_or_path": ranked_name(factor_values, split),
                "model_patch": _patch(store, item["sessionId"] or "", environment),
            },
        )


def _patch(store: Store, session_id: str, environment: Mapping[str, str]) -> str:
    session = store.read.session(session_id)
    if not session["repo"] or not session["branch"]:
        return ""
    try:
        source = open_source(Path(session["repo"]), environment)
        return diff(source, session["branch"], session["baseSha"])
    except ProctorError:
        # The attempt ended before anything was published.
        return ""
