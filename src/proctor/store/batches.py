"""Lifecycle of a batch in the store: create, extend, claim, abort, finish, delete; questions to people;
sizes of runs, and deletion of their texts.

Every function runs inside a transaction that its caller has begun.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from proctor.errors import NotFound, StoreError, UsageError
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, TIMEOUT, Item
from proctor.json_values import JsonMap
from proctor.session import Merge
from proctor.store import ledger
from proctor.store.database import KEEP, PAGE_ROWS, Connection, extended, id_pages, literals, places
from proctor.store.recorder import FREE
from proctor.store.signatures import sign_begin, sign_end, sign_items
from proctor.store.tables import (
    BY_PEOPLE,
    COLUMNS,
    NEW_ITEM,
    OF_A_SESSION,
    BatchRow,
    QuestionRow,
    SessionRow,
    changeable_columns,
    merge_row,
    row_of,
)
from proctor.store.writer import is_alive, timestamp

INTERRUPTED = "interrupted"
"""Status of a batch, and reason of its items, when its process died."""
_KILLED, _WORKER_KILLED = "its process died", "its worker process died"
ABORTED = "aborted"
"""The status of a batch that was stopped, and the reason of its items that were not finished."""
ITEMS_AT_ONCE = 500
"""Items that are added to a batch in one transaction."""
SESSIONS_AT_ONCE = 20
"""Sessions that are deleted in one transaction."""
UNFINISHED_REASONS = (ABORTED, INTERRUPTED, "halted")
"""Reasons of items that ended without an attempt; resuming queues them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySelection:
    """Finished items that a resumed batch retries, besides the unfinished ones."""

    errors: bool = False
    """Items with an infrastructure error."""
    failures: bool = False
    """Items that failed or timed out."""
    item_ids: Sequence[str] = ()
    """These items too, if they did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedBatch:
    """Previous owner of a claimed batch."""

    last_owner: str
    last_seen: datetime
    """Last heartbeat of that process."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A text that items of a run refer to by its digest, so that a runner needs no files."""

    kind: str
    """`role` or `scenario`."""
    name: str
    digest: str
    content: str


def create(
    connection: Connection,
    batch: JsonMap,
    items: Iterable[Item],
    resources: Iterable[Resource] = (),
) -> int:
    """Create a batch with its items and their resources; return the number of items."""
    if connection.rows('SELECT 1 FROM "batches" WHERE "runId" = ?', (batch["runId"],)):
        raise UsageError(
            f"there is already a run called {batch['runId']}\n"
            "Resume it (--resume), delete it (proctor delete), or give the plan another runId."
        )
    run_id = str(batch["runId"])
    connection.set_key_scope(run_id)
    if began := moment(str(batch.get("heartbeatAt") or "")):
        # By the clock that other hosts compare it with.
        batch = {**batch, "heartbeatAt": timestamp(connection.server_time(began))}
    connection.insert("batches", batch)
    add_resources(connection, run_id, resources)
    sign_begin(connection, run_id)
    return add_items(connection, run_id, items)


def add_resources(connection: Connection, run_id: str, resources: Iterable[Resource]) -> None:
    """Store the resources of a batch that it does not have yet."""
    connection.set_key_scope(run_id)
    rows = [
        (run_id, resource.kind, resource.name, resource.digest, resource.content) for resource in resources
    ]
    connection.insert_many("run_resources", rows, on_conflict=KEEP)


def add_items(connection: Connection, run_id: str, items: Iterable[Item], *, first: int = 0) -> int:
    """Append items to a batch, starting at position `first`; return their number."""
    count = itertools.count(first)
    rows = (row_of(run_id, next(count), item) for item in items)
    # In pages, so that 100,000 items are never in memory at once.
    while page := list(itertools.islice(rows, PAGE_ROWS)):
        connection.insert_many("batch_items", page, NEW_ITEM)
    return next(count) - first


def change(connection: Connection, run_id: str, values: Mapping[str, object]) -> None:
    """Change some columns of a batch."""
    connection.set_key_scope(run_id)
    if values:
        connection.update("batches", values, '"runId" = ?', (run_id,))


