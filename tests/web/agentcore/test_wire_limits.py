"""Limits of the server come from its configuration."""

import pytest

from proctor.errors import UsageError
from proctor.web.agentcore.service import ServiceLimits, limits_of


def test_limits_are_the_services_own_unless_said_otherwise():
    found = limits_of({"active_jobs": 50, "get_per_second": 0})

    assert (found.active_jobs, found.jobs) == (50, ServiceLimits().jobs)
    assert found.rates["GetBatchEvaluation"] == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"active_job": 1}, "Did you mean `active_jobs`"),
        ({"jobs": -1}, "not negative"),
        ({"jobs": "x"}, "a number"),
    ],
)
def test_a_limit_that_makes_no_sense_is_told(settings, said):
    with pytest.raises(UsageError, match=said):
        limits_of(settings)


def test_a_server_with_such_a_limit_does_not_start(serve):
    with pytest.raises(UsageError, match="jobs"):
        serve(evaluation={"limits": {"jbos": 1}})
