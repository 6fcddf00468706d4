"""Operations on batch evaluations: start, get, list, stop, delete.

Starting writes the evaluation to the store and detaches a process. The other operations read the store, so
they also show evaluations that were started from the command line.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from proctor.agentcore import service as paging
from proctor.agentcore.errors import WireError, validation_error
from proctor.agentcore.evaluate import evaluator_named
from proctor.agentcore.evaluators import is_known, known_evaluators
from proctor.agentcore.operation import operation
from proctor.agentcore.request_rules import (
    collected,
    output_violations,
    something_to_judge,
    source_violations,
)
from proctor.agentcore.service import Service
from proctor.agentcore.service_model import operation_model
from proctor.agentcore.shapes import Members, ShapeProblem
from proctor.api import evaluation
from proctor.api.evaluation import (
    Cluster,
    EvaluationState,
    EvaluatorResult,
    InsightFinding,
    bare,
    clusters,
    named,
)
from proctor.api.logs import root_spans
from proctor.errors import NotFound, UsageError
from proctor.evaluator import judges_of
from proctor.evaluators.model_judge import CATEGORIES, FAILURES, FIELDS, INTENT, SUMMARY, family_of, kind_of
from proctor.json_values import JsonMap, JsonObject, as_map

SESSION_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-_]{0,99}")
"""Session IDs that samples may contain; other sessions are only counted."""
MOST_SAMPLES, MOST_CAUSES, MOST_RESULTS = 10, 50, 50
MISSING = "not said"
"""Value of a required member that the judge left out."""


def insight_violations(request: Members) -> Iterable[ShapeProblem]:
    """Every insight exists."""
    for number, name in enumerate(named(request, "insights"), start=1):
        if name not in FIELDS:
            yield ShapeProblem(
                f"insights.{number}.member.insightId", f"Member must be one of: {', '.join(sorted(FIELDS))}"
            )


def insight_members(service: Service, job: EvaluationState, created_at: str) -> JsonMap:
    """Findings of the requested insights so far."""
    requested, members = named(job.document, "insights"), JsonObject()
    find = partial(evaluation.insight_findings, service.context, job.run_id)
    if FAILURES in requested:
        failures = find(FAILURES)
        members["insightResults"] = _results(failures, created_at)
        located = _with_spans(service, failures)
        members["failureAnalysisResult"] = {"failures": [_family(each) for each in _families(located)]}
    if INTENT in requested:
        found_clusters = clusters(find(INTENT), _name)
        members["userIntentResult"] = {"userIntents": [_intent(each) for each in found_clusters]}
    if SUMMARY in requested:
        found_clusters = clusters(find(SUMMARY), _name)
        members["executionSummaryResult"] = {
            "executionSummaries": [_insight_summary(each) for each in found_clusters]
        }
    return members


def _with_spans(service: Service, failures: list[InsightFinding]) -> list[InsightFinding]:
    """Failures with the outermost span of their trace where the judge named no tool."""
    whole = [each for each in failures if each.text("spanId") == each.text("traceId")]
    roots = root_spans(service.context, [each.text("traceId") for each in whole])
    return [
        replace(each, details={**each.details, "spanId": roots[each.text("traceId")]})
        if each in whole and each.text("traceId") in roots
        else each
        for each in failures
    ]


def _name(finding: InsightFinding) -> str:
    return bare(finding.label)


def _category(finding: InsightFinding) -> str:
    return finding.label


def _cause(finding: InsightFinding) -> str:
    return bare(finding.text("root_cause_name")) or bare(finding.text("root_cause"))


def _families(failures: list[InsightFinding]) -> list[Cluster]:
    return clusters(failures, lambda finding: family_of(finding.label))


def _head(cluster: Cluster, name: str, description: str) -> JsonObject:
    return {
        "clusterId": cluster.id,
        "name": name,
        "description": description or MISSING,
        "affectedSessionCount": cluster.sessions,
    }


def _family(cluster: Cluster) -> JsonObject:
    kinds = clusters(cluster.findings, _category)
    meanings = "; ".join(CATEGORIES[each.key] for each in kinds)
    return {**_head(cluster, cluster.key, meanings), "subCategories": [_kind(each) for each in kinds]}


def _kind(cluster: Cluster) -> JsonObject:
    head = _head(cluster, kind_of(cluster.key), CATEGORIES[cluster.key])
    return {**head, "rootCauses": [_root_cause(each) for each in clusters(cluster.findings, _cause)]}


def _root_cause(cluster: Cluster) -> JsonObject:
    first = cluster.first
    return {
        "clusterId": cluster.id,
        "name": first.text("root_cause_name") or MISSING,
        "rootCause": first.text("root_cause") or MISSING,
        "recommendation": first.text("recommendation") or MISSING,
        "affectedSessionCount": cluster.sessions,
        "affectedSessions": [_affected(finding) for finding in cluster.findings],
    }


def _affected(finding: InsightFinding) -> JsonObject:
    signal = {
        "category": finding.label,
        "evidence": finding.text("evidence") or MISSING,
        "confidence": _confidence(finding),
    }
    return {
        "sessionId": finding.session,
        "explanation": finding.text("root_cause") or MISSING,
        "fixType": finding.text("fix_type") or MISSING,
        "recommendation": finding.text("recommendation") or MISSING,
        "failureSpans": [
            {"spanId": finding.text("spanId"), "traceId": finding.text("traceId"), "signals": [signal]}
        ],
    }


def _results(failures: list[InsightFinding], created_at: str) -> list[JsonObject]:
    """Failure categories with samples and causes."""
    return [
        {
            "type": "FAILURE",
            "name": f"{family_of(cluster.key)}: {kind_of(cluster.key)}"[:200],
            "description": CATEGORIES[cluster.key],
            "createdAt": created_at,
            "affectedSessionCount": cluster.sessions,
            "sampleSessions": _samples(cluster),
            "rootCauses": [
                _insight_cause(cause) for cause in clusters(cluster.findings, _cause)[:MOST_CAUSES]
            ],
        }
        for cluster in clusters(failures, _category)[:MOST_RESULTS]
    ]


def _insight_cause(cluster: Cluster) -> JsonObject:
    first = cluster.first
    return {
        "name": (first.text("root_cause_name") or MISSING)[:200],
        "explanation": (first.text("root_cause") or MISSING)[:4000],
        "affectedSessionCount": cluster.sessions,
        "suggestedFix": (first.text("recommendation") or MISSING)[:4000],
        "sampleSessions": _samples(cluster),
    }


def _samples(cluster: Cluster) -> list[JsonObject]:
    valid = [finding for finding in cluster.findings if SESSION_ID.fullmatch(finding.session)]
    return [
        {
            "sessionId": finding.session,
            "findings": [
                {
                    "description": (finding.text("evidence") or MISSING)[:500],
                    "category": finding.label[:100],
                    "confidence": _confidence(finding),
                    **_target(finding),
                }
            ],
        }
        for finding in valid[:MOST_SAMPLES]
    ]


def _target(finding: InsightFinding) -> dict[str, str]:
    trace, span = finding.text("traceId"), finding.text("spanId")
    return {"targetId": span[:50], "targetType": "TRACE_ID" if span == trace else "SPAN_ID"}


def _confidence(finding: InsightFinding) -> float:
    confidence = finding.details.get("confidence")
    return float(confidence) if isinstance(confidence, int | float) else 0.0


def _intent(cluster: Cluster) -> JsonObject:
    return {
        **_head(cluster, cluster.first.label, cluster.first.text("description")),
        "affectedSessions": [
            {"sessionId": finding.session, "userMessages": list(finding.details.get("userMessages") or ())}
            for finding in cluster.findings
        ],
    }


def _insight_summary(cluster: Cluster) -> JsonObject:
    return {
        **_head(cluster, cluster.first.label, cluster.first.text("approach_taken")),
        "affectedSessions": [
            {
                "sessionId": finding.session,
                "approachTaken": finding.text("approach_taken") or MISSING,
                "finalOutcome": finding.text("final_outcome") or MISSING,
            }
            for finding in cluster.findings
        ],
    }


def results_members(service: Service, job: EvaluationState, updated_at: str) -> JsonMap:
    """Results of an evaluation so far; none before its sessions are discovered."""
    results = evaluation.results_so_far(service.context, job)
    if results is None:
        return {}
    insights = named(job.document, "insights")
    return {
        "evaluationResults": {
            "numberOfSessionsCompleted": results.completed,
            "numberOfSessionsInProgress": results.in_progress,
            "numberOfSessionsFailed": results.failed,
            "totalNumberOfSessions": results.total,
            "numberOfSessionsIgnored": results.ignored,
            # Insights are not scores; they have their own members.
            "evaluatorSummaries": [
                _result_summary(result) for result in results.summaries if result.requested_as not in insights
            ],
        },
        **insight_members(service, job, updated_at),
    }


def _result_summary(result: EvaluatorResult) -> JsonObject:
    average = result.average.value
    return {
        "evaluatorId": result.requested_as,
        **({"evaluationDimensionName": result.dimension} if result.dimension else {}),
        "statistics": {} if average is None else {"averageScore": average},
        "totalEvaluated": result.evaluated,
        "totalFailed": result.failed,
    }


MOST_SESSIONS = 500
"""Maximum sessions of an evaluation: the most recent ones."""
REQUEST_MEMBERS = ("evaluators", "insights", "description", "kmsKeyArn")
"""Members of the request that responses repeat."""
EVALUATOR_ID = operation_model("Evaluate").shape.members["evaluatorId"]
WIRE_SOURCES = ("cloudWatchLogs", "onlineEvaluationConfigSource")


def start(service: Service, request: Members) -> JsonMap:
    """Start an evaluation; a known client token returns the one it started."""
    violations = collected(
        something_to_judge(request),
        insight_violations(request),
        known_evaluators(service, request),
        _judge_violations(service, request),
        source_violations(request),
        _online_violations(service, request),
        output_violations(request),
    )
    if violations:
        raise validation_error(violations)
    tags = request.get("tags", {})
    job = evaluation.start_evaluation(
        service.context,
        {**request, **service.judging, "maxSessions": MOST_SESSIONS},
        region=service.names.region,
        account=service.names.account,
        most_active=service.limits.active_jobs,
        most=service.limits.jobs,
        tags=tags,
    )
    if job.is_new:
        service.start(job.id)
    return {
        **_identity(job),
        "batchEvaluationName": job.name,
        "status": job.state,
        "createdAt": moment_text(job.created_at),
        **_request_members(job),
        "outputConfig": _output(job),
        **({"tags": tags} if tags else {}),
    }


def _judge_violations(service: Service, request: Members) -> Iterator[ShapeProblem]:
    """The judge of every evaluator can be reached here, by its own name or by `[evaluation.models]`."""
    for number, entry in enumerate(request.get("evaluators") or (), start=1):
        name = entry["evaluatorId"]
        if not is_known(service, name):
            continue
        try:
            judges = judges_of(evaluator_named(service, name))
            for model in judges:
                service.models.check(model)
            keys = {model: service.models.missing_key(model) for model in judges}
        except (UsageError, WireError) as error:
            problem = str(error).replace("\n", " ")
        else:
            missing = [
                f"its judge {model} needs a key, and {key} is not set" for model, key in keys.items() if key
            ]
            if not missing:
                continue
            problem = missing[0]
        yield ShapeProblem(
            f"evaluators.{number}.member.evaluatorId",
            f"Member must be an evaluator that can run here: {problem.rstrip('.')}. "
            "[evaluation.models] in proctor.toml maps model ids to models that can be reached.",
        )


def get(service: Service, request: Members) -> JsonMap:
    """Get an evaluation, with its results so far."""
    job = evaluation.batch_evaluation(service.context, request["batchEvaluationId"])
    source = as_map(job.document, "dataSourceConfig")
    return {
        **_summary(job),
        # Other sources are not part of the client's union.
        **({"dataSourceConfig": source} if set(source) <= set(WIRE_SOURCES) else {}),
        "outputConfig": _output(job),
        **results_members(service, job, moment_text(job.updated_at)),
    }


def list_all(service: Service, request: Members) -> JsonMap:
    """List evaluations, newest first, a page at a time; without results."""
    limit = request.get("maxResults", paging.PAGE)
    key = paging.key_of("jobs", request.get("nextToken"), str, str)
    after = (key[0], key[1]) if key else None
    jobs = evaluation.evaluations_page(service.context, after=after, limit=limit + 1, with_online=False)
    answer: JsonObject = {"batchEvaluations": [_summary(job) for job in jobs[:limit]]}
    if len(jobs) > limit:
        answer["nextToken"] = paging.page_token_of("jobs", evaluation.page_mark(jobs[limit - 1]))
    return answer


def stop(service: Service, request: Members) -> JsonMap:
    """Stop an evaluation. Results so far are kept."""
    job = evaluation.batch_evaluation(service.context, request["batchEvaluationId"])
    job = evaluation.stop_evaluation(service.context, job.id)
    return {
        **_identity(job),
        "status": job.state,
        **({"description": job.document["description"]} if job.document.get("description") else {}),
    }


def delete(service: Service, request: Members) -> JsonMap:
    """Remove a finished evaluation from the list. Its results stay readable."""
    job = evaluation.batch_evaluation(service.context, request["batchEvaluationId"])
    job = evaluation.delete_evaluation(service.context, job.id)
    return {**_identity(job), "status": job.state}


OPERATIONS = (
    operation("StartBatchEvaluation", start),
    operation("GetBatchEvaluation", get),
    operation("ListBatchEvaluations", list_all),
    operation("StopBatchEvaluation", stop),
    operation("DeleteBatchEvaluation", delete),
)


def moment_text(at: datetime) -> str:
    """A time in the format of the data plane."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _online_violations(service: Service, request: Members) -> Iterator[ShapeProblem]:
    source = request["dataSourceConfig"].get("onlineEvaluationConfigSource")
    if source is not None:
        arn = source["onlineEvaluationConfigArn"]
        try:
            evaluation.watched_log_groups(service.context, arn)
        except NotFound:
            yield ShapeProblem(
                "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn",
                "Member must be the ARN of an online evaluation configuration that is there",
            )


def _identity(job: EvaluationState) -> JsonObject:
    return {"batchEvaluationId": job.id, "batchEvaluationArn": job.arn}


def _summary(job: EvaluationState) -> JsonObject:
    return {
        **_identity(job),
        "batchEvaluationName": job.name,
        "status": job.state,
        "createdAt": moment_text(job.created_at),
        "updatedAt": moment_text(job.updated_at),
        **_request_members(job),
        **({"errorDetails": [job.error_details[0][:1000]]} if job.error_details else {}),
    }


def _request_members(job: EvaluationState) -> JsonObject:
    members = {name: job.document[name] for name in REQUEST_MEMBERS if job.document.get(name)}
    if members.get("evaluators"):
        # Files and functions cannot be expressed in this interface.
        members["evaluators"] = [
            {"evaluatorId": name} for name in job.evaluators if not any(EVALUATOR_ID.violations(name, ""))
        ]
    return members


def _output(job: EvaluationState) -> JsonObject:
    config = as_map(job.document, "outputConfig", "cloudWatchConfig")
    location = {"logGroupName": job.output_group, "logStreamName": job.output_stream}
    return {"cloudWatchConfig": {**config, **location}}
