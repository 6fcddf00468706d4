"""One run over HTTP: what it is, its items in any order, its plots, its files, and what becomes of it."""

import csv
import html
import io
import json
import re
import zipfile
from datetime import timedelta

import pytest
from stocked_runs import NOW, add_run, change_items, items, positions, stock

from proctor.item import Item
from proctor.store import batches, timestamp
from proctor.store.writer import this_process
from waiting import TIME_LIMIT_SECONDS

GUESSES = """
runId: guesses
concurrency: 2
defaults: {model: scripted/guess}
matrix:
  - {prompt: [one, two, three], expect: {contains: right}}
"""


@pytest.fixture(scope="module")
def stocked(shared):
    """A server with a run of sixty items, for tests that change nothing."""
    stock(shared.site.context.store)
    return shared


def values(served, name, query=""):
    return [item[name] for item in served.get(f"/api/runs/stocked/items?limit=500&{query}").json["items"]]


def guess(proctor, reply, seconds=0):
    (proctor.folder / "guess.yaml").write_text(f"rules: [{{reply: {reply}}}]\nlatency_seconds: {seconds}\n")


def test_how_quick_a_run_was_is_told_to_the_millisecond_and_without_what_an_abort_left_undone(shared):
    store = shared.site.context.store
    stock(store, "quick", finishedAt=timestamp(NOW + timedelta(milliseconds=40)))
    stock(store, "halved", status="aborted", finishedAt=timestamp(NOW + timedelta(minutes=2)))

    assert shared.get("/api/runs/quick").json["elapsedSeconds"] == 0.04
    # Of 54 that have ended, 10 in an error.
    assert shared.get("/api/runs/halved").json["itemsPerMinute"] == 22.0


@pytest.mark.parametrize("order", ["costUsd", "seconds", "prompt", "model", "factor:temper", "finishedAt"])
@pytest.mark.parametrize("descending", [False, True])
def test_items_are_sorted_by_any_column_and_what_is_missing_comes_last(stocked, order, descending):
    asked = f"order={order}&descending={str(descending).lower()}"
    if order.startswith("factor:"):
        found = [factors["temper"] for factors in values(stocked, "factors", asked)]
    else:
        found = values(stocked, order, asked)

    known = [value for value in found if value is not None]
    assert len(found) == 60
    assert known == sorted(known, reverse=descending)
    assert found[: len(known)] == known


def test_items_are_filtered_by_how_long_they_took(stocked):
    took = values(stocked, "seconds", "duration=2..4")
    assert set(took) == {2.0, 3.0}
    assert set(values(stocked, "seconds", "duration=6.5..")) == {7.0}
    assert set(values(stocked, "seconds", "duration=..2")) == {1.0}
    assert set(values(stocked, "seconds", "duration=2..4&duration=3..9")) == {3.0}
    assert None not in values(stocked, "seconds", "duration=..")
    for wrong in ("2", "two..", "-1..3", "1..2..3", "...."):
        reply = stocked.get(f"/api/runs/stocked/items?duration={wrong}")
        assert (reply.status, reply.json["error"]["remedy"]) == (400, "Write LOW..HIGH.")


def test_items_are_searched_and_counted_by_status_whatever_is_filtered(stocked):
    found = stocked.get("/api/runs/stocked/items?search=TEST+1&status=fail&status=timeout").json

    # Tests 1 and 10 to 19; every third of five fails, every fourth is out of time.
    assert [item["position"] for item in found["items"]] == [12, 13, 17, 18]
    assert found["total"] == 4
    assert found["counts"] == {
        "queued": 0, "running": 0, "success": 5, "fail": 2, "timeout": 2, "error": 2,
    }  # fmt: skip
    assert positions(stocked, "search=branch&order=position&descending=true") == list(range(49, 0, -5))
    assert positions(stocked, "search=100%25") == []
    assert positions(stocked, "search=gpt-5&status=queued") == [54, 57]
    assert stocked.get("/api/runs/stocked/items?status=asleep").status == 404
    assert stocked.get("/api/runs/stocked/items?order=settings").status == 404


