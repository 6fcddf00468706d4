"""Let dialogues that were cut off go on: put what the store knows of them where their runner looks.

Only what was cut off goes on: an attempt that came to an end of its own, and is repeated because that end
was a bad one, begins anew.

Knows nothing of how dialogues go, or of who resumes them.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.dialogue.checkpoint import Checkpoint, Standing, standing_of
from proctor.item import ERROR, QUEUED, TIMEOUT
from proctor.runners.dialogue import UNFINISHED
from proctor.store import ItemFilter, Reader

PAGE = 500
CUT_OFF = ("cost_limit", "halted", "rate_limit")
"""Reasons, besides errors and time-outs, for which a dialogue has stopped without being over."""


def write_checkpoints(read: Reader, run_id: str, folder: Path) -> int:
    """Write a checkpoint for each dialogue of a batch that waits and was begun; how many there were."""
    target = folder / UNFINISHED
    shutil.rmtree(target, ignore_errors=True)
    written = 0
    for item in _waiting(read, run_id):
        found = _latest(read, item)
        if found is not None:
            target.mkdir(parents=True, exist_ok=True)
            path = target / str(json.loads(item["settings"])["file"])
            half = path.with_name(f"{path.name}.{os.getpid()}")
            half.write_text(json.dumps(found.document(), ensure_ascii=False), encoding="utf-8")
            half.replace(path)
            written += 1
    return written


def clear_checkpoints(folder: Path) -> None:
    """Remove what nobody is going to look for any more."""
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)


def _waiting(read: Reader, run_id: str) -> Iterator[Mapping[str, Any]]:
    offset = 0
    while page := read.items(run_id, ItemFilter(statuses=(QUEUED,)), limit=PAGE, offset=offset):
        yield from (item for item in page if item["sessionId"])
        offset += len(page)


def _latest(read: Reader, item: Mapping[str, Any]) -> Checkpoint | None:
    """The furthest that an attempt has come which was cut off; None when it has to begin anew."""
    attempts = read.attempts(item["runId"], item["id"])
    last = attempts[-1] if attempts else None
    if last is None or not (last["status"] in (ERROR, TIMEOUT) or last["endReason"] in CUT_OFF):
        return None
    best: tuple[Standing, str] | None = None
    for attempt in attempts:
        standing = _standing(read.of_session("iterations", attempt["id"]))
        if standing is not None and (best is None or standing.turns >= best[0].turns):
            best = standing, attempt["id"]
    return None if best is None else _checkpoint(read, item["id"], *best)


def _standing(steps: Sequence[Mapping[str, Any]]) -> Standing | None:
    for step in reversed(steps):
        try:
            found = standing_of(step["output"])
        except (ValueError, KeyError, TypeError):
            continue
        # A turn is a step; anything else was written by someone we do not know.
        return found if found.turns == step["step"] else None
    return None


def _checkpoint(read: Reader, item_id: str, standing: Standing, session_id: str) -> Checkpoint:
    said = [row for row in read.of_session("messages", session_id) if row["step"] <= standing.turns]
    measured = [row for row in read.of_session("metrics", session_id) if 0 < row["step"] <= standing.turns]
    return Checkpoint(
        item_id=item_id,
        standing=standing,
        messages=[{name: row[name] for name in ("role", "name", "content")} for row in said],
        metrics=[
            {
                "name": row["name"],
                "value": row["label"] if row["value"] is None else row["value"],
                "step": row["step"],
            }
            for row in measured
        ],
    )
