"""CloudWatch operations that read the scores of online configurations as metrics.

A metric is an evaluator, in the namespace of the service. Its dimensions are the service, the configuration
and the label, in the four combinations in which the service writes them.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from proctor.agentcore import logs
from proctor.agentcore import service as paging
from proctor.agentcore.errors import LogsError
from proctor.agentcore.logs import METRICS, online_records, time_of_record
from proctor.agentcore.operation import operation
from proctor.agentcore.service import Service
from proctor.agentcore.shapes import Members, moment_of
from proctor.api.logs import result_streams
from proctor.json_values import JsonMap, JsonObject, as_map, as_number, as_text

TARGET = "GraniteServiceVersion20100801."
LISTED = 500
SERVICE, CONFIG, LABEL = "service.name", "onlineEvaluationConfigId", "label"
DIMENSIONS = ((SERVICE,), (LABEL, SERVICE), (SERVICE, CONFIG), (LABEL, SERVICE, CONFIG))


@dataclass(frozen=True, slots=True)
class Datum:
    """One score."""

    metric: str
    dimensions: Mapping[str, str]
    milliseconds: int
    value: float


async def respond(service: Service, request: Request) -> Response:
    """Execute the metric operation in the header of a request."""
    media_type = "application/x-amz-json-1.0"
    return await logs.respond(service, request, OPERATIONS, target=TARGET, media_type=media_type)


def list_metrics(service: Service, request: Members) -> JsonMap:
    """The metrics that scores of online configurations have been written to."""
    if request.get("Namespace", METRICS) != METRICS:
        return {"Metrics": []}
    filters = [(each["Name"], each.get("Value")) for each in request.get("Dimensions", [])]
    known = dict[tuple[str, tuple[tuple[str, str], ...]], None]()
    for datum in data_of(service):
        if datum.metric == request.get("MetricName", datum.metric):
            for names in DIMENSIONS:
                pairs = tuple((name, datum.dimensions[name]) for name in names if name in datum.dimensions)
                if len(pairs) == len(names) and _has(dict(pairs), filters):
                    known[datum.metric, pairs] = None
    metrics = sorted(known)
    (start,) = paging.key_of("metrics", request.get("NextToken"), int) or [0]
    answer: JsonObject = {
        "Metrics": [
            {
                "Namespace": METRICS,
                "MetricName": metric,
                "Dimensions": [{"Name": name, "Value": value} for name, value in pairs],
            }
            for metric, pairs in metrics[start : start + LISTED]
        ]
    }
    if start + LISTED < len(metrics):
        answer["NextToken"] = paging.page_token_of("metrics", [start + LISTED])
    return answer


def get_metric_data(service: Service, request: Members) -> JsonMap:
    """Statistics of scores by period, the newest first unless requested otherwise."""
    data = list(data_of(service))
    window = (_seconds(request["StartTime"]), _seconds(request["EndTime"]))
    ascending = request.get("ScanBy") == "TimestampAscending"
    results = list[JsonObject]()
    for query in request["MetricDataQueries"]:
        stat = as_map(query, "MetricStat")
        if not stat:
            raise LogsError("InvalidParameterException", f"{query['Id']}: only MetricStat is supported here.")
        if query.get("ReturnData") is False:
            continue
        metric = as_map(stat, "Metric")
        points = _points(data, metric, stat, window, query["Id"])
        ordered = sorted(points.items(), reverse=not ascending)
        results.append(
            {
                "Id": query["Id"],
                "Label": query.get("Label") or as_text(metric, "MetricName"),
                "Timestamps": [at for at, _ in ordered],
                "Values": [value for _, value in ordered],
                "StatusCode": "Complete",
            }
        )
    return {"MetricDataResults": results, "Messages": []}


def data_of(service: Service) -> Iterator[Datum]:
    """Every score that an online configuration has given."""
    for group, stream in result_streams(service.context):
        for record in online_records(service, group, stream):
            attributes = as_map(record, "attributes")
            value = as_number(attributes, "gen_ai.evaluation.score.value")
            if value is None:
                continue
            dimensions = {
                SERVICE: as_text(record, SERVICE),
                CONFIG: as_text(record, CONFIG),
                LABEL: as_text(attributes, "gen_ai.evaluation.score.label"),
            }
            yield Datum(
                as_text(attributes, "gen_ai.evaluation.name"),
                {name: text for name, text in dimensions.items() if text},
                time_of_record(record),
                value,
            )


def _points(
    data: Sequence[Datum], metric: JsonMap, stat: JsonMap, window: tuple[float, float], query_id: str
) -> dict[int, float]:
    """The statistic of each period that has scores, by its start in seconds."""
    dimensions = {each["Name"]: each["Value"] for each in metric.get("Dimensions") or ()}  # type: ignore[attr-defined]
    period = int(as_number(stat, "Period") or 60)
    names = tuple(sorted(dimensions))
    values: dict[int, list[float]] = defaultdict(list)
    if as_text(metric, "Namespace") == METRICS and names in {tuple(sorted(each)) for each in DIMENSIONS}:
        for datum in data:
            seconds = datum.milliseconds / 1000
            if (
                datum.metric == metric.get("MetricName")
                and window[0] <= seconds < window[1]
                and all(datum.dimensions.get(name) == value for name, value in dimensions.items())
            ):
                values[int(seconds // period) * period].append(datum.value)
    return {at: _statistic(as_text(stat, "Stat"), each, query_id) for at, each in values.items()}


def _seconds(time: object) -> float:
    moment = moment_of(time)
    assert moment is not None, "times are checked by the shape of the request"
    return moment.timestamp()


def _statistic(name: str, values: Sequence[float], query_id: str) -> float:
    if name.startswith("p") and name[1:].replace(".", "", 1).isdigit() and float(name[1:]) <= 100:
        ordered = sorted(values)
        return ordered[max(0, math.ceil(float(name[1:]) / 100 * len(ordered)) - 1)]
    match name:
        case "Average":
            return sum(values) / len(values)
        case "Sum":
            return sum(values)
        case "Minimum":
            return min(values)
        case "Maximum":
            return max(values)
        case "SampleCount":
            return float(len(values))
    raise LogsError("InvalidParameterException", f"{query_id}: there is no statistic {name[:100]} here.")


def _has(dimensions: Mapping[str, str], filters: Sequence[tuple[str, str | None]]) -> bool:
    return all(name in dimensions and value in (None, dimensions[name]) for name, value in filters)


OPERATIONS = {
    "ListMetrics": operation("ListMetrics", list_metrics),
    "GetMetricData": operation("GetMetricData", get_metric_data),
}