def change_and_drop(
    connection: Connection, run_id: str, batch: Mapping[str, object], *, drop: Iterable[str]
) -> None:
    """Update a batch to its plan: change its columns, and remove items.

    A removed item that was started keeps its results, but is not queued again.
    """
    change(connection, run_id, batch)
    mine = '"runId" = ? AND "id" = ?'
    dropped = [(run_id, item_id) for item_id in drop]
    connection.run_many(f'DELETE FROM "batch_items" WHERE {mine} AND "startedAt" IS NULL', dropped)
    connection.update_many(
        "batch_items",
        ("status", "reason", "error"),
        mine,
        [(ERROR, "removed", "the plan no longer has it", *which) for which in dropped],
    )
    sign_items(connection, run_id, [item_id for _, item_id in dropped])


def settle_items(connection: Connection, run_id: str, items: Iterable[Item]) -> None:
    """Change the settings of those of these items that are queued."""
    connection.set_key_scope(run_id)
    connection.update_many(
        "batch_items",
        ("settings", "factors", "repo"),
        '"runId" = ? AND "id" = ? AND "status" = ?',
        [(*changeable_columns(item), run_id, item.id, QUEUED) for item in items],
    )


def append_items(connection: Connection, run_id: str, items: Iterable[Item]) -> None:
    """Append items to a batch behind those it has."""
    connection.set_key_scope(run_id)
    last = connection.value(int, 'SELECT MAX("position") FROM "batch_items" WHERE "runId" = ?', (run_id,))
    add_items(connection, run_id, items, first=0 if last is None else last + 1)


def claim(connection: Connection, run_id: str, owner: str, now: datetime) -> ClaimedBatch:
    """Become the owner of a batch. Raises `UsageError` if its owner is alive."""
    now = connection.server_time(now)
    (row,) = connection.rows(
        'SELECT "status", "owner", "heartbeatAt" FROM "batches" WHERE "runId" = ?', (run_id,)
    )
    owned_by = row["owner"]
    if row["status"] == RUNNING and is_alive(owned_by, moment(row["heartbeatAt"]), now):
        raise _already_running(run_id, owned_by)
    # One without an owner has not been started yet.
    has_crashed = row["status"] == RUNNING and owned_by != ""
    # Compare and swap: of two processes that claim it at once, one fails.
    claimed = connection.run(
        'UPDATE "batches" SET "status" = ?, "reason" = ?, "owner" = ?, "heartbeatAt" = ?, '
        '"abortRequestedAt" = NULL, "finishedAt" = NULL, "crashes" = "crashes" + ? '
        'WHERE "runId" = ? AND "owner" = ?',
        (RUNNING, "", owner, timestamp(now), int(has_crashed), run_id, owned_by),
    )
    if not claimed:
        raise _already_running(run_id, "")
    return ClaimedBatch(last_owner=owned_by, last_seen=moment(row["heartbeatAt"]) or now)


def _already_running(run_id: str, owner: str) -> UsageError:
    _, pid, *_ = [*owner.rsplit(":", 3), "", ""]
    who = f"process {pid}" if pid else "another process"
    return UsageError(
        f"run {run_id} is already running in {who}\n"
        f"Look at it (proctor watch {run_id}) or stop it (proctor abort-run {run_id})."
    )


def executed_again(again: RetrySelection) -> tuple[str, tuple[object, ...]]:
    """The condition on items that were started and that a resumed batch executes, and its parameters."""
    condition = f'"status" = ? OR ("status" = ? AND "reason" IN ({places(UNFINISHED_REASONS)}))'
    parameters: list[object] = [RUNNING, ERROR, *UNFINISHED_REASONS]
    if again.errors:
        condition += ' OR "status" = ?'
        parameters.append(ERROR)
    if again.failures:
        condition += ' OR "status" IN (?, ?)'
        parameters += [FAIL, TIMEOUT]
    if again.item_ids:
        condition += f' OR ("status" IN (?, ?, ?) AND "id" IN ({places(again.item_ids)}))'
        parameters += [ERROR, FAIL, TIMEOUT, *again.item_ids]
    return condition, tuple(parameters)


