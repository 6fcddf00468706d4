"""The Session page and its API: session, transcript in parts, turns, charts, diff, annotations."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from pydantic import Field
from starlette.responses import RedirectResponse, Response

from proctor.api import labels
from proctor.api.branches import BranchChange, clean_up, find_branch, merge_problem
from proctor.api.following import OutputSoFar, output_so_far, send_message, stop_session
from proctor.api.labels import LONGEST_NOTE, AnnotationKind, SessionAnnotations, TagCount
from proctor.api.launch import send_back
from proctor.api.review import Comment, Feedback, WaitingSession, waiting
from proctor.api.sessions import (
    PART_CHARACTERS,
    EventPage,
    Outline,
    RunSession,
    Search,
    SessionChanges,
    TextPart,
    find_session,
)
from proctor.api.spans import SessionSpans, session_spans, span_document
from proctor.document import CaptionedChart
from proctor.json_values import CamelJson, as_whole_number
from proctor.web.access import person_of
from proctor.web.actions import errors_of_request
from proctor.web.responses import ERRORS, page
from proctor.web.rich_text import LONGEST_TEXT, Nodes, highlighted, rich_nodes
from proctor.web.run_schemas import ChartsAnswer, RowModel, SessionAnswer, SessionId, TurnsAnswer
from proctor.web.state import AppState

MOST_EVENTS = 500
MOST_CODE = 200
"""Files highlighted by one request."""
RICH = "Also as `nodes`: texts, and `[tag, attributes, ...children]`."


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedEventPage(EventPage):
    """The next events of a session, with their formatted messages."""

    nodes: Mapping[int, Nodes] | None = None
    """By position: messages that are formatted; the others are best shown as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormattedPart(TextPart):
    """A part of a long text, which may be formatted."""

    nodes: Nodes | None = None


class Code(RowModel, extra="forbid"):
    """Lines of code to highlight."""

    name: Annotated[str, Field(max_length=4096, description="A language, or the path of a file.")]
    lines: list[Annotated[str, Field(max_length=2100)]] = Field(max_length=5000)