def test_an_order_that_was_asked_for_follows_what_changes(served, site):
    made = stock(site.context.store)
    assert positions(served, "status=queued&order=model")[:1] == [55]

    change_items(site.context.store, "stocked", {made[55].id: {"status": "success"}})

    assert 55 not in positions(served, "status=queued&order=model")


def test_each_bar_of_a_plot_lists_the_items_that_it_counts(stocked):
    durations = stocked.get("/api/runs/stocked/charts").json["charts"][1]
    bars = [bar for bar in durations["marks"] if bar["n"]]
    addresses = [f"/api/runs/stocked/items?duration={bar['items']['duration'][0]}" for bar in bars]

    assert [stocked.get(address).json["total"] for address in addresses] == [bar["n"] for bar in bars]
    assert len(bars) == 7


def test_a_running_run_says_that_its_intervals_are_for_one_look(shared):
    under_way = {"status": "running", "finishedAt": None, "owner": this_process()}
    stock(shared.site.context.store, "going", **under_way, heartbeatAt=timestamp(shared.site.now()))

    assert shared.get("/api/runs/going").json["status"] == "running"
    assert "not for repeated looks" in shared.get("/api/runs/going/charts?by=model").json["remark"]


def test_a_factor_with_too_many_levels_is_not_drawn_but_said(shared):
    many = [Item(runner="prompt", prompt=f"{n}", factors={"task": f"t{n}"}) for n in range(60)]
    add_run(shared.site.context.store, "many", many)
    change_items(shared.site.context.store, "many", {item.id: {"status": "success"} for item in many})

    found = shared.get("/api/runs/many/charts?by=task").json

    assert found["charts"] == []
    assert "too many" in found["remark"]


def test_a_run_is_exported_as_files_that_hold_its_rows(stocked):
    import duckdb

    whole = stocked.get("/api/runs/stocked/export?format=json")
    assert len(json.loads(whole.body)["batch_items"]) == 60
    assert whole.headers["content-disposition"] == 'attachment; filename="batch-stocked.json"'

    lines = stocked.get("/api/runs/stocked/export?format=ndjson&table=batch_items").text.splitlines()
    assert [json.loads(line)["status"] for line in lines[:3]] == ["success", "success", "fail"]

    sheet = stocked.get("/api/runs/stocked/export?format=csv&table=batch_items").body.decode()
    assert len(list(csv.DictReader(io.StringIO(sheet)))) == 60

    several = stocked.get("/api/runs/stocked/export?format=csv")
    names = zipfile.ZipFile(io.BytesIO(several.body)).namelist()
    assert names == ["iterations-stocked.csv", "tool_calls-stocked.csv"]

    parquet = stocked.site.home / "items.parquet"
    parquet.write_bytes(stocked.get("/api/runs/stocked/export?format=parquet&table=batch_items").body)
    assert duckdb.sql(f"SELECT COUNT(*) FROM '{parquet}'").fetchall() == [(60,)]

    assert stocked.get("/api/runs/stocked/export?format=xml").status == 422
    assert stocked.get("/api/runs/stocked/export?table=passwords").status == 400
    assert list(stocked.site.data_folder.glob("export-*")) == []


def test_a_report_is_a_page_that_may_run_nothing_or_markdown(stocked):
    page = stocked.get("/api/runs/stocked/report")
    kept = stocked.get("/api/runs/stocked/report?format=md&download=true")

    assert "<h1>" in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert kept.headers["content-disposition"] == 'attachment; filename="report-stocked.md"'
    assert kept.text.startswith("# Run stocked")
    portable = stocked.get("/api/runs/stocked/report?format=portable")
    assert portable.headers["content-disposition"] == 'attachment; filename="report-stocked.html"'
    assert "<script" in portable.text and "<script" not in page.text
    assert "content-disposition" not in page.headers
    assert stocked.get("/api/runs/stocked/analysis").status == 404


