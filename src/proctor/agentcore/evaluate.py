"""Evaluate: score the spans of one session synchronously; stores nothing.

Targets are evaluated independently, so that one that fails or times out leaves the results of the others.
The response is sent before the client times out; targets not evaluated by then have an error. A request that
is repeated while the first is in progress shares its response.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from starlette.concurrency import run_in_threadpool

from proctor.agentcore.errors import ResourceNotFoundException, ValidationException, validation_error
from proctor.agentcore.operation import operation
from proctor.agentcore.service import Service
from proctor.agentcore.shapes import EVALUATOR_NAMES, Members, ShapeProblem, is_managed
from proctor.api.evaluation import evidence_of_documents
from proctor.errors import AttemptError, NotFound
from proctor.evaluator import Evaluator, Evidence, Reference, failed_score
from proctor.evaluators.registry import EvaluationSettings, find_evaluator
from proctor.evaluators.rendering import EvaluationTarget, targets_of
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_text, parse_json
from proctor.score import Score
from proctor.secrets import visible
from proctor.telemetry import Document, normalized
from proctor.telemetry.documents import is_span, mark_of, service_of, session_key_of


def evidence_of_spans(spans: Sequence[object], references: Sequence[JsonMap]) -> Evidence:
    """The session in spans, with its ground truth."""
    evidence = _evidence(_documents(spans))
    return replace(evidence, reference=_reference(evidence, references)) if references else evidence


def _documents(spans: Sequence[object]) -> list[Document]:
    by_key, problems = dict[tuple[str, str, str], Document](), list[str]()
    for number, span in enumerate(spans, start=1):
        try:
            document = normalized(_mapping(span))
        except ValueError as problem:
            problems.append(f"{number}: {problem}")
        else:
            # Clients read several log groups, and a span may be in more than one.
            by_key[mark_of(document).key] = document
    documents = list(by_key.values())
    if not documents:
        raise ValidationException(f"Provided input has no readable span documents ({problems[0]})")
    if not any(map(is_span, documents)):
        raise ValidationException(
            f"Provided input contains {len(documents)} log event(s) but no span documents. "
            "Log events alone cannot be evaluated"
        )
    return documents


def _mapping(span: object) -> JsonMap:
    # Clients that read log streams pass documents as text.
    document = parse_json(span) if isinstance(span, str) else span
    if not isinstance(document, Mapping):
        raise ValueError("it is no JSON object")
    return document


def _evidence(documents: Sequence[Document]) -> Evidence:
    named = list(dict.fromkeys(key for document in documents if (key := session_key_of(document))))
    if len(named) > 1:
        raise ValidationException(
            f"Provided input has spans of {len(named)} sessions ({', '.join(named[:3])}); "
            "evaluate one at a time"
        )
    traces = dict.fromkeys(as_text(document["traceId"]) for document in documents)
    if not named and len(traces) > 1:
        raise ValidationException(
            f"Provided input has {len(traces)} traces and no span says which session they are of: "
            "attribute session.id is missing"
        )
    service = next((name for document in documents if (name := service_of(document))), "")
    evidence = evidence_of_documents(documents, session_id=[*named, *traces][0], service=service)
    if evidence is None:
        raise ValidationException("Provided input has no spans with supported scope")
    return evidence


def _reference(evidence: Evidence, references: Sequence[Members]) -> Reference:
    turns = {trace.id: number for number, trace in enumerate(evidence.traces)}
    if violations := list(_reference_violations(evidence, references, turns)):
        raise validation_error(violations)
    assertions, trajectory, responses = list[str](), None, dict[int, str]()
    for entry in references:
        about = entry["context"]["spanContext"]
        assertions += [each["text"] for each in entry.get("assertions") or ()]
        if entry.get("expectedTrajectory") is not None:
            trajectory = entry["expectedTrajectory"].get("toolNames") or []
        if entry.get("expectedResponse") is not None:
            # Without a trace ID there is only one trace.
            turn = turns[about["traceId"].lower()] if about.get("traceId") else 0
            responses[turn] = entry["expectedResponse"]["text"]
    return Reference(assertions=assertions, trajectory=trajectory, responses=responses)


def _reference_violations(
    evidence: Evidence, references: Sequence[Members], turns: Mapping[str, int]
) -> Iterator[ShapeProblem]:
    for number, entry in enumerate(references, start=1):
        name = f"evaluationReferenceInputs.{number}.member.context.spanContext"
        about = entry["context"]["spanContext"]
        if about["sessionId"] != evidence.session_id:
            yield ShapeProblem(f"{name}.sessionId", "Member must be the session of the provided spans")
        if about.get("traceId") and about["traceId"].lower() not in turns:
            yield ShapeProblem(f"{name}.traceId", "Member must be a trace of the provided spans")
        if entry.get("expectedResponse") is not None and not about.get("traceId") and len(turns) > 1:
            yield ShapeProblem(f"{name}.traceId", "Member must not be null where there are several traces")


MOST_RESULTS = 10
"""Targets evaluated in one call: the last ones."""
MOST_TEXT = 2048
TARGETS = {"trace": "traceIds", "tool_call": "spanIds"}


async def evaluate(service: Service, request: Members) -> JsonMap:
    """Evaluate a session, or share the response of an identical request in progress."""
    key = await run_in_threadpool(lambda: digest_of(dict(request)))
    task = service.evaluations_in_progress.get(key)
    if task is None:
        task = asyncio.create_task(_evaluate(service, request))
        service.evaluations_in_progress[key] = task
        task.add_done_callback(lambda _: service.evaluations_in_progress.pop(key, None))
    # A client that disconnects must not cancel it for the others.
    return await asyncio.shield(task)


OPERATIONS = (operation("Evaluate", evaluate, most_bytes="evaluate_bytes"),)


async def _evaluate(service: Service, request: Members) -> JsonMap:
    evaluator_id = request["evaluatorId"]
    deadline = asyncio.get_running_loop().time() + service.limits.evaluate_seconds
    evaluator = await run_in_threadpool(evaluator_named, service, evaluator_id)
    evidence = await run_in_threadpool(
        evidence_of_spans,
        request["evaluationInput"]["sessionSpans"],
        request.get("evaluationReferenceInputs") or (),
    )
    targets = _targets(evaluator, evidence, request.get("evaluationTarget") or {})
    scores = await _judge_targets(evaluator, evidence, targets, deadline)
    return {"evaluationResults": [_result(service, evaluator_id, evidence, score) for score in scores]}


def evaluator_named(service: Service, evaluator_id: str) -> Evaluator:
    """An evaluator with the settings of the server; raises when it cannot be used here."""
    settings = EvaluationSettings(
        judge_model=service.judge,
        harmful_value=service.harmful_value,
        lambdas=service.site.evaluation.get("lambdas", {}),
        model_names=service.site.evaluation.get("models", {}),
        folder=service.site.folder,
        environment=visible(service.site.environment),
        attempt=f"evaluate-{evaluator_id}",
    )
    try:
        return find_evaluator(
            evaluator_id,
            models=service.models,
            settings=settings,
            definitions=service.definitions.document,
        )
    except NotFound as error:
        raise ResourceNotFoundException(str(error).partition("\n")[0]) from error


def _targets(evaluator: Evaluator, evidence: Evidence, requested: Members) -> list[EvaluationTarget]:
    """Targets to evaluate, oldest first. Raises for targets of another level and for missing ones."""
    member = TARGETS.get(evaluator.level)
    for name in requested:
        if name != member:
            rather = f"{member}" if member else "absent"
            raise validation_error(
                [ShapeProblem("evaluationTarget", f"Member must be {rather} for this evaluator")]
            )
    ids = [each.lower() for each in requested.get(member or "", ())]
    targets = targets_of(replace(evidence, targets=frozenset(ids)), evaluator.level)
    missing = [each for each in ids if each not in {target.id for target in targets}]
    if missing:
        raise validation_error(
            [
                ShapeProblem(
                    f"evaluationTarget.{member}", f"Member must be in the provided spans: {missing[0]}"
                )
            ]
        )
    if not targets:
        raise ValidationException("no spans to evaluate")
    return targets


async def _judge_targets(
    evaluator: Evaluator, evidence: Evidence, targets: Sequence[EvaluationTarget], deadline: float
) -> list[Score]:
    """Scores of the last targets that have any: some evaluators skip most targets."""
    results: list[Sequence[Score]] = []
    left = list(targets)
    while left and len(results) < MOST_RESULTS:
        left, some = left[:-MOST_RESULTS], left[-MOST_RESULTS:]
        judged = await _judge_all(evaluator, evidence, some, deadline)
        results = [scores for scores in judged if scores] + results
    return [score for scores in results[-MOST_RESULTS:] for score in scores]


async def _judge_all(
    evaluator: Evaluator, evidence: Evidence, targets: Sequence[EvaluationTarget], deadline: float
) -> list[Sequence[Score]]:
    tasks = [asyncio.create_task(_judge(evaluator, evidence, target)) for target in targets]
    try:
        await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        return [
            task.result()
            if task.done()
            else [failed_score(evaluator, "the judging took too long", "TimeoutException", target=target.id)]
            for task, target in zip(tasks, targets, strict=True)
        ]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _judge(evaluator: Evaluator, evidence: Evidence, target: EvaluationTarget) -> Sequence[Score]:
    only = frozenset({target.id}) if target.id else frozenset[str]()
    try:
        return await evaluator.judge(replace(evidence, targets=only))
    except AttemptError as error:
        return [failed_score(evaluator, error, target=target.id)]


def _result(service: Service, evaluator_id: str, evidence: Evidence, score: Score) -> JsonObject:
    members: JsonObject = {
        "evaluatorArn": service.names.arn(EVALUATOR_NAMES, evaluator_id),
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
        return members | {
            "errorCode": (score.error_code or "InternalServerException")[:1024],
            # Providers may quote the rejected key.
            "errorMessage": service.redact(score.error)[:MOST_TEXT],
        }
    verdict = {
        "evaluationDimensionName": score.dimension,
        "explanation": score.explanation[:MOST_TEXT],
        "label": score.label,
    }
    members |= {name: text for name, text in verdict.items() if text}
    return members | ({"value": score.value} if score.value is not None else {})


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
