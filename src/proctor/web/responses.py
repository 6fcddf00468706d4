"""Responses: pages from templates, errors in one shape, security headers."""

from collections.abc import Mapping
from functools import cache

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

from proctor import __version__
from proctor.api.deprecated import with_old_names
from proctor.errors import NotFound, PlanError, ProctorError, StoreError, UsageError
from proctor.json_values import JsonMap, JsonObject
from proctor.web.access import RUN, VIEW, person_of, role_of

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
"""Headers of every response; a route may set another content security policy."""
NAVIGATION = (
    ("/", "Batches", VIEW),
    ("/new", "New Batch", RUN),
    ("/sessions", "Sessions", VIEW),
    ("/review", "Review", VIEW),
    ("/playground", "Playground", RUN),
    ("/tasks", "Tasks", VIEW),
    ("/compare", "Compare", VIEW),
    ("/trends", "Trends", VIEW),
    ("/evaluations", "Evaluations", VIEW),
    ("/models", "Models", RUN),
    ("/settings", "Settings", VIEW),
)
"""Address and name of each page, and the role that it is for."""


class ErrorDetail(BaseModel):
    """A problem and its remedy."""

    problem: str
    remedy: str = ""
    line: int | None = None
    column: int | None = None


class ErrorAnswer(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


# A reference for all statuses but one: a model for each would slow down the start of the server.
_ERROR = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}}}
ERRORS: dict[int | str, JsonObject] = {
    400: {"description": "The request is invalid.", "model": ErrorAnswer},
    404: {"description": "Not found.", "content": _ERROR},
    422: {"description": "The request does not match the schema.", "content": _ERROR},
    500: {"description": "Internal server error.", "content": _ERROR},
    502: {"description": "An external service or command failed.", "content": _ERROR},
    503: {"description": "The store is unavailable, or its key is missing.", "content": _ERROR},
}
"""`responses=` of routes that can fail."""


def with_deprecated(old: Mapping[str, str]) -> type[JSONResponse]:
    """`response_class=` of routes with renamed members, which also have their deprecated names."""

    class Answer(JSONResponse):
        def render(self, content: JsonMap) -> bytes:
            return super().render(with_old_names(content, old))

    return Answer


def page(request: Request, template: str, *, title: str, status: int = 200, **values: object) -> HTMLResponse:
    """A page from a template."""
    html = (
        _templates()
        .get_template(template)
        .render(
            title=title,
            navigation=NAVIGATION,
            path=request.url.path,
            root=request.app.state.root_path,
            static=f"{request.app.state.root_path}/static/{request.app.state.static_version}",
            version=__version__,
            role=role_of(request.scope),
            person=person_of(request.scope),
            **values,
        )
    )
    return HTMLResponse(html, status_code=status)


def error_response(status: int, problem: str, remedy: str = "", **place: int | None) -> JSONResponse:
    """An error as JSON."""
    body = ErrorAnswer(error=ErrorDetail(problem=problem, remedy=remedy, **place))
    return JSONResponse(body.model_dump(exclude_none=True), status_code=status)


def install_errors(app: FastAPI) -> None:
    """Install the exception handlers: JSON errors for the API, error pages for browsers."""

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
        problem = f"operating system error{where}: {error.strerror or type(error).__name__}"
        remedy = "Check that Proctor's home exists, is writable, and has free space."
        return _answer(request, 500, problem, remedy)

    @app.exception_handler(Exception)
    async def _internal(request: Request, _: Exception) -> Response:
        # Without the exception, which may contain transcripts; `proctor serve` prints it.
        problem, remedy = "internal server error", "See the output of `proctor serve`."
        answer = _answer(request, 500, problem, remedy)
        # Sent outside of the middleware that adds them.
        answer.headers.update({**HEADERS, "cache-control": "no-store"})
        return answer


def _problem_and_remedy(request: Request, error: HTTPException) -> tuple[str, str]:
    """Problem and remedy of an error that Starlette raised."""
    path, every = request.url.path, "The HTTP interface is documented at /api/docs."
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
    # A missing variable is a bug and must not render as empty text.
    return Environment(
        loader=PackageLoader("proctor.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
