"""Plans that are typed in: checked while typing, validated, started."""

import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
from stocked_runs import add_run
from typed import PROMPTS

from proctor.api import launch
from proctor.jobs import recognize
from proctor.testing import eventually
from proctor.web import plans
from waiting import is_running


def test_while_typing_every_mistake_is_told_at_its_line(shared):
    text = "concurrency: none\nmatrix:\n  - prompt: x\n    modle: y\n"

    found = shared.post("/api/plans/check", {"text": text}).json

    assert found["job"] == "coding"
    assert [(each["line"], each["column"]) for each in found["problems"]] == [(1, 14), (4, 5)]
    assert "modle" in found["problems"][1]["problem"]
    assert "model" in found["problems"][1]["remedy"]


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("matrix: [{prompt: x}]", "coding"),
        ("clients: [eliza]\nnum_runs: 2", "dialogue"),
        ("experiment_name: x\nruns_per_variation: 3", "scenario"),
        ("batchEvaluationName: x\nevaluators: []", "evaluation"),
        ("# Task: mend it\n", "benchmark"),
        ("---\ncheck: make\n---\n# Mend it\n", "benchmark"),
        ("matrix:\n  - prompt: [", "coding"),
        ("", "coding"),
    ],
)
def test_the_job_is_recognized_from_a_plan_however_unfinished(text, job):
    assert recognize(text).name == job


def test_a_plan_can_be_said_to_be_of_another_job(shared):
    found = shared.post("/api/plans/check", {"text": "seed: 1", "job": "dialogue"}).json

    assert (found["job"], found["problems"]) == ("dialogue", [])
    assert shared.post("/api/plans/check", {"text": "", "job": "knitting"}).status == 404


def test_a_large_plan_is_checked_like_a_small_one(shared):
    lines = [f"  - {{prompt: prompt {number}, model: scripted/ok}}\n" for number in range(2000)]
    text = "".join(["matrix:\n", *lines])

    good = shared.post("/api/plans/check", {"text": text})
    wrong = shared.post("/api/plans/check", {"text": text + "concurency: 2\n"})

    assert len(text) > plans.SMALL_PLAN_CHARACTERS
    assert (good.status, good.json["itemCount"]) == (200, 2000)
    assert [(each["line"], each["column"]) for each in wrong.json["problems"]] == [(2002, 1)]
    assert shared.post("/api/plans/validate", {"text": text, "job": "knitting"}).status == 404


def test_a_check_without_end_is_ended(serve, proctor, monkeypatch):
    # White box: the real time is many seconds.
    monkeypatch.setattr(plans, "VALIDATION_SECONDS", 0.5)
    # It starts another, as a validation starts git and agents.
    script = "import os, time; child = os.fork(); open(f'pid-{os.getpid()}', 'w'); time.sleep(600)"
    server = serve(command=[sys.executable, "-c", script])

    refused = server.post("/api/plans/validate", {"text": PROMPTS})

    assert refused.status == 400
    assert refused.json["error"]["problem"] == "checking the plan took more than 0.5 s"
    pids = [file.name.removeprefix("pid-") for file in proctor.folder.glob("pid-*")]
    eventually(lambda: not any(map(is_running, pids)))


@pytest.mark.parametrize(
    ("words", "name"), [(("batch", "plan.yaml"), "plan.yaml"), (("bench", "--task", "task.md"), "task.md")]
)
def test_a_pipe_is_not_waited_for_as_a_plan(proctor, words, name):
    os.mkfifo(proctor.folder / name)

    refused = proctor(*words, "--dry-run")

    assert refused.returncode == 2
    assert "it is not a regular file" in refused.stderr


def test_what_a_plan_names_is_looked_up_when_it_is_validated(shared):
    entries = "  - {repo: /nowhere/at/all, prompt: x, agent: nobody}\n  - {prompt: y, model: acme/one}\n"
    text = f"matrix:\n{entries}"
    before = shared.get("/api/runs").json["all"]
    assert shared.post("/api/plans/check", {"text": text}).json["problems"] == []
    problems = shared.post("/api/plans/validate", {"text": text}).json["problems"]

    assert {each["line"] for each in problems} == {2, 3}
    assert any("/nowhere/at/all" in each["problem"] for each in problems)
    assert shared.get("/api/runs").json["all"] == before


