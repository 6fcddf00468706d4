"""`proctor evaluate` and `proctor compare`, whole: real processes, a store, files."""

import json
import os
import shutil
import signal
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from databases import query
from proctor.jobs.evaluation.state import interrupted_evaluations
from proctor.store import Scope
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "evaluation"
PLAN = "evaluation/evaluation.yaml"


@pytest.fixture
def desk(tmp_path):
    """The example, in a folder of its own."""
    shutil.copytree(EXAMPLE, tmp_path / "evaluation", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def slow(desk, seconds=0.2, sessions=30):
    """A judge that takes its time, and as many sessions as it takes to be interrupted in."""
    judge = desk / "evaluation" / "judge.yaml"
    judge.write_text(f"latency_seconds: {seconds}\n" + judge.read_text())
    file = desk / "evaluation" / "sessions.jsonl"
    line = file.read_text().splitlines()[2]
    copies = [
        line.replace("hotel-1", f"hotel-{number}").replace('"traceId": "', f'"traceId": "{number:04x}')
        for number in range(100, 100 + sessions)
    ]
    texts = [_with_short_ids(json.loads(copy)) for copy in copies]
    file.write_text("\n".join(texts) + "\n")


def _with_short_ids(document):
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        span["traceId"] = span["traceId"][:32]
    return json.dumps(document)


def finished(proctor):
    """How many items have ended so far."""
    try:
        with proctor.open_store() as store:
            (row,) = query(store, 'SELECT COUNT(*) AS "n" FROM "batch_items" WHERE "finishedAt" IS NOT NULL')
            return row["n"]
    except Exception:
        return 0


def only_job(proctor):
    (job,) = proctor.json("evaluate", "list")["batchEvaluations"]
    return job


def test_the_example_runs_as_printed_and_every_command_knows_its_run(proctor, desk):
    done = proctor("evaluate", "start", PLAN, "--json")

    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    run_id = job["batchEvaluationId"]
    assert job["status"] == "COMPLETED"
    assert job["groundTruth"][0]["dataset"] == "travel@1"
    averages = {
        each["evaluatorId"]: (each["statistics"]["averageScore"], each["totalEvaluated"])
        for each in job["evaluationResults"]["evaluatorSummaries"]
    }
    assert averages["Builtin.TrajectoryInOrderMatch"] == (0.5, 6)
    assert averages["checks:names_a_price@trace"] == (0.5, 8)
    assert averages["Builtin.Helpfulness"][1] == 8
    assert proctor.json("runs")["runs"][0]["job"] == "evaluation"
    assert proctor.json("show", run_id)["successCount"] == 18
    assert "Builtin.Helpfulness" in proctor("report", "--run", run_id).stdout
    page = desk / "page.html"
    assert proctor("report", "--run", run_id, "--format", "html", "--out", str(page)).returncode == 0
    assert "The agent gave up on a task it had begun." in page.read_text()
    assert proctor("export", "--run", run_id, "--out", "tables").returncode == 0
    assert proctor("evaluate", "results", run_id, "--output", "results").returncode == 0
    records = [json.loads(line) for line in (desk / "results" / "records.jsonl").read_text().splitlines()]
    assert len(records) == 6 + 8 + 8
    assert json.loads((desk / "results" / "summary.json").read_text())["totalNumberOfSessions"] == 6
    assert proctor("evaluate", "watch", run_id).returncode == 0


def test_a_job_is_named_and_tagged_as_one_that_was_started_over_http(proctor, desk):
    (desk / "proctor.toml").write_text('[serve]\nregion = "eu-north-1"\naccount = "123456789012"\n')
    plan = desk / PLAN
    plan.write_text(plan.read_text() + "tags: {team: travel}\n")

    assert proctor("evaluate", "start", PLAN).returncode == 0

    job = only_job(proctor)
    name = f"123456789012:batch-evaluate/{job['batchEvaluationId']}"
    assert job["batchEvaluationArn"] == f"arn:aws:bedrock-agentcore:eu-north-1:{name}"
    with proctor.open_store() as store:
        assert store.definitions.tags(job["batchEvaluationArn"]) == {"team": "travel"}
        assert proctor("evaluate", "delete", job["batchEvaluationArn"]).returncode == 0
        assert store.definitions.tags(job["batchEvaluationArn"]) == {}


def test_what_insights_found_is_told_with_the_sessions_it_was_found_in(proctor, desk):
    gave_up = {"category": "orchestration-related-errors-category-premature-termination", "turn": 2}
    gave_up |= {"evidence": "so it said", "confidence": 1, "root_cause": "It gave up.", "tool": ""}
    rules = [
        {"match": "What did the user", "reply": json.dumps({"description": "Away.", "intent": "Travel"})},
        {"match": "cannot help", "reply": json.dumps(gave_up)},
        {"reply": json.dumps(gave_up | {"category": "none"})},
    ]
    (desk / "evaluation" / "judge.yaml").write_text(json.dumps({"rules": rules}))
    names = [f"Builtin.Insight.{name}" for name in ("FailureAnalysis", "UserIntent")]
    asked = [word for name in names for word in ("--evaluator", name)]

    done = proctor("evaluate", "start", PLAN, *asked)

    assert done.returncode == 0, done.stderr
    job = only_job(proctor)["batchEvaluationId"]
    failure, intent = proctor.json("evaluate", "get", job)["insightsFound"]
    assert (failure["insight"], failure["sessions"]) == (names[0], ["oslo-2"])
    assert failure["found"] == "orchestration related errors: premature termination"
    assert (intent["found"], len(intent["sessions"]), intent["example"]) == ("Travel", 6, "Away.")
    for told in (done, proctor("evaluate", "get", job), proctor("evaluate", "results", job)):
        assert "\n\nInsights\nINSIGHT " in told.stdout, "a table of its own"
        assert "premature termination" in told.stdout and "It gave up." in told.stdout
    assert proctor.json("evaluate", "results", job)["insightsFound"] == [failure, intent]


def test_a_budget_that_cannot_be_enforced_is_refused_before_anything_starts(proctor, desk):
    priceless = ("evaluate", "start", PLAN, "--judge", "openai/nobody-knows-it", "--budget", "1")

    unpriced = proctor(*priceless, environment={"OPENAI_API_KEY": "no key at all"})

    assert unpriced.returncode == 2 and "the budget cannot be enforced" in unpriced.stderr
    assert proctor.json("evaluate", "list") == {"batchEvaluations": []}


def test_flags_that_choose_sessions_narrow_the_source_of_a_plan_or_are_refused(proctor, desk):
    assert proctor("import", "otlp", "evaluation/sessions.jsonl").returncode == 0
    for source in ({"cloudWatchLogs": {"serviceNames": ["elsewhere"]}}, {"store": {"runIds": ["nobody"]}}):
        plan = {"batchEvaluationName": "x", "evaluators": ["Builtin.Refusal"], "dataSourceConfig": source}
        (desk / "plan.json").write_text(json.dumps(plan | {"judge": "scripted/ok"}))
        for flags in (["--session-id", "oslo-1"], ["--start", "2020-01-01"]):
            # The plan names sessions there are none of: flags that narrow it down find none either.
            assert proctor.json("evaluate", "start", "plan.json", *flags, "--dry-run")["sessions"] == 0
    everything = {"cloudWatchLogs": {"logGroupNames": ["/agents/travel"]}}
    (desk / "plan.json").write_text(
        json.dumps(plan | {"dataSourceConfig": everything, "judge": "scripted/ok"})
    )
    for flags, sessions in (([], 6), (["--session-id", "oslo-1"], 1), (["--end", "2020-01-01"], 0)):
        assert proctor.json("evaluate", "start", "plan.json", *flags, "--dry-run")["sessions"] == sessions

    named = ["--name", "x", "--evaluator", "Builtin.Refusal", "--judge", "scripted/ok", "--dry-run"]
    for service, sessions in (("travel.DEFAULT", 6), ("elsewhere", 0)):
        assert proctor.json("evaluate", "start", *named, "--service", service)["sessions"] == sessions
    whole = proctor("evaluate", "start", *named, "--files", "evaluation", "--session-id", "oslo-1")
    planned = proctor("evaluate", "start", PLAN, "--end", "2030-01-01", "--dry-run")
    for refused in (whole, planned):
        assert refused.returncode == 2 and "files are evaluated whole" in refused.stderr
    kind = proctor("evaluate", "start", *named, "--session-id", "oslo-1", "--kind", "otlp")
    assert kind.returncode == 2 and "--kind is the import format of files" in kind.stderr

    unsure = proctor("sessions", "delete", "--log-group", "/agents/travel")
    assert unsure.returncode == 2 and "confirmation required: Delete 6 imported sessions?" in unsure.stderr
    assert proctor("sessions", "delete", "--log-group", "/agents/travel", "--yes").returncode == 0
    assert proctor.json("sessions", "list")["sessions"] == []


def test_more_evaluators_extend_a_finished_job_and_repeat_nothing(proctor, desk):
    first = proctor.json("evaluate", "start", PLAN)
    with proctor.open_store() as store:
        before = {row["id"] for row in store.read.sessions(Scope(run_id=first["batchEvaluationId"]))}

    more = ("--evaluator", "Builtin.TrajectoryExactOrderMatch")
    done = proctor("evaluate", "start", "--resume", first["batchEvaluationId"], *more, "--json")

    again = json.loads(done.stdout)
    with proctor.open_store() as store:
        after = {row["id"] for row in store.read.sessions(Scope(run_id=first["batchEvaluationId"]))}
    assert done.returncode == 0, done.stderr
    assert again["batchEvaluationId"] == first["batchEvaluationId"]
    assert len(again["evaluationResults"]["evaluatorSummaries"]) == 4
    assert before < after and len(after - before) == 6


def test_a_killed_job_goes_on_and_repeats_at_most_what_was_in_flight(proctor, desk):
    slow(desk, sessions=15)
    running = proctor.start("evaluate", "start", PLAN, "--concurrency", "3")
    eventually(lambda: finished(proctor) >= 10)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=TIME_LIMIT_SECONDS)
    job = only_job(proctor)
    before = finished(proctor)
    with proctor.open_store() as store:
        # As a server that starts looks for jobs to go on with.
        assert list(interrupted_evaluations(store, datetime.now(UTC))) == [job["batchEvaluationId"]]

    done = proctor("evaluate", "run", job["batchEvaluationId"], "--json")

    assert job["status"] == "PENDING"
    assert 10 <= before < 45
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "COMPLETED"
    with proctor.open_store() as store:
        items = store.read.items(job["batchEvaluationId"], limit=1000)
        (attempts,) = query(
            store,
            'SELECT COUNT(*) AS "n", SUM(CASE WHEN "endReason" = ? THEN 1 ELSE 0 END) AS "cut" '
            'FROM "sessions" WHERE "runId" = ?',
            ("interrupted", job["batchEvaluationId"]),
        )
        (scores,) = query(
            store,
            'SELECT COUNT(*) AS "n" FROM "batch_items" i JOIN "scores" s ON s."sessionId" = i."sessionId"',
        )
    assert len(items) == 45 and {item["status"] for item in items} == {"success"}
    assert attempts["cut"] <= 3 and attempts["n"] == 45 + attempts["cut"]
    assert scores["n"] == 45


