"""An evaluation through the one order of events: read, opened, executed, extended and resumed."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from recorded_sessions import keep, recorded

from databases import query
from proctor.batch import lifecycle
from proctor.bootstrap import open_context
from proctor.context import Notice, RunContext
from proctor.errors import NotFound, PlanError, UsageError
from proctor.job import PlanText, make_overrides
from proctor.jobs import find_job
from proctor.jobs.evaluation.results import records_of, results_of
from proctor.jobs.evaluation.state import evaluation_of
from proctor.store import RetrySelection, batches
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
JUDGE = """
rules:
  - match: (?s)To Oslo
    reply: '{"reasoning": "It names a place.", "score": "Very Helpful"}'
    usage: {input_tokens: 100, output_tokens: 10}
  - match: (?s)No idea
    reply: no verdict at all
    usage: {input_tokens: 100, output_tokens: 10}
  - reply: '{"reasoning": "It does not.", "score": "Very Unhelpful"}'
    usage: {input_tokens: 100, output_tokens: 10}
"""

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

    async def evaluated(self, *evaluators, text=PLAN, **overrides):
        """An evaluation that has run to its end, and its items."""
        plan = self.plan(text, evaluators=evaluators or ("Builtin.Helpfulness",), **overrides)
        return self.result_of((await lifecycle.start(JOB, plan, self.ctx)).run_id)

    async def resumed(self, evaluation, **more):
        return self.result_of((await lifecycle.resume(JOB, evaluation.id, self.ctx, **more)).run_id)

    def result_of(self, run_id):
        return evaluation_of(self.ctx.store, run_id, self.ctx.now())

    def outcomes(self, evaluation):
        items = self.ctx.store.read.items(evaluation.id, limit=100)
        return sorted((item["status"], item["reason"]) for item in items)

    def rows(self, table):
        return query(self.ctx.store, f'SELECT * FROM "{table}" ORDER BY 1')


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
    assert desk.texts() == ["2 sessions to evaluate", "1 session with ground truth not among them: nowhere"]


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

    assert {work.task: count for work, count in plan.estimate(desk.ctx).workload.items()} == dict.fromkeys(
        names, 3
    )
    shown = plan.estimate(desk.ctx)
    assert (shown.item_count, shown.cost_usd, plan.concurrency) == (9, 0.0, 8)
    finished = await lifecycle.start(JOB, plan, desk.ctx)

    averages, chart, *worst = JOB.documents(finished.run_id, desk.ctx).results().sections
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
        (
            PLAN.replace("batchEvaluationName: ", "description: "),
            {},
            "the evaluation has no name\nGive --name NAME, or batch",
        ),
        (PLAN, {"batchEvaluationName": "a b!"}, "`batchEvaluationName` should be a letter"),
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


TRUTH = """
evaluationMetadata:
  sessionMetadata:
    - sessionId: good
      testScenarioId: to-oslo
      groundTruth: {inline: {expectedTrajectory: {toolNames: [search]}}}
