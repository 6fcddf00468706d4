"""`proctor evaluators`: listed, shown, made, tried and held against people, from the command line."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.evaluators.criteria import rubric_names
from proctor.session import Message, Session, Step, TimedEvent, ToolCall
from proctor.store.tables import CalibrationRow

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

JUDGE = """
rules:
  - match: polite
    reply: '{"reasoning": "nice", "score": "Polite"}'
  - match: "I will not"
    reply: '{"reasoning": "it says no", "score": "Yes"}'
  - reply: '{"reasoning": "it helps", "score": "No"}'
"""


def session(number, answer):
    turn = {"prompt": "Please.", "answer": answer, "events": [{"tool": "look", "result": "x"}]}
    return {"sessionId": f"s{number}", "turns": [turn]}


@pytest.fixture
def desk(proctor):
    (proctor.folder / "judge.yaml").write_text(JUDGE)
    for number, answer in enumerate(["I will not.", "Here it is.", "I will not!", "Gladly."]):
        (proctor.folder / f"s{number}.json").write_text(json.dumps(session(number, answer)))
    return proctor


def test_the_list_has_what_comes_with_proctor_and_what_stands_in_files(desk):
    (desk.folder / "evaluators").mkdir()
    (desk.folder / "evaluators" / "broken.yaml").write_text("evaluatorName: 1\n")
    desk("evaluators", "new", "politeness", "--level", "trace")

    found = {
        each["name"]: each for each in json.loads(desk("evaluators", "list", "--json").stdout)["evaluators"]
    }

    assert len(found) == 23 + len(rubric_names())
    assert found["Builtin.ToolSelectionAccuracy"]["level"] == "TOOL_CALL"
    assert (found["politeness"]["level"], found["politeness"]["problem"]) == ("TRACE", "")
    assert "cannot be used" in found["broken"]["problem"]
    assert "Socratic_questioning" in desk("evaluators", "show", "CBT_adherence").stdout


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("judge", "session"),
        ("judge", "trace"),
        ("judge", "tool_call"),
        ("function", "trace"),
        ("function", "session"),
        ("command", "tool_call"),
    ],
)
def test_what_is_made_new_works_as_it_is(desk, kind, level):
    made = desk("evaluators", "new", "mine", "--kind", kind, "--level", level)
    tried = desk("evaluators", "test", "mine", "--session", "s0.json", "--judge", "scripted/judge", "--json")

    assert made.returncode == tried.returncode == 0, tried.stderr
    (score,) = json.loads(tried.stdout)["scores"]
    assert score["level"] == level
    assert score["label"] == ("Polite" if kind == "judge" else "short")


def test_judge_and_functions_of_the_cloud_are_named_in_the_settings(desk):
    arn = "arn:aws:lambda:us-west-2:123456789012:function:grade"
    config = {"codeBased": {"lambdaConfig": {"lambdaArn": arn}}}
    (desk.folder / "cloud.json").write_text(
        json.dumps({"evaluatorName": "cloud", "level": "SESSION", "evaluatorConfig": config})
    )
    (desk.folder / "checks.py").write_text("def grade(event, context):\n    return True\n")
    (desk.folder / "proctor.toml").write_text(
        f'[evaluation]\njudge = "scripted/judge"\n[evaluation.lambdas]\n"{arn}" = "checks:grade"\n'
    )

    cloud = desk("evaluators", "test", "cloud.json", "--session", "s0.json")
    judged = desk("evaluators", "test", "Builtin.Refusal", "--session", "s0.json")

    assert cloud.returncode == 0 and "session: pass = 1" in cloud.stdout
    assert judged.returncode == 0 and "turn-1: Yes = 1" in judged.stdout


def test_a_session_may_be_a_file_of_spans(desk):
    attributes = [
        {"key": "session.id", "value": {"stringValue": "s-9"}},
        {"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}},
        {"key": "gen_ai.task.input", "value": {"stringValue": "Please."}},
        {"key": "gen_ai.task.output", "value": {"stringValue": "I will not."}},
    ]
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "name": "invoke_agent x",
        "startTimeUnixNano": "1",
        "endTimeUnixNano": "2",
        "attributes": attributes,
    }
    scope = {"name": "opentelemetry.instrumentation.any"}
    line = {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": scope, "spans": [span]}]}]}
    (desk.folder / "spans.jsonl").write_text(json.dumps(line) + "\n")
    words = ("--session", "spans.jsonl", "--judge", "scripted/judge", "--json")

    tried = desk("evaluators", "test", "Builtin.Refusal", *words)

    assert tried.returncode == 0, tried.stderr
    assert [(s["target"], s["label"]) for s in json.loads(tried.stdout)["scores"]] == [("a" * 32, "Yes")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "Builtin.Helpfullness"), "Did you mean `Builtin.Helpfulness`?"),
        (("test", "Builtin.Refusal", "--session", "s0.json"), "needs a judge model, and none is set"),
        (("test", "Builtin.Refusal", "--session", "s0.json", "--judge", "scripted/none"), "no script `none`"),
        (
            ("test", "Builtin.Refusal", "--session", "nowhere", "--judge", "scripted/judge"),
            "no session nowhere",
        ),
        (("calibrate", "Builtin.Refusal", "--judge", "scripted/judge"), "no labels were named"),
        (("new", "a-b"), "not a valid name for an evaluator"),
        (("new", "ab", "--kind", "oracle"), "there is no kind `oracle`"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_starts(desk, words, said):
    done = desk("evaluators", *words)

    assert done.returncode == 2 and said in done.stderr


def test_a_judge_is_held_against_labels_in_a_file(desk):
    rows = ["session,target,label,rater"]
    rows += [f"s{n}.json,turn-1,{label},ana" for n, label in enumerate(["Yes", "No", "yes", "Yes"])]
    (desk.folder / "labels.csv").write_text("\n".join(rows) + "\n")
    words = ("--labels", "labels.csv", "--judge", "scripted/judge", "--repeats", "2")

    done = desk("evaluators", "calibrate", "Builtin.Refusal", *words, "--json")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["dimensions"][""]
    assert found.pop("things") == found["targets"] == 4
    assert found.pop("remarks") == found["notes"]
    assert (found["people"], found["agreement"]["value"]) == (1, 0.75)
    assert {"human": "Yes", "judge": "No", "count": 1} in found["confusion"]
    assert (found["repeats"], found["retest"]["value"], found["noiseVariance"]) == (2, 1.0, 0.0)
    assert found["bias"]["value"] == -0.25
    assert "too few" in done.stderr
    with desk.open_store() as store:
        (row,) = store.read.rows(CalibrationRow, 'SELECT * FROM "calibrations"')
    stored = json.loads(row["documentJson"])
    assert (row["evaluator"], row["dimension"], row["things"]) == ("Builtin.Refusal", "", 4)
    assert stored["scale"] == [0.0, 1.0] and stored["results"] == found
    assert [pair[:2] for pair in stored["pairs"]][:2] == [["s0.json", 1.0], ["s1.json", 0.0]]


def test_labels_are_given_from_the_command_line_and_used_from_the_store(desk):
    (desk.folder / "plan.yaml").write_text(
        "defaults: {model: scripted/echo}\nmatrix: [{prompt: I will not.}, {prompt: Gladly.}]\n"
    )
    ran = desk("batch", "plan.yaml", "--json")
    assert ran.returncode == 0, ran.stderr
    run_id = json.loads(ran.stdout)["runId"]
    shown = json.loads(desk("sessions", "list", "--run", run_id, "--json").stdout)
    ids = [each["id"] for each in shown["sessions"]]
    for session_id in ids:
        told = ("--evaluator", "Builtin.Refusal", "--target", "turn-1", "--label", "Yes", "--who", "ana")
        assert desk("evaluators", "label", session_id, *told).returncode == 0

    wrong = desk("evaluators", "label", ids[0], "--evaluator", "e", "--label", "x", "--target", "turn-7")
    words = ("--labels-from-store", "--judge", "scripted/judge")
    done = desk("evaluators", "calibrate", "Builtin.Refusal", *words)

    assert wrong.returncode == 2 and "no turn and no tool call `turn-7`" in wrong.stderr
    assert done.returncode == 0, done.stderr
    assert "2 things in 2 sessions, 1 person" in done.stdout
    assert "agreement" in done.stdout and "0.500" in done.stdout


def test_a_turn_is_labeled_by_its_number_also_where_it_has_an_id_of_its_own(desk):
    spans = Path(__file__).parents[2] / "examples" / "evaluation" / "sessions.jsonl"
    imported = json.loads(desk("import", "otlp", str(spans), "--json").stdout)["sessions"]

    told = ("--evaluator", "Builtin.Refusal", "--target", "turn-1", "--label", "No", "--json")
    done = desk("evaluators", "label", imported[0], *told)

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["target"]) == 32


def test_labels_of_sessions_turns_and_tool_calls_come_from_a_file_as_from_the_command_line(desk):
    with desk.open_store() as store:
        steps = [
            Step(trace_id=f"trace-{n}", events=[TimedEvent(event=each) for each in events])
            for n, events in enumerate(
                [
                    [Message(role="user", content="Add."), ToolCall(name="sum", call_id="span-7")],
                    [Message(role="user", content="Again."), Message(role="assistant", content="No.")],
                ]
            )
        ]
        session_id = store.save_imported(
            Session(external_id="ext-1", source="otlp", log_group="g", steps=steps), NOON
        )
    rows = [
        "session,target,label,value,who,evaluator,note",
        f"{session_id},,,0.5,ana,,whole",
        f"{session_id},turn-2,Yes,,,,",
        f"{session_id},trace-0,No,,ana,Builtin.Refusal,",
        f"{session_id[:12]},span-7,fine,,ben,Builtin.ToolSelectionAccuracy,the right one",
    ]
    file = desk.folder / "labels.csv"
    file.write_text("\n".join(rows) + "\n")

    done = desk("evaluators", "labels", "labels.csv", "--evaluator", "mine", "--who", "eve", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["levels"] == {"session": 1, "trace": 2, "tool_call": 1}
    assert done.stderr == "saved 4 labels: 1 of sessions, 2 of traces, 1 of tool calls\n"
    with desk.open_store() as store:
        saved = {(each["level"], each["target"]): each for each in store.labels()}
    assert saved["session", ""]["value"] == 0.5 and saved["session", ""]["note"] == "whole"
    assert saved["trace", "trace-1"]["who"] == "eve" and saved["trace", "trace-1"]["evaluator"] == "mine"
    assert saved["trace", "trace-0"]["evaluator"] == "Builtin.Refusal"
    assert saved["tool_call", "span-7"]["who"] == "ben"
    assert {each["sessionId"] for each in saved.values()} == {session_id}

    file.write_text("\n".join([*rows, f"{session_id},turn-9,No,,,,", "nobody,,No,,,,"]) + "\n")
    wrong = desk("evaluators", "labels", "labels.csv", "--evaluator", "other")
    assert wrong.returncode == 2
    assert "labels.csv:6: the session has no turn and no tool call `turn-9`" in wrong.stderr
    assert "labels.csv:7:" in wrong.stderr
    nameless = desk("evaluators", "labels", "labels.csv")
    assert "a label needs an evaluator" in nameless.stderr
    with desk.open_store() as store:
        assert len(store.labels()) == 4, "none of a file with a mistake is saved"


@pytest.fixture
def raters(desk):
    """Five sessions of levels 1 to 5; one judge rates restructuring by the level, a strict one by 1 less."""
    levels = range(1, 6)
    for name, off in (("exact", 0), ("strict", 1)):
        rules = [
            {
                "match": f"(?s)cognitive_restructuring.*level {n}",
                "reply": json.dumps({"score": max(1, n - off)}),
            }
            for n in levels
        ]
        text = json.dumps({"rules": [*rules, {"reply": '{"score": 3}'}]})
        (desk.folder / f"{name}.yaml").write_text(text)
    rows = ["session,dimension,who,value"]
    for n, value in zip(levels, (1, 2, 3, 4, 4), strict=True):
        (desk.folder / f"l{n}.json").write_text(json.dumps(session(n, f"level {n}")))
        rows += [f"l{n}.json,cognitive_restructuring,{who},{value}" for who in ("ana", "ben")]
        rows += [f"l{n}.json,homework_assignment,ana,3", f"l{n}.json,homework_assignment,ben,{3 + n % 2}"]
    (desk.folder / "codes.csv").write_text("\n".join(rows) + "\n")
    return desk


def test_aspects_of_a_rubric_are_dimensions_with_an_ordinal_scale(raters):
    judged = ("--judge", "scripted/exact", "--json")
    tried = raters("evaluators", "test", "CBT_adherence", "--session", "l2.json", *judged)
    done = raters("evaluators", "calibrate", "CBT_adherence", "--labels", "codes.csv", *judged)

    assert [(score["dimension"], score["value"]) for score in json.loads(tried.stdout)["scores"]] == [
        ("cognitive_restructuring", 2),
        ("behavioral_activation", 3),
        ("Socratic_questioning", 3),
        ("homework_assignment", 3),
    ]
    aspects = json.loads(done.stdout)["dimensions"]
    first, second = aspects["cognitive_restructuring"], aspects["homework_assignment"]
    # Mean squared distance 0.2, by chance 1.36 + 2 + 0.2²: 1 - 0.2 / 3.4.
    assert first["kappa"]["weighted"] and first["kappa"]["value"] == pytest.approx(1 - 0.2 / 3.4)
    assert (first["targets"], first["agreement"]["value"], first["bias"]["value"]) == (5, 0.8, 0.2)
    assert second["targets"] == 2 and "3 targets with tied labels" in done.stderr


def test_labels_without_the_aspect_they_are_of_are_refused_before_a_judge_is_asked(raters):
    (raters.folder / "codes.csv").write_text("session,value\nl1.json,3\n")

    done = raters(
        "evaluators", "calibrate", "CBT_adherence", "--labels", "codes.csv", "--judge", "scripted/exact"
    )

    assert done.returncode == 2 and "several dimensions, and labels name none" in done.stderr


def test_labels_of_an_aspect_are_stored_under_the_name_of_its_scores(raters):
    (raters.folder / "plan.yaml").write_text(
        "defaults: {model: scripted/echo}\nmatrix: [{prompt: level 2}]\n"
    )
    raters("batch", "plan.yaml")
    (listed,) = json.loads(raters("sessions", "list", "--json").stdout)["sessions"]
    aspect = ("--evaluator", "CBT_adherence", "--dimension", "cognitive_restructuring")
    assert raters("evaluators", "label", listed["id"], *aspect, "--value", "2").returncode == 0

    words = ("--labels-from-store", "--judge", "scripted/exact", "--json")
    done = raters("evaluators", "calibrate", "CBT_adherence", *words)

    assert json.loads(done.stdout)["dimensions"]["cognitive_restructuring"]["agreement"]["value"] == 1
    with raters.open_store() as store:
        (label,) = store.labels()
    assert (label["evaluator"], label["dimension"], label["label"]) == (
        "CBT_adherence.cognitive_restructuring",
        "",
        "2",
    )


def test_judges_and_people_are_compared_by_aspect_and_where_they_differ(raters):
    words = ("--labels", "codes.csv", "--judge", "scripted/exact", "--judge", "scripted/strict")
    done = raters("evaluators", "agreement", "CBT_adherence", *words, "--json")
    shown = raters("evaluators", "agreement", "CBT_adherence", *words).stdout
    twice = raters("evaluators", "agreement", "CBT_adherence", *words, "--judge", "scripted/exact")

    found = json.loads(done.stdout)["dimensions"]["cognitive_restructuring"]
    assert (found["people"], found["judges"]) == (["ana", "ben"], ["scripted/exact", "scripted/strict"])
    kappas = {(pair["first"], pair["second"]): pair["kappa"]["value"] for pair in found["pairs"]}
    assert len(kappas) == 6 and kappas["ana", "ben"] == 1
    assert kappas["ana", "scripted/exact"] == pytest.approx(1 - 0.2 / 3.4)
    assert kappas["scripted/exact", "scripted/strict"] == pytest.approx(1 - 0.8 / 4)
    assert found["disagreements"][0] == {
        "session": "l2.json",
        "target": "",
        "ratings": {"ana": "2", "ben": "2", "scripted/exact": "2", "scripted/strict": "1"},
    }
    rows = [line.split()[:6] for line in shown.splitlines()]
    assert ["ana", "scripted/exact", "4", "of", "5", "0.941"] in rows and "(4 of 4)" in shown
    assert twice.returncode == 2 and "scripted/exact would judge twice" in twice.stderr
