"""Each run of a benchmark, put together from what the store holds of it.

A run is an item; what it did is told of its last attempt, what it spent of all of them.

Knows nothing of models' figures or ranks.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proctor.item import FINISHED, SUCCESS
from proctor.store import Reader, Scope
from proctor.store.batches import moment

CHECK, EXPECT, UNCHECKED = "check: ", "expect.", "unchecked"
"""How the scores of a benchmark's runs are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One success criterion of a task, in one run."""

    name: str
    passed: bool | None
    """None: nothing checked it."""
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One model at one task, once."""

    item_id: str
    model: str
    asked: str
    """`provider/model`, as it was asked."""
    display_name: str
    task: str
    agent: str
    number: int
    """1 for the first of several equal runs."""
    status: str
    reason: str
    error: str
    work_seconds: float | None
    wall_seconds: float | None
    model_calls: int
    tool_calls: int
    interventions: int
    files: int
    lines_added: int
    lines_removed: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost_usd: float | None
    """None: no price is known, or nothing was asked."""
    unpriced_calls: int
    attempts: int
    session_id: str
    is_stand_in: bool
    finished_at: str
    criteria: tuple[Criterion, ...]
    is_unchecked: bool

    @property
    def succeeded(self) -> bool:
        return self.status == SUCCESS

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED


def runs_of(read: Reader, run_id: str) -> list[Run]:
    """Every run of a benchmark, in the order of its items."""
    scope = Scope(run_id=run_id)
    sessions = {row["id"]: row for row in read.table("sessions", scope)}
    steps, scores = defaultdict(list), defaultdict(list)
    for row in read.table("iterations", scope):
        steps[row["sessionId"]].append(row)
    for row in read.table("scores", scope):
        scores[row["sessionId"]].append(row)
    tried: dict[str, list[Any]] = defaultdict(list)
    for row in sessions.values():
        tried[row["itemId"]].append(row)
    return [
        _run(item, sessions.get(item["sessionId"]), tried[item["id"]], steps, scores)
        for item in read.items(run_id, limit=1_000_000)
    ]


def _run(item: Any, session: Any, attempts: Sequence[Any], steps: Any, scores: Any) -> Run:
    factors, settings = json.loads(item["factors"]), json.loads(item["settings"])
    last = session or {}
    mine = steps[item["sessionId"]]
    criteria, is_unchecked = _criteria(settings.get("criteria", []), scores[item["sessionId"]])
    began, ended = moment(last.get("startedAt")), moment(last.get("finishedAt"))
    return Run(
        item_id=item["id"],
        model=factors["model"],
        asked=item["model"],
        display_name=settings.get("displayName") or factors["model"],
        task=factors["task"],
        agent=item["agent"],
        number=item["repeat"],
        status=item["status"],
        reason=item["reason"],
        error=item["error"],
        work_seconds=last.get("workSeconds"),
        wall_seconds=(ended - began).total_seconds() if began and ended else None,
        model_calls=last.get("modelCalls", 0),
        tool_calls=last.get("toolCalls", 0),
        interventions=last.get("interventions", 0),
        files=sum(step["changedFiles"] for step in mine),
        lines_added=sum(step["linesAdded"] for step in mine),
        lines_removed=sum(step["linesRemoved"] for step in mine),
        prompt_tokens=sum(row["promptTokens"] for row in attempts),
        completion_tokens=sum(row["completionTokens"] for row in attempts),
        total_tokens=sum(row["totalTokens"] for row in attempts),
        cost_usd=item["costUsd"],
        unpriced_calls=sum(row["unpricedCalls"] for row in attempts),
        attempts=len(attempts),
        session_id=item["sessionId"] or "",
        is_stand_in=bool(last.get("standIn")),
        finished_at=item["finishedAt"] or "",
        criteria=criteria,
        is_unchecked=is_unchecked,
    )


def _criteria(wanted: Sequence[str], scores: Sequence[Any]) -> tuple[tuple[Criterion, ...], bool]:
    """What became of each success criterion, those that nothing checks among them."""
    made = [
        Criterion(
            name=row["evaluator"].removeprefix(CHECK),
            passed=row["value"] == 1,
            explanation=row["explanation"],
        )
        for row in scores
        if row["evaluator"].startswith((CHECK, EXPECT))
    ]
    names = {criterion.name for criterion in made}
    silent = [Criterion(name=name, passed=None) for name in wanted if name not in names]
    return (*made, *silent), any(row["evaluator"] == UNCHECKED for row in scores)
