"""Files of a simulation: one per dialogue, and a summary. All come from the store.

What differs between equal dialogues (IDs of attempts, times, durations) is in the last member, `record`; the
rest of two runs with one seed is equal byte for byte.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.dialogue.conversation import Checkpoint, ConversationCheckpoint, Side, parse_conversation
from proctor.dialogue.participant import CLIENT, SIDES, THERAPIST
from proctor.evaluators.registry import declared_scale
from proctor.item import ERROR, FINISHED, QUEUED, SUCCESS, TIMEOUT, Item
from proctor.jobs.dialogue.results import criteria_scales, is_data, results_of, summary_of
from proctor.json_values import JsonMap, JsonObject, as_map, as_number, as_text, json_object
from proctor.model_client import ClientTotals
from proctor.score import Score
from proctor.store import ItemFilter, StoreReader
from proctor.store.items import mock_models
from proctor.store.sessions import score_of
from proctor.store.tables import (
    BatchRow,
    ItemRow,
    IterationRow,
    MessageRow,
    MetricRow,
    ScoreRow,
    SessionRow,
    ToolCallRow,
)
from proctor.validity import sum_counts, sum_served

PAGE = 500
INTERRUPTIONS = ("cost_limit", "halted", "rate_limit")
"""End reasons, besides errors and timeouts, of dialogues that are not finished."""


def count_interrupted(read: StoreReader, run_id: str) -> int:
    """Number of queued dialogues that resume after a turn of an earlier attempt."""
    return sum(_furthest(read, run_id, item["id"]) is not None for item in _started(read, run_id))


JUDGED_SESSION = "judgedSession"
"""Setting of an item that is queued again for its evaluators alone: the session they judge."""


def unjudged_items(read: StoreReader, run_id: str, items: Iterable[Item]) -> list[Item]:
    """The finished items whose evaluators are not all those of a plan, with settings to judge them.

    Items that an earlier call returned, and that have not been judged yet, are returned again.
    """
    planned = {item.id: item for item in items if item.settings.get("evaluators")}
    rows = [*finished_items(read, run_id), *_started(read, run_id)] if planned else []
    unjudged = list[Item]()
    for row in rows:
        item = planned.get(row["id"])
        session = read.session(row["sessionId"]) if item and row["sessionId"] else None
        if item is None or session is None or not is_data(session["status"], session["endReason"]):
            continue
        # A failed dialogue that is queued will be repeated.
        if row["status"] == QUEUED and session["status"] != SUCCESS:
            continue
        known = json.loads(row["settings"]).get("evaluators") or []
        is_new = any(each not in known for each in item.settings["evaluators"])
        # Verdicts that could not be read are asked for again.
        has_failed = any(score["error"] for score in read.of_session("scores", session["id"]))
        if row["status"] == QUEUED or is_new or has_failed:
            unjudged.append(replace(item, settings={**item.settings, JUDGED_SESSION: session["id"]}))
    return unjudged


def finished_checkpoint(read: StoreReader, session_id: str, under_test: str) -> Checkpoint:
    """A finished dialogue, to be judged by more evaluators."""
    metrics = read.of_session("metrics", session_id)
    facts = {row["name"]: metric_value(row) for row in metrics}
    last = _last_checkpoint(read.of_session("iterations", session_id))
    sides = {
        side: Side(state=last.sides[side].state if last else {}, usage=_totals(facts, side)) for side in SIDES
    }
    world = last.world if last else None
    if world is not None:
        world = {**world, "actions": _actions(read, session_id, under_test)}
    return Checkpoint(
        conversation=ConversationCheckpoint(
            turns=int(as_number(facts, "num_turns") or 0),
            seed=int(as_number(facts, "seed") or 0),
            sides=sides,
            end_reason=str(facts.get("end_reason") or "ended"),
            world=world,
            invalid=_invalid_before_judging(read.session(session_id)),
        ),
        messages=[_message(row) for row in read.of_session("messages", session_id)],
        metrics=[_metric(row) for row in metrics if row["step"]],
        is_finished=True,
        scores=[_score(row) for row in read.of_session("scores", session_id)],
    )


def _invalid_before_judging(session: SessionRow) -> dict[str, int]:
    counts = json.loads(session["validity"])
    return {kind: count for kind, count in counts.items() if kind != "unreadable_verdicts"}


def metric_value(row: MetricRow) -> float | str | None:
    """The value of a metric: a number or a label."""
    return row["label"] if row["value"] is None else row["value"]


def _message(row: MessageRow) -> dict[str, str]:
    return {"role": row["role"], "name": row["name"], "content": row["content"]}


def _metric(row: MetricRow) -> JsonObject:
    return {"name": row["name"], "value": metric_value(row), "step": row["step"]}


def _totals(facts: JsonMap, side: str) -> ClientTotals:
    usage = {
        "input_tokens": int(as_number(facts.get(f"usage.{side}.prompt_tokens")) or 0),
        "output_tokens": int(as_number(facts.get(f"usage.{side}.completion_tokens")) or 0),
    }
    calls = int(f"usage.{side}.total_tokens" in facts)
    return {"usage": usage, "cost": as_number(facts.get(f"usage.{side}.total_cost")), "calls": calls}


def _score(row: ScoreRow) -> Score:
    """The score without its cost, which its own session has paid."""
    return replace(score_of(row), cost_usd=None, input_tokens=0, output_tokens=0)


def read_checkpoint(read: StoreReader, run_id: str, item_id: str) -> Checkpoint | None:
    """The furthest checkpoint of a dialogue's attempts; None: it starts over."""
    (item,) = read.exact_item(run_id, item_id)
    settings = json.loads(item["settings"])
    if judged := settings.get(JUDGED_SESSION):
        return finished_checkpoint(read, judged, settings["underTest"])
    furthest = _furthest(read, run_id, item_id)
    if furthest is None:
        return None
    checkpoint, session_id = furthest
    messages = [row for row in read.of_session("messages", session_id) if row["step"] <= checkpoint.turns]
    metrics = [row for row in read.of_session("metrics", session_id) if 0 < row["step"] <= checkpoint.turns]
    return Checkpoint(
        conversation=checkpoint,
        messages=[_message(row) for row in messages],
        metrics=[_metric(row) for row in metrics],
    )


