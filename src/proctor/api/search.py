"""Search over runs, sessions and the transcripts of all sessions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.store.runs import ListedBatch, RunFilter, page_of_batches
from proctor.store.search import IndexState, TranscriptHit, parse_query
from proctor.store.tables import SessionRow

__all__ = ["StoreSearch", "TranscriptHit", "TranscriptSearch"]
NO_WORDS = "the search text has no words\nPass words, phrases in quotation marks, or begin*."


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptSearch:
    """Events of transcripts that match."""

    hits: Sequence[TranscriptHit] = ()
    """Best first."""
    has_more: bool = False
    """Whether there are more `hits`."""
    indexed: int = 0
    """Sessions whose transcripts are searched."""
    pending: int = 0
    """Sessions that are not indexed yet."""


class StoreSearch:
    """Searches a store. Each search first indexes what was written since the last one."""

    def __init__(
        self,
        ctx: RunContext,
        *,
        seconds: float | None = None,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """`seconds` limits the time for indexing before a search; `on_progress` is called with the numbers of
        indexed and of all sessions while some are left."""
        self._ctx, self._seconds, self._on_progress = ctx, seconds, on_progress
        self._latest: tuple[int, IndexState] | None = None

    def transcripts(self, text: str, *, run: str = "", offset: int = 0, limit: int = 20) -> TranscriptSearch:
        """Messages and tool calls of the sessions of a run, or of all, that have all words, phrases and
        beginnings (`begin*`) of a text."""
        if not parse_query(text):
            raise UsageError(NO_WORDS)
        store = self._ctx.store
        run_id = store.read.batch(run, self._ctx.now())["runId"] if run else ""
        state = self._update()
        page = store.search_index.search(text, run_id=run_id, offset=offset, limit=limit)
        return TranscriptSearch(
            hits=page.hits, has_more=page.has_more, indexed=state.indexed, pending=state.pending
        )

    def session_ids(self, text: str, *, limit: int) -> tuple[list[str], int]:
        """IDs of sessions with all words, phrases and beginnings of a text, in one of their events; and the
        number of sessions that are not indexed yet."""
        if not parse_query(text):
            raise UsageError(NO_WORDS)
        state = self._update()
        return self._ctx.store.search_index.session_ids(text, limit=limit), state.pending

    def runs(self, text: str, *, limit: int) -> list[ListedBatch]:
        """Runs whose ID or plan contains a text, newest first."""
        return page_of_batches(self._ctx.store.read, RunFilter(search=text), self._ctx.now(), limit=limit)

    def sessions(self, text: str, *, limit: int) -> list[SessionRow]:
        """Sessions whose ID begins with a text, or whose name or branch it is; newest first."""
        return self._ctx.store.search_index.named_sessions(text, limit=limit)

    def _update(self) -> IndexState:
        store = self._ctx.store
        version = store.commits()
        if self._latest and self._latest[0] == version and not self._latest[1].pending:
            return self._latest[1]
        state = store.search_index.update(seconds=self._seconds, on_progress=self._report)
        # Counted before: what was written meanwhile is not missed.
        self._latest = (version, state)
        return state

    def _report(self, state: IndexState) -> None:
        if state.pending:
            self._on_progress(state.indexed, state.indexed + state.pending)
