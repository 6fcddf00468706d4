"""What one would write in place of Proctor for one batch of prompts: aiohttp and one table in SQLite.

    python benchmarks/bare_script.py FOLDER PROMPTS CONCURRENCY [BASE_URL]

PROMPTS is a JSON file with a list of prompts. Each prompt is one call (none without a URL) and one row with
prompt, answer, result of the check, tokens, cost and latency, committed every hundred items. No time limits,
retries, budgets, rate limits, transcripts, resumption or redaction.
"""

import asyncio
import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

COMMIT_EVERY = 100
SCRIPTED_ANSWER = {
    "choices": [{"message": {"content": "hello to you"}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 4},
}
INPUT_USD, OUTPUT_USD = 0.15e-6, 0.60e-6
"""Per token."""
CREATE = (
    "CREATE TABLE results (id INTEGER PRIMARY KEY, prompt TEXT, answer TEXT, passed INTEGER,"
    " input_tokens INTEGER, output_tokens INTEGER, cost_usd REAL, started REAL, seconds REAL)"
)
INSERT = "INSERT INTO results VALUES (?,?,?,?,?,?,?,?,?)"


def main(folder: Path, prompts: Path, concurrency: int, url: str) -> None:
    """Run, and print the number of items and of passed ones as JSON."""
    database = sqlite3.connect(folder / "bare.db")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(CREATE)
    queue = list(enumerate(json.loads(prompts.read_text())))[::-1]
    asyncio.run(_run(database, queue, concurrency, url))
    items, passed = database.execute("SELECT count(*), sum(passed) FROM results").fetchone()
    database.close()
    print(json.dumps({"items": items, "passed": passed}))


async def _run(
    database: sqlite3.Connection, queue: list[tuple[int, str]], concurrency: int, url: str
) -> None:
    rows: list[tuple[Any, ...]] = []

    async def work(session: Any) -> None:
        while queue:
            number, prompt = queue.pop()
            started, clock = time.time(), time.perf_counter()
            answer = await _call(session, url, prompt) if url else await _scripted()
            rows.append(_row(number, prompt, answer, started, time.perf_counter() - clock))
            if len(rows) == COMMIT_EVERY:
                _commit(database, rows)

    if url:
        import aiohttp

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(work(session) for _ in range(concurrency)))
    else:
        await asyncio.gather(*(work(None) for _ in range(concurrency)))
    _commit(database, rows)


async def _call(session: Any, url: str, prompt: str) -> dict[str, Any]:
    request = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": prompt}]}
    headers = {"Authorization": "Bearer bench"}
    async with session.post(f"{url}/chat/completions", json=request, headers=headers) as response:
        answer: dict[str, Any] = await response.json()
        return answer


async def _scripted() -> dict[str, Any]:
    await asyncio.sleep(0)
    return SCRIPTED_ANSWER


def _row(number: int, prompt: str, answer: dict[str, Any], started: float, seconds: float) -> tuple[Any, ...]:
    text, usage = answer["choices"][0]["message"]["content"], answer["usage"]
    read, written = usage["prompt_tokens"], usage["completion_tokens"]
    cost = read * INPUT_USD + written * OUTPUT_USD
    return number, prompt, text, "hello" in text, read, written, cost, started, seconds


def _commit(database: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    with database:
        database.executemany(INSERT, rows)
    rows.clear()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
