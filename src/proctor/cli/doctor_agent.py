"""What `proctor doctor` finds out about an agent: one small task, done for real.

It goes the way a batch goes, with the same gateway and the same engine, on a repository, in a home and
with a store that are made for it and removed again.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor import __version__
from proctor.agent import Agent, Availability, Reach, reach_of
from proctor.batch.coding import create_batch
from proctor.cli.carry_out import conduct
from proctor.cli.doctor_machine import Finding, Trial
from proctor.cli.house import make_house, now
from proctor.cli.views import Lines
from proctor.cli.words import count, money, printable, seconds
from proctor.git import Git
from proctor.item import SUCCESS
from proctor.models import Models
from proctor.plan import NO_OVERRIDES, read_plan
from proctor.store import Store
from proctor.store.owner import this_process

TASK = "Create a file named hello.txt in the current folder that holds the word hello. Do nothing else."
CHECK = "test -f hello.txt"
MOST_SECONDS = 120
MOST_SHOWN = 300
"""Characters of what it said."""


def try_agent(name: str, agent: Agent, found: Availability, models: Models, model: str) -> Trial:
    """Give the agent a task that takes one file, and tell what became of it. It is there to be used."""
    with tempfile.TemporaryDirectory(prefix="proctor-doctor-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with Store(str(folder / "proctor.db")) as store:
            asyncio.run(_work(store, folder, models, name, model))
            seen = _seen(store)
    document = {"name": name, "model": model, "version": found.version} | seen
    said = [f"{found.version or 'found'}; {_outcome(seen)}", _calls(seen, reach_of(agent))]
    said += [f"it said: {printable(seen['said'], width=MOST_SHOWN)}"] if seen["said"] else []
    # An agent that asked no model of ours has asked someone else's, on an account we know nothing of.
    well = seen["status"] == SUCCESS and (reach_of(agent) != "gateway" or seen["calls"] > 0)
    remedy = "" if well else _advice(seen, reach_of(agent))
    finding = Finding(name=f"agent {name}", well=well, said="; ".join(filter(None, said)), remedy=remedy)
    return Trial(finding, document)


async def _work(store: Store, folder: Path, models: Models, name: str, model: str) -> None:
    house = make_house(folder / "home", models)
    repository = folder / "repository"
    repository.mkdir()
    (repository / "README.md").write_text("A repository to try an agent on.\n")
    git = Git(repository, house.environment)
    for words in (("init", "--quiet", "-b", "main"), ("add", "."), ("commit", "--quiet", "-m", "a start")):
        git(*words)
    entry: dict[str, Any] = {"repo": str(repository), "prompt": TASK, "agent": name, "scriptCommand": CHECK}
    entry |= {"timeoutSec": MOST_SECONDS} | ({"model": model} if model else {})
    plan = read_plan(f"matrix: [{json.dumps(entry)}]", file="doctor", folder=folder)
    owner = this_process()
    create_batch(
        store,
        plan,
        NO_OVERRIDES,
        run_id="doctor",
        plan_path="",
        owner=owner,
        version=__version__,
        now=now(),
    )
    await conduct(store, "doctor", owner, house, models, Lines("doctor", 1, 0, quiet=True))


def _seen(store: Store) -> dict[str, Any]:
    """What the record says of the one attempt there was."""
    (session,) = store.read.query('SELECT * FROM "sessions"')
    calls = store.read.query('SELECT "status", "error" FROM "model_calls" ORDER BY "position"')
    said = store.read.query('SELECT "content" FROM "messages" WHERE "role" = \'assistant\'')
    printed = store.read.query('SELECT "output" FROM "iterations"')
    last = said[-1]["content"] if said else printed[-1]["output"].strip()[-MOST_SHOWN:] if printed else ""
    return {
        "status": session["status"],
        "standIn": bool(session["standIn"]),
        "reason": session["endReason"],
        "error": session["error"],
        "seconds": session["workSeconds"],
        "calls": len(calls),
        "failedCalls": [f"{call['status']}: {call['error']}" for call in calls if call["status"] != "ok"],
        "tokens": session["totalTokens"],
        "costUsd": session["costUsd"],
        "toolCalls": session["toolCalls"],
        "said": last[:MOST_SHOWN],
    }


def _outcome(seen: Mapping[str, Any]) -> str:
    took = seconds(seen["seconds"])
    if seen["status"] == SUCCESS:
        return f"did its task in {took}{', with a stand-in' if seen['standIn'] else ''}"
    return f"{seen['status']} ({seen['reason']}) after {took}: {printable(seen['error'], width=MOST_SHOWN)}"


def _calls(seen: Mapping[str, Any], reach: Reach) -> str:
    if reach == "own":
        return ""
    if not seen["calls"]:
        return "no call of a model was made"
    cost = "" if seen["costUsd"] is None else f", {money(seen['costUsd'])}"
    told = f"{count(seen['calls'], 'call')}, {seen['tokens']:,} tokens{cost}"
    failed = seen["failedCalls"]
    return f"{told}, {len(failed)} failed ({printable(failed[-1], width=MOST_SHOWN)})" if failed else told


def _advice(seen: Mapping[str, Any], reach: Reach) -> str:
    """What to do about an agent that did not do its task."""
    if reach == "gateway" and not seen["calls"]:
        return (
            "It never came to the gateway. Start it by hand to see whether it wants to be set up first, or"
            " overlooks the base URL it is given."
        )
    if seen["failedCalls"]:
        return "Its model failed, not the agent: try `proctor doctor --model` with that model."
    if seen["reason"] == "timeout":
        return f"{MOST_SECONDS} s were not enough. It may be waiting for an answer, or the model may be slow."
    if seen["reason"] in ("checks_failed", "no_changes"):
        return "It ran and made no hello.txt. A small model may not manage; try another with --model."
    return "What it printed says more: run a plan of one item with it, and `proctor show` its session."