_QUEUED: Mapping[str, object] = {"status": QUEUED, "reason": "", "error": "", "finishedAt": None}
"""The columns of an item that is queued again."""


def queue_unfinished(
    connection: Connection, run_id: str, again: RetrySelection, now: datetime, *, claimed: ClaimedBatch
) -> list[SessionRow]:
    """Queue unfinished items; return sessions of killed processes, which may have left files or processes.

    With those that an earlier process has ended so: it may have been killed before it cleared up.
    """
    interrupted = connection.rows(
        'SELECT * FROM "sessions" WHERE "runId" = ? AND ("status" = ? OR "endReason" = ?)',
        (run_id, RUNNING, INTERRUPTED),
    )
    cut_off = [
        cast(SessionRow, row)
        for row in interrupted
        if row["status"] == RUNNING or row["error"] in (_KILLED, _WORKER_KILLED)
    ]
    _end_sessions(connection, run_id, INTERRUPTED, _KILLED, claimed.last_seen)
    condition, parameters = executed_again(again)
    connection.update("batch_items", _QUEUED, f'"runId" = ? AND ({condition})', (run_id, *parameters))
    # Rows of earlier versions have no holder; a batch with several worker processes has one for each.
    for holder in ("", claimed.last_owner, *ledger.holders(connection, run_id)):
        ledger.release(connection, run_id, holder, now)
    return cut_off


def queue_lost(
    connection: Connection, run_id: str, session_ids: Iterable[str], now: datetime
) -> list[SessionRow]:
    """End the sessions of a worker process that died, and queue their items; return the sessions."""
    sessions = list[SessionRow]()
    connection.run('UPDATE "batches" SET "crashes" = "crashes" + 1 WHERE "runId" = ?', (run_id,))
    for page in id_pages(session_ids):
        _end_sessions(connection, run_id, INTERRUPTED, _WORKER_KILLED, now, page)
        sessions += cast(
            "list[SessionRow]",
            connection.rows(f'SELECT * FROM "sessions" WHERE "id" IN ({places(page)})', page),
        )
    requeue(connection, run_id, [row["itemId"] for row in sessions if row["itemId"]])
    return sessions


def requeue(connection: Connection, run_id: str, item_ids: Iterable[str]) -> None:
    """Queue finished items again."""
    connection.update_many(
        "batch_items",
        tuple(_QUEUED),
        '"runId" = ? AND "id" = ?',
        [(*_QUEUED.values(), run_id, item_id) for item_id in item_ids],
    )


def request_abort(connection: Connection, run_id: str, now: datetime) -> None:
    """Ask the process that runs the batch to stop."""
    connection.run(
        'UPDATE "batches" SET "abortRequestedAt" = ? WHERE "runId" = ? AND "abortRequestedAt" IS NULL',
        (timestamp(now), run_id),
    )


def end_items(connection: Connection, run_id: str, reason: str, error: str, now: datetime) -> int:
    """End every unfinished item with the status `error`; return their number."""
    _end_sessions(connection, run_id, reason, error, now)
    sql = 'SELECT "id" FROM "batch_items" WHERE "runId" = ? AND "status" IN (?, ?)'
    unfinished = connection.values(str, sql, (run_id, QUEUED, RUNNING))
    ended = connection.update(
        "batch_items",
        {"status": ERROR, "reason": reason, "error": error, "finishedAt": timestamp(now)},
        '"runId" = ? AND "status" IN (?, ?)',
        (run_id, QUEUED, RUNNING),
    )
    sign_items(connection, run_id, unfinished)
    return ended


def finish(connection: Connection, run_id: str, status: str, reason: str, now: datetime) -> None:
    """Record the end of a batch."""
    connection.run(
        'UPDATE "batches" SET "status" = ?, "reason" = ?, '
        # Not before its start, even if the clock was set back meanwhile.
        '"finishedAt" = CASE WHEN "createdAt" > ? THEN "createdAt" ELSE ? END WHERE "runId" = ?',
        (status, reason, timestamp(now), timestamp(now), run_id),
    )
    sign_end(connection, run_id)


