"""Limits and rates of the server come from its configuration."""

import pytest
from wire_server import refused

from proctor.agentcore.service import ServiceLimits, limits_of
from proctor.errors import UsageError


def test_limits_are_the_services_own_unless_said_otherwise():
    found = limits_of({"active_jobs": 50, "jobs": 0, "get_per_second": 0, "list_per_second": 6.5})

    assert (found.active_jobs, found.jobs, found.evaluators) == (50, 0, ServiceLimits().evaluators)
    assert found.rates == {
        "StartBatchEvaluation": 3,
        "StopBatchEvaluation": 3,
        "DeleteBatchEvaluation": 3,
        "GetBatchEvaluation": 0,
        "ListBatchEvaluations": 6.5,
    }
    assert limits_of({}) == ServiceLimits()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"active_job": 1},
            r"has no `active_job`\nDid you mean `active_jobs`\? There are: active_jobs, jobs,",
        ),
        ({"zzz": 1}, r"has no `zzz`\nThere are: active_jobs,"),
        ({"jobs": -1}, "^.evaluation.limits.: `jobs` should be a number that is not negative$"),
        ({"jobs": True}, "`jobs` should be a number"),
        ({"jobs": "3"}, "`jobs` should be a number"),
    ],
)
def test_a_limit_that_makes_no_sense_is_told(settings, said):
    with pytest.raises(UsageError, match=said):
        limits_of(settings)


def test_a_server_with_such_a_limit_does_not_start(serve):
    with pytest.raises(UsageError, match="jobs"):
        serve(evaluation={"limits": {"jbos": 1}})


def test_a_rate_is_the_calls_of_one_second_and_fills_again_with_time(serve, clock):
    served = serve(now=clock, evaluation={"limits": {"list_per_second": 4, "get_per_second": 0.5}})

    def taken(call, **members):
        """How many calls are answered until one is throttled."""
        for number in range(100):
            try:
                call(**members)
            except served.data.exceptions.ThrottlingException:
                return number
            except served.data.exceptions.ResourceNotFoundException:
                pass
        return 100

    def counts():
        one = taken(served.data.get_batch_evaluation, batchEvaluationId="none-0123456789")
        return taken(served.data.list_batch_evaluations), one

    assert counts() == (4, 1)
    clock.forward(seconds=0.5)
    assert counts() == (2, 0)
    clock.forward(seconds=0.125)
    assert counts() == (0, 0)
    clock.forward(seconds=0.125)
    assert counts() == (1, 0), "what is left of a call is kept"
    clock.forward(seconds=1.25)
    assert counts() == (4, 1)
    clock.forward(hours=1)
    assert counts() == (4, 1)
    clock.forward(hours=-1)
    assert counts() == (0, 0)
    refusal = refused(served.data.get_batch_evaluation, batchEvaluationId="none-0123456789")
    assert refusal.message == "Rate exceeded: GetBatchEvaluation takes 0.5 calls a second."
