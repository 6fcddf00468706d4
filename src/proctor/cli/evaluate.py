"""`proctor evaluate`: judge recorded sessions, wherever they came from."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor import __version__
from proctor.api.launch import start_evaluation
from proctor.bootstrap import StorePlaces, configuration, environment, now, places
from proctor.cli import output as codes
from proctor.cli.evaluating import (
    Flags,
    PendingEvaluationRequest,
    asked_by,
    carry_out_evaluation,
    dry_run,
    extended,
    import_cloudwatch,
    prepared,
    print_insights,
    print_results,
)
from proctor.cli.output import Json, money, print_json, print_note, print_table, printable
from proctor.cli.run import OutputOptions
from proctor.cli.runs import watch as watch_run
from proctor.errors import UsageError
from proctor.jobs.evaluation.results import evaluation_document, write_results
from proctor.jobs.evaluation.state import (
    ACCOUNT,
    COMPLETED,
    PENDING,
    REGION,
    EvaluationState,
    delete_evaluation,
    evaluation_of,
    evaluations_page,
    open_evaluation,
    stop_evaluation,
)
from proctor.stats.evaluation import Insight, insights_of, results_of
from proctor.store import Store

# Look at evaluation jobs: one, all of them, while they run, and what they found.


Id = Annotated[str, typer.Argument(metavar="ID", help="The job's id, its ARN, or the beginning of its id.")]


PATIENCE_SECONDS = 30
"""How long the process of a job may take until it is heard of."""


def get(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Show a job: its state, what it was asked, and its results so far.

    Example:  proctor evaluate get nightly-a1B2c3D4e5 --json
    """
    with places(context.obj).open_store() as store:
        found = evaluation_of(store, evaluation, now())
        results = results_of(store, found.id)
        insights = insights_of(store.read, found.id, (each.asked_as for each in results.summaries))
    if as_json:
        print_json(evaluation_document(found, results) | _printed_state(insights))
        return codes.SUCCEEDED
    print(f"{printable(found.id)}  {found.state}  {found.created_at:%Y-%m-%d %H:%M} UTC")
    parts = [f"{results.total} sessions", f"{results.completed} completed", f"{results.failed} failed"]
    waiting = "not judged" if found.is_finished else "in progress"
    parts += [f"{results.in_progress} {waiting}"] if results.in_progress else []
    parts += [f"{results.ignored} ignored"] if results.ignored else []
    print("  ".join(parts))
    for words in (*found.error_details, *results.remarks):
        print(printable(words))
    if results.summaries:
        print()
        print_results(results)
    print_insights(insights)
    return codes.SUCCEEDED


def list_jobs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> int:
    """List the jobs there are, newest first.

    Example:  proctor evaluate list
    """
    with places(context.obj).open_store() as store:
        found = [(each, results_of(store, each.id)) for each in evaluations_page(store, now(), limit=limit)]
    if as_json:
        print_json({"batchEvaluations": [evaluation_document(*each) for each in found]})
    elif not found:
        print_note("There are no evaluations yet. Start one:  proctor evaluate start --help")
    else:
        print_table(
            ("ID", "STATE", "CREATED", "SESSIONS", "FAILED", "EVALUATORS", "COST"),
            [_listed(each, results) for each, results in found],
        )
    return codes.SUCCEEDED


