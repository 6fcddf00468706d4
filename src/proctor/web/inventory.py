"""The Models, Settings and API manual pages.

Models and agents are listed and tried as by `proctor models`, `agents` and `doctor`, in threads, since that
starts programs and waits for servers.
"""

import asyncio
import platform
from collections.abc import Coroutine, Iterator, Mapping
from typing import Annotated, Any, TypedDict, TypeVar
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor import __version__
from proctor.api.doctor import Diagnosis, diagnose
from proctor.api.inventory import ListedAgent, ModelList, list_agents, list_models
from proctor.errors import NotFound, ProctorError, UsageError
from proctor.json_values import JsonObject
from proctor.models.providers import PROVIDERS, Endpoint, find_endpoint, is_loopback
from proctor.web.actions import errors_of_request, run_in_thread
from proctor.web.responses import ERRORS, page
from proctor.web.state import AppState

T = TypeVar("T")
LISTING_SECONDS = 60
TRYING_SECONDS = 240
AT_ONCE = 2
"""Requests that start programs in parallel."""
Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


class PriceShape(BaseModel):
    """US dollars per million tokens."""

    input: float
    output: float


class ModelFound(BaseModel):
    """A reachable or configured model."""

    name: str
    source: str
    """Its provider."""
    answers: bool
    """Whether its server lists it."""
    remark: str
    standIn: bool  # noqa: N815  names as the command prints them
    price: PriceShape | None
    """None: unknown."""
    priceSource: str  # noqa: N815


class ModelsFound(BaseModel):
    """The models."""

    models: list[ModelFound]
    silent: dict[str, str]
    """Providers whose list is unavailable, and why."""


class AgentFound(BaseModel):
    """An agent."""

    name: str
    ready: bool
    version: str
    standIn: bool  # noqa: N815
    problem: str
    remedy: str


class AgentsFound(BaseModel):
    """The agents."""

    agents: list[AgentFound]


class TrialRequest(BaseModel):
    """A model or agent to try."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = None
    """Make one small call to it; with an agent, the model of the agent."""
    agent: Name | None = None
    """Run it on a small task in a temporary repository."""


class TrialAnswer(BaseModel):
    """The result of a trial."""

    ok: bool
    message: str
    remedy: str = ""
    well: bool = Field(description="Deprecated: `ok`.")
    said: str = Field(description="Deprecated: `message`.")


def router(site: AppState) -> APIRouter:
    """The Models page and its routes."""
    routes = APIRouter(tags=["models and agents"])
    at_once = asyncio.Semaphore(AT_ONCE)

    async def limited(call: Coroutine[Any, Any, T], seconds: float) -> T:
        try:
            async with at_once, asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            raise ProctorError(f"no answer within {seconds:g} s") from None

    @routes.get("/models", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "models.html", title="Models and agents")

    @routes.get("/api/models", summary="List reachable models", responses=ERRORS)
    async def models() -> ModelsFound:
        def listed() -> ModelList:
            return list_models(site.current_settings(), [site.folder], site.now())

        listing = await limited(asyncio.to_thread(listed), LISTING_SECONDS)
        return ModelsFound.model_validate(listing.document())

    @routes.get("/api/agents", summary="List agents and whether each is usable", responses=ERRORS)
    async def agents() -> AgentsFound:
        def listed() -> list[ListedAgent]:
            return list_agents(site.current_settings().user_environment)

        listing = await limited(asyncio.to_thread(listed), LISTING_SECONDS)
        return AgentsFound.model_validate({"agents": [agent.document() for agent in listing]})

    @routes.post("/api/trials", summary="Try a model or an agent with a real call", responses=ERRORS)
    async def try_out(trial: TrialRequest) -> TrialAnswer:
        if not (trial.model or trial.agent):
            raise UsageError("name a model or an agent to be tried")
        settings = await asyncio.to_thread(site.current_settings)

        async def diagnosed() -> Diagnosis:
            with errors_of_request():
                return await diagnose(settings, agent=trial.agent or "", model=trial.model or "")

        diagnosis = await limited(run_in_thread(diagnosed, seconds=TRYING_SECONDS), TRYING_SECONDS)
        check = diagnosis.main_check
        is_ok, message = diagnosis.is_ok, check.message
        return TrialAnswer(ok=is_ok, message=message, remedy=check.remedy, well=is_ok, said=message)

    return routes


METHODS = ("get", "post", "put", "delete", "patch")


def manual_router(_: AppState) -> APIRouter:
    """The manual of the HTTP interface, from its OpenAPI document."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/api/docs")
    def show_page(request: Request) -> Response:
        document = request.app.openapi()
        groups: dict[str, list[ManualOperation]] = {}
        for operation in _operations(document):
            groups.setdefault(operation["group"], []).append(operation)
        schemas = {
            name: list(_members(schema))
            for name, schema in document.get("components", {}).get("schemas", {}).items()
            if schema.get("properties")
        }
        return page(request, "manual.html", title="HTTP interface", groups=groups, schemas=schemas)

    return routes


