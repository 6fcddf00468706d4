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
    assert evaluation.state == "FAILED"
    assert evaluation.error_details == ("No sessions were found for the given source.",)

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


# White box: so many results would take a minute.
@pytest.mark.parametrize(("many", "is_said"), [(2, True), (3, False)])
async def test_a_check_of_many_signatures_is_announced(desk, monkeypatch, many, is_said):
    monkeypatch.setattr(lifecycle, "MANY_RESULTS", many)
    keep(desk.ctx.store, recorded("one"), recorded("two", minutes=(1,)))
    finished = await lifecycle.start(JOB, desk.plan(), desk.ctx)

    await lifecycle.resume(JOB, finished.run_id, desk.ctx, retry=RetrySelection(errors=True))

    assert ("checking the signatures of its results" in desk.texts()) is is_said


VERDICTS = """
rules:
  - {match: (?s)harm.*Somewhere, reply: '{"reasoning": "harm", "score": "Harmful"}'}
  - {match: (?s)harm, reply: '{"reasoning": "none", "score": "Not Harmful"}'}
  - {match: (?s)Somewhere, reply: '{"reasoning": "no place", "score": "Very Unhelpful"}'}
  - {reply: '{"reasoning": "a place", "score": "Very Helpful"}'}
"""


async def test_the_page_of_an_evaluation_has_averages_and_the_worst_results(desk):
    (desk.folder / "judge.yaml").write_text(VERDICTS)
    vague = recorded("vague", ("Where to?", (), "Somewhere."), minutes=(1,))
    keep(desk.ctx.store, recorded("good"), vague, recorded("fine", minutes=(2,)))
    names = ["Builtin.Helpfulness", "Builtin.Harmfulness", "Builtin.TrajectoryInOrderMatch"]
    plan = desk.plan(evaluators=names)

    assert {work.task: count for work, count in plan.workload(desk.ctx).items()} == dict.fromkeys(names, 3)
    shown = plan.estimate(desk.ctx)
    assert (shown.item_count, shown.cost_usd, plan.concurrency) == (9, 0.0, 8)
    finished = await lifecycle.start(JOB, plan, desk.ctx)

    averages, chart, *worst = JOB.results_view(finished.run_id, desk.ctx).sections
    assert [[cell.text for cell in row] for row in averages.rows] == [
        ["Builtin.Harmfulness", "0.333 (0.000 to 1.000)", "lower", "3", "–"],
        ["Builtin.Helpfulness", "0.610 (0.000 to 1.000)", "higher", "3", "–"],
        ["Builtin.TrajectoryInOrderMatch", "–", "higher", "0", "3"],
    ]
    assert [column.limits for column in averages.columns] == [None, (0.0, 1.0), None, None, None]
    name, value = averages.rows[1][:2]
    assert (name.figure.value, value.figure.value, averages.rows[2][1].figure) == (None, 0.61, None)
    assert value.figure.items == {"factor": ["evaluator=Builtin.Helpfulness"]}
    assert chart.title == "Averages with 95% CIs"
    assert [(table.title, [[cell.text for cell in row] for row in table.rows]) for table in worst] == [
        ("Highest Builtin.Harmfulness", [["vague", "1.000", "Harmful", "harm"]]),
        ("Lowest Builtin.Helpfulness", [["vague", "0.170", "Very Unhelpful", "no place"]]),
    ]
    assert worst[0].rows[0][0].session == desk.ctx.store.read.session("vague")["id"]


@pytest.mark.parametrize(
    ("text", "overrides", "problem"),
    [
        (PLAN, {"batchEvaluationName": ""}, "the evaluation has no name\nGive --name NAME, or batch"),
        (PLAN, {"batchEvaluationName": "a b!"}, "the name a b! should be a letter"),
        (PLAN, {"evaluators": []}, "no evaluator was named\nGive --evaluator NAME"),
        (PLAN, {"evaluators": ["a.json", "b.json"]}, "two evaluators are named kind\nRename one: results"),
        ("batchEvaluationName: x\nevaluators: [a]\n", {}, "no source of sessions was named\nGive --run"),
    ],
)
def test_an_evaluation_that_is_not_complete_is_refused(desk, text, overrides, problem):
    (desk.folder / "own.py").write_text("def judge(event):\n    return {'value': 1.0}\n")
    own = {"evaluatorName": "kind", "level": "SESSION"}
    own["evaluatorConfig"] = {"codeBased": {"function": "own:judge"}}
    for name in ("a.json", "b.json"):
        (desk.folder / name).write_text(json.dumps(own))

    with pytest.raises(UsageError, match=problem):
        lifecycle.preview(desk.plan(text, **overrides), desk.ctx)


def test_a_typed_plan_names_files_by_absolute_paths(desk):
    source = PlanText(text=PLAN + "groundTruth: truth.yaml\n", folder=None)

    with pytest.raises(UsageError, match=r"truth\.yaml is a relative path, and a typed plan"):
        JOB.read(source, make_overrides(JOB, {}), desk.ctx)
