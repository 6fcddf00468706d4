"""The Session page and its API: session, transcript in parts, turns, charts, diff, annotations."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from pydantic import Field
from starlette.responses import RedirectResponse, Response

from proctor.api.handles import session_diff
from proctor.batch.session_branch import (
    clean_up_session,
    find_branch,
    merge_branch,
    merge_problem,
    sessions_to_clean,
)
from proctor.errors import NotFound, ProctorError, UsageError
from proctor.formatting import short
from proctor.item import RUNNING
from proctor.jobs import job_of_run
from proctor.json_values import as_whole_number
from proctor.report.charts import Point, line
from proctor.store import transcripts
from proctor.store.annotations import (
    LONGEST_NOTE,
    RATING,
    Annotation,
    AnnotationKind,
    annotations,
    tag_counts,
)
from proctor.store.database import extended
from proctor.store.tables import ItemRow, SessionRow
from proctor.store.transcripts import (
    HEAD_CHARACTERS,
    OUTLINE_EVENTS,
    PART_CHARACTERS,
    TranscriptEvent,
    TranscriptPiece,
    TranscriptStep,
    search,
)
from proctor.web.access import person_of
from proctor.web.actions import errors_of_request
from proctor.web.evaluation_schemas import LabelShape
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
    OutlineAnswer,
    OutlineEntry,
    RowModel,
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

MOST_DETAILS = 20_000
"""Maximum characters of item details; those of scenarios contain the whole scenario and are omitted."""
MOST_METRICS = 2000
Row = dict[str, Any]


def find_session(site: AppState, session_id: str) -> SessionRow:
    """The row of a session by ID, prefix or name."""
    # By exact ID first, which is indexed; other names need a search.
    rows = site.store.read.exact_session(session_id)
    return rows[0] if rows else site.store.read.session(session_id)


def session_answer(site: AppState, session_id: str) -> SessionAnswer:
    """A session without its transcript."""
    read = site.store.read
    row = find_session(site, session_id)
    id_ = row["id"]
    if row["status"] == RUNNING:
        # Totals are written when it ends.
        row = extended(SessionRow, row, **transcripts.running_totals(read, id_))
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
        scores=[ScoreShape.model_validate(score) for score in transcripts.scores(read, id_)],
        merges=[MergeShape.model_validate(merge) for merge in merges],
        metrics=[MetricShape.model_validate(metric) for metric in metrics],
        last_position=last,
        event_count=count,
    )


def item_row(site: AppState, row: SessionRow) -> ItemRow | None:
    """The row of a session's item; None: an imported session."""
    if not row["runId"] or not row["itemId"]:
        return None
    rows = site.store.read.exact_item(row["runId"], row["itemId"])
    return rows[0] if rows else None


def _item(site: AppState, row: SessionRow) -> ItemOfSession | None:
    row_ = item_row(site, row)
    if row_ is None:
        return None
    prompt, details = row_["prompt"], row_["details"]
    return ItemOfSession(
        id=row_["id"],
        prompt=TextShape(
            text=prompt[:HEAD_CHARACTERS], size=len(prompt), is_cut=len(prompt) > HEAD_CHARACTERS
        ),
        repeat=row_["repeat"],
        status=row_["status"],
        factors=json.loads(row_["factors"]),
        details=json.loads(details) if len(details) <= MOST_DETAILS else {},
    )


def _plain(step: TranscriptStep) -> Row:
    return {**step, "testOutput": vars_of(step["testOutput"]), "output": vars_of(step["output"])}


def vars_of(piece: transcripts.TranscriptPiece) -> Row:
    """A piece of text as a response member."""
    return {"text": piece.text, "size": piece.size, "isCut": piece.is_cut}


def no_turns(session_id: str) -> NotFound:
    """The error for a session that has no turns."""
    return NotFound(f"session {session_id} has no turns\nOnly sessions of a scenario have.")


MOST_EVENTS = 500
MOST_PLOTS = 12


