"""`proctor evaluate`: evaluate recorded sessions of any source."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from proctor.api import evaluation as api
from proctor.api.runs import flags as flags_of_job
from proctor.cli import output as codes
from proctor.cli.output import (
    Engine,
    Json,
    RayAddress,
    Workers,
    count,
    money,
    print_json,
    print_note,
    print_result,
    print_table,
    printable,
    setting_options,
    takes_options,
)
from proctor.cli.run import (
    OutputOptions,
    TerminalObserver,
    predict_cost_and_time,
    print_document,
    print_summary,
    run_command,
    terminal_context,
)
from proctor.context import EngineOptions, RunContext
from proctor.errors import UsageError
from proctor.formatting import moment
from proctor.json_values import JsonMap, JsonObject

evaluate_app = typer.Typer(add_completion=False, no_args_is_help=True)
apps = {"evaluate": evaluate_app}
Texts = list[str] | None
Id = Annotated[
    str, typer.Argument(metavar="ID", help="Evaluation ID, its ARN, or an unambiguous prefix of the ID.")
]
PATIENCE_SECONDS = 30
"""How long `watch` waits for the process of a pending evaluation."""


@evaluate_app.command("get")
def get(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Show an evaluation: its state, its request, and its results so far.

    Example:  proctor evaluate get nightly-a1B2c3D4e5 --json
    """
    with terminal_context(context.obj) as ctx:
        report = api.evaluation_report(ctx, evaluation, with_targets=False)
    row = report.evaluation
    if as_json:
        print_json(_document(report))
    else:
        print(f"{printable(row.id)}  {row.state}  {row.created_at:%Y-%m-%d %H:%M} UTC")
        print_result(replace(api.report_document(report), subtitle=""))
    return codes.SUCCEEDED


def _document(report: api.EvaluationReport) -> JsonObject:
    return api.evaluation_document(report.evaluation, report.results, report.insights, report.pairwise)


@evaluate_app.command("list")
def list_jobs(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of evaluations to list, newest first.")
    ] = 50,
    as_json: Json = False,
) -> int:
    """List evaluations, newest first.

    Example:  proctor evaluate list
    """
    with terminal_context(context.obj) as ctx:
        page = api.evaluations_page(ctx, limit=limit, allow_locked=True)
        rows = [(each, api.results_of(ctx, each)) for each in page]
    if as_json:
        print_json({"batchEvaluations": [api.evaluation_document(*each) for each in rows]})
    elif not rows:
        print_note("There are no evaluations yet. Start one:  proctor evaluate start --help")
    else:
        print_table(
            ("ID", "STATE", "CREATED", "SESSIONS", "FAILED", "EVALUATORS", "COST"),
            [_listed(each, results) for each, results in rows],
        )
    if locked := sum(each.is_locked for each, _ in rows):
        print_note(f"note: {count(locked, 'evaluation')} encrypted with a key that is not available")
    return codes.SUCCEEDED


