"""Make a batch of a simulation, or bring an earlier one up to what is asked now.

Items are known by what they ask for, so more clients, therapists or runs extend a simulation, and what
is the same keeps its results. The roles that play are kept below Proctor's home under their digests, so
that what was begun is finished as it was begun.

Knows nothing of how dialogues go or how they are shown.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.batch.launch import Extension
from proctor.batch.preflight import ModelDirectory
from proctor.errors import UsageError
from proctor.item import QUEUED, Item
from proctor.plan import what_changed
from proctor.plan.dialogue import Simulation
from proctor.runners.dialogue import ROLES
from proctor.store import Store, timestamp

JOB = "dialogue"


def create_simulation(
    store: Store,
    simulation: Simulation,
    *,
    run_id: str,
    plan_path: str,
    output_dir: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its dialogues; how many those are."""
    row = {
        "runId": run_id,
        "createdAt": timestamp(now),
        "job": JOB,
        "status": "running",
        "owner": owner,
        "heartbeatAt": timestamp(now),
        "proctorVersion": version,
        **_asked(simulation, plan_path, output_dir),
    }
    return store.create_batch(row, simulation.items(output_dir))


def extend_simulation(
    store: Store, run_id: str, simulation: Simulation, *, plan_path: str, output_dir: str
) -> Extension:
    """Bring a batch up to what is asked now. The batch must be ours."""
    earlier = {row["id"]: row for row in store.read.item_inputs(run_id)}
    known, new = dict[str, Item](), list[Item]()
    for item in simulation.items(output_dir):
        if item.id in earlier:
            known[item.id] = item
        else:
            new.append(item)
    gone = [row for item_id, row in earlier.items() if item_id not in known]
    dropped = [row["id"] for row in gone if row["status"] == QUEUED]
    store.extend_batch(
        run_id,
        _asked(simulation, plan_path, output_dir),
        add=new,
        settle=known.values(),
        drop=dropped,
    )
    return Extension(
        added=len(new),
        reasons=Counter(_reasons(new, list(earlier.values())[:2000])),
        dropped=len(dropped),
        kept=len(gone) - len(dropped),
    )


def find_simulation(store: Store, simulation: Simulation, output_dir: str) -> Mapping[str, Any] | None:
    """The last batch whose files are in this folder, or without a folder, which asked for the same."""
    rows = store.read.query(
        'SELECT * FROM "batches" WHERE "job" = ? ORDER BY "createdAt" DESC, "runId" DESC', (JOB,)
    )
    for row in rows:
        same_folder = json.loads(row["optionsJson"]).get("outputDir") == output_dir
        if same_folder if output_dir else row["planDigest"] == simulation.digest:
            return row
    return None


def keep_roles(home: Path, simulation: Simulation) -> None:
    """Put the roles that play where those who carry out the dialogues find them."""
    folder = home / ROLES
    folder.mkdir(parents=True, exist_ok=True)
    for digest, role in simulation.roles.items():
        path = folder / f"{digest}.json"
        if not path.exists():
            # Whole or not at all: another process may be reading.
            half = path.with_suffix(f".{os.getpid()}")
            half.write_text(json.dumps(role.document(), ensure_ascii=False), encoding="utf-8")
            half.replace(path)


def check_models(simulation: Simulation, models: ModelDirectory) -> None:
    """Raise with everything that keeps a simulation's models from being asked; ask none."""
    problems = list(_missing(simulation, models))
    if problems:
        raise UsageError("\n\n".join(problems))


def _missing(simulation: Simulation, models: ModelDirectory) -> Iterator[str]:
    limited = any(simulation.config[name] is not None for name in ("budget_limit", "cost_per_run_limit"))
    for model in simulation.models:
        try:
            models.check(model)
        except UsageError as error:
            yield str(error)
            continue
        if missing := models.missing_key(model):
            yield f"{model} needs a key, and {missing} is not set\nSet it: export {missing}=…"
        if limited and not models.has_price(model):
            yield f"nobody knows what {model} costs, so no budget can be kept\nSay it under `prices:`."


def _asked(simulation: Simulation, plan_path: str, output_dir: str) -> dict[str, Any]:
    config = simulation.config
    options = {name: config[name] for name in ("notify", "prices", "record", "replay")}
    return {
        "planPath": plan_path,
        "planText": simulation.text,
        "planDigest": simulation.digest,
        "defaultsJson": json.dumps(dict(config), ensure_ascii=False),
        "optionsJson": json.dumps({**options, "outputDir": output_dir}, ensure_ascii=False),
        "concurrency": config["max_workers"],
        "seed": config["seed"],
        "budgetUsd": config["budget_limit"],
    }


def _reasons(new: list[Item], earlier: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    sample = [
        {"runner": row["runner"], "agent": row["agent"], "model": row["model"], "prompt": row["prompt"]}
        | json.loads(row["details"])
        for row in earlier
    ]
    for item in new[:200]:
        changed = [name for name in what_changed(item, sample) if name != "prompt"]
        yield ", ".join(changed) or "repeat"