def test_a_detached_job_is_stopped_from_another_shell_and_keeps_what_it_has(proctor, desk):
    slow(desk, seconds=3)
    started = proctor("evaluate", "start", PLAN, "--detach", "--json")
    run_id = json.loads(started.stdout)["batchEvaluationId"]
    eventually(lambda: finished(proctor) >= 6)

    stopping = proctor.json("evaluate", "stop", run_id)
    eventually(lambda: only_job(proctor)["status"] == "STOPPED")

    job = only_job(proctor)
    assert stopping["status"] in ("STOPPING", "STOPPED")
    assert job["evaluationResults"]["evaluatorSummaries"][0]["totalEvaluated"] > 0
    assert proctor("evaluate", "stop", run_id).returncode == 2
    assert proctor.json("evaluate", "delete", run_id)["status"] == "DELETING"
    assert proctor("evaluate", "get", run_id).returncode == 2
    assert proctor.json("runs")["runs"][0]["status"] == "aborted"


def test_baseline_against_change_are_paired_by_scenario_and_gated(proctor, desk):
    sessions = desk / "evaluation" / "sessions.jsonl"
    lines = sessions.read_text().splitlines()
    plan = desk / "evaluation" / "evaluation.yaml"
    runs = []
    for name, chosen in (("baseline", (0, 2, 4)), ("change", (1, 3, 5))):
        sessions.write_text("\n".join(lines[number] for number in chosen) + "\n")
        plan.write_text(plan.read_text().replace("Name: travel", f"Name: {name}").replace("baseline", name))
        runs.append(proctor.json("evaluate", "start", PLAN)["batchEvaluationId"])

    told = proctor.json("compare", *runs)
    gate = "score:Builtin.TrajectoryInOrderMatch>=0.5"
    open_ = proctor("compare", *runs, "--gate", gate, "--html", "page.html", "--markdown", "page.md")
    loose = proctor("compare", *runs, "--gate", "score:Builtin.Helpfulness>=-5")

    matched = next(
        each for each in told["contrasts"] if each["metric"] == "score:Builtin.TrajectoryInOrderMatch"
    )
    assert told["pairedBy"] == "scenario"
    assert (matched["pairs"], matched["difference"]["value"]) == (3, -1.0)
    assert len(matched["disagreements"]) == 3
    # Three scenarios decide nothing, however they differ.
    assert open_.returncode == 4, open_.stdout
    assert f"INCONCLUSIVE  {gate}" in open_.stdout and "fewer than 6" in open_.stdout
    assert loose.returncode == 0
    assert "book-a-flight" in (desk / "page.html").read_text()
    assert "find-a-hotel" in (desk / "page.md").read_text()


