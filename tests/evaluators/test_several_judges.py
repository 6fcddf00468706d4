"""Several judges of one evaluator: a jury, and a second judge who decides where the first is unsure."""

import json

import pytest
from judged_sessions import session, turn

from proctor.errors import UsageError
from proctor.evaluators.registry import EvaluationSettings, evaluator_of
from proctor.model import Answer
from proctor.session import ModelCall, Usage

GRADES = {"Bad": 0.0, "Fair": 0.5, "Good": 1.0}
PRICES = {"p/cheap": 0.01, "p/dear": 0.2}


class Models:
    """Each model gives one answer, and costs what it costs."""

    def __init__(self, **answers):
        self.answers = {f"p/{name}": answer for name, answer in answers.items()}
        self.requests = []

    async def answer(self, request):
        self.requests.append(request)
        usage = Usage(input_tokens=100, output_tokens=10)
        call = ModelCall(model=request.model, usage=usage, cost_usd=PRICES.get(request.model, 0.05))
        return Answer(text=self.answers[request.model], call=call)


def says(label, **more):
    return json.dumps({"reasoning": f"it is {label}", "score": label, **more})


def config_of(model):
    return {"bedrockEvaluatorModelConfig": {"modelId": f"p/{model}"}}


def definition(scale="numerical", **judging):
    ratings = [
        {"label": label, "definition": "", **({"value": value} if scale == "numerical" else {})}
        for label, value in GRADES.items()
    ]
    judge = {"instructions": "How is {assistant_turn}?", "ratingScale": {scale: ratings}, **judging}
    return {"evaluatorName": "grade", "level": "TRACE", "evaluatorConfig": {"llmAsAJudge": judge}}


def jury(*models, **more):
    return {"judges": [config_of(model) for model in models], **more}


def escalation(below=0.8, audit=0, **more):
    return {"modelConfig": config_of("dear"), "below": below, "audit": audit, **more}


def evaluator(models, document):
    return evaluator_of(document, models=models, settings=EvaluationSettings(structured=False))


async def judged(models, document):
    (score,) = await evaluator(models, document).judge(session(turn(1, "Hi", "Hello")))
    return score


@pytest.mark.parametrize(
    ("rule", "answers", "label", "value"),
    [
        ("majority", ("Good", "Good", "Bad"), "Good", 2 / 3),
        ("median", ("Good", "Good", "Bad"), "Good", 1.0),
        ("median", ("Good", "Fair", "Bad"), "Fair", 0.5),
        ("majority", ("Good", "what?", "Good"), "Good", 1.0),
    ],
)
async def test_a_jury_decides_by_majority_or_median_and_keeps_what_each_said_and_cost(
    rule, answers, label, value
):
    models = Models(**dict(zip("abc", map(says, answers), strict=True)))

    score = await judged(models, definition(jury=jury("a", "b", "c", rule=rule)))

    assert (score.label, score.value, score.error) == (label, pytest.approx(value), "")
    assert [each.model for each in score.ballots] == ["p/a", "p/b", "p/c"]
    assert [each.label for each in score.ballots] == [each if each in GRADES else "" for each in answers]
    assert score.cost_usd == pytest.approx(sum(each.cost_usd for each in score.ballots))
    # An answer that cannot be read is asked for once more.
    assert score.cost_usd == pytest.approx(0.05 * (4 if "what?" in answers else 3))
    assert f"judges for {label} (p/a: {answers[0]}" in score.explanation
    assert score.explanation.endswith(f"it is {label}")


async def test_a_model_beside_a_jury_is_its_first_judge():
    models = Models(a=says("Good"), b=says("Bad"), c=says("Bad"))

    score = await judged(models, definition(modelConfig=config_of("a"), jury=jury("b", "c")))

    assert (score.label, [each.model for each in score.ballots]) == ("Bad", ["p/a", "p/b", "p/c"])


async def test_without_most_of_its_judges_a_jury_has_no_verdict():
    score = await judged(Models(a=says("Good"), b="hm"), definition(jury=jury("a", "b")))

    assert (score.error_code, score.value, score.label) == ("UnreadableVerdict", None, "")
    assert score.cost_usd == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("answer", "label", "calls", "because"),
    [
        (says("Good", confidence=0.8), "Good", ["p/cheap"], None),
        (says("Good", confidence=0.79), "Bad", ["p/cheap", "p/dear"], ("unsure",)),
        (says("Good"), "Bad", ["p/cheap", "p/dear"], ("unsure",)),
        (says("Good", confidence=95), "Bad", ["p/cheap", "p/dear"], ("unsure",)),
        ("no idea", "Bad", ["p/cheap", "p/cheap", "p/dear"], ("unsure",)),
    ],
)
async def test_a_second_judge_decides_where_the_first_is_unsure(answer, label, calls, because):
    models = Models(cheap=answer, dear=says("Bad"))

    score = await judged(models, definition(modelConfig=config_of("cheap"), escalation=escalation()))

    assert (score.label, [request.model for request in models.requests]) == (label, calls)
    assert score.cost_usd == pytest.approx(sum(PRICES[model] for model in calls))
    assert (score.input_tokens, len(score.ballots)) == (100 * len(calls), 1 if because is None else 2)
    assert because is None or score.ballots[1].because == because
    # Only the first judge is asked how sure it is: the second has the question of an evaluator of its own.
    texts = {request.model: request.messages[-1]["content"] for request in models.requests}
    assert [model for model, text in texts.items() if "confidence" in text] == ["p/cheap"]


async def test_a_sample_is_judged_by_both_and_decided_by_the_first():
    models = Models(cheap=says("Good", confidence=1), dear=says("Bad"))

    score = await judged(models, definition(modelConfig=config_of("cheap"), escalation=escalation(audit=1)))

    assert (score.label, score.value) == ("Good", 1.0)
    assert [(each.label, each.because) for each in score.ballots] == [("Good", ()), ("Bad", ("sample",))]


def test_the_digest_changes_with_what_decides_and_with_nothing_else():
    def digest(**judging):
        return evaluator(Models(), definition(**judging)).digest

    cheap = config_of("cheap")
    ways = [
        digest(modelConfig=cheap),
        digest(modelConfig=cheap, escalation=escalation()),
        digest(modelConfig=cheap, escalation=escalation(below=0.7)),
        digest(jury=jury("cheap", "dear")),
        digest(jury=jury("cheap", "dear", rule="median")),
        digest(jury=jury("cheap", "other")),
    ]
    assert len(set(ways)) == len(ways)
    assert digest(modelConfig=cheap, escalation=escalation(audit=0.5, agreement=0.8)) == ways[1]


@pytest.mark.parametrize(
    ("judging", "problem"),
    [
        ({"jury": jury("a")}, "jury.judges: should be a list of 2 to 9 model configs"),
        ({"jury": jury("a", "b", rule="mean")}, "jury.rule: should be one of majority, median"),
        ({"jury": jury("a", "b"), "escalation": escalation()}, "escalation: cannot be combined"),
        ({"jury": {"judges": [config_of("a"), {}]}}, "jury.judges.1: should be a map with exactly one"),
        ({"escalation": escalation(below=1.5)}, "escalation.below: should be a number from 0 to 1"),
        ({"escalation": {"below": 0.5}}, "escalation.modelConfig: is missing"),
        ({"scale": "categorical", "jury": jury("a", "b", rule="median")}, "median needs a scale of numbers"),
    ],
)
def test_what_is_wrong_with_several_judges_is_said(judging, problem):
    with pytest.raises(UsageError, match=problem):
        evaluator(Models(), definition(**judging))
