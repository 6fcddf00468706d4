"""Whole commands that record one-call items, beside a whole script that makes the same calls.

Each line is `proctor batch` or `bare_script.py`, from starting Python to its exit, turn about on the same
server, with one worker. The model is `openai/gpt-4o-mini`, so calls are priced from the table; every item has
an `expect`.
"""

import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from results import Figure
from workload import (
    HERE,
    CommandCost,
    answering_server,
    cost_of,
    middle,
    plan_of_entries,
    plan_text,
    prompts_of_entries,
    script,
    settings,
)

ROUNDS = 5
ITEMS = 10_000
FEW_ITEMS = 200
MANY_ITEMS = 20_000
CONCURRENCY = 64
MODEL = "openai/gpt-4o-mini"
SESSION_TIMES = 'MIN("startedAt"), MAX("finishedAt")'

Plan = Callable[..., str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Both commands, and both with a few items only: the difference is the cost of an item once started."""

    ours: CommandCost
    bare: CommandCost
    ours_few: CommandCost | None = None
    bare_few: CommandCost | None = None
    ours_started: float = 0.0
    """Seconds from the start of the first call to the end of the last, as recorded."""
    bare_started: float = 0.0


def over_http() -> Iterator[Figure]:
    """10,000 calls to a server that answers at once: a plan with 10,000 entries, and one with one entry."""
    with answering_server() as url:
        for what, plan in (("10,000 entries", plan_of_entries), ("one entry", plan_text)):
            yield from _figures(f"plan of {what} over loopback HTTP", partial(_round, plan, MODEL, url), 0.45)


def scripted() -> Iterator[Figure]:
    """The same without HTTP: Proctor's own work."""
    yield from _figures("plan of one entry, scripted model", partial(_round, plan_text, "scripted/echo", ""))


def sealed() -> Iterator[Figure]:
    """The same with every text encrypted, beside the same command without a key."""
    rounds = list[tuple[CommandCost, CommandCost]]()
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="proctor-bench-") as home:
            plain = run_proctor(Path(home), plan_text, "scripted/echo", "", ITEMS, CONCURRENCY)
        with tempfile.TemporaryDirectory(prefix="proctor-bench-") as home:
            key = "00" * 32
            encrypted = run_proctor(Path(home), plan_text, "scripted/echo", "", ITEMS, CONCURRENCY, key=key)
        rounds.append((encrypted, plain))
    ours, bare = (middle([ITEMS / pair[side].cpu_seconds for pair in rounds]) for side in (0, 1))
    yield Figure("items per CPU second, scripted model, encrypted (beside: not)", ours, "/s", bare)


def workers() -> Iterator[Figure]:
    """Two worker processes beside one: the same engine, the same items."""
    yield from _workers("scripted model", lambda number: _several("scripted/echo", number))
    with answering_server() as url:
        yield from _workers(
            "loopback HTTP", lambda number: _several("local/bench", number, LOCAL_BASE_URL=url)
        )


def _workers(what: str, measure: "Callable[[int], tuple[float, float]]") -> Iterator[Figure]:
    # Turn about, so that whatever else the machine does affects both alike.
    rounds = [(measure(2), measure(1)) for _ in range(3)]
    rates = [(two[0], one[0]) for two, one in rounds]
    started = [two[1] / one[1] for two, one in rounds]
    name = f"items/s with two workers, {what}"
    yield Figure(name, middle([two for two, _ in rates]), "/s", middle([one for _, one in rates]))
    yield Figure(f"{name}: ratio to one", middle([two / one for two, one in rates]), "")
    yield Figure(f"{name}: ratio to one, once started", middle(started), "", promise=1.6)