def _started(read: StoreReader, run_id: str) -> Iterator[ItemRow]:
    """The queued items that were attempted before."""
    return (item for item in _items(read, run_id, (QUEUED,)) if item["sessionId"])


def _items(read: StoreReader, run_id: str, statuses: Sequence[str]) -> Iterator[ItemRow]:
    offset = 0
    while page := read.items(run_id, ItemFilter(statuses=statuses), limit=PAGE, offset=offset):
        yield from page
        offset += len(page)


def _furthest(read: StoreReader, run_id: str, item_id: str) -> tuple[ConversationCheckpoint, str] | None:
    """The last turn that can be resumed from, and its session."""
    attempts = read.attempts(run_id, item_id)
    last = attempts[-1] if attempts else None
    if last is None or not (last["status"] in (ERROR, TIMEOUT) or last["endReason"] in INTERRUPTIONS):
        return None
    best: tuple[ConversationCheckpoint, str] | None = None
    for attempt in attempts:
        checkpoint = _last_checkpoint(read.of_session("iterations", attempt["id"]))
        if checkpoint is not None and (best is None or checkpoint.turns >= best[0].turns):
            best = checkpoint, attempt["id"]
    return best


def _last_checkpoint(steps: Sequence[IterationRow]) -> ConversationCheckpoint | None:
    for step in reversed(steps):
        try:
            checkpoint = parse_conversation(step["output"])
        except (ValueError, KeyError, TypeError):
            continue
        # Each turn is one step: an output with another number is not a checkpoint.
        return checkpoint if checkpoint.turns == step["step"] else None
    return None


SUMMARY = "batch_summary.json"
_USED = ("prompt_tokens", "completion_tokens", "total_tokens", "total_cost")


def session_document(reader: StoreReader, item: ItemRow) -> JsonObject:
    """The file of a finished dialogue, from its item's row."""
    details, settings = json.loads(item["details"]), json.loads(item["settings"])
    session_id = item["sessionId"]
    session = reader.session(session_id) if session_id else None
    metrics = reader.of_session("metrics", session_id) if session_id else []
    facts: dict[str, Any] = {row["name"]: metric_value(row) for row in metrics}
    document: JsonObject = {
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
        "stand_in": bool(session and session["isMock"]),
        "validity": json.loads((session and session["validity"]) or "{}"),
        "states": _states(metrics),
        "scores": _scores(reader, session_id, criteria_scales(settings)),
        "item_id": item["id"],
        "repeat": settings.get("repeat", settings["run"]),
        **({"version": settings["version"]} if "version" in settings else {}),
    }
    if "world" in details:
        document |= {
            "task": as_map(details, "task").get("name"),
            "actions": _actions(reader, session_id, settings["underTest"]),
            "world_changes": _world_changes(reader, session_id),
        }
    if item["status"] != SUCCESS:
        document = _failed(item, facts) | document | {"status": _status_word(item["status"])}
    return document | {"record": _record(item, session)}


def _actions(reader: StoreReader, session_id: str | None, under_test: str) -> list[JsonObject]:
    """The tool calls of both sides."""
    rows = reader.of_session("tool_calls", session_id) if session_id else ()
    return [_action(row, under_test) for row in rows]


def _action(row: ToolCallRow, under_test: str) -> JsonObject:
    side, colon, tool = row["toolName"].partition(": ")
    return {
        "side": side if colon else under_test,
        "tool": tool if colon else row["toolName"],
        "arguments": json.loads(row["argsJson"] or "{}"),
        "success": bool(row["success"]),
        "result": row["result"],
    }


def _world_changes(reader: StoreReader, session_id: str | None) -> object:
    """What the dialogue changed in the world, by path; None: it is not complete."""
    for row in reader.of_session("messages", session_id) if session_id else ():
        if row["name"] == "world":
            return json_object(row["content"]) or {}
    return None


