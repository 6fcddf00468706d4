"""Judges of criteria, rubrics and insights: prompts, votes, limits, and what an answer becomes."""

import json

import pytest
from judged_sessions import Judge as Answers
from judged_sessions import session, turn, weather

from proctor.errors import EvaluatorError, ModelError, UsageError
from proctor.evaluator import Evidence
from proctor.evaluators import model_judge
from proctor.evaluators.definition import new_evaluator
from proctor.evaluators.model_judge import (
    FAILURES,
    InsightJudge,
    RubricEvaluator,
    family_of,
    kind_of,
)
from proctor.judging import (
    Criterion,
    Judge,
    JudgeUsage,
    Question,
    Rating,
    Scale,
    ScoreDimension,
    TranscriptLine,
    criteria_from,
    criterion_of,
    rubric_names,
    score_criterion,
    verdicts,
)
from proctor.session import Message, ModelCall, Usage

LINES = [
    TranscriptLine(speaker="client", text="I am sad."),
    TranscriptLine(speaker="therapist", text="Tell me more."),
    TranscriptLine(speaker="client", text="No."),
    TranscriptLine(speaker="therapist", text="As you like."),
]


def judge(*answers, **more):
    given = Answers(*answers)
    return Judge(models=given, model="p/m", parameters={"temperature": 0}, **more), given


def says(**values):
    return json.dumps({"reasoning": "because", **values})


@pytest.mark.parametrize(
    ("criterion", "answer", "value", "label"),
    [
        ({"scale": "binary"}, {"verdict": True}, 1.0, "yes"),
        ({"scale": "binary"}, {"verdict": False}, 0.0, "no"),
        ({"scale": "scalar"}, {"score": 4}, 4.0, ""),
        ({"scale": "categorical", "labels": ("warm", "cold")}, {"label": "cold"}, None, "cold"),
        ({"scale": "extraction"}, {"snippets": ["a", "b"]}, 2.0, "a | b"),
    ],
)
async def test_a_verdict_is_a_value_or_a_label_by_its_scale(criterion, answer, value, label):
    asked, given = judge(says(**answer))
    made = Criterion(name="warmth", instructions="Is it warm?", **criterion)
    (score,) = await score_criterion(made, LINES, asked, seed=7)
    assert (score.value, score.label, score.explanation, score.cost_usd) == (value, label, "because", 0.01)
    assert (score.level, score.target, score.evaluator, score.evaluator_digest) == (
        *("session", "", "warmth", made.digest),
    )
    assert (given.requests[0].seed, given.requests[0].model, dict(given.requests[0].parameters)) == (
        *(7, "p/m", {"temperature": 0}),
    )


async def test_each_message_of_the_target_is_judged_with_what_was_said_until_then():
    asked, given = judge(says(score=2), says(score=5))
    made = Criterion(name="warmth", instructions="Is it warm?", level="turn", target="therapist")
    scores = await score_criterion(made, LINES, asked)
    assert [(score.value, score.level, score.target) for score in scores] == [
        *((2.0, "trace", "therapist.turn_0"), (5.0, "trace", "therapist.turn_1")),
    ]
    first, second = given.asked(0), given.asked(1)
    assert "therapist: Tell me more.\n</conversation>" in first and "client: No." not in first
    assert "therapist: As you like.\n</conversation>" in second
    assert "Judge only the last message, by the therapist." in first


async def test_an_unreadable_verdict_is_asked_for_once_more_and_then_an_error():
    asked, given = judge("no verdict", says(score=3))
    made = Criterion(name="warmth", instructions="?")
    (score,) = await score_criterion(made, LINES, asked)
    assert (score.value, score.cost_usd, len(given.requests)) == (3.0, 0.02, 2)
    asked, given = judge("no verdict")
    with pytest.raises(EvaluatorError, match="the judge of warmth gave no verdict that could be read"):
        await score_criterion(made, LINES, asked)
    assert len(given.requests) == 2
    asked, given = judge('{"score": 3}')
    assert [score.explanation for score in await score_criterion(made, LINES, asked)] == [""]
    assert len(given.requests) == 1, "reasons may be missing"


def test_a_digest_depends_on_what_changes_verdicts():
    usual = {"name": "c", "instructions": "?"}
    changes = [
        *({}, {"instructions": "!"}, {"scale": "binary"}, {"level": "turn"}, {"target": "x"}, {"low": 0}),
        *({"high": 6}, {"labels": ("a",)}, {"sees_profile": True}),
    ]
    digests = [Criterion(**usual | change).digest for change in changes]
    assert len(set(digests)) == len(digests) and len(digests[0]) == 16
    assert Criterion(**usual | {"name": "d", "passes_at": 3}).digest == digests[0]


def test_the_criterion_of_a_document_has_the_usual_settings_where_it_says_nothing():
    base = {"name": "c", "instructions": "?"}
    assert criterion_of(base) == Criterion(name="c", instructions="?")
    given = {"scale": "categorical", "level": "turn", "target": "t", "low": 0, "high": 9}
    more = {"labels": ["a", "b"], "sees_profile": True, "passes_at": 0.5}
    expected = Criterion(**base, **given, labels=("a", "b"), sees_profile=True, passes_at=0.5)
    assert criterion_of(base | given | more) == expected
    assert criterion_of(base | {"sees_profile": "yes"}).sees_profile is False


