"""Batch evaluations: start, look at, list, stop and delete them.

Starting writes the job down, has a process of its own carry it out, and answers at once. Everything else is a
question to the store, so jobs that were started from a command line are seen as well.
"""

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from proctor import __version__
from proctor.errors import NotFound
from proctor.evaluators.insight import CATEGORIES, FAILURES, FIELDS, INTENT, SUMMARY, family_of, kind_of
from proctor.jobs.evaluation.online import copies_of, is_online, online_source
from proctor.jobs.evaluation.request import EvaluationRequest, named
from proctor.jobs.evaluation.results import insight_findings, results_of
from proctor.jobs.evaluation.state import (
    FAILED,
    PENDING,
    EvaluationState,
    delete_evaluation,
    evaluation_of,
    evaluations_page,
    open_evaluation,
    page_mark,
    stop_evaluation,
)
from proctor.stats.evaluation import Cluster, EvaluatorResult, InsightFinding, bare, clusters
from proctor.store import evaluations
from proctor.web.agentcore import service as paging
from proctor.web.agentcore.errors import ResourceNotFoundException, ServiceQuotaExceededException, told
from proctor.web.agentcore.operation import Operation
from proctor.web.agentcore.request_shapes import ONE_JOB, START
from proctor.web.agentcore.rules import (
    collected,
    known_evaluators,
    output_flaws,
    something_to_judge,
    source_flaws,
)
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import EVALUATOR_ID, PAGING, Members, ShapeProblem

# What the insights of a job found, in the members of this interface.


SESSION_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-_]{0,99}")
"""Session ids that samples may name; sessions of any other are counted all the same."""


MOST_SAMPLES, MOST_CAUSES, MOST_RESULTS = 10, 50, 50


UNSAID = "not said"
"""In place of a detail that the judge left out and the interface asks for."""


def insight_flaws(asked: Members) -> Iterable[ShapeProblem]:
    """Every insight must be one there is."""
    for number, name in enumerate(named(asked, "insights"), start=1):
        if name not in FIELDS:
            yield ShapeProblem(
                f"insights.{number}.member.insightId", f"Member must be one of: {', '.join(sorted(FIELDS))}"
            )


def insight_members(service: Service, job: EvaluationState, created_at: str) -> Mapping[str, Any]:
    """What insights found so far; nothing for a job that was asked for none."""
    asked, members = named(job.document, "insights"), dict[str, Any]()
    read = service.store.read
    if FAILURES in asked:
        failures = insight_findings(read, job.run_id, FAILURES)
        members["insightResults"] = _results(failures, created_at)
        members["failureAnalysisResult"] = {"failures": [_family(each) for each in _families(failures)]}
    if INTENT in asked:
        found = clusters(insight_findings(read, job.run_id, INTENT), _name)
        members["userIntentResult"] = {"userIntents": [_intent(each) for each in found]}
    if SUMMARY in asked:
        found = clusters(insight_findings(read, job.run_id, SUMMARY), _name)
        members["executionSummaryResult"] = {"executionSummaries": [_insight_summary(each) for each in found]}
    return members


def _name(finding: InsightFinding) -> str:
    return bare(finding.label)


def _category(finding: InsightFinding) -> str:
    return finding.label


def _cause(finding: InsightFinding) -> str:
    return bare(finding.text("root_cause_name")) or bare(finding.text("root_cause"))


def _families(failures: list[InsightFinding]) -> list[Cluster]:
    return clusters(failures, lambda finding: family_of(finding.label))


def _head(cluster: Cluster, name: str, description: str) -> dict[str, Any]:
    return {
        "clusterId": cluster.id,
        "name": name,
        "description": description or UNSAID,
        "affectedSessionCount": cluster.sessions,
    }


def _family(cluster: Cluster) -> dict[str, Any]:
    kinds = clusters(cluster.findings, _category)
    meanings = "; ".join(CATEGORIES[each.key] for each in kinds)
    return {**_head(cluster, cluster.key, meanings), "subCategories": [_kind(each) for each in kinds]}


def _kind(cluster: Cluster) -> dict[str, Any]:
    head = _head(cluster, kind_of(cluster.key), CATEGORIES[cluster.key])
    return {**head, "rootCauses": [_root_cause(each) for each in clusters(cluster.findings, _cause)]}