def watch(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Watch a job until it ends, wherever it is carried out. Ctrl-C stops watching, not the job.

    Example:  proctor evaluate watch nightly-a1B2c3D4e5
    """
    with places(context.obj).open_store() as store:
        found = evaluation_of(store, evaluation, now())
        asked = now()
        while found.state == PENDING and (now() - asked).total_seconds() < PATIENCE_SECONDS:
            time.sleep(0.1)
            found = evaluation_of(store, found.id, now())
    return watch_run(context, found.run_id, as_json)


def results(
    context: typer.Context,
    evaluation: Id,
    output: Annotated[
        Path | None, typer.Option(help="Write records.jsonl and summary.json to this folder.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show what each evaluator found, or write every single result to files.

    Example:  proctor evaluate results nightly-a1B2c3D4e5 --output results
    """
    with places(context.obj).open_store() as store:
        found = evaluation_of(store, evaluation, now())
        came_to = results_of(store, found.id)
        insights = insights_of(store.read, found.id, (each.asked_as for each in came_to.summaries))
        written = write_results(store, found.id, came_to, output) if output else []
    if as_json:
        document = evaluation_document(found, came_to) | _printed_state(insights)
        print_json(document | ({"files": [str(path) for path in written]} if written else {}))
    else:
        print_results(came_to)
        print_insights(insights)
    for words in came_to.remarks:
        print_note(f"note: {printable(words)}")
    for path in written:
        print_note(f"wrote {printable(path)}")
    return codes.SUCCEEDED


def _printed_state(insights: Sequence[Insight]) -> dict[str, Any]:
    return {"insightsFound": [asdict(each) for each in insights]} if insights else {}


def _listed(evaluation: EvaluationState, came_to: Any) -> tuple[str, ...]:
    return (
        evaluation.id,
        evaluation.state,
        f"{evaluation.created_at:%Y-%m-%d %H:%M}",
        str(came_to.total),
        str(came_to.failed or ""),
        ", ".join(evaluation.evaluators),
        "" if came_to.cost_usd is None else money(came_to.cost_usd),
    )


evaluate_app = typer.Typer(add_completion=False, no_args_is_help=True)


apps = {"evaluate": evaluate_app}


Texts = list[str] | None


@evaluate_app.command()
def start(
    context: typer.Context,
    plan: Annotated[Path | None, typer.Argument(help="A plan, YAML or JSON; flags win over it.")] = None,
    name: Annotated[str | None, typer.Option(help="The job's name: letters, digits, underscores.")] = None,
    evaluator: Annotated[
        Texts, typer.Option(help="Who judges: Builtin.X, an id, a file, module:function. Repeatable.")
    ] = None,
    run: Annotated[Texts, typer.Option(help="Judge the sessions of this run. Repeatable.")] = None,
    job: Annotated[Texts, typer.Option(help="Judge sessions of this job: coding, dialogue, …")] = None,
    role: Annotated[Texts, typer.Option(help="Judge sessions in which this role took part.")] = None,
    model: Annotated[Texts, typer.Option(help="Judge sessions of this model.")] = None,
    files: Annotated[Texts, typer.Option(help="Import these files or folders, then judge them.")] = None,
    kind: Annotated[str, typer.Option(help="What the files are: auto, otlp, inspect, …")] = "",
    log_group: Annotated[Texts, typer.Option(help="Judge what arrived for this log group.")] = None,
    log_group_prefix: Annotated[Texts, typer.Option(help="… for log groups that begin so.")] = None,
    service: Annotated[Texts, typer.Option(help="… from this service (`service.name`).")] = None,
    cloudwatch: Annotated[
        bool, typer.Option("--cloudwatch", help="Fetch these log groups from CloudWatch Logs first.")
    ] = False,
    session_id: Annotated[Texts, typer.Option(help="Only this session. Repeatable.")] = None,
    start_time: Annotated[str, typer.Option("--start", help="Active at or after: 2026-01-31T14:00Z.")] = "",
    end_time: Annotated[str, typer.Option("--end", help="Active before.")] = "",
    max_sessions: Annotated[
        int | None, typer.Option(min=1, help="Only so many, the most recent (default: all).")
    ] = None,
    ground_truth: Annotated[
        list[Path] | None, typer.Option(help="A file of ground truth. Repeatable.")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="The model that judges, as provider/model.")] = None,
    votes: Annotated[int | None, typer.Option(min=1, help="Ask the judge so often each time.")] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="USD the whole job may spend.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Items at a time (default: 8).")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds an evaluator may take for one session.")
    ] = None,
    retries: Annotated[int | None, typer.Option(min=0, help="Further attempts at what fails.")] = None,
    client_token: Annotated[
        str | None, typer.Option(help="The same token starts the same job only once.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="A sentence about the job.")] = None,
    resume: Annotated[
        str, typer.Option(metavar="ID", help="Extend this job by what is asked now; keep its results.")
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Start it in the background and return.")] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be judged and what it may cost; start nothing.")
    ] = False,
    as_json: Json = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print a JSON record for each item.")] = False,
) -> int:
    """Judge every session of a source with every evaluator. Ctrl-C stops cleanly; `proctor resume` goes on.

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
    where = places(context.obj)
    shown = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
    if dry and (resume or cloudwatch):
        raise UsageError(
            "--dry-run goes neither with --resume nor with --cloudwatch\nIt starts and fetches nothing."
        )
    with where.open_store() as store:
        if resume:
            return _extend(store, where, resume, plan, flags, shown, detach=detach)
        asked = asked_by(plan, flags)
        if dry:
            return dry_run(store, where, asked, as_json=as_json)
        return _start(store, where, asked, shown, detach=detach, cloudwatch=cloudwatch)


@evaluate_app.command("run")
def run_job(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Carry out a job that was started elsewhere, or whose process died: what `--detach` runs.

    Example:  proctor evaluate run nightly-a1B2c3D4e5
    """
    where = places(context.obj)
    with where.open_store() as store:
        found = evaluation_of(store, evaluation, now())
        if found.is_finished:
            print_note(f"{printable(found.id)} is {found.state}; `proctor resume` takes it up again")
            return codes.SUCCEEDED if found.state == COMPLETED else codes.SOME_DID_NOT
        return carry_out_evaluation(store, where, found, OutputOptions(as_json=as_json))