def test_an_item_leads_to_its_last_session(shared):
    made = stock(shared.site.context.store, "leading")
    change_items(shared.site.context.store, "leading", {made[0].id: {"sessionId": "s1"}})

    assert shared.get(f"/runs/leading/items/{made[0].id}").headers["location"] == "/sessions/s1"
    assert shared.get(f"/runs/leading/items/{made[59].id}").status == 404
    assert shared.get("/runs/leading/items/none").status == 404
    assert shared.get("/runs/lead").headers["location"] == "/runs/leading"


def test_a_run_is_aborted_resumed_and_what_failed_is_tried_again(served, proctor):
    guess(proctor, "wrong", seconds=60)
    (proctor.folder / "plan.yaml").write_text(GUESSES)
    running = proctor.start("batch", "plan.yaml")
    served.wait_for("guesses", "running")
    assert (
        served.post("/api/runs/guesses/resume").json["error"]["problem"] == "run guesses is already running"
    )

    aborted = served.post("/api/runs/guesses/abort")
    assert (aborted.status, aborted.json) == (200, {"runId": "guesses", "status": "aborted"})
    assert running.wait(timeout=TIME_LIMIT_SECONDS) == 3
    assert served.post("/api/runs/guesses/abort").status == 400

    guess(proctor, "wrong")
    assert served.post("/api/runs/guesses/resume").status == 200
    served.wait_for("guesses", "completed")
    assert served.get("/api/runs/guesses").json["counts"]["fail"] == 3
    ended = served.get("/api/runs/guesses").json["finishedAt"]
    assert served.post("/api/runs/guesses/resume").json["error"]["problem"] == "run guesses is completed"
    assert served.get("/api/runs/guesses").json["finishedAt"] == ended

    guess(proctor, "right")
    assert served.post("/api/runs/guesses/retry?failed=false").status == 400
    first = served.get("/api/runs/guesses/items").json["items"][0]["id"]
    assert served.post("/api/runs/guesses/retry?item=nothing").status == 400
    assert served.post(f"/api/runs/guesses/retry?item={first}").status == 200
    served.wait_for("guesses", "completed")
    after = served.get("/api/runs/guesses/items").json
    assert [(item["id"] == first, item["status"]) for item in after["items"]] == [
        (True, "success"), (False, "fail"), (False, "fail"),
    ]  # fmt: skip
    assert served.post(f"/api/runs/guesses/retry?item={first}").status == 400
    assert served.post("/api/runs/guesses/retry").status == 200
    served.wait_for("guesses", "completed")
    assert served.get("/api/runs/guesses").json["counts"]["success"] == 3
    refused = served.post("/api/runs/guesses/retry").json["error"]
    assert refused["problem"] == "guesses has no items to retry"


@pytest.mark.parametrize(
    ("run", "job", "row"),
    [
        *((f"lost-{job}", job, {}) for job in ("benchmark", "scenario", "dialogue")),
        ("lost", "scenario", {"optionsJson": '{"output": "/nowhere", "experiment": "lost"}',
                              "planPath": "/no.yaml"}),
    ],
)  # fmt: skip
def test_a_run_whose_plan_is_not_in_the_store_is_not_resumed(shared, run, job, row):
    add_run(shared.site.context.store, run, job=job, status="halted", **row)

    refused = shared.post(f"/api/runs/{run}/resume")

    assert refused.status == 400
    assert refused.json["error"]["problem"].startswith(f"the plan of run {run} is not in the store")
    assert shared.get(f"/api/runs/{run}").json["status"] == "halted"