"""


async def test_every_session_is_judged_by_every_evaluator_against_its_ground_truth(desk):
    odd = recorded("odd", ("Where to?", (), "No idea."), minutes=(2,))
    keep(
        desk.ctx.store, recorded("good"), recorded("bad", ("Where to?", (), "Somewhere."), minutes=(1,)), odd
    )
    plan = PLAN.partition("evaluationMetadata")[0] + TRUTH

    job = await desk.evaluated("Builtin.Helpfulness", "Builtin.TrajectoryInOrderMatch", text=plan)

    results = results_of(desk.ctx.store, job.id)
    helpful, matched = results.summaries
    assert job.state == "COMPLETED_WITH_ERRORS"
    assert job.error_details == ("2 of 3 sessions failed during batch evaluation.",)
    assert (results.completed, results.failed, results.total) == (1, 2, 3)
    assert (helpful.evaluated, helpful.failed) == (2, 1)
    assert helpful.average.value == pytest.approx((0.83 + 0.17) / 2)
    assert helpful.labels == {"Very Helpful": 1, "Very Unhelpful": 1}
    # The judge of the odd one was asked twice.
    assert (helpful.input_tokens, helpful.output_tokens) == (400, 40)
    assert (matched.evaluated, matched.failed, matched.average.value) == (1, 2, 1.0)
    assert matched.if_failures_were_zero == pytest.approx(1 / 3)
    assert desk.outcomes(job).count(("error", "evaluator_failed")) == 3
    records = [each["attributes"] for each in records_of(desk.ctx.store, job.id)]
    (failed,) = [
        each
        for each in records
        if "error.type" in each and each["gen_ai.evaluation.name"] == "Builtin.Helpfulness"
    ]
    assert failed["session.id"] == "odd" and "gen_ai.evaluation.score.value" not in failed


async def test_what_the_judge_was_asked_and_what_it_cost_is_recorded_with_the_item(desk):
    keep(desk.ctx.store, recorded("good"))

    job = await desk.evaluated()

    read = desk.ctx.store.read
    (item,) = read.items(job.id)
    session = read.session(item["sessionId"])
    messages = read.of_session("messages", session["id"])
    (score,) = read.of_session("scores", session["id"])
    assert (session["job"], session["model"], session["isMock"]) == ("evaluation", "scripted/judge", 1)
    assert session["totalTokens"] == 110
    assert "To Oslo." in messages[-2]["content"] and messages[-1]["role"] == "assistant"
    assert score["scoredSessionId"] == json.loads(item["settings"])["session"]


# White box: more records than a page has would take a minute.
async def test_records_are_those_that_readers_of_the_service_know(desk, monkeypatch):
    keep(desk.ctx.store, recorded("good", scenario="to-oslo"))
    names = ("Builtin.Helpfulness", "Builtin.ToolSelectionAccuracy", "Builtin.TrajectoryInOrderMatch")
    yes = 'rules:\n  - match: justified\n    reply: \'{"reasoning": "r", "score": "Yes"}\''
    (desk.folder / "judge.yaml").write_text(JUDGE.replace("rules:", yes))

    job = await desk.evaluated(*names, text=PLAN.partition("evaluationMetadata")[0] + TRUTH)

    records = list(records_of(desk.ctx.store, job.id))
    by_name = {each["attributes"]["gen_ai.evaluation.name"]: each for each in records}
    helpful, aws = by_name["Builtin.Helpfulness"], "aws.bedrock_agentcore"
    attributes, trace = helpful["attributes"], "good-0".rjust(32, "0")
    assert (helpful["name"], helpful["service.name"]) == ("gen_ai.evaluation.result", "travel")
    assert helpful["traceId"] == trace == attributes["gen_ai.response.id"]
    assert attributes["session.id"] == "good" and attributes["gen_ai.evaluation.score.value"] == 0.83
    assert attributes[f"{aws}.evaluation_level"] == "Trace"
    assert attributes[f"{aws}.evaluator.arn"].endswith(":::evaluator/Builtin.Helpfulness")
    assert attributes[f"{aws}.evaluation_job.arn"].endswith(f"batch-evaluate/{job.id}")
    assert "traceId" not in by_name["Builtin.TrajectoryInOrderMatch"]
    tool = by_name["Builtin.ToolSelectionAccuracy"]
    assert (tool["traceId"], tool["spanId"]) == (trace, "good-0-0")
    assert tool["attributes"]["gen_ai.tool.name"] == "search"
    monkeypatch.setattr("proctor.jobs.evaluation.results.PAGE", 2)
    assert list(records_of(desk.ctx.store, job.id)) == records


KIND = """
evaluatorName: kind
level: TRACE
evaluatorConfig:
  llmAsAJudge:
    instructions: "Is it kind? {assistant_turn}"
    ratingScale: {numerical: [{value: 0.83, label: Very Helpful, definition: kind}]}
