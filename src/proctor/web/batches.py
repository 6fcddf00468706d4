"""The Batches page: every run there is, and the deleting of one.

Knows nothing of how runs are carried out.
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from proctor.batch.removal import delete_run
from proctor.errors import NotFound, UsageError
from proctor.item import RUNNING
from proctor.store import listing
from proctor.web.answers import ERRORS, page
from proctor.web.run_list import RunLine, RunLines
from proctor.web.site import Site

Status = Literal["running", "completed", "aborted", "halted", "interrupted"]


class RunPage(BaseModel):
    """One page of the runs there are."""

    runs: list[RunLine]
    total: int
    """How many the filter leaves."""
    all: int
    """How many there are without it."""
    jobs: list[str]
    """The jobs there are runs of."""


class Deleted(BaseModel):
    """What became of a run that was deleted."""

    runId: str  # noqa: N815  names as in the record
    branches: int
    """Session branches that were removed from repositories."""
    kept: list[str]
    """What could not be removed, and why."""


def router(site: Site) -> APIRouter:
    """The page, its list, and the deleting of runs."""
    made = APIRouter(tags=["runs"])
    lines = RunLines(site)

    @made.get("/", include_in_schema=False)
    def shown(request: Request) -> Response:
        is_sealed = site.store.data_keys.is_sealed
        return page(request, "batches.html", title="Batches", is_sealed=is_sealed)

    @made.get("/api/runs", summary="The runs there are, newest first", responses=ERRORS)
    def listed(
        status: Annotated[list[Status], Query(description="Only these; none: all.")] = [],  # noqa: B006
        job: Annotated[list[str], Query(description="Only these; none: all.")] = [],  # noqa: B006
        search: Annotated[str, Query(max_length=500, description="Text in the id or the plan.")] = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> RunPage:
        read, now = site.store.read, site.now()
        wanted = listing.BatchFilter(statuses=status, jobs=job, search=search)
        rows = listing.page_of_batches(read, wanted, now, limit=limit, offset=offset)
        return RunPage(
            runs=lines.of(rows),
            total=listing.count_batches(read, wanted, now),
            all=listing.count_batches(read, listing.BatchFilter(), now),
            jobs=listing.jobs_there_are(read),
        )

    @made.delete("/api/runs/{run_id}", summary="Delete a run that has ended", responses=ERRORS)
    def deleted(
        run_id: str,
        keep_branches: Annotated[bool, Query(description="Leave the branches of its sessions.")] = False,
    ) -> Deleted:
        # By its whole name only: what is deleted is gone.
        found = listing.batches_named(site.store.read, [run_id], site.now())
        if not found:
            raise NotFound(f"there is no run {run_id}\nIt may have been deleted already.")
        if found[0]["status"] == RUNNING:
            raise UsageError(f"run {run_id} is still running\nAbort it first.")
        told = delete_run(site.store, run_id, site.home, site.environment, branches=not keep_branches)
        return Deleted(runId=run_id, branches=told.branches, kept=list(told.kept))

    return made
