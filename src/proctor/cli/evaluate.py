"""`proctor evaluate`: evaluate recorded sessions of any source."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from proctor.batch import lifecycle
from proctor.batch.lifecycle import RunResult
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
    print_table,
    printable,
)
from proctor.cli.run import (
    CostAndTime,
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
from proctor.jobs.evaluation.job import JOB, EvaluationJobPlan
from proctor.jobs.evaluation.prepare import (
    EvaluationEstimate,
    PendingEvaluationRequest,
    estimate,
    extend_evaluation,
    import_cloudwatch,
    open_prepared,
    pending_request,
    prepare,
)
from proctor.jobs.evaluation.request import read_evaluation
from proctor.jobs.evaluation.results import (
    all_insights,
    evaluation_document,
    results_of,
    results_without_key,
    write_results,
)
from proctor.jobs.evaluation.state import (
    COMPLETED,
    PENDING,
    EvaluationState,
    delete_evaluation,
    evaluation_of,
    evaluations_page,
    stop_evaluation,
)
from proctor.json_values import JsonMap, JsonObject, as_map, without_none
from proctor.plan.source import bytes_of
from proctor.stats.evaluation import EvaluationResults, EvaluatorResult, Insight
from proctor.store import Store

evaluate_app = typer.Typer(add_completion=False, no_args_is_help=True)
apps = {"evaluate": evaluate_app}
Texts = list[str] | None
Id = Annotated[
    str, typer.Argument(metavar="ID", help="Evaluation ID, its ARN, or an unambiguous prefix of the ID.")
]
LOGS = "evaluations"
"""Folder below the home for the output of detached evaluations."""
PATIENCE_SECONDS = 30
"""How long `watch` waits for the process of a pending evaluation."""


@evaluate_app.command("get")
def get(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Show an evaluation: its state, its request, and its results so far.

    Example:  proctor evaluate get nightly-a1B2c3D4e5 --json
    """
    with terminal_context(context.obj) as ctx:
        row = evaluation_of(ctx.store, evaluation, ctx.now())
        results = results_of(ctx.store, row.id)
        insights = all_insights(ctx.store, results)
    if as_json:
        print_json(evaluation_document(row, results) | _insight_members(insights))
        return codes.SUCCEEDED
    print(f"{printable(row.id)}  {row.state}  {row.created_at:%Y-%m-%d %H:%M} UTC")
    parts = [f"{results.total} sessions", f"{results.completed} completed", f"{results.failed} failed"]
    waiting = "not evaluated" if row.is_finished else "in progress"
    parts += [f"{results.in_progress} {waiting}"] if results.in_progress else []
    parts += [f"{results.ignored} ignored"] if results.ignored else []
    print("  ".join(parts))
    for text in (*row.error_details, *results.remarks):
        print(printable(text))
    if results.summaries:
        print()
        print_results(results)
    print_insights(insights)
    return codes.SUCCEEDED


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
        page = evaluations_page(ctx.store, ctx.now(), limit=limit, allow_locked=True)
        rows = [
            (each, (results_without_key if each.is_locked else results_of)(ctx.store, each.id))
            for each in page
        ]
    if as_json:
        print_json({"batchEvaluations": [evaluation_document(*each) for each in rows]})
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
        row = evaluation_of(ctx.store, evaluation, ctx.now())
        deadline = ctx.monotonic() + PATIENCE_SECONDS
        while row.state == PENDING and ctx.monotonic() < deadline:
            time.sleep(0.1)
            row = evaluation_of(ctx.store, row.id, ctx.now())
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
    # Loads statistics and plots, which other commands do without.
    from proctor.jobs.evaluation.drift import drift_lines

    with terminal_context(context.obj) as ctx:
        lines = drift_lines(ctx.store, name)
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
        for each in line.crossings[-DRIFT_POINTS:]:
            alert = f", alert {each['alert']}" if each["alert"] != "none" else ""
            why = f" ({printable(each['problem'])})" if each["problem"] else ""
            print(f"  {each['direction']} at session {each['position']:,}, {each['at']}{alert}{why}")
    return codes.SUCCEEDED


DRIFT_POINTS = 10
"""Points and crossings of a line that are printed, the most recent ones; `--json` has more."""


