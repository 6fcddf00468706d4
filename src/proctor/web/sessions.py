"""The Session page, and what it asks for: the session, its transcript a part at a time, its turns, its plots.

Knows nothing of how sessions come about.
"""

import asyncio
import json
import secrets
from collections import defaultdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import RedirectResponse, Response

from proctor.api.handles import session_diff
from proctor.errors import NotFound, ProctorError, UsageError
from proctor.formatting import short
from proctor.item import RUNNING
from proctor.jobs.scenario.folder import run_from_store
from proctor.report.charts import Point, line
from proctor.scenario.state import turn_as_plain
from proctor.store import transcripts
from proctor.store.database import extended
from proctor.store.tables import ItemRow, SessionRow
from proctor.store.transcripts import HEAD_CHARACTERS, PART_CHARACTERS, TranscriptPiece, search
from proctor.web.actions import POLL_SECONDS
from proctor.web.launching import error_message
from proctor.web.responses import ERRORS, page
from proctor.web.run_schemas import (
    AttemptShape,
    BranchAnswer,
    ChartsAnswer,
    ChartShape,
    DiffAnswer,
    EventsAnswer,
    EventShape,
    HitShape,
    ItemOfSession,
    MergeShape,
    MetricShape,
    ScoreShape,
    SearchAnswer,
    SessionAnswer,
    SessionId,
    StepShape,
    TextAnswer,
    TextShape,
    TurnsAnswer,
)
from proctor.web.state import AppState

# A session as an answer: what was asked, how it went, what it cost, how it was judged.


MOST_DETAILS = 20_000
"""Characters; those of a scenario hold the whole scenario, which nobody reads here."""


MOST_METRICS = 2000


Row = dict[str, Any]


def find_session(site: AppState, session_id: str) -> SessionRow:
    """One session's row, by its id, or whatever else names it."""
    # By its whole id first, which an index knows; the other names are looked for in all sessions.
    found = site.store.read.exact_session(session_id)
    return found[0] if found else site.store.read.session(session_id)


def session_answer(site: AppState, session_id: str) -> SessionAnswer:
    """A session, whole but for its transcript."""
    read = site.store.read
    row = find_session(site, session_id)
    id_ = row["id"]
    if row["status"] == RUNNING:
        # What it came to is written when it ends.
        row = extended(SessionRow, row, **transcripts.so_far(read, id_))
    last, count = transcripts.extent(read, id_)
    attempts = read.attempts(row["runId"], row["itemId"]) if row["runId"] and row["itemId"] else [row]
    metrics = transcripts.first_metrics(read, id_, limit=MOST_METRICS)
    merges = [
        extended(Row, one, conflictFiles=json.loads(one["conflictFiles"]))
        for one in read.of_session("merge_history", id_)
    ]
    return SessionAnswer(
        **extended(Row, row, notes=json.loads(row["notes"]), standIn=bool(row["standIn"])),
        item=_item(site, row),
        attempts=[AttemptShape.model_validate(one) for one in attempts],
        steps=[StepShape.model_validate(_plain(step)) for step in transcripts.steps(read, id_)],
        scores=[ScoreShape.model_validate(score) for score in transcripts.judgements(read, id_)],
        merges=[MergeShape.model_validate(merge) for merge in merges],
        metrics=[MetricShape.model_validate(metric) for metric in metrics],
        last_position=last,
        event_count=count,
    )


def item_row(site: AppState, row: SessionRow) -> ItemRow | None:
    """The row of the item a session is an attempt at; None for a session that was imported."""
    if not row["runId"] or not row["itemId"]:
        return None
    found = site.store.read.exact_item(row["runId"], row["itemId"])
    return found[0] if found else None


def _item(site: AppState, row: SessionRow) -> ItemOfSession | None:
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


def _plain(step: Row) -> Row:
    return step | {name: vars_of(step[name]) for name in ("testOutput", "output")}


def vars_of(piece: transcripts.TranscriptPiece) -> Row:
    """A piece of text as an answer's member."""
    return {"text": piece.text, "size": piece.size, "isCut": piece.is_cut}


def no_turns(session_id: str) -> NotFound:
    """The error for a session that has no turns."""
    return NotFound(f"session {session_id} has no turns\nOnly sessions of a scenario have.")


MOST_EVENTS = 500


MOST_PLOTS = 12


def router(site: AppState) -> APIRouter:
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
        position: Annotated[int, PathParameter(ge=0, le=2**53)],
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
        step: Annotated[int, PathParameter(ge=0, le=2**53)],
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
            {
                name: vars_of(value) if isinstance(value, TranscriptPiece) else value
                for name, value in row.items()
            }
        )
        for row in found[:limit]
    ]
    return EventsAnswer(
        events=shown, last_position=shown[-1].position if shown else after, has_more=len(found) > limit
    )


