"""A session as an answer: what was asked, how it went, what it cost, how it was judged.

Knows nothing of routes.
"""

import json
from typing import Any

from proctor.errors import NotFound
from proctor.item import RUNNING
from proctor.store import transcripts
from proctor.store.transcripts import HEAD_CHARACTERS
from proctor.web.session_shapes import (
    AttemptShape,
    ItemOfSession,
    MergeShape,
    MetricShape,
    ScoreShape,
    SessionAnswer,
    StepShape,
)
from proctor.web.shapes import TextShape
from proctor.web.site import Site

MOST_DETAILS = 20_000
"""Characters; those of a scenario hold the whole scenario, which nobody reads here."""
MOST_METRICS = 2000

Row = dict[str, Any]


def find_session(site: Site, session_id: str) -> Row:
    """One session's row, by its id, or whatever else names it."""
    # By its whole id first, which an index knows; the other names are looked for in all sessions.
    found = site.store.read.query('SELECT * FROM "sessions" WHERE "id" = ?', (session_id,))
    return found[0] if found else site.store.read.session(session_id)


def session_answer(site: Site, session_id: str) -> SessionAnswer:
    """A session, whole but for its transcript."""
    read = site.store.read
    row = find_session(site, session_id)
    id_ = row["id"]
    if row["status"] == RUNNING:
        # What it came to is written when it ends.
        row = row | _so_far(site, id_)
    last, count = transcripts.extent(read, id_)
    attempts = read.attempts(row["runId"], row["itemId"]) if row["runId"] and row["itemId"] else [row]
    metrics = read.query(
        'SELECT * FROM "metrics" WHERE "sessionId" = ? ORDER BY "position" LIMIT ?', (id_, MOST_METRICS)
    )
    merges = [
        one | {"conflictFiles": json.loads(one["conflictFiles"])}
        for one in read.of_session("merge_history", id_)
    ]
    return SessionAnswer(
        **row | {"notes": json.loads(row["notes"]), "standIn": bool(row["standIn"])},
        item=_item(site, row),
        attempts=[AttemptShape.model_validate(one) for one in attempts],
        steps=[StepShape.model_validate(_plain(step)) for step in transcripts.steps(read, id_)],
        scores=[ScoreShape.model_validate(score) for score in transcripts.judgements(read, id_)],
        merges=[MergeShape.model_validate(merge) for merge in merges],
        metrics=[MetricShape.model_validate(metric) for metric in metrics],
        last_position=last,
        event_count=count,
    )


def item_row(site: Site, row: Row) -> Row | None:
    """The row of the item a session is an attempt at; None for a session that was imported."""
    if not row["runId"] or not row["itemId"]:
        return None
    found = site.store.read.query(
        'SELECT * FROM "batch_items" WHERE "runId" = ? AND "id" = ?', (row["runId"], row["itemId"])
    )
    return found[0] if found else None


def _item(site: Site, row: Row) -> ItemOfSession | None:
    found = item_row(site, row)
    if found is None:
        return None
    prompt, details = found["prompt"], found["details"]
    return ItemOfSession(
        id=found["id"],
        prompt=TextShape(
            text=prompt[:HEAD_CHARACTERS], size=len(prompt), is_cut=len(prompt) > HEAD_CHARACTERS
        ),
        repeat=found["repeat"],
        status=found["status"],
        factors=json.loads(found["factors"]),
        details=json.loads(details) if len(details) <= MOST_DETAILS else {},
    )


def _so_far(site: Site, session_id: str) -> Row:
    (found,) = site.store.read.query(
        'SELECT COUNT(*) AS "modelCalls", COALESCE(SUM("promptTokens"), 0) AS "promptTokens", '
        'COALESCE(SUM("cachedTokens"), 0) AS "cachedTokens", '
        'COALESCE(SUM("completionTokens"), 0) AS "completionTokens", '
        'COALESCE(SUM("reasoningTokens"), 0) AS "reasoningTokens", SUM("costUsd") AS "costUsd" '
        'FROM "model_calls" WHERE "sessionId" = ?',
        (session_id,),
    )
    (tools,) = site.store.read.query(
        'SELECT COUNT(*) AS "toolCalls" FROM "tool_calls" WHERE "sessionId" = ?', (session_id,)
    )
    return found | tools | {"totalTokens": found["promptTokens"] + found["completionTokens"]}


def _plain(step: Row) -> Row:
    return step | {name: vars_of(step[name]) for name in ("testOutput", "output")}


def vars_of(piece: transcripts.Piece) -> Row:
    """A piece of text as an answer's member."""
    return {"text": piece.text, "size": piece.size, "isCut": piece.is_cut}


def no_turns(session_id: str) -> NotFound:
    """The error for a session that has no turns."""
    return NotFound(f"session {session_id} has no turns\nOnly sessions of a scenario have.")
