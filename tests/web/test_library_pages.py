"""The playground, tasks, and test cases, over HTTP and in a real browser."""

import pytest
import yaml
from playwright.sync_api import expect
from stocked_runs import add_run, change_items

from proctor.item import Item
from proctor.store import timestamp
from proctor.store.definitions import Token

MODELS = "scripted/good, scripted/bad"


@pytest.fixture
def models(proctor):
    (proctor.folder / "good.yaml").write_text("rules: [{reply: 'It is odd <b>really</b>.'}]")
    (proctor.folder / "bad.yaml").write_text("rules: [{reply: even}]")


def test_a_test_case_is_saved_listed_made_a_plan_and_deleted(served, models):
    run = served.start("matrix:\n  - {prompt: x, model: scripted/good}\n")
    served.wait_for(run, "completed")
    session = served.get(f"/api/runs/{run}/items").json["items"][0]["sessionId"]
    case = {"prompt": 'Is "7" odd?\nSay it: yes', "expected": "yes: it is", "sessionId": session}
    saved = served.post("/api/test-cases", case).json

    assert saved["examples"] == 1
    assert served.post("/api/test-cases", {"prompt": "And 8?"}).json["examples"] == 2
    (dataset,) = served.get("/api/datasets").json["datasets"]
    assert (dataset["name"], dataset["examples"]) == ("test_cases", 2)
    first, second = served.get(f"/api/datasets/{dataset['id']}/examples").json["examples"]
    assert (first["prompt"], first["expected"]) == (case["prompt"], case["expected"])
    assert first["content"]["metadata"]["sessionId"] == session
    assert second["expected"] == ""
    text = served.get("/api/datasets/test_cases/plan?model=scripted/a&model=scripted/b").json["text"]
    assert yaml.safe_load(text) == {
        "concurrency": 4,
        "defaults": {"model": ["scripted/a", "scripted/b"]},
        "matrix": [
            {"prompt": case["prompt"], "expect": {"contains": case["expected"]}},
            {"prompt": "And 8?"},
        ],
    }
    left = served.ask("DELETE", f"/api/datasets/{dataset['id']}/examples/{first['id']}").json
    assert (left["datasets"][0]["examples"], left["total"]) == (1, 1)


def test_what_a_plan_and_a_list_of_datasets_leave_out_is_counted(served, monkeypatch):
    for name in ("one", "two", "three"):
        served.post("/api/test-cases", {"prompt": name, "dataset": name})
    served.post("/api/test-cases", {"prompt": "last", "dataset": "one"})
    # White box: the real limits are thousands of test cases.
    monkeypatch.setattr("proctor.api.test_cases.MOST_CASES", 1)
    monkeypatch.setattr("proctor.store.datasets.PAGE", 2)

    plan = served.get("/api/datasets/one/plan").json
    first, second = (served.get(f"/api/datasets?limit=2&offset={offset}").json for offset in (0, 2))

    expected = ([{"prompt": "one"}], 1, 1)
    assert (yaml.safe_load(plan["text"])["matrix"], plan["cases"], plan["omitted"]) == expected
    assert served.get("/api/datasets/two/plan").json["omitted"] == 0
    assert (len(first["datasets"]), len(second["datasets"]), first["total"], second["total"]) == (2, 1, 3, 3)
    names = {one["name"] for answer in (first, second) for one in answer["datasets"]}
    assert names == {"one", "two", "three"}


def test_a_dataset_of_another_kind_takes_no_test_cases(served, site):
    at = timestamp(site.now())
    row = {"id": "x-1", "name": "other", "schemaType": "THIRD_PARTY_EVALUATION_V1", "description": ""}
    row |= {"kmsKeyArn": "", "createdAt": at, "updatedAt": at}
    site.context.store.datasets.create(row, {}, Token(operation="x", token="", request={}))

    refused = served.post("/api/test-cases", {"prompt": "x", "dataset": "other"})

    assert refused.status == 400
    assert refused.json["error"]["problem"] == "the dataset other has examples of another kind"


