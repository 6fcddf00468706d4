"""The Batches and Run pages and their API: runs, charts, plan, downloads, deletion, import of tables."""

import asyncio
import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path as FilePath
from typing import IO, Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from proctor.api import intake, runs
from proctor.api.deprecated import OLD_NAMES_OF_NOTES, OLD_NAMES_OF_RUNS, OLD_NAMES_OF_SIGNATURES
from proctor.api.exports import export, sessions_of_run
from proctor.api.reports import make_analysis, make_report
from proctor.api.run_list import RunLines, RunPage
from proctor.api.run_results import ChartsOfRuns, RunCharts
from proctor.api.run_state import RunDetails, RunDetailsCache, RunSignatures, SignatureChecks
from proctor.api.sessions import Scope, item_in_run
from proctor.document import CaptionedChart, Chart
from proctor.errors import NotFound, UsageError
from proctor.job import check_run_id
from proctor.json_values import JsonObject, camel_document
from proctor.report import svg
from proctor.secrets import private_folder
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import (
    MOST_WAIT_SECONDS,
    ChartsAnswer,
    LevelShape,
    RankShape,
    RunId,
    WaitSeconds,
)
from proctor.web.state import AppState


def router(site: AppState) -> APIRouter:
    """The page of a run and the routes it uses."""
    routes = APIRouter(responses=ERRORS)
    details = RunDetailsCache(site.context)
    checks = SignatureChecks(site.context)
    charts = ChartsOfRuns(site.context, site.results)

    @routes.get("/runs/{run_id}", include_in_schema=False)
    def show_page(request: Request, run_id: RunId) -> Response:
        found = runs.find_run(site.context, run_id)
        if found.id != run_id:
            return RedirectResponse(f"/runs/{found.id}")
        return page(
            request,
            "run.html",
            title=run_id,
            run_id=run_id,
            job_name=found.job_name,
            job=found.job,
            results_page=f"/evaluations/{run_id}" if found.job.evaluates_sessions else "",
            is_sealed=site.context.store.data_keys.is_encrypted,
        )

    @routes.get("/runs/{run_id}/items/{item_id}", include_in_schema=False)
    def show_item(run_id: RunId, item_id: str) -> Response:
        item = item_in_run(site.context, run_id, item_id).row
        if not item["sessionId"]:
            raise NotFound(f"item {item['id']} has not started yet\nIts session appears here when it has.")
        return RedirectResponse(f"/sessions/{item['sessionId']}")

    @routes.get("/style/charts.css", include_in_schema=False)
    def style() -> Response:
        return Response(svg.STYLE, media_type="text/css", headers={"cache-control": "no-cache"})

    @routes.get(
        "/api/runs/{run_id}",
        tags=["runs"],
        summary="A run and its state",
        response_class=with_deprecated(OLD_NAMES_OF_RUNS),
    )
    def run(run_id: RunId) -> RunDetails:
        return details.of(run_id)

    @routes.get("/api/runs/{run_id}/plan", tags=["runs"], summary="The plan a run was made from")
    def plan(run_id: RunId) -> runs.StoredPlan:
        return runs.plan_of(site.context, run_id)

    @routes.get(
        "/api/runs/{run_id}/signatures",
        tags=["runs"],
        summary="Results that somebody else has written",
        response_class=with_deprecated(OLD_NAMES_OF_SIGNATURES),
    )
    def signatures(run_id: RunId) -> RunSignatures:
        """Checks the signatures of all results; a running run is not checked."""
        return checks.of(run_id)

    @routes.get(
        "/api/runs/{run_id}/charts",
        tags=["runs"],
        summary="The charts of a run",
        response_class=with_deprecated(OLD_NAMES_OF_NOTES),
    )
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
        note=charts.note,
        charts=[_chart(chart) for chart in charts.charts],
        is_current=charts.is_current,
    )
    if not charts.levels:
        return answer
    # numpy is loaded with the first figures, not with the server.
    from proctor.report.render import level_document

    levels = [{"name": level.name, **level_document(level)} for level in charts.levels]
    answer.levels = [LevelShape.model_validate(level) for level in levels]
    answer.ranks = [RankShape.model_validate(camel_document(rank)) for rank in charts.ranks]
    return answer


