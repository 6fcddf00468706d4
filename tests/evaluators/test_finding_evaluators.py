"""How evaluators are found by name and made from definitions; what is wrong with them is said."""

import json

import pytest

from proctor.errors import UsageError
from proctor.evaluators import registry
from proctor.evaluators.registry import (
    EvaluationSettings,
    EvaluatorNotFound,
    evaluator_of,
    find_evaluator,
    list_evaluators,
)

SCALE = {
    "numerical": [
        {"label": "Good", "value": 1, "definition": "d"},
        {"label": "Bad", "value": 0, "definition": "d"},
    ]
}
MODEL = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
OTHER = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/other"}}


def document(name="own", level="SESSION", **config):
    return {"evaluatorName": name, "level": level, "evaluatorConfig": config}


def judge(level="TRACE"):
    config = {"instructions": "Was it good? {assistant_turn}", "ratingScale": SCALE, "modelConfig": MODEL}
    return document("own", level, llmAsAJudge=config)


def made(of, tmp_path, stored=None, **settings):
    settings = EvaluationSettings(folder=tmp_path, **settings)
    return evaluator_of(of, models=None, settings=settings, definitions=lambda name: (stored or {}).get(name))


def test_a_function_may_name_the_level_it_judges(tmp_path):
    (tmp_path / "checks.py").write_text("def f(evidence): return 1\n")
    settings = EvaluationSettings(folder=tmp_path)

    def find(name):
        return find_evaluator(name, models=None, settings=settings)

    assert (find("checks:f").level, find("checks:f").identity) == ("session", "")
    assert find("checks:f@trace").level == "trace"
    (tmp_path / "folder").mkdir()
    for module in ("none", "folder"):
        with pytest.raises(EvaluatorNotFound, match=f"there is no module `{module}`"):
            find(f"{module}:f")
    with pytest.raises(UsageError, match="`checks:f@day`: there is no level `day`\nThere are: "):
        find("checks:f@day")


def test_a_lambda_is_replaced_by_local_code(tmp_path):
    arn = "arn:aws:lambda:eu-west-1:123456789012:function:check"
    own = document(codeBased={"lambdaConfig": {"lambdaArn": arn, "lambdaTimeoutInSeconds": 9}})
    with pytest.raises(UsageError, match=r"`own` calls arn:.* which is not mapped to local code"):
        made(own, tmp_path)
    mapped = made(own, tmp_path, lambdas={arn: ["check", "it"]})
    assert (mapped.command, mapped.timeout_seconds) == (("check", "it"), 9)
    plain = document(codeBased={"lambdaConfig": {"lambdaArn": arn}})
    assert made(plain, tmp_path, lambdas={arn: ["x"]}).timeout_seconds == registry.TIMEOUT_SECONDS


def test_a_derived_evaluator_asks_another_model_the_same_question(tmp_path):
    derived = document("mine", "TRACE", derived={"baseEvaluatorId": "own-0123456789", "modelConfig": OTHER})
    found = made(derived, tmp_path, {"own-0123456789": judge()})
    assert (found.name, found.level, found.judge_model.model) == ("mine", "trace", "scripted/other")
    assert found.question.instructions == made(judge(), tmp_path).question.instructions
    built_in = document(
        "mine", "TRACE", derived={"baseEvaluatorId": "Builtin.Helpfulness", "modelConfig": OTHER}
    )
    found = made(built_in, tmp_path)
    assert (found.name, found.judge_model.model) == ("mine", "scripted/other")
    code = document(codeBased={"command": ["x"]})
    for stored in ({}, {"own-0123456789": code}):
        with pytest.raises(
            EvaluatorNotFound, match="`mine` is derived from `own-0123456789`, and there is no"
        ):
            made(derived, tmp_path, stored)


def test_definitions_of_the_first_folder_come_first(tmp_path):
    for folder, name in (("one", "b.json"), ("two", "a.yaml"), ("two", "b.yaml"), ("two", "c.txt")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("x")
    (tmp_path / "one/d.json").mkdir()
    files = registry.definition_files([tmp_path / "one", tmp_path / "two"])
    assert [path.relative_to(tmp_path).as_posix() for path in files] == ["two/a.yaml", "one/b.json"]


@pytest.mark.parametrize(("kind", "asks"), [("codeBased", False), ("llmAsAJudge", True)])
def test_stored_evaluators_are_listed(kind, asks, tmp_path):
    row = {"name": "n", "id": "n-1", "level": "TRACE", "kind": kind, "description": "d"}
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "good.json").write_text(json.dumps(judge()))
    *_, broken, good, stored = list_evaluators([tmp_path], [row])
    assert (stored.name, stored.id, stored.level, stored.judges) == ("n", "n-1", "trace", "d")
    assert (stored.asks_model, stored.is_stored, stored.kind) == (asks, True, registry.KINDS[kind])
    assert (good.id, good.is_stored, good.asks_model, good.problem) == ("good", False, True, "")
    assert (broken.id, broken.path) == ("broken", tmp_path / "broken.json")
    assert "Expecting property name" in broken.problem and "\n" not in broken.problem


def test_an_unknown_evaluator_has_a_suggestion(tmp_path):
    settings = EvaluationSettings(folder=tmp_path)
    for name, remedy in (
        ("Builtin.helpfulnes", "Did you mean `Builtin.Helpfulness`?"),
        ("helpfulness", "Did you mean `Builtin.Helpfulness`?"),
        ("qqqqqqqqqq", "`proctor evaluators list` lists them."),
    ):
        with pytest.raises(EvaluatorNotFound) as raised:
            find_evaluator(name, models=None, settings=settings)
        assert str(raised.value) == f"there is no evaluator `{name}`\n{remedy}"
    with pytest.raises(EvaluatorNotFound, match="is not included with Proctor"):
        find_evaluator("ThirdParty.X", models=None, settings=settings)
