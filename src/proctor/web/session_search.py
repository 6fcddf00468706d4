"""The Sessions page and its API: find sessions, count what they have in common, keep filters."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as PathParameter
from pydantic import Field
from starlette.responses import Response

from proctor.api import session_search as api
from proctor.api.session_search import SavedFilter, SessionFilter, SessionPage, SessionSearch
from proctor.api.session_trends import (
    By,
    SelectionComparison,
    SessionTrend,
    compare_selections,
    session_trend,
)
from proctor.api.sessions import select_sessions
from proctor.errors import NotFound
from proctor.web.access import person_of
from proctor.web.responses import ERRORS, page
from proctor.web.run_schemas import RowModel
from proctor.web.runs import EXPORTED, send_export
from proctor.web.state import AppState

INDEX_SECONDS = 0.25
"""Time for indexing transcripts before the results of a request."""
MOST_ROWS = 200
Texts = list[Annotated[str, Query(max_length=500, pattern=r"^[^\x00]*$")]] | None
Text = Annotated[str, Query(max_length=100, pattern=r"^[^\x00]*$")]


def session_filter(
    service: Annotated[Texts, Query(description="Only these services.")] = None,
    agent: Annotated[Texts, Query(description="Only these agents.")] = None,
    version: Annotated[Texts, Query(description="Only these versions of agents or services.")] = None,
    prompt: Annotated[Texts, Query(description="Only these named prompts, with version: `greet@3`.")] = None,
    model: Annotated[Texts, Query(description="Only these models, as served.")] = None,
    status: Annotated[Texts, Query(description="Only these statuses.")] = None,
    run: Annotated[Texts, Query(description="Only these runs.")] = None,
    job: Annotated[Texts, Query(description="Only these job types.")] = None,
    since: Annotated[Text, Query(description="Started at or after: `7d`, `36h`, or a date or time.")] = "",
    until: Annotated[Text, Query(description="Started before.")] = "",
    cost: Annotated[Text, Query(description="`LOW..HIGH` in USD; a limit may be missing.")] = "",
    tokens: Annotated[Text, Query(description="`LOW..HIGH`.")] = "",
    seconds: Annotated[Text, Query(description="`LOW..HIGH`, from start to end.")] = "",
    tool: Annotated[Texts, Query(description="Called one of these tools.")] = None,
    score: Annotated[Texts, Query(description="`EVALUATOR=LOW..HIGH` or `EVALUATOR`. All must hold.")] = None,
    label: Annotated[Texts, Query(description="The same for human labels.")] = None,
    tag: Annotated[Texts, Query(description="With one of these tags.")] = None,
    text: Annotated[
        str, Query(max_length=500, description="Words, phrases and beginnings (`begin*`) of the transcript.")
    ] = "",
    judges: Annotated[bool, Query(description="Only sessions of judges, otherwise left out.")] = False,
) -> SessionFilter:
    """The filter of a list of sessions."""
    return SessionFilter.make(
        service=service, agent=agent, version=version, prompt=prompt, model=model, status=status,
        run=run, job=job,
        since=since, until=until, cost=cost, tokens=tokens, seconds=seconds, tool=tool, score=score,
        label=label, tag=tag, text=text.replace("\0", ""), judges=judges,
    )  # fmt: skip


Filter = Annotated[SessionFilter, Depends(session_filter)]
Name = Annotated[str, PathParameter(min_length=1, max_length=api.LONGEST_NAME, pattern=r"^[^\x00/]+$")]


class SessionIdsAnswer(RowModel):
    """Sessions that a filter selects."""

    session_ids: Sequence[str] = Field(description="Newest first.")


class FiltersAnswer(RowModel):
    """Filters that people keep."""

    filters: list[SavedFilter] = Field(description="By name.")


def router(site: AppState) -> APIRouter:
    """The Sessions page and its routes."""
    routes = APIRouter(tags=["sessions"], responses=ERRORS)
    search = SessionSearch(site.context, seconds=INDEX_SECONDS)

    @routes.get("/sessions", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "sessions.html", title="Sessions")

    @routes.get("/api/sessions", summary="Find sessions of any origin")
    def found(
        wanted: Filter,
        after: Annotated[str, Query(max_length=500, description="`next` of the page before.")] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
    ) -> SessionPage:
        """Newest first, with counts by service, agent, version, prompt, model and status."""
        return search.page(wanted, after=after, limit=limit)

    @routes.get("/dashboard", include_in_schema=False)
    def show_dashboard(request: Request) -> Response:
        return page(request, "dashboard.html", title="Sessions over time")

    @routes.get("/api/session-trend", summary="Sessions over time: number, errors, cost, duration, scores")
    def trend(wanted: Filter, by: By = "") -> SessionTrend:
        """Of the last 30 days unless `since` says; by hour, day or month. A band holds for its whole line."""
        return session_trend(site.context, wanted, by=by)

    @routes.get("/api/session-compare", summary="Compare sessions with those of a kept filter")
    def compare(
        wanted: Filter,
        other: Annotated[str, Query(alias="with", min_length=1, max_length=api.LONGEST_NAME)],
    ) -> SelectionComparison:
        """Differences are of the filter minus the kept one; the two should not share sessions."""
        return compare_selections(site.context, wanted, api.saved_filter(site.context, other))

    @routes.get("/api/session-ids", summary="IDs of the sessions that a filter selects")
    def ids(
        wanted: Filter, limit: Annotated[int, Query(ge=1, le=api.MOST_SELECTED)] = 1000
    ) -> SessionIdsAnswer:
        return SessionIdsAnswer(session_ids=search.ids(wanted, limit=limit))

    @routes.get(
        "/api/session-export",
        summary="Export the sessions that a filter selects",
        response_class=Response,
        responses=EXPORTED,
    )
    async def export(
        wanted: Filter,
        session: Annotated[Texts, Query(max_length=500, description="Only these sessions.")] = None,
        format_: Annotated[Literal["json", "ndjson", "csv", "parquet"], Query(alias="format")] = "json",
    ) -> Response:
        """JSON is one document; the other formats have one file per table."""
        ids = session if session else await asyncio.to_thread(search.ids, wanted)
        scope = await asyncio.to_thread(select_sessions, site.context, session_ids=ids)
        if not scope.session_ids:
            raise NotFound("no session matches")
        return await send_export(site, scope, "sessions", format_)

    @routes.get("/api/session-filters", summary="Filters of sessions that people keep")
    def listed() -> FiltersAnswer:
        return FiltersAnswer(filters=api.saved_filters(site.context))

    @routes.post("/api/session-filters/{name}", summary="Keep a filter of sessions under a name")
    def save(request: Request, name: Name, wanted: Filter) -> FiltersAnswer:
        """The filter is that of the address; an earlier one of the name is replaced."""
        api.save_filter(site.context, name, wanted, author=person_of(request.scope))
        return FiltersAnswer(filters=api.saved_filters(site.context))

    @routes.delete("/api/session-filters/{name}", summary="Delete a kept filter")
    def delete(name: Name) -> FiltersAnswer:
        api.delete_filter(site.context, name)
        return FiltersAnswer(filters=api.saved_filters(site.context))

    return routes
