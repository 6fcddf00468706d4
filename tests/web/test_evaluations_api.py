"""Evaluation jobs over HTTP, from a preview to the results; and the labels that people give."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from stocked_judgments import CHECK, MATCH, bring_sessions, ended, wanted

from filled import NOW
from online_scores import add_online_config, judged
from proctor.jobs.evaluation.drift import DriftWatch


@pytest.fixture(scope="module")
def traveled(shared, shared_proctor):
    """A server with recorded sessions, and the code that judges them beside."""
    bring_sessions(shared_proctor)
    return shared


@pytest.fixture(scope="module")
def job(traveled):
    """A job at its end, with code as its judges; its id."""
    reply = traveled.post("/api/evaluations", wanted())
    assert reply.status == 201, reply.text
    assert ended(traveled, reply.json["id"])["state"] == "COMPLETED"
    return reply.json["id"]


def sessions_of(served, job, **query):
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    return served.get(f"/api/evaluations/{job}/sessions?{asked}").json["sessions"]


def test_a_source_is_counted_before_anything_is_judged(traveled):
    (arrived,) = traveled.get("/api/evaluations/sources").json["arrived"]
    expected = ("/agents/travel", "travel.DEFAULT", 6)
    assert (arrived["logGroup"], arrived["service"], arrived["sessions"]) == expected

    def count(**source):
        return traveled.post("/api/evaluations/preview", {"kind": "arrived", **source}).json

    assert count()["sessions"] == 6
    assert count(services=["another"])["problem"] == "no session fits"
    assert count(sessionIds=["oslo-1"])["examples"] == ["oslo-1"]
    assert count(end="2020-01-01")["sessions"] == 0
    assert count(start="yesterday")["error"]["problem"].startswith("body.start")
    assert (
        "no sessions are selected"
        in traveled.post("/api/evaluations/preview", {"kind": "runs"}).json["problem"]
    )
    missing = traveled.post("/api/evaluations/preview", {"kind": "files", "paths": ["nowhere.jsonl"]}).json
    assert "nowhere.jsonl" in missing["problem"]


def test_the_evaluators_are_told_with_level_scale_and_what_they_need(served, proctor):
    (proctor.folder / "evaluators").mkdir()
    (proctor.folder / "evaluators" / "broken.yaml").write_text("evaluatorName: 7\n")
    found = {one["id"]: one for one in served.get("/api/evaluations/evaluators").json["evaluators"]}
    assert found["Builtin.Helpfulness"]["level"] == "trace"
    assert found["Builtin.Helpfulness"]["asksModel"] is True
    assert found["Builtin.Conciseness"]["ratings"][1] == {"label": "Partially Concise", "value": 0.5}
    assert found[MATCH]["needsReference"] is True
    assert found["broken"]["problem"]


def test_a_check_says_what_a_job_takes_and_starts_nothing(traveled):
    before = traveled.get("/api/evaluations").json["all"]
    found = traveled.post("/api/evaluations/check", wanted()).json
    assert (found["sessions"], found["itemCount"], found["problems"]) == (6, 12, [])
    assert [one["results"] for one in found["evaluators"]] == [6, 8]
    wrong = traveled.post("/api/evaluations/check", wanted(evaluators=["Builtin.Helpfullness"])).json
    assert "Did you mean `Builtin.Helpfulness`?" in wrong["problems"][0]["remedy"]
    assert traveled.get("/api/evaluations").json["all"] == before


def test_what_cannot_be_started_is_refused_with_reasons(traveled):
    reply = traveled.post("/api/evaluations", wanted(evaluators=["Nobody"]))
    assert (reply.status, reply.json["error"]["problem"]) == (400, "there is no evaluator `Nobody`")
    bad = traveled.post("/api/evaluations", wanted(groundTruth="sessionMetadata: 7\n"))
    assert (bad.status, bad.json["error"]["line"]) == (400, 1)
    assert traveled.post("/api/evaluations", wanted(name="no spaces please")).status == 422
    # What is typed stays one word: it is never read as another flag.
    reply = traveled.post("/api/evaluations", wanted(evaluators=["--help"]))
    assert reply.status == 400
    assert "--help" in reply.json["error"]["problem"]


def test_a_job_tells_what_each_evaluator_found_and_the_lowest_sessions_first(traveled, job):
    found = traveled.get(f"/api/evaluations/{job}").json
    match, check = found["averages"]
    expected = (MATCH, 0.5, {"Yes": 3, "No": 3})
    assert (match["evaluator"], match["average"]["value"], match["labels"]) == expected
    assert (check["evaluator"], check["evaluated"], check["failed"]) == (CHECK, 8, 0)
    assert match["average"]["low"] < 0.5 < match["average"]["high"]
    assert "<svg" in match["labelsChart"]
    assert found["groundTruth"] == ["travel@1"]
    assert (found["sessions"], found["completed"], found["finishedCount"]) == (6, 6, 12)

    lowest = [one["lowest"] for one in sessions_of(traveled, job)]
    assert lowest == sorted(lowest)
    by_check = sessions_of(traveled, job, evaluator=CHECK, order="mean", descending="true")
    assert [one["mean"] for one in by_check] == sorted([one["mean"] for one in by_check], reverse=True)
    assert len(sessions_of(traveled, job, limit=2, offset=5)) == 1
    (oslo,) = sessions_of(traveled, job, search="OSLO-1")
    assert {score["evaluator"] for score in oslo["scores"]} == {MATCH, CHECK}
    verdicts = traveled.get(f"/api/evaluations/{job}/sessions/{oslo['sessionId']}").json["verdicts"]
    assert any("140 EUR" in one["explanation"] for one in verdicts)


def test_a_job_is_told_with_what_was_asked_of_it(traveled, job):
    options = {"votes": 3, "description": "every night", "budget": 2.5, "maxSessions": 2, "concurrency": 1}
    helpful = "Builtin.Helpfulness"
    asked = wanted(name="full", evaluators=[helpful], judge="scripted/judge", groundTruth="", **options)
    full = ended(traveled, traveled.post("/api/evaluations", asked).json["id"])
    plain = traveled.get(f"/api/evaluations/{job}").json

    said = [
        [one[name] for name in ("votes", "description", "budgetUsd", "sessions", "judge", "groundTruth")]
        for one in (full, plain)
    ]
    assert said == [[3, "every night", 2.5, 2, "scripted/judge", []], [1, "", None, 6, "", ["travel@1"]]]
    assert full["evaluators"] == [helpful]
    session = sessions_of(traveled, full["id"])[0]["sessionId"]
    verdicts = traveled.get(f"/api/evaluations/{full['id']}/sessions/{session}").json["verdicts"]
    assert verdicts[0]["votes"] == [verdicts[0]["value"]] * 3
    listed = traveled.get("/api/evaluations?search=FUL").json
    assert [one["id"] for one in listed["evaluations"]] == [full["id"]]
    assert listed["total"] == 1 < listed["all"]


def test_results_and_reports_are_taken_away(traveled, job):
    lines = traveled.get(f"/api/evaluations/{job}/records").text.splitlines()
    assert len(lines) == 14
    assert all(json.loads(line) for line in lines)
    page = traveled.get(f"/api/evaluations/{job}/report")
    assert "sandbox" in page.headers["content-security-policy"]
    assert MATCH in page.text
    assert traveled.get(f"/api/evaluations/{job}/report?format=md").text.startswith("#")


def test_a_finished_job_is_not_stopped_and_a_deleted_one_is_gone(traveled):
    job = traveled.post("/api/evaluations", wanted(name="brief", evaluators=[CHECK], groundTruth="")).json[
        "id"
    ]
    ended(traveled, job)
    assert traveled.post(f"/api/evaluations/{job}/stop").status == 400
    assert traveled.ask("DELETE", f"/api/evaluations/{job[:-1]}").status == 404
    assert traveled.ask("DELETE", f"/api/evaluations/{job}").status == 200
    assert traveled.get(f"/api/evaluations/{job}").status == 404
    assert traveled.get("/api/evaluations?search=brief").json["evaluations"] == []


def test_files_that_are_sent_are_judged_where_they_were_put(traveled):
    text = (traveled.site.folder / "sessions.jsonl").read_text()
    path = traveled.post("/api/evaluations/files", {"name": "../../etc/passwd", "text": text}).json["path"]
    assert path.endswith("/passwd")
    for name, safe in (("a b.jsonl", "a-b.jsonl"), (".hidden.", "hidden"), ("ü", "records")):
        sent = traveled.post("/api/evaluations/files", {"name": name, "text": "ä"}).json["path"]
        assert (Path(sent).name, Path(sent).read_text("utf-8")) == (safe, "ä")
    assert str(traveled.site.home / "serve" / "uploads") in path
    source = {"kind": "files", "paths": [path], "fileKind": "otlp"}
    reply = traveled.post("/api/evaluations", wanted(source=source, name="sent"))
    assert reply.status == 201, reply.text
    assert ended(traveled, reply.json["id"])["sessions"] == 6


def test_labels_are_kept_on_the_scale_and_say_how_good_the_judge_is(traveled, job):
    rows = sessions_of(traveled, job)
    ids = [row["sessionId"] for row in rows]

    def say(session, **said):
        return traveled.post(f"/api/sessions/{session}/labels", {"evaluator": MATCH, "who": "Ada", **said})

    judged_as = {"Yes": [], "No": []}
    for session in ids:
        judged = traveled.get(f"/api/sessions/{session}/labels").json["things"]
        verdict = next(thing["verdict"] for thing in judged if thing["evaluator"] == MATCH)
        judged_as[verdict["label"]].append(session)
        assert say(session, label=verdict["label"].lower(), note="I looked").status == 200
    (judge,) = traveled.get("/api/judges").json["judges"]
    assert (judge["things"], judge["agreement"]["value"], judge["kappa"]["value"]) == (6, 1.0, 1.0)
    assert judge["words"] == "The same as people in 6 of 6: almost perfect agreement beyond chance."
    assert any("too few" in remark for remark in judge["remarks"])
    assert not any("--" in remark for remark in judge["remarks"])

    # Somebody changes her mind, about one session after the other.
    for session, label, words in (
        (judged_as["Yes"][0], "No", "5 of 6: substantial agreement beyond chance."),
        (judged_as["No"][0], "Yes", "4 of 6: fair agreement beyond chance."),
        (judged_as["Yes"][1], "No", "3 of 6: no agreement beyond chance."),
    ):
        say(session, label=label)
        assert traveled.get("/api/judges").json["judges"][0]["words"] == f"The same as people in {words}"
    things = say(ids[0], value=1.0).json["things"]
    (label,) = next(thing["labels"] for thing in things if thing["evaluator"] == MATCH)
    assert (label["label"], label["value"], label["who"]) == ("Yes", 1.0, "Ada")
    assert say(ids[0]).status == 400
    assert say(ids[0], label="Yes", target="no such turn").status == 400
    assert traveled.post("/api/sessions/nobody/labels", {"evaluator": MATCH, "label": "Yes"}).status == 404
    assert traveled.get("/api/judges?evaluator=Nobody").json == {"judges": []}


@pytest.mark.parametrize("path", ["/evaluations", "/evaluations/new"])
def test_pages_know_which_jobs_evaluate_sessions(traveled, path):
    assert 'data-evaluation-jobs="evaluation"' in traveled.get(path).text


def test_drift_of_online_evaluation_is_shown_with_bounds_and_crossings(served, proctor):
    assert served.get("/api/drift").json == {"lines": []}
    add_online_config(served.site.context.store)
    judged(served.site.context.store, [1.0] * 80 + [0.0] * 80)
    DriftWatch(served.site.context.store, []).look(NOW)

    (line,) = served.get("/api/drift").json["lines"]

    assert (line["name"], line["evaluator"], line["sessions"]) == ("support", "tidy", 160)
    assert [point["position"] for point in line["points"][:2]] == [25, 50]
    (crossing,) = line["crossings"]
    assert crossing["direction"] == "down" and crossing["afterHigh"] < crossing["beforeLow"]
    assert line["state"].startswith("Went down from ") and line["chart"].startswith("<svg")
    assert served.get("/api/drift?name=support").json["lines"] == [line]
    assert served.get("/api/drift?name=other").json == {"lines": []}

    told = proctor("evaluate", "drift", "support", "--json")
    expected = [{**crossing, "configId": "c1", "evaluator": "tidy", "dimension": "", "nextAt": None}]
    assert json.loads(told.stdout)["lines"][0]["crossings"] == expected
    words = proctor("evaluate", "drift").stdout
    assert "\nSESSIONS  UNTIL " in words and "\n150       2026-03-01 12:02 UTC  0.000  0.000 to" in words
    assert "support  tidy  Went down" in words and f"down at session {crossing['position']}" in words
    assert "There are no scores" in proctor("evaluate", "drift", "other").stderr


def test_an_evaluator_has_a_trend_over_evaluations_of_different_names(served, proctor):
    bring_sessions(proctor)
    for name, evaluators in (("first", [MATCH, CHECK]), ("second", [MATCH])):
        reply = served.post("/api/evaluations", wanted(name=name, evaluators=evaluators))
        assert ended(served, reply.json["id"])["state"] == "COMPLETED"

    # Neither name ran twice, and only one evaluator is in both.
    (line,) = served.get("/api/trends").json["trends"]
    answer = served.get(f"/api/trends/line?key={quote(line['key'])}").json

    assert (line["name"], line["runs"]) == (MATCH.removeprefix("Builtin."), 2)
    assert (answer["metric"], answer["metrics"]) == (f"score:{MATCH}", [f"score:{MATCH}"])
    assert len(answer["runs"]) == len(answer["chart"]["marks"]) == 2
    assert answer["changes"] == []
    assert "no significant change" in answer["summary"]