def _part_of(whole: str, offset: int, limit: int) -> TextAnswer:
    piece = whole[offset : offset + limit]
    return _text(
        TranscriptPiece(text=piece, size=len(whole), is_cut=offset + len(piece) < len(whole)), offset
    )


def _text(piece: TranscriptPiece, offset: int) -> TextAnswer:
    return TextAnswer(text=piece.text, size=piece.size, is_cut=piece.is_cut, offset=offset)


def _over_steps(site: AppState, session_id: str) -> list[ChartShape]:
    rows = transcripts.metrics_over_steps(site.store.read, session_id)
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


# What a session changed, and what becomes of its branch.


SHOWN_CHARACTERS = 1_000_000
"""Of a patch; more is nothing to read in a page, and can be had as a file."""


def diffs_router(site: AppState) -> APIRouter:
    """The routes about the branch of a session."""
    made = APIRouter(prefix="/api/sessions", tags=["sessions"], responses=ERRORS)

    @made.get(
        "/{session_id}/diff",
        summary="What a session changed",
        response_model=DiffAnswer,
        responses={200: {"content": {"text/x-patch": {}}}},
    )
    def diff(
        session_id: SessionId,
        format_: Annotated[
            Literal["json", "patch"], Query(alias="format", description="`patch` is the patch itself, whole.")
        ] = "json",
    ) -> Any:
        """As a patch against what it began from; also after it was merged, as long as git knows it."""
        row = find_session(site, session_id)
        if format_ == "patch":
            headers = {"content-disposition": f'attachment; filename="{row["id"]}.patch"'}
            text = _patch_or_refusal(site, row)
            return Response(text.encode("utf-8", "replace"), media_type="text/x-patch", headers=headers)
        return _diff(site, row)

    @made.post("/{session_id}/merge", summary="Bring a session's work onto its base branch")
    async def merge(session_id: SessionId) -> BranchAnswer:
        """Squashed, checked again if the base branch has moved, fast-forwarded. Never pushes."""
        id_ = await asyncio.to_thread(_with_branch, site, session_id)
        done = await _commanded(site, ["sessions", "merge", id_, "--json"], f"merge-{id_}")
        return BranchAnswer(session_id=id_, result=done.get("result", "error"), message=done.get("error", ""))

    @made.post("/{session_id}/discard", summary="Remove a session's branch and work tree")
    async def discard(session_id: SessionId) -> BranchAnswer:
        """The record of the session stays."""
        id_ = await asyncio.to_thread(_with_branch, site, session_id)
        words = ["sessions", "cleanup", id_, "--branches", "--yes", "--json"]
        done = await _commanded(site, words, f"discard-{id_}")
        return BranchAnswer(session_id=id_, result="discarded", message="; ".join(done.get("kept", [])))

    return made


def _with_branch(site: AppState, session_id: str) -> str:
    row = find_session(site, session_id)
    if not row["branch"]:
        raise UsageError(f"session {row['id']} has no branch\nOnly sessions of a repository have one.")
    return str(row["id"])


async def _commanded(site: AppState, words: list[str], name: str) -> dict[str, Any]:
    """Have a command do it, whoever goes away meanwhile; its document."""
    launched = await asyncio.to_thread(site.launcher.start, words, f"{name}-{secrets.token_hex(3)}")
    while launched.process.poll() is None:
        await asyncio.sleep(POLL_SECONDS)
    document = launched.document
    if set(document) <= {"error", "problems"}:
        raise UsageError(str(document.get("error") or error_message({}, launched.messages)))
    return document


def _patch_or_refusal(site: AppState, row: SessionRow) -> str:
    _with_branch(site, row["id"])
    try:
        return session_diff(site.store, row, site.environment)[0]
    except (ProctorError, OSError) as error:
        raise NotFound(f"the changes of {row['id']} cannot be read: {error}") from error


def _diff(site: AppState, row: SessionRow) -> DiffAnswer:
    about = {"branch": row["branch"], "base_branch": row["baseBranch"]}
    if not row["branch"]:
        return DiffAnswer(**about, state="none", diff="", is_cut=False, files=0)
    try:
        text, is_there = session_diff(site.store, row, site.environment)
    except (ProctorError, OSError) as error:
        problem = str(error).partition("\n")[0]
        return DiffAnswer(**about, state="unavailable", diff="", is_cut=False, files=0, problem=problem)
    merges = site.store.read.of_session("merge_history", row["id"])
    is_merged = any(merge["result"] == "success" for merge in merges)
    return DiffAnswer(
        **about,
        state="merged" if is_merged else "published" if is_there else "gone",
        diff=text[:SHOWN_CHARACTERS],
        is_cut=len(text) > SHOWN_CHARACTERS,
        files=text.count("\ndiff --git ") + text.startswith("diff --git "),
    )
