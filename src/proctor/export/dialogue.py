"""A simulation's files: one for each dialogue, and a summary. All of them can be made again from the store.

What differs from one time to the next although the same was said (ids of attempts, times, durations) stands
in a file's last member, `record`; the rest of two runs with one seed is equal byte for byte.

Knows nothing of how dialogues come about.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.analyse.dialogue import runs_of, summary_of
from proctor.dialogue.role import CLIENT, SIDES, THERAPIST
from proctor.item import ERROR, FINISHED, SUCCESS
from proctor.store import ItemFilter, Reader

SUMMARY = "batch_summary.json"
PAGE = 500
_USED = ("prompt_tokens", "completion_tokens", "total_tokens", "total_cost")


def session_document(reader: Reader, item: Mapping[str, Any]) -> dict[str, Any]:
    """One finished dialogue, from its item's row, as its file holds it."""
    details, settings = json.loads(item["details"]), json.loads(item["settings"])
    session_id = item["sessionId"]
    session = reader.session(session_id) if session_id else {}
    metrics = reader.of_session("metrics", session_id) if session_id else []
    facts = {row["name"]: row["label"] if row["value"] is None else row["value"] for row in metrics}
    document = {
        "profile": details[CLIENT]["profile"],
        "messages": _messages(reader, session_id),
        "num_turns": int(facts.get("num_turns") or 0),
        "usage": _usage(facts),
        "status": item["status"],
        "client": details[CLIENT]["label"],
        "therapist": details[THERAPIST]["label"],
        "run_id": settings["run"],
        "combination": settings["combination"],
        "end_reason": facts.get("end_reason") or item["reason"],
        "under_test": settings["underTest"],
        "roles": {side: _role(details[side]) for side in SIDES},
        "therapist_profile": details[THERAPIST]["profile"],
        "seed": None if facts.get("seed") is None else int(facts["seed"]),
        "max_turns": details["maxTurns"],
        "opens": details["opens"],
        "stand_in": bool(session.get("standIn")),
        "states": _states(metrics),
        "scores": _scores(reader, session_id),
        "item_id": item["id"],
    }
    if item["status"] != SUCCESS:
        document = _failed(item, facts) | document | {"status": _status_word(item["status"])}
    return document | {"record": _record(item, session)}


def write_session(folder: Path, item: Mapping[str, Any], reader: Reader) -> Path:
    """Write the file of one finished dialogue; whole or not at all."""
    path = folder / str(json.loads(item["settings"])["file"])
    write_json(path, session_document(reader, item))
    return path


def write_missing(folder: Path, reader: Reader, run_id: str, *, look_inside: bool) -> int:
    """Write the files of finished dialogues that are not there; how many those were.

    `look_inside` also finds files of an earlier attempt, at the price of reading them all.
    """
    written = 0
    for item in finished_items(reader, run_id):
        path = folder / json.loads(item["settings"])["file"]
        if not path.exists() or (look_inside and _attempt_in(path) != item["sessionId"]):
            write_session(folder, item, reader)
            written += 1
    return written


def _attempt_in(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["record"]["session_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def write_summary(folder: Path, reader: Reader, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Write what the batch came to so far, and return it."""
    totals = reader.totals(batch["runId"])
    stand_ins = reader.query(
        'SELECT DISTINCT "model" FROM "sessions" WHERE "runId" = ? AND "standIn" = 1', (batch["runId"],)
    )
    document = summary_of(runs_of(reader, batch["runId"])) | {
        "batch_id": batch["runId"],
        "batch_status": batch["status"],
        "seed": batch["seed"],
        "tokens": totals["tokens"],
        "cost_usd": totals["costUsd"],
        "stand_ins": sorted(row["model"] for row in stand_ins),
    }
    write_json(folder / SUMMARY, document)
    return document


def finished_items(reader: Reader, run_id: str) -> Iterator[Mapping[str, Any]]:
    """The finished items of a batch, in little memory."""
    offset = 0
    while page := reader.items(run_id, ItemFilter(statuses=FINISHED), limit=PAGE, offset=offset):
        yield from page
        offset += len(page)


def write_json(path: Path, document: Any) -> None:
    """Write a document whole or not at all."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    half.replace(path)


def _status_word(status: str) -> str:
    """`fail` stays; whatever else went wrong is an `error` in the documented record."""
    return status if status in ("fail", "timeout") else ERROR


def _failed(item: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    factors, settings = json.loads(item["factors"]), json.loads(item["settings"])
    return {
        "status": item["status"],
        "client": factors[CLIENT],
        "therapist": factors[THERAPIST],
        "run_id": settings["run"],
        "error": item["error"] or item["reason"],
        "reason": item["reason"],
        "caused_by": facts.get("caused_by") or "infrastructure",
    }


def _messages(reader: Reader, session_id: str | None) -> list[dict[str, str]]:
    rows = reader.of_session("messages", session_id) if session_id else []
    return [{"role": row["name"], "content": row["content"]} for row in rows if row["name"] in SIDES]


def _usage(facts: Mapping[str, Any]) -> dict[str, Any]:
    usage: dict[str, Any] = {}
    for who in (*SIDES, "evaluators"):
        used = {name: facts[f"usage.{who}.{name}"] for name in _USED if f"usage.{who}.{name}" in facts}
        if used or who in SIDES:
            usage[who] = {name: value if name == "total_cost" else int(value) for name, value in used.items()}
    costs = [used["total_cost"] for used in usage.values() if used.get("total_cost") is not None]
    asked = [used for used in usage.values() if used]
    # A sum of which a part is unknown is unknown; nothing asked costs nothing.
    usage["total_cost"] = sum(costs) if len(costs) == len(asked) else None
    return usage


def _role(asked: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("role", "digest", "profileName", "options", "model", "parameters")
    return {("profile" if name == "profileName" else name): asked[name] for name in kept}


def _states(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the roles remembered, turn by turn."""
    turns: dict[int, dict[str, Any]] = {}
    for row in metrics:
        if row["step"]:
            value = row["label"] if row["value"] is None else row["value"]
            turns.setdefault(row["step"], {"turn": row["step"] - 1})[row["name"]] = value
    return list(turns.values())


def _scores(reader: Reader, session_id: str | None) -> list[dict[str, Any]]:
    rows = reader.of_session("scores", session_id) if session_id else []
    names = {
        "evaluator": "evaluator",
        "evaluatorDigest": "digest",
        "level": "level",
        "target": "target",
        "value": "value",
        "label": "label",
        "explanation": "explanation",
        "error": "error",
        "costUsd": "cost_usd",
    }
    return [{new: row[old] for old, new in names.items() if row[old] not in ("", None)} for row in rows]


def _record(item: Mapping[str, Any], session: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "batch_id": item["runId"],
        "session_id": item["sessionId"],
        "attempt": session.get("attempt"),
        "started_at": session.get("startedAt"),
        "finished_at": session.get("finishedAt"),
        "work_seconds": session.get("workSeconds"),
        "waiting_seconds": session.get("waitingSeconds"),
        "model_calls": session.get("modelCalls"),
        "tokens": session.get("totalTokens"),
        "cost_usd": session.get("costUsd"),
        "notes": json.loads(session.get("notes") or "[]"),
    }