class CodeList(RowModel, extra="forbid"):
    """Code of several files."""

    code: list[Code] = Field(max_length=MOST_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HighlightedCode(CamelJson):
    """Lines of code as nodes: texts, and elements as `[tag, attributes, text]`."""

    code: Sequence[Sequence[Nodes]]


def router(site: AppState) -> APIRouter:
    """The page of a session and the routes it uses."""
    routes = APIRouter(responses=ERRORS)

    def named(session_id: str) -> RunSession:
        return find_session(site.context, session_id)

    @routes.get("/sessions/{session_id}", include_in_schema=False)
    def show_page(request: Request, session_id: SessionId) -> Response:
        session = named(session_id)
        if session.id != session_id:
            return RedirectResponse(f"/sessions/{session.id}")
        return page(
            request,
            "session.html",
            title=session.name or f"Session {session.id[:12]}",
            session_id=session.id,
            run_id=session.run_id or "",
            job=session.kind,
            has_turns=session.has_turns,
        )

    @routes.get("/api/sessions/{session_id}", tags=["sessions"], summary="A session without its transcript")
    def session(session_id: SessionId) -> SessionAnswer:
        return SessionAnswer.model_validate(named(session_id).details())

    @routes.get(
        "/api/sessions/{session_id}/prompt", tags=["sessions"], summary="Part of the prompt of a session"
    )
    def prompt(
        session_id: SessionId,
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextPart:
        return named(session_id).prompt(offset=offset, limit=limit)

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
        rich: Annotated[bool, Query(description=RICH)] = False,
    ) -> FormattedEventPage:
        """Long texts are truncated; `texts` returns the rest."""
        found = named(session_id).events(after=after, limit=limit)
        nodes = {
            event["position"]: formatted
            for event in (found.events if rich else ())
            if event["kind"] == "message"
            and (formatted := rich_nodes(event["content"].text, markdown=event["role"] != "tool"))
        }
        return FormattedEventPage(
            events=found.events,
            last_position=found.last_position,
            has_more=found.has_more,
            nodes=nodes if rich else None,
        )

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
    ) -> Search:
        """Long sessions are searched in several requests; each continues after the last position."""
        return named(session_id).search(text, after=after, limit=limit)

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
    ) -> EventPage:
        """The same events without their texts."""
        return named(session_id).calls(after=after, limit=limit)

    @routes.get(
        "/api/sessions/{session_id}/outline",
        tags=["sessions"],
        summary="The events of a session in short, with the tokens and cost of its model calls",
        response_model_exclude_none=True,
    )
    def outline(session_id: SessionId) -> Outline:
        return named(session_id).outline()

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
        rich: Annotated[
            Literal["", "markdown", "data"],
            Query(description=f"{RICH} The part may be shorter than `limit`."),
        ] = "",
    ) -> FormattedPart:
        if not rich:
            return FormattedPart(**asdict(named(session_id).text(position, part, offset=offset, limit=limit)))
        found = named(session_id).text(position, part, offset=offset, limit=min(limit, LONGEST_TEXT))
        # Whole lines, so that each part is formatted on its own; what is part of a line is shown as it is.
        lines = found.text[: found.text.rfind("\n") + 1] if found.is_cut else found.text
        text, nodes = lines or found.text, rich_nodes(lines, markdown=rich == "markdown") if lines else None
        return FormattedPart(text=text, size=found.size, is_cut=found.is_cut, offset=offset, nodes=nodes)

    @routes.post("/api/highlighted", tags=["sessions"], summary="Code with its syntax highlighted")
    def highlighted_code(files: CodeList) -> HighlightedCode:
        """Lines of unknown languages, and very long ones, stay as they are."""
        return HighlightedCode(code=highlighted((file.name, file.lines) for file in files.code))

    @routes.get(
        "/api/sessions/{session_id}/steps/{step}/{part}",
        tags=["sessions"],
        summary="Part of the output of a step, of its check, or of the set-up",
    )
    def step_text(
        session_id: SessionId,
        step: Annotated[int, PathParameter(ge=0, le=2**53)],
        part: Literal["output", "testOutput", "setupOutput"],
        offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=PART_CHARACTERS)] = PART_CHARACTERS,
    ) -> TextPart:
        return named(session_id).step_text(step, part, offset=offset, limit=limit)

    @routes.get(
        "/api/sessions/{session_id}/output",
        tags=["sessions"],
        summary="What the agent of a running session has printed",
    )
    def output(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**53, description="`offset` of the last answer.")] = 0,
    ) -> OutputSoFar:
        """Whole lines that are no events, if it runs on this machine; at its end, it is in the step."""
        return output_so_far(site.context, named(session_id).id, after)

    @routes.get(
        "/api/sessions/{session_id}/spans", tags=["sessions"], summary="The spans of a received session"
    )
    def spans(session_id: SessionId) -> SessionSpans:
        """As a tree, each before those below it; empty if the session was not received as spans."""
        return session_spans(site.context, named(session_id).id)

    @routes.get(
        "/api/sessions/{session_id}/spans/{trace_id}/{span_id}",
        tags=["sessions"],
        summary="A span as it was received",
    )
    def span(
        session_id: SessionId,
        trace_id: Annotated[str, PathParameter(max_length=200)],
        span_id: Annotated[str, PathParameter(max_length=200)],
    ) -> dict[str, Any]:
        return span_document(site.context, named(session_id).id, trace_id, span_id)

    @routes.get("/api/sessions/{session_id}/turns", tags=["sessions"], summary="The turns of a scenario")
    def turns(
        session_id: SessionId,
        after: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=50)] = 10,
    ) -> TurnsAnswer:
        """Includes turns that earlier attempts completed."""
        turns = named(session_id).turns()
        selected = [dict(turn) for turn in turns if as_whole_number(turn["number"]) > after][:limit]
        return TurnsAnswer(turns=selected, total=len(turns))

    @routes.get(
        "/api/sessions/{session_id}/charts",
        tags=["sessions"],
        summary="Charts of a session's metrics over its steps",
    )
    def charts(session_id: SessionId) -> ChartsAnswer:
        charts = named(session_id).metric_charts()
        return ChartsAnswer(charts=[CaptionedChart(caption=name, svg=svg) for name, svg in charts.items()])

    return routes


