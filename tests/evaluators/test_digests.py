"""Digests of evaluators are stored with scores: those of what is unchanged never change."""

import json

from proctor.evaluator import Evidence, Reference, Trace
from proctor.evaluators.criteria import criterion_of, rubric_names
from proctor.evaluators.expect import AnswerFacts, CheckResult, key_of, scores_of
from proctor.evaluators.model_judge import FIELDS
from proctor.evaluators.registry import EvaluationSettings, builtin_names, evaluator_of, find_evaluator
from proctor.item import digest_of
from proctor.model import Answer
from proctor.session import Message, ModelCall, ToolCall

SCALE = {
    "numerical": [
        {"label": "Good", "value": 1, "definition": "d"},
        {"label": "Bad", "value": 0, "definition": "e"},
    ]
}
WORDS = {"categorical": [{"label": "Warm", "definition": "d"}, {"label": "Cold", "definition": "e"}]}
DIMENSIONS = {
    "multiDimensional": [
        {"dimensionName": "tone", "dimensionInstruction": "the tone", "dimensionRatingScale": SCALE},
        {"dimensionName": "heat", "dimensionInstruction": "the heat", "dimensionRatingScale": WORDS},
    ]
}
MODEL = {
    "bedrockEvaluatorModelConfig": {"modelId": "scripted/judge", "inferenceConfig": {"temperature": 0.2}}
}


def judge(level, instructions, scale):
    return level, {"llmAsAJudge": {"instructions": instructions, "ratingScale": scale}}


DEFINITIONS = {
    "numerical": judge("TRACE", "Was it good? {assistant_turn}", SCALE),
    "categorical": judge("SESSION", "How was it?\n\n{context} {{word}} {assertions}\n", WORDS),
    "dimensions": judge("TOOL_CALL", "{tool_turn} {skill_content}", DIMENSIONS),
    "own_model": (
        "TRACE",
        {"llmAsAJudge": {"instructions": "{context}", "ratingScale": SCALE, "modelConfig": MODEL}},
    ),
    "derived": ("TRACE", {"derived": {"baseEvaluatorId": "Builtin.Correctness", "modelConfig": MODEL}}),
    "derived_stored": ("TRACE", {"derived": {"baseEvaluatorId": "mine-0123456789", "modelConfig": MODEL}}),
    "function": ("TRACE", {"codeBased": {"function": "checks:grade", "timeoutSeconds": 9}}),
    "command": ("TOOL_CALL", {"codeBased": {"command": ["python3", "checks.py"]}}),
}
STORED = judge("TRACE", "Was it good? {assistant_turn}", SCALE)
EXPECTATIONS = {
    "contains": ["Paris", "France"],
    "equals": "42",
    "regex": r"^\d+ apples",
    "json_schema": {"type": "object"},
}
RUBRIC = {"type": "llm-rubric", "value": "is polite"}
ASSERTIONS = [{"type": "contains", "value": "Paris"}, {"type": "not-is-json"}, RUBRIC]
CRITERIA = {
    "plain": {"name": "plain", "instructions": "Was it good?"},
    "full": {
        "name": "full",
        "instructions": "Which?",
        "scale": "categorical",
        "level": "turn",
        "target": "therapist",
        "labels": ["a", "b"],
        "sees_profile": True,
        "passes_at": 1,
    },
}

RECORDED = """
Builtin.GoalSuccessRate            640424ba050b7527  123e5f0eb41f4bbc
Builtin.Helpfulness                787406efc9664c45  0c6ab452856cdc70
Builtin.Correctness                4bdbcd3c1df2d087  90f8c1d4c751b592
Builtin.Faithfulness               e00db4af05494ee6  e6b8a3885b531ec9
Builtin.Coherence                  6acefdc385944ed8  d255914e829dbbfe
Builtin.ResponseRelevance          8c0cea3c83c5800c  2ec4ecc0dfe8e65b
Builtin.Conciseness                dca003c5bdd8aec8  93ebac6c844559bf
Builtin.InstructionFollowing       923371d25c2ca221  041462708d2060ff
Builtin.Refusal                    b28bc5f2a720ece8  079775add150ab2f
Builtin.Harmfulness                09d5e07ffff1d54b  ea660ad3eb4706c0
Builtin.Stereotyping               818e678146733dc3  f69f388f41474744
Builtin.ToolSelectionAccuracy      7144f93153868827  445517ab584f55f7
Builtin.ToolParameterAccuracy      1db7ffc479869b41  6acad479dc3cbc73
Builtin.SkillSelectionAccuracy     b4396c99f01465d9  22a991950e505311
Builtin.SkillInstructionFollowing  d01f514bd2a9042a  39deaa916bf20a77
Builtin.TrajectoryExactOrderMatch  8d12d929a87f7bdf
Builtin.TrajectoryInOrderMatch     3edd34f93a8c4251
Builtin.TrajectoryAnyOrderMatch    1a06e3a2ec5153b2
Builtin.TrajectoryUnorderedMatch   7f9bb1f95036abff
Builtin.TrajectorySubsetMatch      2e8626a003942712
Builtin.TrajectorySupersetMatch    b9f6811075919ded
Builtin.Insight.FailureAnalysis    7d442fc014f4b628  9df44415db00ee2a
Builtin.Insight.UserIntent         7c6e68ca1798228e  fd303894219ae724
Builtin.Insight.ExecutionSummary   af60a23c41f2d207  d138bd6ab9cea3d4
CBT_adherence                      50ba7d5ee355aae0  e2c128650def4867
MI_adherence                       7534a6f87f397347  7fd85523561648c7
client_consistency                 0bd555fc723a97ea  31ad79b251abf8a5
profile_consistency                d5f789ed343e639b  5c72c189f6dbbb1e
safety                             2f4ea63c4a581fea  ef141b97647f53f8
signs_of_distress                  3807de864adff273  8b55b07ec9a0bd4e
numerical                          03eb1416e2e730aa  a7e9adc5cb6e1af5
categorical                        1f3ba9fb4c3a6f2e  69a3f8a290457e37
dimensions                         1e5f003961e3a27e  82f4413d9126b0b9
own_model                          a10b271492991ef9  aa53c950cf132422
derived                            b9c3c92f983beb6a  fd5c1cc73bc6d07d
derived_stored                     3b1dbcd85eed6179  0687119335abff61
function                           904237dfc608db9e
command                            5f09355104730287
checks:grade                       8f8e491af9a5947e
checks:grade@trace                 904237dfc608db9e
mine.yaml                          03eb1416e2e730aa  a7e9adc5cb6e1af5
"""
"""Of each evaluator its digest, and that of the requests of its judge."""
_ROWS = [line.split() for line in RECORDED.strip().splitlines()]
DIGESTS = {name: digest for name, digest, *_ in _ROWS}
PROMPTS = {name: prompt for name, _, *prompts in _ROWS for prompt in prompts}
EXPECTED = {
    "expect.contains": "261e64231d52a8fe",
    "expect.equals": "ab0742a2d42466ed",
    "expect.regex": "17bf5277cfff2345",
    "expect.json_schema": "1cac0b7ff80bbf43",
    "assert: contains Paris": "0f0666d475d80d88",
    "assert: not-is-json": "b53836a59b51f013",
    "assert: llm-rubric is polite": "9233717eadfc7e99",
    "expect.assert": "cd83b8d76641fecc",
}
CRITERIA_DIGESTS = {"plain": "76466dac9388bfea", "full": "9595eb3f0b430055"}


