"""What the gateway costs a call: calls a second through it, beside the same calls made directly.

    python benchmarks/gateway.py

Provider, gateway and client are three processes on one machine, so that nobody's work is counted
as another's. Only the ratio travels between machines.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from answering_server import COMPLETION
from results import Figure, table
from workload import middle, settings

ROUNDS = 3
CALLS = {1: 400, 100: 3000}
"""Calls in flight → calls a round."""
CHUNKS = 20
ASKED = {"model": "bench", "messages": [{"role": "user", "content": "say hello " * 50}]}


def overhead() -> Iterator[Figure]:
    """Whole and streamed answers, one at a time and a hundred at a time."""
    with _provider() as direct, _gateway(direct) as (through, token):
        for streams in (False, True):
            for in_flight in CALLS:
                ways = ((through, token), (direct, "none"))
                pairs = [
                    [asyncio.run(_rate(url, key, streams, in_flight)) for url, key in ways]
                    for _ in range(ROUNDS)
                ]
                ours, bare = (middle([pair[place] for pair in pairs]) for place in range(2))
                kind = "streamed" if streams else "whole"
                yield Figure(f"calls/s through the gateway, {kind}, {in_flight} in flight", ours, "/s", bare)
                yield Figure(
                    f"  part of a direct call's rate, {kind}, {in_flight} in flight", ours / bare, ""
                )


async def _rate(url: str, token: str, streams: bool, in_flight: int) -> float:
    """Calls a second of one round."""
    import aiohttp

    body = json.dumps(ASKED | ({"stream": True} if streams else {}))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    left = iter(range(CALLS[in_flight]))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def ask() -> None:
            for _ in left:
                async with session.post(f"{url}/chat/completions", data=body, headers=headers) as response:
                    assert response.status == 200, await response.text()
                    await response.read()

        began = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(in_flight)))
        return CALLS[in_flight] / (time.perf_counter() - began)


@contextmanager
def _provider() -> Iterator[str]:
    with _started([sys.executable, __file__, "--provider"], None, ("URL",)) as (url,):
        yield url


@contextmanager
def _gateway(provider: str) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as home:
        environment = settings(Path(home), LOCAL_BASE_URL=provider)
        command = [sys.executable, "-m", "proctor", "gateway", "--model", "local/bench"]
        variables = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY")
        with _started(command, environment, variables) as (url, _, token):
            yield url, token


@contextmanager
def _started(
    command: list[str], environment: dict[str, str] | None, wanted: tuple[str, ...]
) -> Iterator[list[str]]:
    """Start a program and read the variables it announces, in their order."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout
    try:
        lines = [process.stdout.readline().strip() for _ in wanted]
        yield [line.removeprefix(f"export {name}=") for line, name in zip(lines, wanted, strict=True)]
    finally:
        process.terminate()
        process.wait()


async def _provide() -> None:
    """A provider that answers at once, whole or in pieces."""
    from aiohttp import web

    pieces = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "hello "}, "finish_reason": None}]}
    ] * CHUNKS
    last = [{"id": "c", "choices": [], "usage": COMPLETION["usage"]}]
    events = [f"data: {json.dumps(piece)}\n\n".encode() for piece in [*pieces, *last]] + [b"data: [DONE]\n\n"]
    whole = json.dumps(COMPLETION).encode()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if b'"stream":true' not in (await request.read()).replace(b" ", b""):
            return web.Response(body=whole, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(event)
        await response.write_eof()
        return response

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(f"export URL=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Measure, and print a table; or be the provider that is measured against."""
    parser = argparse.ArgumentParser(description="Measure what the gateway costs a call.")
    parser.add_argument("--provider", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().provider:
        asyncio.run(_provide())
    else:
        print(table(overhead()))


if __name__ == "__main__":
    main()