MOST_COMMENTS = 500
"""Comments sent back by one request."""
File = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]


class NewComment(RowModel, extra="forbid"):
    """A comment on a line of a session's changes."""

    file: File
    line: Annotated[int, Field(ge=0, le=2**31, description="From 1; 0: the whole file.")] = 0
    side: Annotated[Literal["new", "old"], Field(description="`old`: a line that was removed.")] = "new"
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]


class NewFeedback(RowModel, extra="forbid"):
    """Comments for the agent of a session."""

    message: Annotated[str, Field(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")] = ""
    comments: list[NewComment] = Field(default_factory=list, max_length=MOST_COMMENTS)
    budget_usd: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None


class ContinuedAnswer(RowModel):
    """The run of the next iteration."""

    run_id: str


class NewMessage(RowModel, extra="forbid"):
    """A message to the agent of a running session."""

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]


class RequestedAnswer(RowModel):
    """A running session of which something was requested."""

    session_id: str


class ReviewAnswer(RowModel):
    """Finished sessions whose changes wait for a review."""

    sessions: list[WaitingSession] = Field(description="Newest first.")


def review_router(site: AppState) -> APIRouter:
    """The Review page, and the routes that reviewers use."""
    routes = APIRouter(tags=["sessions"], responses=ERRORS)

    @routes.get("/review", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "review.html", title="Review")

    @routes.get("/api/review", summary="Sessions whose changes were not merged, discarded, or sent back")
    def waiting_sessions(
        run: Annotated[str, Query(max_length=200, description="Only sessions of this run.")] = "",
    ) -> ReviewAnswer:
        return ReviewAnswer(sessions=waiting(site.context, run=run.replace("\0", "")))

    @routes.post(
        "/api/sessions/{session_id}/continue", summary="Send comments back to the agent of a session"
    )
    async def continue_session(session_id: SessionId, new: NewFeedback) -> ContinuedAnswer:
        """The agent continues on top of the session's branch. Responds as soon as a process runs it."""
        settings = await asyncio.to_thread(site.current_settings)
        session = await asyncio.to_thread(find_session, site.context, session_id)
        feedback = Feedback(
            session=session.id,
            message=new.message,
            comments=[Comment(**comment.model_dump()) for comment in new.comments],
            budget_usd=new.budget_usd,
        )
        with errors_of_request():
            run_id = await send_back(site.context, site.launcher, feedback, settings)
        return ContinuedAnswer(run_id=run_id)

    @routes.post("/api/sessions/{session_id}/messages", summary="Send a message to a running agent")
    def tell(session_id: SessionId, new: NewMessage) -> RequestedAnswer:
        """Only agents that read messages while they work, on this machine."""
        session = find_session(site.context, session_id)
        send_message(site.context, session.id, new.text)
        return RequestedAnswer(session_id=session.id)

    @routes.post("/api/sessions/{session_id}/stop", summary="Stop the agent of a running session")
    def stop(session_id: SessionId) -> RequestedAnswer:
        """Its changes are committed to its branch. The other items of its run go on."""
        session = find_session(site.context, session_id)
        stop_session(site.context, session.id)
        return RequestedAnswer(session_id=session.id)

    return routes


def diffs_router(site: AppState) -> APIRouter:
    """The routes about the branch of a session."""
    routes = APIRouter(prefix="/api/sessions", tags=["sessions"], responses=ERRORS)

    @routes.get(
        "/{session_id}/diff",
        summary="The diff of a session",
        response_model=SessionChanges,
        responses={200: {"content": {"text/x-patch": {}}}},
    )
    def diff(
        session_id: SessionId,
        format_: Annotated[
            Literal["json", "patch"], Query(alias="format", description="`patch`: the complete patch file.")
        ] = "json",
    ) -> object:
        """Against its base commit; also after the merge, as long as git keeps the commits."""
        session = find_session(site.context, session_id)
        if format_ == "patch":
            headers = {"content-disposition": f'attachment; filename="{session.id}.patch"'}
            text = session.patch().encode("utf-8", "replace")
            return Response(text, media_type="text/x-patch", headers=headers)
        return session.changes()

    @routes.post("/{session_id}/merge", summary="Merge a session into its base branch")
    async def merge(session_id: SessionId) -> BranchChange:
        """Squash merge, checked again if the base branch has changed. Never pushes."""
        settings = await asyncio.to_thread(site.current_settings)
        session = await asyncio.to_thread(find_session, site.context, session_id)
        with errors_of_request():
            branch = await asyncio.to_thread(find_branch, site.context, session.id, settings)
            merged = await branch.merge()
        return BranchChange(session_id=session.id, result=merged.result.result, message=merge_problem(merged))

    @routes.post("/{session_id}/discard", summary="Delete a session's branch and worktree")
    def discard(session_id: SessionId) -> BranchChange:
        """The record of the session stays."""
        session = find_session(site.context, session_id)
        with errors_of_request():
            session.require_branch()
            settings = site.current_settings()
            cleaned = clean_up(site.context, session=session.id, branches=True, settings=settings)
        kept = cleaned.problems if cleaned else ()
        return BranchChange(session_id=session.id, result="discarded", message="".join(kept))

    return routes


MOST_ANNOTATED = 1000
"""Sessions annotated by one request."""
Author = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]
Text = Annotated[str, Field(max_length=LONGEST_NOTE, pattern=r"^[^\x00]*$")]


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


