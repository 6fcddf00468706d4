"""How many calls a provider takes at once, found out by asking and shared by everyone.

Each provider and model has one pool for all items together. It begins generously (with all there is
where the user declared a limit, or the server is on this machine), is cut when the
provider says 429, and grows again only while it is full and nothing goes wrong. A provider that
says when to come back is not asked before; a usage window that is spent holds the pool until it
opens again, and nobody's attempt fails of it.

Knows nothing of HTTP, wire formats or stores.
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
"""A wait of unknown length is told in slices, and corrected when it is over."""


UNTOLD_TRIES = 20
"""A provider that keeps saying 429 and never says until when is given up after so many tries."""


# Thirty years: no usage window is so long, and all moments since 2000 are later.
_FIRST_MOMENT = 946_684_800


_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?")


_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a pool looks for its limit."""

    first: int = 200
    """Calls at once to begin with. Fewer would cost a batch of long calls its first seconds."""
    most: int = 10_000
    leap: float = 4.0
    """How it grows until the first 429."""
    leap_seconds: float = 0.25
    """How long a full pool waits for one before it grows: a provider that minds says so at once, long
    before the first answer is there."""
    cut: float = 0.8
    creep: float = 0.05
    """How it grows after that."""
    saturation: float = 0.8
    """A pool that is emptier than this learns nothing from its success."""
    longest_pause_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool as one sees it from outside."""

    name: str
    limit: int
    """Calls at once that this process may have under way."""
    limit_of_all: float
    """The same for all processes together."""
    in_use: int
    waiting: int
    calls: int
    limited: int
    """How often the provider said 429."""
    waited_seconds: float
    """All calls together."""
    held_seconds: float
    """Until the pool lets calls through again; 0 when it does."""
    cut_seconds_ago: float | None
    """Since the provider last said 429; None: it never did."""


class Slot(NamedTuple):
    """A place in a pool, taken by one call."""

    waited_seconds: float
    """How long it took to get it."""
    era: int
    """How often the limit had been cut by then: calls of one era are refused together, and cut it once."""


class RatePool:
    """The calls to one provider and model. Use it on one event loop."""

    def __init__(
        self, name: str, pace: Pace | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.share = 1.0
        """The part of the limit that is this process's; others on the same store have the rest."""
        self.limit: float = (pace or Pace()).first
        self._pace = pace or Pace()
        self._clock = clock
        self._in_use = 0
        self._peak = 0
        self._clean = 0
        self._leaping = True
        self._leap: asyncio.TimerHandle | None = None
        self._cut_at = -math.inf
        self._era = 0
        self._held_until = -math.inf
        self._untold = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._calls = 0
        self._limited = 0
        self._waited = 0.0

    @property
    def state(self) -> PoolState:
        """What it looks like now."""
        return PoolState(
            name=self.name,
            limit=self._places,
            limit_of_all=self.limit,
            in_use=self._in_use,
            waiting=len(self._queue),
            calls=self._calls,
            limited=self._limited,
            waited_seconds=self._waited,
            held_seconds=max(0.0, self._held_until - self._clock()),
            cut_seconds_ago=self._clock() - self._cut_at if self._limited else None,
        )

    async def call(self, ask: Callable[[], Awaitable[T]], waited: Waited | None = None) -> T:
        """Ask when there is a place, and again as often as the provider says it is too much."""
        untold = 0
        while True:
            place = await self.enter(waited)
            try:
                answer = await ask()
            except RateLimited as error:
                self.refused(place, error.retry_after_seconds)
                untold += error.retry_after_seconds is None
                if untold >= UNTOLD_TRIES:
                    raise
            except BaseException:
                self.failed()
                raise
            else:
                self.answered()
                return answer

    async def enter(self, waited: Waited | None = None) -> Slot:
        """Wait for a place and take it. Give it back in one of three ways."""
        if self._is_open and not self._queue:
            self._take()
            return Slot(0.0, self._era)
        took = await self._queue_up(waited)
        return Slot(took, self._era)

    def answered(self) -> None:
        """The provider has answered: give the place back."""
        self._succeed()
        self._leave()

    def failed(self) -> None:
        """It has not, for another reason than its limits: no reason to ask less, and none to ask more."""
        self._clean = 0
        self._leave()

    def refused(self, place: Slot, retry_after_seconds: float | None) -> None:
        """It said that this was too much: ask less, and nobody before it said."""
        self._cut(place, retry_after_seconds)
        self._leave()

    def hold(self, seconds: float) -> None:
        """Let no call through for so long: the provider said so, or another process heard it."""
        until = self._clock() + seconds
        if until > self._held_until:
            self._held_until = until
            asyncio.get_running_loop().call_later(seconds, self._admit)

    def agree(self, limit: float, share: float) -> None:
        """Take over what the processes on this store have found out together."""
        if limit < self.limit:
            # Someone was refused there: from now on it is crept past, by this process too.
            self._leaping = False
        self.limit = max(1.0, min(limit, self._pace.most))
        self.share = share
        self._admit()

    @property
    def _places(self) -> int:
        return max(1, int(self.limit * self.share))

    @property
    def _is_open(self) -> bool:
        return self._in_use < self._places and self._clock() >= self._held_until

    async def _queue_up(self, waited: Waited | None) -> float:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        self._admit()
        self._expect_refusal()
        began = self._clock()
        try:
            await _in_slices(place, began, self._clock, waited)
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()
            elif place in self._queue:
                self._queue.remove(place)
            raise
        finally:
            took = self._clock() - began
            self._waited += took
        return took

    def _expect_refusal(self) -> None:
        """Grow before long, unless the provider says by then that what it has is too much."""
        if self._leaping and self._leap is None and self._queue:
            loop = asyncio.get_running_loop()
            self._leap = loop.call_later(self._pace.leap_seconds, self._leap_unrefused, self._limited)

    def _leap_unrefused(self, limited: int) -> None:
        self._leap = None
        if self._leaping and self._limited == limited and self._in_use >= self._places:
            self.limit = min(self._pace.most, self.limit * self._pace.leap)
            self._admit()
        self._expect_refusal()

    def _take(self) -> None:
        self._in_use += 1
        self._calls += 1
        self._peak = max(self._peak, self._in_use)

    def _leave(self) -> None:
        self._in_use -= 1
        if self._queue:
            self._admit()

    def _admit(self) -> None:
        while self._queue and self._is_open:
            place = self._queue.popleft()
            if not place.done():
                self._take()
                place.set_result(None)

    def _succeed(self) -> None:
        self._untold = 0
        self._clean += 1
        round_ends = self._places / 2 if self._leaping else self._places
        if self._clean < round_ends:
            return
        full = self._peak >= self._pace.saturation * self._places
        self._clean, self._peak = 0, self._in_use
        if full:
            grown = (
                self.limit * self._pace.leap
                if self._leaping
                else self.limit + max(1, self.limit * self._pace.creep)
            )
            self.limit = min(self._pace.most, grown)

    def _cut(self, place: Slot, retry_after_seconds: float | None) -> None:
        self._limited += 1
        self._clean = 0
        self._leaping = False
        self._cut_at = self._clock()
        is_first = place.era == self._era
        if is_first:
            self._era += 1
            # What was really in use, not what would have been allowed, was too much.
            self.limit = max(1.0, min(self.limit, self._in_use / self.share) * self._pace.cut)
        if retry_after_seconds is None:
            # Many that are refused together say it once: each counted, they would hold the pool for a minute.
            self._untold += is_first
            retry_after_seconds = min(self._pace.longest_pause_seconds, 0.5 * 2.0 ** min(self._untold, 10))
        self.hold(retry_after_seconds)


