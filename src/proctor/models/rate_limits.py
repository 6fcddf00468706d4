"""Adaptive limits on concurrent calls, one pool per provider and model, shared by all items.

A pool starts high (at its maximum where the user declared a limit or the server is local), shrinks on a 429,
and grows again only while it is full and nothing fails. `Retry-After` and exhausted usage windows hold the
pool; no attempt fails because of them.
"""

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from proctor.errors import RateLimited

T = TypeVar("T")
Waited = Callable[[float], None]
SLICE_SECONDS = 1.0
"""A wait of unknown length is reported in slices, and corrected when it is over."""
TRIES_WITHOUT_HINT = 20
"""Give up after this many 429 responses without a `Retry-After`."""

# Thirty years in seconds: no usage window is as long, and all Unix times since 2000 are greater.
_FIRST_TIMESTAMP = 946_684_800
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?")
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePolicy:
    """How a pool searches for its limit."""

    first: int = 200
    """Initial number of concurrent calls. Fewer would cost a batch of long calls its first seconds."""
    most: int = 10_000
    growth: float = 4.0
    """Growth factor until the first 429."""
    growth_seconds: float = 0.25
    """How long a full pool waits for a 429 before it grows: providers send it at once, long before the first
    answer."""
    cut_factor: float = 0.8
    cautious_growth: float = 0.05
    """Relative growth after the first 429."""
    saturation: float = 0.8
    """A pool used less than this learns nothing from its successes."""
    longest_pause_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A snapshot of a pool."""

    name: str
    limit: int
    """Concurrent calls allowed to this process."""
    limit_of_all: float
    """Concurrent calls allowed to all processes together."""
    in_use: int
    waiting: int
    calls: int
    limited: int
    """Number of 429 responses."""
    waited_seconds: float
    """Sum over all calls."""
    held_seconds: float
    """Until the pool admits calls again; 0 when it does."""
    cut_seconds_ago: float | None
    """Since the last 429; None: there was none."""
    holder: str = ""
    """The process whose pool it is; empty: this one."""


class Slot(NamedTuple):
    """A slot of a pool, held by one call."""

    waited_seconds: float
    """How long the call waited for it."""
    era: int
    """Number of cuts so far: calls of one era that are limited together cut the limit once."""


class RatePool:
    """The calls to one provider and model. Use it on one event loop."""

    def __init__(
        self, name: str, policy: RatePolicy | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.share = 1.0
        """This process's share of the limit; other processes on the same store have the rest."""
        self.limit: float = (policy or RatePolicy()).first
        self._policy = policy or RatePolicy()
        self._clock = clock
        self._in_use = 0
        self._peak = 0
        self._successes = 0
        self._probing = True
        self._growth_timer: asyncio.TimerHandle | None = None
        self._cut_at = -math.inf
        self._era = 0
        self._held_until = -math.inf
        self._cuts_without_hint = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._calls = 0
        self._limited = 0
        self._waited = 0.0

    @property
    def state(self) -> PoolState:
        """A snapshot."""
        return PoolState(
            name=self.name,
            limit=self._slots,
            limit_of_all=self.limit,
            in_use=self._in_use,
            waiting=len(self._queue),
            calls=self._calls,
            limited=self._limited,
            waited_seconds=self._waited,
            held_seconds=max(0.0, self._held_until - self._clock()),
            cut_seconds_ago=self._clock() - self._cut_at if self._limited else None,
        )

    async def call(self, send: Callable[[], Awaitable[T]], waited: Waited | None = None) -> T:
        """Call `send` in a slot, and retry as long as it is rate limited."""
        without_hint = 0
        while True:
            slot = await self.enter(waited)
            try:
                answer = await send()
            except RateLimited as error:
                self.refused(slot, error.retry_after_seconds)
                without_hint += error.retry_after_seconds is None
                if without_hint >= TRIES_WITHOUT_HINT:
                    raise
            except BaseException:
                self.failed()
                raise
            else:
                self.answered()
                return answer

    async def enter(self, waited: Waited | None = None) -> Slot:
        """Wait for a slot and take it. Return it with `answered`, `failed` or `refused`."""
        if self._is_open and not self._queue:
            self._acquire()
            return Slot(0.0, self._era)
        took = await self._wait_for_slot(waited)
        return Slot(took, self._era)

    def answered(self) -> None:
        """Return a slot after a successful call."""
        self._succeed()
        self._release()

    def failed(self) -> None:
        """Return a slot after a failure that says nothing about the limit."""
        self._successes = 0
        self._release()

    def refused(self, slot: Slot, retry_after_seconds: float | None) -> None:
        """Return a slot after a 429: lower the limit and hold the pool."""
        self._cut(slot, retry_after_seconds)
        self._release()

    def hold(self, seconds: float) -> None:
        """Admit no call for this long, as the provider or another process reported."""
        until = self._clock() + seconds
        if until > self._held_until:
            self._held_until = until
            asyncio.get_running_loop().call_later(seconds, self._admit)

    def agree(self, limit: float, share: float) -> None:
        """Adopt the limit and share that the processes on this store have agreed on."""
        if limit < self.limit:
            # Another process was rate limited: from now on this one grows cautiously too.
            self._probing = False
        self.limit = max(1.0, min(limit, self._policy.most))
        self.share = share
        self._admit()

    @property
    def _slots(self) -> int:
        return max(1, int(self.limit * self.share))

    @property
    def _is_open(self) -> bool:
        return self._in_use < self._slots and self._clock() >= self._held_until

    async def _wait_for_slot(self, waited: Waited | None) -> float:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        self._admit()
        self._schedule_growth()
        started = self._clock()
        try:
            await _wait_in_slices(slot, started, self._clock, waited)
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():
                self._release()
            elif slot in self._queue:
                self._queue.remove(slot)
            raise
        finally:
            seconds = self._clock() - started
            self._waited += seconds
        return seconds

    def _schedule_growth(self) -> None:
        """Grow soon, unless a 429 arrives by then."""
        if self._probing and self._growth_timer is None and self._queue:
            loop = asyncio.get_running_loop()
            self._growth_timer = loop.call_later(
                self._policy.growth_seconds, self._grow_unless_limited, self._limited
            )

    def _grow_unless_limited(self, limited: int) -> None:
        self._growth_timer = None
        if self._probing and self._limited == limited and self._in_use >= self._slots:
            self.limit = min(self._policy.most, self.limit * self._policy.growth)
            self._admit()
        self._schedule_growth()

    def _acquire(self) -> None:
        self._in_use += 1
        self._calls += 1
        self._peak = max(self._peak, self._in_use)

    def _release(self) -> None:
        self._in_use -= 1
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        while self._queue and self._is_open:
            slot = self._queue.popleft()
            if not slot.done():
                self._acquire()
                slot.set_result(None)

    def _succeed(self) -> None:
        self._cuts_without_hint = 0
        self._successes += 1
        round_ends = self._slots / 2 if self._probing else self._slots
        if self._successes < round_ends:
            return
        full = self._peak >= self._policy.saturation * self._slots
        self._successes, self._peak = 0, self._in_use
        if full:
            grown = (
                self.limit * self._policy.growth
                if self._probing
                else self.limit + max(1, self.limit * self._policy.cautious_growth)
            )
            self.limit = min(self._policy.most, grown)

    def _cut(self, slot: Slot, retry_after_seconds: float | None) -> None:
        self._limited += 1
        self._successes = 0
        self._probing = False
        self._cut_at = self._clock()
        is_first = slot.era == self._era
        if is_first:
            self._era += 1
            # What was in use, not what would have been allowed, was too much.
            self.limit = max(1.0, min(self.limit, self._in_use / self.share) * self._policy.cut_factor)
        if retry_after_seconds is None:
            # Calls limited together count once: counted each, they would hold the pool for a minute.
            self._cuts_without_hint += is_first
            retry_after_seconds = min(
                self._policy.longest_pause_seconds, 0.5 * 2.0 ** min(self._cuts_without_hint, 10)
            )
        self.hold(retry_after_seconds)