def write_session(folder: Path, item: ItemRow, reader: StoreReader) -> Path:
    """Write the file of one finished dialogue atomically."""
    path = folder / str(json.loads(item["settings"])["file"])
    write_json(path, session_document(reader, item))
    return path


def write_missing(folder: Path, reader: StoreReader, run_id: str, *, look_inside: bool) -> int:
    """Write the missing files of finished dialogues; their number.

    `look_inside` also replaces files of earlier attempts, which requires reading them all.
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


def write_summary(folder: Path, reader: StoreReader, batch: BatchRow) -> JsonObject:
    """Write the summary of the results so far, and return it."""
    totals = reader.totals(batch["runId"])
    document = summary_of(results_of(reader, batch["runId"])) | {
        "batch_id": batch["runId"],
        "batch_status": batch["status"],
        "seed": batch["seed"],
        "tokens": totals["tokens"],
        "cost_usd": totals["costUsd"],
        "stand_ins": mock_models(reader, batch["runId"]),
        "served_models": sum_served(reader.last_sessions(batch["runId"], "servedModels")),
        "validity": sum_counts(reader.last_sessions(batch["runId"], "validity")),
        **({"exclude_when": rule} if (rule := exclusion_rule(batch)) else {}),
    }
    write_json(folder / SUMMARY, document)
    return document


def exclusion_rule(batch: BatchRow) -> JsonMap:
    """The rule `exclude_when` of a run; empty: it has none."""
    return as_map(json.loads(batch["defaultsJson"]), "exclude_when")


def finished_items(reader: StoreReader, run_id: str) -> Iterator[ItemRow]:
    """The finished items of a batch, page by page."""
    return _items(reader, run_id, FINISHED)


def write_json(path: Path, document: object) -> None:
    """Write a document atomically."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def _status_word(status: str) -> str:
    """The documented status: `fail` and `timeout` are kept, everything else is `error`."""
    return status if status in ("fail", "timeout") else ERROR


def _failed(item: ItemRow, facts: Mapping[str, Any]) -> JsonObject:
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


def _messages(reader: StoreReader, session_id: str | None) -> list[dict[str, str]]:
    rows = reader.of_session("messages", session_id) if session_id else []
    return [{"role": row["name"], "content": row["content"]} for row in rows if row["name"] in SIDES]


def _usage(facts: Mapping[str, Any]) -> JsonObject:
    usage: dict[str, Any] = {}
    for who in (*SIDES, "evaluators"):
        used = {name: facts[f"usage.{who}.{name}"] for name in _USED if f"usage.{who}.{name}" in facts}
        if used or who in SIDES:
            usage[who] = {name: value if name == "total_cost" else int(value) for name, value in used.items()}
    costs = [used["total_cost"] for used in usage.values() if used.get("total_cost") is not None]
    used_sides = [used for used in usage.values() if used]
    # A sum with an unknown part is unknown; no calls cost nothing.
    usage["total_cost"] = sum(costs) if len(costs) == len(used_sides) else None
    return usage


def _role(role: JsonMap) -> JsonObject:
    members = ("role", "digest", "profileName", "options", "model", "parameters")
    return {("profile" if name == "profileName" else name): role[name] for name in members}


def _states(metrics: Sequence[MetricRow]) -> list[JsonObject]:
    """The recorded state of the roles, turn by turn."""
    turns: dict[int, JsonObject] = {}
    for row in metrics:
        if row["step"]:
            value = metric_value(row)
            turns.setdefault(row["step"], {"turn": row["step"] - 1})[row["name"]] = value
    return list(turns.values())


def _scores(
    reader: StoreReader, session_id: str | None, scales: Mapping[str, tuple[float, float]]
) -> list[JsonObject]:
    rows: Sequence[JsonMap] = reader.of_session("scores", session_id) if session_id else []
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
    scores: list[JsonObject] = []
    for row in rows:
        score = {new: row[old] for old, new in names.items() if row[old] not in ("", None)}
        name = as_text(row, "evaluator")
        scale = scales.get(name) or declared_scale(name, as_text(row, "dimension"))
        scores.append(score | ({"scale": list(scale)} if scale else {}))
    return scores


def _record(item: ItemRow, session: SessionRow | None) -> JsonObject:
    return {
        "batch_id": item["runId"],
        "session_id": item["sessionId"],
        "attempt": session and session["attempt"],
        "started_at": session and session["startedAt"],
        "finished_at": session and session["finishedAt"],
        "work_seconds": session and session["workSeconds"],
        "waiting_seconds": session and session["waitingSeconds"],
        "model_calls": session and session["modelCalls"],
        # Of all attempts: what the dialogue took.
        "tokens": item["tokensTotal"],
        "cost_usd": item["costUsd"],
        "served_models": json.loads((session and session["servedModels"]) or "{}"),
        "notes": json.loads((session and session["notes"]) or "[]"),
    }
