"""`proctor watch`: look on while a run is carried out, here or elsewhere."""

import asyncio
import sys

import typer

from proctor.cli import ending as codes
from proctor.cli.carry_out import summary
from proctor.cli.house import now, places
from proctor.cli.live import REFRESH_SECONDS, LiveView
from proctor.cli.options import Json, Run
from proctor.cli.words import print_json, printable, say
from proctor.item import RUNNING
from proctor.store import Store

watch_app = typer.Typer(add_completion=False)
apps = {"watch": watch_app}


@watch_app.command()
def watch(context: typer.Context, run: Run, as_json: Json = False) -> int:
    """Watch a run until it ends, wherever it is carried out. Ctrl-C stops watching, not the run.

    Example:  proctor watch nightly-42
    """
    with places(context.obj).open_store() as store:
        run_id = store.read.batch(run, now())["runId"]
        asyncio.run(_watch(store, run_id, as_json=as_json))
        batch = store.read.batch(run_id, now())
        document = summary(store, batch)
    if as_json:
        print_json(document)
    say(
        f"{printable(run_id)} {batch['status']}: {document['successCount']} of {document['itemCount']} passed"
    )
    if batch["status"] != "completed":
        return codes.CUT_SHORT
    return codes.SUCCEEDED if document["successCount"] == document["itemCount"] else codes.SOME_DID_NOT


async def _watch(store: Store, run_id: str, *, as_json: bool) -> None:
    if as_json or not sys.stderr.isatty():
        while store.read.batch(run_id, now())["status"] == RUNNING:
            await asyncio.sleep(REFRESH_SECONDS)
        return
    async with LiveView(store, run_id) as view:
        while (await view.refresh()).status == RUNNING:
            await asyncio.sleep(REFRESH_SECONDS)
