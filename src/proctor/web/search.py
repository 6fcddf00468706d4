"""Search over runs, sessions and the transcripts of all sessions."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from proctor.api.search import StoreSearch, TranscriptHit, TranscriptSearch
from proctor.errors import UsageError
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RowModel
from proctor.web.state import AppState

INDEX_SECONDS = 0.25
"""Time for indexing before the results of a request."""
MOST_NAMED = 6
"""Runs and sessions in one answer."""
DEEPEST = 10_000


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
    hits: Sequence[TranscriptHit] = Field(description="Best first.")
    has_more: bool = Field(description="Whether there are more `hits`.")
    indexed: int = Field(description="Sessions whose transcripts are searched.")
    pending: int = Field(description="Sessions that are not indexed yet; each request indexes some.")
    problem: str = Field(description="Why transcripts are not searched; empty: they are.")


def router(site: AppState) -> APIRouter:
    """The route of searches."""
    routes = APIRouter(tags=["search"], responses=ERRORS)
    index = StoreSearch(site.context, seconds=INDEX_SECONDS)

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
        is_first = not (offset or run)
        found, problem = TranscriptSearch(), ""
        try:
            found = index.transcripts(text, run=run, offset=offset, limit=limit)
        except UsageError as error:
            problem = str(error).partition("\n")[0]
        return StoreSearchAnswer(
            runs=[NamedRunShape.model_validate(row) for row in index.runs(text, limit=MOST_NAMED)]
            if is_first
            else [],
            sessions=[NamedSessionShape.model_validate(row) for row in index.sessions(text, limit=MOST_NAMED)]
            if is_first
            else [],
            hits=found.hits,
            has_more=found.has_more,
            indexed=found.indexed,
            pending=found.pending,
            problem=problem,
        )

    return routes