class RatePools:
    """All pools of one process."""

    def __init__(
        self,
        pace: Pace | None = None,
        *,
        most: Mapping[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most` are the user's own limits, by provider and model or by provider alone."""
        self._pace = pace or Pace()
        self._most = most or {}
        self._clock = clock
        self._pools: dict[str, RatePool] = {}

    def pool(self, name: str, *, is_near: bool = False) -> RatePool:
        """The pool of one provider and model; `is_near` when it is on this machine."""
        if name not in self._pools:
            declared = self.declared(name)
            most = declared or self._pace.most
            # Neither who told us a limit nor a server of their own has to be felt for one: a batch of a
            # thousand calls at once would wait half a second for that.
            first = most if declared or is_near else min(self._pace.first, most)
            self._pools[name] = RatePool(name, replace(self._pace, first=first, most=most), clock=self._clock)
        return self._pools[name]

    def declared(self, name: str) -> int | None:
        """The user's own limit of a provider and model; None: there is none."""
        return self._most.get(name) or self._most.get(name.partition("/")[0])

    @property
    def states(self) -> list[PoolState]:
        """Every pool as it looks now."""
        return [pool.state for pool in self._pools.values()]


def spent_window_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """How long until a spent usage window opens again, from a provider's headers; None: none is spent."""
    pauses = []
    for name, left in headers.items():
        lower = name.lower()
        if "ratelimit" in lower and "remaining" in lower and left.strip() == "0":
            # `x-ratelimit-remaining-requests` goes with `x-ratelimit-reset-requests`.
            pauses.append(_duration(headers.get(_sibling(headers, lower), ""), now))
    known = [pause for pause in pauses if pause is not None]
    return max(known) if known else None


def _sibling(headers: Mapping[str, str], remaining: str) -> str:
    wanted = remaining.replace("remaining", "reset")
    return next((name for name in headers if name.lower() == wanted), "")


def _duration(text: str, now: datetime) -> float | None:
    """Seconds, from `6m0s`, `12.5`, or a moment: `2026-11-15T08:00:00Z`, or seconds since 1970, or
    thousandths of them."""
    text = text.strip()
    if parts := _PARTS.findall(text):
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if _NUMBER.fullmatch(text):
        number = float(text)
        if number < _FIRST_MOMENT:
            return number
        moment = number / 1000 if number >= 1000 * _FIRST_MOMENT else number
        return max(0.0, moment - now.timestamp())
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - now).total_seconds())


async def _in_slices(
    place: "asyncio.Future[None]", began: float, clock: Callable[[], float], waited: Waited | None
) -> None:
    told = 0.0
    try:
        while not place.done():
            if waited:
                waited(SLICE_SECONDS)
                told += SLICE_SECONDS
            await asyncio.wait([place], timeout=SLICE_SECONDS)
    finally:
        if waited:
            waited(clock() - began - told)