def test_characters_that_yaml_refuses_stay_in_the_plan_of_a_test_case(served):
    prompt = "del \x7f csi \x9b2J next \x85 \u2028 mark \ufeff none \uffff \U0001f600 ${HOME} 'q' \\ \x1b[0m"
    served.post("/api/test-cases", {"prompt": prompt, "expected": prompt})
    text = served.get("/api/datasets/test_cases/plan").json["text"]

    assert yaml.safe_load(text)["matrix"] == [{"prompt": prompt, "expect": {"contains": prompt}}]


@pytest.mark.parametrize(
    ("case", "status"),
    [
        ({"prompt": ""}, 422),
        ({"prompt": "x", "dataset": "../x"}, 422),
        ({"prompt": "x", "sessionId": "nothing"}, 404),
        ({"prompt": "x", "secret": 1}, 422),
    ],
)
def test_a_wrong_test_case_is_refused(served, case, status):
    assert served.ask("POST", "/api/test-cases", case).status == status
    assert served.get("/api/datasets").json == {"datasets": [], "total": 0}


def test_tasks_have_their_results_of_all_runs_and_the_state_of_oracle_and_noop(served, site):
    def add(run, model, status, task="sum"):
        item = Item(runner="benchmark", prompt="x", model=model, factors={"model": model, "task": task})
        run_id = f"{run}-{model}-{status}"
        add_run(
            site.context.store, run_id, [item], createdAt=f"2026-11-1{run[-1]}T00:00:00.000Z", job="benchmark"
        )
        change_items(site.context.store, run_id, {item.id: {"status": status}})

    add("run1", "oracle", "fail")
    add("run2", "oracle", "success")
    add("run2", "noop", "fail")
    add("run3", "gpt", "success")
    add("run4", "gpt", "timeout")
    add("run5", "gpt", "error")
    add("run5", "gpt", "queued", task="other")

    (task,) = served.get("/api/tasks/history").json["tasks"]

    assert task == {
        "task": "sum", "items": 3, "passed": 1, "failed": 1, "errors": 1, "runs": 6,
        "lastRun": "run5-gpt-error", "oracle": "success", "noop": "fail",
    }  # fmt: skip


def test_tasks_of_a_file_are_listed_and_a_wrong_path_is_an_error(served, proctor):
    (proctor.folder / "set.jsonl").write_text(
        '{"prompt": "2+2?", "expected": "4"}\n{"prompt": "3+3?", "expected": "6"}\n'
    )

    assert len(served.get("/api/tasks?path=set.jsonl").json["tasks"]) == 2
    (proctor.folder / "broken.jsonl").write_text('{"prompt": "2+2?", "expected": "4"}\n{"expected": "6"}\n')
    (skipped,) = served.get("/api/tasks?path=broken.jsonl").json["skipped"]
    assert (skipped["file"], skipped["line"]) == (str(proctor.folder / "broken.jsonl"), 2)
    assert "prompt" in skipped["reason"] == skipped["problem"]
    wrong = served.ask("GET", "/api/tasks?path=missing.jsonl")
    assert wrong.status == 400
    assert "missing.jsonl" in wrong.json["error"]["problem"]
    assert served.ask("GET", "/api/tasks?path=--help").status == 400
    assert served.ask("GET", "/api/tasks?path=set%00.jsonl").status == 400


