"""The Batches and Run pages and their API: runs, charts, plan, downloads, deletion, import of tables."""

import asyncio
import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path as FilePath
from typing import IO, Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from proctor.api.reports import make_report
from proctor.api.run_list import RunLine, RunLines
from proctor.api.run_results import ChartsOfRuns, RunCharts
from proctor.api.run_state import RunDetails, RunDetailsCache
from proctor.batch.deletion import delete_run
from proctor.cache import ResultCache
from proctor.document import Chart
from proctor.errors import NotFound, UsageError
from proctor.export import export_tables
from proctor.item import RUNNING
from proctor.job import check_run_id
from proctor.jobs import job_of_run
from proctor.json_values import JsonObject
from proctor.report import charts as report_charts
from proctor.secrets import private_folder
from proctor.store import Scope
from proctor.store import runs as listing
from proctor.store.tables import BatchRow
from proctor.web.responses import ERRORS, page
from proctor.web.run_schemas import (
    MOST_WAIT_SECONDS,
    ChartsAnswer,
    ChartShape,
    LevelShape,
    PlanAnswer,
    RankShape,
    RunId,
    SignaturesAnswer,
    WaitSeconds,
)
from proctor.web.state import AppState

CHECK_SECONDS = 30
"""How long a check of signatures is valid."""


def router(site: AppState) -> APIRouter:
    """The page of a run and the routes it uses."""
    routes = APIRouter(responses=ERRORS)
    details = RunDetailsCache(site.context)
    checks = ResultCache[SignaturesAnswer](site.now, while_running=timedelta(seconds=CHECK_SECONDS))
    charts = ChartsOfRuns(site.context, site.results)

    @routes.get("/runs/{run_id}", include_in_schema=False)
    def show_page(request: Request, run_id: RunId) -> Response:
        batch = site.context.store.read.batch(run_id, site.now())
        if batch["runId"] != run_id:
            return RedirectResponse(f"/runs/{batch['runId']}")
        job = job_of_run(batch["job"])
        return page(
            request,
            "run.html",
            title=run_id,
            run_id=run_id,
            job_name=batch["job"],
            job=job,
            results_page=job.results_page(run_id),
            is_sealed=site.context.store.data_keys.is_encrypted,
        )

    @routes.get("/runs/{run_id}/items/{item_id}", include_in_schema=False)
    def show_item(run_id: RunId, item_id: str) -> Response:
        rows = site.context.store.read.item(
            item_id, site.context.store.read.batch(run_id, site.now())["runId"]
        )
        if len(rows) != 1:
            raise NotFound(f"run {run_id} has no item {item_id}\nIts items are on the page of the run.")
        if not rows[0]["sessionId"]:
            raise NotFound(f"item {rows[0]['id']} has not started yet\nIts session appears here when it has.")
        return RedirectResponse(f"/sessions/{rows[0]['sessionId']}")

    @routes.get("/style/charts.css", include_in_schema=False)
    def style() -> Response:
        return Response(report_charts.STYLE, media_type="text/css", headers={"cache-control": "no-cache"})

    @routes.get("/api/runs/{run_id}", tags=["runs"], summary="A run and its state")
    def run(run_id: RunId) -> RunDetails:
        return details.of(run_id)

    @routes.get("/api/runs/{run_id}/plan", tags=["runs"], summary="The plan a run was made from")
    def plan(run_id: RunId) -> PlanAnswer:
        batch = site.context.store.read.batch(run_id, site.now())
        return PlanAnswer(path=batch["planPath"], text=batch["planText"])

    @routes.get(
        "/api/runs/{run_id}/signatures", tags=["runs"], summary="Results that somebody else has written"
    )
    def signatures(run_id: RunId) -> SignaturesAnswer:
        """Checks the signatures of all results; a running run is not checked."""
        batch = site.context.store.read.batch(run_id, site.now())
        # Forging leaves the row of the run as it is: the check is repeated after a while.
        period = int(site.now().timestamp()) // CHECK_SECONDS
        return checks.get(batch, period, lambda: _signatures(site, batch["runId"]))

    @routes.get("/api/runs/{run_id}/charts", tags=["runs"], summary="The charts of a run")
    def charts_of_run(
        run_id: RunId,
        by: Annotated[str, Query(max_length=200, description="Factor to group items by.")] = "",
        wait: WaitSeconds = MOST_WAIT_SECONDS,
    ) -> ChartsAnswer:
        """Outcomes and durations of all items; by factor: success rate, cost and duration."""
        return _charts_answer(charts.of(run_id, by, wait))

    return routes


def _charts_answer(charts: RunCharts) -> ChartsAnswer:
    answer = ChartsAnswer(
        by=charts.by,
        remark=charts.remark,
        charts=[_chart(chart) for chart in charts.charts],
        is_current=charts.is_current,
    )
    if not charts.levels:
        return answer
    # numpy is loaded with the first figures, not with the server.
    from proctor.report.render import level_document, rank_document

    levels = [{"name": level.name, **level_document(level)} for level in charts.levels]
    answer.levels = [LevelShape.model_validate(level) for level in levels]
    answer.ranks = [RankShape.model_validate(rank_document(rank)) for rank in charts.ranks]
    return answer


