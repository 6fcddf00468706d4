"""What makes stored runs comparable, recorded: ids of items, digests of evaluators and requests, columns.

Look through a difference before recording it: ids, digests and columns that change make stored runs and
scores incomparable. What commands print is in `tests/cli/recorded`, what the server answers in
`tests/web/recorded`.
"""

import pytest
from snapshot_tools import EXAMPLES, Desk, check_snapshot

from commands import Command
from proctor.testing.model_server import ModelServer


@pytest.fixture
def desk(proctor: Command) -> Desk:
    return Desk(proctor)


def test_plans_keep_their_ids(desk: Desk) -> None:
    desk.copy_demo()
    plans = [
        path.name for path in sorted((EXAMPLES / "plans").glob("*.yaml")) if "matrix:" in path.read_text()
    ]

    planned = {plan: desk.document("batch", plan, "--dry-run")["items"] for plan in plans}

    check_snapshot("plans", {plan: [item["id"] for item in items] for plan, items in planned.items()})


def test_a_batch_through_the_gateway_keeps_its_ids_and_requests(desk: Desk) -> None:
    desk.copy_demo()

    code = desk.run("batch", "through-the-gateway.yaml")

    assert code == 1
    check_snapshot("batch", {"items": desk.items(), "requests": desk.request_digests()})


def test_a_simulation_keeps_its_ids_and_requests(desk: Desk) -> None:
    desk.copy("dialogues/*")
    file = desk.folder / "judged.yaml"
    file.write_text(file.read_text() + "\nrecord: traffic.ndjson\n")

    code = desk.run("simulate", "--config", "judged.yaml", "--output-dir", "out")

    assert code == 0
    snapshot = {
        "items": desk.items(),
        "scores": desk.score_digests(),
        "requests": desk.request_digests(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot("simulation", snapshot)


def test_every_role_of_a_rehearsal_keeps_its_requests(desk: Desk) -> None:
    desk.copy("dialogues/*")

    code = desk.run("simulate", "--config", "rehearsal.yaml", "--output-dir", "out")

    assert code == 0
    check_snapshot("roles", desk.request_digests())


def test_an_experiment_keeps_its_ids_and_requests(desk: Desk) -> None:
    desk.copy("scenarios", "experiments", to="examples")

    code = desk.run("experiment", "examples/experiments/harbour-fee.yaml")

    assert code == 0
    check_snapshot("experiment", desk.items())


BENCH = ("bench", "--task", "benchmark/tasks/smoke", "--output", "out")


def test_a_benchmark_keeps_its_ids_and_requests(desk: Desk) -> None:
    desk.copy("benchmark")

    planned = desk.document("bench", "--task", "benchmark/tasks", "--oracle", "--dry-run")
    code = desk.run(*BENCH, "--models=scripted/echo", "--record", "traffic.ndjson")

    assert code == 1
    snapshot = {
        "planned": [item["id"] for item in planned["items"]],
        "items": desk.items(),
        "recording": desk.recorded_requests("traffic.ndjson"),
    }
    check_snapshot("benchmark", snapshot)


def test_an_evaluation_keeps_its_ids_and_digests(desk: Desk) -> None:
    desk.copy("evaluation")

    started = desk.document("evaluate", "start", "evaluation/evaluation.yaml")

    found = desk.document("evaluate", "get", started["batchEvaluationId"])
    assert {**found, "run": started["run"]} == started
    assert desk.document("evaluate", "list") == {"batchEvaluations": [found]}
    check_snapshot("evaluation", {"items": desk.items(), "scores": desk.score_digests()})


DIALOGUE = "simulate --model openai/talker --num-runs 1 --max-turns 2 --seed 3"
SCENARIO = "scenario run scenarios/harbour-fee --max-turns 2 --output out/scenario"


def test_runners_keep_the_requests_they_send(desk: Desk, model_server: ModelServer) -> None:
    desk.copy("scenarios", "benchmark", "plans/*", "dialogues/*")
    members = ("actors.port.llm_model", "actors.ferry.llm_model", "world_state_model")
    commands = {
        "prompt": ("batch", "prompts.yaml"),
        "dialogue": (*DIALOGUE.split(), "--output-dir", "out/dialogue"),
        "scenario": (
            *SCENARIO.split(),
            *(f"--set={member}=openai/{member.split('.')[-2:][0]}" for member in members),
        ),
        "bench": (*BENCH[:3], "--models", "openai/worker", "--output=out/b"),
    }
    plan = desk.folder / "prompts.yaml"
    plan.write_text(plan.read_text().replace("scripted/geography", "openai/geography"))

    snapshot = {}
    desk.ask(model_server)
    for job, words in commands.items():
        model_server.requests.clear()
        code = desk.run(*words)
        snapshot[job] = {"exitCode": code, "sent": desk.sent_requests(model_server)}

    check_snapshot("requests", snapshot)


def test_the_store_keeps_its_columns(desk: Desk) -> None:
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
