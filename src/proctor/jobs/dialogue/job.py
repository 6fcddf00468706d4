"""Make a batch of a simulation, or bring an earlier one up to what is asked now.

Items are known by what they ask for, so more clients, therapists or runs extend a simulation, and what
is the same keeps its results. The roles that play are kept below Proctor's home under their digests, so
that what was begun is finished as it was begun.

Knows nothing of how dialogues go or how they are shown.
"""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.batch.create import Extension, create, diff, extend
from proctor.errors import UsageError
from proctor.jobs.dialogue.plan import DialoguePlan
from proctor.model import ModelDirectory
from proctor.runners.dialogue import ROLES
from proctor.store import Store
from proctor.store.runs import batches_of_job

JOB = "dialogue"


def create_simulation(
    store: Store,
    simulation: DialoguePlan,
    *,
    run_id: str,
    plan_path: str,
    output_dir: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its dialogues; how many those are."""
    asked, items = _asked(simulation, plan_path, output_dir), simulation.items(output_dir)
    return create(store, JOB, asked, items, run_id=run_id, owner=owner, version=version, now=now)


def extend_simulation(
    store: Store, run_id: str, simulation: DialoguePlan, *, plan_path: str, output_dir: str
) -> Extension:
    """Bring a batch up to what is asked now. The batch must be ours."""
    asked, items = _asked(simulation, plan_path, output_dir), simulation.items(output_dir)
    # The prompt only names the two who talk.
    return extend(store, run_id, asked, items, derived_fields=frozenset({"prompt"}))


def foresee_simulation(store: Store, run_id: str, simulation: DialoguePlan, *, output_dir: str) -> Extension:
    """What `extend_simulation` would change; nothing is changed."""
    return diff(store.read, run_id, simulation.items(output_dir), derived_fields=frozenset({"prompt"}))


def find_simulation(store: Store, simulation: DialoguePlan, output_dir: str) -> Mapping[str, Any] | None:
    """The last batch whose files are in this folder, or without a folder, which asked for the same."""
    for row in batches_of_job(store.read, JOB):
        same_folder = json.loads(row["optionsJson"]).get("outputDir") == output_dir
        if same_folder if output_dir else row["planDigest"] == simulation.digest:
            return row
    return None


def keep_roles(home: Path, simulation: DialoguePlan) -> None:
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


def check_models(simulation: DialoguePlan, models: ModelDirectory) -> None:
    """Raise with everything that keeps a simulation's models from being asked; ask none."""
    problems = list(_missing(simulation, models))
    if problems:
        raise UsageError("\n\n".join(problems))


def _missing(simulation: DialoguePlan, models: ModelDirectory) -> Iterator[str]:
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


def _asked(simulation: DialoguePlan, plan_path: str, output_dir: str) -> dict[str, Any]:
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