@evaluate_app.command("watch")
def watch(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Watch an evaluation until it ends, wherever it runs. Ctrl-C stops watching, not the evaluation.

    Example:  proctor evaluate watch nightly-a1B2c3D4e5
    """
    from proctor.cli.runs import watch as watch_run

    with terminal_context(context.obj) as ctx:
        row = api.find_evaluation(ctx, evaluation)
        deadline = ctx.monotonic() + PATIENCE_SECONDS
        while row.state == api.PENDING and ctx.monotonic() < deadline:
            time.sleep(0.1)
            row = api.find_evaluation(ctx, row.id)
    return watch_run(context, row.run_id, as_json)


@evaluate_app.command("drift")
def drift(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Only the online configuration or [[watch]] of this name.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Show scores of online evaluation over time: means with anytime-valid bounds, and detected changes.

    Example:  proctor evaluate drift support --json
    """
    with terminal_context(context.obj) as ctx:
        lines = api.drift_lines(ctx, name)
    if as_json:
        print_json({"lines": [asdict(line) | {"state": line.state} for line in lines]})
    elif not lines:
        print_note("There are no scores of online evaluation. Add a [[watch]] to proctor.toml, and serve.")
    for line in lines if not as_json else ():
        print(f"{printable(line.name)}  {printable(line.title)}  {line.state}")
        if line.points:
            print_table(
                ("SESSIONS", "UNTIL", "MEAN", "BOUNDS"),
                [
                    (
                        f"{point['position']:,}",
                        moment(point["at"]),
                        f"{point['mean']:.3f}",
                        f"{point['low']:.3f} to {point['high']:.3f}",
                    )
                    for point in line.points[-DRIFT_POINTS:]
                ],
            )
        for event in line.crossings[-DRIFT_POINTS:]:
            alert = f", alert {event['alert']}" if event["alert"] != "none" else ""
            why = f" ({printable(event['problem'])})" if event["problem"] else ""
            print(f"  {event['direction']} at session {event['position']:,}, {event['at']}{alert}{why}")
    return codes.SUCCEEDED


DRIFT_POINTS = 10
"""Points and crossings of a line that are printed, the most recent ones; `--json` has more."""


@evaluate_app.command("results")
def results(
    context: typer.Context,
    evaluation: Id,
    output: Annotated[
        Path | None,
        typer.Option("--output", "--output-dir", help="Write records.jsonl and summary.json to this folder."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show results by evaluator, or write every single result to files.

    Example:  proctor evaluate results nightly-a1B2c3D4e5 --output results
    """
    with terminal_context(context.obj) as ctx:
        report = api.evaluation_report(ctx, evaluation, with_targets=False)
        written = api.write_results(ctx, report.results, output) if output else []
    if as_json:
        print_json(_document(report) | ({"files": [str(path) for path in written]} if written else {}))
        for text in report.results.remarks:
            print_note(f"note: {printable(text)}")
    else:
        print_result(api.report_document(report))
    for path in written:
        print_note(f"wrote {printable(path)}")
    return codes.SUCCEEDED


def _listed(evaluation: api.EvaluationState, results: api.EvaluationResults) -> tuple[str, ...]:
    return (
        evaluation.id,
        evaluation.state,
        f"{evaluation.created_at:%Y-%m-%d %H:%M}",
        str(results.total),
        str(results.failed or ""),
        "(encrypted)" if evaluation.is_locked else ", ".join(evaluation.evaluators),
        "" if results.cost_usd is None else money(results.cost_usd),
    )


@evaluate_app.command()
@takes_options("settings", setting_options(flags_of_job("evaluation")))
def start(
    context: typer.Context,
    *,
    plan: Annotated[
        Path | None, typer.Argument(help="Evaluation plan, YAML or JSON; flags take precedence.")
    ] = None,
    settings: JsonMap,
    evaluator: Annotated[
        Texts, typer.Option(help="Evaluator: Builtin.X, an ID, a file, module:function. Repeatable.")
    ] = None,
    run: Annotated[Texts, typer.Option(help="Evaluate the sessions of this run. Repeatable.")] = None,
    job: Annotated[
        Texts, typer.Option(help="Evaluate sessions of this job type: coding, dialogue, …")
    ] = None,
    role: Annotated[Texts, typer.Option(help="Evaluate sessions in which this role took part.")] = None,
    model: Annotated[Texts, typer.Option(help="Evaluate sessions of this model.")] = None,
    files: Annotated[Texts, typer.Option(help="Import these files or folders, then evaluate them.")] = None,
    kind: Annotated[str, typer.Option(help="Import format of the files: auto, otlp, inspect, …")] = "",
    log_group: Annotated[Texts, typer.Option(help="Evaluate traces received under this log group.")] = None,
    log_group_prefix: Annotated[
        Texts, typer.Option(help="Evaluate traces of log groups with this prefix.")
    ] = None,
    service: Annotated[Texts, typer.Option(help="Evaluate traces of this service (`service.name`).")] = None,
    cloudwatch: Annotated[
        bool, typer.Option("--cloudwatch", help="Fetch these log groups from CloudWatch Logs first.")
    ] = False,
    session_id: Annotated[Texts, typer.Option(help="Only this session. Repeatable.")] = None,
    start_time: Annotated[str, typer.Option("--start", help="Active at or after: 2026-01-31T14:00Z.")] = "",
    end_time: Annotated[str, typer.Option("--end", help="Active before.")] = "",
    ground_truth: Annotated[
        list[Path] | None, typer.Option(help="Ground-truth file, or dataset:NAME. Repeatable.")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    client_token: Annotated[
        str | None, typer.Option(help="Idempotency token: it starts an evaluation only once.")
    ] = None,
    resume: Annotated[
        str,
        typer.Option(metavar="ID", help="Add evaluators or sessions to this evaluation; keep its results."),
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Start it in the background and return.")] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Count sessions and estimate the cost; start nothing.")
    ] = False,
    as_json: Json = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print a JSON record for each item.")] = False,
) -> int:
    """Evaluate every session of a source with every evaluator. Ctrl-C stops it; `proctor resume` resumes it.

    Example:  proctor evaluate start --name nightly --run nightly-42 --evaluator Builtin.Helpfulness
    """
    flags = api.RequestFlags(
        settings={**settings, "client_token": client_token},
        evaluators=evaluator or (),
        log_groups=log_group or (),
        log_group_prefixes=log_group_prefix or (),
        services=service or (),
        session_ids=session_id or (),
        runs=run or (),
        jobs=job or (),
        roles=role or (),
        models=model or (),
        files=files or (),
        kind=kind,
        start=start_time,
        end=end_time,
        ground_truth=ground_truth or (),
    )
    output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
    if dry and (resume or cloudwatch):
        raise UsageError(
            "--dry-run cannot be combined with --resume or --cloudwatch\nIt starts and fetches nothing."
        )
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        if resume:
            evaluation = api.extend_evaluation(ctx, resume, flags, plan)
        else:
            request = api.read_request(ctx, flags, plan)
            if dry:
                return print_estimate(ctx, request, as_json=as_json)
            evaluation = api.open_request(ctx, request, is_detached=detach, from_cloudwatch=cloudwatch)
            if not evaluation.is_new:
                print_note(f"{printable(evaluation.id)} was started with this token before")
                return _print_state(evaluation, as_json)
        if not detach:
            return execute(ctx, evaluation, output, workers)
        api.detach_evaluation(ctx, evaluation.id, workers=workers)
        print_note(f"Status:  proctor evaluate get {printable(evaluation.id)}")
        return _print_state(evaluation, as_json)


@evaluate_app.command("run")
def run_job(
    context: typer.Context,
    evaluation: Id,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    as_json: Json = False,
) -> int:
    """Execute an evaluation that was started elsewhere, or whose process died.

    Example:  proctor evaluate run nightly-a1B2c3D4e5
    """
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        row = api.find_evaluation(ctx, evaluation)
        if row.is_finished:
            print_note(f"{printable(row.id)} is {row.state}; `proctor resume` resumes it")
            return codes.SUCCEEDED if row.state == api.COMPLETED else codes.SOME_DID_NOT
        return execute(ctx, row, OutputOptions(as_json=as_json), workers)


@evaluate_app.command()
def stop(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Stop an evaluation, wherever it runs. Results so far are kept.

    Example:  proctor evaluate stop nightly-a1B2c3D4e5
    """
    with terminal_context(context.obj) as ctx:
        stopped = api.stop_evaluation(ctx, evaluation)
    return _print_state(stopped, as_json)


@evaluate_app.command()
def delete(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Remove a finished evaluation from the list. Its results stay; `proctor delete` removes those too.

    Example:  proctor evaluate delete nightly-a1B2c3D4e5
    """
    with terminal_context(context.obj) as ctx:
        deleted = api.delete_evaluation(ctx, evaluation)
    return _print_state(deleted, as_json)


def execute(
    ctx: RunContext, evaluation: api.EvaluationState, output: OutputOptions, workers: int | None = None
) -> int:
    """Execute what is left of an evaluation in this process, and print its results."""
    observer = TerminalObserver(ctx, output)
    executed = api.execute_evaluation(ctx, evaluation.id, workers=workers, observer=observer)
    return run_command(ctx, executed, output, present=present)


def present(ctx: RunContext, finished: api.RunResult, output: OutputOptions) -> None:
    """Print the outcome of an evaluation: its JSON document, or its results by evaluator."""
    report = api.evaluation_report(ctx, finished.run_id, with_targets=False, with_deleted=True)
    evaluation, results = report.evaluation, report.results
    document = api.evaluation_document(evaluation, results, pairwise=report.pairwise)
    print_document(document | {"run": finished.summary}, output)
    print_summary(finished.summary, ctx=ctx)
    if output.as_json or output.as_jsonl:
        for text in (*evaluation.error_details, *results.remarks):
            print_note(f"note: {printable(text)}")
    else:
        print_result(replace(api.report_document(report), subtitle=""))


def _print_state(evaluation: api.EvaluationState, as_json: bool) -> int:
    if as_json:
        print_json(api.evaluation_document(evaluation, None))
    else:
        print(f"{printable(evaluation.id)}  {evaluation.state}")
    return codes.SUCCEEDED


def print_estimate(ctx: RunContext, request: api.PendingEvaluationRequest, *, as_json: bool) -> int:
    """Print what an evaluation would do. Starts nothing."""
    estimate = api.estimate(ctx, request)
    plan = api.EvaluationJobPlan(request)
    forecast = predict_cost_and_time(api.JOB.name, plan, ctx, work=estimate.workload)
    if as_json:
        print_json({**estimate.document, "estimate": forecast.document})
        return codes.SUCCEEDED
    for remark in estimate.remarks:
        print_note(f"note: {printable(remark)}")
    for effort in estimate.evaluators:
        judges = " and ".join([effort.model or "", *effort.further_judges])
        calls = f"{count(effort.calls, 'call')} of {judges}" if effort.model else "no model calls"
        calls += " at most" if effort.is_upper_bound else ""
        cost = f", about {effort.tokens:,} tokens, {money(effort.cost_usd)}" if effort.model else ""
        print(printable(f"{effort.evaluator}: {count(effort.results, 'result')}, {calls}{cost}"))
    forecast.print()
    ignored = f" ({estimate.ignored:,} older ones ignored)" if estimate.ignored else ""
    items = count(estimate.item_count, "item")
    print_note(f"{count(estimate.sessions, 'session')}{ignored}, {items}. Dry run: nothing was started.")
    return codes.SUCCEEDED
