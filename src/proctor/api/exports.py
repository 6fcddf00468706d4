"""Export tables, sessions in the formats of other tools, or patches of a run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.export import FORMATS, SESSION_FORMATS, export_sessions, export_tables
from proctor.export.deposit import Deposit, deposit_text, unpack_deposit, write_deposit
from proctor.store import Scope

PREDICTIONS = "swe-bench"
"""Format of the patches of a run of tasks."""

__all__ = [
    "FORMATS",
    "PREDICTIONS",
    "SESSION_FORMATS",
    "Scope",
    "deposit",
    "deposit_text",
    "export",
    "sessions_of_run",
    "unpack_deposit",
]


def export(
    ctx: RunContext,
    scope: Scope,
    *,
    out: Path,
    format_: str,
    tables: Sequence[str] | None = None,
    label: str = "",
    on_progress: Callable[[int], None] = lambda rows: None,  # noqa: ARG005
) -> list[Path]:
    """Write what a scope selects to the folder `out`; returns the files.

    `format_` is one of `FORMATS`, `SESSION_FORMATS` or `PREDICTIONS`. `label` is part of the names of the
    files (default: the run). `on_progress` is called with the number of rows.
    """
    label = label or scope.run_id or "export"
    if format_ == PREDICTIONS:
        # Loaded here: few exports need it.
        from proctor.tasks.predictions import export_predictions

        if not scope.run_id:
            raise UsageError("patches are exported of a run\nPass --run RUN.")
        return export_predictions(ctx.store, scope.run_id, out, ctx.settings.user_environment)
    if format_ in SESSION_FORMATS:
        return export_sessions(ctx.store.read, scope, out=out, form=format_, label=label)
    return export_tables(
        ctx.store.read, scope, out=out, format=format_, tables=tables, label=label, on_progress=on_progress
    )


def deposit(ctx: RunContext, run_id: str, file: Path) -> Deposit:
    """Write the archive of a run for a journal or repository: data, codebook, config, files, checksums."""
    from proctor import __version__

    return write_deposit(ctx.store.read, ctx.store.read.batch(run_id, ctx.now()), file, version=__version__)


def sessions_of_run(ctx: RunContext, run_id: str, session_ids: Sequence[str]) -> Scope:
    """The sessions with these IDs that a run has. Raises `NotFound` if it has none of them."""
    known = ctx.store.read.session_ids(Scope(run_id=run_id, session_ids=session_ids))
    if not known:
        raise NotFound(f"run {run_id} has none of these sessions\nThey may have been deleted.")
    # Without the run, which would add all of its items.
    return Scope(session_ids=known)