def test_a_good_plan_is_told_with_what_it_is_going_to_take(served):
    first = served.post("/api/plans/validate", {"text": PROMPTS}).json
    assert (first["itemCount"], first["concurrency"], first["problems"]) == (4, 2, [])
    assert first["forecast"]["costUsd"] is None
    assert "Nothing like it" in first["forecast"]["basis"]

    run_id = served.start(PROMPTS)
    served.wait_for(run_id, "completed")
    second = served.post("/api/plans/validate", {"text": PROMPTS, "overrides": {"concurrency": 4}}).json

    assert second["concurrency"] == 4
    assert second["forecast"]["costUsd"] == 0.0
    assert second["forecast"]["seconds"] > 0
    assert second["forecast"]["basis"] == "From 4 earlier sessions of the same agents and models."


def test_the_cost_of_a_plan_is_never_that_of_another_plans_prices(served):
    dear = f"{PROMPTS}\nprices: {{scripted/echo: {{input: 1000000, output: 1000000}}}}\n"
    run_id = served.start(dear)
    served.wait_for(run_id, "completed")
    assert served.get(f"/api/runs/{run_id}").json["costUsd"] > 1

    assert served.post("/api/plans/validate", {"text": dear}).json["forecast"]["costUsd"] > 1
    assert served.post("/api/plans/validate", {"text": PROMPTS}).json["forecast"]["costUsd"] == 0.0


def test_an_evaluation_is_estimated_from_its_sessions_and_imports_nothing(served):
    examples = {each["job"]: each["text"] for each in served.get("/api/plans/examples").json}
    text = examples["evaluation"]

    reply = served.post("/api/plans/validate", {"text": text}).json

    assert (reply["problems"], reply["itemCount"], reply["concurrency"]) == ([], 12, 4)
    expected = {"costUsd": 0.0, "seconds": None, "basis": "Based on the length of the sessions."}
    assert reply["forecast"] == expected
    assert served.get("/api/evaluations/sources").json["arrived"] == []

    run_id = served.start(text)
    served.wait_for(run_id, "completed")
    again = served.post("/api/plans/validate", {"text": text}).json["forecast"]
    assert again["seconds"] > 0
    assert again["basis"] == "From 12 earlier sessions of the same agents and models."


def test_a_typed_plan_becomes_a_run_that_can_be_resumed_by_its_file(served, proctor):
    run_id = served.start(PROMPTS, overrides={"runId": "typed-in", "retries": 2, "budget": 5})

    assert run_id == "typed-in"
    run = served.wait_for(run_id, "completed")
    assert run["budgetUsd"] == 5
    row = served.site.context.store.read.batch(run_id, served.site.now())
    assert row["planText"] == PROMPTS
    assert json.loads(row["defaultsJson"])["retries"] == 2
    assert proctor.json("batch", row["planPath"], "--resume", run_id)["itemCount"] == 4


def test_relative_paths_of_a_typed_plan_begin_where_the_server_was_started(served, repository, proctor):
    entry = {"repo": repository.name, "prompt": "x", "scriptCommand": "test -f note.txt"}
    entry["script"] = [{"write": {"path": "note.txt", "content": "y"}}]

    run_id = served.start(json.dumps({"matrix": [entry]}))

    assert served.wait_for(run_id, "completed")["counts"]["success"] == 1


def test_a_name_that_is_taken_is_found_while_typing_by_validating_and_before_anything_starts(served, site):
    text = f"# again\nrunId: twice\n{PROMPTS}"
    add_run(site.context.store, "twice")

    refused = served.post("/api/runs", {"text": PROMPTS, "overrides": {"runId": "twice"}})
    assert (refused.status, refused.json["error"]["problem"]) == (400, "there is already a run called twice")
    assert served.get("/api/runs").json["all"] == 1
    for look in ("check", "validate"):
        (problem,) = served.post(f"/api/plans/{look}", {"text": text}).json["problems"]
        assert problem["problem"] == "there is already a run called twice"
        assert (problem["line"], problem["column"]) == (2, 1)
        renamed = served.post(f"/api/plans/{look}", {"text": text, "overrides": {"runId": "thrice"}}).json
        assert renamed["problems"] == []