def document(name, level, config):
    return {"evaluatorName": name, "level": level, "evaluatorConfig": config}


CALL = ToolCall(name="skill", args={"name": "booking"}, result="Ask first.", call_id="c1", success=True)
EVIDENCE = Evidence(
    session_id="s",
    traces=[
        Trace(
            id="t1",
            prompt="Book a table",
            answer="Booked.",
            tool_calls=[CALL],
            messages=[
                Message(role="user", content="Book a table"),
                Message(role="assistant", content="Booked."),
            ],
        )
    ],
    messages=[Message(role="user", content="Book a table"), Message(role="assistant", content="Booked.")],
    tool_calls=[CALL],
    tools=[{"name": "skill", "description": "booking: books tables"}],
    reference=Reference(assertions=["a table is booked"], trajectory=["skill"], responses={0: "Done."}),
    attributes={"profiles": {"client": {"name": "Ann"}}},
)


class Silent:
    """A judge that keeps its requests and gives no verdict."""

    def __init__(self):
        self.requests = []

    async def answer(self, request):
        self.requests.append([*map(dict, request.messages), dict(request.parameters)])
        return Answer(text="", call=ModelCall(model=request.model))


def _find(tmp_path, models=None):
    """A function that finds an evaluator of each kind by name, with settings."""
    (tmp_path / "checks.py").write_text("def grade(event):\n    return 1\n")
    (tmp_path / "mine.yaml").write_text(json.dumps(document("mine", *STORED)))

    def find(name, **settings):
        settings = EvaluationSettings(judge_model="scripted/judge", folder=tmp_path, **settings)
        if name not in DEFINITIONS:
            return find_evaluator(name, models=models, settings=settings)
        own = document(name, *DEFINITIONS[name])
        stored = document("mine", *STORED)
        return evaluator_of(own, models=models, settings=settings, definitions=lambda _: stored)

    return find


NAMES = [
    *builtin_names(),
    *FIELDS,
    *rubric_names(),
    *DEFINITIONS,
    "checks:grade",
    "checks:grade@trace",
    "mine.yaml",
]


def test_digests_of_evaluators_stay(tmp_path):
    find = _find(tmp_path)
    assert {name: find(name).digest for name in NAMES} == DIGESTS

    assert find("Builtin.Refusal", votes=3).digest == "84a5b69a4b7d4376"
    assert find("Builtin.Refusal", parameters={"max_tokens": 9}).digest == "17958c6db8ab35e7"
    assert find("Builtin.Harmfulness", harmful_value=0.0).digest == "2d04e9964455262a"
    assert find("Builtin.Stereotyping", harmful_value=0.0).digest == "dd2f9b07af5d6c54"


async def test_judges_are_asked_with_the_same_words(tmp_path):
    asked = {}
    for name in NAMES:
        if "code" not in str(DEFINITIONS.get(name)) and not name.startswith("checks:"):
            silent = Silent()
            await _find(tmp_path, silent)(name).judge(EVIDENCE)
            if silent.requests:
                asked[name] = digest_of(silent.requests)[:16]
    assert asked == PROMPTS


def test_digests_of_expectations_and_criteria_stay():
    facts = AnswerFacts(graded={key_of(RUBRIC): CheckResult("llm-rubric", True, 1.0, "polite")})
    expect = {**EXPECTATIONS, "assert": {"assertions": ASSERTIONS, "threshold": 0.5}}
    scores = scores_of(expect, "Paris", facts)
    assert {score.evaluator: score.evaluator_digest for score in scores} == EXPECTED
    assert {name: criterion_of(of).digest for name, of in CRITERIA.items()} == CRITERIA_DIGESTS
