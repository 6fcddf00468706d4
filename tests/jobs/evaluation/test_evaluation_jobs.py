"""Evaluation jobs: opened once, carried out by the common engine, stopped, deleted, found again."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from recorded_sessions import keep, recorded

from proctor.errors import Contradiction, NotFound, UsageError
from proctor.evaluators.registry import EvaluatorRegistry
from proctor.jobs.evaluation.ground_truth import GroundTruthIndex
from proctor.jobs.evaluation.job import JOB
from proctor.jobs.evaluation.prepare import fill, find_evaluators, find_sessions
from proctor.jobs.evaluation.request import EvaluationRequest
from proctor.jobs.evaluation.results import records_of, results_of, worst_targets
from proctor.jobs.evaluation.state import (
    delete_evaluation,
    evaluation_of,
    evaluations_page,
    fail_evaluation,
    interrupted_evaluations,
    open_evaluation,
    page_mark,
    stop_evaluation,
)
from proctor.models import ModelRouter
from proctor.models.router import LazyGateway
from proctor.store import RetrySelection
from proctor.store.writer import this_process

TOKEN = "0123456789-0123456789-0123456789-0123"
SCRIPT = """
rules:
  - match: (?s)To Oslo
    reply: '{"reasoning": "It names a place.", "score": "Very Helpful"}'
    usage: {input_tokens: 100, output_tokens: 10}
  - match: (?s)No idea
    reply: no verdict at all
  - reply: '{"reasoning": "It does not.", "score": "Very Unhelpful"}'
    usage: {input_tokens: 100, output_tokens: 10}
