"""`proctor evaluators pairwise`: sessions of the same tasks against each other, judged in both orders."""

import json

import pytest

TASKS = [f"task {number}" for number in range(12)]
MODELS = {"gold": "GOLD", "lead": "lead", "tin": "lead"}
JUDGE = """rules:
  - {match: "(?s)GOLD.*lead", reply: '{"reasoning": "gold", "score": "First"}'}
  - {match: "(?s)lead.*GOLD", reply: '{"reasoning": "gold", "score": "Second"}'}
  - reply: '{"reasoning": "the first looks better", "score": "First"}'
"""
PAIRWISE = ("evaluators", "pairwise", "--run", "metals", "--by", "model", "--judge", "scripted/judge")


@pytest.fixture
def desk(proctor):
    for name, answer in MODELS.items():
        (proctor.folder / f"{name}.yaml").write_text(f"rules: [{{reply: {answer}}}]\n")
    (proctor.folder / "judge.yaml").write_text(JUDGE)
    models = [f"scripted/{name}" for name in MODELS]
    plan = {"runId": "metals", "matrix": [{"prompt": TASKS, "model": models}]}
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))
    done = proctor("batch", "plan.yaml")
    assert done.returncode == 0, done.stderr
    return proctor


def test_who_wins_in_both_orders_is_ranked_first_and_what_the_place_decides_is_a_tie_and_counted(desk):
    counted = desk(*PAIRWISE, "--dry-run")
    result = desk.json(*PAIRWISE)
    shown = desk(*PAIRWISE)

    assert "36 pairs of sessions, 72 calls" in counted.stdout
    counts = ("tasks", "pairs", "decided", "firstPlace", "secondPlace")
    assert [result[name] for name in counts] == [12, 36, 24, 12, 0]
    ranking = {each["name"]: each for each in result["ranking"]}
    gold, lead, tin = (ranking[f"scripted/{name}"] for name in MODELS)
    assert (gold["wins"], gold["ties"], gold["losses"], gold["rank"], gold["rankHigh"]) == (24, 0, 0, 1, 1)
    assert gold["low"] > 0
    for each in (lead, tin):
        assert (each["wins"], each["ties"], each["losses"], each["rank"]) == (0, 12, 12, 2)
        assert (each["rankLow"], each["rankHigh"]) == (2, 3)
    assert "12 where the first place won in both orders (position bias)" in " ".join(shown.stdout.split())
    assert "scripted/judge is a mock model" in shown.stderr


def test_runs_of_several_models_are_compared_model_by_model(desk):
    plan = (desk.folder / "plan.yaml").read_text().replace("metals", "again")
    (desk.folder / "plan.yaml").write_text(plan)
    assert desk("batch", "plan.yaml").returncode == 0

    runs = ("--run", "metals", "--run", "again")
    result = desk.json("evaluators", "pairwise", *runs, "--judge", "scripted/judge")

    # Each session against the one with the same answer: the place decides all.
    assert (result["pairs"], result["decided"], result["firstPlace"]) == (36, 0, 36)
    assert {(each["name"], each["ties"], each["strength"]) for each in result["ranking"]} == {
        ("again", 36, 0.0),
        ("metals", 36, 0.0),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "city"), "no task has sessions of two levels of `city`"),
        (("--question", "Is {this} better?"), "the question has a placeholder in braces"),
        (("--judge", "nobody/x"), "nobody"),
        (("--judge", "nobody/x", "--dry-run"), "nobody"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_call(desk, options, message):
    refused = desk(*PAIRWISE, *options)

    assert refused.returncode == 2
    assert message in refused.stderr
