"""How many recorded items a second, beside a bare loop that makes the same calls and writes."""

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from results import Figure
from workload import answering_server, middle, plan_text, script, settings

ROUNDS = 3
ITEMS = 6000
MANY_ITEMS = 20_000
CONCURRENCY = 64

Measure = Callable[[], float]
"""Makes one round; its items a second."""


def over_http() -> Iterator[Figure]:
    """One-call prompts against a server on this machine."""
    with answering_server() as url:
        yield from _beside(
            "recorded items/s over loopback HTTP",
            lambda: _engine("local/bench", LOCAL_BASE_URL=url),
            lambda: _bare(url),
            promise=0.5,
        )


def scripted() -> Iterator[Figure]:
    """The same without any HTTP: what our own bookkeeping costs."""
    yield from _beside(
        "recorded items/s, scripted model", lambda: _engine("scripted/echo"), lambda: _bare(""), promise=None
    )


def sealed() -> Iterator[Figure]:
    """The same with every text sealed, beside the same engine without a key."""
    key = {"PROCTOR_ENCRYPTION_KEY": "00" * 32}
    yield from _beside(
        "recorded items/s, scripted model, with a key",
        lambda: _engine("scripted/echo", **key),
        lambda: _engine("scripted/echo"),
        promise=None,
        other="to the same without",
    )


def workers() -> Iterator[Figure]:
    """Two worker processes beside one: the same engine, the same items."""
    yield from _workers("scripted model", lambda number: _several("scripted/echo", number))
    with answering_server() as url:
        yield from _workers(
            "loopback HTTP", lambda number: _several("local/bench", number, LOCAL_BASE_URL=url)
        )


def _workers(what: str, measure: "Callable[[int], tuple[float, float]]") -> Iterator[Figure]:
    # Turn about, so that whatever else the machine does hits both alike.
    rounds = [(measure(2), measure(1)) for _ in range(ROUNDS)]
    rates = [(two[0], one[0]) for two, one in rounds]
    started = [two[1] / one[1] for two, one in rounds]
    name = f"items/s with two workers, {what}"
    yield Figure(name, middle([two for two, _ in rates]), "/s", middle([one for _, one in rates]))
    yield Figure(f"{name}: ratio to one", middle([two / one for two, one in rates]), "")
    yield Figure(f"{name}: ratio to one, once started", middle(started), "", promise=1.6)


def _several(model: str, number: int, **environment: str) -> tuple[float, float]:
    """Items a second with so many workers, of the whole run and from its first item on."""
    with _folder() as home:
        told = script(
            "engine_loop.py",
            *(home, MANY_ITEMS, CONCURRENCY, model, number),
            environment=settings(home, **environment),
        )
        started = MANY_ITEMS / _recorded_seconds(home / "engine.db")
    assert told["passed"] == told["items"], told
    return float(told["items"] / told["seconds"]), started


def slow_calls() -> Iterator[Figure]:
    """1,000 calls of one second, 200 at a time, as a whole command and once it has started."""
    yield from _slow(1000, 200, promise=0.9, promise_once_started=0.95)


def many_slow_calls() -> Iterator[Figure]:
    """5,000 calls of one second, 1,000 at a time."""
    yield from _slow(5000, 1000, promise=0.75, promise_once_started=None)


def _slow(
    calls: int, at_once: int, *, promise: float, promise_once_started: float | None
) -> Iterator[Figure]:
    ideal = calls * 1.0 / at_once
    with answering_server(1.0) as url:
        # Turn about, so that whatever else the machine does hits both alike.
        rounds = [_slow_round(url, calls, at_once) for _ in range(ROUNDS)]

    def part(seconds: Callable[[SlowRound], float]) -> float:
        return middle([ideal / seconds(each) for each in rounds])

    what = f"{calls:,} calls of 1 s, {at_once:,} at a time"
    ours, bare = part(lambda each: each.ours), part(lambda each: each.bare)
    yield Figure(f"{what}: part of ideal, whole command", ours, "", bare, promise)
    ours, bare = part(lambda each: each.ours_started), part(lambda each: each.bare_started)
    yield Figure(f"{what}: part of ideal, once started", ours, "", bare, promise_once_started)
    yield Figure(f"{what}: ratio to the bare loop", middle([each.bare / each.ours for each in rounds]), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRound:
    """Seconds of our command and of the bare script, started the same way."""

    ours: float
    bare: float
    ours_started: float
    """From the start of the first call to the end of the last, as recorded."""
    bare_started: float


def _slow_round(url: str, calls: int, at_once: int) -> SlowRound:
    with _folder() as home:
        plan = home / "plan.yaml"
        plan.write_text(plan_text(calls, model="local/bench", concurrency=at_once))
        loop = [sys.executable, str(_here("bare_loop.py")), str(home), str(calls), str(at_once), url]
        return SlowRound(
            bare=_took(loop, home, calls),
            ours=_took([sys.executable, "-m", "proctor", "batch", str(plan), "--json"], home, calls, url),
            bare_started=_recorded_seconds(home / "bare.db"),
            ours_started=_recorded_seconds(home / "proctor.db"),
        )


def _recorded_seconds(database: Path) -> float:
    with closing(sqlite3.connect(database)) as connection:
        asked = 'SELECT MIN("startedAt"), MAX("finishedAt") FROM "sessions"'
        began, ended = connection.execute(asked).fetchone()
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


def _beside(
    name: str, ours: Measure, theirs: Measure, *, promise: float | None, other: str = "to the bare loop"
) -> Iterator[Figure]:
    # Turn about, so that whatever else the machine does hits both alike.
    pairs = [(ours(), theirs()) for _ in range(ROUNDS)]
    ratio = middle([mine / bare for mine, bare in pairs])
    yield Figure(name, middle([mine for mine, _ in pairs]), "/s", middle([bare for _, bare in pairs]))
    yield Figure(f"{name}: ratio {other}", ratio, "", promise=promise)


def _engine(model: str, **environment: str) -> float:
    with _folder() as home:
        told = script(
            "engine_loop.py", home, ITEMS, CONCURRENCY, model, environment=settings(home, **environment)
        )
    assert told["passed"] == told["items"], told
    return float(told["items"] / told["seconds"])


def _bare(url: str) -> float:
    with _folder() as folder:
        told = script("bare_loop.py", folder, ITEMS, CONCURRENCY, *([url] if url else []))
    assert told["passed"] == told["items"], told
    return float(told["items"] / told["seconds"])


def _took(command: list[str], home: Path, calls: int, url: str = "") -> float:
    started = time.perf_counter()
    environment = settings(home, LOCAL_BASE_URL=url)
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    seconds = time.perf_counter() - started
    told = json.loads(done.stdout)
    assert told.get("passed", told.get("successCount")) == calls, told
    return seconds


def _here(name: str) -> Path:
    return Path(__file__).with_name(name)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        yield Path(name)
