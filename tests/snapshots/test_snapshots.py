"""Today's behavior, recorded: item ids, documents, output files, digests, columns and HTTP shapes.

`PROCTOR_RECORD_SNAPSHOTS=1 pytest tests/snapshots` rewrites `recorded/`. Look through the difference
before committing it: ids, digests and columns that change make stored runs and scores incomparable.
Sentences for people are masked and may change freely.
"""

import json
from pathlib import Path

import pytest
from snapshot_tools import EXAMPLES, Desk, check_snapshot, openapi_structure

STOPS_EARLY = "stop-early"
"""How many of its items run depends on how fast the machine is: only its dry run is recorded."""
CODING_PLANS = sorted(
    path.stem
    for path in (EXAMPLES / "plans").glob("*.yaml")
    if "matrix:" in path.read_text() and path.stem != STOPS_EARLY
)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("plan", CODING_PLANS)
def test_batch_keeps_its_ids_documents_and_requests(desk: Desk, plan: str) -> None:
    desk.copy("plans/*", "demo/*")
    desk.make_repositories()

    snapshot = {
        "dryRun": desk.snapshot("batch", f"{plan}.yaml", "--dry-run"),
        "batch": desk.snapshot("batch", f"{plan}.yaml"),
        "items": desk.items(),
        "requests": desk.request_digests(),
    }
    check_snapshot(f"batch-{plan}", snapshot)


def test_a_plan_that_stops_early_keeps_its_ids(desk: Desk) -> None:
    desk.copy("plans/*")

    snapshot = {"dryRun": desk.snapshot("batch", f"{STOPS_EARLY}.yaml", "--dry-run")}
    check_snapshot(f"batch-{STOPS_EARLY}", snapshot)


