"""`proctor runs`, `abort-run` and `delete`: what there is, and what becomes of it."""

import time
from typing import Annotated, Any

import typer

from proctor.batch.abort import abort_run
from proctor.batch.removal import delete_run
from proctor.cli import ending as codes
from proctor.cli.asking import is_sure
from proctor.cli.house import environment, now, places
from proctor.cli.options import Json, Run
from proctor.cli.tables import print_table
from proctor.cli.words import count, money, print_json, printable, say
from proctor.errors import UsageError
from proctor.item import RUNNING, SUCCESS

runs_app = typer.Typer(add_completion=False)
abort_app = typer.Typer(add_completion=False)
delete_app = typer.Typer(add_completion=False)
apps = {"runs": runs_app, "abort-run": abort_app, "delete": delete_app}


@runs_app.command()
def runs(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> int:
    """List the runs there are, newest first.

    Example:  proctor runs --limit 10
    """
    with places(context.obj).open_store() as store:
        found = store.read.batches(now(), limit=limit)
    if as_json:
        print_json({"runs": [_run_document(row) for row in found]})
    elif not found:
        say("There are no runs yet. Start one:  proctor batch plan.yaml")
    else:
        print_table(
            ("RUN", "CREATED", "JOB", "STATUS", "DONE", "PASSED", "TOKENS", "COST"), map(_run_cells, found)
        )
    return codes.SUCCEEDED


@abort_app.command()
def abort(context: typer.Context, run: Run, as_json: Json = False) -> int:
    """Stop a run, wherever it is carried out. Running items stop within seconds, queued ones never start.

    Example:  proctor abort-run nightly-42
    """
    with places(context.obj).open_store() as store:
        run_id = store.read.batch(run, now())["runId"]
        status = abort_run(store, run_id, now=now, pause=time.sleep)
    if as_json:
        print_json({"runId": run_id, "status": status})
    say(f"{printable(run_id)} {status}")
    return codes.SUCCEEDED if status == "aborted" else codes.CUT_SHORT


@delete_app.command()
def delete(
    context: typer.Context,
    run: Run,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    keep_branches: Annotated[
        bool, typer.Option(help="Leave the sessions' branches in your repositories.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Delete a run: its own rows, work trees and session branches, and nothing else.

    Example:  proctor delete nightly-42
    """
    where = places(context.obj)
    with where.open_store() as store:
        batch = store.read.batch(run, now())
        run_id = batch["runId"]
        if batch["status"] == RUNNING:
            raise UsageError(f"run {run_id} is still running\nStop it first:  proctor abort-run {run_id}")
        items = store.read.totals(run_id)["items"]
        if not yes and not is_sure(f"Delete {printable(run_id)} with {count(items, 'item')}?"):
            return codes.SOME_DID_NOT
        told = delete_run(store, run_id, where.home, environment(), branches=not keep_branches)
    if as_json:
        print_json({"runId": run_id, "status": "deleted", "branches": told.branches, "kept": told.kept})
    say(f"{printable(run_id)} deleted; {count(told.branches, 'session branch', 'session branches')} removed")
    for remark in told.kept:
        say(f"note: {printable(remark)}")
    return codes.SUCCEEDED


def _run_document(row: dict[str, Any]) -> dict[str, Any]:
    totals = row["totals"]
    return {
        "runId": row["runId"],
        "createdAt": row["createdAt"],
        "finishedAt": row["finishedAt"],
        "job": row["job"],
        "status": row["status"],
        "reason": row["reason"],
        "itemCount": totals["items"],
        "counts": totals["counts"],
        "tokensTotal": totals["tokens"],
        "costUsd": totals["costUsd"],
        "planPath": row["planPath"],
    }


def _run_cells(row: dict[str, Any]) -> tuple[str, ...]:
    totals = row["totals"]
    created = row["createdAt"][:19].replace("T", " ")
    done = f"{totals['finished']}/{totals['items']}"
    cost = "" if totals["costUsd"] is None else money(totals["costUsd"])
    passed = str(totals["counts"][SUCCESS])
    return row["runId"], created, row["job"], row["status"], done, passed, f"{totals['tokens']:,}", cost