# Votes

STARS = Scale(tuple(Rating(str(n), float(n)) for n in (1, 2, 3)))
KINDS = Scale(tuple(Rating(name) for name in ("cat", "dog", "bird")))


def asking(scale):
    return Question("?", (ScoreDimension("", "", scale),))


async def voted(scale, *answers, votes=None):
    asked, given = judge(*[says(score=answer) for answer in answers], votes=votes or len(answers))
    question = asking(scale)
    usage = JudgeUsage()
    (verdict,) = (await verdicts(asked, question, [{"role": "user", "content": "?"}], usage)).values()
    return verdict, given, usage


async def test_several_votes_give_the_mean_and_the_most_frequent_label():
    verdict, given, usage = await voted(STARS, "1", "3", "3")
    assert (verdict.value, verdict.label, verdict.votes) == (pytest.approx(7 / 3), "3", (1.0, 3.0, 3.0))
    assert verdict.explanation == "2 of 3 votes for 3 (1, 3, 3). because"
    assert [request.seed for request in given.requests] == [1, 2, 3]
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (300, 30, pytest.approx(0.03))


async def test_of_tied_labels_the_one_nearest_to_the_mean_or_the_first_counts():
    assert (await voted(STARS, "1", "3", "3", "1", "2", "2"))[0].label == "2"
    assert (await voted(KINDS, "dog", "bird"))[0].label == "dog"
    verdict, _, _ = await voted(KINDS, "bird", "dog", "bird")
    assert (verdict.label, verdict.value, verdict.votes) == ("bird", None, ("bird", "dog", "bird"))


async def test_one_vote_has_no_seed_and_its_own_reasons():
    verdict, given, _ = await voted(STARS, "2")
    assert (verdict.value, verdict.label, verdict.explanation, verdict.votes) == (2.0, "2", "because", ())
    assert given.requests[0].seed is None
    form = given.requests[0].parameters["response_format"]
    assert form["type"] == "json_schema" and form["json_schema"]["strict"] is True


async def test_without_a_majority_of_readable_votes_there_is_no_verdict():
    # Each vote is asked for twice: the first try of both, then the second.
    verdict, _, _ = await voted(STARS, "x", "1", "x", "x", votes=2)
    assert verdict.error == "the judge gave no verdict that could be read"


async def test_a_server_that_refuses_the_form_of_the_answer_is_asked_without_it():
    refused = ModelError("no", reason="bad_request")
    asked, given = judge(refused, says(score="2"))
    question = asking(STARS)
    (verdict,) = (await verdicts(asked, question, [], JudgeUsage())).values()
    assert verdict.value == 2.0
    assert ["response_format" in request.parameters for request in given.requests] == [True, False]
    asked, given = judge(says(score="2"), structured=False)
    await verdicts(asked, question, [], JudgeUsage())
    assert ["response_format" in request.parameters for request in given.requests] == [False]
    asked, given = judge(ModelError("down", reason="server_error"))
    with pytest.raises(ModelError, match="down"):
        await verdicts(asked, question, [], JudgeUsage())
    assert len(given.requests) == 1


def test_a_cost_is_known_if_that_of_any_call_is():
    usage = JudgeUsage()
    for cost in (None, 0.5, None, 0.25):
        usage.add(ModelCall(model="m", usage=Usage(input_tokens=3, output_tokens=2), cost_usd=cost))
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (12, 8, 0.75)


# Rubrics


def test_aspects_inherit_the_settings_of_their_rubric():
    written = {
        "name": "r",
        "instructions": " Read. ",
        "range": [0, 3],
        "target": "therapist",
        "aspects": [{"name": "a", "description": "Warm?"}, {"name": "b", "range": [1, 2], "target": None}],
    }
    first, second = criteria_from(written)
    assert (first.name, first.instructions, first.low, first.high) == ("r.a", "Read.\nWarm?", 0, 3)
    assert (second.name, second.low, second.high, second.target) == ("r.b", 1, 2, "therapist")
    (alone,) = criteria_from({"name": "r", "description": "D", "paradigm": "binary", "sees_profile": 1})
    assert (alone.instructions, alone.scale, alone.sees_profile) == ("D", "binary", True)
    (usual,) = criteria_from({"name": "r", "instructions": "I", "description": "D"})
    assert (usual.instructions, usual.scale, usual.low, usual.high, usual.level) == (
        *("I", "scalar", 1, 5, "session"),
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"scale": "scalr"}, r"has no scale `scalr`\nDid you mean `scalar`"),
        ({"scale": "x"}, "There are: binary, scalar, categorical, extraction"),
        ({"scale": "categorical", "labels": ["one"]}, "is categorical and has no `labels`"),
        ({"range": [3, 3]}, "is empty: 3 to 3"),
        ({"passes_at": 6}, "`passes_at` is 6, and it gives at most 5"),
        ({"scale": "binary", "passes_at": 2}, "`passes_at` is 2, and it gives at most 1"),
        ({"scale": "categorical", "labels": ["a", "b"], "passes_at": 1}, "has no number to compare"),
    ],
)
def test_rubrics_that_cannot_work_are_refused(values, problem):
    with pytest.raises(UsageError, match=problem):
        list(criteria_from({"name": "r", "instructions": "?"} | values))


