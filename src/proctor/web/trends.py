"""The Trends page: runs of a plan, evaluations of a name, or all evaluations by an evaluator, over time."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from proctor.api.trends import TrendChange, Trends
from proctor.web.responses import ERRORS, page
from proctor.web.run_schemas import ChartShape, RowModel
from proctor.web.state import AppState


class TrendLineShape(RowModel):
    """A plan or evaluation that ran several times."""

    key: str
    name: str
    job: str
    runs: int
    last_at: str


class TrendsAnswer(RowModel):
    """Plans and evaluations with several runs, the latest first."""

    trends: list[TrendLineShape]


class TrendAnswer(RowModel):
    """One trend: a figure of each run, and the significant changes."""

    key: str
    name: str
    metric: str
    metrics: list[str] = Field(description="All metrics that it can show.")
    chart: ChartShape
    runs: list[str]
    changes: Sequence[TrendChange] = Field(description="The latest first.")
    summary: str
    omitted: int = Field(description="Earlier runs that are not shown.")


def router(site: AppState) -> APIRouter:
    """The Trends page and its routes."""
    routes = APIRouter(tags=["compare"], responses=ERRORS)
    trends = Trends(site.context)

    @routes.get("/trends", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "trends.html", title="Trends")

    @routes.get("/api/trends", summary="Plans and evaluations that ran several times")
    def listed() -> TrendsAnswer:
        """The one with the latest run first."""
        return TrendsAnswer(
            trends=[
                TrendLineShape(
                    key=each.key,
                    name=each.name,
                    job=each.job,
                    runs=len(each.runs),
                    last_at=each.last_at,
                )
                for each in trends.plans()
            ]
        )

    @routes.get("/api/trends/line", summary="A plan's runs over time, and the significant changes")
    def line(
        key: Annotated[str, Query(max_length=5000, description="The `key` of a trend.")],
        metric: Annotated[str, Query(max_length=300, description="Empty: the first it has.")] = "",
    ) -> TrendAnswer:
        """Each run is compared with the one before it; all comparisons are corrected together."""
        trend = trends.line(key, metric)
        return TrendAnswer(
            key=trend.key,
            name=trend.name,
            metric=trend.metric,
            metrics=list(trend.metrics),
            chart=ChartShape(caption=trend.metric, svg=trend.svg, marks=trend.marks),
            runs=list(trend.runs),
            changes=trend.changes,
            summary=trend.summary,
            omitted=trend.omitted,
        )

    return routes
