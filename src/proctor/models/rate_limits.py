"""Adaptive limits on concurrent calls, one pool per provider and model, shared by all items.

A pool starts high (at its maximum where the user declared a limit or the server is local), shrinks on a 429,
and grows again only while it is full and nothing fails. `Retry-After` and exhausted usage windows hold the
pool; no attempt fails because of them.

A provider that cannot be reached, or answers several calls in a row with nothing but server errors, is in an
outage: the pool is held, and single calls probe it until one is answered. Calls wait meanwhile, as long as
the outage patience allows.
"""

import asyncio
import math
import re
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from proctor.errors import ModelError

Waited = Callable[[float], None]
SLICE_SECONDS = 1.0
"""A wait of unknown length is reported in slices, and corrected when it is over."""
TRIES_WITHOUT_HINT = 20
"""Give up after this many 429 responses without a `Retry-After`."""

OUTAGE_PATIENCE_SECONDS = 1800.0
"""How long the calls of a run wait for a provider in an outage, unless a setting says otherwise."""
FAILURES_OF_OUTAGE = 3
"""Failures in a row after which a provider is in an outage: of any calls, without a success between them."""
FIRST_PROBE_SECONDS = 1.0
LONGEST_PROBE_SECONDS = 30.0
"""Pause between two probes; it doubles from the first to the longest."""
PATIENCE_WITH_ONE_CALL_SECONDS = 120.0
"""While all failures are server errors of one call, its request may be the cause, not the provider. The same
holds for all calls that failed before while the provider answered others."""

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
    outage: str = ""
    """Why the provider is considered unreachable; empty: it is not."""


TRIES = 5
"""Tries of a call that breaks off or fails at the provider, each paid for."""
LONGEST_PAUSE_SECONDS = 60.0
"""Between two tries; the batch waits out a longer one."""


class _RepeatedCall:
    """Identity of one call over its tries."""


_repeated_call: ContextVar[_RepeatedCall | None] = ContextVar("repeated_call", default=None)


@contextmanager
def one_call() -> Iterator[None]:
    """Tries of calls in the body are those of one call: an outage is certain once several calls fail."""
    token = _repeated_call.set(_RepeatedCall())
    try:
        yield
    finally:
        _repeated_call.reset(token)


def pause_before_retry(error: ModelError, tries: int) -> float | None:
    """Seconds to wait before a call that may be billed is tried again; None: it is not."""
    if not error.may_be_billed or not error.is_repeatable or tries >= TRIES:
        return None
    # In an outage, the provider is probed: the next try waits for that.
    pause = 0.0 if error.is_outage else error.pause_seconds * 2.0 ** (tries - 1)
    return pause if pause <= LONGEST_PAUSE_SECONDS else None


def repeated_call() -> object | None:
    """What identifies the call of which this is a try; None: the caller repeats nothing."""
    return _repeated_call.get()


class Slot(NamedTuple):
    """A slot of a pool, held by one call."""

    waited_seconds: float
    """How long the call waited for it."""
    era: int
    """Number of cuts so far: calls of one era that are limited together cut the limit once."""
    is_probe: bool = False
    """Whether its call probes a provider in an outage."""


@dataclass(slots=True)
class Outage:
    """Failures of a provider since its last answer."""

    failures: int = 0
    calls: set[object] = field(default_factory=set)
    """The calls that failed, without those that failed while the provider answered others."""
    is_unreachable: bool = False
    """Whether a call failed that had no connection, whatever its request."""
    error: str = ""
    started: float | None = None
    """When the pool was held because of it; None: it is not."""
    is_over_patience: bool = False
    """Whether the wait was given up: until the next answer, calls fail as they would without it."""
    is_probed: bool = False
    """Whether a probe is running."""
    next_probe: float = 0.0
    pause_seconds: float = field(default_factory=lambda: FIRST_PROBE_SECONDS)

    @property
    def is_certain(self) -> bool:
        """Whether no single request can be the cause."""
        return self.is_unreachable or len(self.calls) > 1


