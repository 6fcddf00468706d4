"""Budgets on ledgers without a store, for tests of what is reserved and spent."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from proctor.budget.allocation import BatchBudget, Ledger, LedgerClient
from proctor.budget.reservation import Reservation
from proctor.models.prices import SpendingRequest
from proctor.store import Drawn


class MemoryLedger:
    """A ledger without a store; like the store's, it grants more than needed unless told to be `exact`."""

    def __init__(self, limit_usd: float, *, exact: bool = False) -> None:
        self.limit_usd, self.drawn_usd, self.exact = limit_usd, 0.0, exact

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        await asyncio.sleep(0)
        left = self.limit_usd - self.drawn_usd
        if left <= 1e-9 or left < least_usd - 1e-9:
            return Drawn(usd=0.0, short_of="budget")
        usd = min(left, wanted_usd if self.exact else max(wanted_usd, left / 8))
        self.drawn_usd += usd
        return Drawn(usd=usd)

    async def give_back(self, holder: str, usd: float) -> None:
        self.drawn_usd -= usd


class SettledRows:
    """Adds up what the rows of the ledger reserve and spend."""

    def __init__(self) -> None:
        self.reserved = self.spent = self.most_committed = 0.0
        self.running = self.most_running = 0.0
        self.rows: list[tuple[str, int, str, float, float]] = []
        """Session, position, kind, reserved and spent of each row but those of running calls."""
        self.positions: dict[str, list[int]] = {}
        """Of all rows, by session."""

    def append(self, table: str, row: tuple[Any, ...]) -> None:
        assert table == "ledger"
        self.positions.setdefault(row[0], []).append(row[1])
        if row[5] == "call":
            # Of what is reserved, the part of running calls.
            self.running += row[6]
            self.most_running = max(self.most_running, self.running)
            return
        self.rows.append((row[0], row[1], *row[5:8]))
        self.reserved += row[6]
        self.spent += row[7]
        self.most_committed = max(self.most_committed, self.reserved + self.spent)


class ScriptedLedger:
    """Grants what a script says; `calls` has what was wanted, the least, and what was returned, negative."""

    def __init__(self, *script: Drawn | Exception) -> None:
        self.script, self.calls = list(script), list[tuple[float, ...]]()
        self.on_draw: Callable[[], None] = lambda: None

    async def draw(self, holder: str, *, wanted_usd: float, least_usd: float) -> Drawn:
        assert holder == "me"
        self.calls.append((wanted_usd, least_usd))
        self.on_draw()
        outcome = self.script.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def give_back(self, holder: str, usd: float) -> None:
        self.calls.append((-usd,))


class Purse:
    """A batch budget on a ledger, and the rows that it has written. Without a limit, nothing is limited."""

    def __init__(
        self,
        limit: float | Ledger | None,
        *,
        concurrency: int = 4,
        exact: bool = True,
        commit: Callable[[], Awaitable[None]] | None = None,
        rows: SettledRows | None = None,
    ) -> None:
        is_amount = limit is None or isinstance(limit, int | float)
        self.ledger: Any = MemoryLedger(limit or 0.0, exact=exact) if is_amount else limit  # type: ignore[arg-type]
        self.rows = rows or SettledRows()
        self.client = LedgerClient(self.ledger, "me", is_limited=limit is not None)
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        self.budget = BatchBudget(
            self.client,
            run_id="run",
            concurrency=concurrency,
            rows=self.rows,
            now=lambda: moment,
            commit=commit,
        )

    async def open(
        self, name: str, cap_usd: float | None = None, *, kind: str = "a", asks_first: bool = True
    ) -> Reservation:
        reservation = await self.budget.open(name, name, kind=kind, cap_usd=cap_usd, asks_first=asks_first)
        assert reservation is not None
        return reservation


def worst(
    usd: float | None,
    *,
    input_usd: float = 0.0,
    tokens: int = 1000,
    margin_usd: float = 0.0,
    model: str = "m",
) -> SpendingRequest:
    """A call that can cost so much, with an answer of a thousand tokens."""
    price = None if usd is None else (usd - input_usd) / tokens
    return SpendingRequest(
        model=model,
        input_tokens=0,
        output_tokens=tokens,
        input_usd=input_usd,
        output_usd_per_token=price,
        margin_usd=margin_usd,
    )


async def settled() -> None:
    """Let all that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)
