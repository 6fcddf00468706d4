"""The Models, Settings and API manual pages.

Models and agents are listed and tried as by `proctor models`, `agents` and `doctor`, in threads, since that
starts programs and waits for servers.
"""

import asyncio
import platform
from collections.abc import Coroutine, Iterator, Mapping
from typing import Annotated, Any, TypedDict, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor import __version__
from proctor.api.deprecated import (
    OLD_NAMES_OF_AGENTS,
    OLD_NAMES_OF_AUDIT_ENTRIES,
    OLD_NAMES_OF_CHECKS,
    OLD_NAMES_OF_MODELS,
)
from proctor.api.doctor import CheckResult, Diagnosis, diagnose
from proctor.api.inventory import (
    AgentList,
    ModelList,
    ProviderSetting,
    list_agents,
    list_models,
    list_providers,
)
from proctor.errors import ProctorError, UsageError
from proctor.json_values import JsonObject
from proctor.web.actions import errors_of_request, run_in_thread
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.state import AppState

T = TypeVar("T")
LISTING_SECONDS = 60
TRYING_SECONDS = 240
AT_ONCE = 2
"""Requests that start programs in parallel."""
Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


class TrialRequest(BaseModel):
    """A model or agent to try."""

    model_config = ConfigDict(extra="forbid")

    model: Name | None = None
    """Make one small call to it; with an agent, the model of the agent."""
    agent: Name | None = None
    """Run it on a small task in a temporary repository."""


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

    @routes.get(
        "/api/models",
        summary="List reachable models",
        responses=ERRORS,
        response_class=with_deprecated(OLD_NAMES_OF_MODELS),
    )
    async def models() -> ModelList:
        listing = asyncio.to_thread(lambda: list_models(site.current_settings(), site.now()))
        return await limited(listing, LISTING_SECONDS)

    @routes.get(
        "/api/agents",
        summary="List agents and whether each is usable",
        responses=ERRORS,
        response_class=with_deprecated(OLD_NAMES_OF_AGENTS),
    )
    async def agents() -> AgentList:
        listing = asyncio.to_thread(lambda: list_agents(site.current_settings().user_environment))
        return await limited(listing, LISTING_SECONDS)

    @routes.post(
        "/api/trials",
        summary="Try a model or an agent with a real call",
        responses=ERRORS,
        response_class=with_deprecated(OLD_NAMES_OF_CHECKS),
    )
    async def try_out(trial: TrialRequest) -> CheckResult:
        if not (trial.model or trial.agent):
            raise UsageError("name a model or an agent to be tried")
        settings = await asyncio.to_thread(site.current_settings)

        async def diagnosed() -> Diagnosis:
            with errors_of_request():
                return await diagnose(settings, agent=trial.agent or "", model=trial.model or "")

        diagnosis = await limited(run_in_thread(diagnosed, seconds=TRYING_SECONDS), TRYING_SECONDS)
        return diagnosis.main_check

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


def _parameter(parameter: Mapping[str, Any]) -> JsonObject:
    return {
        "name": parameter["name"],
        "where": parameter["in"],
        "required": parameter.get("required", False),
        "type": _kind(parameter.get("schema", {})),
        "description": parameter.get("description") or parameter.get("schema", {}).get("description", ""),
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


class AuditEntry(BaseModel):
    """One action."""

    at: str
    who: str
    """Name of the token; `local` on a server without tokens; empty: a wrong token."""
    role: str
    address: Annotated[str, Field(alias="from")]
    """Network address of the caller."""
    action: str
    target: str
    status: int
    """HTTP status of the response."""
    guesses: int = 0
    """Wrong tokens of this address so far."""


class AuditAnswer(BaseModel):
    """The newest actions, newest first."""

    entries: list[AuditEntry]


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
            store=site.context.store.url,
            home=str(site.home),
            folder=str(site.folder),
            token=bool(site.token),
            accessKeys=sorted(site.access_keys),
            providers=list_providers(site.environment),
        )

    @routes.get(
        "/api/audit",
        summary="Who did what, newest first",
        responses=ERRORS,
        response_class=with_deprecated(OLD_NAMES_OF_AUDIT_ENTRIES),
    )
    def audit(limit: Annotated[int, Query(ge=1, le=10_000)] = 200) -> AuditAnswer:
        return AuditAnswer.model_validate({"entries": site.access.audit.latest(limit)})

    return routes
