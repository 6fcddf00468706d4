"""The Session page, and what it asks for: the session, its transcript a part at a time, its turns, its plots.

Knows nothing of how sessions come about.
"""

from collections import defaultdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from proctor.batch.experiment import run_from_store
from proctor.report.charts import Point, line
from proctor.report.words import short
from proctor.scenario.state import turn_as_plain
from proctor.store import transcripts
from proctor.store.searching import search
from proctor.store.transcripts import PART_CHARACTERS, Piece
from proctor.web.answers import ERRORS, page
from proctor.web.session_document import find_session, item_row, no_turns, session_answer, vars_of
from proctor.web.session_shapes import (
    EventsAnswer,
    EventShape,
    HitShape,
    SearchAnswer,
    SessionAnswer,
    TurnsAnswer,
)
from proctor.web.shapes import ChartsAnswer, ChartShape, SessionId, TextAnswer
from proctor.web.site import Site

MOST_EVENTS = 500
MOST_PLOTS = 12


def router(site: Site) -> APIRouter:
    """The page of a session and the routes it uses."""
    made = APIRouter(responses=ERRORS)
    read = site.store.read

    @made.get("/sessions/{session_id}", include_in_schema=False)
    def shown(request: Request, session_id: SessionId) -> Response:
        row = find_session(site, session_id)
        if row["id"] != session_id:
            return RedirectResponse(f"/sessions/{row['id']}")
        title = row["name"] or f"Session {row['id'][:12]}"
        return page(request, "session.html", title=title, session_id=row["id"], run_id=row["runId"] or "")

    @made.get("/api/sessions/{session_id}", tags=["sessions"], summary="A session, but for its transcript")
    def session(session_id: SessionId) -> SessionAnswer:
        return session_answer(site, session_id)

    @made.get(
        "/api/sessions/{session_id}/prompt", tags=["sessions"], summary="A piece of what a session was asked"
    )
    def prompt(
        session_id: SessionId,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextAnswer:
        item = item_row(site, find_session(site, session_id))
        return _part_of(item["prompt"] if item else "", offset, limit)

    @made.get(
        "/api/sessions/{session_id}/events",
        tags=["sessions"],
        summary="What was said and done, in order",
        response_model_exclude_none=True,
    )
    def events(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**53, description="The position of the last one seen.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100,
    ) -> EventsAnswer:
        """Long texts are cut; the rest is asked for with `texts`."""
        found = transcripts.events(read, find_session(site, session_id)["id"], after=after, limit=limit + 1)
        return _events(found, after, limit)

    @made.get(
        "/api/sessions/{session_id}/search",
        tags=["sessions"],
        summary="Where a text occurs in messages and calls of tools",
    )
    def searched(
        session_id: SessionId,
        text: Annotated[str, Query(min_length=1, max_length=500, description="In any case.")],
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100,
    ) -> SearchAnswer:
        """A long session is looked through in several answers, each from where the last one ended."""
        found = search(read, find_session(site, session_id)["id"], text, after=after, limit=limit)
        return SearchAnswer(
            hits=[HitShape.model_validate(hit) for hit in found.hits],
            last_position=found.last_position,
            has_more=found.has_more,
        )

    @made.get(
        "/api/sessions/{session_id}/calls",
        tags=["sessions"],
        summary="Calls of models and tools: when, how long, what for, how much",
        response_model_exclude_none=True,
    )
    def calls(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 200,
    ) -> EventsAnswer:
        """The same events without what was said in them."""
        found = transcripts.calls(read, find_session(site, session_id)["id"], after=after, limit=limit + 1)
        return _events(found, after, limit)

    @made.get(
        "/api/sessions/{session_id}/texts/{position}/{part}",
        tags=["sessions"],
        summary="A piece of a long text of an event",
    )
    def text(
        session_id: SessionId,
        position: Annotated[int, Path(ge=0, le=2**53)],
        part: Literal["content", "argsJson", "result", "request", "response"],
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextAnswer:
        found = find_session(site, session_id)["id"]
        piece = transcripts.text_part(read, found, position, part, offset=offset, limit=limit)
        return _text(piece, offset)

    @made.get(
        "/api/sessions/{session_id}/steps/{step}/{part}",
        tags=["sessions"],
        summary="A piece of what a step put out, or of what its check printed",
    )
    def step_text(
        session_id: SessionId,
        step: Annotated[int, Path(ge=0, le=2**53)],
        part: Literal["output", "testOutput"],
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextAnswer:
        whole = transcripts.step_text(read, find_session(site, session_id)["id"], step, part)
        return _part_of(whole, offset, limit)

    @made.get(
        "/api/sessions/{session_id}/turns", tags=["sessions"], summary="The turns of a scenario, as played"
    )
    def turns(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=50)] = 10,
    ) -> TurnsAnswer:
        """With those that earlier attempts at the same run had finished."""
        row = find_session(site, session_id)
        item = item_row(site, row)
        if row["job"] != "scenario" or item is None:
            raise no_turns(row["id"])
        played = run_from_store(read, item).turns
        wanted = [turn_as_plain(turn) for turn in played if turn.number > after][:limit]
        return TurnsAnswer(turns=wanted, total=len(played))

    @made.get(
        "/api/sessions/{session_id}/charts", tags=["sessions"], summary="A session's metrics over its steps"
    )
    def charts(session_id: SessionId) -> ChartsAnswer:
        return ChartsAnswer(charts=_over_steps(site, find_session(site, session_id)["id"]))

    return made


def _events(found: list[dict[str, object]], after: int, limit: int) -> EventsAnswer:
    shown = [
        EventShape.model_validate(
            {name: vars_of(value) if isinstance(value, Piece) else value for name, value in row.items()}
        )
        for row in found[:limit]
    ]
    return EventsAnswer(
        events=shown, last_position=shown[-1].position if shown else after, has_more=len(found) > limit
    )


def _part_of(whole: str, offset: int, limit: int) -> TextAnswer:
    piece = whole[offset : offset + limit]
    return _text(Piece(text=piece, size=len(whole), is_cut=offset + len(piece) < len(whole)), offset)


def _text(piece: Piece, offset: int) -> TextAnswer:
    return TextAnswer(text=piece.text, size=piece.size, is_cut=piece.is_cut, offset=offset)


def _over_steps(site: Site, session_id: str) -> list[ChartShape]:
    rows = site.store.read.query(
        'SELECT "name", "step", "value" FROM "metrics" WHERE "sessionId" = ? AND "step" > 0 '
        'AND "value" IS NOT NULL ORDER BY "name", "step" LIMIT 20000',
        (session_id,),
    )
    series: dict[str, list[Point]] = defaultdict(list)
    for row in rows:
        series[row["name"]].append(
            Point(label=f"step {row['step']}", x=float(row["step"]), y=float(row["value"]))
        )
    # One point is no line.
    drawn = {name: points for name, points in series.items() if len(points) > 1}
    return [
        ChartShape(caption=name, svg=line(f"{name} over turns", points, x_axis="turn", say_y=short))
        for name, points in list(drawn.items())[:MOST_PLOTS]
    ]