def test_a_regression_fails_a_gate_in_every_format(proctor, desk):
    prompts = ", ".join(f"Say OK {number}" for number in range(8))
    (desk / "plan.yaml").write_text(
        f"runId: mine\nmatrix:\n  - prompt: [{prompts}]\n"
        "    model: [scripted/ok, scripted/silent]\n    expect: {contains: OK}\n"
    )
    (desk / "silent.yaml").write_text("rules: [{reply: nothing}]\n")
    proctor("batch", "plan.yaml")
    gated = ("compare", "mine", "--by", "model", "--gate", "success>=-0.1")

    worse = proctor(*gated)
    better = proctor(*gated, "--against", "scripted/silent", "--gate", "success>=-2")
    junit = proctor(*gated, "--format", "junit", "--out", "gates.xml")

    assert worse.returncode == 1 and "FAIL     success>=-0.1" in worse.stdout
    # Eight tasks cannot show that at most one in ten collapses.
    assert better.returncode == 4 and "PASS          success>=-2" in better.stdout
    assert junit.returncode == 1
    suite = ElementTree.parse(desk / "gates.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")


def test_a_job_that_found_nothing_finds_what_has_come_since_when_it_is_resumed(proctor, desk):
    source = ("--log-group", "/agents/travel", "--evaluator", "Builtin.TrajectoryInOrderMatch")
    nothing = proctor.json(
        "evaluate", "start", "--name", "late", *source, "--ground-truth", "evaluation/truth.yaml"
    )
    proctor("import", "otlp", "evaluation/sessions.jsonl")

    done = proctor("resume", nothing["batchEvaluationId"], "--json")

    assert nothing["status"] == "FAILED"
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert (job["status"], job["errorDetails"]) == ("COMPLETED", [])
    assert job["evaluationResults"]["totalNumberOfSessions"] == 6