def router(site: AppState) -> APIRouter:
    """The page of a session and the routes it uses."""
    routes = APIRouter(responses=ERRORS)
    read = site.store.read

    @routes.get("/sessions/{session_id}", include_in_schema=False)
    def show_page(request: Request, session_id: SessionId) -> Response:
        row = find_session(site, session_id)
        if row["id"] != session_id:
            return RedirectResponse(f"/sessions/{row['id']}")
        title = row["name"] or f"Session {row['id'][:12]}"
        job = job_of_run(row["job"])
        return page(
            request, "session.html", title=title, session_id=row["id"], run_id=row["runId"] or "", job=job
        )

    @routes.get("/api/sessions/{session_id}", tags=["sessions"], summary="A session without its transcript")
    def session(session_id: SessionId) -> SessionAnswer:
        return session_answer(site, session_id)

    @routes.get(
        "/api/sessions/{session_id}/prompt", tags=["sessions"], summary="Part of the prompt of a session"
    )
    def prompt(
        session_id: SessionId,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextAnswer:
        item = item_row(site, find_session(site, session_id))
        return _part_of(item["prompt"] if item else "", offset, limit)

    @routes.get(
        "/api/sessions/{session_id}/events",
        tags=["sessions"],
        summary="Messages, tool calls and model calls, in order",
        response_model_exclude_none=True,
    )
    def events(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**53, description="Position of the last event received.")] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100,
    ) -> EventsAnswer:
        """Long texts are truncated; `texts` returns the rest."""
        rows = transcripts.events(read, find_session(site, session_id)["id"], after=after, limit=limit + 1)
        return _events(rows, after, limit)

    @routes.get(
        "/api/sessions/{session_id}/search",
        tags=["sessions"],
        summary="Search messages and tool calls",
    )
    def searched(
        session_id: SessionId,
        text: Annotated[str, Query(min_length=1, max_length=500, description="Case-insensitive.")],
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 100,
    ) -> SearchAnswer:
        """Long sessions are searched in several requests; each continues after the last position."""
        result = search(read, find_session(site, session_id)["id"], text, after=after, limit=limit)
        return SearchAnswer(
            hits=[HitShape.model_validate(hit) for hit in result.hits],
            last_position=result.last_position,
            has_more=result.has_more,
        )

    @routes.get(
        "/api/sessions/{session_id}/calls",
        tags=["sessions"],
        summary="Model and tool calls: time, duration, tokens, cost",
        response_model_exclude_none=True,
    )
    def calls(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 200,
    ) -> EventsAnswer:
        """The same events without their texts."""
        rows = transcripts.calls(read, find_session(site, session_id)["id"], after=after, limit=limit + 1)
        return _events(rows, after, limit)

    @routes.get(
        "/api/sessions/{session_id}/outline",
        tags=["sessions"],
        summary="The events of a session in short, with the tokens and cost of its model calls",
        response_model_exclude_none=True,
    )
    def outline(session_id: SessionId) -> OutlineAnswer:
        rows = transcripts.outline(read, find_session(site, session_id)["id"], limit=OUTLINE_EVENTS + 1)
        entries = [OutlineEntry.model_validate(row) for row in rows[:OUTLINE_EVENTS]]
        return OutlineAnswer(entries=entries, is_cut=len(rows) > OUTLINE_EVENTS)

    @routes.get(
        "/api/sessions/{session_id}/texts/{position}/{part}",
        tags=["sessions"],
        summary="Part of a long text of an event",
    )
    def text(
        session_id: SessionId,
        position: Annotated[int, PathParameter(ge=0, le=2**53)],
        part: Literal["content", "argsJson", "result", "request", "response"],
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextAnswer:
        id_ = find_session(site, session_id)["id"]
        piece = transcripts.text_part(read, id_, position, part, offset=offset, limit=limit)
        return _text(piece, offset)

    @routes.get(
        "/api/sessions/{session_id}/steps/{step}/{part}",
        tags=["sessions"],
        summary="Part of the output of a step or of its check",
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

    @routes.get("/api/sessions/{session_id}/turns", tags=["sessions"], summary="The turns of a scenario")
    def turns(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=50)] = 10,
    ) -> TurnsAnswer:
        """Includes turns that earlier attempts completed."""
        row = find_session(site, session_id)
        item = item_row(site, row)
        played = job_of_run(row["job"]).turns(item, site.store) if item else None
        if played is None:
            raise no_turns(row["id"])
        selected = [dict(turn) for turn in played if as_whole_number(turn["number"]) > after][:limit]
        return TurnsAnswer(turns=selected, total=len(played))

    @routes.get(
        "/api/sessions/{session_id}/charts",
        tags=["sessions"],
        summary="Charts of a session's metrics over its steps",
    )
    def charts(session_id: SessionId) -> ChartsAnswer:
        return ChartsAnswer(charts=_over_steps(site, find_session(site, session_id)["id"]))

    return routes