@evaluate_app.command("results")
def results(
    context: typer.Context,
    evaluation: Id,
    output: Annotated[
        Path | None, typer.Option(help="Write records.jsonl and summary.json to this folder.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show results by evaluator, or write every single result to files.

    Example:  proctor evaluate results nightly-a1B2c3D4e5 --output results
    """
    with terminal_context(context.obj) as ctx:
        row = evaluation_of(ctx.store, evaluation, ctx.now())
        outcome = results_of(ctx.store, row.id)
        insights = all_insights(ctx.store, outcome)
        written = write_results(ctx.store, row.id, outcome, output) if output else []
    if as_json:
        document = evaluation_document(row, outcome) | _insight_members(insights)
        print_json(document | ({"files": [str(path) for path in written]} if written else {}))
    else:
        print_results(outcome)
        print_insights(insights)
    for text in outcome.remarks:
        print_note(f"note: {printable(text)}")
    for path in written:
        print_note(f"wrote {printable(path)}")
    return codes.SUCCEEDED


def _insight_members(insights: Sequence[Insight]) -> JsonObject:
    return {"insightsFound": [asdict(each) for each in insights]} if insights else {}


def _listed(evaluation: EvaluationState, results: EvaluationResults) -> tuple[str, ...]:
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
def start(
    context: typer.Context,
    plan: Annotated[
        Path | None, typer.Argument(help="Evaluation plan, YAML or JSON; flags take precedence.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the evaluation: letters, digits, underscores.")
    ] = None,
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
    max_sessions: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of sessions, most recent first (default: all).")
    ] = None,
    ground_truth: Annotated[
        list[Path] | None, typer.Option(help="Ground-truth file, or dataset:NAME. Repeatable.")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="Judge model, as provider/model.")] = None,
    votes: Annotated[
        int | None, typer.Option(min=1, help="Judge calls per target; the majority label wins.")
    ] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="Budget of the evaluation in USD.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Items in parallel (default: 8).")] = None,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    timeout: Annotated[
        float | None, typer.Option(min=0.001, help="Time limit of one evaluator on one session, in seconds.")
    ] = None,
    retries: Annotated[int | None, typer.Option(min=0, help="Retries of an item that fails.")] = None,
    client_token: Annotated[
        str | None, typer.Option(help="Idempotency token: it starts an evaluation only once.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="Description of the evaluation.")] = None,
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
    flags = Flags(
        top={
            "batchEvaluationName": name,
            "maxSessions": max_sessions,
            "judge": judge,
            "votes": votes,
            "budget": budget,
            "concurrency": concurrency,
            "timeoutSec": timeout,
            "retries": retries,
            "clientToken": client_token,
            "description": description,
        },
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
            earlier = evaluation_of(ctx.store, resume, ctx.now())
            pending = _extension(earlier, plan, flags, ctx)
            evaluation = extend_evaluation(earlier, pending, ctx)
            return _execute_or_detach(ctx, evaluation, pending.folder, output, workers, detach=detach)
        pending = read_request(plan, flags, ctx.store)
        if dry:
            estimated = estimate(pending, ctx)
            forecast = predict_cost_and_time(
                JOB.name, EvaluationJobPlan(pending), ctx, work=estimated.workload
            )
            return _print_estimate(estimated, forecast, as_json=as_json)
        prepared = prepare(pending, ctx)
        if cloudwatch:
            import_cloudwatch(prepared.request, ctx)
        evaluation = open_prepared(prepared, ctx, is_detached=detach)
        if not evaluation.is_new:
            print_note(f"{printable(evaluation.id)} was started with this token before")
            return _print_state(evaluation, as_json)
        return _execute_or_detach(ctx, evaluation, pending.folder, output, workers, detach=detach)


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
        row = evaluation_of(ctx.store, evaluation, ctx.now())
        if row.is_finished:
            print_note(f"{printable(row.id)} is {row.state}; `proctor resume` resumes it")
            return codes.SUCCEEDED if row.state == COMPLETED else codes.SOME_DID_NOT
        return _execute(ctx, row, OutputOptions(as_json=as_json), workers)


@evaluate_app.command()
def stop(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Stop an evaluation, wherever it runs. Results so far are kept.

    Example:  proctor evaluate stop nightly-a1B2c3D4e5
    """
    with terminal_context(context.obj) as ctx:
        stopped = stop_evaluation(ctx.store, evaluation, ctx.now)
    return _print_state(stopped, as_json)


@evaluate_app.command()
def delete(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Remove a finished evaluation from the list. Its results stay; `proctor delete` removes those too.

    Example:  proctor evaluate delete nightly-a1B2c3D4e5
    """
    with terminal_context(context.obj) as ctx:
        deleted = delete_evaluation(ctx.store, evaluation, ctx.now())
    return _print_state(deleted, as_json)


def _execute_or_detach(
    ctx: RunContext,
    evaluation: EvaluationState,
    folder: Path,
    output: OutputOptions,
    workers: int | None,
    *,
    detach: bool,
) -> int:
    if not detach:
        return _execute(ctx, evaluation, output, workers)
    from proctor.api.launch import Launcher, LaunchRequest

    settings = ctx.settings
    # The address of the store may hold a password: other users cannot read the environment.
    located = {"PROCTOR_STORE": settings.store_url, "PROCTOR_HOME": str(ctx.home)}
    launcher = Launcher(
        environment={**settings.user_environment, **located},
        folder=folder,
        logs=ctx.home / LOGS,
        is_encrypted=ctx.store.data_keys.is_encrypted,
    )
    request = LaunchRequest(
        job=JOB.name, run_id=evaluation.id, workers=workers, engine=ctx.engine, only_unfinished=True
    )
    launcher.launch(request, evaluation.id)
    print_note(f"Status:  proctor evaluate get {printable(evaluation.id)}")
    return _print_state(evaluation, output.as_json)


def _execute(ctx: RunContext, evaluation: EvaluationState, output: OutputOptions, workers: int | None) -> int:
    observer = TerminalObserver(ctx, output)
    resumed = lifecycle.resume(JOB, evaluation.id, ctx, workers=workers, observer=observer)
    return run_command(ctx, resumed, output, present=present)


def present(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
    """Print the outcome of an evaluation: its JSON document, or its results by evaluator."""
    store, run_id = ctx.store, finished.run_id
    evaluation = evaluation_of(store, run_id, ctx.now(), with_deleted=True)
    results = results_of(store, run_id)
    print_document(evaluation_document(evaluation, results) | {"run": finished.summary}, output)
    print_summary(finished.summary, store=store)
    if not (output.as_json or output.as_jsonl) and results.summaries:
        print_results(results)
        print_insights(all_insights(store, results))
    for text in (*evaluation.error_details, *results.remarks):
        print_note(f"note: {printable(text)}")


def _print_state(evaluation: EvaluationState, as_json: bool) -> int:
    if as_json:
        print_json(evaluation_document(evaluation, None))
    else:
        print(f"{printable(evaluation.id)}  {evaluation.state}")
    return codes.SUCCEEDED


def _print_estimate(estimate: EvaluationEstimate, forecast: CostAndTime, *, as_json: bool) -> int:
    if as_json:
        print_json({**estimate.document, "estimate": forecast.document})
        return codes.SUCCEEDED
    for remark in estimate.remarks:
        print_note(f"note: {printable(remark)}")
    for each in estimate.evaluators:
        calls = f"{count(each.calls, 'call')} of {each.model}" if each.model else "no model calls"
        cost = f", about {each.tokens:,} tokens, {money(each.cost_usd)}" if each.model else ""
        print(printable(f"{each.evaluator}: {count(each.targets, 'result')}, {calls}{cost}"))
    forecast.print()
    ignored = f" ({estimate.ignored:,} older ones ignored)" if estimate.ignored else ""
    items = count(estimate.item_count, "item")
    print_note(f"{count(estimate.sessions, 'session')}{ignored}, {items}. Dry run: nothing was started.")
    return codes.SUCCEEDED


def print_results(results: EvaluationResults) -> None:
    """Print the average and interval of each evaluator."""
    heads = ("EVALUATOR", "LEVEL", "AVERAGE", "95% CI", "RESULTS", "FAILED", "LABELS", "COST")
    print_table(heads, [_cells(result) for result in results.summaries])
    for result in results.summaries:
        if result.correction:
            print(f"{printable(result.title)}: {printable(result.correction)}")


def print_insights(insights: Sequence[Insight]) -> None:
    """Print the findings of insights: failures, intents, approaches."""
    rows = [
        (each.insight, each.found, len(each.sessions), ", ".join(each.sessions), each.example)
        for each in insights
    ]
    if rows:
        print()
        print_table(("INSIGHT", "FINDING", "COUNT", "SESSIONS", "EXAMPLE"), rows)


def _cells(result: EvaluatorResult) -> tuple[str, ...]:
    average = result.average
    around = "" if average.low is None else f"{average.low:.3f} to {average.high:.3f}"
    labels = ", ".join(f"{label} {number}" for label, number in list(result.labels.items())[:3])
    return (
        result.title,
        result.level,
        "–" if average.value is None else f"{average.value:.3f}",
        around,
        f"{result.evaluated:,}",
        f"{result.failed:,}" if result.failed else "",
        labels,
        "" if result.cost_usd is None else money(result.cost_usd),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The request on the command line. None or empty: not given."""

    top: JsonMap = field(default_factory=dict)
    """Members of the request itself."""
    evaluators: Sequence[str] = ()
    log_groups: Sequence[str] = ()
    log_group_prefixes: Sequence[str] = ()
    services: Sequence[str] = ()
    session_ids: Sequence[str] = ()
    runs: Sequence[str] = ()
    jobs: Sequence[str] = ()
    roles: Sequence[str] = ()
    models: Sequence[str] = ()
    files: Sequence[str] = ()
    kind: str = ""
    start: str = ""
    end: str = ""
    ground_truth: Sequence[Path] = ()


def read_request(plan: Path | None, flags: Flags, store: Store) -> PendingEvaluationRequest:
    """The request of a plan, of flags, or of both; flags take precedence. Raises with every problem."""
    document, text, folder = JsonObject(), b"", Path.cwd()
    if plan is not None:
        text = bytes_of(plan, "the plan", remedy="Give a YAML or JSON file.")
        folder = plan.resolve().parent
        document = read_evaluation(text, file=str(plan))
    document |= without_none(flags.top)
    if flags.evaluators:
        document["evaluators"] = list(flags.evaluators)
    if source := _source(flags, as_map(document, "dataSourceConfig")):
        document["dataSourceConfig"] = source
    return pending_request(
        document,
        folder=folder,
        plan_path=str(plan.resolve()) if plan else "",
        plan_text=text.decode(errors="replace"),
        ground_truth=flags.ground_truth,
        files_folder=Path.cwd() if flags.files else folder,
        store=store,
    )


def _extension(
    evaluation: EvaluationState, plan: Path | None, flags: Flags, ctx: RunContext
) -> PendingEvaluationRequest:
    """The new request of an evaluation: the plan's, or its earlier one with what the flags add."""
    if plan is None:
        metadata = ctx.store.evaluations.metadata(evaluation.id)
        before = {**evaluation.document, "evaluationMetadata": {"sessionMetadata": metadata}}
        settings = without_none(flags.top)
        names = list(dict.fromkeys([*evaluation.evaluators, *flags.evaluators]))
        extended = replace(flags, top={**before, **settings}, evaluators=names)
        pending = read_request(None, extended, ctx.store)
    else:
        pending = read_request(plan, flags, ctx.store)
    return replace(pending, folder=JOB.restore(ctx.store.read.batch(evaluation.id, ctx.now()), ctx).folder)


def _source(flags: Flags, planned: JsonMap) -> JsonObject:
    """The source of sessions on the command line; filters alone narrow the source of the plan."""
    period = {name: value for name, value in (("startTime", flags.start), ("endTime", flags.end)) if value}
    places = {"logGroupNames": list(flags.log_groups), "logGroupNamePrefixes": list(flags.log_group_prefixes)}
    own = {"runIds": flags.runs, "jobs": flags.jobs, "roles": flags.roles, "models": flags.models}
    kinds = [
        name
        for name, is_set in (
            ("log groups", any(places.values()) or flags.services),
            ("runs of this store", any(own.values())),
            ("files", flags.files),
        )
        if is_set
    ]
    if len(kinds) > 1:
        raise UsageError(f"sessions come from one source, not from {' and '.join(kinds)}")
    if flags.kind and not flags.files:
        raise UsageError("--kind is the import format of files\nGive them with --files.")
    if flags.files or (not kinds and "files" in planned):
        if flags.session_ids or period:
            raise UsageError(
                "files are evaluated whole: --session-id, --start and --end select sessions of the store\n"
                "Import them first:  proctor import auto PATH"
            )
        return {"files": {"paths": list(flags.files), "kind": flags.kind or "auto"}} if flags.files else {}
    if not kinds and planned:
        return _narrowed(planned, list(flags.session_ids), period)
    if kinds == ["log groups"]:
        filters = {"sessionIds": list(flags.session_ids) or None, "timeRange": period or None}
        named = {**places, "serviceNames": list(flags.services)}
        named_places = {name: value for name, value in named.items() if value}
        filter_config = {name: value for name, value in filters.items() if value}
        return {"cloudWatchLogs": named_places | ({"filterConfig": filter_config} if filter_config else {})}
    chosen = {name: list(values) for name, values in own.items() if values}
    if flags.session_ids:
        chosen["sessionIds"] = list(flags.session_ids)
    if not chosen and not period:
        return {}
    return {"store": chosen | ({"timeRange": period} if period else {})}


def _narrowed(planned: JsonMap, session_ids: list[str], period: Mapping[str, str]) -> JsonObject:
    """The source of a plan, narrowed by flags; empty when there are none."""
    ((kind, planned_source),) = planned.items()
    source = as_map(planned_source)
    if not session_ids and not period:
        return {}
    if session_ids and kind == "onlineEvaluationConfigSource":
        raise UsageError("--session-id does not apply to an online configuration")
    inside = dict(as_map(source, "filterConfig")) if kind == "cloudWatchLogs" else dict(source)
    if session_ids:
        inside["sessionIds"] = session_ids
        # Either list would do; the flag means these alone.
        inside.pop("sessionTraceIds", None)
    if period:
        inside["timeRange"] = {**as_map(inside, "timeRange"), **period}
    return {kind: {**source, "filterConfig": inside} if kind == "cloudWatchLogs" else inside}