def _chart(chart: Chart) -> CaptionedChart:
    return CaptionedChart(caption=chart.title, svg=chart.svg, marks=chart.marks)


Status = Literal["running", "completed", "aborted", "halted", "interrupted"]


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

    @routes.get(
        "/api/runs",
        summary="List runs, newest first",
        responses=ERRORS,
        response_class=with_deprecated(OLD_NAMES_OF_RUNS),
    )
    def listed(
        status: Annotated[list[Status], Query(description="Empty: all.")] = [],  # noqa: B006
        job: Annotated[list[str], Query(description="Empty: all.")] = [],  # noqa: B006
        search: Annotated[str, Query(max_length=500, description="Text in the ID or plan path.")] = "",
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> RunPage:
        return lines.page(statuses=status, jobs=job, search=search, limit=limit, offset=offset)

    @routes.delete("/api/runs/{run_id}", summary="Delete a finished run", responses=ERRORS)
    def deleted(
        run_id: str,
        keep_branches: Annotated[bool, Query(description="Keep the branches of its sessions.")] = False,
    ) -> Deleted:
        # Only by its full ID: deletion is final.
        deletion = runs.delete(site.context, run_id, branches=not keep_branches)
        assert deletion is not None, "nobody is asked"
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
        responses=EXPORTED,
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
        label, scope = await asyncio.to_thread(_scope, site, run_id, session or ())
        return await send_export(site, scope, label, format_, table)

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
        run, _ = runs.status_of(site.context, run_id)
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
        return _page(make_analysis(site.context, run_id))

    return routes


def _file(*types: str) -> dict[int | str, JsonObject]:
    """`responses=` of a route that sends a file of one of these types."""
    return {200: {"content": {one: {} for one in types}, "description": "The file."}}


def _scope(site: AppState, run_id: str, sessions: Sequence[str]) -> tuple[str, Scope]:
    """The name of an export of a run, or of some of its sessions, and what it selects."""
    run_id, _ = runs.status_of(site.context, run_id)
    if sessions:
        return run_id, sessions_of_run(site.context, run_id, [one.replace("\0", "") for one in sessions])
    return run_id, Scope(run_id=run_id)


EXPORTED = _file(*(one.partition(";")[0] for one in TYPES.values()))
"""`responses=` of a route that sends an export."""


async def send_export(
    site: AppState, scope: Scope, label: str, form: str, tables: list[str] | None = None
) -> Response:
    """The tables of what a scope selects, as a file."""
    name, file = await asyncio.to_thread(_export, site, scope, label, form, tables)
    return StreamingResponse(_chunks(file), media_type=TYPES[name.rpartition(".")[2]], headers=_as_file(name))


def _export(
    site: AppState, scope: Scope, label: str, form: str, tables: list[str] | None
) -> tuple[str, IO[bytes]]:
    """The file name, and the open file, already deleted from its folder."""
    private_folder(site.data_folder)
    with tempfile.TemporaryDirectory(dir=site.data_folder, prefix="export-") as folder:
        written = export(site.context, scope, out=FilePath(folder), format_=form, tables=tables, label=label)
        path = written[0]
        if len(written) > 1:
            path = FilePath(folder) / f"{label}-{form}.zip"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for file in written:
                    archive.write(file, file.name)
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


TableName = Annotated[str, Query(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


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
    ) -> intake.TableImport:
        """The body is the file: CSV, JSON lines, JSON, or Parquet. Importing it again replaces its rows."""
        check_run_id(run)
        content = await request.body()

        def work() -> intake.TableImport:
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
) -> intake.TableImport:
    if site.context.store.data_keys.is_encrypted:
        raise UsageError(
            "the store is encrypted, and an uploaded file would not be\n"
            "Import it on the server:  proctor import table FILE --run NAME"
        )
    folder = private_folder(site.data_folder / "uploads" / "tables" / run)
    path = folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", FilePath(file).name).strip(".-") or "table")
    try:
        path.write_bytes(content)
        return intake.import_table(site.context, [path], run, columns=columns, pass_score=pass_score)
    except UsageError as error:
        # The caller knows the file by its name alone.
        raise UsageError(str(error).replace(str(path), path.name)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
