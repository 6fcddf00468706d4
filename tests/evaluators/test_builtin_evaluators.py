"""The built-in evaluators ask a model, on fixed scales, about what their level is about."""

import asyncio
from dataclasses import replace

import pytest
from judged_sessions import Judge, called, says, session, turn, weather

from proctor.errors import CostLimit, RateLimited, UsageError
from proctor.evaluator import Reference
from proctor.evaluators.model_judge import estimated_tokens
from proctor.evaluators.registry import EvaluationSettings, find_evaluator
from proctor.session import ToolCall

FIVE = {
    "Not At All": 0,
    "Not Generally": 0.25,
    "Neutral/Mixed": 0.5,
    "Generally Yes": 0.75,
    "Completely Yes": 1,
}
YES_NO = {"Yes": 1, "No": 0}
SCALES = {
    "GoalSuccessRate": ("session", YES_NO),
    "Helpfulness": (
        "trace",
        {
            "Not Helpful At All": 0,
            "Very Unhelpful": 0.17,
            "Somewhat Unhelpful": 0.33,
            "Neutral/Mixed": 0.5,
            "Somewhat Helpful": 0.67,
            "Very Helpful": 0.83,
            "Above And Beyond": 1,
        },
    ),
    "Correctness": ("trace", {"Perfectly Correct": 1, "Partially Correct": 0.5, "Incorrect": 0}),
    "Faithfulness": ("trace", FIVE),
    "Coherence": ("trace", FIVE),
    "ResponseRelevance": ("trace", FIVE),
    "Conciseness": ("trace", {"Not Concise": 0, "Partially Concise": 0.5, "Perfectly Concise": 1}),
    "InstructionFollowing": ("trace", YES_NO),
    "Refusal": ("trace", YES_NO),
    "Harmfulness": ("trace", {"Harmful": 1, "Not Harmful": 0}),
    "Stereotyping": ("trace", {"Stereotyping": 1, "Not Stereotyping": 0}),
    "ToolSelectionAccuracy": ("tool_call", YES_NO),
    "ToolParameterAccuracy": ("tool_call", YES_NO),
    "SkillSelectionAccuracy": ("tool_call", YES_NO),
    "SkillInstructionFollowing": (
        "tool_call",
        {
            "Fully Followed": 1,
            "Mostly Followed": 0.75,
            "Partially Followed": 0.5,
            "Minimally Followed": 0.25,
            "Not Followed": 0,
        },
    ),
}


def evaluator(name, judge, **settings):
    given = EvaluationSettings(judge_model="scripted/judge", **settings)
    return find_evaluator(f"Builtin.{name}", models=judge, settings=given)


def skilled():
    load = ToolCall(name="Skill", args={"skill": "invoices"}, result="1. Check the total.", call_id="span-1")
    check = ToolCall(name="add", args={"a": 1}, result="1", call_id="span-2")
    return session(turn(1, "Do the invoice.", "Done.", load, check))


def evidence_for(name):
    return skilled() if name.startswith("Skill") else session(turn(1, "Hi", "Hello", *called("greet")))


@pytest.mark.parametrize(
    ("name", "label", "value"),
    [(name, label, value) for name, (_, scale) in SCALES.items() for label, value in scale.items()],
)
async def test_each_label_has_its_value_at_its_level(name, label, value):
    judging = evaluator(name, Judge(says(label)))

    (score,) = await judging.judge(evidence_for(name))

    assert (score.label, score.value, score.explanation) == (label, value, "because")
    assert score.level == judging.level == SCALES[name][0]
    assert score.evaluator == f"Builtin.{name}"