"""


@pytest.fixture
def store(either_store):
    return either_store


def now():
    return datetime.now(UTC)


def asked(*evaluators, **more):
    source = {"cloudWatchLogs": {"logGroupNames": ["/agents/travel"], "serviceNames": ["travel"]}}
    document = {"batchEvaluationName": "nightly", "evaluators": list(evaluators), "dataSourceConfig": source}
    return EvaluationRequest.from_document({**document, "judge": "scripted/judge", **more})


def opened(store, request, **more):
    return open_evaluation(store, request, now=now(), version="0", **more)


async def judged(workshop, request, script=SCRIPT):
    """Open a job and carry it out; its id."""
    (workshop.folder / "judge.yaml").write_text(script)
    bench = EvaluatorRegistry(folder=workshop.folder, environment={"PATH": "/usr/bin:/bin"})
    job = opened(workshop.store, request, definitions=bench.copies(request.evaluators))
    await carry_on(workshop, request, job.id)
    return job.id


async def carry_on(workshop, request, run_id):
    bench = EvaluatorRegistry(folder=workshop.folder, environment={"PATH": "/usr/bin:/bin"})
    find = bench.finder(json.loads(workshop.store.evaluations.row(run_id)["definitionsJson"]))
    owner = this_process()
    workshop.store.resume_batch(run_id, owner, RetrySelection(), now())
    evaluators = find_evaluators(request, find, workshop.models)
    found = find_sessions(workshop.store, request, now())
    told = fill(workshop.store, run_id, request, found.ids, evaluators, GroundTruthIndex(request.metadata))
    workshop.store.evaluations.record_discovery(
        run_id, matched=len(found.ids), ignored=found.ignored, now=now()
    )
    truth = JOB.ground_truth(run_id, workshop.store)
    await workshop.executor(owner, run_id, find_evaluator=find, find_reference=truth).run()
    return told


TRUTH = {
    "sessionMetadata": [
        {
            "sessionId": "good",
            "testScenarioId": "to-oslo",
            "groundTruth": {"inline": {"expectedTrajectory": {"toolNames": ["search"]}}},
        },
        {"sessionId": "nowhere", "groundTruth": {"inline": {"assertions": [{"text": "it answers"}]}}},
    ]
}


async def test_every_session_is_judged_by_every_evaluator_against_its_ground_truth(workshop):
    keep(workshop.store, recorded("good"), recorded("bad", ("Where to?", (), "Somewhere."), minutes=(1,)))
    request = asked(
        "Builtin.Helpfulness", "Builtin.TrajectoryInOrderMatch", evaluationMetadata=TRUTH, votes=1
    )

    job = evaluation_of(workshop.store, await judged(workshop, request), now())

    results = results_of(workshop.store, job.id)
    helpful, matched = results.summaries
    assert job.state == "COMPLETED_WITH_ERRORS"
    assert job.error_details == ("1 of 2 sessions failed during batch evaluation.",)
    assert (results.completed, results.failed, results.total) == (1, 1, 2)
    assert (helpful.evaluated, helpful.failed) == (2, 0)
    assert helpful.average.value == pytest.approx((0.83 + 0.17) / 2)
    assert helpful.labels == {"Very Helpful": 1, "Very Unhelpful": 1}
    assert (helpful.input_tokens, helpful.output_tokens) == (200, 20)
    assert (matched.evaluated, matched.failed, matched.average.value) == (1, 1, 1.0)
    assert matched.if_failures_were_zero == 0.5
    assert workshop.outcomes(job.id).count(("error", "evaluator_failed")) == 1


async def test_what_the_judge_was_asked_and_what_it_cost_is_recorded_with_the_item(workshop):
    keep(workshop.store, recorded("good"))

    run_id = await judged(workshop, asked("Builtin.Helpfulness"))

    (item,) = workshop.items(run_id)
    session = workshop.store.read.session(item["sessionId"])
    messages = workshop.store.read.of_session("messages", session["id"])
    (score,) = workshop.store.read.of_session("scores", session["id"])
    assert (session["job"], session["model"], session["standIn"]) == ("evaluation", "scripted/judge", 1)
    assert session["totalTokens"] == 110
    assert "To Oslo." in messages[-2]["content"]
    assert messages[-1]["role"] == "assistant"
    assert score["judgedSessionId"] == json.loads(item["settings"])["session"]


async def test_a_verdict_that_cannot_be_read_fails_its_session_alone(workshop):
    keep(workshop.store, recorded("good"), recorded("odd", ("Where?", (), "No idea."), minutes=(1,)))

    run_id = await judged(workshop, asked("Builtin.Helpfulness"))

    results = results_of(workshop.store, run_id)
    assert (results.completed, results.failed) == (1, 1)
    assert sorted(workshop.outcomes(run_id)) == [("error", "evaluator_failed"), ("success", "completed")]
    records = list(records_of(workshop.store, run_id))
    (failed,) = [each for each in records if "error.type" in each["attributes"]]
    assert failed["attributes"]["session.id"] == "odd"
    assert "gen_ai.evaluation.score.value" not in failed["attributes"]


# White box: more records than a page has would take a minute.
async def test_records_are_those_that_readers_of_the_service_know(workshop, monkeypatch):
    keep(workshop.store, recorded("good", scenario="to-oslo"))
    request = asked("Builtin.Helpfulness", "Builtin.ToolSelectionAccuracy", "Builtin.TrajectoryInOrderMatch")
    yes = 'rules:\n  - match: justified\n    reply: \'{"reasoning": "r", "score": "Yes"}\''

    run_id = await judged(workshop, request, SCRIPT.replace("rules:", yes))

    by_name = {
        each["attributes"]["gen_ai.evaluation.name"]: each for each in records_of(workshop.store, run_id)
    }
    helpful = by_name["Builtin.Helpfulness"]
    trace = "good-0".rjust(32, "0")
    assert helpful["name"] == "gen_ai.evaluation.result"
    assert helpful["traceId"] == trace == helpful["attributes"]["gen_ai.response.id"]
    assert helpful["service.name"] == "travel"
    assert helpful["attributes"]["session.id"] == "good"
    assert helpful["attributes"]["gen_ai.evaluation.score.value"] == 0.83
    assert helpful["attributes"]["aws.bedrock_agentcore.evaluation_level"] == "Trace"
    assert helpful["attributes"]["aws.bedrock_agentcore.evaluator.arn"].endswith(
        ":::evaluator/Builtin.Helpfulness"
    )
    assert helpful["attributes"]["aws.bedrock_agentcore.evaluation_job.arn"].endswith(
        f"batch-evaluate/{run_id}"
    )
    assert "traceId" not in by_name["Builtin.TrajectoryInOrderMatch"]
    tool = by_name["Builtin.ToolSelectionAccuracy"]
    assert (tool["traceId"], tool["spanId"]) == (trace, "good-0-0")
    assert tool["attributes"]["gen_ai.tool.name"] == "search"
    monkeypatch.setattr("proctor.jobs.evaluation.results.PAGE", 2)
    assert list(records_of(workshop.store, run_id)) == list(by_name.values())


async def test_more_evaluators_and_more_sessions_extend_a_job_and_reuse_what_it_has(workshop):
    keep(workshop.store, recorded("good"))
    run_id = await judged(workshop, asked("Builtin.Helpfulness"))
    before = workshop.items(run_id)
    keep(workshop.store, recorded("good"), recorded("new", minutes=(5,)))

    told = await carry_on(workshop, asked("Builtin.Helpfulness", "Builtin.Refusal"), run_id)

    after = workshop.items(run_id)
    assert told.added == 3
    assert len(after) == 4
    assert [item for item in after if item["id"] == before[0]["id"]] == before
    assert len(workshop.rows("sessions")) == 2 + 4


async def test_a_definition_that_changes_under_way_changes_nothing_about_the_job(workshop):
    keep(workshop.store, recorded("good"))
    path = workshop.folder / "kind.yaml"
    text = """
