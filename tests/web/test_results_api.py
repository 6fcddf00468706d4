"""The results of a run over HTTP: sections by job, current while it runs, quick for large runs."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from stocked_runs import NOW, add_duel, add_run, add_score, add_session, change_items, duel, finish

from proctor.api.reports import make_report
from proctor.api.run_results import answer_of_run
from proctor.item import Item
from proctor.results.stopping import arranged, rule_resource
from proctor.stop_rule import StopRule
from proctor.store import Scope, timestamp

EXAMPLES = Path(__file__).parents[2] / "examples"
UNDER_WAY = {
    "status": "running",
    "finishedAt": None,
    "owner": "me",
    "heartbeatAt": "2099-01-01T00:00:00+00:00",
}
"""A run whose process is still there."""


def results(served, run_id):
    reply = served.get(f"/api/runs/{run_id}/results?wait=30")
    assert reply.status == 200, reply.text
    assert reply.json["isCurrent"]
    return reply.json


def of_kind(answer, kind):
    return [section for section in answer["sections"] if section["kind"] == kind]


def test_the_models_of_a_run_are_ranked_with_their_intervals_and_costs(shared, serve_shared):
    add_duel(shared.site.context.store, "duel", 60, lambda n, item: item.model == "dear/model" or n % 8 == 1)
    answer = results(shared, "duel")

    (sentence,) = of_kind(answer, "sentence")
    assert sentence["text"] == "Use dear/model: it has the highest success rate (100% of 60 tasks)."
    assert sentence["tone"] == "good" and not sentence["offersStop"]
    assert sentence["note"].startswith("Worse than dear/model: cheap/model (−75.0 pp, 95% CI −85.8 pp")
    (table,) = of_kind(answer, "table")
    titles = [column["title"] for column in table["columns"]]
    assert titles[:3] == ["Model", "Success rate", "Cost of 1,000 successes"] and titles[-2:] == [
        "Rank",
        "Tasks",
    ]
    first, second = table["rows"]
    assert (first[0]["text"], first[5]["text"]) == ("dear/model", "1")
    rate = second[1]["figure"]
    assert (rate["value"], rate["n"]) == (0.25, 60) and rate["low"] < 0.25 < rate["high"]
    assert rate["items"] == {"factor": ["model=cheap/model"]}
    (chart,) = of_kind(answer, "chart")
    assert chart["title"] == "Success against cost by model"
    assert [mark["label"] for mark in chart["marks"]] == ["dear/model", "cheap/model"]
    assert 'data-mark="0"' in chart["svg"] and 'data-mark="1"' in chart["svg"]
    (matrix,) = of_kind(answer, "matrix")
    assert matrix["columns"] == ["dear/model", "cheap/model"] and len(matrix["rows"]) == 60
    # Tasks in which the models differ come first.
    name, cells = matrix["rows"][0]
    assert name == "Task 1" and [cell["status"] for cell in cells] == ["success", "fail"]
    assert len(cells[0]["itemIds"]) == 1


def test_the_cheapest_model_within_the_readers_margin_is_named_everywhere_alike(shared):
    # 100% against 98%, at a tenth of the cost.
    add_duel(
        shared.site.context.store, "near", 200, lambda n, item: item.model == "dear/model" or n % 100 != 1
    )
    address = "/api/runs/near/results?wait=30"

    answer = results(shared, "near")
    assert answer["sections"][0]["text"] == (
        "Use cheap/model: its success rate (98%) is within 5 pp of dear/model, the highest "
        "(100% of 200 tasks), and an item costs 90% less."
    )
    strict = shared.get(f"{address}&margin=0.015").json
    (first, *_) = strict["sections"]
    assert first["text"].startswith("Undecided: no model is shown to be better or worse than dear/model")
    assert re.search(r"About [\d,]+ more tasks would decide that, about \$", first["note"])
    other = shared.get(f"{address}&baseline=cheap/model").json["choice"]
    assert (other["baseline"], other["isBest"]) == ("cheap/model", False)
    assert shared.get(f"{address}&baseline=nobody").status == 404
    # The terminal, the report and its JSON say the same.
    text = answer["sections"][0]["text"]
    assert answer_of_run(shared.site.context, "near").text == text
    assert answer["sections"][0]["text"] in shared.get("/api/runs/near/report?format=md").text
    report = json.loads(make_report(shared.site.context, Scope(run_id="near"), "json"))
    assert report["choice"] == answer["choice"]


def test_the_verdict_about_one_model_and_a_stored_run_is_what_page_terminal_and_report_begin_with(shared):
    store = shared.site.context.store
    add_duel(store, "kept", 60, lambda n, item: True)
    items = [item for item in duel(60) if item.model == "cheap/model"]
    ordered, rule = arranged(items, StopRule(check=0.1, baseline="kept"), 0, store.read)
    row = {"runId": "checked", "createdAt": timestamp(NOW), "job": "coding", "status": "completed"}
    store.create_batch(row, ordered, [rule_resource(rule)])
    finish(store, "checked", ordered, lambda n, item: False)

    first = results(shared, "checked")["sections"][0]

    assert (first["text"], first["tone"]) == ("cheap/model is worse than kept.", "bad")
    assert answer_of_run(shared.site.context, "checked").text == first["text"]
    assert f"**{first['text']}**" in shared.get("/api/runs/checked/report?format=md").text


def test_errors_that_decide_it_and_items_without_a_result_leave_it_open(shared):
    store = shared.site.context.store
    add_duel(store, "shaky", 200, lambda n, item: item.model == "dear/model" or n % 100 != 1)
    items = [item for item in duel(200) if item.model == "cheap/model"][5:25]
    change_items(store, "shaky", {item.id: {"status": "error", "reason": "provider"} for item in items})
    first = results(shared, "shaky")["sections"][0]
    assert first["text"].startswith("Undecided: no model is shown to be better or worse than dear/model")
    assert "Infrastructure errors decide it for cheap/model: retry those items." in first["note"]

    add_duel(store, "given-up", 200, lambda *_: True, finished=150, status="aborted")
    first = results(shared, "given-up")["sections"][0]
    assert first["text"].startswith("Undecided: ") and first["tone"] == "open"
    assert first["note"] == "100 items of the run have no result: nothing is decided."


def test_a_running_run_names_the_leader_and_how_many_more_tasks_would_decide_it(shared):
    store = shared.site.context.store
    # 60% against 40%: after 40 tasks nothing is decided yet.
    add_duel(
        store,
        "open",
        400,
        lambda n, item: (n // 2 % 5 < 3) == (item.model == "dear/model"),
        finished=40,
        **UNDER_WAY,
    )
    add_duel(store, "clear", 60, lambda _, item: item.model == "dear/model", finished=30, **UNDER_WAY)

    (open_,) = of_kind(results(shared, "open"), "sentence")
    assert open_["text"].startswith("dear/model leads (60% of 40 tasks, 95% CI ")
    assert "is not separated from cheap/model. About " in open_["text"]
    assert (
        "more tasks would decide it, if the true difference is about as observed; 360 are left."
        in open_["text"]
    )
    assert (open_["tone"], open_["offersStop"]) == ("open", True)
    assert "tasks run in its order" in open_["note"]
    answer = results(shared, "clear")
    (clear,) = of_kind(answer, "sentence")
    assert clear["text"].startswith("The winner is already clear: dear/model (100% of 30 tasks")
    assert (clear["tone"], clear["offersStop"]) == ("good", True)
    assert answer["remarks"][0].startswith("The run is not finished.")


def test_results_follow_the_items_that_finish_and_tell_that_newer_ones_come(serve, site):
    add_duel(site.context.store, "grows", 20, lambda *_: True, finished=5)
    served = serve()
    assert results(served, "grows")["finishedCount"] == 10

    finish(site.context.store, "grows", duel(20)[10:20], lambda *_: False)
    # Nobody waits: the last results, which are not current.
    old = served.get("/api/runs/grows/results?wait=0").json
    # They may be computed by then.
    assert old["isCurrent"] == (old["finishedCount"] == 20)
    assert results(served, "grows")["finishedCount"] == 20


def test_results_of_a_running_run_are_a_few_seconds_old_at_most(serve, site, monkeypatch):
    # White box: how old results may be is in seconds, and the test waits for none.
    monkeypatch.setattr("proctor.api.run_results.REFRESH_SECONDS", 600)
    add_duel(site.context.store, "grows", 20, lambda *_: True, finished=5, **UNDER_WAY)
    served = serve()
    assert results(served, "grows")["finishedCount"] == 10

    finish(site.context.store, "grows", duel(20)[10:20], lambda *_: False)
    assert results(served, "grows")["finishedCount"] == 10
    monkeypatch.setattr("proctor.api.run_results.REFRESH_SECONDS", 0)
    monkeypatch.setattr("proctor.api.run_results.REFRESH_SHARE", 0)
    assert results(served, "grows")["finishedCount"] == 20


def test_a_large_run_has_counts_at_once_and_intervals_later(serve, site, monkeypatch):
    late = Item(runner="prompt", prompt="Task 0", model="a/late", factors={"model": "a/late"})
    add_run(site.context.store, "large", [*duel(30), late], finishedAt=timestamp(NOW))
    finish(site.context.store, "large", duel(30), lambda n, _: n % 2 == 0)
    # White box: a run that is large would take a minute to write.
    monkeypatch.setattr("proctor.api.run_results.LARGE", 10)
    served = serve()

    first = served.get("/api/runs/large/results").json
    assert first["isCurrent"] is False
    (table,) = of_kind(first, "table")
    expected = [["dear/model", "100%", "30"], ["cheap/model", "0%", "30"], ["a/late", "–", "0"]]
    assert [[cell["text"] for cell in row] for row in table["rows"]] == expected
    assert table["caption"] == "Confidence intervals are being computed."
    assert of_kind(results(served, "large"), "matrix")


def test_a_run_without_items_or_with_one_model_has_results_too(shared):
    store = shared.site.context.store
    items = [
        Item(runner="prompt", prompt=f"Task {n}", model="one", factors={"model": "one"}) for n in range(30)
    ]
    add_run(store, "single", items, finishedAt=timestamp(NOW))
    assert results(shared, "single")["sections"] == []
    finish(store, "single", items, lambda n, _: n < 21)
    (sentence,) = results(shared, "single")["sections"]
    assert re.match(r"70% of 30 tasks succeeded \(95% CI 5\d% to 8\d%\)\.", sentence["text"])
    assert shared.get("/api/runs/nobody/results").status == 404


def test_every_job_shows_what_it_measures(served, proctor):
    """Examples of the repository: an experiment, dialogues, an evaluation and a benchmark."""
    for folder in ("scenarios", "experiments", "dialogues", "evaluation"):
        shutil.copytree(EXAMPLES / folder, proctor.folder / "examples" / folder)
    for words in (
        ("experiment", "examples/experiments/harbour-fee.yaml"),
        ("simulate", "--config", "examples/dialogues/judged.yaml", "--output-dir", "out"),
        ("evaluate", "start", "examples/evaluation/evaluation.yaml"),
    ):
        assert proctor(*words).returncode == 0
    runs = {run["job"]: run["runId"] for run in served.get("/api/runs").json["runs"]}

    experiment = results(served, runs["scenario"])
    assert of_kind(experiment, "sentence")[0]["text"].startswith("With port = ")
    charts = {chart["title"]: chart for chart in of_kind(experiment, "chart")}
    effects = charts["Berth fee: main effects"]
    assert [mark["n"] for mark in effects["marks"]] == [10, 10]
    assert effects["marks"][0]["items"] == {"factor": ["port=scripted/models/patient"]}
    listed = served.get(f"/api/runs/{runs['scenario']}/items?factor=port%3Dscripted/models/patient").json
    assert listed["total"] == 10
    turns = charts["Berth fee over the turns"]
    assert len(turns["marks"]) == 6 and turns["svg"].count("data-mark") == 6

    dialogues = results(served, runs["dialogue"])
    titles = [chart["title"] for chart in of_kind(dialogues, "chart")]
    assert "Empathy score by client and therapist" in titles and "Distribution of Empathy score" in titles
    cell = of_kind(dialogues, "chart")[0]["marks"][0]
    assert (cell["n"], cell["unit"]) == (2, "dialogue")
    where = "&".join(f"factor={quote(level)}" for level in cell["items"]["factor"])
    assert served.get(f"/api/runs/{runs['dialogue']}/items?{where}").json["total"] == 2

    evaluation = results(served, runs["evaluation"])
    averages, *worst = of_kind(evaluation, "table")
    values = [row[1]["figure"]["value"] for row in averages["rows"]]
    assert averages["title"] == "Scores by evaluator, lowest first" and values == sorted(values)
    assert worst[0]["title"].startswith("Lowest ") and worst[0]["rows"][0][0]["session"]


def test_bars_of_a_distribution_open_their_items_and_whole_numbers_have_bars_of_their_own(shared):
    store = shared.site.context.store
    add_duel(store, "graded", 20, lambda n, item: n % 3 == 0)
    writer = store.writer()
    items = duel(20)
    for number, item in enumerate(items):
        session = f"graded-{number}"
        add_session(store, session, [], "graded", itemId=item.id)
        writer.change("batch_items", ("graded", item.id), {"sessionId": session})
        add_score(writer, session, evaluator="grade", value=float(1 + number % 5))
        # Also at the ends of bars.
        add_score(writer, session, evaluator="tone", value=(number % 11) / 10)
        for check in range(6):
            value = float(item.model == "dear/model" and number % 7 <= check)
            add_score(writer, session, evaluator=f"check: {check}", value=value)
    writer.close()

    answer = results(shared, "graded")

    charts = {chart["title"]: chart for chart in of_kind(answer, "chart")}
    grades = charts["Distribution of grade"]["marks"]
    assert [(mark["label"], mark["n"]) for mark in grades] == [(str(grade), 8) for grade in range(1, 6)]
    for marks in (grades, charts["Distribution of tone"]["marks"]):
        for mark in marks:
            if not mark["n"]:
                assert mark["items"] is None
                continue
            (score,) = mark["items"]["score"]
            assert shared.get(f"/api/runs/graded/items?score={quote(score)}").json["total"] == mark["n"]
    (table,) = of_kind(answer, "table")
    columns = [(column["title"], column["isOptional"]) for column in table["columns"][2:-5]]
    # Evaluators come before checks; of these, those first in which the models differ most.
    assert {title for title, _ in columns[:2]} == {"grade", "tone"}
    assert columns[2][0] == "check: 5"
    assert [is_optional for _, is_optional in columns] == [False] * 4 + [True] * (len(columns) - 4)
    assert len(columns) == 8
