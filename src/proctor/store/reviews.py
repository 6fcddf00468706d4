"""Sessions that wait for a review, and the iterations that a review led to."""

from proctor.item import RUNNING
from proctor.store.reader import StoreReader
from proctor.store.tables import SessionRow


def waiting_sessions(read: StoreReader, run_id: str = "", *, limit: int) -> list[SessionRow]:
    """Finished coding sessions with commits, newest first: last attempts that were neither merged nor
    continued. Empty `run_id`: of all runs."""
    where, parameters = ('AND s."runId" = ? ', [run_id]) if run_id else ("", [])
    return read.rows(
        SessionRow,
        'SELECT s.* FROM "sessions" s '
        'JOIN "batch_items" i ON i."runId" = s."runId" AND i."id" = s."itemId" AND i."sessionId" = s."id" '
        f"WHERE i.\"runner\" = 'worktree' AND s.\"branch\" <> '' AND s.\"status\" <> '{RUNNING}' {where}"
        'AND EXISTS (SELECT 1 FROM "iterations" t WHERE t."sessionId" = s."id" AND t."commitSha" <> \'\') '
        'AND NOT EXISTS (SELECT 1 FROM "merge_history" m WHERE m."sessionId" = s."id" '
        "AND m.\"result\" = 'success') "
        'AND NOT EXISTS (SELECT 1 FROM "sessions" n WHERE n."continues" = s."id") '
        'ORDER BY s."finishedAt" DESC, s."id" DESC LIMIT ?',
        (*parameters, limit),
    )


def iterations_of(read: StoreReader, session: SessionRow) -> list[SessionRow]:
    """A session and those that it continues, the first one first."""
    chain = [session]
    while chain[0]["continues"]:
        earlier = read.exact_session(chain[0]["continues"])
        if not earlier:
            break
        chain.insert(0, earlier[0])
    return chain


def continued_by(read: StoreReader, session_id: str) -> str:
    """The session that continues another one; empty: none does."""
    rows = read.rows(
        SessionRow,
        'SELECT * FROM "sessions" WHERE "continues" = ? ORDER BY "startedAt" DESC, "id" DESC LIMIT 1',
        (session_id,),
    )
    return rows[0]["id"] if rows else ""