def _root_cause(cluster: Cluster) -> dict[str, Any]:
    first = cluster.first
    return {
        "clusterId": cluster.id,
        "name": first.text("root_cause_name") or UNSAID,
        "rootCause": first.text("root_cause") or UNSAID,
        "recommendation": first.text("recommendation") or UNSAID,
        "affectedSessionCount": cluster.sessions,
        "affectedSessions": [_affected(finding) for finding in cluster.findings],
    }


def _affected(finding: InsightFinding) -> dict[str, Any]:
    signal = {
        "category": finding.label,
        "evidence": finding.text("evidence") or UNSAID,
        "confidence": _confidence(finding),
    }
    return {
        "sessionId": finding.session,
        "explanation": finding.text("root_cause") or UNSAID,
        "fixType": finding.text("fix_type") or UNSAID,
        "recommendation": finding.text("recommendation") or UNSAID,
        "failureSpans": [
            {"spanId": finding.text("spanId"), "traceId": finding.text("traceId"), "signals": [signal]}
        ],
    }


def _results(failures: list[InsightFinding], created_at: str) -> list[dict[str, Any]]:
    """Each category that failed, with samples and causes."""
    return [
        {
            "type": "FAILURE",
            "name": f"{family_of(each.key)}: {kind_of(each.key)}"[:200],
            "description": CATEGORIES[each.key],
            "createdAt": created_at,
            "affectedSessionCount": each.sessions,
            "sampleSessions": _samples(each),
            "rootCauses": [_insight_cause(cause) for cause in clusters(each.findings, _cause)[:MOST_CAUSES]],
        }
        for each in clusters(failures, _category)[:MOST_RESULTS]
    ]


def _insight_cause(cluster: Cluster) -> dict[str, Any]:
    first = cluster.first
    return {
        "name": (first.text("root_cause_name") or UNSAID)[:200],
        "explanation": (first.text("root_cause") or UNSAID)[:4000],
        "affectedSessionCount": cluster.sessions,
        "suggestedFix": (first.text("recommendation") or UNSAID)[:4000],
        "sampleSessions": _samples(cluster),
    }


def _samples(cluster: Cluster) -> list[dict[str, Any]]:
    named_so = [finding for finding in cluster.findings if SESSION_ID.fullmatch(finding.session)]
    return [
        {
            "sessionId": finding.session,
            "findings": [
                {
                    "description": (finding.text("evidence") or UNSAID)[:500],
                    "category": finding.label[:100],
                    "confidence": _confidence(finding),
                    **_target(finding),
                }
            ],
        }
        for finding in named_so[:MOST_SAMPLES]
    ]


def _target(finding: InsightFinding) -> dict[str, str]:
    trace, span = finding.text("traceId"), finding.text("spanId")
    return {"targetId": span[:50], "targetType": "TRACE_ID" if span == trace else "SPAN_ID"}


def _confidence(finding: InsightFinding) -> float:
    said = finding.details.get("confidence")
    return float(said) if isinstance(said, int | float) else 0.0


def _intent(cluster: Cluster) -> dict[str, Any]:
    return {
        **_head(cluster, cluster.first.label, cluster.first.text("description")),
        "affectedSessions": [
            {"sessionId": finding.session, "userMessages": list(finding.details.get("userMessages") or ())}
            for finding in cluster.findings
        ],
    }


def _insight_summary(cluster: Cluster) -> dict[str, Any]:
    return {
        **_head(cluster, cluster.first.label, cluster.first.text("approach_taken")),
        "affectedSessions": [
            {
                "sessionId": finding.session,
                "approachTaken": finding.text("approach_taken") or UNSAID,
                "finalOutcome": finding.text("final_outcome") or UNSAID,
            }
            for finding in cluster.findings
        ],
    }


# What a job came to, in the members of this interface.


def results_members(service: Service, job: EvaluationState, told_at: str) -> Mapping[str, Any]:
    """The results of a job as far as it is; none before its sessions are known."""
    if job.state == PENDING or not (job.sessions_found or job.is_finished):
        return {}
    if not service.store.data_keys.can_open(job.run_id):
        # Sealed under a key of its own, which is not there any more: the rest is told all the same.
        return {}
    results, insights = results_of(service.store, job.run_id), named(job.document, "insights")
    return {
        "evaluationResults": {
            "numberOfSessionsCompleted": results.completed,
            "numberOfSessionsInProgress": results.in_progress,
            "numberOfSessionsFailed": results.failed,
            "totalNumberOfSessions": results.total,
            "numberOfSessionsIgnored": results.ignored,
            # What insights find is no score: it is told beside.
            "evaluatorSummaries": [
                _result_summary(result) for result in results.summaries if result.asked_as not in insights
            ],
        },
        **insight_members(service, job, told_at),
    }


