"""The same work as `engine_loop.py`, done by a plain loop: the yardstick.

    python benchmarks/bare_loop.py FOLDER ITEMS CONCURRENCY [BASE_URL]

The same calls (none without an address), the same tables, the same rows for each item, commits in
groups every 20 ms from a thread. No limits, no retries, no budgets, no ids that mean anything.
"""

import asyncio
import json
import sqlite3
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

GATHER_SECONDS = 0.02
NO_CALL = {
    "choices": [{"message": {"content": "hello to you"}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 4},
}
ITEM = 'INSERT INTO "batch_items" ("runId", "id", "position", "digest", "repeat", "runner", "prompt", "model", "factors", "details", "settings", "status") VALUES (?,?,?,?,?,?,?,?,?,?,?,?)'  # noqa: E501
DONE = 'UPDATE "batch_items" SET "status"=?, "reason"=?, "startedAt"=?, "finishedAt"=?, "sessionId"=?, "tokensTotal"=?, "costUsd"=? WHERE "runId"=? AND "id"=?'  # noqa: E501
SESSION = 'INSERT INTO "sessions" ("id", "runId", "itemId", "attempt", "job", "model", "status", "endReason", "source", "startedAt", "finishedAt", "workSeconds", "waitingSeconds", "promptTokens", "completionTokens", "totalTokens", "costUsd", "modelCalls") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)'  # noqa: E501
MESSAGE = 'INSERT INTO "messages" ("sessionId", "position", "step", "timestamp", "role", "content") VALUES (?,?,?,?,?,?)'  # noqa: E501
CALL = 'INSERT INTO "model_calls" ("sessionId", "position", "step", "timestamp", "provider", "model", "promptTokens", "completionTokens", "costUsd", "priceSource", "price", "latencyMs") VALUES (?,?,?,?,?,?,?,?,?,?,?,?)'  # noqa: E501
STEP = 'INSERT INTO "iterations" ("sessionId", "step", "startTime", "endTime", "model", "promptTokens", "completionTokens", "totalTokens", "costUsd") VALUES (?,?,?,?,?,?,?,?,?)'  # noqa: E501
SCORE = 'INSERT INTO "scores" ("sessionId", "position", "timestamp", "evaluator", "evaluatorDigest", "value", "label", "explanation") VALUES (?,?,?,?,?,?,?,?)'  # noqa: E501
FACTORS = '{"model":"local/bench","task":"say hello"}'
DETAILS = '{"expect":{"contains":"hello"}}'
SETTINGS = '{"timeoutSec":900,"retries":0,"retryOn":["error","timeout"],"tags":[],"jsonLogs":true}'
PRICE = '{"input": 0.0, "cached": 0.0, "output": 0.0}'

Rows = dict[str, list[tuple[Any, ...]]]


def main(folder: Path, items: int, concurrency: int, url: str) -> None:
    """Run, and print the figures as JSON."""
    database = _open(folder / "bare.db")
    started = time.perf_counter()
    asyncio.run(_run(database, items, concurrency, url))
    seconds = time.perf_counter() - started
    passed = database.execute("SELECT count(*) FROM batch_items WHERE status = 'success'").fetchone()[0]
    print(json.dumps({"items": items, "passed": passed, "seconds": seconds}))


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    import proctor.store

    schema = Path(proctor.store.__file__).parent / "migrations" / "0001_the_record.sql"
    database.executescript(schema.read_text().replace("/* without rowid */", "WITHOUT ROWID"))
    return database


async def _run(database: sqlite3.Connection, items: int, concurrency: int, url: str) -> None:
    ids = _queue(database, items)
    rows: Rows = {}
    finished = asyncio.Event()
    writing = asyncio.create_task(_keep_writing(database, rows, finished))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async with asyncio.TaskGroup() as workers:
            for _ in range(concurrency):
                workers.create_task(_work(session, url, ids, rows))
    finished.set()
    await writing


def _queue(database: sqlite3.Connection, items: int) -> list[tuple[str, str]]:
    queue = [(uuid.uuid4().hex[:16], f"say hello to number {number % 200}") for number in range(items)]
    fixed = (1, "prompt")
    rest = ("local/bench", FACTORS, DETAILS, SETTINGS, "queued")
    rows = [("bench", name, n, name * 4, *fixed, prompt, *rest) for n, (name, prompt) in enumerate(queue)]
    _write(database, {ITEM: rows})
    return queue[::-1]


async def _work(session: aiohttp.ClientSession, url: str, queue: list[tuple[str, str]], rows: Rows) -> None:
    while queue:
        item, prompt = queue.pop()
        began, clock = _now(), time.perf_counter()
        answer = await _ask(session, url, prompt) if url else await _ask_nobody()
        _record(rows, item, prompt, answer, began, time.perf_counter() - clock)


async def _ask(session: aiohttp.ClientSession, url: str, prompt: str) -> dict[str, Any]:
    asked = {"model": "bench", "messages": [{"role": "user", "content": prompt}]}
    async with session.post(f"{url}/chat/completions", json=asked) as response:
        answer: dict[str, Any] = await response.json()
        return answer


async def _ask_nobody() -> dict[str, Any]:
    await asyncio.sleep(0)
    return NO_CALL


def _record(rows: Rows, item: str, prompt: str, answer: dict[str, Any], began: str, took: float) -> None:
    session, ended = uuid.uuid4().hex[:20], _now()
    text, usage = answer["choices"][0]["message"]["content"], answer["usage"]
    read, wrote = usage["prompt_tokens"], usage["completion_tokens"]
    status = "success" if "hello" in text else "fail"
    head = (session, "bench", item, 1, "coding", "local/bench", status, "completed", "batch", began, ended)
    _add(rows, SESSION, (*head, took, 0.0, read, wrote, read + wrote, 0.0, 1))
    _add(rows, MESSAGE, (session, 1, 1, began, "user", prompt))
    call = (session, 2, 1, ended, "local", "local/bench", read, wrote, 0.0, "free", PRICE, took * 1000)
    _add(rows, CALL, call)
    _add(rows, MESSAGE, (session, 3, 1, ended, "assistant", text))
    _add(rows, STEP, (session, 1, began, ended, "local/bench", read, wrote, read + wrote, 0.0))
    _add(rows, SCORE, (session, 4, ended, "expect.contains", "30a558f20be7c7a6", 1.0, "pass", "found"))
    _add(rows, DONE, (status, "completed", began, ended, session, read + wrote, 0.0, "bench", item))


def _add(rows: Rows, statement: str, row: tuple[Any, ...]) -> None:
    rows.setdefault(statement, []).append(row)


async def _keep_writing(database: sqlite3.Connection, rows: Rows, finished: asyncio.Event) -> None:
    while rows or not finished.is_set():
        await asyncio.sleep(0 if finished.is_set() else GATHER_SECONDS)
        taken = dict(rows)
        rows.clear()
        await asyncio.to_thread(_write, database, taken)


def _write(database: sqlite3.Connection, rows: Rows) -> None:
    database.execute("BEGIN IMMEDIATE")
    for statement, parameters in rows.items():
        database.executemany(statement, parameters)
    database.execute("COMMIT")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "")
