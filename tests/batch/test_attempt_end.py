"""The end of an attempt: its outcome, cost and model, and the row of its item."""

from types import SimpleNamespace

import pytest
from work_items import work

from proctor.batch.attempt import Attempt
from proctor.errors import CostLimit, StoreError, WorkspaceError
from proctor.item import UNCHECKED
from proctor.runner import Outcome


def bare(**members):
    """An attempt without what its constructor needs."""
    instance = Attempt.__new__(Attempt)
    for name, value in members.items():
        setattr(instance, name, value)
    return instance


def limit(reason):
    return CostLimit("too much", reason=reason)


FINISHED = [Outcome(), Outcome(status="fail", reason="checks_failed"), Outcome(reason=UNCHECKED)]


@pytest.mark.parametrize("outcome", FINISHED)
def test_an_attempt_that_finished_before_the_batch_halted_counts(outcome):
    assert bare(_limit_reached=None)._within_limits(outcome) is outcome
    assert bare(_limit_reached=limit("halted"))._within_limits(outcome) is outcome
    reached = bare(_limit_reached=limit("cost_limit"))._within_limits(outcome)
    assert (reached.reason, reached.error) == ("cost_limit", "too much")


def test_an_attempt_that_the_limit_cut_off_has_its_reason():
    reached = limit("halted")
    for outcome in (None, Outcome(status="error", reason="agent_failed")):
        ended = bare(_limit_reached=reached)._within_limits(outcome)
        assert (ended.status, ended.reason, ended.error) == (reached.status, "halted", "too much")


async def run_of(error):
    shut = []

    class Runner:
        async def run(self, item, services):
            if error:
                raise error
            return Outcome(reason="done")

    made = bare(
        _work=work(),
        _support=SimpleNamespace(find_runner=lambda name: Runner()),
        _services=lambda: None,
        _token="token",
        _context=SimpleNamespace(gateway=SimpleNamespace(shut=shut.append)),
    )
    try:
        return await made._run_item()
    finally:
        assert shut == ["token"]
        made._token = ""
        try:
            await made._run_item()
        except StoreError:
            pass
        assert shut == ["token"], "without access there is nothing to shut"


async def test_errors_of_an_attempt_are_its_outcome_except_those_of_the_store():
    assert await run_of(None) == Outcome(reason="done")
    failed = await run_of(WorkspaceError("no tree", reason="workspace_broken"))
    assert (failed.status, failed.reason, failed.error) == ("error", "workspace_broken", "no tree")
    fault = await run_of(KeyError("x"))
    assert (fault.status, fault.reason, fault.error) == ("error", "internal_error", "KeyError: 'x'")
    with pytest.raises(StoreError):
        await run_of(StoreError("full"))
