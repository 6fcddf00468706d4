"""The Run page, and what it asks for: the run, its items, its plots, its plan.

Knows nothing of how runs are carried out.
"""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from proctor.analyse.durations import durations
from proctor.analyse.levels import by_factor
from proctor.analyse.outcomes import Tally
from proctor.analyse.selection import select
from proctor.errors import NotFound
from proctor.report import charts as drawing
from proctor.report import figures, levels
from proctor.store import Scope, pages
from proctor.web.answers import ERRORS, page
from proctor.web.kept import KeptAnswers
from proctor.web.listings import Listings, Wanted
from proctor.web.run_document import RunAnswers
from proctor.web.run_shapes import ItemsAnswer, PlanAnswer, RunAnswer
from proctor.web.shapes import ChartsAnswer, ChartShape, RunId
from proctor.web.site import Site

MOST_ROWS = 500
CHARTS_HOLD = timedelta(seconds=3)
"""While items end; pages ask every five seconds."""


def router(site: Site) -> APIRouter:
    """The page of a run and the routes it uses."""
    made = APIRouter(responses=ERRORS)
    listings, answers = Listings(site), RunAnswers(site)
    drawn = KeptAnswers[ChartsAnswer](site.now, while_running=CHARTS_HOLD)

    @made.get("/runs/{run_id}", include_in_schema=False)
    def shown(request: Request, run_id: RunId) -> Response:
        batch = site.store.read.batch(run_id, site.now())
        if batch["runId"] != run_id:
            return RedirectResponse(f"/runs/{batch['runId']}")
        is_sealed = site.store.data_keys.is_sealed
        return page(request, "run.html", title=run_id, run_id=run_id, job=batch["job"], is_sealed=is_sealed)

    @made.get("/runs/{run_id}/items/{item_id}", include_in_schema=False)
    def item_shown(run_id: RunId, item_id: str) -> Response:
        found = site.store.read.item(item_id, site.store.read.batch(run_id, site.now())["runId"])
        if len(found) != 1:
            raise NotFound(f"run {run_id} has no item {item_id}\nIts items are on the page of the run.")
        if not found[0]["sessionId"]:
            raise NotFound(f"item {found[0]['id']} has not begun yet\nIts session appears here when it has.")
        return RedirectResponse(f"/sessions/{found[0]['sessionId']}")

    @made.get("/style/charts.css", include_in_schema=False)
    def style() -> Response:
        return Response(drawing.STYLE, media_type="text/css", headers={"cache-control": "no-cache"})

    @made.get("/api/runs/{run_id}", tags=["runs"], summary="A run, and how far it is")
    def run(run_id: RunId) -> RunAnswer:
        return answers.of(run_id)

    @made.get("/api/runs/{run_id}/plan", tags=["runs"], summary="The plan a run was made from")
    def plan(run_id: RunId) -> PlanAnswer:
        batch = site.store.read.batch(run_id, site.now())
        return PlanAnswer(path=batch["planPath"], text=batch["planText"])

    @made.get("/api/runs/{run_id}/items", tags=["runs"], summary="A window of a run's items")
    def items(
        run_id: RunId,
        search: Annotated[
            str,
            Query(max_length=500, description="In the id, repository, prompt, model, agent or error."),
        ] = "",
        status: Annotated[list[str] | None, Query(description="Only these statuses.")] = None,
        order: Annotated[
            str, Query(max_length=200, description="A member of an item, or `factor:` and a factor's name.")
        ] = "position",
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
    ) -> ItemsAnswer:
        """Searched, filtered, sorted and counted by the store. What is missing is sorted last."""
        wanted = Wanted(
            search=search.replace("\0", ""),
            statuses=tuple(status or ()),
            order=_column(order),
            descending=descending,
        )
        return listings.window(run_id, wanted, offset=offset, limit=limit)

    @made.get("/api/runs/{run_id}/charts", tags=["runs"], summary="The plots of a run")
    def charts(
        run_id: RunId,
        by: Annotated[str, Query(max_length=200, description="What items are grouped by.")] = "",
    ) -> ChartsAnswer:
        """Outcomes and times of all items; and by a factor: success rate, cost and time."""
        batch = site.store.read.batch(run_id, site.now())
        return drawn.get(batch, by, lambda: _charts(site, batch["runId"], by))

    return made


def _column(order: str) -> str:
    """The column that a member of an item is kept in: they have the same names."""
    return order if order.startswith(pages.FACTOR) or order in pages.ORDERS else _unknown(order)


def _unknown(order: str) -> str:
    raise NotFound(f"items cannot be sorted by {order}\nThey can by: {', '.join(pages.ORDERS)}.")


def _charts(site: Site, run_id: str, by: str) -> ChartsAnswer:
    read = site.store.read
    selection = select(read, Scope(run_id=run_id))
    if by:
        factor = by_factor(selection, by)
        remark = f"{by} has too many levels to compare." if factor.is_too_many else ""
        drawn = levels.plots(factor)
    else:
        tally = Tally(counts=pages.status_counts(read, run_id))
        drawn, remark = [("Outcomes", figures.outcome_bar(tally))], ""
        took = durations(selection)
        if took.items:
            drawn.append(("How long items took", figures.duration_histogram(took)))
    return ChartsAnswer(
        by=by, remark=remark, charts=[ChartShape(caption=caption, svg=svg) for caption, svg in drawn]
    )
