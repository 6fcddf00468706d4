"""How many coding sessions a second get their work tree, beside plain `git worktree add`."""

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.item import Item
from proctor.runner import Services
from proctor.workspace.setup import prepare
from results import Figure
from workload import middle

FILES = 500
ROUNDS = 3
TREES = 48
AT_ONCE = 8
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent"}


def starts() -> Iterator[Figure]:
    """Trees a second: ours, 8 at a time; git's own, one after the other and 8 at a time."""
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        folder = Path(name)
        rounds = [_round(folder / str(number)) for number in range(ROUNDS)]
    serial, ours, parallel, alone = (middle([each[place] for each in rounds]) for place in range(4))
    refused = sum(each[4] for each in rounds)
    ratio = Figure("one work tree after the other, × git worktree add", serial / alone, "×", None, 1.3, True)
    yield ratio
    yield Figure(f"work trees/s, {AT_ONCE} at a time (beside: git worktree add, serial)", ours, "/s", serial)
    yield Figure(f"git worktree add/s, {AT_ONCE} at a time", parallel, "/s")
    yield Figure(f"git worktree add, {AT_ONCE} at a time: refused of {ROUNDS * TREES}", refused, "")


def _round(folder: Path) -> tuple[float, float, float, float, int]:
    """git one by one, ours, git 8 at a time, ours one by one, and what git refused."""
    repository = _make_repository(folder / "repository")
    serial, _ = _plain(repository, folder / "serial", 1)
    alone = asyncio.run(_ours(repository, folder / "alone", 1))
    ours = asyncio.run(_ours(repository, folder / "home", AT_ONCE))
    parallel, refused = _plain(repository, folder / "parallel", AT_ONCE)
    return serial, ours, parallel, alone, refused


def _make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number in range(FILES):
        file = folder / f"part{number % 20}" / f"file{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"value = {number}\n" * 40)
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*identity, "commit", "-q", "-m", "all")):
        subprocess.run(("git", *words), cwd=folder, check=True)
    return folder


def _plain(repository: Path, folder: Path, at_once: int) -> tuple[float, int]:
    """Trees a second with git alone, and how many it refused to make."""

    def add(number: int) -> bool:
        words = ("worktree", "add", "-q", "-b", f"{folder.name}/{number}", str(folder / str(number)), "main")
        done = subprocess.run(("git", *words), cwd=repository, check=False, stderr=subprocess.DEVNULL)
        return done.returncode == 0

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        made = sum(pool.map(add, range(TREES)))
    return made / (time.perf_counter() - started), TREES - made


async def _ours(repository: Path, home: Path, at_once: int) -> float:
    """Trees a second as a coding session gets them: repository, tree, HOME, environment."""
    items = iter([_item(repository, number) for number in range(TREES)])
    started = time.perf_counter()
    async with asyncio.TaskGroup() as workers:
        for _ in range(at_once):
            workers.create_task(_prepare_all(items, home))
    return TREES / (time.perf_counter() - started)


async def _prepare_all(items: Iterator[tuple[Item, str]], home: Path) -> None:
    for item, attempt in items:
        await prepare(item, replace(_services(home), session_id=attempt))


def _item(repository: Path, number: int) -> tuple[Item, str]:
    details = {"repository": "repository", "baseBranch": "main"}
    item = Item(
        runner="worktree",
        agent="scripted",
        prompt=f"task {number}",
        details=details,
        settings={"repo": str(repository)},
    )
    return item, f"{number:020x}"


def _services(home: Path) -> Services:
    @asynccontextmanager
    async def time_limit(_seconds: float | None, _what: str) -> Any:
        yield

    def nothing(*_: Any) -> Any:
        return None

    return Services(
        session_id="",
        attempt=1,
        record=nothing,
        score=nothing,
        models=nothing(),
        access=nothing,
        agent=nothing,
        home=home,
        environment=ENVIRONMENT,
        now=lambda: datetime.now(UTC),
        time_limit=time_limit,
    )
