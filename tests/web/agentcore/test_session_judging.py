"""Evaluation of the spans of one session: targets, ground truth, deadlines and results, without a server."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from wire_spans import spans, tool_span_id, trace_id

from proctor.errors import AttemptError
from proctor.evaluators.rendering import EvaluationTarget
from proctor.score import Score
from proctor.web.agentcore import evaluate
from proctor.web.agentcore.errors import ResourceNotFoundException, ValidationException
from proctor.web.agentcore.evaluate import evidence_of_spans
from proctor.web.agentcore.service import Service

TWO_TURNS = (("one?", "1", ("calculator",)), ("two?", "2", ("calculator", "printer")))


def flaws(call: Any, *words: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationException) as caught:
        call(*words)
    return [(flaw.name, flaw.constraint) for flaw in caught.value.flaws] or [("", str(caught.value))]


def about(session: str, **members: Any) -> dict[str, Any]:
    trace = {"traceId": members.pop("trace")} if "trace" in members else {}
    return {"context": {"spanContext": {"sessionId": session, **trace}}, **members}


class Judge:
    """An evaluator whose answers are functions of the targets."""

    name = "kind"

    def __init__(self, level: str = "trace", answer: Any = None) -> None:
        self.level = level
        self._answer = answer

    async def judge(self, evidence: Any) -> Any:
        (target,) = evidence.targets or {""}
        if self._answer is not None:
            return await self._answer(target)
        return [Score(evaluator=self.name, value=1.0, level=self.level, target=target)]  # type: ignore[arg-type]


# Spans


def test_spans_of_several_traces_need_a_session() -> None:
    documents = spans("s-1", TWO_TURNS)
    assert evidence_of_spans(documents, ()).session_id == "s-1"
    for each in documents:
        del each["attributes"]["session.id"]
    assert flaws(evidence_of_spans, documents, ()) == [
        (
            "",
            "Provided input has 2 traces and no span says which session they are of: "
            "attribute session.id is missing",
        )
    ]
    alone = [each for each in documents if each["traceId"] == trace_id("s-1", 0)]
    assert evidence_of_spans(alone, ()).session_id == trace_id("s-1", 0)


def test_spans_of_several_sessions_are_refused_with_the_first_three() -> None:
    documents = [each for name in ("a", "b", "c", "d") for each in spans(name)]
    assert flaws(evidence_of_spans, documents, ()) == [
        ("", "Provided input has spans of 4 sessions (a, b, c); evaluate one at a time")
    ]


def test_documents_that_are_no_spans_are_refused_with_the_first_problem() -> None:
    assert flaws(evidence_of_spans, [[], 1], ()) == [
        ("", "Provided input has no readable span documents (1: it is no JSON object)")
    ]
    # What cannot be read is passed over where there is something else.
    assert evidence_of_spans([[], *spans("s-1")], ()).session_id == "s-1"


# Ground truth


def test_ground_truth_is_put_together_from_all_references() -> None:
    references = [
        about("s-1", assertions=[{"text": "a"}, {"text": "b"}]),
        about("s-1", assertions=[{"text": "c"}], expectedTrajectory={"toolNames": ["x"]}),
        about("s-1", trace=trace_id("s-1", 1).upper(), expectedResponse={"text": "second"}),
        about("s-1", trace=trace_id("s-1", 0), expectedResponse={"text": "first"}),
    ]
    reference = evidence_of_spans(spans("s-1", TWO_TURNS), references).reference
    assert reference is not None
    assert (reference.assertions, reference.trajectory) == (["a", "b", "c"], ["x"])
    assert reference.responses == {0: "first", 1: "second"}
    assert evidence_of_spans(spans("s-1"), ()).reference is None


def test_ground_truth_without_a_trace_is_that_of_the_only_one() -> None:
    references = [about("s-1", expectedResponse={"text": "42"}, expectedTrajectory={})]
    reference = evidence_of_spans(spans("s-1"), references).reference
    assert reference is not None
    assert (reference.responses, reference.trajectory, reference.assertions) == ({0: "42"}, [], [])
    plain = evidence_of_spans(spans("s-1"), [about("s-1")]).reference
    assert plain is not None and plain.trajectory is None and plain.responses == {}


def test_ground_truth_that_is_about_nothing_here_is_refused() -> None:
    where = "evaluationReferenceInputs.{}.member.context.spanContext.{}"
    references = [
        about("s-1"),
        about("other", trace="f" * 32),
        about("s-1", expectedResponse={"text": "x"}),
    ]
    assert flaws(evidence_of_spans, spans("s-1", TWO_TURNS), references) == [
        (where.format(2, "sessionId"), "Member must be the session of the provided spans"),
        (where.format(2, "traceId"), "Member must be a trace of the provided spans"),
        (where.format(3, "traceId"), "Member must not be null where there are several traces"),
    ]


# Targets


def test_targets_are_those_of_the_level_or_those_requested() -> None:
    evidence = evidence_of_spans(spans("s-1", TWO_TURNS), ())

    def ids(level: str, **requested: Any) -> list[str]:
        return [each.id for each in evaluate._targets(Judge(level), evidence, requested)]  # type: ignore[arg-type]

    traces = [trace_id("s-1", turn) for turn in (0, 1)]
    assert ids("session") == [""] and ids("trace") == traces
    assert ids("trace", traceIds=[traces[1].upper()]) == [traces[1]]
    assert ids("tool_call", spanIds=[tool_span_id("s-1", 1, 1)]) == [tool_span_id("s-1", 1, 1)]
    target = "evaluationTarget"
    for level, requested, flaw in (
        ("session", {"traceIds": traces}, (target, "Member must be absent for this evaluator")),
        ("trace", {"spanIds": ["x"]}, (target, "Member must be traceIds for this evaluator")),
        ("tool_call", {"traceIds": traces}, (target, "Member must be spanIds for this evaluator")),
        (
            "trace",
            {"traceIds": [traces[0], "b" * 32, "c" * 32]},
            (f"{target}.traceIds", f"Member must be in the provided spans: {'b' * 32}"),
        ),
    ):
        assert flaws(evaluate._targets, Judge(level), evidence, requested) == [flaw]


def test_a_session_without_tool_calls_has_nothing_for_an_evaluator_of_them() -> None:
    evidence = evidence_of_spans(spans("s-1", (("hi", "hello", ()),)), ())
    assert flaws(evaluate._targets, Judge("tool_call"), evidence, {}) == [("", "no spans to evaluate")]


def judged(judge: Judge, count: int, seconds: float = 60.0) -> list[Score]:
    evidence = evidence_of_spans(spans("s-1"), ())
    targets = [EvaluationTarget(level="trace", id=f"t{number}") for number in range(count)]

    async def work() -> list[Score]:
        deadline = asyncio.get_running_loop().time() + seconds
        return await evaluate._judge_targets(judge, evidence, targets, deadline)  # type: ignore[arg-type]

    return asyncio.run(work())


def test_the_last_ten_targets_with_a_result_are_judged_oldest_first() -> None:
    asked: list[str] = []

    async def every(target: str) -> list[Score]:
        asked.append(target)
        return [Score(evaluator="kind", value=1.0, target=target)]

    found = [each.target for each in judged(Judge(answer=every), 25)]
    assert found == sorted(asked) == [f"t{number}" for number in range(15, 25)]
    asked.clear()

    async def every_third(target: str) -> list[Score]:
        asked.append(target)
        return [] if int(target[1:]) % 3 else [Score(evaluator="kind", value=1.0, target=target)]

    assert [each.target for each in judged(Judge(answer=every_third), 40)] == [
        f"t{number}" for number in range(12, 40, 3)
    ]
    assert len(asked) == 30
    assert [each.target for each in judged(Judge(answer=every_third), 4)] == ["t0", "t3"]


def test_targets_with_several_scores_count_once() -> None:
    async def two(target: str) -> list[Score]:
        return [Score(evaluator="kind", value=value, target=target) for value in (0.0, 1.0)]

    assert len(judged(Judge(answer=two), 12)) == 20


def test_a_target_that_fails_or_takes_too_long_leaves_the_others() -> None:
    async def answer(target: str) -> list[Score]:
        if target == "t0":
            await asyncio.Event().wait()
        if target == "t1":
            raise AttemptError("too often", reason="rate_limit")
        return [Score(evaluator="kind", value=1.0, target=target)]

    late, failed, good = judged(Judge(answer=answer), 3, seconds=0.05)
    assert (late.target, late.error, late.error_code) == (
        "t0",
        "the judging took too long",
        "TimeoutException",
    )
    assert (late.evaluator, late.level, late.value) == ("kind", "trace", None)
    assert (failed.target, failed.error, failed.error_code) == ("t1", "too often", "ThrottlingException")
    assert (good.target, good.value) == ("t2", 1.0)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("rate_limit", "ThrottlingException"),
        ("timeout", "TimeoutException"),
        ("bad_request", "ValidationException"),
        ("internal_error", "InternalServerException"),
    ],
)
def test_the_code_of_a_failed_judgement(reason: str, code: str) -> None:
    async def fail(target: str) -> list[Score]:
        raise AttemptError("why", reason=reason)

    (score,) = judged(Judge(answer=fail), 1)
    assert (score.error_code, score.error) == (code, "why")


# Results


def test_a_result_has_what_the_score_has(service: Service) -> None:
    evidence = evidence_of_spans(spans("s-1", TWO_TURNS), ())
    score = Score(
        evaluator="mine",
        value=0.0,
        label="Bad",
        explanation="x" * 3000,
        dimension="tone",
        input_tokens=3,
        output_tokens=4,
        ignored=("assertions",),
    )
    result = evaluate._result(service, "mine-0123456789", evidence, score)
    assert result == {
        "evaluatorArn": "arn:aws:bedrock-agentcore:us-east-1:000000000000:evaluator/mine-0123456789",
        "evaluatorId": "mine-0123456789",
        "evaluatorName": "mine",
        "context": {"spanContext": {"sessionId": "s-1"}},
        "tokenUsage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7},
        "ignoredReferenceInputFields": ["assertions"],
        "evaluationDimensionName": "tone",
        "explanation": "x" * 2048,
        "label": "Bad",
        "value": 0.0,
    }
    plain = evaluate._result(service, "Builtin.X", evidence, Score(evaluator="x"))
    assert not {"value", "label", "explanation", "evaluationDimensionName", "errorCode"} & set(plain)
    assert plain["evaluatorName"] == "Builtin.X"


def test_a_result_with_an_error_has_no_value_and_no_secret(operate: Any) -> None:
    service = operate(environment={"OPENAI_API_KEY": "sk-verysecretverysecret"})
    evidence = evidence_of_spans(spans("s-1"), ())
    score = Score(evaluator="x", value=1.0, label="Good", error="sk-verysecretverysecret was refused")
    result = evaluate._result(service, "Builtin.X", evidence, score)
    assert result["errorCode"] == "InternalServerException"
    assert result["errorMessage"] == "[secret] was refused"
    assert not {"value", "label"} & set(result)
    long = evaluate._result(
        service, "Builtin.X", evidence, replace(score, error="y" * 3000, error_code="z" * 2000)
    )
    assert (len(str(long["errorMessage"])), len(str(long["errorCode"]))) == (2048, 1024)


def test_a_result_says_what_it_is_about() -> None:
    evidence = evidence_of_spans(spans("s-1", TWO_TURNS), ())
    first, second = (trace_id("s-1", turn) for turn in (0, 1))

    def context(level: Any, target: str) -> dict[str, str]:
        return evaluate._context(evidence, Score(evaluator="x", level=level, target=target))

    assert context("session", "") == {"sessionId": "s-1"}
    assert context("trace", first) == {"sessionId": "s-1", "traceId": first}
    call = tool_span_id("s-1", 1, 1)
    assert context("tool_call", call) == {"sessionId": "s-1", "traceId": second, "spanId": call}
    assert context("tool_call", "none") == {"sessionId": "s-1", "spanId": "none"}


def test_an_evaluator_that_is_not_there_is_not_found_in_one_line(service: Service) -> None:
    with pytest.raises(ResourceNotFoundException) as caught:
        evaluate.evaluator_named(service, "Builtin.Nothing")
    assert "\n" not in str(caught.value) and "Builtin.Nothing" in str(caught.value)