TONE = """
evaluatorName: tone
level: TRACE
evaluatorConfig:
  llmAsAJudge:
    instructions: "Is this friendly: {assistant_turn}"
    ratingScale:
      numerical: [{label: "Yes", value: 1, definition: ""}, {label: "No", value: 0, definition: ""}]
"""
ESCALATION = """    modelConfig: {bedrockEvaluatorModelConfig: {modelId: scripted/sure}}
    escalation:
      modelConfig: {bedrockEvaluatorModelConfig: {modelId: scripted/strict}}
      below: 0.7
      audit: 1
"""
JURY = """    jury:
      rule: median
      judges:
        - bedrockEvaluatorModelConfig: {modelId: scripted/sure}
        - bedrockEvaluatorModelConfig: {modelId: scripted/strict}
        - bedrockEvaluatorModelConfig: {modelId: scripted/sure}
"""


def test_several_judges_are_estimated_asked_and_shown_with_their_agreement(proctor, desk):
    plan = desk / PLAN
    text = plan.read_text().partition("evaluators:")[0]
    plan.write_text(f"{text}evaluators: [tone.yaml, jury.yaml]\njudge: scripted/strict\n")
    (plan.parent / "tone.yaml").write_text(TONE + ESCALATION)
    (plan.parent / "jury.yaml").write_text(TONE.replace("tone", "jury") + JURY)
    verdict = '"reasoning": "it is", "score": "Yes"'
    (plan.parent / "sure.yaml").write_text(
        f"rules:\n  - match: cannot help with that\n    reply: '{{{verdict}, \"confidence\": 0.5}}'\n"
        f"  - reply: '{{{verdict}, \"confidence\": 0.9}}'\n"
    )
    strict = """rules:\n  - reply: '{"reasoning": "it is not", "score": "No"}'\n"""
    (plan.parent / "strict.yaml").write_text(strict)

    tried = proctor("evaluate", "start", PLAN, "--dry-run")
    done = proctor("evaluate", "start", PLAN, "--json")

    assert "tone: 8 results, 16 calls of scripted/sure and scripted/strict at most" in tried.stdout
    assert "jury: 8 results, 24 calls of scripted/sure and scripted/strict" in tried.stdout
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    tone, jury = (each["panel"] for each in job["evaluationResults"]["evaluatorSummaries"])
    judges = [(each["model"], each["role"], each["results"]) for each in tone["judges"]]
    assert judges == [("scripted/sure", "first", 8), ("scripted/strict", "second", 8)]
    assert (tone["escalated"]["value"], tone["sampled"], tone["below"]) == (1 / 8, 8, 0.7)
    assert [each["agreement"]["value"] for each in jury["judges"]] == [1.0, 0.0, 1.0]
    page, run = desk / "page.html", job["batchEvaluationId"]
    assert proctor("report", "--run", run, "--format", "html", "--out", str(page)).returncode == 0
    for printed in (proctor("report", "--run", run).stdout, page.read_text()):
        assert "Thresholds of tone" in printed
        assert "the second judge decided 12%" in " ".join(printed.split())
        assert "a threshold needs at least 30" in " ".join(printed.split())
