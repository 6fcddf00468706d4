"""Whatever is sent, the answer is a refusal or a success, never a failure of ours."""

import gzip
import http.client
import json
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from test_wire_evaluators import JUDGE
from test_wire_jobs import GROUP
from test_wire_online import RULE, SOURCE
from wire_server import servers

from proctor.agentcore import LOG_OPERATIONS, OPERATIONS, logs
from waiting import TIME_LIMIT_SECONDS

TARGETS = [f"{logs.TARGET}{name}" for name in LOG_OPERATIONS]
START = {
    "batchEvaluationName": "n",
    "evaluators": [{"evaluatorId": "Builtin.TrajectoryExactOrderMatch"}],
    "dataSourceConfig": {"cloudWatchLogs": {"serviceNames": ["s"], "logGroupNames": [GROUP]}},
    "evaluationMetadata": {
        "sessionMetadata": [{"sessionId": "s", "groundTruth": {"inline": {"turns": [{}]}}}]
    },
}
BODIES = {
    "StartBatchEvaluation": START,
    "Evaluate": {"evaluationInput": {"sessionSpans": [{"traceId": "a" * 32, "spanId": "b" * 16}]}},
    "CreateEvaluator": {"evaluatorName": "n", "level": "TRACE", "evaluatorConfig": JUDGE},
    "UpdateEvaluator": {"evaluatorConfig": JUDGE},
    "CreateOnlineEvaluationConfig": {
        "onlineEvaluationConfigName": "n",
        "rule": RULE,
        "dataSourceConfig": SOURCE,
        "evaluators": [{"evaluatorId": "Builtin.Helpfulness"}],
        "enableOnCreate": False,
        "evaluationExecutionRoleArn": "arn:aws:iam::123456789012:role/x",
    },
    "TagResource": {"tags": {"a": "b"}},
}  # fmt: skip
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=20),
    lambda inner: (
        some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=10), inner, max_size=4)
    ),
    max_leaves=15,
)
PRINTABLE = some.characters(min_codepoint=33, max_codepoint=126, exclude_characters="#")
FEW = settings(max_examples=40, suppress_health_check=list(HealthCheck))


class Caller:
    """Sends requests that no client would, over one connection."""

    def __init__(self, served):
        self._connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=TIME_LIMIT_SECONDS)

    def status(self, *request):
        return self.answer(*request)[0]

    def answer(self, method, path, body=b"", headers=None):
        try:
            self._connection.request(method, path, body=body, headers=headers or {})
            response = self._connection.getresponse()
            said = response.read()
        except (http.client.HTTPException, ConnectionError):
            self._connection.close()
            raise
        if response.status >= 300 and response.headers.get("x-amzn-ErrorType"):
            assert json.loads(said)["message"]
        return response.status, said


@pytest.fixture(scope="module")
def calm(tmp_path_factory, command_server, empty_store_file):
    """One server for all that is thrown at it; nothing it starts does anything."""
    limits = {"start_per_second": 0, "body_bytes": 1_000_000}
    with servers(tmp_path_factory.mktemp("hostile"), command_server.program, empty_store_file) as start:
        yield start(command=["true"], evaluation={"limits": limits})


@pytest.fixture
def caller(calm):
    return Caller(calm)


def path_of(operation, value="x"):
    path = operation.path
    for member in ("batchEvaluationId", "evaluatorId", "onlineEvaluationConfigId", "resourceArn"):
        path = path.replace(f"{{{member}}}", value)
    return path