"""


async def test_a_definition_that_changes_after_the_start_changes_nothing_about_the_job(desk):
    path = desk.folder / "kind.yaml"
    path.write_text(KIND)
    job = await desk.evaluated("kind.yaml")
    path.write_text(KIND.replace("kind?", "true?"))
    keep(desk.ctx.store, recorded("later"))

    again = await desk.resumed(job)

    assert desk.outcomes(again) == [("success", "completed")]
    asked = " ".join(row["content"] for row in desk.rows("messages"))
    assert "Is it kind?" in asked and "true?" not in asked


async def test_only_the_traces_that_were_named_are_judged(desk):
    turn = ("Where to?", ("search",), "To Oslo.")
    keep(desk.ctx.store, recorded("good", turn, turn))
    trace = "good-1".rjust(32, "0")
    named = f"filterConfig: {{sessionTraceIds: [{{sessionId: good, traceIds: ['{trace}']}}]}}"

    await desk.evaluated(text=PLAN.replace("serviceNames: [travel]", named))

    assert [row["target"] for row in desk.rows("scores")] == [trace]


async def test_an_evaluator_that_takes_too_long_costs_its_item_and_nothing_else(desk):
    keep(desk.ctx.store, recorded("good"), recorded("slow", ("Sleep.", (), "Zzz."), minutes=(1,)))
    (desk.folder / "checks.py").write_text(
        "import time\n\n"
        "def awake(event):\n"
        "    if event['session']['sessionId'] == 'slow':\n"
        "        time.sleep(30)\n"
        "    return {'label': 'PASS', 'value': 1.0}\n"
    )

    job = await desk.evaluated("checks:awake", timeoutSec=5.0)

    (result,) = results_of(desk.ctx.store, job.id).summaries
    assert desk.outcomes(job) == [("success", "completed"), ("timeout", "timeout")]
    assert (result.evaluated, result.failed) == (1, 1)
    assert [row["errorCode"] for row in desk.rows("scores") if row["error"]] == ["TimeoutException"]


async def test_a_retry_adds_an_attempt_and_only_the_last_one_counts(desk):
    keep(desk.ctx.store, recorded("a"), recorded("b", minutes=(1,)))
    failing = JUDGE.replace("rules:", "failures: {every: 2, status: 500}\nrules:")
    (desk.folder / "judge.yaml").write_text(failing)

    job = await desk.evaluated(retries=1, concurrency=1)

    (result,) = results_of(desk.ctx.store, job.id).summaries
    judgings = [row for row in desk.rows("sessions") if row["runId"] == job.id]
    assert sorted(row["status"] for row in judgings) == ["error", "success", "success"]
    assert (result.evaluated, result.failed) == (2, 0)
    assert len([row for row in desk.rows("scores") if row["error"]]) == 1


def test_everything_that_keeps_evaluators_from_judging_is_told_together(desk):
    plan = desk.plan(
        evaluators=["Builtin.Helpfulnes", "checks:missing", "Builtin.Refusal"],
        judge="scripted/none",
        budget=1.0,
    )

    with pytest.raises(UsageError) as raised:
        lifecycle.preview(plan, desk.ctx)

    for problem in ("Did you mean `Builtin.Helpfulness`?", "no module `checks`", "no script `none`"):
        assert problem in str(raised.value)


async def test_a_judge_that_costs_money_stops_at_the_budget_and_goes_on_with_more(desk):
    keep(desk.ctx.store, *(recorded(f"s{number}", minutes=(number,)) for number in range(8)))
    prices = "prices: {scripted/judge: {input: 1000.0, output: 1000.0}}\n"

    job = await desk.evaluated(text=PLAN + prices, budget=0.5, concurrency=2)

    assert job.state == "STOPPED" and "budget" in job.error_details[0]
    assert (desk.ctx.store.read.totals(job.id)["costUsd"] or 0.0) <= 0.5
    desk.ctx.store.change(batches.change, job.id, {"budgetUsd": 500.0})
    assert (await desk.resumed(job)).state == "COMPLETED"
    assert results_of(desk.ctx.store, job.id).completed == 8