def test_who_watches_a_run_is_told_the_items_that_changed_and_no_others(shared):
    one, two, three = made = list(items(3))
    under_way = {"status": "running", "owner": this_process(), "heartbeatAt": timestamp(shared.site.now())}
    add_run(shared.site.context.store, "watched", made, **under_way)

    def change(item, status, **values):
        change_items(shared.site.context.store, "watched", {item.id: {"status": status, **values}})

    def begin(item):
        change(item, "running", startedAt=timestamp(shared.site.now()))

    def next_items(live):
        """The ids and statuses in the next message with any; a run under way is also told without."""
        while True:
            told = live.next()
            assert (told["full"], told["changes"]["reset"]) == (False, False)
            if told["changes"]["items"]:
                return told, {item["id"]: item["status"] for item in told["changes"]["items"]}

    with shared.live() as live:
        first = live.watch(("run", "watched"))
        assert (first["full"], first["changes"]["items"]) == (True, [])
        assert first["changes"]["run"]["counts"]["queued"] == 3
        for item in (one, two):
            begin(item)
            assert next_items(live)[1] == {item.id: "running"}
        change(one, "success", finishedAt=timestamp(shared.site.now()))
        told, changed = next_items(live)
        assert changed == {one.id: "success"}
        assert told["changes"]["run"]["counts"]["success"] == 1

    with shared.live() as live:
        again = {"topic": "run", "id": "watched", "version": told["version"], "epoch": told["epoch"]}
        live.socket.send(json.dumps({"watch": [again]}))
        begin(three)
        assert next_items(live)[1] == {three.id: "running"}, "what was told before is not told again"


def test_a_page_is_told_to_look_again_when_everything_changed_at_once(shared):
    made = stock(shared.site.context.store, "requeued")
    with shared.live() as live:
        assert live.watch(("run", "requeued"))["changes"]["reset"] is False

        shared.site.context.store.change(batches.requeue, "requeued", [item.id for item in made[:40]])

        changes = live.next()["changes"]
        assert (changes["reset"], changes["items"], changes["run"]["counts"]["queued"]) == (True, [], 46)


def test_what_is_asked_of_each_provider_is_told(served, site):
    stock(site.context.store, status="running", owner="nowhere:1:2:3", finishedAt=None)
    held = timestamp(site.now() + timedelta(seconds=60))
    writer = site.context.store.writer()
    told = ("openai/gpt-5", "nowhere:1:2:3", "stocked", 12.7, 9, 4, 310, 2, 8.5, held, None)
    writer.append("pools", (*told, timestamp(site.now())))
    writer.close()

    (pool,) = served.get("/api/runs/stocked").json["pools"]

    assert 50 < pool.pop("pausedSeconds") == pool.pop("heldSeconds") <= 60
    assert pool == {
        "name": "openai/gpt-5", "limit": 12, "inUse": 9, "waiting": 4, "rateLimited": 2, "refused": 2,
        "waitedSeconds": 8.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("job", "titles"),
    [
        ("coding", {}),
        ("dialogue", {"prompt": "Dialogue", "model": "Models"}),
        ("scenario", {"prompt": "Scenario", "model": "Models"}),
        ("evaluation", {"prompt": "Session", "model": "Judge", "factor:model": "evaluated model"}),
        ("gone", {}),
    ],
)
def test_the_page_of_a_run_names_columns_as_its_job_does(shared, job, titles):
    stock(shared.site.context.store, f"of-{job[:4]}", job=job, count=1)

    text = shared.get(f"/runs/of-{job[:4]}").text

    (attribute,) = re.findall('data-column-titles="([^"]*)"', text)
    assert json.loads(html.unescape(attribute)) == titles
    assert (" data-evaluates" in text) == (job == "evaluation")


def test_the_cost_of_a_run_whose_process_died_is_a_lower_bound(shared):
    for run_id, crashes in (("end-died", 1), ("end-lived", 0)):
        stock(shared.site.context.store, run_id, count=5)
        shared.site.context.store.change(batches.change, run_id, {"crashes": crashes})

    runs = shared.get("/api/runs?search=end-").json["runs"]
    assert {run["runId"]: run["costIsLowerBound"] for run in runs} == {"end-died": True, "end-lived": False}
    assert shared.get("/api/runs/end-died").json["costIsLowerBound"] is True