class ManualOperation(TypedDict):
    """One operation, as the template of the manual shows it."""

    group: str
    method: str
    path: str
    summary: str
    description: str
    parameters: list[JsonObject]
    body: str
    answers: list[JsonObject]


def _operations(document: Mapping[str, Any]) -> Iterator[ManualOperation]:
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
                    {
                        "status": status,
                        "schema": _schema_of(answer),
                        "description": answer.get("description", ""),
                    }
                    for status, answer in operation.get("responses", {}).items()
                ],
            }


def _parameter(each: Mapping[str, Any]) -> JsonObject:
    return {
        "name": each["name"],
        "where": each["in"],
        "required": each.get("required", False),
        "type": _kind(each.get("schema", {})),
        "description": each.get("description") or each.get("schema", {}).get("description", ""),
    }


def _members(schema: Mapping[str, Any]) -> Iterator[JsonObject]:
    needed = schema.get("required", ())
    for name, about in schema["properties"].items():
        yield {
            "name": name,
            "type": _kind(about),
            "required": name in needed,
            "description": about.get("description", ""),
        }


def _schema_of(part: Mapping[str, Any] | None) -> str:
    content = (part or {}).get("content", {})
    return next((_kind(each["schema"]) for each in content.values() if "schema" in each), "")


def _kind(schema: Mapping[str, Any]) -> str:
    """A short name of a schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if several := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_kind, several)))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


SUFFIX = "_BASE_URL"


class ProviderSetting(BaseModel):
    """A provider and whether its key is present."""

    name: str
    address: str
    """Empty: not configured."""
    keyVariable: str  # noqa: N815  names as in the API
    """Environment variable of its key. Empty: needs none."""
    key: str
    """`present`, `missing`, or `not needed`. Never the key itself."""


class SettingsAnswer(BaseModel):
    """Settings of the server."""

    version: str
    python: str
    store: str
    home: str
    folder: str
    """Base of relative paths in typed plans."""
    token: bool
    """Whether a token is required."""
    accessKeys: list[str]  # noqa: N815
    """IDs of access keys for signed requests."""
    providers: list[ProviderSetting]


class AuditEntry(BaseModel):
    """One act."""

    at: str
    who: str
    """Name of the token; `local` on a server without tokens; empty: a wrong token."""
    role: str
    address: Annotated[str, Field(alias="from")]
    """Network address of the caller."""
    act: str
    target: str
    status: int
    """HTTP status of the response."""
    guesses: int = 0
    """Wrong tokens of this address so far."""


class AuditAnswer(BaseModel):
    """The newest acts, newest first."""

    entries: list[AuditEntry]


def settings_router(site: AppState) -> APIRouter:
    """The Settings page and its route."""
    routes = APIRouter(tags=["settings"])

    @routes.get("/settings", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "settings.html", title="Settings")

    @routes.get("/api/settings", summary="The settings of the server")
    def settings() -> SettingsAnswer:
        return SettingsAnswer(
            version=__version__,
            python=platform.python_version(),
            store=site.store.url,
            home=str(site.home),
            folder=str(site.folder),
            token=bool(site.token),
            accessKeys=sorted(site.access_keys),
            providers=list(_providers(site.environment)),
        )

    @routes.get("/api/audit", summary="Who did what, newest first", responses=ERRORS)
    def audit(limit: Annotated[int, Query(ge=1, le=10_000)] = 200) -> AuditAnswer:
        return AuditAnswer(
            entries=[AuditEntry.model_validate(entry) for entry in site.access.audit.latest(limit)]
        )

    return routes


def _providers(environment: Mapping[str, str]) -> Iterator[ProviderSetting]:
    """Known providers, then those the environment defines."""
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
    """An address without user, password and query, which may be secret."""
    try:
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return ""
