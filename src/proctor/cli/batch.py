"""`proctor batch`: run a plan, or go on with it after it was changed."""

import asyncio
import re
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor import __version__
from proctor.agents import find_agent
from proctor.batch.lifecycle import clear_leftovers
from proctor.batch.preflight import PreflightContext, PreflightResult, inspect
from proctor.bootstrap import environment, make_models, now, places
from proctor.cli.output import (
    JsonAtEnd,
    Jsonl,
    RetryErrors,
    RetryFailed,
    count,
    print_json,
    print_note,
    printable,
)
from proctor.cli.run import OutputOptions, run_batch_command
from proctor.errors import PlanError, UsageError
from proctor.item import Item
from proctor.jobs.coding.job import create_batch, extend_batch
from proctor.jobs.coding.plan import CodingPlan, Overrides, read_plan
from proctor.jobs.coding.schema import RUN_ID
from proctor.plan.source import bytes_of
from proctor.store import RetrySelection, Store
from proctor.store.writer import this_process

batch_app = typer.Typer(add_completion=False)


apps = {"batch": batch_app}


@batch_app.command()
def batch(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(help="The plan, a YAML file.")],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the items, check that what they name exists, start nothing."),
    ] = False,
    resume: Annotated[
        str, typer.Option("--resume", help="Go on with an earlier run of this plan: RUN, or the last one.")
    ] = "",
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Items at a time, instead of the plan's.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model of items that name none.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent of items that name none.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="USD the whole run may spend, instead of the plan's.")
    ] = None,
    timeout_sec: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds an agent may take, for items that print_note nothing."),
    ] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, help="Further attempts, for items that print_note nothing.")
    ] = None,
    merge_on_pass: Annotated[
        bool | None, typer.Option("--merge-on-pass/--no-merge-on-pass", help="Merge what passes its check.")
    ] = None,
    json_logs: Annotated[
        bool | None, typer.Option("--json-logs/--no-json-logs", help="Keep the agents' own event streams.")
    ] = None,
    retry_errors: RetryErrors = False,
    retry_failed: RetryFailed = False,
    run_id: Annotated[
        str, typer.Option("--run-id", help="What to call the run, instead of the plan's.")
    ] = "",
    folder: Annotated[
        Path | None, typer.Option(help="Where relative paths begin; else in the plan's own folder.")
    ] = None,
    as_json: JsonAtEnd = False,
    as_jsonl: Jsonl = False,
) -> int:
    """Run every item of PLAN. Ctrl-C stops cleanly; the same command with --resume goes on from there.

    Example:  proctor batch plans/compare.yaml --concurrency 4
    """
    overrides = Overrides(
        concurrency=concurrency,
        model=model,
        agent=agent,
        budget_usd=budget,
        timeout_sec=timeout_sec,
        retries=retries,
        merge_on_pass=merge_on_pass,
        json_logs=json_logs,
    )
    if run_id and not re.fullmatch(RUN_ID, run_id):
        raise UsageError(f"{run_id} cannot be the name of a run\nIt may have letters, digits and . _ -")
    beside = (folder or plan.parent).resolve()
    read = _read(plan, beside)
    where = places(context.obj)
    models = make_models(
        where,
        [beside, Path.cwd()],
        prices=read.prices,
        record=None if dry_run else read.record,
        replay=read.replay,
    )
    found = inspect(
        read, overrides, PreflightContext(environment=environment(), find_agent=find_agent, models=models)
    )
    if found.problems:
        raise PlanError(found.problems)
    if dry_run:
        return _dry_run(read, overrides, found, as_json=as_json)
    with where.open_store() as store:
        again = RetrySelection(errors=retry_errors, failures=retry_failed)
        owner = this_process()
        path = str(plan.resolve())
        if resume:
            run_id = _find(store, read, resume, path)
            clear_leftovers(store.resume_batch(run_id, owner, again, now()), where.home)
            _tell_extension(store, run_id, read, overrides, path)
        else:
            run_id = run_id or read.run_id or _new_run_id()
            create_batch(
                store,
                read,
                overrides,
                run_id=run_id,
                plan_path=path,
                owner=owner,
                version=__version__,
                now=now(),
            )
        for remark in found.remarks:
            print_note(f"note: {printable(remark)}")
        return asyncio.run(
            run_batch_command(
                store, where.home, run_id, owner, models, OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
            )
        )


def _read(path: Path, folder: Path) -> CodingPlan:
    text = bytes_of(path, "the plan", remedy="Give the path of a YAML file.")
    return read_plan(text, file=str(path), folder=folder)


def _dry_run(plan: CodingPlan, overrides: Overrides, found: PreflightResult, *, as_json: bool) -> int:
    run_id = plan.run_id or ""
    if as_json:
        items = [_listed(item) for item in plan.items(overrides)]
        document = {"runId": run_id, "dryRun": True, "itemCount": found.items, "items": items}
        print_json(document | {"concurrency": plan.concurrency(overrides), "remarks": found.remarks})
        return 0
    for item in plan.items(overrides):
        where = item.details.get("repository", "–")
        words = [
            item.id,
            str(where),
            item.agent or "prompt",
            item.model or "–",
            f"run {item.repeat}",
            item.prompt,
        ]
        print("  ".join(printable(word, width=72) for word in words))
    for remark in found.remarks:
        print_note(f"note: {printable(remark)}")
    at_a_time = plan.concurrency(overrides)
    print_note(
        f"{count(found.items, 'item')}, {at_a_time} at a time. All they name exists; nothing was started."
    )
    return 0


def _listed(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "repo": item.settings.get("repo"),
        "prompt": item.prompt,
        "agent": item.agent or None,
        "model": item.model or None,
        "repeat": item.repeat,
        "tags": item.settings.get("tags", []),
    }


def _find(store: Store, plan: CodingPlan, wanted: str, path: str) -> str:
    if wanted != "last":
        return str(store.read.batch(wanted, now())["runId"])
    if plan.run_id:
        return str(store.read.batch(plan.run_id, now())["runId"])
    found = store.read.batch_of_plan(path, plan.digest)
    if found is None:
        raise UsageError(f"no earlier run was made from {path}\nRun it without --resume, or name the run.")
    return found


def _tell_extension(store: Store, run_id: str, plan: CodingPlan, overrides: Overrides, path: str) -> None:
    before = store.read.batch(run_id, now())
    same_plan = before["planDigest"] == plan.digest
    if same_plan and overrides == Overrides():
        return
    told = extend_batch(store, run_id, plan, overrides, plan_path=path)
    if told.added:
        why = "; ".join(f"{count(number, 'item')}: {field}" for field, number in told.reasons.items())
        print_note(f"{count(told.added, 'new item')} since the last run (new because of {printable(why)})")
    if told.dropped or told.kept:
        print_note(
            f"no longer in the plan: {told.dropped} dropped from the queue, {told.kept} with results kept"
        )


def _new_run_id() -> str:
    return f"run-{now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
