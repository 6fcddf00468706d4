"""SWE-bench predictions of a run: the patch of each finished attempt, as its harness takes them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from proctor.errors import ProctorError
from proctor.json_values import JsonObject, as_text, parse_json
from proctor.store import Store
from proctor.workspace.merge_queue import diff
from proctor.workspace.source_repository import open_source

PAGE = 500


def write_predictions(store: Store, run_id: str, file: Path, environment: Mapping[str, str]) -> int:
    """Write one line for each item of a run; returns how many. An unchanged task has an empty patch."""
    rows = list(_predictions(store, run_id, environment))
    file.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return len(rows)


def _predictions(store: Store, run_id: str, environment: Mapping[str, str]) -> Iterator[JsonObject]:
    after = 0
    while items := store.read.items(run_id, limit=PAGE, offset=after):
        after += len(items)
        for item in items:
            if not item["sessionId"]:
                continue
            factors = parse_json(item["factors"])
            yield {
                "instance_id": as_text(factors, "task"),
                "model_name_or_path": as_text(factors, "model"),
                "model_patch": _patch(store, item["sessionId"], environment),
            }


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
