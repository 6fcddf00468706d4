"""The JSON interface keeps to what it says of itself, whatever it is sent."""

import re
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from stocked_runs import stock

from waiting import TIME_LIMIT_SECONDS

# Of each operation; ten times as many with the profile `long` of `make chaos`.
LIMITS = settings(max_examples=settings.default.max_examples // 33, suppress_health_check=list(HealthCheck))


@pytest.fixture
def interface(serve, site):
    """The interface of a server with a run in it, whose commands say that they cannot."""
    # Here, not above: it takes a second to load, in each worker.
    import schemathesis

    stock(site.context.store, "known", count=5)
    server = serve(command=[sys.executable, "-c", 'print(\'{"error": "not here"}\')'])
    document = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json", timeout=TIME_LIMIT_SECONDS)
    return document.include(path_regex="^/api/")


def test_no_request_brings_the_server_down_and_every_answer_is_as_described(interface):
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    checks = [not_a_server_error, response_schema_conformance, status_code_conformance]
    tried = set()

    for found in interface.get_all_operations():
        operation = found.ok()

        @LIMITS
        @given(case=operation.as_strategy())
        def attempts(case):
            tried.add(f"{case.method} {case.path}")
            case.validate_response(case.call(timeout=TIME_LIMIT_SECONDS), checks=checks)

        attempts()

    assert {"GET /api/runs", "POST /api/runs", "POST /api/plans/check", "GET /api/settings"} <= tried


def test_every_operation_says_what_it_is_for(served):
    document = served.get("/api/openapi.json").json

    silent = [
        f"{method} {path}"
        for path, entry in document["paths"].items()
        for method, said in entry.items()
        if path.startswith("/api/") and not said.get("summary")
    ]

    assert silent == []
    manual = " ".join(re.sub("<[^>]*>", " ", served.get("/api/docs").text).split())
    for words in (
        "GET /api/compare/items Tasks with different results in two groups Largest differences first.",
        "Parameters metric * string in query",
        "run * list of string in query. The first is the baseline.",
        "direction | higher | lower | all in query. Of the candidate",
    ):
        assert words in manual
