"""The Trends page: runs of a plan, evaluations of a name, or all evaluations by an evaluator, over time."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from proctor.api.deprecated import OLD_NAMES_OF_TRENDS
from proctor.api.trends import Trend, Trends
from proctor.metric import METRIC_TITLES
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import RowModel
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


def router(site: AppState) -> APIRouter:
    """The Trends page and its routes."""
    routes = APIRouter(tags=["compare"], responses=ERRORS)
    trends = Trends(site.context)

    @routes.get("/trends", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "trends.html", title="Trends", metric_titles=METRIC_TITLES)

    @routes.get("/api/trends", summary="Plans and evaluations that ran several times")
    def listed() -> TrendsAnswer:
        """The one with the latest run first."""
        return TrendsAnswer(
            trends=[
                TrendLineShape(
                    key=plan.key,
                    name=plan.name,
                    job=plan.job,
                    runs=len(plan.runs),
                    last_at=plan.last_at,
                )
                for plan in trends.plans()
            ]
        )

    @routes.get(
        "/api/trends/line",
        summary="A plan's runs over time, and the significant changes",
        response_class=with_deprecated(OLD_NAMES_OF_TRENDS),
    )
    def line(
        key: Annotated[str, Query(max_length=5000, description="The `key` of a trend.")],
        metric: Annotated[str, Query(max_length=300, description="Empty: the first it has.")] = "",
        model: Annotated[str, Query(max_length=500, description="Empty: all models together.")] = "",
    ) -> Trend:
        """Each run is compared with the one before it; all comparisons are corrected together."""
        return trends.line(key, metric, model)

    return routes
