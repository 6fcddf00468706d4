"""Make a batch of a plan, or bring an earlier one up to what the plan says now.

Items are known by what they ask for, so a changed plan extends its batch: what is the same keeps
its results, what is new is added and told with the field that made it new, what is gone and has
no result is dropped.

Knows nothing of how items are carried out.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from proctor.item import QUEUED, Item
from proctor.plan import Overrides, Plan, what_changed
from proctor.store import Store, timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What a changed plan changed in its batch."""

    added: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How many items are new because of each field, or combination of fields."""
    dropped: int = 0
    """Items that were queued and that the plan no longer has."""
    kept: int = 0
    """Items with results that the plan no longer has."""


def create_batch(
    store: Store,
    plan: Plan,
    overrides: Overrides,
    *,
    run_id: str,
    plan_path: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its items; how many those are."""
    row = {
        "runId": run_id,
        "createdAt": timestamp(now),
        "job": "coding",
        "status": "running",
        "owner": owner,
        "heartbeatAt": timestamp(now),
        "proctorVersion": version,
        **_from_plan(plan, overrides, plan_path),
    }
    return store.create_batch(row, plan.items(overrides))


def extend_batch(store: Store, run_id: str, plan: Plan, overrides: Overrides, *, plan_path: str) -> Extension:
    """Bring a batch up to its plan as it stands now. The batch must be ours."""
    earlier = {row["id"]: row for row in store.read.item_inputs(run_id)}
    new, known = list[Item](), dict[str, Item]()
    for item in plan.items(overrides):
        if item.id in earlier:
            known[item.id] = item
        else:
            new.append(item)
    gone = [row for item_id, row in earlier.items() if item_id not in known]
    dropped = [row["id"] for row in gone if row["status"] == QUEUED]
    store.extend_batch(
        run_id,
        _from_plan(plan, overrides, plan_path),
        add=new,
        settle=known.values(),
        drop=dropped,
    )
    return Extension(
        added=len(new),
        reasons=Counter(_reasons(new, earlier.values())),
        dropped=len(dropped),
        kept=len(gone) - len(dropped),
    )


def _from_plan(plan: Plan, overrides: Overrides, plan_path: str) -> dict[str, Any]:
    return {
        "planPath": plan_path,
        "planText": plan.text,
        "planDigest": plan.digest,
        "defaultsJson": json.dumps(plan.defaults_json(overrides), ensure_ascii=False),
        "optionsJson": json.dumps(_options(plan), ensure_ascii=False),
        "concurrency": plan.concurrency(overrides),
        "seed": plan.seed,
        "budgetUsd": plan.budget_usd,
    }


def _options(plan: Plan) -> dict[str, Any]:
    return {"notify": plan.notify, "prices": plan.prices, "record": plan.record, "replay": plan.replay}


def _reasons(new: list[Item], earlier: Any) -> Iterator[str]:
    # Comparing each with each would take minutes for large plans; the first ones tell the story.
    sample = [
        {"runner": row["runner"], "agent": row["agent"], "model": row["model"], "prompt": row["prompt"]}
        | json.loads(row["details"])
        for row, _ in zip(earlier, range(2000), strict=False)
    ]
    for item in new[:500]:
        yield ", ".join(what_changed(item, sample)) or "repeat"
