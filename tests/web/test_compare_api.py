"""Comparisons over HTTP: what a difference is worth, where two disagree, and what cannot be said."""

import json
import re
from urllib.parse import quote

import pytest
from stocked_judgments import compared_run
from stocked_runs import HOSTILE, add_duel, change_items

from proctor.metric import METRIC_TITLES, METRICS

BETTER = {f"task {n}": "success" for n in range(20)}
WORSE = {f"task {n}": "success" if n < 6 else "fail" for n in range(20)}


@pytest.fixture(scope="module")
def compared(shared):
    """A server with a run and one that is better, for tests that change nothing."""
    compared_run(shared.site.context.store, "before", WORSE, score="tidy")
    compared_run(shared.site.context.store, "after", BETTER, score="tidy")
    return shared


def of(answer, metric, candidate="after"):
    return next(
        each for each in answer["contrasts"] if (each["metric"], each["candidate"]) == (metric, candidate)
    )


def test_two_runs_are_paired_by_task_with_interval_and_plain_words(compared):
    answer = compared.get("/api/compare?run=before&run=after").json
    success = of(answer, "success")

    assert answer["groups"] == ["before", "after"]
    assert answer["varied"] == ["model"]
    assert success["pairs"] == 20
    assert success["difference"]["value"] == pytest.approx(0.7)
    assert success["difference"]["low"] > 0.3
    assert success["isBetter"] is True
    assert success["words"].startswith("Significant: after succeeds more often, +70.0 pp (95% CI ")
    assert "score:tidy" in answer["metrics"]
    expected = [*METRICS, "score:tidy"]
    assert [chart["caption"] for chart in answer["charts"]] == expected
    assert all("<script" not in chart["svg"] for chart in answer["charts"])


def test_what_is_inconclusive_is_called_so_and_says_what_would_settle_it(shared):
    # Of 30 tasks, six are won and one is lost.
    compared_run(
        shared.site.context.store, "thirty", {f"task {n}": "success" if n == 6 else "fail" for n in range(30)}
    )
    compared_run(
        shared.site.context.store, "close", {f"task {n}": "success" if n < 6 else "fail" for n in range(30)}
    )

    success = of(shared.get("/api/compare?run=thirty&run=close&metric=success").json, "success", "close")

    assert success["isSignificant"] is False
    assert success["isBetter"] is None
    assert success["words"].startswith("No significant difference: ") and "(95% CI −" in success["words"]
    assert "A verdict needs about 184 tasks if the true difference is about as observed." in success["words"]
    assert success["difference"]["note"].endswith("if the true difference is about as observed.")


def test_one_run_alone_is_nothing_to_compare(compared):
    reply = compared.get("/api/compare?run=before")
    expected = (400, "Pass two runs, or one run and the factor that divides it.")
    assert (reply.status, reply.json["error"]["remedy"]) == expected
    assert compared.get("/api/compare?run=before&run=nobody").status == 404
    assert compared.get("/api/compare").status == 422
    # Its items have one model, and no color.
    assert compared.get("/api/compare?run=before&by=model").status == 400
    reply = compared.get("/api/compare?run=before&by=color")
    assert reply.status == 404
    assert "There are: model" in reply.json["error"]["remedy"]


def test_a_run_that_changes_is_compared_anew(served, site):
    compared_run(site.context.store, "before", WORSE)
    compared_run(site.context.store, "after", BETTER)
    before = of(served.get("/api/compare?run=before&run=after&metric=success").json, "success")
    items = site.context.store.read.items("after", limit=100)
    change_items(site.context.store, "after", {item["id"]: {"status": "fail"} for item in items})

    after = of(served.get("/api/compare?run=before&run=after&metric=success").json, "success")
    assert before["difference"]["value"] > 0 > after["difference"]["value"]


def test_errors_of_ours_are_counted_and_left_out(shared):
    compared_run(shared.site.context.store, "whole", BETTER)
    compared_run(shared.site.context.store, "broken", {**BETTER, "task 0": "error"})

    success = of(shared.get("/api/compare?run=whole&run=broken&metric=success").json, "success", "broken")

    assert success["errors"] == [0, 1]
    assert success["difference"]["value"] == 0
    assert success["ifErrorsFailed"] == pytest.approx(-0.05)


