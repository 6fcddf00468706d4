"""What a job came to, in the members of this interface."""

from collections.abc import Mapping
from typing import Any

from proctor.analyse.evaluation import EvaluatorResult, results_of
from proctor.batch.evaluation import PENDING, Evaluation
from proctor.plan.evaluation import named
from proctor.web.agentcore.insights import insight_members
from proctor.web.agentcore.service import Service


def results_members(service: Service, job: Evaluation, told_at: str) -> Mapping[str, Any]:
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
                _summary(result) for result in results.summaries if result.asked_as not in insights
            ],
        },
        **insight_members(service, job, told_at),
    }


def _summary(result: EvaluatorResult) -> dict[str, Any]:
    average = result.average.value
    return {
        "evaluatorId": result.asked_as,
        **({"evaluationDimensionName": result.dimension} if result.dimension else {}),
        "statistics": {} if average is None else {"averageScore": average},
        "totalEvaluated": result.evaluated,
        "totalFailed": result.failed,
    }
