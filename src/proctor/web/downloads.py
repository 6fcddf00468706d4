"""Files of a run to take away: its tables, its report, the analysis of its kind of job.

Tables are written to a file first, a row at a time, and sent from there: neither memory nor the store is
held by a reader with a slow connection.

Knows nothing of what the tables or the report say.
"""

import asyncio
import json
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path as FilePath
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import HTMLResponse, Response, StreamingResponse

from proctor.analyse.benchmark import compare
from proctor.analyse.crossing import analysis
from proctor.analyse.experiment import BatchAnalyzer
from proctor.analyse.summary import summarise
from proctor.errors import NotFound, UsageError
from proctor.export import export_tables
from proctor.export.dialogue import finished_items, session_document
from proctor.export.dialogue_tables import session_row
from proctor.report import html, markdown
from proctor.report.benchmark import benchmark_html
from proctor.report.dialogue import dialogue_html
from proctor.report.experiment import experiment_html
from proctor.store import Scope
from proctor.web.answers import ERRORS
from proctor.web.shapes import RunId
from proctor.web.site import Site

CHUNK = 256 * 1024
# A report brings its own style and no script; it is shown as a page of nobody's.
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


def router(site: Site) -> APIRouter:
    """The routes that answer with files."""
    made = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)

    @made.get(
        "/{run_id}/export",
        summary="The rows of a run as a file",
        response_class=Response,
        responses=_file(*(one.partition(";")[0] for one in TYPES.values())),
    )
    async def export(
        run_id: RunId,
        format_: Annotated[Literal["json", "ndjson", "csv", "parquet"], Query(alias="format")] = "json",
        table: Annotated[
            list[str] | None, Query(description="Which tables; several files come as one zip.")
        ] = None,
    ) -> Response:
        """JSON is one document; the others are one file a table."""
        name, file = await asyncio.to_thread(_export, site, run_id, format_, table)
        return StreamingResponse(
            _sent(file), media_type=TYPES[name.rpartition(".")[2]], headers=_as_file(name)
        )

    @made.get(
        "/{run_id}/report",
        summary="What a run came to",
        response_class=Response,
        responses=_file("text/html", "text/plain", "text/markdown"),
    )
    def report(
        run_id: RunId,
        format_: Annotated[Literal["html", "md"], Query(alias="format")] = "html",
        download: Annotated[bool, Query(description="To be kept, not shown.")] = False,
    ) -> Response:
        """A page to read, to mail or to print; or Markdown."""
        summary = summarise(site.store.read, Scope(run_id=_found(site, run_id)["runId"]), site.now())
        run = summary.scope.run_id
        headers = _as_file(f"report-{run}.{format_}") if download else {}
        if format_ == "md":
            kind = "text/markdown" if download else "text/plain"
            return Response(markdown(summary), media_type=f"{kind}; charset=utf-8", headers=headers)
        return _page(html(summary), headers)

    @made.get(
        "/{run_id}/analysis",
        summary="What the analysis of this kind of job says",
        response_class=Response,
        responses=_file("text/html"),
    )
    def analysis_(run_id: RunId) -> Response:
        """Ranks of a benchmark, effects of an experiment's variations, variance of a simulation."""
        batch = _found(site, run_id)
        if batch["job"] == "benchmark":
            comparison = compare(site.store.read, batch["runId"], site.now())
            return _page(benchmark_html(comparison, {}, site.now()))
        if batch["job"] == "scenario":
            return _page(_experiment(batch))
        if batch["job"] == "dialogue":
            return _page(_dialogues(site, batch))
        raise NotFound("this kind of job has no analysis of its own\nIts report says what there is to say.")

    return made


def _file(*types: str) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route that answers with a file of one of these types."""
    return {200: {"content": {one: {} for one in types}, "description": "The file."}}


def _found(site: Site, run_id: str) -> dict[str, Any]:
    return site.store.read.batch(run_id, site.now())


def _export(site: Site, run_id: str, form: str, tables: list[str] | None) -> tuple[str, IO[bytes]]:
    """The name of the file, and the file: open, and already without a name of its own on the disk."""
    run_id = _found(site, run_id)["runId"]
    site.kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.kept, prefix="export-") as folder:
        written = export_tables(
            site.store.read,
            Scope(run_id=run_id),
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
        # However the sending ends, nothing is left behind: the folder goes before it begins.
        return path.name, path.open("rb")


async def _sent(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


def _as_file(name: str) -> dict[str, str]:
    # Run ids are letters, digits, dots, dashes and underscores; whatever else there is must not break out.
    safe = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in name
    )
    return {"content-disposition": f'attachment; filename="{safe}"'}


def _page(text: str, headers: dict[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(text, headers={"content-security-policy": REPORT_POLICY, **(headers or {})})


def _experiment(batch: dict[str, Any]) -> str:
    folder = FilePath(json.loads(batch["optionsJson"]).get("output") or "")
    if not folder.is_dir():
        raise NotFound(f"the experiment's folder {folder} is not there\nThe report needs none.")
    analyzer = BatchAnalyzer(folder)
    analyzer.collect_run_data()
    return experiment_html(analyzer)


def _dialogues(site: Site, batch: dict[str, Any]) -> str:
    rows, lost, rehearsed = list[dict[str, Any]](), 0, set[str]()
    for session in _sessions(site, batch["runId"]):
        if session["status"] not in ("success", "fail"):
            lost += 1
            continue
        rows.append(session_row(session))
        if session.get("stand_in"):
            rehearsed |= {role["model"] for role in session["roles"].values() if role["model"]}
    if not rows:
        raise UsageError("there is no finished dialogue yet\nThe analysis begins with the first.")
    return dialogue_html(
        {
            "name": batch["runId"],
            "sessions": len(rows),
            "left_out": lost,
            "stand_ins": sorted(rehearsed),
            "measures": analysis(rows, ""),
        }
    )


def _sessions(site: Site, run_id: str) -> Iterator[dict[str, Any]]:
    read = site.store.read
    return (session_document(read, item) for item in finished_items(read, run_id))
