"""Runs as a list shows them: what each is, how far it is, what it has cost.

Sums of a run that has ended are kept: adding up a hundred thousand items for each look at a list would be
slow, and they do not change before the run is taken up again, which its status tells.

Knows nothing of HTTP.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Any

from pydantic import BaseModel

from proctor.item import RUNNING
from proctor.store import listing
from proctor.store.database import Row
from proctor.web.site import Site

MOST_KEPT = 5000


class RunLine(BaseModel):
    """A run in the list of runs."""

    runId: str  # noqa: N815  names as in the record
    createdAt: str  # noqa: N815
    finishedAt: str | None  # noqa: N815
    job: str
    status: str
    reason: str
    planPath: str  # noqa: N815
    itemCount: int  # noqa: N815
    finishedCount: int  # noqa: N815
    counts: dict[str, int]
    """Items by status; every status is there."""
    tokensTotal: int  # noqa: N815
    costUsd: float | None  # noqa: N815
    """None: no price is known."""
    budgetUsd: float | None  # noqa: N815


class RunLines:
    """Makes lines of runs, from any thread."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._kept: dict[tuple[str, str, str], Row] = {}
        self._lock = Lock()

    def of(self, rows: Sequence[Row]) -> list[RunLine]:
        """The lines of these batches."""
        known = {row["runId"]: self._kept.get(_key(row)) for row in rows}
        fresh = listing.totals_of(
            self._site.store.read, [run_id for run_id, totals in known.items() if totals is None]
        )
        totals = {run_id: found or fresh[run_id] for run_id, found in known.items()}
        with self._lock:
            if len(self._kept) > MOST_KEPT:
                self._kept.clear()
            self._kept |= {_key(row): totals[row["runId"]] for row in rows if row["status"] != RUNNING}
        return [_line(row, totals[row["runId"]]) for row in rows]

    def named(self, run_ids: Sequence[str]) -> list[RunLine]:
        """The lines of the batches with these ids, as far as they still are."""
        return self.of(listing.batches_named(self._site.store.read, run_ids, self._site.now()))


def _key(row: Row) -> tuple[str, str, str]:
    return row["runId"], row["status"], row["finishedAt"] or ""


def _line(row: Row, totals: dict[str, Any]) -> RunLine:
    return RunLine(
        runId=row["runId"],
        createdAt=row["createdAt"],
        finishedAt=row["finishedAt"],
        job=row["job"],
        status=row["status"],
        reason=row["reason"],
        planPath=row["planPath"],
        itemCount=totals["items"],
        finishedCount=totals["finished"],
        counts=totals["counts"],
        tokensTotal=totals["tokens"],
        costUsd=totals["costUsd"],
        budgetUsd=row["budgetUsd"],
    )