def save_merge(connection: Connection, session_id: str, merge: Merge, now: datetime) -> None:
    """Record an attempt to merge after the session has ended."""
    sql = 'SELECT MAX("position") FROM "merge_history" WHERE "sessionId" = ?'
    position = (connection.value(int, sql, (session_id,)) or 0) + 1
    row = merge_row(session_id, position, timestamp(now), merge)
    connection.insert("merge_history", row)


def delete_sessions(connection: Connection, session_ids: Sequence[str]) -> None:
    """Delete sessions of a run and every row that belongs to them."""
    # Imported late: only deleting needs it.
    from proctor.store.search import forget

    mine = places(session_ids)
    forget(connection, mine, session_ids)
    # With the spans that imported sessions were built from: they would be built again.
    for table in (*OF_A_SESSION, *BY_PEOPLE, "arrivals"):
        connection.run(f'DELETE FROM "{table}" WHERE "sessionId" IN ({mine})', session_ids)
    connection.run(f'DELETE FROM "sessions" WHERE "id" IN ({mine})', session_ids)


def delete(connection: Connection, run_id: str) -> None:
    """Delete a batch without sessions and every row that belongs to it."""
    for table in ("questions", "run_resources", "ledger", "signatures", "batch_items", "batches"):
        connection.run(f'DELETE FROM "{table}" WHERE "runId" = ?', (run_id,))
    connection.run('DELETE FROM "evaluations" WHERE "id" = ?', (run_id,))
    # Makes its encrypted texts unreadable in copies of the store, too.
    connection.run('DELETE FROM "data_keys" WHERE "scope" = ?', (run_id,))


def _end_sessions(
    connection: Connection,
    run_id: str,
    reason: str,
    error: str,
    when: datetime,
    session_ids: Sequence[str] = (),
) -> None:
    """End interrupted sessions, all or these, with the sums of their recorded events."""
    running: tuple[object, ...] = (run_id, RUNNING, *session_ids)
    are_running = '"runId" = ? AND "status" = ?'
    if session_ids:
        are_running += f' AND "id" IN ({places(session_ids)})'
    of_session = 'FROM "{}" c WHERE c."sessionId" = "sessions"."id"'
    calls, tools = of_session.format("model_calls"), of_session.format("tool_calls")
    free = literals(sorted(FREE))
    prompt, completion = 'COALESCE(SUM(c."promptTokens"), 0)', 'COALESCE(SUM(c."completionTokens"), 0)'
    sums = {
        "promptTokens": f"{prompt} {calls}",
        "cachedTokens": f'COALESCE(SUM(c."cachedTokens"), 0) {calls}',
        "completionTokens": f"{completion} {calls}",
        "reasoningTokens": f'COALESCE(SUM(c."reasoningTokens"), 0) {calls}',
        "totalTokens": f"{prompt} + {completion} {calls}",
        "costUsd": f'SUM(c."costUsd") {calls}',
        "modelCalls": f"COUNT(*) {calls}",
        "unpricedCalls": f'COUNT(*) {calls} AND c."costUsd" IS NULL AND c."status" NOT IN ({free})',
        "toolCalls": f"COUNT(*) {tools}",
    }
    cut_off = connection.values(str, f'SELECT "itemId" FROM "sessions" WHERE {are_running}', running)
    connection.update(
        "sessions",
        {"status": ERROR, "endReason": reason, "error": error, "finishedAt": timestamp(when)},
        are_running,
        running,
        computed={name: f"(SELECT {selected})" for name, selected in sums.items()},
    )
    attempts = 'FROM "sessions" s WHERE s."runId" = "batch_items"."runId" AND s."itemId" = "batch_items"."id"'
    connection.run_many(
        f'UPDATE "batch_items" SET "tokensTotal" = (SELECT COALESCE(SUM(s."totalTokens"), 0) {attempts}), '
        f'"toolCalls" = (SELECT COALESCE(SUM(s."toolCalls"), 0) {attempts}), '
        f'"costUsd" = (SELECT SUM(s."costUsd") {attempts}) WHERE "runId" = ? AND "id" = ?',
        [(run_id, item_id) for item_id in cut_off],
    )