def _result_summary(result: EvaluatorResult) -> dict[str, Any]:
    average = result.average.value
    return {
        "evaluatorId": result.asked_as,
        **({"evaluationDimensionName": result.dimension} if result.dimension else {}),
        "statistics": {} if average is None else {"averageScore": average},
        "totalEvaluated": result.evaluated,
        "totalFailed": result.failed,
    }


MOST_SESSIONS = 500
"""Sessions of one job; of more, the most recent ones are judged."""


ASKED = ("evaluators", "insights", "description", "kmsKeyArn")
"""Members that are told as they were given, wherever a job is told of."""


WIRE_SOURCES = ("cloudWatchLogs", "onlineEvaluationConfigSource")


_counting = threading.Lock()


def start(service: Service, asked: Members) -> Mapping[str, Any]:
    """Start a job; with a token that is known, tell of the one it started."""
    flaws = collected(
        something_to_judge(asked, with_insights=True),
        insight_flaws(asked),
        known_evaluators(service, asked),
        source_flaws(asked),
        _online_flaws(service, asked),
        output_flaws(asked),
    )
    if flaws:
        raise told(flaws)
    tags = asked.get("tags", {})
    request = EvaluationRequest.from_document(
        {**asked, **service.judging, "maxSessions": MOST_SESSIONS},
        online_source=online_source(service.store),
    )
    names = named(asked, "evaluators")
    # Counted and opened in one go: of two that come at once, the second must count the first.
    with _counting:
        _check_quotas(service, request.client_token)
        job = open_evaluation(
            service.store,
            request,
            now=service.now,
            version=__version__,
            region=service.names.region,
            account=service.names.account,
            definitions=copies_of(service.store, names),
            is_detached=True,
        )
    if job.is_new:
        if tags:
            service.store.definitions.tag(job.arn, tags)
        service.start(job.id)
    return {
        **_identity(job),
        "batchEvaluationName": job.name,
        "status": job.state,
        "createdAt": moment_text(job.created_at),
        **_as_asked(job),
        "outputConfig": _output(job),
        **({"tags": tags} if tags else {}),
    }


def get(service: Service, asked: Members) -> Mapping[str, Any]:
    """A job as it stands, with what it came to so far."""
    job = _job(service, asked)
    source = job.document.get("dataSourceConfig") or {}
    return {
        **_summary(job),
        # A job of our own may have another source, which the client's union does not know.
        **({"dataSourceConfig": source} if set(source) <= set(WIRE_SOURCES) else {}),
        "outputConfig": _output(job),
        **results_members(service, job, moment_text(job.updated_at)),
    }


