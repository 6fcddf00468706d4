"""`proctor resume`: go on with a run of any job, by its id alone.

A job that keeps files of its own goes on in its own module, which is loaded only then: what that takes,
the others need not wait for.
"""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.batch import lifecycle
from proctor.batch.lifecycle import clear_leftovers
from proctor.bootstrap import StorePlaces, make_models, now, places
from proctor.cli.output import JsonAtEnd, Jsonl, RetryErrors, RetryFailed, Run
from proctor.cli.run import OutputOptions, TerminalObserver, run_batch_command, run_command, terminal_context
from proctor.job import BatchChanges
from proctor.jobs import find_job
from proctor.models import ModelRouter
from proctor.store import RetrySelection, Store
from proctor.store.tables import BatchRow
from proctor.store.writer import this_process

resume_app = typer.Typer(add_completion=False)


apps = {"resume": resume_app}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What is asked of a run that goes on."""

    batch: BatchRow
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
        return run_command(ctx, resumed, wanted.shown)


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


def _scenario(store: Store, where: StorePlaces, wanted: _Wanted) -> int:
    from proctor.cli.experiment_run import resume_run

    return resume_run(store, where, wanted.batch, wanted.changes, wanted.again, wanted.shown)


def _evaluation(store: Store, where: StorePlaces, wanted: _Wanted) -> int:
    from proctor.cli.evaluating import resume_evaluation

    return resume_evaluation(store, where, wanted.run_id, wanted.changes, wanted.again, wanted.shown)


def _dialogue(store: Store, where: StorePlaces, wanted: _Wanted) -> int:
    from proctor.cli.simulating import finish_files, house_of, prepare_files

    batch, owner = wanted.batch, this_process()
    models = _taken_over(store, where, wanted, owner)
    prepare_files(store, batch)
    house = house_of(store, where, batch, models)
    code = asyncio.run(
        run_batch_command(store, where.home, wanted.run_id, owner, models, wanted.shown, house=house)
    )
    finish_files(store, batch)
    return code


_JOBS = {"benchmark": _benchmark, "scenario": _scenario, "evaluation": _evaluation, "dialogue": _dialogue}
"""Who goes on with the runs of a job; without an entry, they are a batch and nothing else."""


def _taken_over(store: Store, where: StorePlaces, wanted: _Wanted, owner: str) -> ModelRouter:
    """Make a run ours, and find the models it asks."""
    clear_leftovers(store.resume_batch(wanted.run_id, owner, wanted.again, now()), where.home)
    store.change_batch(wanted.run_id, wanted.changes)
    options = json.loads(wanted.batch["optionsJson"])
    # Where its relative paths begin.
    folder = Path(options.get("folder") or Path(wanted.batch["planPath"]).parent)
    return make_models(
        where,
        [folder, Path.cwd()],
        prices=options.get("prices"),
        record=options.get("record"),
        replay=options.get("replay"),
    )
