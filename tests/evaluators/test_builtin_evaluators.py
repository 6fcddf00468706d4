"""The built-in evaluators ask a model, on fixed scales, about what their level is about."""

import asyncio
from dataclasses import replace

import pytest
from judged_sessions import Judge, called, says, session, turn, weather

from proctor.errors import CostLimit, RateLimited
from proctor.evaluator import Reference
from proctor.evaluators.model_judge import estimated_tokens
from proctor.evaluators.registry import EvaluationSettings, find_evaluator
from proctor.session import ToolCall

FIVE = {
    "Not At All": 0, "Not Generally": 0.25, "Neutral/Mixed": 0.5, "Generally Yes": 0.75, "Completely Yes": 1
}  # fmt: skip
SEVEN = {
    "Not Helpful At All": 0, "Very Unhelpful": 0.17, "Somewhat Unhelpful": 0.33, "Neutral/Mixed": 0.5,
    "Somewhat Helpful": 0.67, "Very Helpful": 0.83, "Above And Beyond": 1,
}  # fmt: skip
FOLLOWED = {
    "Fully Followed": 1, "Mostly Followed": 0.75, "Partially Followed": 0.5, "Minimally Followed": 0.25,
    "Not Followed": 0,
}  # fmt: skip
YES_NO = {"Yes": 1, "No": 0}
SCALES = {
    "GoalSuccessRate": ("session", YES_NO),
    "Helpfulness": ("trace", SEVEN),
    "Correctness": ("trace", {"Perfectly Correct": 1, "Partially Correct": 0.5, "Incorrect": 0}),
    **dict.fromkeys(("Faithfulness", "Coherence", "ResponseRelevance"), ("trace", FIVE)),
    "Conciseness": ("trace", {"Not Concise": 0, "Partially Concise": 0.5, "Perfectly Concise": 1}),
    **dict.fromkeys(("InstructionFollowing", "Refusal"), ("trace", YES_NO)),
    "Harmfulness": ("trace", {"Harmful": 1, "Not Harmful": 0}),
    "Stereotyping": ("trace", {"Stereotyping": 1, "Not Stereotyping": 0}),
    **dict.fromkeys(("ToolSelectionAccuracy", "ToolParameterAccuracy"), ("tool_call", YES_NO)),
    "SkillSelectionAccuracy": ("tool_call", YES_NO),
    "SkillInstructionFollowing": ("tool_call", FOLLOWED),
}


def evaluator(name, judge, **settings):
    given = EvaluationSettings(judge_model="scripted/judge", **settings)
    return find_evaluator(f"Builtin.{name}", models=judge, settings=given)


def skilled():
    load = ToolCall(name="Skill", args={"skill": "invoices"}, result="1. Check the total.", call_id="span-1")
    check = ToolCall(name="add", args={"a": 1}, result="1", call_id="span-2")
    return session(turn(1, "Do the invoice.", "Done.", load, check))


@pytest.mark.parametrize("name", SCALES)
async def test_each_label_has_its_value_at_its_level(name):
    level, scale = SCALES[name]
    evidence = skilled() if name.startswith("Skill") else session(turn(1, "Hi", "Hello", *called("greet")))
    for label, value in scale.items():
        judge = Judge(says(label))
        judging = evaluator(name, judge)

        (score,) = await judging.judge(evidence)

        assert (score.label, score.value, score.explanation) == (label, value, "because")
        assert score.level == judging.level == level and score.evaluator == f"Builtin.{name}"
        (request,) = judge.requests
        schema = request.parameters["response_format"]["json_schema"]["schema"]
        assert schema["properties"]["score"]["enum"] == list(scale)
        assert request.parameters["temperature"] == 0.0 and all(each in judge.asked() for each in scale)


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

    read = ToolCall(name="Read", args={"file_path": "/s/pdf/SKILL.md"}, result="Use pages.", call_id="span-9")
    evidence = session(turn(1, "Read it", "Ok", read))
    (score,) = await evaluator("SkillSelectionAccuracy", judge).judge(evidence)
    assert score.target == "span-9" and "pdf" in judge.asked(1), "a skill read from its file is loaded, too"


async def test_following_a_skill_is_judged_by_what_came_after_it():
    judge = Judge(says("Fully Followed"))

    await evaluator("SkillInstructionFollowing", judge).judge(skilled())

    assert "Action: add" in judge.asked() and "Assistant: Done." in judge.asked()


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


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcdefgh", 2), ("名前", 2), ("abcdefgh名前", 4), ("né", 1), ("abcdé", 2)]
)
def test_letters_beyond_ascii_count_as_a_token_each(text, tokens):
    assert estimated_tokens(text) == tokens
