"""A run as an answer: what it is, and how far it is.

Knows nothing of routes.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from proctor.analyse.concerns import stand_ins
from proctor.analyse.progress import Progress, progress
from proctor.analyse.selection import select
from proctor.item import ERROR, RUNNING
from proctor.store import Scope, pages
from proctor.web.kept import KeptAnswers
from proctor.web.run_shapes import Maker, PoolShape, RunAnswer, RunningShape, Standing, StandInShape
from proctor.web.site import Site

Money = tuple[float, float]
"""In USD: set aside, spent."""
ANALYSED = ("benchmark", "scenario", "dialogue")
"""Jobs that have an analysis of their own besides the report that every run has."""
FIXED_HOLDS = timedelta(hours=1)


def standing_of(
    site: Site, run_id: str, before: Progress | None = None, money: Money | None = None
) -> tuple[Standing, Progress]:
    """How far a run is; hand the second part in again to make the next answer quick and its rate current.

    `money` is what is known already of what was set aside and spent.
    """
    seen = progress(site.store.read, run_id, site.now(), before)
    batch = site.store.read.batch(run_id, site.now())
    reserved, spent = money_of(site, seen.run_id, seen.budget_usd) if money is None else money
    rate = seen.items_per_second if seen.status == RUNNING else _overall(seen)
    standing = Standing(
        run_id=seen.run_id,
        status=seen.status,
        reason=batch["reason"],
        finished_at=batch["finishedAt"],
        is_stopping=bool(batch["abortRequestedAt"]) and seen.status == RUNNING,
        counts=dict(seen.counts),
        item_count=seen.total,
        finished_count=seen.finished,
        tokens=seen.tokens,
        cost_usd=seen.cost_usd,
        budget_usd=seen.budget_usd,
        spent_usd=spent,
        reserved_usd=reserved,
        elapsed_seconds=round(seen.elapsed_seconds, 3),
        items_per_minute=None if rate is None else round(rate * 60, 2),
        eta_seconds=None if seen.eta_seconds is None else round(seen.eta_seconds),
        pools=[PoolShape.model_validate(pool) for pool in seen.pools],
        running=[RunningShape.model_validate(item) for item in seen.running],
    )
    return standing, seen


def money_of(site: Site, run_id: str, budget_usd: float | None) -> Money:
    """What a run has set aside and spent of its budget: a sum over each of its attempts."""
    return (0.0, 0.0) if budget_usd is None else site.store.read.reserved_and_spent(run_id)


class RunAnswers:
    """Runs, whole. What was added up for one answer is used for the next."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ended = KeptAnswers[RunAnswer](site.now, while_running=timedelta(0))
        self._fixed = KeptAnswers[_Fixed](site.now, while_running=FIXED_HOLDS)
        self._progress = KeptAnswers[list[Progress]](site.now, while_running=timedelta(days=1))

    def of(self, run_id: str) -> RunAnswer:
        """A run, by its id or an unambiguous beginning of it."""
        batch = self._site.store.read.batch(run_id, self._site.now())
        return self._ended.get(batch, "", lambda: self._made(batch))

    def _made(self, batch: dict[str, Any]) -> RunAnswer:
        run_id = batch["runId"]
        # A list that holds what was seen last, so that the next look need not add up everything.
        seen = self._progress.get(batch, "", list)
        standing, progressed = standing_of(self._site, run_id, seen[0] if seen else None)
        seen[:] = [progressed]
        fixed = self._fixed.get(batch, standing.item_count, lambda: self._look_up(run_id))
        return RunAnswer(
            **standing.model_dump(),
            job=batch["job"],
            created_at=batch["createdAt"],
            plan_path=batch["planPath"],
            concurrency=batch["concurrency"],
            seed=batch["seed"],
            proctor_version=batch["proctorVersion"],
            makers=fixed.makers,
            factors=fixed.factors,
            stand_ins=self._stand_ins(run_id),
            has_analysis=batch["job"] in ANALYSED,
        )

    def _look_up(self, run_id: str) -> "_Fixed":
        read = self._site.store.read
        return _Fixed(
            makers=[Maker.model_validate(row) for row in pages.makers(read, run_id)],
            factors=pages.factor_names(read, run_id),
        )

    def _stand_ins(self, run_id: str) -> list[StandInShape]:
        found = stand_ins(select(self._site.store.read, Scope(run_id=run_id)))
        return [StandInShape.model_validate(one) for one in found]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What does not change while a run has the same items."""

    makers: list[Maker]
    factors: list[str]


def _overall(seen: Progress) -> float | None:
    """Of a run that has ended: what it did in all its time, without what an abort kept it from doing."""
    done = seen.finished - (seen.counts[ERROR] if seen.status == "aborted" else 0)
    return done / seen.elapsed_seconds if done and seen.elapsed_seconds > 0 else None
