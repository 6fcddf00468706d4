"""Import of tables of results over HTTP."""

import asyncio
import re
import shutil
import threading
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from proctor.errors import UsageError
from proctor.job import check_run_id
from proctor.secrets import private_folder
from proctor.web.responses import ERRORS
from proctor.web.state import AppState

Name = Annotated[str, Query(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ImportedTable(BaseModel):
    """The result of an import."""

    runId: str  # noqa: N815
    rows: int
    added: int
    replaced: int
    unchanged: int
    removed: int = Field(description="Items whose rows are no longer in the file.")
    notes: list[str]


def router(site: AppState) -> APIRouter:
    """The route that imports a table."""
    routes = APIRouter(tags=["runs"], responses=ERRORS)
    # Files of one run and name have one path, by which the store knows them.
    importing = threading.Lock()

    @routes.post("/api/tables", status_code=201, summary="Import a table of results as a run")
    async def import_table(
        request: Request,
        run: Name,
        file: Annotated[Name, Query(description="Name of the file, whose suffix is its format.")],
        column: Annotated[
            list[Name] | None, Query(description="Column of the table: task=instance_id. Repeatable.")
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
                return _import(site, run, file, content, column, pass_score)

        return await asyncio.to_thread(work)

    return routes


def _import(
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
    if site.store.data_keys.is_encrypted:
        raise UsageError(
            "the store is encrypted, and an uploaded file would not be\n"
            "Import it on the server:  proctor import table FILE --run NAME"
        )
    folder = private_folder(site.data_folder / "uploads" / "tables" / run)
    path = folder / (re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).name).strip(".-") or "table")
    try:
        path.write_bytes(content)
        done = import_table(site.store, [path], run, site.now(), columns=mapping, pass_score=pass_score)
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
