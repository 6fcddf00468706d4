"""Questions to people, who answer in their own time from wherever they are.

Whoever plays a run puts a question here and looks for its answer; a page or a command of another process
shows what is open and writes the answer. An answer is written once.

Every function is one transaction's worth of work on a connection that has begun one.

Knows nothing of who asks, or of how questions are shown.
"""

from datetime import datetime

from proctor.errors import NotFound, UsageError
from proctor.item import RUNNING
from proctor.store.database import Connection, Row, insertion
from proctor.store.tables import COLUMNS
from proctor.store.writer import timestamp

LONGEST_ANSWER = 200_000
"""Characters: more than anyone types."""


def ask(connection: Connection, run_id: str, item_id: str, actor: str, prompt: str, now: datetime) -> str:
    """Put a question on behalf of an item that is being carried out; its id.

    A run that was cut off asks again what it asked before: what is answered already is not asked twice,
    and what nobody waits for any more is replaced.
    """
    mine = '"runId" = ? AND "itemId" = ? AND "actor" = ?'
    known = connection.rows(
        f'SELECT "id" FROM "questions" WHERE {mine} AND "prompt" = ? AND "answeredAt" IS NOT NULL',
        (run_id, item_id, actor, prompt),
    )
    if known:
        return str(known[0]["id"])
    connection.run(f'DELETE FROM "questions" WHERE {mine} AND "answeredAt" IS NULL', (run_id, item_id, actor))
    (last,) = connection.rows(
        'SELECT COALESCE(MAX("position"), 0) AS "n" FROM "questions" WHERE "runId" = ? AND "itemId" = ?',
        (run_id, item_id),
    )
    position = int(last["n"]) + 1
    question_id = f"{item_id}-{position}"
    found = connection.rows(
        'SELECT "sessionId" FROM "batch_items" WHERE "runId" = ? AND "id" = ?', (run_id, item_id)
    )
    session_id = (found[0]["sessionId"] if found else "") or ""
    row = (run_id, question_id, item_id, session_id, position, actor, prompt, timestamp(now), None, None)
    connection.run(insertion("questions", COLUMNS["questions"]), row)
    return question_id


def open_ones(connection: Connection, run_id: str) -> list[Row]:
    """What somebody waits for an answer to, the oldest first; of one batch, or with "" of all."""
    return connection.rows(
        'SELECT q.* FROM "questions" q JOIN "batches" b ON b."runId" = q."runId" '
        'WHERE q."answeredAt" IS NULL AND b."status" = ? AND (q."runId" = ? OR ? = \'\') '
        'ORDER BY q."askedAt", q."id"',
        (RUNNING, run_id, run_id),
    )


def answer(connection: Connection, run_id: str, question_id: str, text: str, now: datetime) -> None:
    """Answer a question. Raises when there is none such, or it was answered already."""
    if not text.strip():
        raise UsageError("an answer has to say something")
    if len(text) > LONGEST_ANSWER:
        raise UsageError(f"an answer may have {LONGEST_ANSWER:,} characters, not {len(text):,}")
    # Only where there is none: of two who answer at once, one comes too late.
    written = connection.run(
        'UPDATE "questions" SET "answer" = ?, "answeredAt" = ? '
        'WHERE "runId" = ? AND "id" = ? AND "answeredAt" IS NULL',
        (text.strip(), timestamp(now), run_id, question_id),
    )
    if not written:
        known = connection.rows(
            'SELECT 1 FROM "questions" WHERE "runId" = ? AND "id" = ?', (run_id, question_id)
        )
        if known:
            raise UsageError(f"the question {question_id} is answered already")
        raise NotFound(f"run {run_id} has no question {question_id}, or nobody waits for it any more")


def answer_of(connection: Connection, run_id: str, question_id: str) -> str | None:
    """What was answered; None: nothing yet."""
    rows = connection.rows(
        'SELECT "answer" FROM "questions" WHERE "runId" = ? AND "id" = ?', (run_id, question_id)
    )
    return rows[0]["answer"] if rows else None


def withdraw(connection: Connection, run_id: str, question_id: str) -> None:
    """Take back a question that nobody has answered: whoever asked waits no more."""
    connection.run(
        'DELETE FROM "questions" WHERE "runId" = ? AND "id" = ? AND "answeredAt" IS NULL',
        (run_id, question_id),
    )