class RatePools:
    """All pools of one process."""

    def __init__(
        self,
        policy: RatePolicy | None = None,
        *,
        most: Mapping[str, int] | None = None,
        share: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most` are declared limits, by provider and model or by provider. `share` is this process's share
        of every limit until the processes on the store have agreed on another."""
        self._policy = policy or RatePolicy()
        self._most = most or {}
        self._share = share
        self._clock = clock
        self._pools: dict[str, RatePool] = {}

    def pool(self, name: str, *, is_local: bool = False) -> RatePool:
        """The pool of one provider and model; `is_local` when it is on this machine."""
        if name not in self._pools:
            declared = self.declared(name)
            most = declared or self._policy.most
            # No probing when the limit is declared or the server is local: a batch of a thousand parallel
            # calls would wait half a second for it.
            first = most if declared or is_local else min(self._policy.first, most)
            policy = replace(self._policy, first=first, most=most)
            pool = self._pools[name] = RatePool(name, policy, clock=self._clock)
            pool.share = self._share
        return self._pools[name]

    def declared(self, name: str) -> int | None:
        """The declared limit of a provider and model; None: there is none."""
        return self._most.get(name) or self._most.get(name.partition("/")[0])

    @property
    def states(self) -> list[PoolState]:
        """Snapshots of all pools."""
        return [pool.state for pool in self._pools.values()]


def spent_window_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds until an exhausted usage window resets, from response headers; None: none is exhausted."""
    pauses = []
    for name, left in headers.items():
        lower = name.lower()
        if "ratelimit" in lower and "remaining" in lower and left.strip() == "0":
            # `x-ratelimit-remaining-requests` goes with `x-ratelimit-reset-requests`.
            pauses.append(_duration(headers.get(_sibling(headers, lower), ""), now))
    known = [pause for pause in pauses if pause is not None]
    return max(known) if known else None


def _sibling(headers: Mapping[str, str], remaining: str) -> str:
    reset = remaining.replace("remaining", "reset")
    return next((name for name in headers if name.lower() == reset), "")


def _duration(text: str, now: datetime) -> float | None:
    """Seconds from `6m0s`, `12.5`, an ISO 8601 time, or a Unix time in seconds or milliseconds."""
    text = text.strip()
    if parts := _PARTS.findall(text):
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number < _FIRST_TIMESTAMP:
            return number
        timestamp = number / 1000 if number >= 1000 * _FIRST_TIMESTAMP else number
        return max(0.0, timestamp - now.timestamp())
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - now).total_seconds())


async def _wait_in_slices(
    slot: "asyncio.Future[None]", started: float, clock: Callable[[], float], waited: Waited | None
) -> None:
    reported = 0.0
    try:
        while not slot.done():
            if waited:
                waited(SLICE_SECONDS)
                reported += SLICE_SECONDS
            await asyncio.wait([slot], timeout=SLICE_SECONDS)
    finally:
        if waited:
            waited(clock() - started - reported)
