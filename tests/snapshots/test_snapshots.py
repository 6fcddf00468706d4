"""What makes stored runs comparable, recorded: ids of items, digests of evaluators and requests, columns.

Look through a difference before recording it: ids, digests and columns that change make stored runs and
scores incomparable. Sentences for people are masked and may change freely. What commands print is in
`tests/cli/recorded`, what the server answers in `tests/web/recorded`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from snapshot_tools import EXAMPLES, Desk, check_snapshot

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


def ids_of(items: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [item["id"] for run in items.values() for item in run]


@pytest.mark.parametrize("plan", CODING_PLANS)
def test_batch_keeps_its_ids_and_requests(desk: Desk, plan: str) -> None:
    desk.copy("plans/*", "demo/*")
    desk.make_repositories()

    planned = desk.document("batch", f"{plan}.yaml", "--dry-run")["items"]
    snapshot = {
        "batch": desk.snapshot("batch", f"{plan}.yaml"),
        "items": desk.items(),
        "requests": desk.request_digests(),
    }
    check_snapshot(f"batch-{plan}", snapshot)
    assert [item["id"] for item in planned] == ids_of(snapshot["items"])


def test_a_plan_that_stops_early_keeps_its_ids(desk: Desk) -> None:
    desk.copy("plans/*")

    document = desk.document("batch", f"{STOPS_EARLY}.yaml", "--dry-run")
    check_snapshot(f"batch-{STOPS_EARLY}", [[item["id"], item["repeat"]] for item in document["items"]])


def test_simulate_keeps_its_ids_documents_files_and_requests(desk: Desk) -> None:
    desk.copy("dialogues/*")
    file = desk.folder / "judged.yaml"
    file.write_text(file.read_text() + "\nrecord: traffic.ndjson\n")

    command = ("simulate", "--config", "judged.yaml", "--output-dir", "out")
    snapshot = {
        "simulate": desk.snapshot(*command),
        "files": desk.files("out"),
        "items": desk.items(),
        "scores": desk.score_digests(),
        "requests": desk.request_digests(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot("simulate-judged", snapshot)


def test_every_role_of_a_rehearsal_keeps_its_requests(desk: Desk) -> None:
    desk.copy("dialogues/*")

    code, _ = desk.run("simulate", "--config", "rehearsal.yaml", "--output-dir", "out")

    assert code == 0
    check_snapshot("simulate-rehearsal", {"items": desk.items(), "requests": desk.request_digests()})


def test_experiment_and_scenario_keep_their_ids_and_files(desk: Desk) -> None:
    desk.copy("scenarios", "experiments", to="examples")

    desk.run("experiment", "examples/experiments/harbour-fee.yaml")
    desk.run("analyze", "experiments/harbour-fee", "--report")
    scenario = ("scenario", "run", "examples/scenarios/harbour-fee", "--runs", "2", "--seed", "9")
    desk.run(*scenario, "--output", "played")

    files = desk.files("experiments/harbour-fee")
    check_snapshot("experiment", {"files": files, "items": desk.items()})
    # The same files, but for the report and its figures.
    played, known = (
        {name.partition(" ")[0] for each in found for name in each["names"]}
        for found in (desk.files("played"), files)
    )
    assert played < known
    assert {name.partition("/")[0] for name in known - played} == {"analysis"}


BENCH = ("bench", "--task", "benchmark/tasks/smoke", "--output", "out")


def test_bench_keeps_its_ids_documents_and_files(desk: Desk) -> None:
    desk.copy("benchmark")

    planned = desk.document("bench", "--task", "benchmark/tasks", "--oracle", "--dry-run")
    snapshot = {
        "planned": [item["id"] for item in planned["items"]],
        "bench": desk.snapshot(*BENCH, "--oracle"),
        "files": desk.files("out"),
        "items": desk.items(),
    }
    check_snapshot("bench", snapshot)


def test_bench_of_models_keeps_its_ids_and_requests(desk: Desk) -> None:
    desk.copy("benchmark")

    code, _ = desk.run(*BENCH, "--models=scripted/echo", "--record", "traffic.ndjson")

    assert code == 1
    snapshot = {"items": desk.items(), "recording": desk.recorded_requests("traffic.ndjson")}
    check_snapshot("bench-models", snapshot)


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

    code, _ = desk.run("simulate", "--config", "rubrics.yaml", "--output-dir", "out")

    assert code == 0
    scores = desk.score_digests()
    assert {name.split()[0].partition(".")[0] for name in scores} == set(RUBRICS)
    snapshot = {
        "scores": scores,
        "requests": desk.request_digests(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot("rubrics", snapshot)


def test_evaluation_keeps_its_ids_documents_files_and_requests(desk: Desk) -> None:
    desk.copy("evaluation")

    started = desk.document("evaluate", "start", "evaluation/evaluation.yaml")
    job = started["batchEvaluationId"]
    found = desk.document("evaluate", "get", job)
    assert {**found, "run": started["run"]} == started
    assert desk.document("evaluate", "list") == {"batchEvaluations": [found]}
    assert desk.run("evaluate", "results", job, "--output", "out")[0] == 0
    snapshot = {
        "start": desk.masked(started),
        "files": desk.files("out"),
        "items": desk.items(),
        "scores": desk.score_digests(),
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
    assert set(scores) == set(names)
    snapshot = {
        "all": everything["document"]["evaluationResults"],
        "skills": skills["document"]["evaluationResults"],
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


@pytest.mark.parametrize("what", ["models", "agents", "doctor"])
def test_what_there_is_keeps_its_documents(desk: Desk, what: str) -> None:
    desk.copy("dialogues/*")
    desk.environment["PATH"] = desk.path_without_agents()

    check_snapshot(f"list-{what}", desk.snapshot(what))


def test_roles_keep_their_profiles_and_options(desk: Desk) -> None:
    members = ("name", "plays", "profiles", "options", "languages")

    roles = desk.document("roles")["roles"]

    check_snapshot("list-roles", [{member: role[member] for member in members} for role in roles])


def test_exports_and_reports_of_a_run_keep_their_files(desk: Desk) -> None:
    desk.copy("plans/*", "demo/*")
    desk.make_repositories()
    desk.run("batch", "any-program.yaml", "--concurrency=1")

    commands = [
        *(("export", f"--format={kind}", f"--out=out/{kind}") for kind in ("json", "otlp", "atif")),
        ("export", "--format=csv", "--out=out/csv", f"--tables={TABLES}"),
        ("report", "--out=out/report.md"),
        ("report", "--format=html", "--out=out/report.html"),
    ]
    codes = [desk.run(*words, "--run", "any-program")[0] for words in commands]

    assert codes == [0] * len(commands)
    check_snapshot("exports", desk.files("out"))


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
