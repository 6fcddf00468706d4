"""Rules of requests beyond the shapes of their members.

Rules yield problems, so that a response lists all of them.

Code evaluators are Lambda functions; `proctor.toml` maps their ARNs to programs, so callers cannot send code.
"""

from collections.abc import Iterable, Iterator

from proctor.agentcore.shapes import (
    Many,
    Members,
    Number,
    ObjectShape,
    Shape,
    ShapeProblem,
    Structure,
    Text,
    moment_of,
)

_SCENARIO: dict[str, Shape] = {
    "scenario_id": Text(least=1),
    "assertions": Many(of=Text(least=1)),
    "metadata": ObjectShape(),
}
EXAMPLES: dict[str, Shape] = {
    "AGENTCORE_EVALUATION_PREDEFINED_V1": Structure(
        {
            **_SCENARIO,
            "turns": Many(
                of=Structure(
                    {"input": ObjectShape(or_text=True), "expected_response": Text()}, required=["input"]
                ),
                least=1,
            ),
            "expected_trajectory": Many(of=Text(least=1)),
        },
        required=["scenario_id", "turns"],
    ),
    "AGENTCORE_EVALUATION_SIMULATED_V1": Structure(
        {
            **_SCENARIO,
            "scenario_description": Text(),
            "actor_profile": Structure(
                {"context": Text(), "goal": Text(), "traits": ObjectShape()}, required=["context", "goal"]
            ),
            "input": ObjectShape(or_text=True),
            "max_turns": Number(least=1, whole=True),
        },
        required=["scenario_id", "actor_profile", "input"],
    ),
    "THIRD_PARTY_EVALUATION_V1": ObjectShape(),
}
"""Examples by the schema type of their dataset, as AWS's clients read them."""
WITH_EXAMPLE_ID = Structure(
    {"exampleId": Text(most=256, pattern=r"[a-zA-Z0-9_.:-]+")}, required=["exampleId"]
)
MANAGED_GROUPS = "/aws/bedrock-agentcore/evaluations/"
"""Prefix of the service's own log groups, which a request cannot choose for results."""
DEFAULT_GROUP = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"


def something_to_judge(request: Members) -> Iterator[ShapeProblem]:
    """At least one evaluator or insight."""
    if not (request.get("evaluators") or request.get("insights")):
        yield ShapeProblem("evaluators", "Member must have length greater than or equal to 1")


def source_violations(request: Members) -> Iterator[ShapeProblem]:
    """Log groups are given by name or by prefix, and time ranges are ordered."""
    config = request.get("dataSourceConfig") or {}
    source = config.get("cloudWatchLogs")
    if source is not None:
        name = "dataSourceConfig.cloudWatchLogs"
        named = [part for part in ("logGroupNames", "logGroupNamePrefixes") if source.get(part)]
        if len(named) != 1:
            yield ShapeProblem(name, "Member must have exactly one of: logGroupNames, logGroupNamePrefixes")
        span = (source.get("filterConfig") or {}).get("timeRange")
        yield from _range_violations(span, f"{name}.filterConfig.timeRange")
    online = config.get("onlineEvaluationConfigSource")
    if online is not None:
        yield from _range_violations(
            online.get("timeRange"), "dataSourceConfig.onlineEvaluationConfigSource.timeRange"
        )


def output_violations(request: Members) -> Iterator[ShapeProblem]:
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
    return [violation for finding in findings for violation in finding]


def _range_violations(span: Members | None, name: str) -> Iterator[ShapeProblem]:
    start, end = (moment_of((span or {}).get(part)) for part in ("startTime", "endTime"))
    if start and end and start >= end:
        yield ShapeProblem(name, "Member must have a startTime before its endTime")
