"""What the insights of a job found, in the members of this interface.

Knows nothing of how it was found or put together.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from proctor.analyse.insights import Cluster, Finding, bare, clusters, findings_of
from proctor.batch.evaluation import Evaluation
from proctor.evaluators.failure_categories import CATEGORIES, family_of, kind_of
from proctor.evaluators.insight import FAILURES, FIELDS, INTENT, SUMMARY
from proctor.plan.evaluation import named
from proctor.web.agentcore.operation import Members
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Flaw

SESSION_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9-_]{0,99}")
"""Session ids that samples may name; sessions of any other are counted all the same."""
MOST_SAMPLES, MOST_CAUSES, MOST_RESULTS = 10, 50, 50
UNSAID = "not said"
"""In place of a detail that the judge left out and the interface asks for."""


def insight_flaws(asked: Members) -> Iterable[Flaw]:
    """Every insight must be one there is."""
    for number, name in enumerate(named(asked, "insights"), start=1):
        if name not in FIELDS:
            yield Flaw(
                f"insights.{number}.member.insightId", f"Member must be one of: {', '.join(sorted(FIELDS))}"
            )


def insight_members(service: Service, job: Evaluation, created_at: str) -> Mapping[str, Any]:
    """What insights found so far; nothing for a job that was asked for none."""
    asked, members = named(job.document, "insights"), dict[str, Any]()
    read = service.store.read
    if FAILURES in asked:
        failures = findings_of(read, job.run_id, FAILURES)
        members["insightResults"] = _results(failures, created_at)
        members["failureAnalysisResult"] = {"failures": [_family(each) for each in _families(failures)]}
    if INTENT in asked:
        found = clusters(findings_of(read, job.run_id, INTENT), _name)
        members["userIntentResult"] = {"userIntents": [_intent(each) for each in found]}
    if SUMMARY in asked:
        found = clusters(findings_of(read, job.run_id, SUMMARY), _name)
        members["executionSummaryResult"] = {"executionSummaries": [_summary(each) for each in found]}
    return members


def _name(finding: Finding) -> str:
    return bare(finding.label)


def _category(finding: Finding) -> str:
    return finding.label


def _cause(finding: Finding) -> str:
    return bare(finding.text("root_cause_name")) or bare(finding.text("root_cause"))


def _families(failures: list[Finding]) -> list[Cluster]:
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


def _affected(finding: Finding) -> dict[str, Any]:
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


def _results(failures: list[Finding], created_at: str) -> list[dict[str, Any]]:
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


def _target(finding: Finding) -> dict[str, str]:
    trace, span = finding.text("traceId"), finding.text("spanId")
    return {"targetId": span[:50], "targetType": "TRACE_ID" if span == trace else "SPAN_ID"}


def _confidence(finding: Finding) -> float:
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


def _summary(cluster: Cluster) -> dict[str, Any]:
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
