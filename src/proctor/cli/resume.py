"""`proctor resume`: go on with a run of any job, by its id alone.

A job that keeps files of its own goes on in its own module, which is loaded only then: what that takes,
the others need not wait for.
"""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from proctor.batch import lifecycle
from proctor.bootstrap import StorePlaces, now, places
from proctor.cli.main import COMMANDS
from proctor.cli.output import JsonAtEnd, Jsonl, RetryErrors, RetryFailed, Run
from proctor.cli.run import OutputOptions, Present, TerminalObserver, run_command, terminal_context
from proctor.job import BatchChanges, Job
from proctor.jobs import find_job
from proctor.lazy_import import load
from proctor.store import RetrySelection, Store

resume_app = typer.Typer(add_completion=False)


apps = {"resume": resume_app}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is asked of a run that goes on."""

    batch: dict[str, Any]
    """Its row."""
    changes: dict[str, Any]
    """Columns of the row that have another value from now on."""
    again: RetrySelection
    shown: OutputOptions

    @property
    def run_id(self) -> str:
        return str(self.batch["runId"])


@resume_app.command()
def resume(
    context: typer.Context,
    run: Run,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Items at a time from now on.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="USD the whole run may spend from now on.")
    ] = None,
    retry_errors: RetryErrors = False,
    retry_failed: RetryFailed = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Jsonl = False,
) -> int:
    """Go on with a run that was stopped, halted or killed. Finished items are not repeated.

    Example:  proctor resume nightly-42 --budget 40
    """
    where = places(context.obj)
    changes = {"concurrency": concurrency, "budgetUsd": budget}
    with where.open_store() as store:
        wanted = _Wanted(
            batch=store.read.batch(run, now()),
            changes={name: value for name, value in changes.items() if value is not None},
            again=RetrySelection(errors=retry_errors, failures=retry_failed),
            shown=OutputOptions(as_json=as_json, as_jsonl=as_jsonl),
        )
        go_on = _JOBS.get(wanted.batch["job"])
        if go_on:
            return go_on(store, where, wanted)
    return _run(where, wanted)


def _run(where: StorePlaces, wanted: _Wanted) -> int:
    options = {"home": str(where.home), "store": where.store}
    with terminal_context(options) as ctx:
        job = find_job(wanted.batch["job"])
        changes = BatchChanges(
            concurrency=wanted.changes.get("concurrency"), budget_usd=wanted.changes.get("budgetUsd")
        )
        resumed = lifecycle.resume(
            job,
            wanted.run_id,
            ctx,
            changes=changes,
            retry=wanted.again,
            observer=TerminalObserver(ctx, wanted.shown),
        )
        return run_command(ctx, resumed, wanted.shown, present=_presenter(job))


def _presenter(job: Job) -> Present | None:
    """How the command of a job prints a finished run; None: as every command does."""
    if not job.command:
        return None
    module = load(f"proctor.cli.{COMMANDS[job.command][0]}")
    found: Present | None = getattr(module, "present", None)
    return found


def _benchmark(store: Store, where: StorePlaces, wanted: _Wanted) -> int:
    from proctor.cli.bench import go_on_with

    return go_on_with(
        store,
        where,
        wanted.run_id,
        wanted.changes.get("concurrency", wanted.batch["concurrency"]),
        budget=wanted.changes.get("budgetUsd"),
        retry_failed=wanted.again.failures,
        as_json=wanted.shown.as_json,
    )


_JOBS = {"benchmark": _benchmark}
"""Who goes on with the runs of a job; without an entry, they are a batch and nothing else."""
