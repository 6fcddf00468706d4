"""Notes, stars, tags and ratings that people give to sessions."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from pydantic import Field

from proctor.store.annotations import (
    LONGEST_NOTE,
    RATING,
    Annotation,
    AnnotationKind,
    annotations,
    tag_counts,
)
from proctor.web.access import person_of
from proctor.web.evaluation_schemas import LabelShape
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import RowModel, SessionId
from proctor.web.sessions import find_session
from proctor.web.state import AppState

MOST_SESSIONS = 1000
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
        Field(min_length=1, max_length=MOST_SESSIONS),
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


def router(site: AppState) -> APIRouter:
    """The routes of annotations."""
    routes = APIRouter(tags=["annotations"], responses=ERRORS)

    @routes.get(
        "/api/sessions/{session_id}/annotations", summary="Notes, stars, tags and ratings of a session"
    )
    def listed(session_id: SessionId) -> AnnotationsAnswer:
        return _answer(site, find_session(site, session_id)["id"])

    @routes.post("/api/sessions/{session_id}/annotations", summary="Add a note, a star or a tag to a session")
    def add(request: Request, session_id: SessionId, new: NewAnnotation) -> AnnotationsAnswer:
        """A session has a tag once, and a star once per author. Ratings are labels of `Human.Rating`."""
        id_ = find_session(site, session_id)["id"]
        _save(site, [id_], new, person_of(request.scope))
        return _answer(site, id_)

    @routes.delete(
        "/api/sessions/{session_id}/annotations/{annotation_id}", summary="Delete a note, a star or a tag"
    )
    def delete(
        session_id: SessionId, annotation_id: Annotated[str, PathParameter(max_length=100)]
    ) -> AnnotationsAnswer:
        id_ = find_session(site, session_id)["id"]
        site.store.delete_annotation(id_, annotation_id.replace("\0", ""))
        return _answer(site, id_)

    @routes.post("/api/annotations", summary="Add a note, a star or a tag to several sessions")
    def add_to_several(request: Request, new: NewAnnotations) -> AnnotatedAnswer:
        """All or none of them."""
        ids = list(dict.fromkeys(find_session(site, each)["id"] for each in new.session_ids))
        _save(site, ids, new, person_of(request.scope))
        return AnnotatedAnswer(sessions=len(ids))

    @routes.get("/api/tags", summary="The tags in use, with the number of sessions")
    def tags(
        run: Annotated[str, Query(max_length=200, description="Only sessions of this run.")] = "",
    ) -> TagsAnswer:
        counts = tag_counts(site.store.read, run.replace("\0", ""))
        return TagsAnswer(tags=[TagShape.model_validate(each) for each in counts])

    return routes


def _save(site: AppState, session_ids: list[str], new: NewAnnotation, person: str) -> None:
    author = person or new.author.strip() or "someone"
    site.store.annotate(
        Annotation(session_ids=session_ids, kind=new.kind, text=new.text, author=author), site.now()
    )


def _answer(site: AppState, session_id: str) -> AnnotationsAnswer:
    rows = annotations(site.store.read, [session_id])
    labels = site.store.labels(evaluator=RATING, session_ids=[session_id])
    return AnnotationsAnswer(
        session_id=session_id,
        annotations=[AnnotationShape.model_validate(row) for row in rows],
        ratings=[LabelShape.model_validate(row) for row in labels],
    )
