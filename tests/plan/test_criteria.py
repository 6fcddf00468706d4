"""Entries of the `evaluators:` section: what they stand for, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from proctor.errors import PlanError, UsageError
from proctor.evaluators.criteria import rubric_names
from proctor.plan.criteria import (
    criteria_of,
    documents,
    evaluator_of,
    expectation_of,
    is_evaluator,
    judge_models,
    judges_of,
    read_data,
    read_text_file,
)
from proctor.plan.yaml_loader import read_source


def test_a_data_file_is_yaml_unless_its_name_ends_in_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": "no: yaml"}')
    (tmp_path / "a.yaml").write_text("a: [x]")
    assert read_data(tmp_path / "a.json") == {"a": "no: yaml"}
    assert read_data(tmp_path / "a.yaml") == {"a": ["x"]}


def test_a_data_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("a: 1")
    (tmp_path / "a.yaml").write_text("a: 1\na: 2")
    (tmp_path / "b.json").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"a\.json: this is not JSON: Expecting value"):
        read_data(tmp_path / "a.json")
    with pytest.raises(PlanError, match="`a` is given twice"):
        read_data(tmp_path / "a.yaml")
    for name in ("b.json", "missing.json"):
        with pytest.raises(UsageError, match=rf"cannot read .*{name}: "):
            read_text_file(tmp_path / name)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"name": "Builtin.Helpfulness"}, True),
        ({"name": "module.sub:function"}, True),
        ({"name": "module:function@trace"}, True),
        ({"name": "module:function@turn"}, False),
        ({"name": "tone.yaml"}, True),
        ({"name": "tone.json"}, True),
        ({"name": "warmth"}, False),
        ({"name": "Builtin.Helpfulness", "instructions": "Be kind."}, False),
        ({"name": "tone.yaml", "expect": {"contains": "x"}}, False),
        ({"name": "tone.yaml", "aspects": [{"name": "a"}]}, False),
        ({"name": "tone.yaml", "description": "Tone."}, False),
    ],
)
def test_an_entry_without_instructions_of_its_own_names_an_evaluator(entry, expected):
    assert is_evaluator(entry) is expected


def test_an_evaluator_has_the_judge_of_its_entry_or_of_the_plan() -> None:
    entry = {"name": "Builtin.X", "judging": {"judge": "judge"}, "passes_at": 0.5}
    assert evaluator_of({"name": "Builtin.X", "model": None, "passes_at": 0.5}, "judge") == entry
    assert evaluator_of({"name": "Builtin.X", "model": "own"}, "judge")["judging"] == {"judge": "own"}
    with pytest.raises(UsageError) as refused:
        evaluator_of({"name": "Builtin.X", "scale": "binary", "level": "trace"}, "judge")
    assert str(refused.value) == (
        "the evaluator `Builtin.X` has its own instructions, and no setting `level`\n"
        "It may have: name, model, passes_at."
    )


def test_an_expectation_checks_the_session_of_the_side_under_test_unless_its_entry_says_otherwise() -> None:
    assert expectation_of({"name": "a", "expect": {"contains": "x"}}, "client") == {
        "name": "a",
        "expect": {"contains": "x"},
        "level": "session",
        "target": "client",
        "passes_at": None,
    }
    entry = {"level": "trace", "target": "therapist", "passes_at": 1}
    other = expectation_of({"name": "a", "expect": {"contains": "x"}, **entry}, "client")
    assert (other["level"], other["target"], other["passes_at"]) == ("trace", "therapist", 1)
    with pytest.raises(UsageError, match="the evaluator `a`: "):
        expectation_of({"name": "a", "expect": {"contain": "x"}}, "client")


def test_criteria_with_instructions_of_their_own_are_about_the_side_under_test() -> None:
    (own,) = criteria_of({"name": "warmth", "instructions": "Is it warm?"}, "client")
    assert (own.name, own.instructions, own.target) == ("warmth", "Is it warm?", "client")
    (described,) = criteria_of({"name": "warmth", "description": "Warm?", "target": "therapist"}, "client")
    assert (described.instructions, described.target) == ("Warm?", "therapist")
    (aspect,) = criteria_of({"name": "warmth", "aspects": [{"name": "a", "description": "A?"}]}, "client")
    assert (aspect.name, aspect.instructions) == ("warmth.a", "A?")
    (document,) = documents([own])
    assert document["labels"] == [] and document["name"] == "warmth"
    json.dumps(document)


def test_a_name_without_instructions_is_a_shipped_rubric() -> None:
    name = rubric_names()[0]
    criteria = criteria_of({"name": name, "sees_profile": True}, "client")
    assert criteria and all(each.instructions and each.sees_profile for each in criteria)
    with pytest.raises(UsageError) as refused:
        criteria_of({"name": name[:-1]}, "client")
    assert str(refused.value) == (
        f"there is no rubric called `{name[:-1]}`\nDid you mean `{name}`? Or write your own `instructions`."
    )
    for unknown in ("qqqq", f"../rubrics/{name}"):
        with pytest.raises(UsageError, match=r"\n(There are: .*\.|Did you mean .*\?) Or write your own"):
            criteria_of({"name": unknown}, "client")


def test_judges_of_a_plan_are_named_with_their_problems() -> None:
    entries = "  - Builtin.Helpfulness\n  - {name: warmth}\n  - {name: f:g, model: n}\n"
    text = f"judge_model: m\nevaluators:\n{entries}"
    judges, problems = judges_of(read_source(text, file="plan.yaml"), "narrator")
    assert [judge["judging"] for judge in judges] == [{"judge": "m"}, {"judge": "n"}]
    assert [str(problem) for problem in problems] == [
        "plan.yaml:4:5: there is no evaluator `warmth`\n   4 |   - {name: warmth}\n"
        "Name a built-in (Builtin.Helpfulness), a function (module:function) or the file of a definition."
    ]
    assert judge_models(judges) == ["m"], "a function has none"
    judges, _ = judges_of(read_source("evaluators: [Builtin.A, Builtin.B]", file="plan.yaml"), "narrator")
    assert judge_models(judges) == ["narrator"]
    assert judges_of(read_source("a: 1", file="plan.yaml"), "narrator") == ([], [])
