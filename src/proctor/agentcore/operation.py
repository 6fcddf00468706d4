"""Dispatch of requests to operations: authentication, rate limits, validation, errors.

An operation receives the validated members of path, query and body and returns the members of its response.
Every exception becomes an error of the interface.
"""

import inspect
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from proctor.agentcore.errors import (
    AccessDeniedException,
    ConflictException,
    InternalServerException,
    RequestEntityTooLargeException,
    ResourceNotFoundException,
    RoleMissing,
    ServiceQuotaExceededException,
    SignatureRefused,
    ThrottlingException,
    UnauthorizedException,
    UnknownOperationException,
    ValidationException,
    WireError,
    validation_error,
)
from proctor.agentcore.service import Service
from proctor.agentcore.service_model import OperationModel, operation_model
from proctor.agentcore.shapes import Many, Members, Number, ShapeProblem
from proctor.agentcore.signature import SignedRequest, admit
from proctor.errors import Contradiction, KeyMissing, NotFound, QuotaReached, UsageError
from proctor.json_values import JsonMap, JsonObject, as_list, parse_json
from proctor.web.access import ADMIN, RECORD, RUN, VIEW, Principal, RequestRecord

Answer = Callable[[Service, Members], JsonMap | Awaitable[JsonMap]]
OTHER_SERVICES = ("logs", "monitoring", "sts")
"""Planes that sign with their own name; the others with that of the data plane."""
BASE_URL: ContextVar[str] = ContextVar("base_url", default="")
"""Address of the server, as the client of the request in progress sees it; ends with a slash."""
DEEPEST = 200
"""Maximum nesting of a body: it is read by recursive functions."""
_log = logging.getLogger("proctor.web")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(OperationModel):
    """One operation of the interface: its model, and what answers it."""

    answer: Answer
    most_bytes: str = "body_bytes"
    """Name of the limit of its body."""

    def members_in(self, path: str) -> dict[str, str] | None:
        """The members in a raw path; None: the path of another operation."""
        parts, known = path.split("/"), self.path.split("/")
        if len(parts) != len(known):
            return None
        members: dict[str, str] = {}
        for part, pattern in zip(parts, known, strict=True):
            if pattern.startswith("{"):
                members[pattern.strip("{}")] = unquote(part)
            elif part != pattern:
                return None
        return members


def operation(name: str, answer: Answer, *, most_bytes: str = "body_bytes") -> Operation:
    """The operation of this name, answered here."""
    model = operation_model(name)
    values = {each.name: getattr(model, each.name) for each in fields(model)}
    return Operation(**values, answer=answer, most_bytes=most_bytes)


def find_operation(
    operations: Sequence[Operation], method: str, path: str
) -> tuple[Operation, dict[str, str]]:
    """The operation of a method and path, and the members in the path."""
    for operation in operations:
        if operation.method == method and (members := operation.members_in(path)) is not None:
            return operation, members
    raise UnknownOperationException(
        f"{method} {path[:200]} is no operation of this server. It implements evaluations, evaluators, "
        "online configurations, datasets, recommendations, A/B tests, and configuration bundles."
    )


async def respond(service: Service, request: Request, operations: Sequence[Operation]) -> Response:
    """Execute the operation of a request."""

    async def work() -> Response:
        BASE_URL.set(str(request.base_url))
        signed = signed_request(request)
        operation, named = find_operation(operations, signed.method, signed.path)
        body = await admitted_body(service, request, operation)
        members = {
            **await run_in_threadpool(parsed_body, body),
            **_queried(operation, signed.query),
            **named,
        }
        answer = await execute(service, operation, members)
        return respond_with(operation.status, answer)

    return await respond_safely(work)


async def respond_safely(
    work: Callable[[], Awaitable[Response]], error_response: Callable[[WireError], Response] | None = None
) -> Response:
    """The response of `work`, or of the error it raised, which is JSON unless `error_response` is given."""
    error_response = error_response or _error_response
    try:
        response = await work()
    except WireError as error:
        response = error_response(error)
    except ClientDisconnect:
        response = respond_with(400, {})
    except Exception as error:
        _log.exception("an operation failed")
        response = error_response(_as_wire_error(error))
    response.headers["x-amzn-RequestId"] = str(uuid.uuid4())
    return response


async def execute(service: Service, operation: Operation, members: Members) -> JsonMap:
    """Validate the members and execute the operation, in a thread."""
    violations = await run_in_threadpool(lambda: list(operation.shape.violations(members, "")))
    if violations:
        raise validation_error(violations)
    request = {name: value for name, value in members.items() if value is not None}
    try:
        if inspect.iscoroutinefunction(operation.answer):
            answer: JsonMap = await operation.answer(service, request)
            return answer
        return await run_in_threadpool(operation.answer, service, request)  # type: ignore[arg-type]
    except (UsageError, RecursionError) as error:
        raise _as_wire_error(error) from error


