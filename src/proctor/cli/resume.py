"""`proctor resume`: resume a run of any job by its id; and the internal command of detached runs.

The command of a job may add a live view of its own (`JobObserver`) and print more than the summary
(`present`); its module is loaded only when one of its runs resumes.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from proctor.api.launch import COMMAND, LaunchRequest, execute
from proctor.api.runs import COMMANDS, RetrySelection, job_of
from proctor.api.runs import resume as resume_run
from proctor.cli.output import (
    Engine,
    JsonAtEnd,
    Jsonl,
    KeepGoing,
    RayAddress,
    RetryErrors,
    RetryFailed,
    Run,
    Workers,
)
from proctor.cli.run import OutputOptions, TerminalObserver, run_command, terminal_context
from proctor.context import EngineOptions
from proctor.job import BatchChanges
from proctor.lazy_import import load

launched_app = typer.Typer(add_completion=False)


@launched_app.command()
def launched(context: typer.Context, as_json: JsonAtEnd = False) -> int:
    """Start or resume the run of the request on standard input."""
    request = LaunchRequest.from_json(sys.stdin.buffer.read())
    output = OutputOptions(as_json=as_json)
    folders = [] if request.plan_text is None else [Path(request.folder), Path.cwd()]
    with terminal_context(context.obj, list(dict.fromkeys(folders))) as ctx:
        return run_command(ctx, execute(request, ctx, TerminalObserver(ctx, output)), output)


resume_app = typer.Typer(add_completion=False)
apps = {"resume": resume_app, COMMAND: launched_app}


@resume_app.command()
def resume(
    context: typer.Context,
    run: Run,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Maximum items in parallel from now on.", metavar="N")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    keep_going: KeepGoing = False,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Budget of the whole run in USD from now on.", metavar="USD")
    ] = None,
    retry_errors: RetryErrors = False,
    retry_failed: RetryFailed = False,
    no_stop: Annotated[
        bool, typer.Option("--no-stop", help="Run all that is left, whatever `stop_when` has decided.")
    ] = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Jsonl = False,
) -> int:
    """Resume a run that was stopped, halted, or killed. Finished items are not repeated.

    Example:  proctor resume nightly-42 --budget 40
    """
    output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address, keep_going)
        command = _command_of(job_of(ctx, run).name)
        observer: type[TerminalObserver] = getattr(command, "JobObserver", TerminalObserver)
        resumed = resume_run(
            ctx,
            run,
            changes=BatchChanges(concurrency=concurrency, budget_usd=budget, stops_early=not no_stop),
            retry=RetrySelection(errors=retry_errors, failures=retry_failed),
            workers=workers,
            observer=observer(ctx, output),
        )
        return run_command(ctx, resumed, output, present=getattr(command, "present", None))


def _command_of(job: str) -> ModuleType | None:
    """The module of the command that runs a job, where it shows more than other commands."""
    return load(f"proctor.cli.{COMMANDS[job]}") if job in COMMANDS else None
