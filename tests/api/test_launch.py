"""A detached run: what it is handed, where it writes, and that it outlives its parent."""

import json
import os
import sys
from pathlib import Path

import pytest

from databases import query
from proctor.api.launch import Launcher, LaunchRequest
from proctor.job import BatchChanges
from proctor.store import RetrySelection, batches
from waiting import TIME_LIMIT_SECONDS

SECRET = "sk-in-a-plan-0123456789"
PLAN = f"matrix: [{{prompt: 'hello {SECRET}', model: scripted/echo}}]"
# Prints how it was started, and what it was handed.
PROGRAM = """
import json, os, sys
document = {
    "arguments": sys.argv[1:],
    "request": sys.stdin.read(),
    "token": os.environ.get("PROCTOR_TOKEN"),
    "key": os.environ.get("OPENAI_API_KEY"),
    "is_session_leader": os.getsid(0) == os.getpid(),
}
print(json.dumps(document))
print("a message", file=sys.stderr)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    environment = {"PATH": os.environ["PATH"], "PROCTOR_TOKEN": "hidden", "OPENAI_API_KEY": "kept"}
    return Launcher(
        command=[sys.executable, "-c", PROGRAM],
        environment=environment,
        folder=tmp_path,
        logs=tmp_path / "logs",
    )


def test_a_detached_process_has_its_own_session_and_its_plan_on_standard_input(launcher):
    request = LaunchRequest(
        job="coding",
        run_id="nightly",
        plan_text=PLAN,
        folder="/work",
        overrides={"concurrency": 2, "mergeOnPass": True},
        retry=RetrySelection(errors=True),
        changes=BatchChanges(budget_usd=2.5),
    )

    launched = launcher.launch(request, "one")

    assert launched.process.wait(timeout=TIME_LIMIT_SECONDS) == 0
    document = launched.document
    assert not any(SECRET in word for word in (*document["arguments"], *map(str, launched.process.args)))
    assert LaunchRequest.from_json(document["request"]) == request
    assert (document["token"], document["key"]) == (None, "kept"), "no secrets of the server"
    assert document["is_session_leader"]


def test_a_plan_larger_than_a_pipe_does_not_block_the_start(launcher):
    text = "# " + "x" * 5_000_000

    launched = launcher.launch(LaunchRequest(job="coding", plan_text=text), "large")

    assert launched.process.wait(timeout=TIME_LIMIT_SECONDS) == 0
    log = launched.log.with_suffix(".json").read_text()
    assert len(LaunchRequest.from_json(json.loads(log)["request"]).plan_text or "") == len(text)


def test_output_goes_to_named_files_unless_the_store_is_encrypted(launcher, tmp_path):
    launched = launcher.launch(LaunchRequest(job="coding", plan_text=PLAN), "open")
    assert launched.process.wait(timeout=TIME_LIMIT_SECONDS) == 0
    assert launched.log.read_text() == launched.messages == "a message\n"
    assert sorted(path.name for path in launcher.logs.iterdir()) == ["open.json", "open.log"]

    encrypted = Launcher(
        command=launcher.command,
        environment=launcher.environment,
        folder=tmp_path,
        logs=tmp_path / "encrypted",
        is_encrypted=True,
    ).launch(LaunchRequest(job="coding", plan_text=PLAN), "closed")
    assert encrypted.process.wait(timeout=TIME_LIMIT_SECONDS) == 0
    assert encrypted.messages == "a message\n"
    assert SECRET in encrypted.document["request"]
    assert list((tmp_path / "encrypted").iterdir()) == []


def test_a_launched_run_executes_its_plan_with_overrides_and_can_be_resumed(proctor):
    request = LaunchRequest(
        job="coding",
        run_id="detached",
        plan_text="matrix: [{prompt: [hello, goodbye], model: scripted/echo, expect: {contains: hello}}]",
        folder=str(proctor.folder),
        overrides={"concurrency": 2, "budget": 5},
    )
    first = proctor("launched", "--json", stdin=request.to_json())

    assert first.returncode == 1, first.stderr
    assert json.loads(first.stdout)["failCount"] == 1
    with proctor.open_store() as store:
        (batch,) = query(store, 'SELECT "concurrency", "budgetUsd", "planPath" FROM "batches"')
    assert batch == {"concurrency": 2, "budgetUsd": 5.0, "planPath": ""}

    resume = LaunchRequest(
        job="coding",
        run_id="detached",
        retry=RetrySelection(failures=True),
        changes=BatchChanges(concurrency=1),
    )
    second = proctor("launched", "--json", stdin=resume.to_json())

    assert second.returncode == 1
    with proctor.open_store() as store:
        (sessions,) = query(store, 'SELECT COUNT(*) AS "n" FROM "sessions"')
        (batch,) = query(store, 'SELECT "concurrency" FROM "batches"')
    assert (sessions["n"], batch["concurrency"]) == (3, 1)


def test_a_launched_plan_with_problems_reports_them_as_a_document(proctor):
    text = "matrix:\n  - prompt: x\n    modle: y\n"
    request = LaunchRequest(job="coding", plan_text=text, folder=str(proctor.folder))

    refused = proctor("launched", "--json", stdin=request.to_json())

    assert refused.returncode == 2
    assert [problem["line"] for problem in json.loads(refused.stdout)["problems"]] == [3]
    assert "launched" not in proctor("--help").stdout


def test_a_run_that_was_stopped_before_its_process_began_is_left_alone(proctor):
    first = LaunchRequest(
        job="coding",
        run_id="stopped",
        plan_text="matrix: [{prompt: hello, model: scripted/echo}]",
        folder=str(proctor.folder),
    )
    assert proctor("launched", "--json", stdin=first.to_json()).returncode == 0
    with proctor.open_store() as store:
        store.change(batches.change, "stopped", {"status": "aborted", "reason": "aborted"})

    again = LaunchRequest(job="coding", run_id="stopped", only_unfinished=True)
    left = proctor("launched", "--json", stdin=again.to_json())

    assert left.returncode == 3, left.stderr
    assert json.loads(left.stdout)["status"] == "aborted"
