"""The built-in evaluators: level, scale and ground truth. Their prompts are in `instructions/`, one file
each."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from proctor.evaluators.judging import Question, Scale, numerical, plain_question
from proctor.score import Level

PREFIX = "Builtin."
YES_NO = {"Yes": 1.0, "No": 0.0}
FIVE = {
    "Not At All": 0.0,
    "Not Generally": 0.25,
    "Neutral/Mixed": 0.5,
    "Generally Yes": 0.75,
    "Completely Yes": 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinEvaluator:
    """A built-in evaluator with a model judge."""

    level: Level
    judges: str
    """One-line description."""
    ratings: Mapping[str, float]
    reference: str = ""
    """Ground truth that changes the question: `assertions`, `expectedResponse`. Empty: none."""
    reference_ratings: Mapping[str, float] | None = None
    """Scale of that question; None: the same."""
    only_skills: bool = False
    sees_all: bool = False
    """Whether the judge sees the session after the target."""
    worse: str = ""
    """The label whose value the user may set; empty: all are fixed."""


JUDGED = {
    "GoalSuccessRate": BuiltinEvaluator(
        level="session",
        judges="whether every goal of the user was reached, or every assertion holds",
        ratings=YES_NO,
        reference="assertions",
    ),
    "Helpfulness": BuiltinEvaluator(
        level="trace",
        judges="how far an answer brings the user toward the goal, as the user would see it",
        ratings={
            "Not Helpful At All": 0.0,
            "Very Unhelpful": 0.17,
            "Somewhat Unhelpful": 0.33,
            "Neutral/Mixed": 0.5,
            "Somewhat Helpful": 0.67,
            "Very Helpful": 0.83,
            "Above And Beyond": 1.0,
        },
    ),
    "Correctness": BuiltinEvaluator(
        level="trace",
        judges="whether what an answer says is true, or agrees with the expected response",
        ratings={"Perfectly Correct": 1.0, "Partially Correct": 0.5, "Incorrect": 0.0},
        reference="expectedResponse",
        reference_ratings={"CORRECT": 1.0, "INCORRECT": 0.0},
    ),
    "Faithfulness": BuiltinEvaluator(
        level="trace", judges="whether an answer conflicts with the conversation before it", ratings=FIVE
    ),
    "Coherence": BuiltinEvaluator(
        level="trace", judges="whether an answer holds together and does not contradict itself", ratings=FIVE
    ),
    "ResponseRelevance": BuiltinEvaluator(
        level="trace", judges="whether an answer is about what was asked", ratings=FIVE
    ),
    "Conciseness": BuiltinEvaluator(
        level="trace",
        judges="whether an answer says nothing beyond what was asked",
        ratings={"Not Concise": 0.0, "Partially Concise": 0.5, "Perfectly Concise": 1.0},
    ),
    "InstructionFollowing": BuiltinEvaluator(
        level="trace", judges="whether every explicit instruction was obeyed", ratings=YES_NO
    ),
    "Refusal": BuiltinEvaluator(level="trace", judges="whether an answer refuses or evades", ratings=YES_NO),
    "Harmfulness": BuiltinEvaluator(
        level="trace",
        judges="whether an answer holds something harmful",
        ratings={"Harmful": 1.0, "Not Harmful": 0.0},
        worse="Harmful",
    ),
    "Stereotyping": BuiltinEvaluator(
        level="trace",
        judges="whether an answer is biased against a group of people",
        ratings={"Stereotyping": 1.0, "Not Stereotyping": 0.0},
        worse="Stereotyping",
    ),
    "ToolSelectionAccuracy": BuiltinEvaluator(
        level="tool_call", judges="whether calling this tool at this point was justified", ratings=YES_NO
    ),
    "ToolParameterAccuracy": BuiltinEvaluator(
        level="tool_call", judges="whether a call's arguments follow from what was known", ratings=YES_NO
    ),
    "SkillSelectionAccuracy": BuiltinEvaluator(
        level="tool_call",
        judges="whether the skill that was loaded fits the task",
        ratings=YES_NO,
        only_skills=True,
    ),
    "SkillInstructionFollowing": BuiltinEvaluator(
        level="tool_call",
        judges="whether the steps a loaded skill prescribes were carried out",
        ratings={
            "Fully Followed": 1.0,
            "Mostly Followed": 0.75,
            "Partially Followed": 0.5,
            "Minimally Followed": 0.25,
            "Not Followed": 0.0,
        },
        only_skills=True,
        sees_all=True,
    ),
}
"""By name, without the prefix."""


def question_of(name: str, harmful_value: float) -> tuple[Question, Question | None]:
    """The question of a built-in evaluator, and the one with ground truth if it has one."""
    builtin = JUDGED[name]
    plain = plain_question(_text(name), scale_of(builtin, harmful_value))
    if not builtin.reference:
        return plain, None
    other = numerical(builtin.reference_ratings or builtin.ratings)
    return plain, plain_question(_text(f"{name}.reference"), other)


def scale_of(builtin: BuiltinEvaluator, harmful_value: float) -> Scale:
    """Its scale, with the configured value of the worse label."""
    if not builtin.worse:
        return numerical(builtin.ratings)
    return numerical(
        {label: harmful_value if label == builtin.worse else 1.0 - harmful_value for label in builtin.ratings}
    )


def _text(name: str) -> str:
    folder = resources.files("proctor.evaluators") / "instructions"
    return (folder / f"{name}.txt").read_text(encoding="utf-8")
