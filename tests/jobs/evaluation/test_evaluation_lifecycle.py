"""An evaluation through the one order of events: read, opened, executed, extended and resumed."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from recorded_sessions import keep, recorded

from proctor.batch import lifecycle
from proctor.bootstrap import open_context
from proctor.context import Notice, RunContext
from proctor.errors import NotFound, PlanError, UsageError
from proctor.job import PlanText, make_overrides
from proctor.jobs import find_job
from proctor.jobs.evaluation.results import results_of
from proctor.jobs.evaluation.state import evaluation_of
from proctor.store import RetrySelection
from proctor.store.evaluations import EvaluationRecord

PLAN = """
batchEvaluationName: nightly
evaluators: [Builtin.Helpfulness]
judge: scripted/judge
dataSourceConfig:
  cloudWatchLogs: {logGroupNames: [/agents/travel], serviceNames: [travel]}
evaluationMetadata:
  sessionMetadata:
    - {sessionId: nowhere, groundTruth: {inline: {assertions: [it answers]}}}
"""
JUDGE = """rules: [{reply: '{"reasoning": "r", "score": "Very Helpful"}'}]"""

JOB = find_job("evaluation")


@dataclass
class Desk:
    ctx: RunContext
    folder: Path
    notices: list[Notice]

    def plan(self, text=PLAN, **overrides):
        source = PlanText(text=text, folder=self.folder)
        return JOB.read(source, make_overrides(JOB, overrides), self.ctx)

    def texts(self):
        return [notice.text for notice in self.notices]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judge.yaml").write_text(JUDGE)
    notices: list[Notice] = []
    with open_context((tmp_path,), home=str(tmp_path / "home"), notice=notices.append) as ctx:
        yield Desk(ctx, tmp_path, notices)


async def test_starting_a_plan_opens_the_evaluation_and_finds_its_sessions(desk):
    keep(desk.ctx.store, recorded("one"), recorded("two", minutes=(1,)))

    finished = await lifecycle.start(JOB, desk.plan(), desk.ctx)

    evaluation = evaluation_of(desk.ctx.store, finished.run_id, desk.ctx.now())
    assert (evaluation.state, finished.end.status) == ("COMPLETED", "completed")
    assert (finished.summary["itemCount"], finished.summary["successCount"]) == (2, 2)
    assert results_of(desk.ctx.store, finished.run_id).completed == 2
    assert desk.texts() == [
        "2 sessions to evaluate",
        "1 session with ground truth not among them: nowhere",
    ]


async def test_overrides_take_precedence_over_the_plan(desk):
    keep(desk.ctx.store, recorded("one"), recorded("two", minutes=(1,)))
    plan = desk.plan(batchEvaluationName="weekly", maxSessions=1, timeoutSec=5.0)

    finished = await lifecycle.start(JOB, plan, desk.ctx)

    (item,) = desk.ctx.store.read.items(finished.run_id, limit=10)
    assert finished.run_id.startswith("weekly-")
    assert json.loads(item["settings"])["timeoutSec"] == 5.0
    assert desk.texts()[0] == "1 session to evaluate, 1 older ones ignored"


async def test_an_evaluation_without_sessions_fails_and_looks_again_when_it_is_resumed(desk):
    finished = await lifecycle.start(JOB, desk.plan(), desk.ctx)

    evaluation = evaluation_of(desk.ctx.store, finished.run_id, desk.ctx.now())
    assert (finished.end.status, finished.end.reason) == ("aborted", "no_sessions")
    assert (evaluation.state, evaluation.error_details) == (
        "FAILED",
        ("No sessions were found for the given source.",),
    )

    keep(desk.ctx.store, recorded("one"))
    resumed = await lifecycle.resume(JOB, finished.run_id, desk.ctx)

    assert (resumed.end.status, resumed.summary["itemCount"]) == ("completed", 1)
    assert evaluation_of(desk.ctx.store, finished.run_id, desk.ctx.now()).error_details == ()


async def test_a_complete_evaluation_is_not_resumed_unless_errors_are_retried(desk):
    keep(desk.ctx.store, recorded("one"))
    finished = await lifecycle.start(JOB, desk.plan(), desk.ctx)

    with pytest.raises(UsageError, match="COMPLETED\nThere is nothing left to do"):
        await lifecycle.resume(JOB, finished.run_id, desk.ctx)
    again = await lifecycle.resume(JOB, finished.run_id, desk.ctx, retry=RetrySelection(errors=True))

    assert again.end.status == "completed"


async def test_a_source_that_cannot_be_read_is_recorded_as_the_failure(desk):
    keep(desk.ctx.store, recorded("one"))
    finished = await lifecycle.start(JOB, desk.plan(), desk.ctx)
    gone = {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": "arn:x/gone"}}
    opened = evaluation_of(desk.ctx.store, finished.run_id, desk.ctx.now())
    request = {**opened.document, "dataSourceConfig": gone}
    desk.ctx.store.evaluations.change_request(
        EvaluationRecord(
            id=opened.id, arn=opened.arn, name=opened.name, request=request, request_digest="another"
        )
    )

    with pytest.raises(NotFound):
        await lifecycle.resume(JOB, finished.run_id, desk.ctx)

    evaluation = evaluation_of(desk.ctx.store, finished.run_id, desk.ctx.now())
    assert evaluation.state == "FAILED"
    assert "gone" in evaluation.error_details[0]


def test_a_preview_checks_the_evaluators_and_writes_nothing(desk):
    with pytest.raises(UsageError, match=r"Did you mean `Builtin\.Helpfulness`"):
        lifecycle.preview(desk.plan(evaluators=["Builtin.Helpful"]), desk.ctx)
    with pytest.raises(PlanError):
        desk.plan("evaluators: 3")

    assert lifecycle.preview(desk.plan(), desk.ctx).remarks == ()
    assert desk.ctx.store.evaluations.page() == []


def test_an_evaluation_plan_is_recognized_by_its_keys():
    assert JOB.recognizes(PLAN) == 5
    assert JOB.recognizes("prompts: [hello]") == 0


@pytest.mark.parametrize(("many", "is_said"), [(2, True), (3, False)])
async def test_a_check_of_many_signatures_is_announced(desk, monkeypatch, many, is_said):
    monkeypatch.setattr(lifecycle, "MANY_RESULTS", many)
    keep(desk.ctx.store, recorded("one"), recorded("two", minutes=(1,)))
    finished = await lifecycle.start(JOB, desk.plan(), desk.ctx)

    await lifecycle.resume(JOB, finished.run_id, desk.ctx, retry=RetrySelection(errors=True))

    assert ("checking the signatures of its results" in desk.texts()) is is_said