evaluate_app.command("get")(get)


evaluate_app.command("list")(list_jobs)


@evaluate_app.command()
def stop(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Stop a job, wherever it is carried out. What is judged stays.

    Example:  proctor evaluate stop nightly-a1B2c3D4e5
    """
    with places(context.obj).open_store() as store:
        found = stop_evaluation(store, evaluation, now)
    return _told(found, as_json)


@evaluate_app.command()
def delete(context: typer.Context, evaluation: Id, as_json: Json = False) -> int:
    """Take a finished job off the list. Its results stay; `proctor delete` removes those too.

    Example:  proctor evaluate delete nightly-a1B2c3D4e5
    """
    with places(context.obj).open_store() as store:
        found = delete_evaluation(store, evaluation, now())
    return _told(found, as_json)


evaluate_app.command("watch")(watch)


evaluate_app.command("results")(results)


def _start(
    store: Store,
    where: StorePlaces,
    asked: PendingEvaluationRequest,
    shown: OutputOptions,
    *,
    detach: bool,
    cloudwatch: bool,
) -> int:
    request, copies = prepared(store, where, asked)
    if cloudwatch:
        import_cloudwatch(store, request.sessions)
    names = configuration(where, [asked.folder]).serve
    evaluation = open_evaluation(
        store,
        request,
        now=now(),
        version=__version__,
        region=names.get("region") or REGION,
        account=names.get("account") or ACCOUNT,
        definitions=copies,
        folder=str(asked.folder),
        plan_path=asked.plan_path,
        plan_text=asked.plan_text,
        is_detached=detach,
    )
    if not evaluation.is_new:
        print_note(f"{printable(evaluation.id)} was started with this token before")
        return _told(evaluation, shown.as_json)
    if tags := request.document.get("tags"):
        store.definitions.tag(evaluation.arn, tags)
    return _carry_out(store, where, evaluation, shown, folder=asked.folder, detach=detach)


def _extend(
    store: Store,
    where: StorePlaces,
    wanted: str,
    plan: Path | None,
    flags: Flags,
    shown: OutputOptions,
    *,
    detach: bool,
) -> int:
    evaluation, folder = extended(store, where, evaluation_of(store, wanted, now()), plan, flags)
    return _carry_out(store, where, evaluation, shown, folder=folder, detach=detach)


def _carry_out(
    store: Store,
    where: StorePlaces,
    evaluation: EvaluationState,
    shown: OutputOptions,
    *,
    folder: Path,
    detach: bool,
) -> int:
    if not detach:
        return carry_out_evaluation(store, where, evaluation, shown)
    start_evaluation(
        evaluation.id,
        store=where.store,
        home=where.home,
        environment=environment(),
        folder=folder,
        has_log=not store.data_keys.is_sealed,
    )
    print_note(f"Look at it:  proctor evaluate get {printable(evaluation.id)}")
    return _told(evaluation, shown.as_json)


def _told(evaluation: EvaluationState, as_json: bool) -> int:
    if as_json:
        print_json(evaluation_document(evaluation, None))
    else:
        print(f"{printable(evaluation.id)}  {evaluation.state}")
    return codes.SUCCEEDED
