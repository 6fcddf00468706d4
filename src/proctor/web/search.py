"""Search over runs, sessions and the transcripts of all sessions."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from proctor.errors import UsageError
from proctor.store.runs import RunFilter, page_of_batches
from proctor.store.search import IndexState
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RowModel
from proctor.web.state import AppState

INDEX_SECONDS = 0.25
"""Time for indexing before the results of a request."""
MOST_NAMED = 6
"""Runs and sessions in one answer."""
DEEPEST = 10_000


class SnippetShape(RowModel):
    """A piece of a text."""

    text: str
    is_match: bool


class TranscriptHitShape(RowModel):
    """A message or a tool call that matches."""

    session_id: str
    run_id: str = Field(description="Empty: an imported session.")
    item_id: str
    job: str
    status: str
    agent: str
    model: str
    started_at: str | None
    position: int
    kind: str = Field(description="`message` or `tool_call`.")
    name: str = Field(description="The role or the tool.")
    part: str = Field(description="The text with the match: `content`, `argsJson` or `result`.")
    snippet: list[SnippetShape]


class NamedRunShape(RowModel):
    """A run whose ID or plan matches."""

    run_id: str
    job: str
    status: str
    created_at: str
    plan_path: str


class NamedSessionShape(RowModel):
    """A session whose ID, name or branch matches."""

    id: str
    run_id: str | None
    name: str
    agent: str
    model: str
    status: str
    started_at: str | None


class StoreSearchAnswer(RowModel):
    """Runs, sessions and events of transcripts that match."""

    runs: list[NamedRunShape] = Field(description="Newest first; only on the first page.")
    sessions: list[NamedSessionShape] = Field(description="Newest first; only on the first page.")
    hits: list[TranscriptHitShape] = Field(description="Best first.")
    has_more: bool = Field(description="Whether there are more `hits`.")
    indexed: int = Field(description="Sessions whose transcripts are searched.")
    pending: int = Field(description="Sessions that are not indexed yet; each request indexes some.")
    problem: str = Field(description="Why transcripts are not searched; empty: they are.")


def router(site: AppState) -> APIRouter:
    """The route of searches."""
    routes = APIRouter(tags=["search"], responses=ERRORS)
    index = _FreshIndex(site)

    @routes.get("/api/search", summary="Search runs, sessions and all transcripts")
    def search(
        text: Annotated[
            str,
            Query(
                min_length=1,
                max_length=500,
                description='Words that must all occur, `"phrases"`, and beginnings of words (`begin*`).',
            ),
        ],
        run: Annotated[str, Query(max_length=200, description="Only transcripts of this run.")] = "",
        offset: Annotated[int, Query(ge=0, le=DEEPEST)] = 0,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> StoreSearchAnswer:
        """Searches fill the index: the first one of a large store may return less than a later one."""
        text, run = text.replace("\0", ""), run.replace("\0", "")
        answer = StoreSearchAnswer(
            runs=_runs(site, text) if not (offset or run) else [],
            sessions=_sessions(site, text) if not (offset or run) else [],
            hits=[],
            has_more=False,
            indexed=0,
            pending=0,
            problem="",
        )
        try:
            state = index.update()
            page = site.store.search_index.search(text, run_id=run, offset=offset, limit=limit)
        except UsageError as error:
            answer.problem = str(error).partition("\n")[0]
            return answer
        answer.hits = [TranscriptHitShape.model_validate(asdict(hit)) for hit in page.hits]
        answer.has_more, answer.indexed, answer.pending = page.has_more, state.indexed, state.pending
        return answer

    return routes


class _FreshIndex:
    """Indexes new sessions before a search, unless nothing was written since the last one."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._latest: tuple[int, IndexState] | None = None

    def update(self) -> IndexState:
        """Index what was written since the last call, for a limited time; how far the index is."""
        version = self._site.store.commits()
        if self._latest and self._latest[0] == version and not self._latest[1].pending:
            return self._latest[1]
        state = self._site.store.search_index.update(seconds=INDEX_SECONDS)
        # Counted before: what was written meanwhile is not missed.
        self._latest = (version, state)
        return state


def _runs(site: AppState, text: str) -> list[NamedRunShape]:
    rows = page_of_batches(site.store.read, RunFilter(search=text), site.now(), limit=MOST_NAMED)
    return [NamedRunShape.model_validate(row) for row in rows]


def _sessions(site: AppState, text: str) -> list[NamedSessionShape]:
    rows = site.store.search_index.named_sessions(text, limit=MOST_NAMED)
    return [NamedSessionShape.model_validate(row) for row in rows]