def moment(text: str | None) -> datetime | None:
    """Parse a timestamp of the store."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise StoreError(
            f"the store is damaged: a time in it cannot be read: {text!r}\n"
            "See what else is damaged: proctor store check"
        ) from error


def with_current_status(row: BatchRow, now: datetime) -> BatchRow:
    """A batch with its current status: if its process died, its row still says `running`."""
    if row["status"] == RUNNING and not is_alive(row["owner"], moment(row["heartbeatAt"]), now):
        return extended(BatchRow, row, status=INTERRUPTED, reason=_KILLED, crashes=row.get("crashes", 0) + 1)
    return extended(BatchRow, row)


# Questions to people who play actors.

LONGEST_ANSWER = 200_000
"""In characters."""


def ask(connection: Connection, run_id: str, item_id: str, actor: str, prompt: str, now: datetime) -> str:
    """Ask a question on behalf of a running item; return its id.

    A resumed run asks its questions again: one that was answered is reused, an unanswered one replaced.
    """
    mine = '"runId" = ? AND "itemId" = ? AND "actor" = ?'
    is_asked, prompts = connection.is_one_of("prompt", "questions.prompt", [prompt])
    known = connection.value(
        str,
        f'SELECT "id" FROM "questions" WHERE {mine} AND {is_asked} AND "answeredAt" IS NOT NULL',
        (run_id, item_id, actor, *prompts),
    )
    if known:
        return known
    connection.run(f'DELETE FROM "questions" WHERE {mine} AND "answeredAt" IS NULL', (run_id, item_id, actor))
    last = 'SELECT MAX("position") FROM "questions" WHERE "runId" = ? AND "itemId" = ?'
    position = (connection.value(int, last, (run_id, item_id)) or 0) + 1
    question_id = f"{item_id}-{position}"
    of_item = 'SELECT "sessionId" FROM "batch_items" WHERE "runId" = ? AND "id" = ?'
    session_id = connection.value(str, of_item, (run_id, item_id)) or ""
    row = (run_id, question_id, item_id, session_id, position, actor, prompt, timestamp(now), None, None)
    connection.insert("questions", row)
    return question_id


def open_questions(connection: Connection, run_id: str) -> list[QuestionRow]:
    """Unanswered questions of running batches, oldest first; `run_id` "": of all."""
    rows = connection.rows(
        'SELECT q.* FROM "questions" q JOIN "batches" b ON b."runId" = q."runId" '
        'WHERE q."answeredAt" IS NULL AND b."status" = ? AND (q."runId" = ? OR ? = \'\') '
        'ORDER BY q."askedAt", q."id"',
        (RUNNING, run_id, run_id),
    )
    return cast("list[QuestionRow]", rows)


def answer(connection: Connection, run_id: str, question_id: str, text: str, now: datetime) -> None:
    """Answer a question. Raises if it does not exist or has been answered."""
    if not text.strip():
        raise UsageError("the answer is empty")
    if len(text) > LONGEST_ANSWER:
        raise UsageError(f"the answer has {len(text):,} characters; the maximum is {LONGEST_ANSWER:,}")
    # Only if unanswered: of two simultaneous answers, the first counts.
    written = connection.update(
        "questions",
        {"answer": text.strip(), "answeredAt": timestamp(now)},
        '"runId" = ? AND "id" = ? AND "answeredAt" IS NULL',
        (run_id, question_id),
    )
    if not written:
        if connection.count('"questions" WHERE "runId" = ? AND "id" = ?', (run_id, question_id)):
            raise UsageError(f"the question {question_id} has already been answered")
        raise NotFound(f"run {run_id} has no open question {question_id}")


def answer_of(connection: Connection, run_id: str, question_id: str) -> str | None:
    """The answer; None: not answered yet."""
    return connection.value(
        str, 'SELECT "answer" FROM "questions" WHERE "runId" = ? AND "id" = ?', (run_id, question_id)
    )


def withdraw(connection: Connection, run_id: str, question_id: str) -> None:
    """Delete an unanswered question."""
    connection.run(
        'DELETE FROM "questions" WHERE "runId" = ? AND "id" = ? AND "answeredAt" IS NULL',
        (run_id, question_id),
    )


TEXTS: Mapping[str, Mapping[str, str]] = {
    "tool_calls": {"argsJson": "'{}'", "result": "''"},
    "model_calls": {"request": "''", "response": "''"},
    "iterations": {"testOutput": "''", "output": "''", "setupOutput": "''"},
    "scores": {"explanation": "''"},
}
"""Texts of a session that no figure needs, and what they become, by table and column. Rows of `messages` are
deleted."""
_SESSION_TABLES = ("sessions", *OF_A_SESSION)


def run_sizes(connection: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Bytes of the rows and long texts of runs; a long text that several runs share counts in each."""
    sizes = dict.fromkeys(run_ids, 0)
    if not run_ids:
        return sizes
    chosen = f'"runId" IN ({places(run_ids)})'
    queries = [
        f'SELECT "runId", SUM({_length(table)}) AS "n" FROM "{table}" WHERE {chosen} GROUP BY "runId"'
        for table in ("batches", "batch_items", "run_resources", "signatures", "sessions")
    ]
    queries += [
        f'SELECT s."runId", SUM({_length(table, "t.")}) AS "n" FROM "{table}" t '
        f'JOIN "sessions" s ON s."id" = t."sessionId" WHERE s.{chosen} GROUP BY s."runId"'
        for table in OF_A_SESSION
    ]
    references = " UNION ".join(
        f'SELECT s."runId", t."{column}" AS "digest" FROM "{table}" t JOIN "sessions" s '
        f'ON s."id" = t."{"id" if table == "sessions" else "sessionId"}" '
        f'WHERE s.{chosen} AND t."{column}" IS NOT NULL'
        for table, column in _blob_columns()
    )
    blobs = (
        f'SELECT r."runId", SUM(LENGTH(b."data")) AS "n" FROM ({references}) r '
        'JOIN "blobs" b ON b."digest" = r."digest" GROUP BY r."runId"'
    )
    for query in queries:
        for row in connection.rows(query, run_ids):
            sizes[row["runId"]] += int(row["n"])
    for row in connection.rows(blobs, list(run_ids) * len(_blob_columns())):
        sizes[row["runId"]] += int(row["n"])
    return sizes


