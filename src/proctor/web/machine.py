"""Models and agents: what is found here, and whether it answers.

Each answer is that of the command which says the same in a terminal (`proctor models`, `agents`, `doctor`),
run as a process of its own: looking around starts programs and waits for servers.

Knows nothing of models or agents itself.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.errors import ProctorError, UsageError
from proctor.web.answers import ERRORS, page
from proctor.web.launching import asked
from proctor.web.site import Site

LISTING_SECONDS = 60
TRYING_SECONDS = 240
AT_ONCE = 2
"""Such commands at a time, however many pages ask."""
Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Price(BaseModel):
    """US dollars per million tokens."""

    input: float
    output: float


class ModelFound(BaseModel):
    """A model that can be asked from here, or that is configured."""

    name: str
    source: str
    """Who has it."""
    answers: bool
    """Whether its server lists it."""
    remark: str
    standIn: bool  # noqa: N815  names as the command prints them
    price: Price | None
    """None: unknown."""
    priceSource: str  # noqa: N815


class ModelsFound(BaseModel):
    """The models there are."""

    models: list[ModelFound]
    silent: dict[str, str]
    """Providers whose list could not be had, and why."""


class AgentFound(BaseModel):
    """An agent that can be handed work."""

    name: str
    ready: bool
    version: str
    standIn: bool  # noqa: N815
    problem: str
    remedy: str


class AgentsFound(BaseModel):
    """The agents there are."""

    agents: list[AgentFound]


class Trial(BaseModel):
    """Whom to try."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = None
    """Make one small call of it; with an agent, that works on this one."""
    agent: Name | None = None
    """Give it a task of one file, in a repository made for it."""


class Verdict(BaseModel):
    """What became of a trial."""

    well: bool
    said: str
    remedy: str = ""


def router(site: Site) -> APIRouter:
    """The page, and what it asks."""
    made = APIRouter(tags=["models and agents"])
    at_once = asyncio.Semaphore(AT_ONCE)

    async def answer(words: Sequence[str], seconds: float) -> dict[str, Any]:
        async with at_once:
            try:
                _, document, told = await asked(site, words, seconds=seconds)
            except TimeoutError:
                raise ProctorError(f"no answer within {seconds:g} s") from None
        if not document:
            raise ProctorError(told.strip().removeprefix("proctor: ")[:1000] or "it said nothing")
        if isinstance(problem := document.get("error"), str):
            raise UsageError(problem)
        return document

    @made.get("/models", include_in_schema=False)
    def shown(request: Request) -> Response:
        return page(request, "models.html", title="Models and agents")

    @made.get("/api/models", summary="The models that can be asked from here", responses=ERRORS)
    async def models() -> ModelsFound:
        return ModelsFound.model_validate(await answer(["models", "--json"], LISTING_SECONDS))

    @made.get("/api/agents", summary="The agents, and whether each can be used here", responses=ERRORS)
    async def agents() -> AgentsFound:
        return AgentsFound.model_validate(await answer(["agents", "--json"], LISTING_SECONDS))

    @made.post("/api/trials", summary="Try a model or an agent, once and for real", responses=ERRORS)
    async def try_out(trial: Trial) -> Verdict:
        named = [f"--{name}={value}" for name, value in trial.model_dump(exclude_none=True).items()]
        if not named:
            raise UsageError("name a model or an agent to be tried")
        document = await answer(["doctor", *named, "--json"], TRYING_SECONDS)
        wrong = [found for found in document["findings"] if found["well"] is False]
        found = wrong[0] if wrong else document["findings"][-1]
        return Verdict(well=document["well"], said=found["said"], remedy=found["remedy"])

    return made