def _events(rows: Sequence[TranscriptEvent], after: int, limit: int) -> EventsAnswer:
    events = [
        EventShape.model_validate(
            {
                name: vars_of(value) if isinstance(value, TranscriptPiece) else value
                for name, value in row.items()
            }
        )
        for row in rows[:limit]
    ]
    return EventsAnswer(
        events=events, last_position=events[-1].position if events else after, has_more=len(rows) > limit
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
    # A line needs two points.
    drawn = {name: points for name, points in series.items() if len(points) > 1}
    return [
        ChartShape(caption=name, svg=line(f"{name} over turns", points, x_axis="turn", say_y=short))
        for name, points in list(drawn.items())[:MOST_PLOTS]
    ]


SHOWN_CHARACTERS = 1_000_000
"""Maximum characters of a diff on the page; the patch file has all of it."""


def diffs_router(site: AppState) -> APIRouter:
    """The routes about the branch of a session."""
    routes = APIRouter(prefix="/api/sessions", tags=["sessions"], responses=ERRORS)

    @routes.get(
        "/{session_id}/diff",
        summary="The diff of a session",
        response_model=DiffAnswer,
        responses={200: {"content": {"text/x-patch": {}}}},
    )
    def diff(
        session_id: SessionId,
        format_: Annotated[
            Literal["json", "patch"], Query(alias="format", description="`patch`: the complete patch file.")
        ] = "json",
    ) -> object:
        """Against its base commit; also after the merge, as long as git keeps the commits."""
        row = find_session(site, session_id)
        if format_ == "patch":
            headers = {"content-disposition": f'attachment; filename="{row["id"]}.patch"'}
            text = _patch(site, row)
            return Response(text.encode("utf-8", "replace"), media_type="text/x-patch", headers=headers)
        return _diff(site, row)

    @routes.post("/{session_id}/merge", summary="Merge a session into its base branch")
    async def merge(session_id: SessionId) -> BranchAnswer:
        """Squash merge, checked again if the base branch has changed. Never pushes."""
        settings = await asyncio.to_thread(site.current_settings)
        id_ = await asyncio.to_thread(_with_branch, site, session_id)
        with errors_of_request():
            branch = await asyncio.to_thread(find_branch, site.store, settings, id_)
            merged = await merge_branch(site.store, settings, branch, site.now)
        return BranchAnswer(session_id=id_, result=merged.result.result, message=merge_problem(merged))

    @routes.post("/{session_id}/discard", summary="Delete a session's branch and worktree")
    def discard(session_id: SessionId) -> BranchAnswer:
        """The record of the session stays."""
        id_ = _with_branch(site, session_id)
        with errors_of_request():
            (row,) = sessions_to_clean(site.store, site.now(), session=id_)
            kept = clean_up_session(site.current_settings(), row, branch=True)
        return BranchAnswer(session_id=id_, result="discarded", message=kept)

    return routes


def _with_branch(site: AppState, session_id: str) -> str:
    row = find_session(site, session_id)
    if not row["branch"]:
        raise UsageError(f"session {row['id']} has no branch\nOnly sessions of a repository have one.")
    return str(row["id"])


def _patch(site: AppState, row: SessionRow) -> str:
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


MOST_ANNOTATED = 1000
"""Sessions annotated by one request."""
Author = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
Text = Annotated[str, Field(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]


class AnnotationShape(RowModel):
    """A note, a star or a tag."""

    id: str
    kind: Literal["note", "star", "tag"]
    text: str = Field(description="The note or the tag; empty for a star.")
    author: str
    created_at: str


class AnnotationsAnswer(RowModel):
    """What people have written about a session."""

    session_id: str
    annotations: list[AnnotationShape] = Field(description="Oldest first.")
    ratings: list[LabelShape] = Field(description="Ratings from 1 to 5, one per person.")


class NewAnnotation(RowModel, extra="forbid"):
    """A new note, star or tag."""

    kind: AnnotationKind
    text: Text = Field(default="", description="The note or the tag; empty for a star.")
    author: Author = Field(default="", description="Ignored if the caller has a named token.")


class NewAnnotations(NewAnnotation, extra="forbid"):
    """A new note, star or tag of several sessions."""

    session_ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]],
        Field(min_length=1, max_length=MOST_ANNOTATED),
    ]