def test_a_plan_that_is_wrong_is_not_started_and_says_where(shared):
    refused = shared.post("/api/runs", {"text": "matrix:\n  - prompt: x\n    modle: y\n"})
    # This only the command finds out.
    nowhere = shared.post("/api/runs", {"text": "matrix: [{repo: /no/where, prompt: x, agent: builtin}]"})

    error = refused.json["error"]
    assert (refused.status, error["line"], error["column"]) == (400, 3, 5)
    assert nowhere.status == 400 and "/no/where" in nowhere.json["error"]["problem"]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("""echo '{"error": "in the document"}'; echo proctor: other >&2""", "in the document"),
        ("printf 'note\\nproctor: first\\nproctor: no plan\\n' >&2", "no plan"),
        ("echo ' only a message ' >&2", "only a message"),
        ("true", "the command failed without a message"),
    ],
)
def test_a_command_that_fails_is_told_with_its_error(serve, site, script, problem):
    add_run(site.context.store, "cut", status="halted", planText=PROMPTS, planPath="/plan.yaml")
    server = serve(command=["sh", "-c", f"{script}; exit 2"])

    for path, typed in (("/api/runs", {"text": PROMPTS}), ("/api/runs/cut/resume", {})):
        refused = server.post(path, typed)
        assert (refused.status, refused.json["error"]["problem"]) == (400, problem), path


def test_a_run_that_has_not_started_in_time_may_still_start(serve, monkeypatch):
    # White box: the real time is many seconds.
    monkeypatch.setattr(launch, "START_SECONDS", 0.1)
    refused = serve(command=["sh", "-c", "sleep 1"]).post("/api/runs", {"text": PROMPTS})

    assert refused.json["error"]["problem"] == "the run has not started within 0.1 s"


def test_the_engine_can_be_chosen_as_on_the_command_line(served):
    served.wait_for(served.start(PROMPTS, overrides={"runId": "here", "engine": "local"}), "completed")
    both = served.post("/api/runs", {"text": PROMPTS, "overrides": {"engine": "ray", "workers": 2}})

    assert both.status == 400
    assert "with `--engine ray` each node has a worker" in both.json["error"]["problem"]
    assert served.post("/api/runs", {"text": PROMPTS, "overrides": {"engine": "moon"}}).status == 422
    for kind in served.get("/api/plans/jobs").json:
        assert {"engine", "workers"} <= set(kind["overrides"])


def test_an_override_the_job_does_not_have_is_refused(shared):
    typed = {"text": "clients: [eliza]\nmodel_name: scripted/ok", "overrides": {"mergeOnPass": True}}

    assert shared.post("/api/runs", typed).status == 400
    assert shared.post("/api/runs", {"text": "", "overrides": {"nonsense": 1}}).status == 422


def test_every_override_of_the_job_can_be_sent_within_its_limits(shared):
    typed = {"text": "clients: [patientPsi]\nmodel_name: scripted/ok"}

    assert shared.post("/api/plans/check", typed | {"overrides": {"maxTurns": 2}}).json["problems"] == []
    (problem,) = shared.post("/api/plans/check", typed | {"overrides": {"maxTurns": 0}}).json["problems"]

    assert "`max_turns`" in problem["problem"] and "at least 1" in problem["problem"]


@pytest.mark.parametrize("number", range(7))
def test_every_example_runs_as_it_is(shared, proctor, repository, number):
    """One for each job. The first works in the folder of the server."""
    example = shared.get("/api/plans/examples").json[number]
    text = example["text"].replace("repo: . ", f"repo: {repository} ")

    assert shared.post("/api/plans/check", {"text": text}).json["job"] == example["job"]
    run = shared.wait_for(shared.start(text, overrides=example["overrides"]), "completed")

    assert run["job"] == example["job"]
    assert run["counts"]["error"] == 0
    assert run["finishedCount"] == run["itemCount"] > 0


def test_what_the_examples_need_is_part_of_the_package():
    root = Path(__file__).parents[2]
    built = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    starters = [file.read_text() for file in (root / "src/proctor/jobs").glob("*/starters/*")]

    needed = {folder for text in starters for folder in re.findall(r"\{examples\}/([\w-]+)", text)}

    assert needed
    for folder in needed:
        assert built["force-include"][f"examples/{folder}"] == f"proctor/examples/{folder}"


def test_an_evaluation_names_its_files_by_their_whole_path(shared):
    source = "dataSourceConfig: {files: {paths: [a.jsonl]}}"
    text = f"batchEvaluationName: x\nevaluators: [Builtin.Helpfulness]\n{source}"

    (problem,) = shared.post("/api/plans/check", {"text": text}).json["problems"]

    assert "a.jsonl is a relative path" in problem["problem"]
    assert "proctor evaluate start" in problem["remedy"]
