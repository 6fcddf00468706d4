"""HTTP interface compatible with AWS Bedrock AgentCore Evaluations, so that its clients work with this store.

Control plane and data plane, distinguished by path, and the CloudWatch Logs operations that read results.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from proctor.agentcore import (
    ab_tests,
    bundles,
    datasets,
    evaluate,
    evaluators,
    identity,
    jobs,
    logs,
    metrics,
    online,
    recommendations,
)
from proctor.agentcore.operation import respond
from proctor.agentcore.service import Service, watched
from proctor.web.state import AppState

OPERATIONS = (
    *jobs.OPERATIONS,
    *evaluate.OPERATIONS,
    *evaluators.OPERATIONS,
    *online.OPERATIONS,
    *evaluators.TAG_OPERATIONS,
    *datasets.OPERATIONS,
    *recommendations.OPERATIONS,
    *bundles.OPERATIONS,
    *ab_tests.OPERATIONS,
)
LOG_OPERATIONS = {operation.name: operation for operation in logs.OPERATIONS}


def _place(path: str) -> str:
    head, member, _ = path.partition("{")
    return f"{head}{{rest:path}}" if member else head


PLACES = tuple(dict.fromkeys(_place(each.path) for each in OPERATIONS))
"""Paths of the interface. Operations are matched against the raw path, so that encoded IDs stay intact."""
METHODS = ["GET", "POST", "PUT", "DELETE"]


class _SignedRoute(Route):
    """Any path, for requests of AWS's clients: their other operations get an error that they understand."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        headers = dict(scope.get("headers") or ())
        if not headers.get(b"authorization", b"").startswith(b"AWS4-HMAC-SHA256"):
            return Match.NONE, {}
        return super().matches(scope)


def router(site: AppState) -> APIRouter:
    """The routes of the interface, authenticated by signature or bearer token."""
    service = Service(site)
    # Raises for invalid limits and watches before the server starts.
    _ = service.limits
    online.keep_watches(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with watched(service, recommendations.compute_pending):
            yield

    routes = APIRouter(lifespan=lifespan)

    async def operation(request: Request) -> Response:
        return await respond(service, request, OPERATIONS)

    async def logs_operation(request: Request) -> Response:
        if identity.is_form(request):
            return await identity.respond(service, request)
        if request.headers.get("x-amz-target", "").startswith(metrics.TARGET):
            return await metrics.respond(service, request)
        return await logs.respond(service, request, LOG_OPERATIONS)

    async def dataset_file(request: Request) -> Response:
        return await datasets.download(service, request)

    for path in PLACES:
        routes.add_api_route(path, operation, methods=METHODS, include_in_schema=False)
    routes.add_api_route(datasets.LINK_PATH, dataset_file, methods=["GET"], include_in_schema=False)
    routes.add_api_route("/", logs_operation, methods=["POST"], include_in_schema=False)
    routes.routes.append(_SignedRoute("/{rest:path}", operation, methods=[*METHODS, "PATCH"]))
    return routes
