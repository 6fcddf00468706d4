"""The list of runs over HTTP: pages, filters, deleting."""

import pytest
from stocked_runs import add_run
from typed import PROMPTS, SLOW

from proctor.store import batches


def test_runs_are_filtered_and_paged_by_the_store(served, workshop_of_many):
    page = served.get("/api/runs?limit=2&offset=2").json
    assert ([run["runId"] for run in page["runs"]], page["total"], page["all"]) == (["run-3", "run-2"], 6, 6)

    found = served.get("/api/runs?search=RUN-4").json
    assert ([run["runId"] for run in found["runs"]], found["total"], found["all"]) == (["run-4"], 1, 6)
    assert [run["runId"] for run in served.get("/api/runs?search=a%25b").json["runs"]] == []

    halted = served.get("/api/runs?status=halted&status=aborted").json["runs"]
    assert [run["runId"] for run in halted] == ["run-5", "run-2"]
    assert served.get("/api/runs?job=dialogue").json["total"] == 1
    assert served.get("/api/runs").json["jobs"] == ["coding", "dialogue"]
    assert served.get("/api/runs?status=asleep").status == 422


def test_a_run_whose_process_died_is_interrupted_and_found_as_such(served, workshop_of_many):
    # The row of run-1 says `running`, and nobody has its process.
    assert [run["runId"] for run in served.get("/api/runs?status=interrupted").json["runs"]] == ["run-1"]
    assert served.get("/api/runs?status=running").json["total"] == 0
    both = served.get("/api/runs?status=interrupted&status=running").json
    assert [run["status"] for run in both["runs"]] == ["interrupted"]


@pytest.fixture
def workshop_of_many(site):
    statuses = ["completed", "running", "halted", "completed", "completed", "aborted"]
    for number, status in enumerate(statuses):
        job, created = "dialogue" if number == 4 else "coding", f"2026-01-0{number + 1}T00:00:00.000000+00:00"
        row = {"status": status, "owner": "nowhere:1:2:3", "planText": "a plan"}
        add_run(site.context.store, f"run-{number}", job=job, createdAt=created, **row)


def test_a_run_is_deleted_by_its_whole_name_and_only_when_it_has_ended(served, slow_model):
    done = served.start(PROMPTS, overrides={"runId": "done"})
    served.wait_for(done, "completed")
    busy = served.start(SLOW, overrides={"runId": "busy"})

    refused = served.ask("DELETE", "/api/runs/busy")
    assert (refused.status, refused.json["error"]["problem"]) == (400, "run busy is still running")
    assert served.ask("DELETE", "/api/runs/don").status == 404
    assert served.ask("DELETE", "/api/runs/done").json == {"runId": "done", "branches": 0, "kept": []}
    assert [run["runId"] for run in served.get("/api/runs").json["runs"]] == [busy]
    served.post("/api/runs/busy/abort")
    served.wait_for(busy, "aborted")


def test_questions_to_people_are_shown_and_answered_once(served, site):
    add_run(site.context.store, "play", job="scenario", status="running", owner="nowhere:1:2:3")
    asked = site.context.store.change(batches.ask, "play", "item", "port", "What do you charge?", site.now())

    with served.live() as live:
        (question,) = live.watch(("questions", "play"))["changes"]["questions"]
        expected = (asked, "port", "What do you charge?")
        assert (question["id"], question["actor"], question["prompt"]) == expected
        assert served.get("/api/runs/play/questions").json["questions"] == [question]

        assert served.post(f"/api/runs/play/questions/{asked}", {"answer": "Nine."}).status == 200
        assert live.next()["changes"] == {"questions": []}
    assert site.context.store.answer_of("play", asked) == "Nine."
    assert served.post(f"/api/runs/play/questions/{asked}", {"answer": "Ten."}).status == 400
    assert served.post("/api/runs/play/questions/none", {"answer": "Ten."}).status == 404


def test_models_and_agents_are_those_the_commands_list(served, proctor):
    models = served.get("/api/models").json
    agents = served.get("/api/agents").json

    assert models == proctor.json("models")
    assert models["silent"] == models["unavailableProviders"], "the deprecated name"
    scripted = next(agent for agent in agents["agents"] if agent["name"] == "scripted")
    assert {"name": "scripted", "ready": True, "mock": True, "standIn": True}.items() <= scripted.items()


def test_a_model_is_tried_on_request(served):
    good = served.post("/api/trials", {"model": "scripted/ok"}).json
    unknown = served.post("/api/trials", {"model": "acme/one"})

    assert good["ok"] is True
    assert "OK" in good["message"]
    assert (good["well"], good["said"]) == (good["ok"], good["message"]), "the deprecated names"
    assert unknown.status == 400
    assert "acme" in unknown.json["error"]["problem"]
    assert served.post("/api/trials", {}).status == 400
    assert served.post("/api/trials", {"model": "--help"}).status == 400
