"""Statistics of scores as CloudWatch metrics."""

from collections.abc import Iterator
from typing import Any

import pytest

from proctor.agentcore import metrics
from proctor.agentcore.errors import LogsError
from proctor.agentcore.metrics import Datum, get_metric_data, list_metrics

DIMENSIONS = {"service.name": "shop", "onlineEvaluationConfigId": "c1", "label": "good"}
DATA = [
    Datum("warm", DIMENSIONS, 1_000_000, 4.0),
    Datum("warm", DIMENSIONS, 1_019_999, 1.0),
    Datum("warm", {**DIMENSIONS, "label": "bad"}, 1_030_000, 3.0),
    Datum("warm", {"service.name": "other"}, 1_000_000, 9.0),
    Datum("calm", {"service.name": "shop"}, 1_080_000, 7.0),
]


# White box: scores at chosen times and of chosen values cannot be had from sessions that are judged now.
@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(_: object) -> Iterator[Datum]:
        yield from DATA

    monkeypatch.setattr(metrics, "data_of", rows)


def asked(stat: str, *, period: int | None = 20, start: float = 0, end: float = 10_000, **more: Any) -> Any:
    dimensions = more.pop("dimensions", {"service.name": "shop"})
    pairs = [{"Name": name, "Value": value} for name, value in dimensions.items()]
    metric = {
        "Namespace": metrics.METRICS,
        "MetricName": "warm",
        "Dimensions": pairs,
        **more.pop("metric", {}),
    }
    query = {
        "Id": "q",
        "MetricStat": {"Metric": metric, "Stat": stat, **({"Period": period} if period else {})},
        **more.pop("query", {}),
    }
    return get_metric_data(None, {"MetricDataQueries": [query], "StartTime": start, "EndTime": end, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stat", "value"),
    [
        ("Average", 8 / 3),
        ("Sum", 8.0),
        ("Minimum", 1.0),
        ("Maximum", 4.0),
        ("SampleCount", 3.0),
        ("p50", 3.0),
        ("p33.3", 1.0),
        ("p34", 3.0),
        ("p100", 4.0),
        ("p0", 1.0),
        ("p99.9", 4.0),
    ],
)
def test_the_statistics_of_scores(stat: str, value: float) -> None:
    (result,) = asked(stat, period=200)["MetricDataResults"]
    assert result["Values"] == [pytest.approx(value)] and result["Timestamps"] == [1000]
    assert (result["Id"], result["Label"], result["StatusCode"]) == ("q", "warm", "Complete")


@pytest.mark.parametrize("stat", ["p101", "pX", "Median", "p1.2.3"])
def test_a_statistic_that_does_not_exist_is_refused(stat: str) -> None:
    with pytest.raises(LogsError, match=f"q: there is no statistic {stat} here"):
        asked(stat)


def test_scores_are_grouped_by_period_newest_first() -> None:
    (result,) = asked("Sum")["MetricDataResults"]
    assert (result["Timestamps"], result["Values"]) == ([1020, 1000], [3.0, 5.0])
    (result,) = asked("Sum", ScanBy="TimestampAscending", query={"Label": "mine"})["MetricDataResults"]
    assert (result["Timestamps"], result["Label"]) == ([1000, 1020], "mine")
    assert asked("Sum", period=None)["MetricDataResults"][0]["Timestamps"] == [1020, 960]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 3.0),
        ({"start": 1000}, 3.0),
        ({"start": 1000.001}, 2.0),
        ({"end": 1030}, 2.0),
        ({"end": 1030.001}, 3.0),
        ({"dimensions": {"service.name": "shop", "label": "good"}}, 2.0),
        ({"dimensions": {"service.name": "shop", "onlineEvaluationConfigId": "c1"}}, 3.0),
        ({"dimensions": {"label": "good"}}, None),
        ({"dimensions": {}}, None),
        ({"metric": {"Namespace": "other"}}, None),
        ({"metric": {"MetricName": "cold"}}, None),
    ],
)
def test_which_scores_a_query_is_about(changes: Any, count: float | None) -> None:
    (result,) = asked("SampleCount", period=10_000, **changes)["MetricDataResults"]
    assert result["Values"] == ([] if count is None else [count])


def test_a_query_may_be_left_out_and_needs_a_statistic() -> None:
    assert asked("Sum", query={"ReturnData": False})["MetricDataResults"] == []
    with pytest.raises(LogsError, match="q: only MetricStat is supported here"):
        asked("Sum", query={"MetricStat": {}})


def listed(**request: Any) -> list[Any]:
    rows = list_metrics(None, request)["Metrics"]  # type: ignore[arg-type]
    return [(row["MetricName"], tuple(pair["Value"] for pair in row["Dimensions"])) for row in rows]  # type: ignore[index,attr-defined]


def test_metrics_are_listed_by_name_and_dimensions() -> None:
    assert len(listed()) == len(set(listed())) == 8
    assert listed(MetricName="calm") == [("calm", ("shop",))]
    assert listed(Namespace="other") == []
    expected = [("warm", ("bad", "shop")), ("warm", ("bad", "shop", "c1"))]
    assert listed(Dimensions=[{"Name": "label", "Value": "bad"}]) == expected
    assert len(listed(Dimensions=[{"Name": "label"}])) == 4


def test_a_list_is_continued_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = listed()
    monkeypatch.setattr(metrics, "LISTED", 3)
    pages, token = list[Any](), None
    for size in (3, 3, 2):
        request = {} if token is None else {"NextToken": token}
        answer = list_metrics(None, request)  # type: ignore[arg-type]
        assert len(answer["Metrics"]) == size  # type: ignore[arg-type]
        pages += listed(**request)
        token = answer.get("NextToken")
    assert token is None and pages == whole
    monkeypatch.setattr(metrics, "LISTED", 8)
    assert "NextToken" not in list_metrics(None, {})  # type: ignore[arg-type]