class AnnotatedAnswer(RowModel):
    """How many sessions were annotated."""

    sessions: int


class TagShape(RowModel):
    """A tag and its use."""

    text: str
    sessions: int


class TagsAnswer(RowModel):
    """The tags in use."""

    tags: list[TagShape] = Field(description="The most frequent first.")


def annotations_router(site: AppState) -> APIRouter:
    """The routes of annotations."""
    routes = APIRouter(tags=["annotations"], responses=ERRORS)

    @routes.get(
        "/api/sessions/{session_id}/annotations", summary="Notes, stars, tags and ratings of a session"
    )
    def listed(session_id: SessionId) -> AnnotationsAnswer:
        return _annotations(site, find_session(site, session_id)["id"])

    @routes.post("/api/sessions/{session_id}/annotations", summary="Add a note, a star or a tag to a session")
    def add(request: Request, session_id: SessionId, new: NewAnnotation) -> AnnotationsAnswer:
        """A session has a tag once, and a star once per author. Ratings are labels of `Human.Rating`."""
        id_ = find_session(site, session_id)["id"]
        _annotate(site, [id_], new, person_of(request.scope))
        return _annotations(site, id_)

    @routes.delete(
        "/api/sessions/{session_id}/annotations/{annotation_id}", summary="Delete a note, a star or a tag"
    )
    def delete(
        session_id: SessionId, annotation_id: Annotated[str, PathParameter(max_length=100)]
    ) -> AnnotationsAnswer:
        id_ = find_session(site, session_id)["id"]
        site.store.delete_annotation(id_, annotation_id.replace("\0", ""))
        return _annotations(site, id_)

    @routes.post("/api/annotations", summary="Add a note, a star or a tag to several sessions")
    def add_to_several(request: Request, new: NewAnnotations) -> AnnotatedAnswer:
        """All or none of them."""
        ids = list(dict.fromkeys(find_session(site, each)["id"] for each in new.session_ids))
        _annotate(site, ids, new, person_of(request.scope))
        return AnnotatedAnswer(sessions=len(ids))

    @routes.get("/api/tags", summary="The tags in use, with the number of sessions")
    def tags(
        run: Annotated[str, Query(max_length=200, description="Only sessions of this run.")] = "",
    ) -> TagsAnswer:
        counts = tag_counts(site.store.read, run.replace("\0", ""))
        return TagsAnswer(tags=[TagShape.model_validate(each) for each in counts])

    return routes


def _annotate(site: AppState, session_ids: list[str], new: NewAnnotation, person: str) -> None:
    author = person or new.author.strip() or "someone"
    site.store.annotate(
        Annotation(session_ids=session_ids, kind=new.kind, text=new.text, author=author), site.now()
    )


def _annotations(site: AppState, session_id: str) -> AnnotationsAnswer:
    rows = annotations(site.store.read, [session_id])
    labels = site.store.labels(evaluator=RATING, session_ids=[session_id])
    return AnnotationsAnswer(
        session_id=session_id,
        annotations=[AnnotationShape.model_validate(row) for row in rows],
        ratings=[LabelShape.model_validate(row) for row in labels],
    )
