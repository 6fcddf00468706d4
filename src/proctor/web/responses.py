"""Who may call, and what a browser may do with the answers.

Every request passes here before anything of it is read. A page of another site must not be able to make
this one act (its `Origin` is not ours, its `Host` may be a name that was pointed here), a caller without
the token learns nothing where there is one, and no page of ours runs a script that is not a file of ours.

Routes that tell callers apart by themselves (by signature, by bearer) are exempt from the token, never
from the rest.

Knows nothing of what the routes do.
"""

from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from proctor import __version__
from proctor.errors import NotFound, PlanError, ProctorError, StoreError, UsageError

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""On every answer. A route that sends a document of its own may set another policy, which then stays."""


# How answers look: pages from templates, errors in one shape.


NAVIGATION = (
    ("/", "Batches"),
    ("/new", "New Batch"),
    ("/compare", "Compare"),
    ("/evaluations", "Evaluations"),
    ("/models", "Models"),
    ("/settings", "Settings"),
)


class ErrorDetail(BaseModel):
    """What went wrong, and what to do about it."""

    problem: str
    remedy: str = ""
    line: int | None = None
    column: int | None = None


class ErrorAnswer(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorDetail


# Declared for one status, referred to for the others: for each anew, it would take most of a server's start.
_ERROR = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}}}

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "It cannot be had so.", "model": ErrorAnswer},
    404: {"description": "There is no such thing.", "content": _ERROR},
    422: {"description": "The request is not well formed.", "content": _ERROR},
    500: {"description": "The server, or its machine, could not do it.", "content": _ERROR},
    502: {"description": "Whoever was asked for it did not answer well.", "content": _ERROR},
    503: {"description": "The store cannot be read, or not without its key.", "content": _ERROR},
}
"""For `responses=` of a route that can fail."""


def page(request: Request, template: str, *, title: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page: a template of ours that extends `base.html`."""
    html = (
        _templates()
        .get_template(template)
        .render(title=title, navigation=NAVIGATION, path=request.url.path, version=__version__, **values)
    )
    return HTMLResponse(html, status_code=status)


def error_response(status: int, problem: str, remedy: str = "", **place: int | None) -> JSONResponse:
    """An error as JSON."""
    body = ErrorAnswer(error=ErrorDetail(problem=problem, remedy=remedy, **place))
    return JSONResponse(body.model_dump(exclude_none=True), status_code=status)


def install_errors(app: FastAPI) -> None:
    """Have whatever goes wrong in a route answered in words: as JSON, or as a page to whoever wants one."""

    @app.exception_handler(ProctorError)
    async def _proctor(request: Request, error: ProctorError) -> Response:
        problem, _, remedy = str(error).partition("\n")
        if isinstance(error, PlanError) and error.problems:
            first = error.problems[0]
            return error_response(
                400, first.problem, first.remedy, line=first.at.line, column=first.at.column
            )
        if isinstance(error, NotFound):
            return _answer(request, 404, problem, remedy)
        if isinstance(error, StoreError):
            return _answer(request, 503, problem, remedy)
        return _answer(request, 400 if isinstance(error, UsageError) else 502, problem, remedy)

    @app.exception_handler(RequestValidationError)
    async def _malformed(request: Request, error: RequestValidationError) -> Response:
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        return _answer(request, 422, "; ".join(problems[:5])[:500], "")

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        answer = _answer(request, error.status_code, *_problem_and_remedy(request, error))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(OSError)
    async def _machine(request: Request, error: OSError) -> Response:
        where = f" at {error.filename}" if error.filename else ""
        problem = f"the machine did not let the server do it{where}: {error.strerror or type(error).__name__}"
        remedy = "Look whether Proctor's home is there, may be written to, and has room left."
        return _answer(request, 500, problem, remedy)

    @app.exception_handler(Exception)
    async def _internal(request: Request, _: Exception) -> Response:
        # Nothing of the error itself: it may hold what somebody said. Where the server runs, it is printed.
        problem, remedy = "the server made a mistake", "What it was is told where `proctor serve` runs."
        answer = _answer(request, 500, problem, remedy)
        # Sent from outside of the guard, which would else put them on.
        answer.headers.update({**HEADERS, "cache-control": "no-store"})
        return answer


def _problem_and_remedy(request: Request, error: HTTPException) -> tuple[str, str]:
    """Problem and remedy of what no route of ours has said."""
    path, every = request.url.path, "Every address of the HTTP interface is told at /api/docs."
    if error.status_code == 404:
        return f"there is nothing at {path}", every
    if error.status_code == 405:
        return f"{path} does not take {request.method}", every
    return str(error.detail), ""


def _answer(request: Request, status: int, problem: str, remedy: str) -> Response:
    wants_page = "text/html" in request.headers.get("accept", "") and request.method == "GET"
    if not wants_page or request.url.path.startswith("/api/"):
        return error_response(status, problem, remedy)
    title = "Not found" if status == 404 else "That did not work"
    return page(request, "error.html", title=title, status=status, problem=problem, remedy=remedy)


@cache
def _templates() -> Environment:
    # A name that is not given is a mistake of ours; it must not become an empty place on a page.
    return Environment(
        loader=PackageLoader("proctor.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