class RatePool:
    """The calls to one provider and model. Use it on one event loop."""

    def __init__(
        self,
        name: str,
        policy: RatePolicy | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        outage_patience_seconds: float = 0.0,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        """`outage_patience_seconds` is how long calls wait for a provider in an outage; 0: not at all.
        `notify` receives a message when an outage begins and when it ends."""
        self.name = name
        self._outage = Outage()
        self._suspects: weakref.WeakSet[object] = weakref.WeakSet()
        """Calls that failed while the provider answered others: their requests may be the cause."""
        self._patience = outage_patience_seconds
        self._notify = notify or (lambda _: None)
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
        self._free_slot = Slot(0.0, 0)
        """The slot of all calls that did not have to wait, until the first cut."""
        self._held_until = -math.inf
        self._cuts_without_hint = 0
        self._queue: deque[asyncio.Future[bool]] = deque()
        self._calls = 0
        self._limited = 0
        self._waited = 0.0

    @property
    def state(self) -> PoolState:
        return PoolState(
            name=self.name,
            limit=self._slots,
            limit_of_all=self.limit,
            in_use=self._in_use,
            waiting=len(self._queue),
            calls=self._calls,
            limited=self._limited,
            waited_seconds=self._waited,
            held_seconds=max(0.0, self._held_until - self._clock(), self._seconds_to_probe),
            cut_seconds_ago=self._clock() - self._cut_at if self._limited else None,
            outage=self._outage.error if self.is_in_outage else "",
        )

    @property
    def _seconds_to_probe(self) -> float:
        """Until the next probe; 0 when there is no outage, or when one call may be its cause."""
        outage = self._outage
        return outage.next_probe - self._clock() if self.is_in_outage and outage.is_certain else 0.0

    @property
    def is_in_outage(self) -> bool:
        """Whether the pool is held because its provider cannot be reached."""
        return self._outage.started is not None

    async def enter(self, waited: Waited | None = None) -> Slot:
        """Wait for a slot and take it. Return it with `answered`, `failed` or `refused`."""
        slot = self.enter_at_once()
        if slot is None:
            took, is_probe = await self._wait_for_slot(waited)
            slot = Slot(took, self._era, is_probe)
        return slot

    def enter_at_once(self) -> Slot | None:
        """Take a slot without waiting; None: there is none."""
        if self._queue or not self._is_open:
            return None
        self._acquire()
        is_probe = self._outage.started is not None
        if is_probe or self._free_slot.era != self._era:
            return Slot(0.0, self._era, is_probe)
        return self._free_slot

    def answered(self) -> None:
        """Return a slot after a successful call."""
        outage = self._outage
        if outage.failures or outage.error:
            self.reached()
        self._succeed()
        self._in_use -= 1
        if self._queue:
            self._admit()

    def failed(self, slot: Slot | None = None) -> None:
        """Return a slot after a failure that says nothing about the limit; `slot`: nor about an outage."""
        self._successes = 0
        if slot and slot.is_probe:
            self._end_probe()
        elif slot is None:
            self.reached()
        self._release()

    def refused(self, slot: Slot, retry_after_seconds: float | None) -> None:
        """Return a slot after a 429: lower the limit and hold the pool."""
        self.reached()
        self._cut(slot, retry_after_seconds)
        self._release()

    def reached(self) -> None:
        """The provider has answered: end its outage, if there is one."""
        outage = self._outage
        if not outage.failures and not outage.error:
            return
        self._outage = Outage()
        if outage.started is None and not outage.is_unreachable:
            self._suspects.update(outage.calls)
        if outage.started is not None:
            lasted = self._clock() - outage.started
            self._notify(f"{self.name} answers again after {lasted:.0f} s")
            self._admit()

    def unreachable(self, slot: Slot, call: object, error: str, *, is_connected: bool) -> bool:
        """Return a slot after a failure that may be an outage; whether the call may wait for its end.

        `is_connected`: there was a connection, so that the request itself may be the cause.
        """
        self._successes = 0
        outage = self._outage
        outage.failures += 1
        if call not in self._suspects:
            outage.calls.add(call)
        outage.is_unreachable |= not is_connected
        outage.error = error
        if slot.is_probe:
            self._end_probe()
        elif outage.failures >= FAILURES_OF_OUTAGE and outage.started is None:
            self._begin_outage()
        self._release()
        return self.is_in_outage and not self._is_out_of_patience()

    def _begin_outage(self) -> None:
        outage = self._outage
        if not self._patience or outage.is_over_patience:
            return
        outage.started = self._clock()
        self._notify(f"{self.name} is unreachable, probing: {outage.error}")
        self._schedule_probe()

    def _end_probe(self) -> None:
        self._outage.is_probed = False
        self._outage.pause_seconds = min(LONGEST_PROBE_SECONDS, 2 * self._outage.pause_seconds)
        self._schedule_probe()

    def _schedule_probe(self) -> None:
        outage = self._outage
        outage.next_probe = self._clock() + outage.pause_seconds
        asyncio.get_running_loop().call_later(outage.pause_seconds, self._admit)

    def _is_out_of_patience(self) -> bool:
        """Whether the outage has lasted too long; if so, all calls that wait for its end fail."""
        outage = self._outage
        if outage.started is None:
            return False
        patience = self._patience
        if not outage.is_certain:
            patience = min(patience, PATIENCE_WITH_ONE_CALL_SECONDS)
        if self._clock() - outage.started < patience:
            return False
        self._outage = replace(outage, started=None, failures=0, is_over_patience=outage.is_certain)
        self._notify(f"{self.name} has been unreachable for {patience:.0f} s, longer than outage_patience")
        error = ModelError(f"{self.name} was unreachable for {patience:.0f} s: {outage.error}")
        waiting, self._queue = self._queue, deque()
        for slot in waiting:
            if not slot.done():
                slot.set_exception(error)
        return True

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
        now, outage = self._clock(), self._outage
        if outage.started is not None and (outage.is_probed or now < outage.next_probe):
            return False
        return self._in_use < self._slots and now >= self._held_until

    async def _wait_for_slot(self, waited: Waited | None) -> tuple[float, bool]:
        """Wait for a slot; the seconds it took, and whether it is for a probe."""
        slot: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._queue.append(slot)
        self._admit()
        self._schedule_growth()
        started = self._clock()
        try:
            await _wait_in_slices(slot, started, self._clock, waited, self._is_out_of_patience)
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and not slot.exception():
                if slot.result():
                    self._end_probe()
                self._release()
            elif slot in self._queue:
                self._queue.remove(slot)
            raise
        finally:
            seconds = self._clock() - started
            self._waited += seconds
        return seconds, slot.result()

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
        if self._outage.started is not None:
            self._outage.is_probed = True
        self._in_use += 1
        self._calls += 1
        if self._in_use > self._peak:
            self._peak = self._in_use

    def _release(self) -> None:
        self._in_use -= 1
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        while self._queue and self._is_open:
            slot = self._queue.popleft()
            if not slot.done():
                is_probe = self.is_in_outage
                self._acquire()
                slot.set_result(is_probe)

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
        outage_patience_seconds: float = 0.0,
    ) -> None:
        """`most` are declared limits, by provider and model or by provider. `share` is this process's share
        of every limit until the processes on the store have agreed on another. `outage_patience_seconds` is
        how long calls wait for a provider in an outage; 0: not at all."""
        self._outage_patience = outage_patience_seconds
        self.waits_for_outages = False
        """Whether calls wait at all, rather than fail at once; set it before the first call."""
        self.repeats_billed = True
        """Whether calls are repeated that broke off and may be billed; if not, the caller decides."""
        self.notify: Callable[[str], None] | None = None
        """Receives a message when an outage begins and when it ends."""
        self._policy = policy or RatePolicy()
        self._most = most or {}
        self._share = share
        self._clock = clock
        self._pools: dict[str, RatePool] = {}

    def pool(self, name: str, *, is_local: bool = False) -> RatePool:
        """The pool of one provider and model; `is_local` when it is on this machine."""
        pool = self._pools.get(name)
        if pool is None:
            declared = self.declared(name)
            most = declared or self._policy.most
            # No probing when the limit is declared or the server is local: a batch of a thousand parallel
            # calls would wait half a second for it.
            first = most if declared or is_local else min(self._policy.first, most)
            pool = self._pools[name] = RatePool(
                name,
                replace(self._policy, first=first, most=most),
                clock=self._clock,
                outage_patience_seconds=self._outage_patience if self.waits_for_outages else 0.0,
                notify=self._notify,
            )
            pool.share = self._share
        return pool

    def _notify(self, message: str) -> None:
        if self.notify:
            self.notify(message)

    def declared(self, name: str) -> int | None:
        """The declared limit of a provider and model; None: there is none."""
        return self._most.get(name) or self._most.get(name.partition("/")[0])

    @property
    def states(self) -> list[PoolState]:
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
    slot: "asyncio.Future[bool]",
    started: float,
    clock: Callable[[], float],
    waited: Waited | None,
    check: Callable[[], object],
) -> None:
    reported = 0.0
    try:
        while not slot.done():
            if waited:
                waited(SLICE_SECONDS)
                reported += SLICE_SECONDS
            await asyncio.wait([slot], timeout=SLICE_SECONDS)
            check()
    finally:
        if waited:
            waited(clock() - started - reported)
