"""What a batch is going to take, from what the same agents and models took before.

Items of one agent and model are expected to take what such sessions took on average. Whoever has not been
at work here yet is named, not guessed at: then the sum is of the others, and says so.

Knows nothing of plans or of how a forecast is shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from proctor.analyse.intervals import Estimate, mean
from proctor.item import FAIL, SUCCESS, TIMEOUT
from proctor.store import Reader
from proctor.store.conditions import places

ENDED = (SUCCESS, FAIL, TIMEOUT)
"""Sessions that were carried out. Those we or the infrastructure failed tell nothing of what work takes."""


@dataclass(frozen=True, slots=True)
class Worker:
    """Who does an item."""

    agent: str
    """Empty: a model is asked directly."""
    model: str

    def __str__(self) -> str:
        return " with ".join(part for part in (self.agent, self.model) if part) or "items without a model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a batch is expected to take."""

    items: int
    known_items: int
    """Those whose like were done before; the figures are of these."""
    sessions: int
    """Earlier sessions that the figures rest on."""
    cost_usd: float | None
    """None: nothing is known of it."""
    seconds: float | None
    unknown: tuple[str, ...] = field(default=())
    """Who has not been at work here yet."""

    @property
    def basis(self) -> str:
        """In words, how it was reckoned."""
        if not self.known_items:
            return "Nothing like it was done here before, so nothing can be said."
        many = "an earlier session" if self.sessions == 1 else f"{self.sessions:,} earlier sessions"
        said = f"From {many} of the same agents and models"
        if self.unknown:
            some = ", ".join(self.unknown[:3]) + (" and others" if len(self.unknown) > 3 else "")
            return f"{said}, for {self.known_items:,} of {self.items:,} items: nothing is known of {some}."
        return f"{said}."


def forecast(read: Reader, job: str, work: Mapping[Worker, int], *, concurrency: int) -> Forecast:
    """What so many items of each worker are going to take together, so many at a time."""
    known, sessions, cost, seconds, longest = 0, 0, None, 0.0, 0.0
    unknown = list[str]()
    for worker, items in work.items():
        time, money = _experience(read, job, worker)
        if time.value is None:
            unknown.append(str(worker))
            continue
        known += items
        sessions += time.n
        seconds += time.value * items
        longest = max(longest, time.value)
        if money.value is not None:
            cost = (cost or 0.0) + money.value * items
    total = sum(work.values())
    at_once = max(1, min(concurrency, total))
    return Forecast(
        items=total,
        known_items=known,
        sessions=sessions,
        cost_usd=cost,
        seconds=max(seconds / at_once, longest) if known else None,
        unknown=tuple(unknown),
    )


def _experience(read: Reader, job: str, worker: Worker) -> tuple[Estimate, Estimate]:
    """Seconds and USD of a session of this worker."""
    (row,) = read.query(
        'SELECT COUNT("workSeconds") AS "n", SUM("workSeconds") AS "time", '
        'SUM("workSeconds" * "workSeconds") AS "time2", COUNT("costUsd") AS "priced", '
        'SUM("costUsd") AS "cost", SUM("costUsd" * "costUsd") AS "cost2" FROM "sessions" '
        f'WHERE "job" = ? AND "agent" = ? AND "model" = ? AND "status" IN ({places(ENDED)})',
        (job, worker.agent, worker.model, *ENDED),
    )
    time = mean(row["n"], row["time"] or 0.0, row["time2"] or 0.0)
    return time, mean(row["priced"], row["cost"] or 0.0, row["cost2"] or 0.0)