def altered(document, data):
    """The document with one part of it replaced by something else, or taken away."""
    found = json.loads(json.dumps(document))
    place = found
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return found
        key = data.draw(some.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(some.booleans()):
            place = place[key]
            continue
        if data.draw(some.booleans()) and isinstance(place, dict):
            del place[key]
        else:
            place[key] = data.draw(JSON)
        return found


@FEW
@given(data=some.data())
def test_bodies_that_are_nearly_right_are_answered(calm, data):
    operation = data.draw(some.sampled_from([each for each in OPERATIONS if each.name in BODIES]))
    body = json.dumps(altered(BODIES[operation.name], data)).encode("utf-8", "replace")
    value = data.draw(
        some.sampled_from(["Builtin.Helpfulness", "n-0123456789", "Builtin.TrajectoryInOrderMatch"])
    )

    assert Caller(calm).status(operation.method, path_of(operation, value), body) < 500


@FEW
@given(document=JSON, number=some.integers(0, len(OPERATIONS) - 1))
def test_any_json_is_answered(calm, document, number):
    operation = OPERATIONS[number]
    body = json.dumps(document).encode("utf-8", "replace")

    assert Caller(calm).status(operation.method, path_of(operation, "n-0123456789"), body) < 500


@FEW
@given(document=JSON, target=some.sampled_from(TARGETS))
def test_any_json_is_answered_by_log_operations(calm, document, target):
    body = json.dumps(document).encode("utf-8", "replace")

    assert Caller(calm).status("POST", "/", body, {"X-Amz-Target": target}) < 500


@FEW
@given(
    text=some.text(alphabet=PRINTABLE, max_size=60),
    query=some.text(alphabet=PRINTABLE, max_size=40),
    method=some.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    place=some.sampled_from(
        ["/evaluations/batch-evaluate/", "/evaluations/evaluate/", "/evaluators/", "/tags/"]
    ),
)
def test_any_path_is_answered(calm, text, query, method, place):
    path = f"{place}{text.replace('?', '')}?{query}"

    assert Caller(calm).status(method, path) < 500


NO_BODIES = [
    b"[" * 100_000,
    b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    b'{"evaluationInput": {"sessionSpans": [' + b"[" * 400 + b"]" * 400 + b"]}}",
    b"{",
    b"null",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"a": NaN, "b": 1e999, "c": "\\ud800"}',
    b'{"batchEvaluationName": "\\u0000", "description": "\\ud800\\udc00\\ud800", "evaluatorName": 1e400}',
    b'{"n": ' + b"9" * 5000 + b"}",
    gzip.compress(b"{}"),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_bodies_that_are_none_are_refused(caller, operation):
    path = path_of(operation, "n-0123456789")

    statuses = [caller.status(operation.method, path, body) for body in NO_BODIES]

    assert [status for status in statuses if status not in range(200, 500)] == []


def nested(levels):
    return b'{"a":' * levels + b"1" + b"}" * levels


TOO_DEEP = "The body is nested more than 200 levels deep."


@pytest.mark.parametrize(
    ("body", "message", "reason"),
    [
        (b"{", "The body is no JSON: ", "CannotParse"),
        (b"[]", "The body must be a JSON object.", "CannotParse"),
        (nested(201), TOO_DEEP, "CannotParse"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", TOO_DEEP, "CannotParse"),
        (nested(200), "3 validation errors detected: ", "FieldValidationFailed"),
        (b" \n", "3 validation errors detected: ", "FieldValidationFailed"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(caller, body, message, reason):
    status, said = caller.answer("POST", "/evaluators/create", body)

    answer = json.loads(said)
    assert (status, answer["__type"], answer["reason"]) == (400, "ValidationException", reason)
    assert answer["message"].startswith(message)


@pytest.mark.parametrize("text", ["", "-", "x", "1.5", "--1", "1" * 19])
def test_a_number_of_a_query_has_eighteen_digits_at_most(caller, text):
    status, said = caller.answer("GET", f"/evaluations/batch-evaluate?maxResults={text}&other=1")

    assert status == 400
    assert json.loads(said)["fieldList"] == [{"name": "maxResults", "message": "Member must be an integer"}]


def test_hostile_text_is_kept_but_for_nul_which_no_database_stores_and_members_of_the_path_win(caller, calm):
    text = "<script>alert(1)</script> \u202e \x1b[31m ' OR 1=1 --"
    made = calm.control.create_evaluator(evaluatorName="nul", level="TRACE", evaluatorConfig=JUDGE)
    body = json.dumps({"description": f"{text}\0b", "evaluatorId": "other-0123456789"}).encode()

    assert caller.status("PUT", f"/evaluators/{made['evaluatorId']}", body) == 202

    found = calm.control.get_evaluator(evaluatorId=made["evaluatorId"])
    assert found["description"] == f"{text}\ufffdb"


def test_a_giant_body_is_refused(caller):
    body = b'{"description": "' + b"x" * 1_500_000 + b'"}'

    assert caller.status("POST", "/evaluations/batch-evaluate", body) == 413


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path", ["/evaluations/batch-evaluate/a/b/c", "/evaluators/a/b", "/evaluations/evaluate/"]
)
def test_a_path_of_no_operation_is_not_found_and_an_empty_id_is_refused(caller, method, path):
    is_operation = (method, path) == ("POST", "/evaluations/evaluate/")

    assert caller.status(method, path) == (400 if is_operation else 404)
