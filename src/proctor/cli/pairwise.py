"""`proctor evaluators pairwise`: which of two sessions of one task is better, in both orders."""

from typing import Annotated

import typer

from proctor.api import evaluation as api
from proctor.api.runs import flags as flags_of_job
from proctor.cli.evaluate import Texts, execute, print_estimate
from proctor.cli.output import Json, setting_options, takes_options
from proctor.cli.run import OutputOptions, terminal_context
from proctor.json_values import JsonMap, without_empty


@takes_options("settings", setting_options(flags_of_job("evaluation")))
def pairwise(
    context: typer.Context,
    *,
    settings: JsonMap,
    run: Annotated[Texts, typer.Option(help="Run with sessions to compare. Repeatable.")] = None,
    service: Annotated[Texts, typer.Option(help="Compare traces of this service. Repeatable.")] = None,
    log_group: Annotated[Texts, typer.Option(help="Compare traces received under this log group.")] = None,
    files: Annotated[Texts, typer.Option(help="Import these files or folders, then compare them.")] = None,
    session_id: Annotated[Texts, typer.Option(help="Only this session. Repeatable.")] = None,
    start_time: Annotated[str, typer.Option("--start", help="Active at or after: 2026-01-31T14:00Z.")] = "",
    end_time: Annotated[str, typer.Option("--end", help="Active before.")] = "",
    by: Annotated[
        str,
        typer.Option(
            help="What is compared: run, model, agent, service, version, prompt, a factor or attribute "
            "(default: run)."
        ),
    ] = "",
    task: Annotated[
        str,
        typer.Option(help="Factor or attribute that names the task (default: scenario, task or prompt)."),
    ] = "",
    question: Annotated[str, typer.Option(help="What the judge is asked.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count pairs and estimate the cost; start nothing.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare sessions of the same tasks pair by pair, each in both orders, and rank runs or models.

    A session wins if it does in both orders; otherwise the pair is a tie. The result is an evaluation:
    `proctor resume` resumes it, and `proctor evaluate get` shows it again.

    Example:  proctor evaluators pairwise --run nightly-41 --run nightly-42 --judge openai/gpt-4.1
    """
    flags = api.RequestFlags(
        settings={**settings, "batch_evaluation_name": settings.get("batch_evaluation_name") or "pairwise"},
        runs=run or (),
        services=service or (),
        log_groups=log_group or (),
        files=files or (),
        session_ids=session_id or (),
        start=start_time,
        end=end_time,
        pairwise=without_empty({"by": by or "run", "task": task, "question": question}),
    )
    with terminal_context(context.obj) as ctx:
        request = api.read_request(ctx, flags)
        if dry_run:
            return print_estimate(ctx, request, as_json=as_json)
        evaluation = api.open_request(ctx, request)
        return execute(ctx, evaluation, OutputOptions(as_json=as_json))