def _chart(chart: Chart) -> ChartShape:
    return ChartShape(caption=chart.title, svg=chart.svg, marks=chart.marks)


Status = Literal["running", "completed", "aborted", "halted", "interrupted"]


class RunPage(BaseModel):
    """One page of the run list."""

    runs: list[RunLine]
    total: int
    """Number of runs that match the filter."""
    all: int
    """Number of all runs."""
    jobs: list[str]
    """Jobs that have runs."""


class Deleted(BaseModel):
    """A deleted run."""

    runId: str  # noqa: N815  names as in the record
    branches: int
    """Session branches deleted from repositories."""
    kept: list[str]
    """What could not be deleted, and why."""


def batches_router(site: AppState) -> APIRouter:
    """The page, the run list, and deletion of runs."""
    routes = APIRouter(tags=["runs"])
    lines = RunLines(site.context)

    @routes.get("/", include_in_schema=False)
    def show_page(request: Request) -> Response:
        is_sealed = site.context.store.data_keys.is_encrypted
        return page(request, "batches.html", title="Batches", is_sealed=is_sealed)

    @routes.get("/api/runs", summary="List runs, newest first", responses=ERRORS)
    def listed(
        status: Annotated[list[Status], Query(description="Empty: all.")] = [],  # noqa: B006
        job: Annotated[list[str], Query(description="Empty: all.")] = [],  # noqa: B006
        search: Annotated[str, Query(max_length=500, description="Text in the ID or plan path.")] = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> RunPage:
        read, now = site.context.store.read, site.now()
        filter_ = listing.RunFilter(statuses=status, jobs=job, search=search)
        rows = listing.page_of_batches(read, filter_, now, limit=limit, offset=offset)
        return RunPage(
            runs=lines.of(rows),
            total=listing.count_batches(read, filter_, now),
            all=listing.count_batches(read, listing.RunFilter(), now),
            jobs=listing.distinct_jobs(read),
        )

    @routes.delete("/api/runs/{run_id}", summary="Delete a finished run", responses=ERRORS)
    def deleted(
        run_id: str,
        keep_branches: Annotated[bool, Query(description="Keep the branches of its sessions.")] = False,
    ) -> Deleted:
        # Only by its full ID: deletion is final.
        batches = listing.batches_by_id(site.context.store.read, [run_id], site.now())
        if not batches:
            raise NotFound(f"there is no run {run_id}\nIt may have been deleted already.")
        if batches[0]["status"] == RUNNING:
            raise UsageError(f"run {run_id} is still running\nAbort it first.")
        deletion = delete_run(
            site.context.store, run_id, site.home, site.environment, branches=not keep_branches
        )
        return Deleted(runId=run_id, branches=deletion.branches, kept=list(deletion.problems))

    return routes


CHUNK = 256 * 1024

# A report has its own style and no scripts; it is sandboxed.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; sandbox allow-popups allow-top-navigation-by-user-activation"
)
TYPES = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "zip": "application/zip",
}


def downloads_router(site: AppState) -> APIRouter:
    """The routes of downloads: export, report, analysis."""
    routes = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)

    @routes.get(
        "/{run_id}/export",
        summary="Export the tables of a run",
        response_class=Response,
        responses=_file(*(one.partition(";")[0] for one in TYPES.values())),
    )
    async def export(
        run_id: RunId,
        format_: Annotated[Literal["json", "ndjson", "csv", "parquet"], Query(alias="format")] = "json",
        table: Annotated[
            list[str] | None, Query(description="Tables; several files are sent as one zip.")
        ] = None,
        session: Annotated[
            list[str] | None,
            Query(max_length=500, description="Only these sessions of the run, and their items."),
        ] = None,
    ) -> Response:
        """JSON is one document; the other formats have one file per table."""
        name, file = await asyncio.to_thread(_export, site, run_id, format_, table, session or ())
        return StreamingResponse(
            _chunks(file), media_type=TYPES[name.rpartition(".")[2]], headers=_as_file(name)
        )

    @routes.get(
        "/{run_id}/report",
        summary="The report of a run",
        response_class=Response,
        responses=_file("text/html", "text/plain", "text/markdown"),
    )
    def report(
        run_id: RunId,
        format_: Annotated[
            Literal["html", "md", "portable"],
            Query(alias="format", description="`portable`: HTML with all items, as an attachment."),
        ] = "html",
        download: Annotated[bool, Query(description="Send as an attachment.")] = False,
    ) -> Response:
        """HTML or Markdown."""
        run = _batch(site, run_id)["runId"]
        text = make_report(site.context, Scope(run_id=run), format_)
        headers = _as_file(f"report-{run}.{format_}") if download else {}
        if format_ == "md":
            kind = "text/markdown" if download else "text/plain"
            return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)
        if format_ == "portable":
            # Never shown by this server, whose pages run no inline script.
            return Response(
                text, media_type="text/html; charset=utf-8", headers=_as_file(f"report-{run}.html")
            )
        return _page(text, headers)

    @routes.get(
        "/{run_id}/analysis",
        summary="The analysis of a run, where its job has one",
        response_class=Response,
        responses=_file("text/html"),
    )
    def analysis_(run_id: RunId) -> Response:
        """Leaderboard of a benchmark, effects of an experiment's variations, variance of dialogues."""
        batch = _batch(site, run_id)
        return _page(job_of_run(batch["job"]).analysis(batch["runId"], site.context))

    return routes