def _several(model: str, number: int, **environment: str) -> tuple[float, float]:
    """Items a second with so many workers, of the whole run and from its first item on."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home = Path(name)
        result = script(
            "engine_loop.py",
            home,
            MANY_ITEMS,
            CONCURRENCY,
            model,
            number,
            environment=settings(home, **environment),
        )
        started = MANY_ITEMS / _seconds(home / "engine.db", SESSION_TIMES, '"sessions"')
    assert result["passed"] == result["items"], result
    return float(result["items"] / result["seconds"]), started


def slow_calls() -> Iterator[Figure]:
    """1,000 calls of one second, 200 in parallel."""
    yield from _slow(1000, 200, 0.9)


def many_slow_calls() -> Iterator[Figure]:
    """5,000 calls of one second, 1,000 in parallel."""
    yield from _slow(5000, 1000, 0.9)


def most_slow_calls() -> Iterator[Figure]:
    """20,000 calls of one second, 5,000 in parallel."""
    yield from _slow(20_000, 5000, 0.75)


def _figures(name: str, measure: Callable[[], Round], promise: float | None = None) -> Iterator[Figure]:
    rounds = [measure() for _ in range(ROUNDS)]

    def both(value: Callable[[CommandCost], float]) -> tuple[float, float]:
        return middle([value(each.ours) for each in rounds]), middle([value(each.bare) for each in rounds])

    def started(few: CommandCost | None, whole: CommandCost) -> float:
        assert few is not None
        return whole.cpu_seconds - few.cpu_seconds

    ours, bare = both(lambda cost: ITEMS / cost.seconds)
    yield Figure(f"{name}, whole command: items/s", ours, "/s", bare)
    ours, bare = both(lambda cost: cost.cpu_seconds)
    yield Figure(f"{name}, whole command: CPU time", ours, "s", bare, lower_is_better=True)
    yield Figure(f"{name}, whole command: ratio of CPU times", bare / ours, "", promise=promise)
    ours = middle([started(each.ours_few, each.ours) for each in rounds])
    bare = middle([started(each.bare_few, each.bare) for each in rounds])
    yield Figure(f"{name}, once started: CPU time per item", ours / ITEMS * 1e6, "µs", bare / ITEMS * 1e6)
    yield Figure(f"{name}, once started: ratio of CPU times", bare / ours, "", promise=promise and 0.6)
    ours, bare = both(lambda cost: cost.peak_mb)
    yield Figure(f"{name}, whole command: peak memory", ours, "MB", bare)


def _slow(calls: int, parallel: int, promise: float) -> Iterator[Figure]:
    ideal = calls * 1.0 / parallel
    with answering_server(1.0) as url:
        rounds = [_round(plan_text, MODEL, url, calls, parallel) for _ in range(3)]

    def part(seconds: Callable[[Round], float]) -> float:
        return middle([ideal / seconds(each) for each in rounds])

    what = f"{calls:,} calls of 1 s, {parallel:,} in parallel"
    ours, bare = part(lambda each: each.ours.seconds), part(lambda each: each.bare.seconds)
    yield Figure(f"{what}: fraction of ideal, whole command", ours, "", bare, promise)
    ours, bare = part(lambda each: each.ours_started), part(lambda each: each.bare_started)
    yield Figure(f"{what}: fraction of ideal, once started", ours, "", bare)
    ours = middle([each.ours.cpu_seconds for each in rounds])
    bare = middle([each.bare.cpu_seconds for each in rounds])
    yield Figure(f"{what}: CPU time, whole command", ours, "s", bare)


def _round(plan: Plan, model: str, url: str, items: int = 0, concurrency: int = CONCURRENCY) -> Round:
    """Both commands turn about, so that whatever else the machine does affects both alike."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        home, few = Path(name), Path(name) / "few"
        bare = run_bare(home, url, items or ITEMS, concurrency)
        ours = run_proctor(home, plan, model, url, items or ITEMS, concurrency)
        if items:
            return Round(
                bare=bare,
                ours=ours,
                bare_started=_seconds(home / "bare.db", "MIN(started), MAX(started + seconds)", "results"),
                ours_started=_seconds(home / "proctor.db", SESSION_TIMES, '"sessions"'),
            )
        few.mkdir()
        return Round(
            bare=bare,
            ours=ours,
            bare_few=run_bare(few, url, FEW_ITEMS, concurrency),
            ours_few=run_proctor(few, plan, model, url, FEW_ITEMS, concurrency),
        )


def run_proctor(
    home: Path,
    plan: Plan,
    model: str,
    url: str,
    items: int,
    concurrency: int,
    key: str = "",
    store: str = "",
) -> CommandCost:
    """Run `proctor batch` on a new plan."""
    file = home / "plan.yaml"
    file.write_text(plan(items, model=model, concurrency=concurrency))
    environment = settings(home, OPENAI_BASE_URL=url, OPENAI_API_KEY="bench")
    if key:
        environment["PROCTOR_ENCRYPTION_KEY"] = key
    if store:
        environment["PROCTOR_STORE"] = store
    command = [sys.executable, "-m", "proctor", "batch"]
    return cost_of([*command, file, "--json", "--workers", 1], items, environment)


def run_bare(home: Path, url: str, items: int, concurrency: int) -> CommandCost:
    """Run the bare script on the same prompts."""
    prompts = home / "prompts.json"
    prompts.write_text(json.dumps(prompts_of_entries(items)))
    command = [sys.executable, HERE / "bare_script.py", home, prompts, concurrency]
    return cost_of([*command, *([url] if url else [])], items)


def _seconds(database: Path, columns: str, table: str) -> float:
    with closing(sqlite3.connect(database)) as connection:
        first, last = connection.execute(f"SELECT {columns} FROM {table}").fetchone()
    if isinstance(first, float):
        return float(last - first)
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
