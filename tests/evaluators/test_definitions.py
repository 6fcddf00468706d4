"""Evaluators of the user's own: everything wrong with a definition is found, and what is right works."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judged_sessions import Judge, says, session, turn, weather

from proctor.errors import UsageError
from proctor.evaluator import Reference
from proctor.evaluators import EvaluationSettings, EvaluatorNotFound, find_evaluator, problems_of
from proctor.evaluators.code import evidence_of_document, reference_document, reference_of, session_document
from proctor.evaluators.registry import read_document

NUMERICAL = {
    "numerical": [
        {"label": "Good", "value": 1, "definition": "polite"},
        {"label": "Bad", "value": 0, "definition": "rude"},
    ]
}
CATEGORICAL = {
    "categorical": [{"label": "Warm", "definition": "kind"}, {"label": "Cold", "definition": "not"}]
}
MODEL = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}


def judge_document(instructions="Was it polite? {assistant_turn}", scale=NUMERICAL, level="TRACE", **more):
    config = {"instructions": instructions, "ratingScale": scale, "modelConfig": MODEL, **more}
    return {"evaluatorName": "politeness", "level": level, "evaluatorConfig": {"llmAsAJudge": config}}


def find(document, judge=None, **settings):
    return find_evaluator(
        "politeness-0123456789",
        models=judge or Judge(says("Good")),
        settings=EvaluationSettings(**settings),
        definitions=lambda name: document if name == "politeness-0123456789" else None,
    )


async def test_a_numerical_scale_gives_label_and_value():
    judge = Judge(says("Good", "very kind"))

    scores = await find(judge_document(), judge).judge(weather())

    assert [(s.evaluator, s.target, s.label, s.value) for s in scores] == [
        ("politeness", "turn-1", "Good", 1.0),
        ("politeness", "turn-2", "Good", 1.0),
    ]
    assert "- Good: polite" in judge.asked() and judge.requests[0].model == "scripted/judge"


async def test_a_categorical_scale_gives_a_label_and_no_value():
    (score,) = await find(judge_document(scale=CATEGORICAL), Judge(says("cold"))).judge(
        session(turn(1, "a", "b"))
    )

    assert (score.label, score.value) == ("Cold", None)


async def test_each_dimension_of_a_scale_gets_a_score_of_its_own():
    dimensions = [
        {"dimensionName": "Tone", "dimensionInstruction": "the tone", "dimensionRatingScale": CATEGORICAL},
        {"dimensionName": "Care", "dimensionInstruction": "the care", "dimensionRatingScale": NUMERICAL},
    ]
    said = {"Tone_reasoning": "r1", "Tone_score": "Warm", "Care_reasoning": "r2", "Care_score": "Bad"}
    judge = Judge(json.dumps(said))

    scores = await find(judge_document(scale={"multiDimensional": dimensions}), judge).judge(
        session(turn(1, "a", "b"))
    )

    assert [(s.dimension, s.label, s.value, s.explanation) for s in scores] == [
        ("Tone", "Warm", None, "r1"),
        ("Care", "Bad", 0.0, "r2"),
    ]
    assert sum(score.cost_usd or 0 for score in scores) == 0.01


async def test_one_dimension_that_cannot_be_read_leaves_the_other():
    dimensions = [
        {"dimensionName": name, "dimensionInstruction": "i", "dimensionRatingScale": NUMERICAL}
        for name in ("Tone", "Care")
    ]
    judge = Judge('{"Tone_score": "Good"}')

    scores = await find(judge_document(scale={"multiDimensional": dimensions}), judge).judge(
        session(turn(1, "a", "b"))
    )

    assert [(s.dimension, s.label, s.error_code) for s in scores] == [
        ("Tone", "Good", ""),
        ("Care", "", "UnreadableVerdict"),
    ]


async def test_a_judge_that_needs_ground_truth_errs_where_there_is_none():
    document = judge_document("Is {assistant_turn} like {expected_response}?")
    evidence = replace(weather(), reference=Reference(responses={1: "Booked."}))

    first, second = await find(document).judge(evidence)

    assert first.error_code == "ValidationException" and "expectedResponse" in first.error
    assert (second.label, second.ignored) == ("Good", ())


async def test_a_derived_evaluator_asks_the_built_in_question_of_another_model():
    judge = Judge(says("Yes"))
    config = {"baseEvaluatorId": "Builtin.Refusal", "modelConfig": MODEL}
    document = {"evaluatorName": "mine", "level": "TRACE", "evaluatorConfig": {"derived": config}}

    (score,) = await find(document, judge).judge(session(turn(1, "a", "b")))

    assert (score.evaluator, score.label) == ("mine", "Yes")
    assert "Is the last answer a refusal?" in judge.asked()


@pytest.mark.parametrize(
    ("config", "model", "parameters"),
    [
        (
            {"bedrockEvaluatorModelConfig": {"modelId": "openai/gpt-4.1"}},
            "openai/gpt-4.1",
            {"temperature": 0.0},
        ),
        (
            {
                "bedrockEvaluatorModelConfig": {
                    "modelId": "us.anthropic.claude-v1:0",
                    "inferenceConfig": {
                        "maxTokens": 9,
                        "temperature": 0.5,
                        "topP": 1,
                        "stopSequences": ["x"],
                    },
                    "additionalModelRequestFields": {"k": 1},
                }
            },
            "litellm/bedrock/us.anthropic.claude-v1:0",
            {"temperature": 0.5, "max_tokens": 9, "top_p": 1, "stop": ["x"], "k": 1},
        ),
        (
            {
                "bedrockEvaluatorModelConfig": {
                    "modelId": "arn:aws:bedrock:us-west-2:1:inference-profile/us.x"
                }
            },
            "litellm/bedrock/arn:aws:bedrock:us-west-2:1:inference-profile/us.x",
            {"temperature": 0.0},
        ),
        (
            {
                "responsesEvaluatorModelConfig": {
                    "modelId": "gpt-5",
                    "maxOutputTokens": 7,
                    "reasoning": {"effort": "low"},
                }
            },
            "openai/gpt-5",
            {"temperature": 0.0, "max_tokens": 7, "reasoning_effort": "low"},
        ),
        ({"bedrockEvaluatorModelConfig": {"modelId": "theirs"}}, "scripted/ours", {"temperature": 0.0}),
    ],
)
def test_a_model_config_is_put_into_our_words(config, model, parameters):
    found = find(judge_document(modelConfig=config), model_names={"theirs": "scripted/ours"})

    assert (found.judge_model.model, found.judge_model.parameters) == (model, parameters)


@pytest.mark.parametrize(
    ("document", "name", "words"),
    [
        ([], "", "map"),
        ({**judge_document(), "evaluatorName": "1st"}, "evaluatorName", "letter"),
        ({**judge_document(), "level": "trace"}, "level", "TRACE"),
        ({**judge_document(), "description": "x" * 201}, "description", "200"),
        ({**judge_document(), "evaluatorConfig": {}}, "evaluatorConfig", "exactly one"),
        ({**judge_document(), "evalConfig": 1}, "evalConfig", "did you mean `evaluatorConfig`"),
        (judge_document("no place"), "evaluatorConfig.llmAsAJudge.instructions", "at least one"),
        (
            judge_document("{tool_turn}"),
            "evaluatorConfig.llmAsAJudge.instructions",
            "no placeholder {tool_turn}",
        ),
        (
            judge_document("{context} {contexts}"),
            "evaluatorConfig.llmAsAJudge.instructions",
            "did you mean `context`",
        ),
        (judge_document(" "), "evaluatorConfig.llmAsAJudge.instructions", "text"),
        (judge_document(scale={}), "evaluatorConfig.llmAsAJudge.ratingScale", "exactly one"),
        (
            judge_document(scale={**NUMERICAL, **CATEGORICAL}),
            "evaluatorConfig.llmAsAJudge.ratingScale",
            "exactly one",
        ),
        (
            judge_document(scale={"numerical": [{"label": "a", "value": -1, "definition": ""}]}),
            "evaluatorConfig.llmAsAJudge.ratingScale.numerical.0.value",
            "negative",
        ),
        *(
            (
                judge_document(scale={"categorical": [{"label": label, "definition": ""}]}),
                "evaluatorConfig.llmAsAJudge.ratingScale.categorical.0.label",
                "1 to 100 characters",
            )
            for label in (" ", "a" * 101, 7)
        ),
        (
            judge_document(scale={"categorical": [{"label": "a", "definition": ""}] * 2}),
            "evaluatorConfig.llmAsAJudge.ratingScale.categorical",
            "twice",
        ),
        (
            judge_document(modelConfig={"bedrockEvaluatorModelConfig": {"modelId": ""}}),
            "evaluatorConfig.llmAsAJudge.modelConfig.bedrockEvaluatorModelConfig.modelId",
            "name of a model",
        ),
        (
            {**judge_document(), "evaluatorConfig": {"codeBased": {"function": "no colon"}}},
            "evaluatorConfig.codeBased.function",
            "module:function",
        ),
        (
            {**judge_document(), "evaluatorConfig": {"codeBased": {"command": "make"}}},
            "evaluatorConfig.codeBased.command",
            "list",
        ),
        (
            {**judge_document(), "evaluatorConfig": {"codeBased": {"lambdaConfig": {"lambdaArn": "arn:x"}}}},
            "evaluatorConfig.codeBased.lambdaConfig.lambdaArn",
            "ARN",
        ),
        (
            {**judge_document(), "evaluatorConfig": {"derived": {"baseEvaluatorId": "Builtin.Refusals"}}},
            "evaluatorConfig.derived.baseEvaluatorId",
            "did you mean `Builtin.Refusal`",
        ),
        (
            {
                **judge_document(),
                "evaluatorConfig": {"derived": {"baseEvaluatorId": "Builtin.GoalSuccessRate"}},
            },
            "level",
            "not that of",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(document, name, words):
    flaws = problems_of(document)

    assert [flaw for flaw in flaws if flaw.name == name and words in flaw.message], flaws


@pytest.mark.parametrize(("count", "is_refused"), [(0, True), (1, False), (50, False), (51, True)])
def test_a_scale_has_one_to_fifty_dimensions(count, is_refused):
    dimensions = [
        {"dimensionName": f"D{number}", "dimensionInstruction": "i", "dimensionRatingScale": NUMERICAL}
        for number in range(count)
    ]

    flaws = problems_of(judge_document(scale={"multiDimensional": dimensions}))

    assert [flaw.message for flaw in flaws] == ["should be a list of 1 to 50 dimensions"] * is_refused


def test_a_good_definition_has_no_problems_and_the_wire_wants_a_model():
    document = judge_document()
    del document["evaluatorConfig"]["llmAsAJudge"]["modelConfig"]

    assert problems_of({**document, "description": ""}) == []
    assert [flaw.name for flaw in problems_of(document, wire=True)] == [
        "evaluatorConfig.llmAsAJudge.modelConfig"
    ]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("evaluatorName", "level", "evaluatorConfig", "llmAsAJudge", "codeBased", "derived"),
                    *("instructions", "ratingScale", "numerical", "multiDimensional", "dimensionRatingScale"),
                    *("modelConfig", "bedrockEvaluatorModelConfig", "modelId", "inferenceConfig"),
                    *("lambdaConfig", "function", "command", "timeoutSeconds", "baseEvaluatorId", "label"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(ANYTHING)
def test_whatever_is_sent_as_a_definition_is_told_of_and_breaks_nothing(document):
    assert problems_of(document) and problems_of(document, wire=True)


@given(ANYTHING)
def test_whatever_stands_in_a_part_of_a_good_definition_is_told_of_or_can_be_used(part):
    for path in ("instructions", "ratingScale", "modelConfig"):
        document = judge_document(**{path: part} if path == "modelConfig" else {})
        document["evaluatorConfig"]["llmAsAJudge"][path] = part
        if not problems_of(document):
            assert find(document).digest


def test_a_word_in_doubled_braces_is_no_placeholder():
    assert problems_of(judge_document("{{anything}} {context}")) == []


async def test_doubled_braces_come_out_single_and_what_was_said_stays_as_it_was():
    judge = Judge(says("Good"))

    await find(judge_document("Fill {{name}} from {assistant_turn}"), judge).judge(
        session(turn(1, "a", "I wrote {{name}} and {context}"))
    )

    assert judge.asked().startswith("Fill {name} from") and "I wrote {{name}} and {context}" in judge.asked()


def test_definitions_are_found_by_path_and_by_the_name_of_their_file(tmp_path):
    (tmp_path / "evaluators").mkdir()
    (tmp_path / "evaluators" / "kind.json").write_text(json.dumps(judge_document()))
    given = EvaluationSettings(folder=tmp_path, folders=[tmp_path / "evaluators"])

    by_path = find_evaluator("evaluators/kind.json", models=Judge(""), settings=given)
    by_name = find_evaluator("kind", models=Judge(""), settings=given)

    assert by_path.digest == by_name.digest


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("bad.yaml", b"evaluatorName: [", "did not find expected node content"),
        ("bad.json", b"{", "Expecting property name"),
        ("deep.json", b"[" * 100_000, "recursion"),
        ("latin.yaml", b"evaluatorName: \xff", "'utf-8' codec"),
    ],
)
def test_a_broken_file_is_said_with_its_path_and_why(tmp_path, file, content, why):
    (tmp_path / file).write_bytes(content)

    with pytest.raises(UsageError) as refused:
        find_evaluator(file, models=Judge(""), settings=EvaluationSettings(folder=tmp_path))

    assert str(refused.value).startswith(f"{tmp_path / file}: ")
    assert why in str(refused.value)


def test_a_file_that_the_system_does_not_let_us_read_is_said_with_its_path():
    unreadable = Path("/proc/self/mem")

    with pytest.raises(UsageError, match=r"/proc/self/mem: .*Input/output error"):
        read_document(unreadable)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Builtin.Helpfullness", "Did you mean `Builtin.Helpfulness`"),
        ("helpfulness", "Did you mean `Builtin.Helpfulness`"),
        ("zzz", "proctor evaluators list"),
        ("ThirdParty.DeepEval.Bias", "not included with Proctor"),
    ],
)
def test_an_unknown_name_comes_with_a_suggestion(name, words):
    with pytest.raises(EvaluatorNotFound, match=words):
        find_evaluator(name, models=Judge(""), settings=EvaluationSettings(judge_model="a/b"))


@pytest.mark.parametrize(
    "changed",
    [
        judge_document("Was it kind? {assistant_turn}"),
        judge_document(scale=CATEGORICAL),
        judge_document(modelConfig={"bedrockEvaluatorModelConfig": {"modelId": "scripted/other"}}),
        judge_document(level="TOOL_CALL", instructions="{context}"),
    ],
)
def test_a_digest_changes_with_what_is_asked_and_of_whom(changed):
    assert find(changed).digest != find(judge_document()).digest


def test_a_digest_does_not_change_with_the_description():
    assert find({**judge_document(), "description": "new words"}).digest == find(judge_document()).digest


def test_ground_truth_is_read_as_the_wire_has_it_and_written_again():
    document = {
        "assertions": [{"text": "a"}],
        "expectedTrajectory": {"toolNames": ["x", "y"]},
        "turns": [{}, {"input": {"prompt": "p"}, "expectedResponse": {"text": "42"}}],
    }

    truth = reference_of(document)

    assert truth == Reference(assertions=("a",), trajectory=("x", "y"), responses={1: "42"})
    assert reference_of(reference_document(truth)) == truth


def test_a_session_written_as_a_document_is_the_same_session_when_read():
    evidence = replace(weather(), reference=Reference(trajectory=("forecast",)))

    again = evidence_of_document(json.loads(json.dumps(session_document(evidence))))

    assert session_document(again) == session_document(evidence)
    assert again.reference == evidence.reference


def test_expected_responses_of_several_turns_are_written_at_their_turns():
    truth = Reference(responses={0: "first", 2: "third"})

    document = reference_document(truth)

    first, third = {"expectedResponse": {"text": "first"}}, {"expectedResponse": {"text": "third"}}
    assert document == {"turns": [first, {}, third]}
    assert reference_of(document) == truth
