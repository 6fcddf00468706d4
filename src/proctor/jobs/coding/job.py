"""A coding plan as a batch.

Knows nothing of how items are carried out.
"""

import json
from datetime import datetime
from typing import Any

from proctor.batch.create import Extension, create, extend
from proctor.jobs.coding.plan import CodingPlan, Overrides
from proctor.store import Store

JOB = "coding"


def create_batch(
    store: Store,
    plan: CodingPlan,
    overrides: Overrides,
    *,
    run_id: str,
    plan_path: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its items; how many those are."""
    asked = _from_plan(plan, overrides, plan_path)
    items = plan.items(overrides)
    return create(store, JOB, asked, items, run_id=run_id, owner=owner, version=version, now=now)


def extend_batch(
    store: Store, run_id: str, plan: CodingPlan, overrides: Overrides, *, plan_path: str
) -> Extension:
    """Bring a batch up to its plan as it stands now. The batch must be ours."""
    return extend(store, run_id, _from_plan(plan, overrides, plan_path), plan.items(overrides))


def _from_plan(plan: CodingPlan, overrides: Overrides, plan_path: str) -> dict[str, Any]:
    return {
        "planPath": plan_path,
        "planText": plan.text,
        "planDigest": plan.digest,
        "defaultsJson": json.dumps(plan.defaults_json(overrides), ensure_ascii=False),
        "optionsJson": json.dumps(_options(plan), ensure_ascii=False),
        "concurrency": plan.concurrency(overrides),
        "seed": plan.seed,
        "budgetUsd": plan.budget(overrides),
    }


def _options(plan: CodingPlan) -> dict[str, Any]:
    return {
        "notify": plan.notify,
        "prices": plan.prices,
        "record": plan.record,
        "replay": plan.replay,
        "folder": str(plan.folder),
    }
