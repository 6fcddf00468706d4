"""How a request becomes the call of an operation, and its answer a response, without a server."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from proctor.config import ServeToken
from proctor.errors import Contradiction, KeyMissing, NotFound, UsageError
from proctor.web.access import ADMIN, RECORD, Principal, RequestRecord
from proctor.web.agentcore import errors, identity, operation
from proctor.web.agentcore.errors import ValidationException, WireError
from proctor.web.agentcore.operation import Operation, parsed_body
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Many, Number, Structure, Text


def refused(call: Any, *words: Any, **named: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        call(*words, **named)
    return caught.value


def made(route: str = "GET /a/{id}/b", name: str = "GetThing", **options: Any) -> Operation:
    return Operation(name, route, options.pop("shape", Structure({})), lambda service, request: {}, **options)


# Paths and queries


def test_a_path_has_the_members_of_its_pattern() -> None:
    operation_ = made()
    assert (operation_.method, operation_.path) == ("GET", "/a/{id}/b")
    assert operation_.members_in("/a/x%2Fy%20z/b") == {"id": "x/y z"}
    assert operation_.members_in("/a//b") == {"id": ""}
    for path in ("/a/x", "/a/x/c", "/b/x/b", "/a/x/b/", ""):
        assert operation_.members_in(path) is None


def test_the_operation_of_a_method_and_path_is_found() -> None:
    known = [made("POST /a/{id}/b"), made(), made("GET /a/{other}/b")]
    assert operation.find_operation(known, "GET", "/a/1/b") == (known[1], {"id": "1"})
    error = refused(operation.find_operation, known, "PUT", "/" + "x" * 300)
    assert (error.kind, str(error)) == (
        "UnknownOperationException",
        f"There is no operation PUT /{'x' * 199}.",
    )


def test_members_of_a_query_have_their_types() -> None:
    shape = Structure({"text": Text(), "count": Number(whole=True), "list": Many(of=Text())})
    asked = made(shape=shape, query=("text", "count", "list", "state"), query_names={"status": "state"})
    found = operation._queried(asked, "text=a%20b&count=-3&list=x&list=y&status=&other=1")
    assert found == {"text": "a b", "count": -3, "list": ["x", "y"], "state": ""}
    assert operation._queried(made(shape=shape), "text=a") == {}


@pytest.mark.parametrize("text", ["", "-", "x", "1.5", "--1", "1" * 19])
def test_a_number_of_a_query_has_eighteen_digits_at_most(text: str) -> None:
    error = refused(operation._number, "count", text)
    assert isinstance(error, ValidationException)
    assert [(flaw.name, flaw.constraint) for flaw in error.flaws] == [("count", "Member must be an integer")]
    assert operation._number("count", "9" * 18) == 10**18 - 1 and operation._number("count", "-1") == -1


# Bodies


@pytest.mark.parametrize(
    ("body", "members"),
    [
        (b"", {}),
        (b" \n", {}),
        (b'{"a": [1]}', {"a": [1]}),
        (b'{"a\\u0000": ["b\\u0000", {"c": "\\u0000"}, 1]}', {"a\ufffd": ["b\ufffd", {"c": "\ufffd"}, 1]}),
    ],
)
def test_the_members_of_a_body(body: bytes, members: Any) -> None:
    assert parsed_body(body) == members


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "The body is no JSON: "),
        (b"[]", "The body must be a JSON object."),
        (b"null", "The body must be a JSON object."),
    ],
)
def test_a_body_that_is_no_object_is_refused(body: bytes, message: str) -> None:
    error = refused(parsed_body, body)
    assert isinstance(error, ValidationException)
    assert error.reason == "CannotParse" and str(error).startswith(message)


def test_a_body_is_nested_two_hundred_levels_deep_at_most() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert parsed_body(nested(200)).keys() == {"a"}
    error = refused(parsed_body, nested(201))
    assert isinstance(error, ValidationException)
    assert (str(error), error.reason) == ("The body is nested more than 200 levels deep.", "CannotParse")
    refused(parsed_body, b'{"a":' + b"[" * 200 + b"]" * 200 + b"}")


def request_with(parts: Iterable[bytes] = (), **members: Any) -> Request:
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    read: list[Any] = []

    async def receive() -> Any:
        read.append(messages[0])
        return messages.pop(0)

    headers = [(name.encode(), value.encode()) for name, value in members.pop("headers", {}).items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": b"",
        "headers": headers,
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        RECORD: RequestRecord("1.2.3.4"),
        **members,
    }
    request = Request(scope, receive)
    request.scope["read"] = read
    return request


def read(*parts: bytes, most: int = 10, **headers: str) -> bytes:
    return asyncio.run(operation._read(request_with(parts, headers=headers), most))


def test_a_body_within_its_limit_is_read_whole() -> None:
    assert read(b"12345", b"67890") == b"1234567890"
    assert read(b"12", **{"content-length": "10"}) == b"12"
    assert read(b"12", **{"content-length": "x"}) == b"12"
    for parts, headers in (((b"12345", b"678901"), {}), ((b"1",), {"content-length": "11"})):
        error = refused(read, *parts, **headers)
        assert (error.kind, str(error)) == (
            "RequestEntityTooLargeException",
            "The body may have at most 10 bytes.",
        )


def test_a_body_beyond_twice_its_limit_is_not_read_to_its_end() -> None:
    for parts, count in (([b"x" * 20, b"y", b"z"], 2), ([b"x" * 10, b"y" * 10, b""], 4)):
        request = request_with(parts)
        with pytest.raises(WireError):
            asyncio.run(operation._read(request, 10))
        assert len(request.scope["read"]) == count


def test_a_request_is_read_as_the_client_signed_it() -> None:
    request = request_with(
        raw_path=b"/a%20b?x", path="/a b", query_string=b"q=%20", headers={"X-Thing": "1"}, method="PUT"
    )
    signed = operation.signed_request(request, "/root")
    assert (signed.method, signed.path, signed.query) == ("PUT", "/root/a%20b", "q=%20")
    assert dict(signed.headers) == {"x-thing": "1"}
    assert operation.signed_request(request_with(path="/plain")).path == "/plain"


# Execution


def run(service: Service, operations: Any, request: Request) -> Any:
    return asyncio.run(operation.respond(service, request, operations))


def test_members_of_the_path_win_over_those_of_query_and_body(service: Service) -> None:
    calls: list[Any] = []

    def answer(service: Service, request: Any) -> Any:
        calls.append((request, operation.BASE_URL.get()))
        return {"done": True}

    shape = Structure({"id": Text(), "q": Text(), "none": Text()})
    thing = Operation("StartThing", "POST /a/{id}", shape, answer, query=("q", "id"), status=202)
    body = json.dumps({"id": "body", "q": "body", "x": 1, "none": None}).encode()
    request = request_with([body], path="/a/path", query_string=b"q=query&id=query", headers={"host": "here"})
    response = run(service, [thing], request)
    assert (response.status_code, json.loads(response.body)) == (202, {"done": True})
    assert calls == [({"id": "path", "q": "query", "x": 1}, "http://here/")]
    assert response.media_type == "application/json" and len(response.headers["x-amzn-RequestId"]) == 36
    record = request.scope[RECORD]
    assert (record.principal, record.act) == (Principal("local", ADMIN), "StartThing")


def test_operations_that_only_read_are_not_in_the_audit_log(service: Service) -> None:
    request = request_with(method="GET", path="/a/1/b")
    assert run(service, [made()], request).status_code == 200
    assert request.scope[RECORD].act == ""


def test_a_request_that_does_not_fit_the_shape_is_refused(service: Service) -> None:
    thing = made("POST /a", shape=Structure({"id": Text()}, required=["id"]))
    response = run(service, [thing], request_with([b"{}"], path="/a"))
    assert (response.status_code, response.headers["x-amzn-ErrorType"]) == (400, "ValidationException")
    assert json.loads(response.body) == {
        "__type": "ValidationException",
        "message": "Value at 'id' failed to satisfy constraint: Member must not be null",
        "reason": "FieldValidationFailed",
        "fieldList": [{"name": "id", "message": "Member must not be null"}],
    }


@pytest.mark.parametrize(
    ("error", "status", "kind", "message"),
    [
        (NotFound("no x\nmore"), 404, "ResourceNotFoundException", "no x"),
        (Contradiction("is there\nmore"), 409, "ConflictException", "is there"),
        (UsageError("wrong\nmore"), 400, "ValidationException", "wrong"),
        (RecursionError("deep"), 400, "ValidationException", "The request is nested too deeply."),
        (
            RuntimeError("secret"),
            500,
            "InternalServerException",
            "The server failed to do this; its log says why.",
        ),
        (errors.ThrottlingException("slow"), 429, "ThrottlingException", "slow"),
    ],
)
def test_what_an_operation_raises_is_an_error_of_the_interface(
    service: Service, error: Exception, status: int, kind: str, message: str
) -> None:
    def fail(service: Service, request: Any) -> Any:
        raise error

    async def fail_later(service: Service, request: Any) -> Any:
        raise error

    for answer in (fail, fail_later):
        response = run(service, [Operation("GetX", "POST /", Structure({}), answer)], request_with([b"{}"]))
        members = json.loads(response.body)
        assert (response.status_code, members["__type"], members["message"]) == (status, kind, message)
        assert response.headers["x-amzn-ErrorType"] == kind
    assert members.get("reason") == {400: "FieldValidationFailed"}.get(status) or "deep" in str(error)


def test_a_key_that_is_missing_is_a_denied_access() -> None:
    error = operation._as_wire_error(KeyMissing("no key\nmore"))
    assert (error.kind, str(error)) == ("AccessDeniedException", "no key")
    deep = operation._as_wire_error(RecursionError())
    assert isinstance(deep, ValidationException) and deep.reason == "CannotParse"


def test_a_client_that_has_gone_gets_an_empty_answer() -> None:
    async def gone() -> Any:
        raise ClientDisconnect

    response = asyncio.run(operation.respond_safely(gone))
    assert (response.status_code, response.body) == (400, b"{}")


def test_an_answer_without_content_has_no_body() -> None:
    response = operation.respond_with(204, {"a": 1})
    assert (response.status_code, response.body) == (204, b"")
    other = operation.respond_with(200, {"a": 1}, media_type="application/x")
    assert (other.body, other.media_type) == (b'{"a": 1}', "application/x")


# Callers


def authorized(token: str, **members: Any) -> Request:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return request_with([b"{}"], headers=headers, **members)


@pytest.mark.parametrize(("plane", "status"), [("data", 401), ("control", 403), ("logs", 403)])
def test_a_wrong_token_is_refused_as_its_plane_does(operate: Any, plane: str, status: int) -> None:
    service = operate(token="t" * 32)
    thing = made("POST /", plane=plane)
    assert run(service, [thing], authorized("t" * 32)).status_code == 200
    assert run(service, [thing], authorized("wrong")).status_code == status
    assert run(service, [thing], authorized("")).status_code in (401, 403)


def test_an_address_that_tries_many_tokens_is_throttled(operate: Any) -> None:
    service = operate(token="t" * 32)
    for number in range(6):
        assert run(service, [made("POST /")], authorized(f"wrong{number}")).status_code == 401
    response = run(service, [made("POST /")], authorized("t" * 32))
    assert (response.status_code, json.loads(response.body)["message"]) == (
        429,
        "Too many wrong signatures or tokens from this address.",
    )
    lines = (service.site.data_folder / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["act"] for line in lines] == ["signature for GetThing"] * len(lines) and lines


def test_calls_without_a_token_are_not_counted_as_guesses(operate: Any) -> None:
    service = operate(token="t" * 32)
    for _ in range(9):
        run(service, [made("POST /")], authorized(""))
    assert run(service, [made("POST /")], authorized("t" * 32)).status_code == 200


def test_an_operation_needs_its_role_and_a_missing_role_is_no_guess(operate: Any) -> None:
    viewer = ServeToken(name="viewer", role="view", token="v" * 32)
    service = operate(token="t" * 32, tokens=[viewer])
    for _ in range(9):
        response = run(service, [made("POST /", name="StartThing")], authorized("v" * 32))
        assert (response.status_code, json.loads(response.body)) == (
            403,
            {
                "__type": "AccessDeniedException",
                "message": "StartThing needs the role `run`; viewer has the role `view`.",
            },
        )
    assert run(service, [made("POST /")], authorized("v" * 32)).status_code == 200


def test_the_rate_of_an_operation_is_used_up_by_known_callers_alone(operate: Any) -> None:
    service = operate(token="t" * 32, evaluation={"limits": {"get_per_second": 1}})
    thing = made("POST /", name="GetBatchEvaluation")
    run(service, [thing], authorized("wrong"))
    assert run(service, [thing], authorized("t" * 32)).status_code == 200
    assert run(service, [thing], authorized("t" * 32)).status_code == 429


# The caller's identity


def identity_of(service: Service, body: bytes, **headers: str) -> tuple[int, str]:
    form = {"content-type": "application/x-www-form-urlencoded; charset=utf-8", **headers}
    request = request_with([body], headers=form)
    assert identity.is_form(request) and not identity.is_form(request_with())
    response = asyncio.run(identity.respond(service, request))
    assert response.media_type == "text/xml"
    return response.status_code, bytes(response.body).decode()


def test_a_caller_is_told_account_and_name(operate: Any) -> None:
    status, text = identity_of(operate(account="123456789012"), b"Action=GetCallerIdentity&Version=x")
    assert status == 200
    assert (
        "<Arn>arn:aws:iam::123456789012:user/local</Arn><UserId>local</UserId><Account>123456789012</Account>"
    ) in text
    named = operate(token="t" * 32, tokens=[ServeToken(name="a<b", role="view", token="v" * 32)])
    bearer = {"authorization": "Bearer " + "v" * 32}
    status, text = identity_of(named, b"Action=GetCallerIdentity", **bearer)
    assert status == 200 and "<UserId>a&lt;b</UserId>" in text


def test_other_actions_and_callers_are_refused_in_xml(operate: Any) -> None:
    status, text = identity_of(operate(), b"Action=AssumeRole%3C")
    assert status == 400 and "<Type>Sender</Type><Code>InvalidAction</Code>" in text
    assert "<Message>Could not find operation AssumeRole&lt; here.</Message>" in text
    status, text = identity_of(operate(token="t" * 32), b"Action=GetCallerIdentity")
    assert status == 403 and "<Code>MissingAuthenticationTokenException</Code>" in text
    error = identity._error(errors.InternalServerException("x"))
    assert error.status_code == 500 and b"<Type>Receiver</Type>" in bytes(error.body)
