"""Evaluators of the user's own: everything wrong with a definition is found, and what is right works."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_sessions import Judge, says, session, turn, weather

from proctor.config import read_config
from proctor.errors import UsageError
from proctor.evaluator import Reference
from proctor.evaluators.definition import BEDROCK, RESPONSES, problems_of
from proctor.evaluators.registry import EvaluationSettings, find_evaluator, read_document

NUMERICAL = {
    "numerical": [
        {"label": "Good", "value": 1, "definition": "polite"},
        {"label": "Bad", "value": 0, "definition": "rude"},
    ]
}
CATEGORICAL = {
    "categorical": [{"label": "Warm", "definition": "kind"}, {"label": "Cold", "definition": "not"}]
}
MODEL = {BEDROCK: {"modelId": "scripted/judge"}}


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

    values = [(s.evaluator, s.target, s.label, s.value) for s in scores]
    assert values == [("politeness", "turn-1", "Good", 1.0), ("politeness", "turn-2", "Good", 1.0)]
    assert "- Good: polite" in judge.asked() and judge.requests[0].model == "scripted/judge"


async def test_each_dimension_of_a_scale_gets_a_score_of_its_own():
    document = dimensional(dimension("Tone", "the tone", CATEGORICAL), dimension("Care", "the care"))
    said = {"Tone_reasoning": "r1", "Tone_score": "Warm", "Care_reasoning": "r2", "Care_score": "Bad"}

    scores = await find(document, Judge(json.dumps(said))).judge(session(turn(1, "a", "b")))

    values = [(s.dimension, s.label, s.value, s.explanation) for s in scores]
    assert values == [("Tone", "Warm", None, "r1"), ("Care", "Bad", 0.0, "r2")]
    assert sum(score.cost_usd or 0 for score in scores) == 0.01


async def test_one_dimension_that_cannot_be_read_leaves_the_other():
    document = dimensional(dimension("Tone"), dimension("Care"))

    scores = await find(document, Judge('{"Tone_score": "Good"}')).judge(session(turn(1, "a", "b")))

    values = [(s.dimension, s.label, s.error_code) for s in scores]
    assert values == [("Tone", "Good", ""), ("Care", "", "UnreadableVerdict")]


async def test_a_judge_that_needs_ground_truth_errs_where_there_is_none():
    document = judge_document("Is {assistant_turn} like {expected_response}?")
    evidence = replace(weather(), reference=Reference(responses={1: "Booked."}))

    first, second = await find(document).judge(evidence)

    assert first.error_code == "ValidationException" and "expectedResponse" in first.error
    assert (second.label, second.ignored) == ("Good", ())


CLAUDE = "anthropic.claude-sonnet-4-20250514-v1:0"
PROFILE = "arn:aws:bedrock:us-west-2:1:inference-profile/us.x"
NAMES = {CLAUDE: "anthropic/sonnet", "default": "openai/gpt-4o-mini"}


@pytest.mark.parametrize(
    ("model_id", "names", "model"),
    [
        ("openai/gpt-4.1", {}, "openai/gpt-4.1"),
        ("openai/gpt-4.1", NAMES, "openai/gpt-4.1"),
        (CLAUDE, {}, f"litellm/bedrock/{CLAUDE}"),
        (CLAUDE, NAMES, "anthropic/sonnet"),
        (f"us.{CLAUDE}", NAMES, "anthropic/sonnet"),
        (f"global.{CLAUDE}", NAMES, "anthropic/sonnet"),
        ("amazon.nova-pro-v1:0", NAMES, "openai/gpt-4o-mini"),
        (PROFILE, NAMES, "openai/gpt-4o-mini"),
        (PROFILE, {}, f"litellm/bedrock/{PROFILE}"),
    ],
)
def test_a_model_of_bedrock_is_mapped_or_has_the_default(model_id, names, model):
    found = find(judge_document(modelConfig={BEDROCK: {"modelId": model_id}}), model_names=names)

    assert found.judge_model.model == model


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (
            {
                BEDROCK: {
                    "modelId": "m",
                    "inferenceConfig": {
                        "maxTokens": 9,
                        "temperature": 0.5,
                        "topP": 1,
                        "stopSequences": ["x"],
                    },
                    "additionalModelRequestFields": {"k": 1},
                }
            },
            {"temperature": 0.5, "max_tokens": 9, "top_p": 1, "stop": ["x"], "k": 1},
        ),
        (
            {RESPONSES: {"modelId": "gpt-5", "maxOutputTokens": 7, "reasoning": {"effort": "low"}}},
            {"temperature": 0.0, "max_tokens": 7, "reasoning_effort": "low"},
        ),
    ],
)
def test_the_settings_of_a_judge_are_put_into_our_words(config, parameters):
    judge_model = find(judge_document(modelConfig=config)).judge_model

    assert judge_model.parameters == parameters
    assert judge_model.model == ("openai/gpt-5" if RESPONSES in config else "litellm/bedrock/m")


def test_an_entry_of_the_mapping_that_is_no_model_is_named(tmp_path):
    (tmp_path / "proctor.toml").write_text('[evaluation.models]\ndefault = "gpt-4o"\n')

    with pytest.raises(UsageError, match=r'\[evaluation.models\]: "default" should be "provider/model"'):
        read_config([tmp_path], {})


def code(**config):
    return {"evaluatorName": "e", "level": "SESSION", "evaluatorConfig": {"codeBased": config}}


def derived(base, level="TRACE", **more):
    config = {"derived": {"baseEvaluatorId": base, **more}}
    return {"evaluatorName": "e", "level": level, "evaluatorConfig": config}


def rated(*ratings):
    return judge_document(scale={"numerical": list(ratings)})


def rating(label="good", value=1, **more):
    return {"label": label, "value": value, "definition": "d", **more}


def dimension(name="warmth", instruction="x", scale=NUMERICAL):
    return {"dimensionName": name, "dimensionInstruction": instruction, "dimensionRatingScale": scale}


def dimensional(*dimensions):
    return judge_document(scale={"multiDimensional": list(dimensions)})


JUDGE = "evaluatorConfig.llmAsAJudge"
INSTRUCTIONS, SCALE = f"{JUDGE}.instructions", f"{JUDGE}.ratingScale"
RATING, DIMENSIONS = f"{SCALE}.numerical", f"{SCALE}.multiDimensional"
CODE, BASE = "evaluatorConfig.codeBased", "evaluatorConfig.derived.baseEvaluatorId"
LAMBDA = "arn:aws:lambda:us-east-1:123456789012:function:judge"


@pytest.mark.parametrize(
    ("document", "name", "words"),
    [
        ([], "", "map"),
        ({**judge_document(), "evaluatorName": "1st"}, "evaluatorName", "letter"),
        ({**judge_document(), "evaluatorName": "x" * 49}, "evaluatorName", "letter"),
        ({**judge_document(), "level": "trace"}, "level", "TRACE"),
        ({**judge_document(), "description": "x" * 201}, "description", "200"),
        ({**judge_document(), "evaluatorConfig": {}}, "evaluatorConfig", "exactly one"),
        ({**judge_document(), "evalConfig": 1}, "evalConfig", "did you mean `evaluatorConfig`"),
        (judge_document("no place"), INSTRUCTIONS, "at least one"),
        (judge_document("{tool_turn}"), INSTRUCTIONS, "no placeholder {tool_turn}"),
        (judge_document("{context} {contexts}"), INSTRUCTIONS, "did you mean `context`"),
        (judge_document(" "), INSTRUCTIONS, "text"),
        (judge_document("{context}" + "x" * 99_992), INSTRUCTIONS, "100,000"),
        (judge_document(scale={}), SCALE, "exactly one"),
        (judge_document(scale={**NUMERICAL, **CATEGORICAL}), SCALE, "exactly one"),
        (rated(), RATING, "should be a list of ratings"),
        (judge_document(scale={"numerical": "text"}), RATING, "should be a list of ratings"),
        (rated(3), f"{RATING}.0", "should be a map"),
        (rated(rating("x" * 101)), f"{RATING}.0.label", "1 to 100 characters"),
        (rated(rating(" ")), f"{RATING}.0.label", "1 to 100 characters"),
        (rated(rating(7)), f"{RATING}.0.label", "1 to 100 characters"),
        (rated(rating(definition=1)), f"{RATING}.0.definition", "should be text"),
        (rated(rating(odd=1)), f"{RATING}.0.odd", "is unknown"),
        (rated(rating(value=-0.5)), f"{RATING}.0.value", "a number that is not negative"),
        (rated(rating(value=float("inf"))), f"{RATING}.0.value", "should be a number"),
        (rated(rating(value=True)), f"{RATING}.0.value", "should be a number"),
        (rated(rating(), rating(" GOOD")), RATING, "has a label twice"),
        (dimensional(), DIMENSIONS, "1 to 50 dimensions"),
        (dimensional(*(dimension(f"d{number}") for number in range(51))), DIMENSIONS, "1 to 50 dimensions"),
        (dimensional(3), f"{DIMENSIONS}.0", "should be a map"),
        (dimensional(dimension("1x")), f"{DIMENSIONS}.0.dimensionName", "should be a letter"),
        (dimensional(dimension(instruction="")), f"{DIMENSIONS}.0.dimensionInstruction", "1 to 4000"),
        (dimensional(dimension(instruction="x" * 4001)), f"{DIMENSIONS}.0.dimensionInstruction", "1 to 4000"),
        (
            dimensional(dimension(scale={"categorical": []})),
            f"{DIMENSIONS}.0.dimensionRatingScale.categorical",
            "should be a list of ratings",
        ),
        (dimensional(dimension("a_b"), dimension("AB")), DIMENSIONS, "differ only in case or underscores"),
        (code(function="m"), f"{CODE}.function", "should be `module:function`"),
        (code(command=[]), f"{CODE}.command", "should be a list: a program and its arguments"),
        (code(command=["x", ""]), f"{CODE}.command", "should be a list"),
        (code(command="x"), f"{CODE}.command", "should be a list"),
        (code(), CODE, "exactly one of"),
        (code(function="m:f", command=["x"]), CODE, "exactly one of"),
        *(
            (
                code(function="m:f", timeoutSeconds=seconds),
                f"{CODE}.timeoutSeconds",
                "above 0 and up to 3,600",
            )
            for seconds in (0, 3601, True)
        ),
        (code(function="m:f", memoryMegabytes=1_000_001), f"{CODE}.memoryMegabytes", "up to 1,000,000"),
        (code(lambdaConfig={"lambdaArn": "arn:x"}), f"{CODE}.lambdaConfig.lambdaArn", "ARN"),
        (code(lambdaConfig=3), f"{CODE}.lambdaConfig", "should be a map"),
        *(
            (
                code(lambdaConfig={"lambdaArn": LAMBDA, "lambdaTimeoutInSeconds": seconds}),
                f"{CODE}.lambdaConfig.lambdaTimeoutInSeconds",
                "",
            )
            for seconds in (0, 301, 1.5)
        ),
        (derived("Builtin.Refusals"), BASE, "did you mean `Builtin.Refusal`"),
        (derived("Builtin.GoalSuccessRate"), "level", "is not that of Builtin.GoalSuccessRate"),
        (derived("Builtin.TrajectoryExactOrderMatch", "SESSION"), BASE, "does not use a model"),
        (derived(5), BASE, "should be an evaluator's id"),
        (derived("Builtin.Refusal", modelConfig={}), "evaluatorConfig.derived.modelConfig", "exactly one"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(document, name, words):
    (violation,) = problems_of(document)

    assert violation.name == name and words in violation.message


@pytest.mark.parametrize(
    "document",
    [
        judge_document("{{anything}} {context}"),
        judge_document("{context}" + "x" * 99_991),
        {**judge_document(), "description": "x" * 200, "evaluatorName": "x" * 48},
        rated(rating("x" * 100), rating("bad", 0)),
        dimensional(*(dimension(f"d{number}", "x" * 4000) for number in range(50))),
        code(command=["x"]),
        code(function="m:f", timeoutSeconds=3600),
        *(
            code(lambdaConfig={"lambdaArn": LAMBDA, "lambdaTimeoutInSeconds": seconds})
            for seconds in (1, 300)
        ),
        derived("Builtin.Refusal"),
        derived("mine-0123456789"),
    ],
)
def test_a_good_definition_has_no_problems(document):
    assert problems_of(document) == []


@pytest.mark.parametrize(
    ("kind", "name", "well", "wrong", "problem"),
    [
        (BEDROCK, "temperature", (0, 0.5, 1), (-0.1, 1.1, "hot", None), "should be a number from 0 to 1"),
        (RESPONSES, "temperature", (0, 1.1, 2), (-0.1, 2.1, "hot", None), "should be a number from 0 to 2"),
        (BEDROCK, "topP", (0, 1), (-0.1, 1.01, None), "should be a number from 0 to 1"),
        (BEDROCK, "maxTokens", (1, 9), (0, -1, 1.5, "x"), "should be a whole number of at least 1"),
        (RESPONSES, "maxOutputTokens", (1, 9), (0, -1, 1.5), "should be a whole number of at least 1"),
        (BEDROCK, "stopSequences", ([], ["x"]), ("x", [""], [1]), "should be a list of texts"),
        (BEDROCK, "odd", (), (1,), "is unknown. Use one of: maxTokens"),
    ],
)
def test_settings_of_a_judge_are_checked(kind, name, well, wrong, problem):
    def found(value):
        setting = {"inferenceConfig": {name: value}} if kind == BEDROCK else {name: value}
        document = judge_document(modelConfig={kind: {"modelId": "m", **setting}})
        violations = problems_of(document)
        path = f"{JUDGE}.modelConfig.{kind}{'.inferenceConfig' if kind == BEDROCK else ''}.{name}"
        assert {violation.name for violation in violations} <= {path}
        return [violation.message for violation in violations]

    assert [found(value) for value in well] == [[]] * len(well)
    assert all(len(messages) == 1 and messages[0].startswith(problem) for messages in map(found, wrong))
    assert problems_of(judge_document(modelConfig={kind: {"modelId": ""}}))[0].name.endswith("modelId")


def test_a_good_definition_has_no_problems_and_the_wire_wants_a_model():
    document = judge_document()
    del document["evaluatorConfig"]["llmAsAJudge"]["modelConfig"]

    assert problems_of({**document, "description": ""}) == []
    assert [violation.name for violation in problems_of(document, wire=True)] == [
        "evaluatorConfig.llmAsAJudge.modelConfig"
    ]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "evaluatorName",
                    "level",
                    "evaluatorConfig",
                    "llmAsAJudge",
                    "codeBased",
                    "derived",
                    "instructions",
                    "ratingScale",
                    "numerical",
                    "multiDimensional",
                    "dimensionRatingScale",
                    "modelConfig",
                    "bedrockEvaluatorModelConfig",
                    "modelId",
                    "inferenceConfig",
                    "lambdaConfig",
                    "function",
                    "command",
                    "timeoutSeconds",
                    "baseEvaluatorId",
                    "label",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@settings(max_examples=20)
@given(ANYTHING)
def test_whatever_is_sent_as_a_definition_is_told_of_and_breaks_nothing(document):
    assert problems_of(document) and problems_of(document, wire=True)


@settings(max_examples=20)
@given(ANYTHING)
def test_whatever_stands_in_a_part_of_a_good_definition_is_told_of_or_can_be_used(part):
    for path in ("instructions", "ratingScale", "modelConfig"):
        document = judge_document(**{path: part} if path == "modelConfig" else {})
        document["evaluatorConfig"]["llmAsAJudge"][path] = part
        if not problems_of(document):
            assert find(document).digest


async def test_doubled_braces_come_out_single_and_what_was_said_stays_as_it_was():
    judge = Judge(says("Good"))

    await find(judge_document("Fill {{name}} from {assistant_turn}"), judge).judge(
        session(turn(1, "a", "I wrote {{name}} and {context}"))
    )

    assert judge.asked().startswith("Fill {name} from") and "I wrote {{name}} and {context}" in judge.asked()


def test_everything_wrong_with_a_definition_is_said_at_once():
    with pytest.raises(UsageError) as refused:
        find({"evaluatorName": "a b", "level": "DAY", "evaluatorConfig": {}})

    places = [line.partition(":")[0] for line in str(refused.value).splitlines()]
    assert places == ["evaluatorName", "level", "evaluatorConfig"]


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("bad.yaml", b"evaluatorName: [", "did not find expected node content"),
        ("bad.json", b"{", "Expecting property name"),
        ("wrong.json", b'{"evaluatorName": "1"}', "evaluatorName: should be a letter"),
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
