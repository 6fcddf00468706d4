"""The results of runs over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query

from proctor.api.deprecated import OLD_NAMES_OF_NOTES
from proctor.api.run_results import WAIT_SECONDS, ResultsOfRuns, RunResults
from proctor.web.responses import ERRORS, with_deprecated
from proctor.web.run_schemas import RunId, WaitSeconds
from proctor.web.state import AppState


def router(site: AppState) -> APIRouter:
    """The results of runs."""
    results = ResultsOfRuns(site.context, site.results, site.item_counts)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        site.results.open()
        yield
        # First what they wait for.
        await asyncio.to_thread(site.results.close)
        await asyncio.to_thread(results.close)

    routes = APIRouter(responses=ERRORS, lifespan=lifespan)

    @routes.get(
        "/api/runs/{run_id}/results",
        tags=["runs"],
        summary="The results of a run so far",
        response_class=with_deprecated(OLD_NAMES_OF_NOTES),
    )
    def of_run(
        run_id: RunId,
        wait: WaitSeconds = WAIT_SECONDS,
        margin: Annotated[
            float | None, Query(ge=0, le=1, description="How much lower a success rate may be; default 0.05.")
        ] = None,
        baseline: Annotated[
            str, Query(max_length=500, description="What others are compared with; default: the best.")
        ] = "",
    ) -> RunResults:
        """Sections as the job of the run has them; computed again when items have finished."""
        return results.of(run_id, wait, margin=margin, baseline=baseline)

    return routes
