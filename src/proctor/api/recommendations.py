"""Recommendations: better system prompts and tool descriptions, written by a model from traces and scores."""

import asyncio
import json

from proctor.api.definitions import NewResource, new_row, tag_new
from proctor.context import RunContext
from proctor.errors import Contradiction, QuotaReached
from proctor.evaluator import Evaluator
from proctor.evaluators.judging import Judge
from proctor.jobs.evaluation.recommendation import recommend, traced_sessions, with_scores
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.store.datasets import COMPLETED, FAILED, IN_PROGRESS
from proctor.store.tables import RecommendationRow
from proctor.store.writer import this_process

__all__ = [
    "RecommendationRow",
    "claim_recommendation",
    "compute_recommendation",
    "delete_recommendation",
    "finish_recommendation",
    "start_recommendation",
]


def start_recommendation(
    ctx: RunContext, new: NewResource, *, kind: str, config: JsonMap, most_active: int
) -> RecommendationRow:
    """Store a recommendation, which a server computes. Raises `QuotaReached`."""
    if ctx.store.recommendations.count_active() >= most_active:
        raise QuotaReached(f"There may be {most_active} active recommendations; wait for one to end.")
    row = {**new_row(ctx, new), "type": kind}
    stored = ctx.store.recommendations.create(row, config, new.token)
    tag_new(ctx, new, stored["id"])
    return stored


def delete_recommendation(ctx: RunContext, recommendation_id: str, arn: str) -> str:
    """Delete a recommendation that is not being computed; returns its ID."""
    row = ctx.store.recommendations.get(recommendation_id)
    if row["status"] == IN_PROGRESS:
        raise Contradiction(f"The recommendation {row['id']} is in progress; wait for its end.")
    ctx.store.recommendations.delete(row["id"])
    ctx.store.definitions.untag(arn)
    return row["id"]


def claim_recommendation(ctx: RunContext) -> RecommendationRow | None:
    """A recommendation that no process computes, for this one to compute; None: there is none."""
    claimed = ctx.store.recommendations.claim(this_process(), ctx.now())
    return None if claimed is None else ctx.store.recommendations.get(claimed)


async def compute_recommendation(
    ctx: RunContext,
    row: RecommendationRow,
    *,
    evaluator: Evaluator | None,
    judge: Judge,
    harmful_value: float,
) -> JsonObject:
    """What the judge recommends; sessions without scores of `evaluator` are evaluated first.

    Raises `UsageError`, `NotFound`, `ModelError`.
    """
    config = json.loads(row["requestJson"])
    (inner,) = map(as_map, config.values())
    name, traces = evaluator.name if evaluator else "", as_map(inner, "agentTraces")
    sessions = await asyncio.to_thread(traced_sessions, ctx.store, traces, ctx.now(), evaluator=name)
    if evaluator is not None:
        sessions = await with_scores(sessions, evaluator, harmful_value)
    return await recommend(config, sessions, judge)


def finish_recommendation(
    ctx: RunContext, recommendation_id: str, result: JsonMap, *, succeeded: bool
) -> None:
    """Store the result of a recommendation, or why it failed."""
    status = COMPLETED if succeeded else FAILED
    ctx.store.recommendations.finish(recommendation_id, status, result, ctx.now())
