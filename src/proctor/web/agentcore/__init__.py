"""The evaluation service's own HTTP interface: what its stock client calls, answered from this store.

Two planes, told apart by their paths, and the operations of the log service that results are read with.
"""

from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from proctor.web.agentcore import evaluate, evaluators, jobs, logs, online
from proctor.web.agentcore.operation import respond
from proctor.web.agentcore.service import Service, watched
from proctor.web.state import AppState

OPERATIONS = (
    *(*jobs.OPERATIONS, *evaluate.OPERATIONS),
    *(*evaluators.OPERATIONS, *online.OPERATIONS, *evaluators.TAG_OPERATIONS),
)


PLACES = (
    *("/evaluations/batch-evaluate", "/evaluations/batch-evaluate/{rest:path}"),
    *("/evaluations/evaluate/{rest:path}", "/evaluators", "/evaluators/{rest:path}"),
    *("/online-evaluation-configs", "/online-evaluation-configs/{rest:path}", "/tags/{rest:path}"),
)
"""Every path below these is ours, also those of no operation: ids are read from the path as it was sent."""


METHODS = ["GET", "POST", "PUT", "DELETE"]


def router(site: AppState) -> APIRouter:
    """The routes of this interface. Their callers are told apart by signature or bearer token."""
    service = Service(site)
    # A limit that makes no sense is told before anything is served.
    _ = service.limits

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> Any:
        async with watched(service):
            yield

    routes = APIRouter(lifespan=lifespan)

    async def operation(request: Request) -> Response:
        return await respond(service, request, OPERATIONS)

    async def logs_operation(request: Request) -> Response:
        return await logs.respond(service, request)

    for place in PLACES:
        routes.add_api_route(place, operation, methods=METHODS, include_in_schema=False)
    routes.add_api_route("/", logs_operation, methods=["POST"], include_in_schema=False)
    return routes