async def test_a_judge_is_shown_all_labels_and_held_to_them_by_a_schema():
    judge = Judge(says("Very Helpful"))

    await evaluator("Helpfulness", judge).judge(session(turn(1, "Hi", "Hello")))

    asked, parameters = judge.asked(), judge.requests[0].parameters
    assert all(label in asked for label in SCALES["Helpfulness"][1])
    schema = parameters["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["score"]["enum"] == list(SCALES["Helpfulness"][1])
    assert list(schema["properties"]) == ["reasoning", "score"]
    assert parameters["temperature"] == 0.0


async def test_a_session_is_shown_whole_and_a_turn_with_what_came_before_its_answer():
    judge = Judge(says("Yes"))

    await evaluator("GoalSuccessRate", judge).judge(weather())
    await evaluator("Refusal", judge).judge(weather())

    session_asked, first, second = (judge.asked(number) for number in range(3))
    assert "User: What is the weather in Oslo?\nAction: forecast" in session_asked
    assert 'Action: forecast({"city": "Oslo"})\nTool: rain\nAssistant: Rain.' in session_asked
    assert "- forecast: tells the weather" in session_asked
    assert "Assistant: Rain." not in first and "museum" not in first
    assert "Assistant: Rain.\nUser: Then book a museum." in second
    assert "It is booked." in second and "Assistant: It is booked." not in second


async def test_a_tool_call_is_shown_with_what_had_happened_before_it():
    judge = Judge(says("No"), says("Yes"))

    scores = await evaluator("ToolSelectionAccuracy", judge).judge(weather())

    assert [(score.target, score.label) for score in scores] == [("span-1", "No"), ("span-2", "Yes")]
    context = judge.asked(1).partition("Tools the agent could use")[0]
    assert "Tool: rain" in context and "Action: book" not in context


async def test_only_the_targets_that_were_asked_for_are_judged():
    judge = Judge(says("Yes"))

    scores = await evaluator("Refusal", judge).judge(replace(weather(), targets=frozenset({"turn-2"})))

    assert [score.target for score in scores] == ["turn-2"]


async def test_assertions_change_the_question_of_goal_success():
    judge = Judge(says("Yes"))
    truth = Reference(assertions=["The forecast was looked up"], responses={0: "Rain"})

    (score,) = await evaluator("GoalSuccessRate", judge).judge(replace(weather(), reference=truth))

    assert "1. The forecast was looked up" in judge.asked()
    assert (score.label, score.value, score.ignored) == ("Yes", 1.0, ("expectedResponse",))


async def test_an_expected_response_changes_the_question_of_its_own_turn_only():
    judge = Judge(says("INCORRECT"), says("Partially Correct"))
    truth = Reference(responses={0: "Snow"})

    scores = await evaluator("Correctness", judge).judge(replace(weather(), reference=truth))

    values = [(score.label, score.value) for score in scores]
    assert values == [("INCORRECT", 0.0), ("Partially Correct", 0.5)]
    assert "Snow" in judge.asked(0) and "Snow" not in judge.asked(1)
    assert [score.ignored for score in scores] == [(), ("expectedResponse",)]


async def test_what_harm_is_worth_is_a_setting_and_the_label_is_always_told():
    evidence, judge = session(turn(1, "Hi", "Hello")), Judge(says("Not Harmful"))

    (usual,) = await evaluator("Harmfulness", judge).judge(evidence)
    (turned,) = await evaluator("Harmfulness", judge, harmful_value=0.0).judge(evidence)

    assert (usual.label, usual.value) == ("Not Harmful", 0.0)
    assert (turned.label, turned.value) == ("Not Harmful", 1.0)
    assert usual.evaluator_digest != turned.evaluator_digest


async def test_skills_are_judged_where_one_was_loaded_and_nowhere_else():
    judge = Judge(says("Yes"))

    assert await evaluator("SkillSelectionAccuracy", judge).judge(weather()) == []
    (score,) = await evaluator("SkillSelectionAccuracy", judge).judge(skilled())

    assert score.target == "span-1"
    assert "invoices" in judge.asked() and "1. Check the total." in judge.asked()


async def test_following_a_skill_is_judged_by_what_came_after_it():
    judge = Judge(says("Fully Followed"))

    await evaluator("SkillInstructionFollowing", judge).judge(skilled())

    assert "Action: add" in judge.asked() and "Assistant: Done." in judge.asked()


async def test_a_skill_read_from_its_file_is_a_loaded_skill():
    read = ToolCall(name="Read", args={"file_path": "/s/pdf/SKILL.md"}, result="Use pages.", call_id="span-9")
    judge = Judge(says("Yes"))

    (score,) = await evaluator("SkillSelectionAccuracy", judge).judge(session(turn(1, "Read it", "Ok", read)))

    assert score.target == "span-9" and "pdf" in judge.asked()


@pytest.mark.parametrize(
    "said",
    [
        'Here it is:\n```json\n{"reasoning": "r", "score": "not harmful"}\n```',
        '{"reasoning": "r", "score": "It is Not Harmful."}',
        '{"score": "Not Harmful", "reasoning": "r",}',
        '{"reasoning": "r", "score": 0}',
    ],
)
async def test_verdicts_are_read_however_they_are_wrapped(said):
    (score,) = await evaluator("Harmfulness", Judge(said)).judge(session(turn(1, "Hi", "Hello")))

    assert (score.label, score.value) == ("Not Harmful", 0.0)


async def test_one_turn_that_cannot_be_judged_leaves_the_others():
    def answering(request):
        if "museum" in str(request.messages):
            raise RateLimited("slow down")
        return says("No")

    scores = await evaluator("Refusal", Judge(answering)).judge(weather())

    assert [(score.label, score.error_code) for score in scores] == [("No", ""), ("", "ThrottlingException")]


async def test_when_all_turns_fail_the_first_failure_is_told():
    def failing(request):
        raise RateLimited("the second turn" if "museum" in str(request.messages) else "the first turn")

    with pytest.raises(RateLimited, match="the first turn"):
        await evaluator("Refusal", Judge(failing)).judge(weather())
    with pytest.raises(RateLimited, match="alone"):
        await evaluator("Refusal", Judge(RateLimited("alone"))).judge(session(turn(1, "Hi", "Hello")))


async def test_a_spent_budget_ends_the_judging_of_all_turns():
    class Spent:
        async def answer(self, request):
            if "museum" in str(request.messages):
                raise CostLimit("no money left")
            await asyncio.Event().wait()

    with pytest.raises(CostLimit):
        await evaluator("Refusal", Spent()).judge(weather())


async def test_more_than_a_judge_can_read_is_an_error_and_nobody_is_asked():
    judge = Judge(says("Yes"))
    long = session(turn(1, "word " * 200_000, "Hello"), turn(2, "Bye", "Bye"))

    scores = await evaluator("Refusal", judge).judge(long)

    assert {score.error_code for score in scores} == {"ValidationException"}
    assert "200,000" in scores[0].error and judge.requests == []


async def test_an_empty_session_is_an_error_result():
    (score,) = await evaluator("GoalSuccessRate", Judge(says("Yes"))).judge(session())

    assert score.error_code == "SessionValidationException"


async def test_votes_are_counted_and_told():
    judge = Judge(says("Very Helpful"), says("Somewhat Helpful"), says("Very Helpful"))

    (score,) = await evaluator("Helpfulness", judge, votes=3).judge(session(turn(1, "Hi", "Hello")))

    assert score.label == "Very Helpful"
    assert score.value == pytest.approx((0.83 + 0.67 + 0.83) / 3)
    assert sorted(score.votes) == [0.67, 0.83, 0.83]
    assert score.explanation.startswith("2 of 3 votes for Very Helpful")
    assert score.cost_usd == pytest.approx(0.03)
    assert len({request.seed for request in judge.requests}) == 3
    assert judge.requests[0].parameters["temperature"] > 0


def test_a_digest_changes_with_the_judge_its_parameters_and_the_votes():
    def digest(**settings):
        given = EvaluationSettings(**{"judge_model": "a/b", **settings})
        return find_evaluator("Builtin.Refusal", models=Judge(""), settings=given).digest

    others = [digest(judge_model="a/c"), digest(votes=3), digest(parameters={"temperature": 1.0})]

    assert digest() == digest()
    assert len({digest(), *others}) == 4


def test_a_judge_has_to_be_named():
    with pytest.raises(UsageError, match="needs a judge model"):
        find_evaluator("Builtin.Refusal", models=Judge(""), settings=EvaluationSettings())


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcdefgh", 2), ("名前", 2), ("abcdefgh名前", 4), ("né", 1), ("abcdé", 2)]
)
def test_letters_beyond_ascii_count_as_a_token_each(text, tokens):
    assert estimated_tokens(text) == tokens
