"""Questions to people who play an actor in a scenario: what is open, and their answers.

Knows nothing of scenarios.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from proctor.store.database import Row
from proctor.store.questions import LONGEST_ANSWER
from proctor.web.answers import ERRORS
from proctor.web.site import Site


class Question(BaseModel):
    """Something a run waits to be told."""

    id: str
    itemId: str  # noqa: N815  names as in the record
    sessionId: str  # noqa: N815
    actor: str
    """Whom the person plays."""
    prompt: str
    askedAt: str  # noqa: N815


class Questions(BaseModel):
    """What a run waits to be told, the oldest first."""

    questions: list[Question]


class Said(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid")

    answer: Annotated[str, Field(min_length=1, max_length=LONGEST_ANSWER)]


class Taken(BaseModel):
    """The answer was taken down."""

    id: str


def router(site: Site) -> APIRouter:
    """What is asked and answered."""
    made = APIRouter(tags=["runs"])

    @made.get("/api/runs/{run_id}/questions", summary="What people are asked", responses=ERRORS)
    def listed(run_id: str) -> Questions:
        return Questions(questions=_open(site, site.store.read.batch(run_id, site.now())["runId"]))

    @made.post("/api/runs/{run_id}/questions/{question_id}", summary="Answer, once", responses=ERRORS)
    def answered(run_id: str, question_id: str, said: Said) -> Taken:
        site.store.answer_question(run_id, question_id, said.answer, site.now())
        return Taken(id=question_id)

    return made


class QuestionsTopic:
    """The open questions of one run."""

    def __init__(self, site: Site, run_id: str) -> None:
        self._site = site
        self._run_id = site.store.read.batch(run_id, site.now())["runId"]
        self._version = 1
        self._known: list[Question] = []

    async def state(self, version: int) -> tuple[int, Any]:
        """All that are open; there are never many."""
        found = await asyncio.to_thread(_open, self._site, self._run_id)
        if found != self._known:
            self._known = found
            self._version += 1
        changed = version != self._version
        return self._version, {"questions": [each.model_dump() for each in found]} if changed else None


def _open(site: Site, run_id: str) -> list[Question]:
    return [_question(row) for row in site.store.open_questions(run_id)]


def _question(row: Row) -> Question:
    return Question(
        id=row["id"],
        itemId=row["itemId"],
        sessionId=row["sessionId"] or "",
        actor=row["actor"],
        prompt=row["prompt"],
        askedAt=row["askedAt"],
    )