async def admitted_body(service: Service, request: Request, operation: Operation) -> bytes:
    """Authenticate the caller, read the body, and apply the rate limit."""
    access, record = service.site.access, request_record(request)
    signed = signed_request(request, service.site.root_path)
    if access.signs and access.guesses.seconds_to_wait(record.address):
        raise ThrottlingException("Too many wrong signatures or tokens from this address.")
    try:
        principal, signature = admit(
            access,
            signed,
            service=operation.plane if operation.plane in OTHER_SERVICES else "bedrock-agentcore",
            bearer_status=401 if operation.plane == "data" else 403,
            now=service.now,
        )
        _check_role(principal, operation)
        body = await _read(request, getattr(service.limits, operation.most_bytes))
        if signature is not None:
            await run_in_threadpool(signature.check, body)
    except (SignatureRefused, UnauthorizedException, AccessDeniedException) as refusal:
        authorization = signed.headers.get("authorization", "")
        if authorization and not isinstance(refusal, RoleMissing):
            access.note_wrong(record.address, authorization, f"signature for {operation.name}")
        raise
    record.principal = principal
    if operation_role(operation.name) != VIEW:
        record.action = operation.name
    # After authentication: unauthenticated calls must not use up the rate limit.
    service.rates.take(operation.name)
    return body


def operation_role(name: str) -> str:
    """The role that an operation needs, by the verb in its name."""
    # A query of logs only reads, though it is started and stopped.
    if name.startswith(("Get", "List", "Describe", "Filter")) or name in ("StartQuery", "StopQuery"):
        return VIEW
    return ADMIN if name.startswith("Delete") else RUN


def request_record(request: Request) -> RequestRecord:
    """The record of a request."""
    record: RequestRecord = request.scope[RECORD]
    return record


def _check_role(principal: Principal, operation: Operation) -> None:
    role = operation_role(operation.name)
    if not principal.has(role):
        raise RoleMissing(
            f"{operation.name} needs the role `{role}`; {principal.name} has the role `{principal.role}`."
        )


def signed_request(request: Request, root_path: str = "") -> SignedRequest:
    """The raw request, without decoding; with the root path, as the client signed it."""
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    return SignedRequest(
        method=request.method,
        path=root_path + raw.partition(b"?")[0].decode("latin-1"),
        query=request.scope["query_string"].decode("latin-1"),
        headers={name.lower(): value for name, value in request.headers.items()},
    )


def parsed_body(body: bytes) -> JsonObject:
    """The members in a body; an empty body has none."""
    if not body.strip():
        return {}
    try:
        document = parse_json(body)
    except ValueError as error:
        raise ValidationException(f"The body is no JSON: {str(error)[:200]}", reason="CannotParse") from None
    if not isinstance(document, dict):
        raise ValidationException("The body must be a JSON object.", reason="CannotParse")
    if _is_too_deep(document):
        raise ValidationException(
            f"The body is nested more than {DEEPEST} levels deep.", reason="CannotParse"
        )
    # PostgreSQL does not store NUL.
    return dict(_without_nul(document)) if b"\\u0000" in body else document


async def _read(request: Request, most: int) -> bytes:
    length = request.headers.get("content-length", "")
    parts, size = list[bytes](), 0
    too_large = length.isdigit() and int(length) > most
    async for part in request.stream():
        size += len(part)
        too_large = too_large or size > most
        if not too_large:
            parts.append(part)
        else:
            # Keep reading for a while: a client that is cut off while sending does not read the response.
            parts.clear()
            if size > 2 * most:
                break
    if too_large:
        raise RequestEntityTooLargeException(f"The body may have at most {most:,} bytes.")
    return b"".join(parts)


def _queried(operation: Operation, query: str) -> JsonObject:
    """The members in a query string, converted to their types."""
    members: JsonObject = {}
    for written, value in parse_qsl(query, keep_blank_values=True, errors="replace"):
        name = operation.query.get(written)
        if name is None:
            continue
        shape = operation.shape.members[name]
        if isinstance(shape, Many):
            members[name] = [*as_list(members.get(name)), value]
        elif isinstance(shape, Number):
            members[name] = _number(name, value)
        else:
            members[name] = value
    return members


def _number(name: str, text: str) -> int:
    if not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise validation_error([ShapeProblem(name, "Member must be an integer")])
    return int(text)


def _without_nul(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_without_nul(each) for each in value]
    if isinstance(value, dict):
        return {_without_nul(name): _without_nul(each) for name, each in value.items()}
    return value


def _is_too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _as_wire_error(error: Exception) -> WireError:
    """The error of the interface for an exception."""
    problem = str(error).partition("\n")[0]
    if isinstance(error, NotFound):
        return ResourceNotFoundException(problem)
    if isinstance(error, Contradiction):
        return ConflictException(problem)
    if isinstance(error, QuotaReached):
        return ServiceQuotaExceededException(problem)
    if isinstance(error, UsageError):
        return ValidationException(problem)
    if isinstance(error, KeyMissing):
        return AccessDeniedException(problem)
    if isinstance(error, RecursionError):
        return ValidationException("The request is nested too deeply.", reason="CannotParse")
    return InternalServerException("The server failed to do this; its log says why.")


def respond_with(status: int, members: JsonMap, *, media_type: str = "application/json") -> Response:
    """An HTTP response with these members."""
    if status == 204:
        return Response(status_code=204)
    return Response(json.dumps(members, allow_nan=False), status_code=status, media_type=media_type)


def _error_response(error: WireError) -> Response:
    response = respond_with(error.status, {"__type": error.kind, **error.body})
    response.headers["x-amzn-ErrorType"] = error.kind
    return response
