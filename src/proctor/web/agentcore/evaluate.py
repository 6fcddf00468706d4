"""Judge one session at once: spans in, results out, nothing kept.

Each target is judged by itself, so that one which fails or takes too long leaves the results of the others.
The answer comes before the client loses its patience; what is not judged by then says so. A client that sends
the same request again while the first one is still under way gets the first one's answer.

Knows nothing of spans or of how an evaluator judges.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from proctor.batch.secrecy import visible
from proctor.errors import AttemptError, NotFound
from proctor.evaluator import Evaluator, Evidence
from proctor.evaluators import EvaluationSettings, find_evaluator
from proctor.evaluators.targets import Target, targets_of
from proctor.item import digest_of
from proctor.score import Score
from proctor.web.agentcore.data_shapes import EVALUATE
from proctor.web.agentcore.errors import ResourceNotFoundException, ValidationException, told
from proctor.web.agentcore.names import EVALUATOR, is_managed
from proctor.web.agentcore.operation import Members, Operation
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Flaw
from proctor.web.agentcore.spans import evidence_of_spans

MOST_RESULTS = 10
"""Targets that are judged in one call; of more, the last ones."""
MOST_TEXT = 2048
TARGETS = {"trace": "traceIds", "tool_call": "spanIds"}
CODES = {
    "rate_limit": "ThrottlingException",
    "timeout": "TimeoutException",
    "bad_request": "ValidationException",
}


async def evaluate(service: Service, asked: Members) -> Mapping[str, Any]:
    """Judge a session, or share the answer to the same request that is under way."""
    key = await run_in_threadpool(lambda: digest_of(dict(asked)))
    task = service.under_way.get(key)
    if task is None:
        task = asyncio.create_task(_evaluate(service, asked))
        service.under_way[key] = task
        task.add_done_callback(lambda _: service.under_way.pop(key, None))
    # Of two who wait for it, one that goes away must not take it from the other.
    return await asyncio.shield(task)


OPERATIONS = (
    Operation(
        name="Evaluate",
        method="POST",
        path="/evaluations/evaluate/{evaluatorId}",
        shape=EVALUATE,
        answer=evaluate,
        most_bytes="evaluate_bytes",
    ),
)


async def _evaluate(service: Service, asked: Members) -> Mapping[str, Any]:
    evaluator_id = asked["evaluatorId"]
    deadline = asyncio.get_running_loop().time() + service.limits.evaluate_seconds
    evaluator = await run_in_threadpool(_evaluator, service, evaluator_id)
    evidence = await run_in_threadpool(
        evidence_of_spans,
        asked["evaluationInput"]["sessionSpans"],
        asked.get("evaluationReferenceInputs") or (),
    )
    targets = _targets(evaluator, evidence, asked.get("evaluationTarget") or {})
    scores = await _judged(evaluator, evidence, targets, deadline)
    return {"evaluationResults": [_result(service, evaluator_id, evidence, score) for score in scores]}


def _evaluator(service: Service, evaluator_id: str) -> Evaluator:
    settings = EvaluationSettings(
        judge_model=service.judge,
        harmful_value=service.harmful_value,
        lambdas=service.site.evaluation.get("lambdas", {}),
        folder=service.site.folder,
        environment=visible(service.site.environment),
        attempt=f"evaluate-{evaluator_id}",
    )
    try:
        return find_evaluator(
            evaluator_id,
            models=service.models,
            settings=settings,
            definitions=service.store.definitions.document,
        )
    except NotFound as error:
        raise ResourceNotFoundException(str(error).partition("\n")[0]) from error


def _targets(evaluator: Evaluator, evidence: Evidence, given: Mapping[str, Any]) -> list[Target]:
    """What is to be judged, oldest first. Raises where the targets are of another level, or not there."""
    wanted = TARGETS.get(evaluator.level)
    for name in given:
        if name != wanted:
            rather = f"{wanted}" if wanted else "absent"
            raise told([Flaw("evaluationTarget", f"Member must be {rather} for this evaluator")])
    ids = [each.lower() for each in given.get(wanted or "", ())]
    found = targets_of(replace(evidence, targets=frozenset(ids)), evaluator.level)
    missing = [each for each in ids if each not in {target.id for target in found}]
    if missing:
        raise told(
            [Flaw(f"evaluationTarget.{wanted}", f"Member must be in the provided spans: {missing[0]}")]
        )
    if not found:
        raise ValidationException("no spans to evaluate")
    return found


async def _judged(
    evaluator: Evaluator, evidence: Evidence, targets: Sequence[Target], deadline: float
) -> list[Score]:
    """The scores of the last targets that have any: some evaluators have nothing to say to most of them."""
    found: list[Sequence[Score]] = []
    left = list(targets)
    while left and len(found) < MOST_RESULTS:
        left, some = left[:-MOST_RESULTS], left[-MOST_RESULTS:]
        judged = await _together(evaluator, evidence, some, deadline)
        found = [scores for scores in judged if scores] + found
    return [score for scores in found[-MOST_RESULTS:] for score in scores]


async def _together(
    evaluator: Evaluator, evidence: Evidence, targets: Sequence[Target], deadline: float
) -> list[Sequence[Score]]:
    tasks = [asyncio.create_task(_judge(evaluator, evidence, target)) for target in targets]
    try:
        await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        return [
            task.result()
            if task.done()
            else [_failed(evaluator, target, "TimeoutException", "the judging took too long")]
            for task, target in zip(tasks, targets, strict=True)
        ]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _judge(evaluator: Evaluator, evidence: Evidence, target: Target) -> Sequence[Score]:
    only = frozenset({target.id}) if target.id else frozenset[str]()
    try:
        return await evaluator.judge(replace(evidence, targets=only))
    except AttemptError as error:
        code = CODES.get(error.reason, "InternalServerException")
        return [_failed(evaluator, target, code, str(error))]


def _failed(evaluator: Evaluator, target: Target, code: str, message: str) -> Score:
    return Score(
        evaluator=evaluator.name, level=evaluator.level, target=target.id, error=message, error_code=code
    )


def _result(service: Service, evaluator_id: str, evidence: Evidence, score: Score) -> dict[str, Any]:
    told_of: dict[str, Any] = {
        "evaluatorArn": service.names.arn(EVALUATOR, evaluator_id),
        "evaluatorId": evaluator_id,
        "evaluatorName": evaluator_id if is_managed(evaluator_id) else score.evaluator,
        "context": {"spanContext": _context(evidence, score)},
        "tokenUsage": {
            "inputTokens": score.input_tokens,
            "outputTokens": score.output_tokens,
            "totalTokens": score.input_tokens + score.output_tokens,
        },
        "ignoredReferenceInputFields": list(score.ignored),
    }
    if score.error:
        return told_of | {
            "errorCode": (score.error_code or "InternalServerException")[:1024],
            # A provider may well repeat the key it does not like.
            "errorMessage": service.blot(score.error)[:MOST_TEXT],
        }
    verdict = {
        "evaluationDimensionName": score.dimension,
        "explanation": score.explanation[:MOST_TEXT],
        "label": score.label,
    }
    told_of |= {name: text for name, text in verdict.items() if text}
    return told_of | ({"value": score.value} if score.value is not None else {})


def _context(evidence: Evidence, score: Score) -> dict[str, str]:
    about = {"sessionId": evidence.session_id}
    if score.level == "trace":
        return about | {"traceId": score.target}
    if score.level == "tool_call":
        trace = next(
            (
                trace.id
                for trace in evidence.traces
                if any(call.call_id == score.target for call in trace.tool_calls)
            ),
            "",
        )
        return about | ({"traceId": trace} if trace else {}) | {"spanId": score.target}
    return about
