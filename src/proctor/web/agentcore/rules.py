"""What the service asks of a request beyond the shape of its members.

Each function gives what is wrong, so that a request hears of everything at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from proctor.web.agentcore.evaluators import managed
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import ShapeProblem, moment_of

MANAGED_GROUPS = "/aws/bedrock-agentcore/evaluations/"
"""Log groups below this belong to the service; nobody chooses one for results."""


DEFAULT_GROUP = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"


def something_to_judge(asked: Mapping[str, Any], *, with_insights: bool = False) -> Iterator[ShapeProblem]:
    """There must be an evaluator, or an insight where those are found."""
    if asked.get("insights") and not with_insights:
        yield ShapeProblem("insights", "Member must be empty: insights are found by batch evaluations alone")
    if not (asked.get("evaluators") or (with_insights and asked.get("insights"))):
        yield ShapeProblem("evaluators", "Member must have length greater than or equal to 1")


def known_evaluators(service: Service, asked: Mapping[str, Any]) -> Iterator[ShapeProblem]:
    """Every evaluator must be there."""
    for number, entry in enumerate(asked.get("evaluators") or (), start=1):
        if not is_known(service, entry["evaluatorId"]):
            yield ShapeProblem(
                f"evaluators.{number}.member.evaluatorId",
                f"Member must be the id of an evaluator; there is no {entry['evaluatorId']}",
            )


def is_known(service: Service, evaluator_id: str) -> bool:
    """Whether there is an evaluator by this id."""
    return evaluator_id in managed() or service.store.definitions.document(evaluator_id) is not None


def source_flaws(asked: Mapping[str, Any]) -> Iterator[ShapeProblem]:
    """Log groups are named, or their beginnings are, and a time range runs forward."""
    config = asked.get("dataSourceConfig") or {}
    source = config.get("cloudWatchLogs")
    if source is not None:
        name = "dataSourceConfig.cloudWatchLogs"
        given = [part for part in ("logGroupNames", "logGroupNamePrefixes") if source.get(part)]
        if len(given) != 1:
            yield ShapeProblem(name, "Member must have exactly one of: logGroupNames, logGroupNamePrefixes")
        span = (source.get("filterConfig") or {}).get("timeRange")
        yield from _range_flaws(span, f"{name}.filterConfig.timeRange")
    online = config.get("onlineEvaluationConfigSource")
    if online is not None:
        yield from _range_flaws(
            online.get("timeRange"), "dataSourceConfig.onlineEvaluationConfigSource.timeRange"
        )


def output_flaws(asked: Mapping[str, Any]) -> Iterator[ShapeProblem]:
    """Results go to a group of the caller's own, or of the sessions', or to the service's default."""
    given = (asked.get("outputConfig") or {}).get("cloudWatchConfig") or {}
    name = "outputConfig.cloudWatchConfig"
    group = given.get("logGroupName") or ""
    if group.startswith(MANAGED_GROUPS) and group != DEFAULT_GROUP:
        yield ShapeProblem(f"{name}.logGroupName", f"Member must not begin with {MANAGED_GROUPS}")
    if group and given.get("resultDestination") == "SOURCE_LOG_GROUP":
        yield ShapeProblem(
            f"{name}.logGroupName", "Member must be absent when resultDestination is SOURCE_LOG_GROUP"
        )
    if (given.get("metricsNamespace") or "").startswith("AWS/"):
        yield ShapeProblem(f"{name}.metricsNamespace", "Member must not begin with AWS/")


def collected(*findings: Iterable[ShapeProblem]) -> list[ShapeProblem]:
    """All that is wrong."""
    return [flaw for finding in findings for flaw in finding]


def _range_flaws(span: Mapping[str, Any] | None, name: str) -> Iterator[ShapeProblem]:
    start, end = (moment_of((span or {}).get(part)) for part in ("startTime", "endTime"))
    if start and end and start >= end:
        yield ShapeProblem(name, "Member must have a startTime before its endTime")