@pytest.mark.browser
def test_a_prompt_is_asked_of_two_models_saved_and_run_again_by_keyboard(served, site, open_page, models):
    page = open_page(f"{served.url}/playground")
    page.get_by_label("Prompt", exact=True).focus()
    page.keyboard.type("Even or odd, 7?")
    page.get_by_label("Models, comma-separated").fill(MODELS)
    page.keyboard.press("Control+Enter")
    good = page.get_by_role("group", name="Answer of scripted/good")
    good.wait_for()
    page.get_by_text("completed ·").wait_for()
    expect(good).to_have_text("It is odd <b>really</b>.")
    expect(page.get_by_role("group", name="Answer of scripted/bad")).to_have_text("even")

    page.get_by_role("button", name="Save as test case").first.focus()
    page.keyboard.press("Enter")
    page.get_by_label("A right answer contains").fill("odd")
    page.get_by_role("button", name="Save", exact=True).press("Enter")
    page.get_by_text("has 1 test case.").wait_for()

    page.goto(f"{served.url}/tasks")
    page.get_by_role("button", name="test_cases").press("Enter")
    page.get_by_role("cell", name="Even or odd, 7?").wait_for()
    page.get_by_role("button", name="Run on models").press("Enter")
    page.wait_for_url("**/new")
    page.get_by_text("2 items", exact=True).wait_for()

    (run,) = served.get("/api/runs").json["runs"]
    session = served.get(f"/api/runs/{run['runId']}/items").json["items"][0]["sessionId"]
    page.goto(f"{served.url}/sessions/{session}")
    page.get_by_role("link", name="Ask other models").press("Enter")
    page.get_by_text("Only the prompt is sent").wait_for()
    assert page.get_by_label("Prompt", exact=True).input_value() == "Even or odd, 7?"


@pytest.mark.browser
def test_long_answers_are_whole_and_control_characters_stay_in_a_prompt(served, open_page, proctor):
    answer = "word " * 20_000 + "end"
    (proctor.folder / "long.yaml").write_text(f"rules: [{{reply: '{answer}'}}]")
    page = open_page(f"{served.url}/playground")
    page.get_by_label("Prompt", exact=True).fill("one\x7ftwo\x85")
    page.get_by_label("Models, comma-separated").fill("scripted/long")
    # Without a budget, and at prices of its own.
    page.get_by_label("Budget (USD)").fill("")
    page.get_by_label("Output price").fill("5")
    page.keyboard.press("Control+Enter")
    page.get_by_text("completed ·").wait_for()
    expect(page.get_by_role("group", name="Answer of scripted/long")).to_have_text(answer)
    (run,) = served.get("/api/runs").json["runs"]
    assert run["budgetUsd"] is None and run["costUsd"] > 0
    assert served.get(f"/api/runs/{run['runId']}/items").json["items"][0]["prompt"] == "one\x7ftwo\x85"


@pytest.mark.browser
def test_the_last_run_of_a_task_opens_with_the_items_of_the_task(served, site, open_page):
    items = [
        Item(runner="benchmark", prompt=f"Do {task}.", model="gpt", factors={"task": task})
        for task in ("sum", "product")
    ]
    add_run(site.context.store, "last", items, job="benchmark")
    change_items(site.context.store, "last", {item.id: {"status": "success"} for item in items})

    page = open_page(f"{served.url}/tasks")
    page.get_by_role("row", name="sum").get_by_role("link", name="last").click()

    grid = page.get_by_role("grid", name="Items")
    expect(grid.get_by_role("gridcell", name="sum", exact=True)).to_be_visible()
    expect(grid.get_by_role("gridcell", name="product", exact=True)).to_have_count(0)


@pytest.mark.browser
def test_the_plan_of_a_run_is_edited_as_a_new_one(served, open_page, models):
    plan = '{"runId": "first", "matrix": [{"prompt": "x", "model": "scripted/good"}]}'
    served.start(plan)
    served.wait_for("first", "completed")

    page = open_page(f"{served.url}/runs/first#plan")
    page.get_by_role("link", name="Edit as new batch").click()
    page.wait_for_url("**/new?run=first")
    page.get_by_text("Copy of the plan of first").or_(page.get_by_text("1 item", exact=True)).first.wait_for()
    assert page.get_by_label("Run name").input_value() == "first-copy"
    page.set_viewport_size({"width": 1000, "height": 500})
    page.get_by_role("button", name="Validate Plan").click()
    page.locator(".good-plan").wait_for()
    box = page.locator(".good-plan").bounding_box()
    assert box["y"] < 500, "the result is in view"
    page.get_by_role("button", name="Start Batch").click()
    page.wait_for_url("**/runs/first-copy")
    # Another copy has another name.
    page.goto(f"{served.url}/new?run=first-copy")
    expect(page.get_by_label("Run name")).to_have_value("first-copy-2")
