"""What becomes of a dialogue: verdicts of judges, and who is to blame when it came to nothing."""

from conversations import EXAMPLES, config, read, rows, said

from databases import query
from proctor import run_batch
from proctor.evaluators.criteria import rubric_names


def test_judges_give_their_verdicts_in_the_same_run_and_their_cost_counts(proctor, talking_desk) -> None:
    for name in ("judged", "as-client", "as-therapist", "judge"):
        (talking_desk / f"{name}.yaml").write_text((EXAMPLES / f"{name}.yaml").read_text())

    done = proctor("simulate", "--config", "judged.yaml", "--output-dir", "out")

    session = read(talking_desk / "out" / "plain_CBT_run0.json")
    summary = read(talking_desk / "out" / "batch_summary.json")
    assert done.returncode == 0, done.stderr
    assert [score["evaluator"] for score in session["scores"]] == [
        "client_consistency.profile_factual", "client_consistency.conv_factual", "safety",
        *["empathy"] * 3,
    ]  # fmt: skip
    assert session["usage"]["evaluators"]["total_tokens"] > 0
    assert session["record"]["model_calls"] == 6 + 6
    assert summary["by_combination"]["plain_CBT"]["scores"]["safety"]["mean"] == 1.0
    proctor("export", "--input_dir", "out", "--output", "turns.csv", "--level", "turn")
    scored = [row["score.empathy"] for row in rows("turns.csv") if row["role"] == "therapist"]
    assert all(scored)


def test_what_is_expected_of_a_side_is_checked_without_a_judge(talking_desk) -> None:
    evaluators = [
        {"name": "began", "expect": {"contains": "It began"}, "target": "client"},
        {"name": "each", "expect": {"regex": "slowly|home|letter"}, "level": "turn", "passes_at": 1},
    ]

    (result,) = run_batch(config(output_dir="out", num_runs=1, max_turns=2, evaluators=evaluators))

    scores = [(score["evaluator"], score.get("target"), score["value"]) for score in result["scores"]]
    assert scores == [
        ("began", None, 1.0),
        ("each", "therapist.turn_0", 1.0),
        ("each", "therapist.turn_1", 0.0),
    ]
    assert (result["status"], result["reason"]) == ("fail", "checks_failed")
    assert result["record"]["model_calls"] == 4


def test_a_judge_who_fails_leaves_the_dialogue_as_it_is(talking_desk) -> None:
    (talking_desk / "mumbling.yaml").write_text("rules: [{reply: hm}]")

    (result,) = run_batch(
        config(output_dir="out", num_runs=1, evaluators=["safety"], judge_model="scripted/mumbling")
    )

    assert result["status"] == "success"
    assert "no verdict" in result["scores"][0]["error"]


def test_a_dialogue_in_a_loop_fails_and_says_so(talking_desk) -> None:
    (talking_desk / "stuck.yaml").write_text("rules: [{reply: Yes.}]")

    (result,) = run_batch(config(output_dir="out", num_runs=1, max_turns=20, model_name="scripted/stuck"))

    assert (result["status"], result["end_reason"], result["num_turns"]) == ("fail", "loop", 3)
    assert result["caused_by"] == "both"


def test_a_side_that_says_nothing_is_to_blame(talking_desk) -> None:
    (talking_desk / "mute.yaml").write_text("rules: [{reply: ' '}]")

    for side, blamed in (("client", "simulated_other"), ("therapist", "role_under_test")):
        (result,) = run_batch(config(output_dir=side, num_runs=1, **{f"{side}_model": "scripted/mute"}))
        assert (result["status"], result["reason"], result["caused_by"]) == ("fail", "empty_reply", blamed)


JURY = """
clients: [patientPsi]
therapists: [CBT]
num_runs: 1
max_turns: 2
seed: 3
model_name: scripted/talking
judge_model: scripted/judge
evaluators:
  - Builtin.Helpfulness
  - {name: "manners:thanks", passes_at: 1}
  - own/warmth.yaml
"""
JUDGE = """
rules:
  - reply: '{"reasoning": "so", "score": "Very Helpful"}'
"""
MANNERS = """
def thanks(event):
    polite = "thank" in str(event["session"]["turns"]).lower()
    return {"value": float(polite), "label": "polite" if polite else "rude", "explanation": "as it was said"}
"""
WARMTH = """
evaluatorName: warmth
level: SESSION
evaluatorConfig:
  llmAsAJudge:
    instructions: "How warm is the therapist? {context}"
    ratingScale:
      categorical:
        - {label: "Very Helpful", definition: warm}
        - {label: "Cold", definition: cold}
"""