class TagsAnswer(RowModel):
    """The tags in use."""

    tags: list[TagCount] = Field(description="The most frequent first.")


def annotations_router(site: AppState) -> APIRouter:
    """The routes of annotations."""
    routes = APIRouter(tags=["annotations"], responses=ERRORS)

    @routes.get(
        "/api/sessions/{session_id}/annotations", summary="Notes, stars, tags and ratings of a session"
    )
    def listed(session_id: SessionId) -> SessionAnnotations:
        return labels.annotations(site.context, find_session(site.context, session_id).id)

    @routes.post("/api/sessions/{session_id}/annotations", summary="Add a note, a star or a tag to a session")
    def add(request: Request, session_id: SessionId, new: NewAnnotation) -> SessionAnnotations:
        """A session has a tag once, and a star once per author. Ratings are labels of `Human.Rating`."""
        id_ = find_session(site.context, session_id).id
        labels.annotate(
            site.context, [id_], new.kind, new.text, author=person_of(request.scope) or new.author
        )
        return labels.annotations(site.context, id_)

    @routes.delete(
        "/api/sessions/{session_id}/annotations/{annotation_id}", summary="Delete a note, a star or a tag"
    )
    def delete(
        session_id: SessionId, annotation_id: Annotated[str, PathParameter(max_length=100)]
    ) -> SessionAnnotations:
        id_ = find_session(site.context, session_id).id
        labels.delete_annotation(site.context, id_, annotation_id.replace("\0", ""))
        return labels.annotations(site.context, id_)

    @routes.post("/api/annotations", summary="Add a note, a star or a tag to several sessions")
    def add_to_several(request: Request, new: NewAnnotations) -> AnnotatedAnswer:
        """All or none of them."""
        ids = list(dict.fromkeys(find_session(site.context, name).id for name in new.session_ids))
        author = person_of(request.scope) or new.author
        labels.annotate(site.context, ids, new.kind, new.text, author=author)
        return AnnotatedAnswer(sessions=len(ids))

    @routes.get("/api/tags", summary="The tags in use, with the number of sessions")
    def tags(
        run: Annotated[str, Query(max_length=200, description="Only sessions of this run.")] = "",
    ) -> TagsAnswer:
        return TagsAnswer(tags=labels.tags(site.context, run.replace("\0", "")))

    return routes
