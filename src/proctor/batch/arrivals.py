"""What arrives by telemetry: kept at once, told as sessions soon after.

Introduces those who read spans to the store that keeps them. Whoever needs sessions, a job that looks for
them or a command that has just read a file, calls `tell_arrivals` first.

Knows nothing of where documents come from.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from proctor.batch.import_prices import priced
from proctor.imported import ImportedSession
from proctor.store import Store
from proctor.store.arrivals import Told
from proctor.telemetry.documents import Document
from proctor.telemetry.grouping import SessionName, mark_of
from proctor.telemetry.sessions import SOURCE, session_of

LONGEST_ERROR = 500
DOCUMENTS_AT_ONCE = 2_000
"""That are written in one transaction. A span takes some 4 kB until it is compressed."""


def keep_arrivals(
    store: Store,
    documents: Iterable[Document],
    now: datetime,
    *,
    log_group: str = "",
    fallback: str = "",
    service: str = "",
) -> int:
    """Keep documents; all are committed when this returns. How many they were.

    `log_group` is where their sender says they belong, `fallback` where they go if nobody says;
    `service` is for documents that name none.
    """
    count, waiting = 0, iter(documents)
    while some := list(islice(waiting, DOCUMENTS_AT_ONCE)):
        marked = (
            (mark_of(document, log_group=log_group, fallback=fallback, service=service), document)
            for document in some
        )
        store.arrivals.keep(marked, now)
        count += len(some)
    return count


def tell_arrivals(store: Store, now: datetime) -> Told:
    """Bring the sessions up to what has arrived. Costs one small query when they are."""
    if not store.arrivals.has_new():
        return Told()

    def tell(name: SessionName, documents: Sequence[Document], left_out: int) -> ImportedSession | None:
        session = _session_of(name, documents, left_out)
        return None if session is None else priced(session, now)

    return store.arrivals.tell(tell, now)


def _session_of(name: SessionName, documents: Sequence[Document], left_out: int) -> ImportedSession | None:
    try:
        return session_of(
            documents,
            external_id=name.external_id,
            service=name.service,
            log_group=name.log_group,
            left_out=left_out,
        )
    except Exception as error:
        # Anyone may send anything. What nobody can read is one bad session; raised, it would come up again
        # each time and keep every other session from being told.
        return _unreadable(name, error)


def _unreadable(name: SessionName, error: Exception) -> ImportedSession:
    return ImportedSession(
        external_id=name.external_id,
        source=SOURCE,
        service=name.service,
        log_group=name.log_group,
        name=name.external_id,
        status="error",
        end_reason="internal_error",
        error=f"what arrived of it cannot be read: {type(error).__name__}: {error}"[:LONGEST_ERROR],
    )