def _file(*types: str) -> dict[int | str, JsonObject]:
    """`responses=` of a route that sends a file of one of these types."""
    return {200: {"content": {one: {} for one in types}, "description": "The file."}}


def _batch(site: AppState, run_id: str) -> BatchRow:
    return site.context.store.read.batch(run_id, site.now())


def _export(
    site: AppState, run_id: str, form: str, tables: list[str] | None, sessions: Sequence[str]
) -> tuple[str, IO[bytes]]:
    """The file name, and the open file, already deleted from its folder."""
    run_id = _batch(site, run_id)["runId"]
    scope = Scope(run_id=run_id, session_ids=[one.replace("\0", "") for one in sessions])
    if sessions:
        known = site.context.store.read.session_ids(scope)
        if not known:
            raise NotFound(f"run {run_id} has none of these sessions\nThey may have been deleted.")
        # Without the run, which would add all of its items.
        scope = Scope(session_ids=known)
    private_folder(site.data_folder)
    with tempfile.TemporaryDirectory(dir=site.data_folder, prefix="export-") as folder:
        written = export_tables(
            site.context.store.read,
            scope,
            out=FilePath(folder),
            format=form,
            tables=tables,
            label=run_id,
        )
        path = written[0]
        if len(written) > 1:
            path = FilePath(folder) / f"{run_id}-{form}.zip"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for one in written:
                    archive.write(one, one.name)
        # The folder is deleted before the file is sent, so nothing is left behind.
        return path.name, path.open("rb")


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


def _as_file(name: str) -> dict[str, str]:
    # Other characters than those of run IDs must not break the header.
    safe = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in name
    )
    return {"content-disposition": f'attachment; filename="{safe}"'}


def _page(text: str, headers: dict[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY, **(headers or {})})


def _signatures(site: AppState, run_id: str) -> SignaturesAnswer:
    check = site.context.store.check_signatures(run_id, site.now())
    return SignaturesAnswer(
        is_forged=check.is_forged, notes=check.notes(unsigned=False), foreign=check.foreign
    )


TableName = Annotated[str, Query(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ImportedTable(BaseModel):
    """The result of an import."""

    runId: str  # noqa: N815
    rows: int
    added: int
    replaced: int
    unchanged: int
    removed: int = Field(description="Items whose rows are no longer in the file.")
    notes: list[str]


def tables_router(site: AppState) -> APIRouter:
    """The route that imports a table."""
    routes = APIRouter(tags=["runs"], responses=ERRORS)
    # Files of one run and name have one path, by which the store knows them.
    importing = threading.Lock()

    @routes.post("/api/tables", status_code=201, summary="Import a table of results as a run")
    async def import_table(
        request: Request,
        run: TableName,
        file: Annotated[TableName, Query(description="Name of the file, whose suffix is its format.")],
        column: Annotated[
            list[TableName] | None, Query(description="Column of the table: task=instance_id. Repeatable.")
        ] = None,
        pass_score: Annotated[
            float | None, Query(alias="passScore", description="Lowest score that counts as success.")
        ] = None,
    ) -> ImportedTable:
        """The body is the file: CSV, JSON lines, JSON, or Parquet. Importing it again replaces its rows."""
        check_run_id(run)
        content = await request.body()

        def work() -> ImportedTable:
            with importing:
                return _import_table(site, run, file, content, column, pass_score)

        return await asyncio.to_thread(work)

    return routes


def _import_table(
    site: AppState,
    run: str,
    file: str,
    content: bytes,
    columns: list[str] | None,
    pass_score: float | None,
) -> ImportedTable:
    # Loaded here: only this route reads tables.
    from proctor.jobs.imported.table import columns_of, import_table

    mapping = columns_of(columns)
    if site.context.store.data_keys.is_encrypted:
        raise UsageError(
            "the store is encrypted, and an uploaded file would not be\n"
            "Import it on the server:  proctor import table FILE --run NAME"
        )
    folder = private_folder(site.data_folder / "uploads" / "tables" / run)
    path = folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", FilePath(file).name).strip(".-") or "table")
    try:
        path.write_bytes(content)
        done = import_table(
            site.context.store, [path], run, site.now(), columns=mapping, pass_score=pass_score
        )
    except UsageError as error:
        # The caller knows the file by its name alone.
        raise UsageError(str(error).replace(str(path), path.name)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    counts = done.counts
    return ImportedTable(
        runId=done.run_id,
        rows=done.rows,
        added=counts.added,
        replaced=counts.replaced,
        unchanged=counts.unchanged,
        removed=counts.removed,
        notes=list(done.notes),
    )
