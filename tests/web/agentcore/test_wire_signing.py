"""Who may call: signatures are checked against the keys that are configured, and nothing passes unsigned."""

import http.client
import json
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from botocore import UNSIGNED
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from wire_server import KEY, SECRET, refused

from proctor.config import ServeToken
from waiting import TIME_LIMIT_SECONDS

TOKEN = "a-token-of-this-server"


def refusal(call, **members):
    found = refused(call, **members)
    return found.code, found.status


def sent(served, method="GET", path="/evaluations/batch-evaluate", body=b"", headers=None, host=None):
    """A request of our own; the status and the error's name."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=TIME_LIMIT_SECONDS)
    connection.request(method, path, body=body, headers=headers or {})
    response = connection.getresponse()
    response.read()
    return response.status, response.headers.get("x-amzn-ErrorType")


class Undated(SigV4Auth):
    """Signs everything but the date."""

    def headers_to_sign(self, request):
        headers = super().headers_to_sign(request)
        del headers["x-amz-date"]
        return headers


def signed(served, *, body=b"", service="bedrock-agentcore", signer=SigV4Auth):
    headers = {"Content-Type": "application/json"}
    request = AWSRequest("POST", f"{served.url}/evaluators/create", data=body, headers=headers)
    signer(Credentials(KEY, SECRET), service, "us-east-1").add_auth(request)
    return dict(request.headers.items())


@pytest.fixture
def keyed(serve):
    """A server that checks signatures. After a few wrong ones it lets their sender wait."""
    return serve(access_keys={KEY: SECRET})


def test_where_nothing_is_configured_everybody_on_this_machine_may_call_but_no_page_of_another_site(shared):
    unsigned = shared.client("bedrock-agentcore", config={"signature_version": UNSIGNED})
    headers = {"Origin": "http://evil.example", "Content-Type": "text/plain"}

    assert unsigned.list_batch_evaluations()["batchEvaluations"] == []
    assert sent(shared, "POST", "/evaluators/create", b"{}", headers)[0] == 403
    assert shared.data.list_batch_evaluations()["batchEvaluations"] == []


def test_a_right_signature_is_let_in_on_both_planes_and_the_logs(keyed):
    assert keyed.data.list_batch_evaluations()["batchEvaluations"] == []
    assert keyed.control.list_evaluators(maxResults=3)["evaluators"]
    assert "logGroups" in keyed.logs.describe_log_groups()


def test_what_is_encoded_in_a_path_or_query_is_signed_as_it_was_sent(keyed):
    arn = "arn:aws:bedrock-agentcore:us-east-1:000000000000:evaluator/mine-0123456789"

    missing = refusal(keyed.control.list_tags_for_resource, resourceArn=arn)
    assert missing == ("ResourceNotFoundException", 404)
    assert refusal(keyed.data.get_batch_evaluation, batchEvaluationId="x y/z?é")[0] == "ValidationException"
    assert refusal(keyed.data.list_batch_evaluations, nextToken="a+b/c== ~é")[0] == "ValidationException"
    assert refusal(keyed.control.untag_resource, resourceArn=arn, tagKeys=["a b", "c/d"])[1] == 404


def test_temporary_credentials_sign_their_token_too(keyed):
    client = keyed.client("bedrock-agentcore", aws_access_key_id=KEY, aws_secret_access_key=SECRET,
                          aws_session_token="temporary")  # fmt: skip

    assert client.list_batch_evaluations()["batchEvaluations"] == []


@pytest.mark.parametrize("service", ["bedrock-agentcore", "bedrock-agentcore-control", "logs"])
def test_a_wrong_secret_an_unknown_key_and_no_signature_are_refused(keyed, service):
    calls = {
        "bedrock-agentcore": "list_batch_evaluations",
        "bedrock-agentcore-control": "list_evaluators",
        "logs": "describe_log_groups",
    }

    def code(**options):
        return refusal(getattr(keyed.client(service, **options), calls[service]))

    assert code(aws_access_key_id=KEY, aws_secret_access_key="wrong") == ("InvalidSignatureException", 403)
    unknown = code(aws_access_key_id="OTHER", aws_secret_access_key=SECRET)
    assert unknown == ("UnrecognizedClientException", 403)
    assert code(config={"signature_version": UNSIGNED}) == ("MissingAuthenticationTokenException", 403)


def test_an_altered_body_path_or_method_is_refused(keyed):
    body = b'{"evaluatorName": "a"}'
    headers = signed(keyed, body=body)

    assert sent(keyed, "POST", "/evaluators/create", body, headers)[0] == 400
    for method, path, altered in (
        ("POST", "/evaluators/create", body.replace(b"a", b"b")),
        ("POST", "/evaluators/create?x=1", body),
        ("POST", "/online-evaluation-configs/create", body),
        ("PUT", "/evaluators/create", body),
    ):
        assert sent(keyed, method, path, altered, headers) == (403, "InvalidSignatureException")


def test_an_unsigned_payload_a_missing_date_and_another_service_are_refused(keyed):
    headers = signed(keyed, body=b"{}")
    for wrong, body in (
        # A payload that is declared unsigned is still compared.
        (headers | {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, b'{"a": 1}'),
        (signed(keyed, body=b"{}", signer=Undated), b"{}"),
        (signed(keyed, body=b"{}", service="s3"), b"{}"),
    ):
        answer = sent(keyed, "POST", "/evaluators/create", body, wrong)
        assert answer == (403, "InvalidSignatureException")


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_signature_of_another_time_is_refused(serve, minutes):
    served = serve(access_keys={KEY: SECRET}, now=lambda: datetime.now(UTC) + timedelta(minutes=minutes))

    assert refusal(served.data.list_batch_evaluations) == ("InvalidSignatureException", 403)


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256 Credential=x",
        "Basic dXNlcjpwYXNz",
        f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/bedrock-agentcore/aws4_request, "
        f"SignedHeaders=, Signature={'0' * 64}",
    ],
)
def test_what_is_no_signature_is_refused(keyed, authorization):
    assert sent(keyed, headers={"Authorization": authorization}) == (403, "IncompleteSignatureException")


def test_a_server_with_a_token_wants_it_as_bearer_or_as_the_secret_of_its_own_key(serve):
    served = serve(token=TOKEN)
    own = served.client("bedrock-agentcore", aws_access_key_id="proctor", aws_secret_access_key=TOKEN)

    assert own.list_batch_evaluations()["batchEvaluations"] == []
    assert sent(served, headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert sent(served, headers={"Authorization": "Bearer wrong"}) == (401, "UnauthorizedException")
    expected = (403, "AccessDeniedException")
    assert sent(served, "POST", "/evaluators", headers={"Authorization": "Bearer wrong"}) == expected
    assert sent(served) == (403, "MissingAuthenticationTokenException")
    assert refusal(served.data.list_batch_evaluations) == ("UnrecognizedClientException", 403)


def test_a_caller_who_is_refused_uses_up_nobodys_rate(serve):
    served = serve(access_keys={KEY: SECRET}, evaluation={"limits": {"list_per_second": 1}})
    for _ in range(3):
        sent(served)

    assert served.data.list_batch_evaluations()["batchEvaluations"] == []


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_an_address_that_tries_many_tokens_is_throttled_and_noted(serve):
    served = serve(token=TOKEN)
    for _ in range(9):
        assert sent(served) == (403, "MissingAuthenticationTokenException")
    assert sent(served, headers=bearer(TOKEN))[0] == 200, "a call without a token is no guess"

    for number in range(6):
        assert sent(served, headers=bearer(f"wrong{number}")) == (401, "UnauthorizedException")
    assert sent(served, headers=bearer(TOKEN)) == (429, "ThrottlingException")
    lines = (served.site.data_folder / "audit.jsonl").read_text().splitlines()
    assert {json.loads(line)["action"] for line in lines} == {"signature for ListBatchEvaluations"}


def test_an_operation_needs_its_role_and_a_missing_role_is_no_guess(serve):
    viewer = ServeToken(name="viewer", role="view", token="v" * 32)
    served = serve(token=TOKEN, tokens=[viewer])
    start = ("POST", "/evaluations/batch-evaluate", b"{}")
    for _ in range(9):
        assert sent(served, *start, headers=bearer("v" * 32)) == (403, "AccessDeniedException")

    assert sent(served, headers=bearer("v" * 32))[0] == 200
    assert sent(served, *start, headers=bearer(TOKEN)) == (400, "ValidationException")