def test_the_report_of_a_comparison_is_a_page_of_nobody(shared):
    compared_run(shared.site.context.store, "harm", {HOSTILE: "fail", "other": "success"})
    compared_run(shared.site.context.store, "harmless", {HOSTILE: "success", "other": "success"})
    reply = shared.get("/api/compare/report?run=harm&run=harmless")
    assert reply.status == 200
    assert "sandbox" in reply.headers["content-security-policy"]
    assert "<script>window" not in reply.text


def test_gates_say_whether_the_difference_is_what_it_must_be(compared):
    asked = "/api/compare?run=before&run=after"
    plain = compared.get(asked).json
    answer = compared.get(f"{asked}&gate=success%3E%3D0.1&gate=success%3C0").json

    assert (plain["verdict"], plain["gates"]) == (None, [])
    expected = [("success>=0.1", "pass"), ("success<0", "fail")]
    assert [(each["gate"], each["verdict"]) for each in answer["gates"]] == expected
    assert answer["verdict"] == "fail"
    assert [each["metric"] for each in answer["contrasts"]] == [each["metric"] for each in plain["contrasts"]]
    # The gates' metric is the family now: its interval is corrected for one comparison.
    alone, one_of_many = (of(each, "success")["difference"] for each in (answer, plain))
    assert alone["low"] > one_of_many["low"] and alone["p"] == one_of_many["p"]
    assert (
        "success&gt;=0.1"
        in compared.get(f"/api/compare/report?{asked.partition('?')[2]}&gate=success%3E%3D0.1").text
    )


@pytest.mark.parametrize("path", ["/compare", "/trends"])
def test_pages_get_the_titles_of_metrics_from_where_metrics_are_defined(shared, path):
    (titles,) = re.findall("data-metrics='(.*?)'", shared.get(path, accept="text/html").text)

    assert json.loads(titles) == METRIC_TITLES


def test_trends_list_plans_that_ran_twice_and_mark_what_changed(shared):
    store = shared.site.context.store
    for number in range(3):
        add_duel(
            store,
            f"trend-{number}",
            60,
            lambda n, _, number=number: n % 10 < (9 if number < 2 else 3),
            planPath="/plans/trend.yaml",
            createdAt=f"2026-03-0{number + 1}T12:00:00+00:00",
        )
    add_duel(store, "alone", 5, lambda *_: True, planPath="/plans/alone.yaml")
    trends = [
        each for each in shared.get("/api/trends").json["trends"] if "alone" in each["name"] + each["key"]
    ]
    assert trends == []
    (line,) = [each for each in shared.get("/api/trends").json["trends"] if each["name"] == "trend.yaml"]
    assert (line["job"], line["runs"]) == ("coding", 3)

    answer = shared.get(f"/api/trends/line?key={quote(line['key'])}").json
    assert (answer["metric"], answer["runs"]) == ("success", ["trend-0", "trend-1", "trend-2"])
    (change,) = answer["changes"]
    assert (change["runId"], change["before"], change["isRegression"]) == ("trend-2", "trend-1", True)
    assert change["text"].startswith("−60.0 pp (95% CI ") and change["words"] == change["text"]
    assert "latest regression: trend-2" in answer["summary"]
    assert [mark["label"] for mark in answer["chart"]["marks"]] == answer["runs"]
    assert answer["chart"]["svg"].count("c-fail") == 1
    where = f"run={change['before']}&run={change['runId']}&metric=success&direction={change['direction']}"
    assert shared.get(f"/api/compare/items?{where}").json["total"] == 72
    # The cost of an item is no success: more of it is worse.
    costs = shared.get(f"/api/trends/line?key={quote(line['key'])}&metric=cost").json
    assert costs["metric"] == "cost" and costs["changes"] == []
    # Nor is it a share: the axis ends near the costs.
    assert "$1.00" not in costs["chart"]["svg"]
    # Models are together, or one alone.
    cheap = shared.get(f"/api/trends/line?key={quote(line['key'])}&metric=cost&model=cheap/model").json
    assert (answer["model"], cheap["model"], sorted(cheap["models"])) == (
        "",
        "cheap/model",
        ["cheap/model", "dear/model"],
    )
    assert cheap["chart"]["marks"][0]["value"] < costs["chart"]["marks"][0]["value"]
    assert shared.get(f"/api/trends/line?key={quote(line['key'])}&model=other").status == 404
    assert shared.get("/api/trends/line?key=nothing").status == 404
    assert shared.get(f"/api/trends/line?key={quote(line['key'])}&metric=luck").status == 404
