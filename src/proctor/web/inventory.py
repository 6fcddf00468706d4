"""Models and agents: what is found here, and whether it answers.

Each answer is that of the command which says the same in a terminal (`proctor models`, `agents`, `doctor`),
run as a process of its own: looking around starts programs and waits for servers.

Knows nothing of models or agents itself.
"""

import asyncio
import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor import __version__
from proctor.errors import NotFound, ProctorError, UsageError
from proctor.models.providers import PROVIDERS, Endpoint, find_endpoint, is_loopback
from proctor.web.launching import error_message, run_command
from proctor.web.responses import ERRORS, page
from proctor.web.state import AppState

LISTING_SECONDS = 60
TRYING_SECONDS = 240
AT_ONCE = 2
"""Such commands at a time, however many pages ask."""
Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


class PriceShape(BaseModel):
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
    price: PriceShape | None
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


class TrialRequest(BaseModel):
    """Whom to try."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = None
    """Make one small call of it; with an agent, that works on this one."""
    agent: Name | None = None
    """Give it a task of one file, in a repository made for it."""


class TrialAnswer(BaseModel):
    """What became of a trial."""

    well: bool
    said: str
    remedy: str = ""


def router(site: AppState) -> APIRouter:
    """The page, and what it asks."""
    routes = APIRouter(tags=["models and agents"])
    at_once = asyncio.Semaphore(AT_ONCE)

    async def answer(words: Sequence[str], seconds: float) -> dict[str, Any]:
        async with at_once:
            try:
                _, document, messages = await run_command(site, words, seconds=seconds)
            except TimeoutError:
                raise ProctorError(f"no answer within {seconds:g} s") from None
        if not document:
            raise ProctorError(error_message({}, messages) or "the command failed without a message")
        if isinstance(problem := document.get("error"), str):
            raise UsageError(problem)
        return document

    @routes.get("/models", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "models.html", title="Models and agents")

    @routes.get("/api/models", summary="The models that can be asked from here", responses=ERRORS)
    async def models() -> ModelsFound:
        return ModelsFound.model_validate(await answer(["models", "--json"], LISTING_SECONDS))

    @routes.get("/api/agents", summary="The agents, and whether each can be used here", responses=ERRORS)
    async def agents() -> AgentsFound:
        return AgentsFound.model_validate(await answer(["agents", "--json"], LISTING_SECONDS))

    @routes.post("/api/trials", summary="Try a model or an agent, once and for real", responses=ERRORS)
    async def try_out(trial: TrialRequest) -> TrialAnswer:
        named = [f"--{name}={value}" for name, value in trial.model_dump(exclude_none=True).items()]
        if not named:
            raise UsageError("name a model or an agent to be tried")
        document = await answer(["doctor", *named, "--json"], TRYING_SECONDS)
        wrong = [finding for finding in document["findings"] if finding["well"] is False]
        finding = wrong[0] if wrong else document["findings"][-1]
        return TrialAnswer(well=document["well"], said=finding["said"], remedy=finding["remedy"])

    return routes


# The manual of the JSON interface, as a page of ours: it loads nothing from outside.


METHODS = ("get", "post", "put", "delete", "patch")


def manual_router(_: AppState) -> APIRouter:
    """The page."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/api/docs")
    def show_page(request: Request) -> Response:
        document = request.app.openapi()
        groups: dict[str, list[dict[str, Any]]] = {}
        for operation in _operations(document):
            groups.setdefault(operation["group"], []).append(operation)
        schemas = {
            name: list(_members(schema))
            for name, schema in document.get("components", {}).get("schemas", {}).items()
            if schema.get("properties")
        }
        return page(request, "manual.html", title="HTTP interface", groups=groups, schemas=schemas)

    return routes


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path, entry in document["paths"].items():
        for method in METHODS:
            if method not in entry:
                continue
            operation = entry[method]
            yield {
                "group": (operation.get("tags") or ["other"])[0],
                "method": method.upper(),
                "path": path,
                "summary": operation.get("summary", ""),
                "description": operation.get("description", ""),
                "parameters": [_parameter(each) for each in operation.get("parameters", ())],
                "body": _schema_of(operation.get("requestBody")),
                "answers": [
                    {"status": status, "schema": _schema_of(answer), "said": answer.get("description", "")}
                    for status, answer in operation.get("responses", {}).items()
                ],
            }


def _parameter(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": each["name"],
        "where": each["in"],
        "required": each.get("required", False),
        "type": _kind(each.get("schema", {})),
        "said": each.get("description") or each.get("schema", {}).get("description", ""),
    }


def _members(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    needed = schema.get("required", ())
    for name, about in schema["properties"].items():
        yield {
            "name": name,
            "type": _kind(about),
            "required": name in needed,
            "said": about.get("description", ""),
        }


def _schema_of(part: Mapping[str, Any] | None) -> str:
    content = (part or {}).get("content", {})
    return next((_kind(each["schema"]) for each in content.values() if "schema" in each), "")


def _kind(schema: Mapping[str, Any]) -> str:
    """A schema in a word or two."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_kind, several)))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


# Settings: what this server stands on, and which providers it could ask. Never a key.


SUFFIX = "_BASE_URL"


class ProviderSetting(BaseModel):
    """A provider, and whether it could be asked."""

    name: str
    address: str
    """Empty: it has none yet."""
    keyVariable: str  # noqa: N815  names as in the API
    """The variable its key is looked for in. Empty: it wants none."""
    key: str
    """`present`, `missing`, or `not needed`. The key itself is never told."""


class Settings(BaseModel):
    """What the server stands on."""

    version: str
    python: str
    store: str
    home: str
    folder: str
    """Where relative paths of plans that are typed in begin."""
    token: bool
    """Whether callers must show one."""
    accessKeys: list[str]  # noqa: N815
    """Ids of the access keys that requests can be signed with."""
    providers: list[ProviderSetting]


def settings_router(site: AppState) -> APIRouter:
    """The page, and what it shows."""
    routes = APIRouter(tags=["settings"])

    @routes.get("/settings", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "settings.html", title="Settings")

    @routes.get("/api/settings", summary="What this server stands on")
    def settings() -> Settings:
        return Settings(
            version=__version__,
            python=platform.python_version(),
            store=site.store.url,
            home=str(site.home),
            folder=str(site.folder),
            token=bool(site.token),
            accessKeys=sorted(site.access_keys),
            providers=list(_providers(site.environment)),
        )

    return routes


def _providers(environment: Mapping[str, str]) -> Iterator[ProviderSetting]:
    """Those we know, then those the user has an address of."""
    usual = {variable for known in PROVIDERS.values() for variable in known.base_variables}
    own = sorted(
        name.removesuffix(SUFFIX).lower()
        for name, value in environment.items()
        if name.endswith(SUFFIX) and name not in usual and value
    )
    for name in (*PROVIDERS, *own):
        try:
            yield _provider(name, find_endpoint(f"{name}/any", environment))
        except NotFound:
            known = PROVIDERS.get(name)
            yield ProviderSetting(
                name=name, address="", keyVariable=known.key_variables[0] if known else "", key="missing"
            )


def _provider(name: str, endpoint: Endpoint) -> ProviderSetting:
    key = "present" if endpoint.key else "missing" if endpoint.missing_key else "not needed"
    variable = "" if key == "not needed" and is_loopback(endpoint.base_url) else endpoint.key_variable
    return ProviderSetting(name=name, address=_harmless(endpoint.base_url), keyVariable=variable, key=key)


def _harmless(address: str) -> str:
    """An address without what might be a secret: a user and password, a query."""
    try:
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return ""
