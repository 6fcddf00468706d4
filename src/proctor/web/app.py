"""The web application: all routes and the middleware."""

import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, FastAPI
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from proctor import __version__
from proctor.lazy_import import plugins
from proctor.web import (
    actions,
    auth,
    compare,
    evaluations,
    inventory,
    items,
    labels,
    library,
    live,
    new_evaluation,
    otlp,
    plans,
    results,
    runs,
    search,
    session_search,
    sessions,
    trends,
)
from proctor.web.access import check_roles
from proctor.web.auth import RequestGuard
from proctor.web.responses import install_errors
from proctor.web.state import AppState

ROUTERS: Sequence[Callable[[AppState], APIRouter]] = (
    auth.router,
    runs.batches_router,
    plans.router,
    runs.router,
    results.router,
    items.router,
    runs.downloads_router,
    actions.steering_router,
    runs.tables_router,
    session_search.router,
    sessions.router,
    sessions.diffs_router,
    sessions.review_router,
    actions.router,
    compare.router,
    trends.router,
    new_evaluation.router,
    evaluations.router,
    labels.router,
    labels.labeling_router,
    sessions.annotations_router,
    search.router,
    inventory.router,
    library.router,
    inventory.settings_router,
    inventory.manual_router,
    live.router,
)
"""Functions that make the routes of pages and API."""
MOUNTS = "proctor.server"
"""Entry points with functions that make further routes, which authenticate their callers themselves."""
VERSION = re.compile("[0-9a-f]{12}")
MOST_THREADS = 8
"""Request threads. Each has a store connection with a cache of 8 MB; the default of 40 is no faster on a few
cores and takes 320 MB."""


def create_app(
    site: AppState, *, makers: Sequence[Callable[[AppState], APIRouter]] = ROUTERS, **options: Any
) -> FastAPI:
    """The application that serves one store. Without `makers` it has what plugins mount, and no pages."""
    open_routers = [otlp.router(site), *(point.load()(site) for point in plugins(MOUNTS))]
    routers = [make(site) for make in makers]
    app = FastAPI(
        lifespan=_lifespan([*open_routers, *routers]),
        title="Proctor",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        servers=[{"url": site.root_path}] if site.root_path else None,
        **options,
    )
    app.state.root_path = site.root_path
    static = _Static(Path(str(files("proctor.web").joinpath("static"))))
    app.state.static_version = static.version
    # The description of the interface, which FastAPI adds itself.
    described: list[BaseRoute] = list(app.routes)
    exempt = [route for router in open_routers for route in router.routes]
    routes = [*described, *(route for router in routers for route in router.routes)]
    check_roles(routes)
    # A page has forty scripts: they are looked for first.
    app.mount("/static", static)
    # Not with `include_router`, which analyzes each route a second time at the first request, and takes twice
    # as long to find one: the routers have their prefixes, tags and responses themselves.
    app.router.routes += [*exempt, *routes[len(described) :]]
    install_errors(app)
    app.add_middleware(RequestGuard, site=site, routes=routes, exempt=exempt)
    return app


def _lifespan(routers: Sequence[APIRouter]) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """What happens before the first request and after the last: threads, and what the routers have."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = MOST_THREADS
        async with AsyncExitStack() as stack:
            for router in routers:
                await stack.enter_async_context(router.lifespan_context(app))
            yield

    return lifespan


class _Static(StaticFiles):
    """Static files. Below their version, browsers keep them; otherwise they are revalidated on each use.

    A page has forty scripts, whose imports are relative: with the version in the address of the first, none
    is requested again on the next page.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder)
        # Times of changes, not contents, which would be read at each start.
        states = sorted(
            (file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir()
        )
        self.version = hashlib.sha256(repr(states).encode()).hexdigest()[:12]

    async def get_response(self, path: str, scope: Scope) -> Response:
        """One file."""
        version, _, rest = path.partition(os.sep)
        # A page that was loaded before an update, or from another server, finds its files too.
        response = await super().get_response(rest if VERSION.fullmatch(version) else path, scope)
        is_current = version == self.version
        response.headers["cache-control"] = "max-age=31536000, immutable" if is_current else "no-cache"
        return response
