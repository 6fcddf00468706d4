"""Look at evaluation jobs: one, all of them, while they run, and what they found."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.analyse.evaluation import results_of
from proctor.analyse.insights import Insight, insights_of
from proctor.batch.evaluation import PENDING, Evaluation, evaluation_of, evaluations_page
from proctor.cli import ending as codes
from proctor.cli.evaluating import print_insights, print_results
from proctor.cli.house import now, places
from proctor.cli.options import Json
from proctor.cli.tables import print_table
from proctor.cli.watch import watch as watch_run
from proctor.cli.words import money, print_json, printable, say
from proctor.export.evaluation import evaluation_document, write_results

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
        print_json(evaluation_document(found, results) | _told(insights))
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
        say("There are no evaluations yet. Start one:  proctor evaluate start --help")
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
        document = evaluation_document(found, came_to) | _told(insights)
        print_json(document | ({"files": [str(path) for path in written]} if written else {}))
    else:
        print_results(came_to)
        print_insights(insights)
    for words in came_to.remarks:
        say(f"note: {printable(words)}")
    for path in written:
        say(f"wrote {printable(path)}")
    return codes.SUCCEEDED


def _told(insights: Sequence[Insight]) -> dict[str, Any]:
    return {"insightsFound": [asdict(each) for each in insights]} if insights else {}


def _listed(evaluation: Evaluation, came_to: Any) -> tuple[str, ...]:
    return (
        evaluation.id,
        evaluation.state,
        f"{evaluation.created_at:%Y-%m-%d %H:%M}",
        str(came_to.total),
        str(came_to.failed or ""),
        ", ".join(evaluation.evaluators),
        "" if came_to.cost_usd is None else money(came_to.cost_usd),
    )
