"""`proctor batch`: run a coding plan, or resume it after it was changed."""

import re
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.runs import DryRun, RetrySelection, dry_run, flags, job_of_batch, read_plan, start
from proctor.cli.output import (
    Engine,
    JsonAtEnd,
    Jsonl,
    KeepGoing,
    RayAddress,
    RetryErrors,
    RetryFailed,
    Workers,
    count,
    printable,
    setting_options,
    takes_options,
)
from proctor.cli.run import (
    OutputOptions,
    TerminalObserver,
    print_dry_run,
    run_command,
    terminal_context,
)
from proctor.context import EngineOptions
from proctor.errors import UsageError
from proctor.item import Item
from proctor.job import PlanText, check_run_id
from proctor.json_values import JsonMap, JsonObject, without_none
from proctor.plan.source import bytes_of

batch_app = typer.Typer(add_completion=False)
apps = {"batch": batch_app}


@batch_app.command()
@takes_options("settings", setting_options(flags("coding")))
def batch(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(help="The plan, a YAML file.", metavar="PLAN")],
    settings: JsonMap,
    dry: Annotated[
        bool,
        typer.Option("--dry-run", help="Validate the plan and list its items; run nothing."),
    ] = False,
    resume: Annotated[
        str, typer.Option("--resume", help="Resume RUN, or the latest run of this plan.", metavar="RUN")
    ] = "",
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    keep_going: KeepGoing = False,
    retry_errors: RetryErrors = False,
    retry_failed: RetryFailed = False,
    run_id: Annotated[
        str, typer.Option("--run-id", help="Run ID; overrides the plan's.", metavar="RUN")
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option(help="Base folder for relative paths (default: the plan's folder).", metavar="DIR"),
    ] = None,
    as_json: JsonAtEnd = False,
    as_jsonl: Jsonl = False,
) -> int:
    """Run every item of PLAN. Ctrl-C stops cleanly; the same command with --resume continues.

    Example:  proctor batch plans/compare.yaml --concurrency 4
    """
    if run_id:
        check_run_id(run_id)
    base = (folder or plan.parent).resolve()
    text = bytes_of(plan, "the plan", remedy="Give the path of a YAML file.")
    source = PlanText(text=text, path=plan, folder=base)
    output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
    with terminal_context(context.obj, [base, Path.cwd()]) as ctx:
        ctx.engine = EngineOptions(engine, ray_address, keep_going)
        if _has_tasks(text):
            # Loaded here: most plans have none.
            from proctor.cli.bench import run_task_plan

            if resume:
                raise UsageError("a plan with `tasks` is resumed by its run ID\nUse: proctor resume RUN")
            return run_task_plan(ctx, source, settings, output, dry=dry, run_id=run_id)
        earlier = _run_to_resume(resume, run_id) if resume else None
        job, settings = job_of_batch(source.decoded), without_none(settings)
        read = read_plan(ctx, source, job=job, overrides=settings, resume=earlier, run_id=run_id)
        retry = RetrySelection(errors=retry_errors, failures=retry_failed)
        if dry:
            return _dry_run(dry_run(ctx, read, retry=retry), as_json=as_json)
        run = start(ctx, read, retry=retry, workers=workers, observer=TerminalObserver(ctx, output))
        return run_command(ctx, run, output)


def _run_to_resume(resume: str, run_id: str) -> str:
    """The run that `--resume` and `--run-id` name; empty: the latest run of the plan."""
    named = "" if resume == "last" else resume
    if named and run_id and named != run_id:
        raise UsageError(f"--resume names run {named}, and --run-id names run {run_id}\nName one of them.")
    return named or run_id


def _has_tasks(text: bytes) -> bool:
    return re.search(rb"""^(?:\{\s*)?["']?tasks["']?\s*:""", text, re.MULTILINE) is not None


def _dry_run(expected: DryRun, *, as_json: bool) -> int:
    plan = expected.plan
    document: JsonObject = {
        "runId": plan.run_id,
        "dryRun": True,
        "itemCount": plan.item_count,
        "items": [_document(item) for item in expected.items] if as_json else (),
        "concurrency": plan.concurrency,
        "notes": list(expected.remarks),
    }
    summary = f"Plan is valid: {count(plan.item_count or 0, 'item')}, concurrency {plan.concurrency}."

    def print_items() -> None:
        for item in plan.items():
            cells = [
                item.id,
                str(item.details.get("repository", "–")),
                item.agent or "prompt",
                item.model or "–",
                f"run {item.repeat}",
                item.prompt,
            ]
            print("  ".join(printable(cell, width=72) for cell in cells))

    return print_dry_run(expected, document, print_items, summary, name=lambda item: item.id, as_json=as_json)


def _document(item: Item) -> JsonObject:
    return {
        "id": item.id,
        "repo": item.settings.get("repo"),
        "prompt": item.prompt,
        "agent": item.agent or None,
        "model": item.model or None,
        "repeat": item.repeat,
        "tags": item.settings.get("tags", []),
    }
