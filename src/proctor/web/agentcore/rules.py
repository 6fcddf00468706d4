"""Validation rules of requests beyond the shape of their members.

Each function yields problems, so that a response lists all of them.
"""

from collections.abc import Iterable, Iterator

from proctor.web.agentcore.evaluators import managed
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Members, ShapeProblem, moment_of

MANAGED_GROUPS = "/aws/bedrock-agentcore/evaluations/"
"""Prefix of the service's own log groups, which a request cannot choose for results."""
DEFAULT_GROUP = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"


def something_to_judge(request: Members, *, with_insights: bool = False) -> Iterator[ShapeProblem]:
    """At least one evaluator, or insight where those are supported."""
    if request.get("insights") and not with_insights:
        yield ShapeProblem("insights", "Member must be empty: insights are found by batch evaluations alone")
    if not (request.get("evaluators") or (with_insights and request.get("insights"))):
        yield ShapeProblem("evaluators", "Member must have length greater than or equal to 1")


def known_evaluators(service: Service, request: Members) -> Iterator[ShapeProblem]:
    """Every evaluator exists."""
    for number, entry in enumerate(request.get("evaluators") or (), start=1):
        if not is_known(service, entry["evaluatorId"]):
            yield ShapeProblem(
                f"evaluators.{number}.member.evaluatorId",
                f"Member must be the id of an evaluator; there is no {entry['evaluatorId']}",
            )


def is_known(service: Service, evaluator_id: str) -> bool:
    """Whether an evaluator with this ID exists."""
    return evaluator_id in managed() or service.store.definitions.document(evaluator_id) is not None


def source_flaws(request: Members) -> Iterator[ShapeProblem]:
    """Log groups are given by name or by prefix, and time ranges are ordered."""
    config = request.get("dataSourceConfig") or {}
    source = config.get("cloudWatchLogs")
    if source is not None:
        name = "dataSourceConfig.cloudWatchLogs"
        named = [part for part in ("logGroupNames", "logGroupNamePrefixes") if source.get(part)]
        if len(named) != 1:
            yield ShapeProblem(name, "Member must have exactly one of: logGroupNames, logGroupNamePrefixes")
        span = (source.get("filterConfig") or {}).get("timeRange")
        yield from _range_flaws(span, f"{name}.filterConfig.timeRange")
    online = config.get("onlineEvaluationConfigSource")
    if online is not None:
        yield from _range_flaws(
            online.get("timeRange"), "dataSourceConfig.onlineEvaluationConfigSource.timeRange"
        )


def output_flaws(request: Members) -> Iterator[ShapeProblem]:
    """Results go to the caller's log group, the group of the sessions, or the default group."""
    output = (request.get("outputConfig") or {}).get("cloudWatchConfig") or {}
    name = "outputConfig.cloudWatchConfig"
    group = output.get("logGroupName") or ""
    if group.startswith(MANAGED_GROUPS) and group != DEFAULT_GROUP:
        yield ShapeProblem(f"{name}.logGroupName", f"Member must not begin with {MANAGED_GROUPS}")
    if group and output.get("resultDestination") == "SOURCE_LOG_GROUP":
        yield ShapeProblem(
            f"{name}.logGroupName", "Member must be absent when resultDestination is SOURCE_LOG_GROUP"
        )
    if (output.get("metricsNamespace") or "").startswith("AWS/"):
        yield ShapeProblem(f"{name}.metricsNamespace", "Member must not begin with AWS/")


def collected(*findings: Iterable[ShapeProblem]) -> list[ShapeProblem]:
    """All problems as one list."""
    return [flaw for finding in findings for flaw in finding]


def _range_flaws(span: Members | None, name: str) -> Iterator[ShapeProblem]:
    start, end = (moment_of((span or {}).get(part)) for part in ("startTime", "endTime"))
    if start and end and start >= end:
        yield ShapeProblem(name, "Member must have a startTime before its endTime")
