"""The floor of items that are more than one call: as many answers, rows and files, and nothing else.

    python benchmarks/bare_items.py FOLDER ITEMS CALLS ROWS FILES

Each item is CALLS answers of a function, ROWS rows of one table, and FILES files with what was said, as JSON.
Rows are committed every hundred items. No prompts are built, nothing is checked, limited, priced or resumed.
"""

import asyncio
import json
import sqlite3
import sys
import time
from pathlib import Path

COMMIT_EVERY = 100
CONCURRENCY = 64
Row = tuple[object, ...]


def main(folder: Path, items: int, calls: int, rows: int, files: int) -> None:
    """Run, and print the number of items as JSON."""
    database = sqlite3.connect(folder / "bare.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE results (item, position, at, role, name, content, input, output, cost)")
    asyncio.run(_run(database, folder, list(range(items)), (calls, rows, files)))
    database.close()
    print(json.dumps({"items": items, "passed": items}))


async def _run(
    database: sqlite3.Connection, folder: Path, queue: list[int], sizes: tuple[int, int, int]
) -> None:
    pending = list[Row]()
    calls, rows, files = sizes

    async def work() -> None:
        while queue:
            number = queue.pop()
            said = [await _answer(turn) for turn in range(calls)]
            text = said[-1] if said else ""
            pending.extend(
                (number, place, time.time(), "assistant", "", text, 12, 4, 1e-6) for place in range(rows)
            )
            for place in range(files):
                (folder / f"{number}-{place}.json").write_text(json.dumps(said))
            if len(pending) >= COMMIT_EVERY * rows:
                _commit(database, pending)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))
    _commit(database, pending)


async def _answer(turn: int) -> str:
    await asyncio.sleep(0)
    return f"Good morning. This is what I say in turn {turn}."


def _commit(database: sqlite3.Connection, pending: list[Row]) -> None:
    with database:
        database.executemany("INSERT INTO results VALUES (?,?,?,?,?,?,?,?,?)", pending)
    pending.clear()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
