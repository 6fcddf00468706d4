"""Ledgers without a store, for tests of what is reserved and spent."""

import asyncio
from typing import Any

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