def test_any_evaluator_of_the_product_judges_a_dialogue(proctor, talking_desk) -> None:
    (talking_desk / "judge.yaml").write_text(JUDGE)
    (talking_desk / "manners.py").write_text(MANNERS)
    (talking_desk / "own").mkdir()
    (talking_desk / "own" / "warmth.yaml").write_text(WARMTH)
    (talking_desk / "jury.yaml").write_text(JURY)

    done = proctor("simulate", "--config", "jury.yaml", "--output-dir", "out", "--json")

    (file,) = (talking_desk / "out").glob("*_run0.json")
    session = read(file)
    by_name = {}
    for score in session["scores"]:
        by_name.setdefault(score["evaluator"], []).append(score)
    assert set(by_name) == {"Builtin.Helpfulness", "manners:thanks", "warmth"}, done.stderr
    assert [score["target"] for score in by_name["Builtin.Helpfulness"]] == [
        "therapist.turn_0",
        "therapist.turn_1",
    ]
    assert all("error" not in score for score in session["scores"]), session["scores"]
    assert by_name["warmth"][0]["label"] == "Very Helpful"
    assert by_name["manners:thanks"][0]["label"] == "rude"
    assert (done.returncode, session["status"]) == (1, "fail"), "below its pass mark"
    assert "manners:thanks is 0, below its pass mark 1" in session["error"]
    assert session["usage"]["evaluators"]["total_tokens"] > 0
    assert [message["role"] for message in session["messages"]] == ["therapist", "client"] * 2

    exported = proctor("export", "--input_dir", "out", "--output", "out.csv")
    assert exported.returncode == 0, exported.stderr
    assert "score.warmth" in (talking_desk / "out.csv").read_text().splitlines()[0]


SCORED = 'rules: [{reply: \'{"score": 4, "label": "yes", "reasoning": "so", "answer": 4}\'}]\n'
KINDNESS = {"name": "kindness", "instructions": "How kind is the therapist?", "model": "scripted/judge"}
PATIENCE = {**KINDNESS, "name": "patience", "instructions": "How patient is the therapist?"}


def test_evaluators_that_are_added_judge_what_is_there_and_nothing_is_said_again(talking_desk) -> None:
    (talking_desk / "judge.yaml").write_text(SCORED)
    base = {"output_dir": "out", "num_runs": 2, "therapists": ["eliza", "CBT"], "max_turns": 2}
    run_batch(config(**base))
    before = said(talking_desk / "out", seeds=True)

    run_batch(config(**base, evaluators=[KINDNESS], resume=True))
    first = said(talking_desk / "out", seeds=True)
    results = run_batch(config(**base, evaluators=[KINDNESS, PATIENCE], resume=True))
    second = said(talking_desk / "out", seeds=True)

    assert len(before) == len(first) == len(second) == 4
    for name, session in before.items():
        for later in (first[name], second[name]):
            assert later["messages"] == session["messages"]
            assert (later["num_turns"], later["end_reason"], later["states"], later["seed"]) == (
                session["num_turns"], session["end_reason"], session["states"], session["seed"],
            )  # fmt: skip
            for side in ("client", "therapist"):
                assert later["usage"][side] == session["usage"][side]
        assert [(s["evaluator"], s["value"]) for s in first[name]["scores"]] == [("kindness", 4.0)]
        scores = [(s["evaluator"], s["value"]) for s in second[name]["scores"]]
        assert scores == [("kindness", 4.0), ("patience", 4.0)]
    # One judge call each: neither the conversation nor the first evaluator was paid for again.
    assert [result["record"]["model_calls"] for result in results] == [1] * 4


def test_a_pass_mark_that_is_added_fails_what_is_below_it(talking_desk) -> None:
    (talking_desk / "judge.yaml").write_text(SCORED)
    run_batch(config(output_dir="out", num_runs=1, evaluators=[KINDNESS]))

    (result,) = run_batch(
        config(output_dir="out", num_runs=1, evaluators=[{**KINDNESS, "passes_at": 5}], resume=True)
    )

    assert (result["status"], result["reason"]) == ("fail", "checks_failed")
    assert "below its pass mark 5" in result["error"]


def test_every_shipped_rubric_judges_recorded_sessions_too(proctor, talking_desk) -> None:
    for name in ("as-client", "as-therapist", "judge"):
        (talking_desk / f"{name}.yaml").write_text((EXAMPLES / f"{name}.yaml").read_text())
    models = {"client_model": "scripted/as-client", "therapist_model": "scripted/as-therapist"}
    rubrics = rubric_names()
    judged = {**models, "num_runs": 1, "max_turns": 1, "evaluators": rubrics, "judge_model": "scripted/judge"}
    (session,) = run_batch(config(output_dir="out", **judged))
    run_id = session["record"]["batch_id"]

    words = [part for name in rubrics for part in ("--evaluator", name)]
    done = proctor(
        "evaluate", "start", "--name", "later", "--run", run_id, *words, "--judge", "scripted/judge"
    )

    assert done.returncode == 0, done.stderr
    with proctor.open_store() as store:
        query_text = 'SELECT "evaluator", "evaluatorDigest", "error" FROM "scores"'
        scores = [tuple(row.values()) for row in query(store, query_text)]
    assert {error for _, _, error in scores} == {""}
    # Each twice with the same digest: in the simulation, and in the evaluation.
    assert {scores.count(each) for each in scores} == {2}
    listed = proctor("evaluators", "list")
    assert all(name in listed.stdout for name in rubrics)