def delete_texts(connection: Connection, session_ids: Sequence[str]) -> None:
    """Delete the texts of sessions; their scores, costs, tokens and times stay."""
    # Imported late: only deleting needs it.
    from proctor.store.search import forget

    mine = places(session_ids)
    forget(connection, mine, session_ids)
    connection.run(f'DELETE FROM "messages" WHERE "sessionId" IN ({mine})', session_ids)
    for table, columns in TEXTS.items():
        assigned = [f'"{column}" = {value}' for column, value in columns.items()]
        assigned += [f'"{column}Blob" = NULL' for column in columns]
        connection.run(
            f'UPDATE "{table}" SET {", ".join(assigned)} WHERE "sessionId" IN ({mine})', session_ids
        )


def ended_before(connection: Connection, before: str) -> list[str]:
    """Runs that ended before a time, oldest first; one that was killed, by its last heartbeat."""
    states = literals(("running",))
    return connection.values(
        str,
        'SELECT "runId" FROM "batches" WHERE COALESCE("finishedAt", "heartbeatAt", "createdAt") < ? '
        f'OR ("status" IN ({states}) AND COALESCE("heartbeatAt", "createdAt") < ?) ORDER BY "createdAt"',
        (before, before),
    )


def _blob_columns() -> list[tuple[str, str]]:
    return [(table, name) for table in _SESSION_TABLES for name in COLUMNS[table] if name.endswith("Blob")]


def _length(table: str, prefix: str = "") -> str:
    """The number of characters of a row, with 8 for each number."""
    return " + ".join(f'COALESCE(LENGTH(CAST({prefix}"{name}" AS TEXT)), 0)' for name in COLUMNS[table])