@pytest.mark.parametrize(
    "values",
    [
        {"passes_at": 5},
        {"scale": "binary", "passes_at": 1},
        {"scale": "extraction", "passes_at": 99},
        {"scale": "categorical", "labels": ["a", "b"]},
        {"range": [3, 4]},
    ],
)
def test_rubrics_at_the_limit_are_taken(values):
    assert len(list(criteria_from({"name": "r", "instructions": "?"} | values))) == 1
    assert rubric_names() == sorted(rubric_names()) != []


async def test_a_rubric_judges_the_sides_of_any_session():
    plain = Criterion(name="c", instructions="?")
    seeing = Criterion(name="s", instructions="?", sees_profile=True)
    asked, given = judge(says(score=3))
    evaluator = RubricEvaluator(name="r", criteria=[plain, seeing], judge_model=asked)
    evidence = session(turn(1, "hello", "hi"))
    first, second = await evaluator.judge(evidence)
    assert (first.value, second.error) == (3.0, "the session has no profile to compare with")
    assert "client: hello\ntherapist: hi" in given.asked(0)
    (empty, _) = await evaluator.judge(Evidence(session_id="s"))
    assert (empty.error, empty.evaluator_digest) == ("the session has no messages", plain.digest)
    assert evaluator.digest != RubricEvaluator(name="r", criteria=[plain], judge_model=asked).digest
    named = [
        Message(role="system", name="instructions of the client", content="Be Ann."),
        Message(role="user", name="therapist", content="swapped"),
    ]
    await evaluator.judge(Evidence(session_id="s", messages=named))
    assert "therapist: swapped" in given.asked(-1) and "Be Ann." in given.asked(-1)
    await evaluator.judge(Evidence(session_id="s", messages=named, attributes={"profiles": {"client": "Bo"}}))
    assert '"client": "Bo"' in given.asked(-1) and "Be Ann." not in given.asked(-1)
    unreadable, _ = judge("?")
    (failed,) = await RubricEvaluator(name="r", criteria=[plain], judge_model=unreadable).judge(evidence)
    assert "gave no verdict that could be read" in failed.error


# Insights


def test_categories_have_a_family_and_a_kind():
    name = "execution-error-category-tool-schema"
    assert (family_of(name), kind_of(name)) == ("execution error", "tool schema")
    assert kind_of("other") == "other"


async def test_a_failure_names_the_turn_and_the_call():
    category = next(iter(model_judge.CATEGORIES))
    for values, place in (
        ({"turn": 2, "tool": "book"}, ("turn-2", "span-2")),
        ({"turn": 1, "tool": "book"}, ("turn-1", "turn-1")),
        ({"turn": 3, "tool": "forecast"}, ("turn-1", "span-1")),
        ({"turn": 0}, ("turn-1", "turn-1")),
    ):
        asked, given = judge(json.dumps({"category": category, "confidence": 0.5, **values}))
        (score,) = await InsightJudge(name=FAILURES, judge_model=asked).judge(weather())
        details = json.loads(score.explanation)
        assert (details["traceId"], details["spanId"]) == place
        assert (score.label, score.cost_usd, score.input_tokens, score.output_tokens) == (
            category,
            0.01,
            100,
            10,
        )
        assert "category" not in details
    assert category in given.asked() and given.requests[0].messages[0]["role"] == "system"


# Files of new evaluators


@pytest.mark.parametrize(("kind", "files"), [("judge", 1), ("function", 2), ("command", 2)])
def test_a_new_evaluator_is_a_definition_and_its_code(tmp_path, kind, files):
    folder = tmp_path / "evaluators"
    paths = new_evaluator("mine", folder, level="TRACE", kind=kind)
    assert [path.name for path in paths] == ["mine.yaml", "mine.py"][:files]
    text = paths[0].read_text()
    assert "mine" in text and {"judge": "{", "function": "mine:judge", "command": "python3"}[kind] in text
    with pytest.raises(UsageError, match=r"mine\.yaml already exists"):
        new_evaluator("mine", folder, level="TRACE", kind=kind)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": "no-name"}, "`no-name` is not a valid name"),
        ({"level": "x"}, "there is no level `x`"),
        ({"kind": "x"}, "there is no kind `x`"),
    ],
)
def test_what_no_evaluator_can_be_is_refused(tmp_path, values, problem):
    given = {"name": "mine", "level": "SESSION", "kind": "judge"} | values
    with pytest.raises(UsageError, match=problem):
        new_evaluator(given.pop("name"), tmp_path / "x", **given)
    assert not (tmp_path / "x").exists()