def list_all(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of the jobs, newest first; what each came to is told of one at a time, by Get."""
    limit = asked.get("maxResults", paging.PAGE)
    key = paging.key_of("jobs", asked.get("nextToken"), str, str)
    found = _listed(service, (key[0], key[1]) if key else None, limit + 1)
    answer: dict[str, Any] = {"batchEvaluations": [_summary(job) for job in found[:limit]]}
    if len(found) > limit:
        answer["nextToken"] = paging.page_token_of("jobs", page_mark(found[limit - 1]))
    return answer


def stop(service: Service, asked: Members) -> Mapping[str, Any]:
    """Ask a job to stop. What is judged already stays."""
    job = stop_evaluation(service.store, _job(service, asked).id, service.site.now)
    return {
        **_identity(job),
        "status": job.state,
        **({"description": job.document["description"]} if job.document.get("description") else {}),
    }


def delete(service: Service, asked: Members) -> Mapping[str, Any]:
    """Take a finished job off the list. Its results stay readable."""
    job = delete_evaluation(service.store, _job(service, asked).id, service.now)
    return {**_identity(job), "status": job.state}


OPERATIONS = (
    Operation(
        name="StartBatchEvaluation",
        method="POST",
        path="/evaluations/batch-evaluate",
        status=202,
        shape=START,
        answer=start,
    ),
    Operation(
        name="GetBatchEvaluation",
        method="GET",
        path="/evaluations/batch-evaluate/{batchEvaluationId}",
        shape=ONE_JOB,
        answer=get,
    ),
    Operation(
        name="ListBatchEvaluations",
        method="GET",
        path="/evaluations/batch-evaluate",
        shape=PAGING,
        query=("maxResults", "nextToken"),
        answer=list_all,
    ),
    Operation(
        name="StopBatchEvaluation",
        method="POST",
        path="/evaluations/batch-evaluate/{batchEvaluationId}/stop",
        status=202,
        shape=ONE_JOB,
        answer=stop,
    ),
    Operation(
        name="DeleteBatchEvaluation",
        method="DELETE",
        path="/evaluations/batch-evaluate/{batchEvaluationId}",
        status=202,
        shape=ONE_JOB,
        answer=delete,
    ),
)


def moment_text(at: datetime) -> str:
    """A time as the data plane tells it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _job(service: Service, asked: Members) -> EvaluationState:
    job = evaluation_of(service.store, asked["batchEvaluationId"], service.now)
    if job.state == FAILED and not job.error_details:
        # It failed between two looks at it; the reason was written down before the failure.
        job = evaluation_of(service.store, job.id, service.now)
    # The command line takes the beginning of an id; here it is the whole or nothing.
    if job.id != asked["batchEvaluationId"] or is_online(job.document):
        raise ResourceNotFoundException(f"There is no batch evaluation {asked['batchEvaluationId']}.")
    return job


def _listed(service: Service, after: tuple[str, str] | None, limit: int) -> list[EvaluationState]:
    """Jobs that callers started: what online configurations judge is told of elsewhere."""
    found: list[EvaluationState] = []
    while len(found) < limit:
        page = evaluations_page(service.store, service.now, after=after, limit=limit)
        found += [job for job in page if not is_online(job.document)]
        if len(page) < limit:
            break
        after = page_mark(page[-1])
    return found[:limit]


def _online_flaws(service: Service, asked: Members) -> Iterator[ShapeProblem]:
    source = asked["dataSourceConfig"].get("onlineEvaluationConfigSource")
    if source is not None:
        arn = source["onlineEvaluationConfigArn"]
        try:
            online_source(service.store)(arn)
        except NotFound:
            yield ShapeProblem(
                "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn",
                "Member must be the ARN of an online evaluation configuration that is there",
            )


def _check_quotas(service: Service, client_token: str) -> None:
    read, limits = service.store.read, service.limits
    if evaluations.is_token_used(read, client_token):
        return
    unfinished = evaluations.unfinished_evaluations(read)
    active = sum(not is_online(json.loads(row["requestJson"])) for row in unfinished)
    if active >= limits.active_jobs:
        raise ServiceQuotaExceededException(
            f"There may be {limits.active_jobs} active batch evaluations; wait for one to end, or stop one."
        )
    if evaluations.count_evaluations(read) >= limits.jobs:
        raise ServiceQuotaExceededException(f"There may be {limits.jobs} batch evaluations; delete some.")


def _identity(job: EvaluationState) -> dict[str, Any]:
    return {"batchEvaluationId": job.id, "batchEvaluationArn": job.arn}


def _summary(job: EvaluationState) -> dict[str, Any]:
    return {
        **_identity(job),
        "batchEvaluationName": job.name,
        "status": job.state,
        "createdAt": moment_text(job.created_at),
        "updatedAt": moment_text(job.updated_at),
        **_as_asked(job),
        **({"errorDetails": [job.error_details[0][:1000]]} if job.error_details else {}),
    }


def _as_asked(job: EvaluationState) -> dict[str, Any]:
    asked = {name: job.document[name] for name in ASKED if job.document.get(name)}
    if asked.get("evaluators"):
        # The command line takes files and functions as well, which no member of this interface can name.
        asked["evaluators"] = [
            {"evaluatorId": name} for name in job.evaluators if re.fullmatch(EVALUATOR_ID, name)
        ]
    return asked


def _output(job: EvaluationState) -> dict[str, Any]:
    given = (job.document.get("outputConfig") or {}).get("cloudWatchConfig") or {}
    place = {"logGroupName": job.output_group, "logStreamName": job.output_stream}
    return {"cloudWatchConfig": {**given, **place}}