evaluatorName: kind
level: TRACE
evaluatorConfig:
  llmAsAJudge:
    instructions: "Is it kind? {assistant_turn}"
    ratingScale: {numerical: [{value: 0.83, label: Very Helpful, definition: kind}]}
"""
    path.write_text(text)
    run_id = await judged(workshop, asked("kind.yaml"))
    path.write_text(text.replace("kind?", "true?"))
    keep(workshop.store, recorded("later", minutes=(9,)))

    await carry_on(workshop, asked("kind.yaml"), run_id)

    assert [status for status, _ in workshop.outcomes(run_id)] == ["success", "success"]
    assert len({row["evaluatorDigest"] for row in workshop.rows("scores")}) == 1


async def test_a_function_that_changes_under_way_is_told_and_mixes_with_nothing(workshop):
    keep(workshop.store, recorded("good"))
    path = workshop.folder / "checks.py"
    path.write_text("def short(event):\n    return {'label': 'PASS', 'value': 1.0}\n")
    request = asked("checks:short")
    bench = EvaluatorRegistry(folder=workshop.folder, environment={"PATH": "/usr/bin:/bin"})
    job = opened(workshop.store, request)
    owner = this_process()
    workshop.store.resume_batch(job.id, owner, RetrySelection(), now())
    find = bench.finder({})
    evaluators = find_evaluators(request, find, workshop.models)
    ids = find_sessions(workshop.store, request, now()).ids
    fill(workshop.store, job.id, request, ids, evaluators, GroundTruthIndex(()))
    path.write_text("def short(event):\n    return {'label': 'FAIL', 'value': 0.0}\n")

    await workshop.executor(owner, job.id, find_evaluator=find).run()

    (item,) = workshop.items(job.id)
    assert (item["status"], item["reason"]) == ("error", "evaluator_failed")
    assert "no longer what it was when the job began" in item["error"]


async def test_only_the_traces_that_were_named_are_judged(workshop):
    turn = ("Where to?", ("search",), "To Oslo.")
    keep(workshop.store, recorded("good", turn, turn))
    trace = "good-1".rjust(32, "0")
    source = {
        "cloudWatchLogs": {
            "logGroupNames": ["/agents/travel"],
            "filterConfig": {"sessionTraceIds": [{"sessionId": "good", "traceIds": [trace]}]},
        }
    }

    await judged(workshop, asked("Builtin.Helpfulness", "Builtin.Refusal", dataSourceConfig=source))

    assert {
        row["target"] for row in workshop.rows("scores") if row["evaluator"] == "Builtin.Helpfulness"
    } == {trace}


async def test_an_evaluator_that_takes_too_long_costs_its_item_and_nothing_else(workshop):
    keep(workshop.store, recorded("good"), recorded("slow", ("Sleep.", (), "Zzz."), minutes=(1,)))
    (workshop.folder / "checks.py").write_text(
        "import time\n\n"
        "def awake(event):\n"
        "    if event['session']['sessionId'] == 'slow':\n"
        "        time.sleep(30)\n"
        "    return {'label': 'PASS', 'value': 1.0}\n"
    )

    run_id = await judged(workshop, asked("checks:awake", timeoutSec=2.0))

    (result,) = results_of(workshop.store, run_id).summaries
    assert sorted(workshop.outcomes(run_id)) == [("success", "completed"), ("timeout", "timeout")]
    assert (result.evaluated, result.failed) == (1, 1)
    assert [row["errorCode"] for row in workshop.rows("scores") if row["error"]] == ["TimeoutException"]


async def test_a_retry_adds_an_attempt_and_only_the_last_one_counts(workshop):
    keep(workshop.store, recorded("a"), recorded("b", minutes=(1,)))
    failing = SCRIPT.replace("rules:", "failures: {every: 2, status: 500}\nrules:")

    run_id = await judged(workshop, asked("Builtin.Helpfulness", retries=1, concurrency=1), failing)

    (result,) = results_of(workshop.store, run_id).summaries
    judgings = [row for row in workshop.rows("sessions") if row["runId"] == run_id]
    assert sorted(row["status"] for row in judgings) == ["error", "success", "success"]
    assert (result.evaluated, result.failed) == (2, 0)
    assert len([row for row in workshop.rows("scores") if row["error"]]) == 1


async def test_the_lowest_results_come_first_with_their_reasons(workshop):
    keep(workshop.store, recorded("good"), recorded("bad", ("Where to?", (), "Somewhere."), minutes=(1,)))
    run_id = await judged(workshop, asked("Builtin.Helpfulness"))

    (helpful,) = results_of(workshop.store, run_id).summaries
    (worst,) = worst_targets(workshop.store.read, run_id, helpful)

    assert (worst.session, worst.label, worst.explanation) == ("bad", "Very Unhelpful", "It does not.")


def test_a_job_is_known_by_its_name_and_ten_letters_and_begins_as_pending(store):
    job = opened(store, asked("Builtin.Refusal"), region="eu-west-1", account="123456789012")

    assert job.id.startswith("nightly-") and len(job.id) == len("nightly-") + 10
    assert job.arn == f"arn:aws:bedrock-agentcore:eu-west-1:123456789012:batch-evaluate/{job.id}"
    assert (job.state, job.is_new) == ("PENDING", True)
    assert job.output_stream == f"run-{job.id}"
    assert evaluation_of(store, job.arn, now()).id == job.id
    assert evaluation_of(store, job.id[:-3], now()).id == job.id


def test_the_same_token_starts_the_same_job_once_and_another_one_never(store):
    first = opened(store, asked("Builtin.Refusal", clientToken=TOKEN))

    again = opened(store, asked("Builtin.Refusal", clientToken=TOKEN))

    assert (again.id, again.is_new) == (first.id, False)
    with pytest.raises(Contradiction, match="the client token was already used"):
        opened(store, asked("Builtin.Coherence", clientToken=TOKEN))
    assert len(store.read.batches(now())) == 1


def test_jobs_are_listed_newest_first_page_by_page(store):
    ids = [opened(store, asked("Builtin.Refusal")).id for _ in range(5)]

    first = evaluations_page(store, now(), limit=3)
    rest = evaluations_page(store, now(), after=page_mark(first[-1]), limit=3)

    assert len(first) == 3
    assert {each.id for each in (*first, *rest)} == set(ids)


def test_a_job_that_nobody_has_begun_stops_at_once_and_cannot_be_stopped_again(store):
    job = opened(store, asked("Builtin.Refusal"))

    assert stop_evaluation(store, job.id, now).state == "STOPPED"
    with pytest.raises(Contradiction, match="already STOPPED"):
        stop_evaluation(store, job.id, now)


def test_a_job_under_way_is_asked_to_stop_and_says_so(store):
    job = opened(store, asked("Builtin.Refusal"))
    store.resume_batch(job.id, this_process(), RetrySelection(), now())

    assert evaluation_of(store, job.id, now()).state == "IN_PROGRESS"
    assert stop_evaluation(store, job.id, now).state == "STOPPING"
    with pytest.raises(Contradiction, match="Stop it first"):
        delete_evaluation(store, job.id, now())


async def test_a_deleted_job_is_gone_from_the_list_and_its_results_stay(workshop):
    keep(workshop.store, recorded("good"))
    run_id = await judged(workshop, asked("Builtin.Helpfulness"))

    assert delete_evaluation(workshop.store, run_id, now()).state == "DELETING"

    assert evaluations_page(workshop.store, now()) == []
    with pytest.raises(NotFound):
        evaluation_of(workshop.store, run_id, now())
    assert len(list(records_of(workshop.store, run_id))) == 1


def test_a_job_that_cannot_be_done_at_all_has_failed_and_says_why(store):
    job = opened(store, asked("Builtin.Refusal"))

    fail_evaluation(store, job.id, "no_sessions", "No sessions were found.", now())

    found = evaluation_of(store, job.id, now())
    assert (found.state, found.error_details) == ("FAILED", ("No sessions were found.",))


def test_jobs_whose_process_died_or_never_came_are_found_by_a_server_that_starts(store):
    waiting, dead, alive, stopped = (opened(store, asked("Builtin.Refusal")).id for _ in range(4))
    store.resume_batch(dead, "elsewhere:1:1:aa", RetrySelection(), datetime(2026, 1, 1, tzinfo=UTC))
    store.resume_batch(alive, this_process(), RetrySelection(), now())
    stop_evaluation(store, stopped, now)

    asked_to = opened(store, asked("Builtin.Refusal")).id
    store.resume_batch(asked_to, "elsewhere:1:1:ab", RetrySelection(), datetime(2026, 1, 1, tzinfo=UTC))
    store.request_abort(asked_to, now())

    assert set(interrupted_evaluations(store, now())) == {waiting, dead}
    assert evaluation_of(store, asked_to, now()).state == "STOPPED"
    assert evaluation_of(store, dead, now()).state == "IN_PROGRESS"


def test_a_server_that_lives_takes_up_only_what_nobody_sits_before(store):
    sat_before = opened(store, asked("Builtin.Refusal")).id
    detached = opened(store, asked("Builtin.Refusal"), is_detached=True).id
    for job in (sat_before, detached):
        store.resume_batch(job, "elsewhere:1:1:aa", RetrySelection(), datetime(2026, 1, 1, tzinfo=UTC))

    assert list(interrupted_evaluations(store, now(), only_detached=True)) == [detached]


def test_ground_truth_that_is_long_survives_when_another_run_is_deleted(store):
    truth = {"sessionMetadata": [{"sessionId": "s", "metadata": {"long": "x" * 10_000}}]}
    job = opened(store, asked("Builtin.Refusal", evaluationMetadata=truth))
    other = opened(store, asked("Builtin.Coherence"))

    store.delete_batch(other.id)

    assert store.evaluations.metadata(job.id) == truth["sessionMetadata"]
    with pytest.raises(NotFound):
        evaluation_of(store, other.id, now())


def test_everything_that_keeps_evaluators_from_judging_is_told_together(workshop):
    request = asked(
        "Builtin.Helpfulnes", "checks:missing", "Builtin.Refusal", judge="scripted/none", budget=1.0
    )
    bench = EvaluatorRegistry(folder=workshop.folder, environment={})

    with pytest.raises(UsageError) as raised:
        find_evaluators(request, bench.finder({}), workshop.models)

    said = str(raised.value)
    assert "Did you mean `Builtin.Helpfulness`?" in said
    assert "there is no module `checks`" in said
    assert "there is no script `none`" in said


async def test_a_judge_that_costs_money_stops_at_the_budget_and_goes_on_with_more(workshop):
    keep(workshop.store, *(recorded(f"s{number}", minutes=(number,)) for number in range(8)))
    prices = {"scripted/judge": {"input": 1000.0, "output": 1000.0}}
    request = asked("Builtin.Helpfulness", budget=0.5, prices=prices, concurrency=2)
    models = workshop.models = ModelRouter({}, folders=[workshop.folder], prices=prices)
    workshop.context = replace(
        workshop.context,
        models=models.for_attempt,
        worst_case=models.worst_case,
        pools=models.pools,
        gateway=LazyGateway(models),
    )

    run_id = await judged(workshop, request)

    job = evaluation_of(workshop.store, run_id, now())
    spent = workshop.store.read.totals(run_id)["costUsd"] or 0.0
    assert job.state == "STOPPED"
    assert "budget" in job.error_details[0]
    assert spent <= 0.5
    workshop.store.change_batch(run_id, {"budgetUsd": 500.0})
    await carry_on(workshop, request, run_id)
    assert evaluation_of(workshop.store, run_id, now()).state == "COMPLETED"
    assert results_of(workshop.store, run_id).completed == 8


def test_the_definition_that_is_copied_into_a_job_is_the_one_of_that_name(tmp_path):
    labels = {"Bad": 0, "Good": 1}
    scale = {"numerical": [{"value": at, "label": label, "definition": "d"} for label, at in labels.items()]}
    for name in ("brevity", "politeness", "warmth"):
        config = {
            "instructions": f"How much {name} is there? {{assistant_turn}}",
            "ratingScale": scale,
            "modelConfig": {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}},
        }
        document = {"evaluatorName": name, "level": "TRACE", "evaluatorConfig": {"llmAsAJudge": config}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    bench = EvaluatorRegistry(folder=tmp_path, environment={}, folders=[tmp_path])

    copies = bench.copies(["politeness", "warmth", "missing"])

    names = {name: copy["evaluatorName"] for name, copy in copies.items()}
    assert names == {"politeness": "politeness", "warmth": "warmth"}
