"""Carry out a batch at the terminal: signals, what is shown meanwhile, what is said at the end."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.batch.conductor import Conductor, Ending
from proctor.batch.house import House
from proctor.cli import ending as codes
from proctor.cli.house import make_house, now
from proctor.cli.views import View, view_for
from proctor.cli.words import count, money, print_json, printable, say, seconds
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT
from proctor.models import Models
from proctor.store import ItemFilter, Store
from proctor.store.batches import moment

MOST_FILES = 65_536
MOST_FAILURES = 1000
"""Failures listed in the final document; all of them are in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How the user wants to see it."""

    as_json: bool = False
    as_jsonl: bool = False


async def carry_out(
    store: Store,
    home: Path,
    run_id: str,
    owner: str,
    models: Models,
    shown: Shown,
    *,
    house: House | None = None,
) -> int:
    """Run a batch that is ours to its end; the exit code. `house` is what it stands on, if not the usual."""
    view = view_for(store, run_id, as_json=shown.as_json, as_jsonl=shown.as_jsonl)
    ending = await conduct(store, run_id, owner, house or make_house(home, models), models, view)
    batch = store.read.batch(run_id, now())
    document = summary(store, batch)
    if shown.as_json:
        print_json(document)
    elif shown.as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False), flush=True)
    tell_end(document)
    await asyncio.to_thread(notify, json.loads(batch["optionsJson"]).get("notify"), document)
    return exit_code(ending, document)


async def conduct(store: Store, run_id: str, owner: str, house: House, models: Models, view: View) -> Ending:
    """Run a batch that is ours to its end, shown by `view`, stopping cleanly at a signal."""
    _allow_many_files()
    models.get_ready()
    conductor = Conductor(store, run_id, owner, house, watch=view.item)
    _listen(conductor)
    try:
        async with view:
            return await conductor.run()
    finally:
        await house.door.close()
        await models.close()
        if models.tape:
            models.tape.close()


def summary(store: Store, batch: Mapping[str, Any]) -> dict[str, Any]:
    """What a run came to, as the documented JSON."""
    totals = store.read.totals(batch["runId"])
    counts = totals["counts"]
    lost = store.read.items(batch["runId"], ItemFilter(statuses=(FAIL, TIMEOUT, ERROR)), limit=MOST_FAILURES)
    began, ended = moment(batch["createdAt"]), moment(batch["finishedAt"]) or now()
    return {
        "runId": batch["runId"],
        "status": batch["status"],
        "reason": batch["reason"],
        "itemCount": totals["items"],
        "successCount": counts[SUCCESS],
        "failCount": counts[FAIL],
        "timeoutCount": counts[TIMEOUT],
        "errorCount": counts[ERROR],
        "unfinishedCount": totals["items"] - totals["finished"],
        "tokensTotal": totals["tokens"],
        "toolCalls": totals["toolCalls"],
        "costUsd": totals["costUsd"],
        "durationSec": round((ended - began).total_seconds(), 3) if began else None,
        "failures": [
            {
                name: row[name]
                for name in ("id", "repo", "prompt", "agent", "model", "status", "reason", "error")
            }
            for row in lost
        ],
    }


def exit_code(ending: Ending, document: Mapping[str, Any]) -> int:
    """The exit code for how a batch ended."""
    if ending.status == "interrupted":
        return codes.CTRL_C
    if ending.status != "completed":
        return codes.CUT_SHORT
    return codes.SUCCEEDED if document["successCount"] == document["itemCount"] else codes.SOME_DID_NOT


def notify(wanted: str | None, document: Mapping[str, Any]) -> None:
    """Tell the user that a run has ended, by a command of theirs or on their desktop."""
    if not wanted:
        return
    words = (
        f"{document['runId']}: {document['status']}, {document['successCount']} of {document['itemCount']}"
    )
    facts = {
        f"PROCTOR_{name.upper()}": str(document[name]) for name in ("status", "itemCount", "successCount")
    }
    told = os.environ | facts | {"PROCTOR_RUN": document["runId"], "PROCTOR_MESSAGE": words}
    desktop = (
        ["notify-send", "Proctor", words] if sys.platform != "darwin" else ["osascript", "-e", _script(words)]
    )
    command = desktop if wanted == "desktop" else ["/bin/sh", "-c", wanted]
    try:
        subprocess.run(command, env=told, timeout=30, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"note: could not notify: {printable(error)}")


def _script(words: str) -> str:
    return f'display notification {json.dumps(words)} with title "Proctor"'


def _allow_many_files() -> None:
    """Hundreds of agents and thousands of calls hold more files open than a shell allows at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listen(conductor: Conductor) -> None:
    """The first signal stops cleanly, the second at once."""
    loop = asyncio.get_running_loop()
    heard = list[int]()

    def stop(number: int) -> None:
        heard.append(number)
        if len(heard) > 1:
            # The wardens see that we are gone and end what we have started.
            os._exit(codes.CTRL_C)
        say("stopping what is under way; once more to leave at once")
        conductor.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)


def tell_end(document: Mapping[str, Any]) -> None:
    """Say in a line or two what a run came to, and how to look further."""
    parts = [f"{document['successCount']} of {count(document['itemCount'], 'item')} succeeded"]
    parts += [
        f"{document[name]} {word}"
        for name, word in (
            ("failCount", "failed"),
            ("timeoutCount", "timed out"),
            ("errorCount", "in error"),
            ("unfinishedCount", "not done"),
        )
        if document[name]
    ]
    spent = "" if document["costUsd"] is None else f", {money(document['costUsd'])}"
    tokens = f", {document['tokensTotal']:,} tokens" if document["tokensTotal"] else ""
    run_id, took = printable(document["runId"]), seconds(document["durationSec"])
    say(f"{run_id} {document['status']} in {took}: {', '.join(parts)}{tokens}{spent}")
    if document["reason"] == "cost_limit":
        say("A run has spent what one run may. Raise cost_per_run_limit, then start the same with --resume.")
    elif document["status"] in ("halted", "interrupted"):
        remedy = " --budget USD" if document["reason"] == "budget" else ""
        if document["reason"] == "store_budget":
            say("All runs on this store together have spent what they may: [budget] in proctor.toml says it.")
        say(f"Go on with:  proctor resume {run_id}{remedy}")
    else:
        say(f"Look further:  proctor show {run_id}  ·  proctor report --run {run_id}")