@pytest.mark.parametrize("config", ["judged", "rehearsal", "other-fields"])
def test_simulate_keeps_its_ids_documents_files_and_requests(desk: Desk, config: str) -> None:
    desk.copy("dialogues/*")
    file = desk.folder / f"{config}.yaml"
    file.write_text(file.read_text() + "\nrecord: traffic.ndjson\n")

    command = ("simulate", "--config", f"{config}.yaml", "--output-dir", "out")
    snapshot = {
        "dryRun": desk.snapshot(*command, "--dry-run"),
        "simulate": desk.snapshot(*command),
        "files": desk.files("out"),
        "items": desk.items(),
        "scores": desk.score_digests(),
        "requests": desk.request_digests(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot(f"simulate-{config}", snapshot)


@pytest.mark.parametrize("name", ["flood-crisis", "harbour-fee", "school-committee"])
def test_experiment_keeps_its_ids_documents_files_and_requests(desk: Desk, name: str) -> None:
    desk.copy("scenarios", "experiments", to="examples")

    config = f"examples/experiments/{name}.yaml"
    snapshot = {
        "dryRun": desk.snapshot("experiment", config, "--dry-run"),
        "experiment": desk.snapshot("experiment", config),
        "analyze": desk.snapshot("analyze", f"experiments/{name}", "--report"),
        "files": desk.files(f"experiments/{name}"),
        "items": desk.items(),
        "requests": desk.request_digests(),
    }
    check_snapshot(f"experiment-{name}", snapshot)


def test_scenario_keeps_its_ids_documents_and_files(desk: Desk) -> None:
    desk.copy("scenarios")
    scenario = "scenarios/harbour-fee"

    snapshot = {
        "validate": desk.snapshot("scenario", "validate", scenario),
        "estimate": desk.snapshot("scenario", "estimate", scenario),
        "run": desk.snapshot("scenario", "run", scenario, "--runs", "2", "--seed", "9", "--output", "out"),
        "files": desk.files("out"),
        "items": desk.items(),
        "requests": desk.request_digests(),
    }
    check_snapshot("scenario", snapshot)


@pytest.mark.parametrize("options", ["--oracle", "--models=scripted/echo"])
def test_bench_keeps_its_ids_documents_files_and_requests(desk: Desk, options: str) -> None:
    desk.copy("benchmark")

    command = ("bench", "--task", "benchmark/tasks/smoke", options, "--record", "traffic.ndjson")
    snapshot = {
        "dryRun": desk.snapshot("bench", "--task", "benchmark/tasks", options, "--dry-run"),
        "bench": desk.snapshot(*command, "--output", "out"),
        "files": desk.files("out"),
        "items": desk.items(),
        "requests": desk.request_digests(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot(f"bench-{options.strip('-').partition('=')[0]}", snapshot)


TABLES = (
    "sessions,iterations,tool_calls,merge_history,batches,batch_items,messages,model_calls,metrics,scores"
)
RUBRICS = [
    *("CBT_adherence", "MI_adherence", "client_consistency", "profile_consistency", "safety"),
    "signs_of_distress",
]


def test_rubrics_keep_their_digests_and_requests(desk: Desk) -> None:
    desk.copy("dialogues/*")
    (desk.folder / "rubrics.yaml").write_text(
        "clients: [patientPsi]\ntherapists: [CBT]\nnum_runs: 1\nmax_turns: 2\nseed: 3\n"
        "client_model: scripted/as-client\ntherapist_model: scripted/as-therapist\n"
        f"judge_model: scripted/judge\nevaluators: [{', '.join(RUBRICS)}]\nrecord: traffic.ndjson\n"
    )

    simulated = desk.snapshot("simulate", "--config", "rubrics.yaml", "--output-dir", "out")

    scores = desk.score_digests()
    assert {name.partition(".")[0] for name, *_ in scores} == set(RUBRICS)
    snapshot = {
        "simulate": simulated,
        "items": desk.items(),
        "scores": scores,
        "requests": desk.request_digests(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot("rubrics", snapshot)


def test_evaluation_keeps_its_ids_documents_files_and_requests(desk: Desk) -> None:
    desk.copy("evaluation")

    started = desk.document("evaluate", "start", "evaluation/evaluation.yaml")
    job = started["batchEvaluationId"]
    snapshot = {
        "start": desk.masked(started),
        "dryRun": desk.snapshot("evaluate", "start", "evaluation/evaluation.yaml", "--dry-run"),
        "get": desk.snapshot("evaluate", "get", job),
        "list": desk.snapshot("evaluate", "list"),
        "results": desk.snapshot("evaluate", "results", job, "--output", "out"),
        "files": desk.files("out"),
        "show": desk.snapshot("show", job),
        "compare": desk.snapshot("compare", job, job, "--metric", "score:Builtin.Helpfulness"),
        "items": desk.items(),
        "scores": desk.score_digests(),
        "requests": desk.request_digests(),
    }
    check_snapshot("evaluation", snapshot)


def test_builtin_evaluators_keep_their_digests_and_requests(desk: Desk) -> None:
    desk.copy("evaluation")
    sessions = (desk.folder / "evaluation" / "sessions.jsonl").read_text()
    skilled = sessions.replace("search_flights", "load_skill").replace('\\"to\\"', '\\"skill\\"')
    (desk.folder / "skills.jsonl").write_text(skilled.replace("oslo-", "skilled-"))
    listed = [row["id"] for row in desk.document("evaluators", "list")["evaluators"]]
    names = [name for name in listed if name.startswith("Builtin.")]
    given = ("--ground-truth", "evaluation/truth.yaml", "--judge", "openai/judge")

    with desk.model_server() as server:
        everything = desk.snapshot(
            *("evaluate", "start", "--name", "all", "--files", "evaluation/sessions.jsonl", *given),
            *(f"--evaluator={name}" for name in names),
        )
        skills = desk.snapshot(
            *("evaluate", "start", "--name", "skills", "--files", "skills.jsonl", *given, "--votes", "2"),
            *("--evaluator=Builtin.SkillSelectionAccuracy", "--evaluator=Builtin.SkillInstructionFollowing"),
        )

    scores = desk.score_digests()
    assert {name for name, *_ in scores} == set(names)
    snapshot = {
        "all": everything,
        "skills": skills,
        "items": desk.items(),
        "scores": scores,
        "sent": desk.sent_requests(server),
    }
    check_snapshot("builtin-evaluators", snapshot)


def test_runners_keep_the_requests_they_send(desk: Desk) -> None:
    desk.copy("scenarios", "benchmark", "plans/*", "dialogues/*")
    members = ("actors.port.llm_model", "actors.ferry.llm_model", "world_state_model")

    with desk.model_server() as server:
        commands = {
            "prompt": ("batch", "prompts.yaml"),
            "dialogue": (
                *("simulate", "--model", "openai/talker", "--num-runs", "1", "--max-turns", "2"),
                *("--seed", "3", "--output-dir", "out/dialogue"),
            ),
            "scenario": (
                *("scenario", "run", "scenarios/harbour-fee", "--max-turns", "2", "--output", "out/scenario"),
                *(f"--set={member}=openai/{member.split('.')[-2:][0]}" for member in members),
            ),
            "bench": (
                "bench",
                "--task",
                "benchmark/tasks/smoke",
                "--models",
                "openai/worker",
                "--output=out/b",
            ),
        }
        plan = desk.folder / "prompts.yaml"
        plan.write_text(plan.read_text().replace("scripted/geography", "openai/geography"))
        snapshot = {}
        for job, words in commands.items():
            server.requests.clear()
            code, _ = desk.run(*words)
            snapshot[job] = {"exitCode": code, "sent": desk.sent_requests(server)}

    check_snapshot("requests", snapshot)


@pytest.mark.parametrize(
    "words", [["models"], ["agents"], ["roles"], ["evaluators", "list"], ["doctor"]], ids=" ".join
)
def test_what_there_is_keeps_its_documents(desk: Desk, words: list[str]) -> None:
    desk.copy("dialogues/*")
    desk.environment["PATH"] = desk.path_without_agents()

    check_snapshot(f"list-{words[0]}", desk.snapshot(*words))


def test_commands_that_read_a_run_keep_their_documents_and_files(desk: Desk) -> None:
    desk.copy("plans/*", "demo/*")
    desk.make_repositories()
    # One at a time: where sessions are listed, they are in the order in which they began.
    desk.run("batch", "any-program.yaml", "--concurrency=1")
    desk.run("batch", "budget.yaml")
    shown = desk.snapshot("show", "any-program")
    (finished,) = desk.query(
        'SELECT "sessionId" AS "id" FROM "batch_items" WHERE "repo" <> \'\' AND "status" = ?', "success"
    )
    session = desk.document("show", finished["id"])

    snapshot = {
        "runs": desk.snapshot("runs"),
        "showRun": shown,
        "showItem": desk.snapshot("show", shown["document"]["items"][0]["id"]),
        "showSession": desk.masked(session),
        "sessions": desk.snapshot("sessions", "list"),
        "report": desk.snapshot("report", "--run", "any-program"),
        "reportMarkdown": desk.run("report", "--run", "any-program", "--out", "reports/report.md")[0],
        "reportHtml": desk.run(
            "report", "--run", "any-program", "--format=html", "--out=reports/report.html"
        )[0],
        "compare": desk.snapshot("compare", "any-program", "budget", "--metric", "success"),
        "compareBy": desk.snapshot("compare", "budget", "--by", "model"),
        "resume": desk.snapshot("resume", "budget", "--budget", "1"),
        "resumeFinished": desk.snapshot("resume", "budget"),
        "export": {
            kind: desk.snapshot("export", "--run", "any-program", f"--format={kind}", f"--out=tables/{kind}")
            for kind in ("json", "ndjson", "csv", "otlp", "atif")
        },
        "exportTables": desk.snapshot(
            *("export", "--run", "any-program", "--format=csv", "--out=tables/all", f"--tables={TABLES}")
        ),
        "exported": desk.files("tables"),
        "reports": desk.files("reports"),
    }
    check_snapshot("reading", snapshot)


def test_records_printed_while_a_batch_runs_keep_their_shape(desk: Desk) -> None:
    desk.copy("plans/*")

    code, output = desk.run("batch", "prompts.yaml", "--jsonl", "--concurrency=1")

    records = [desk.masked(json.loads(line)) for line in output.splitlines()]
    check_snapshot("records", {"exitCode": code, "records": records})


def test_store_keeps_its_columns(desk: Desk) -> None:
    desk.copy("plans/*")
    desk.run("batch", "prompts.yaml")

    tables = desk.query('SELECT "name" FROM sqlite_master WHERE "type" = \'table\' ORDER BY "name"')
    columns = {
        table["name"]: [
            f"{row['name']} {row['type']}{' NOT NULL' if row['notnull'] else ''}{' KEY' if row['pk'] else ''}"
            for row in desk.query(f'PRAGMA table_info("{table["name"]}")')
        ]
        for table in tables
    }
    version = desk.query('SELECT * FROM "schema_version"')
    check_snapshot("store", {"columns": columns, "version": version})


def test_server_keeps_its_openapi_document(desk: Desk) -> None:
    document = desk.served("/api/openapi.json")

    check_snapshot("openapi", openapi_structure(document))
