"""A model provider on loopback that misbehaves and counts what it would bill.

It speaks OpenAI's chat completions and responses, Anthropic's messages and Google's generateContent. It bills
like a strict provider: every answer that it has begun to produce is charged in full, whether or not the
caller got it. Most models misbehave at random; those named after a case of `chaos.money` do so by its rule.
"""

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

INPUT_USD, OUTPUT_USD = 10e-6, 40e-6
"""Per token. `PRICES` declares the same in plans."""
PRICES = "{input: 10, output: 40}"
BYTES_PER_TOKEN = 4
ANSWER_SECONDS = 0.01
"""How long an answer by a rule takes: calls overlap."""
USUAL_OUTPUT = 40
"""Tokens of an answer, unless the request allows fewer."""

FAULTS = {
    "none": 60,
    "slow": 8,
    "rate limit": 5,
    "server error": 5,
    "overloaded": 2,
    "cut": 4,
    "hang up": 4,
    "garbage": 3,
    "no usage": 3,
    "negative usage": 2,
    "absurd usage": 2,
    "wrong model": 2,
}
"""Kinds of faults and their weights."""
BILLED = frozenset(FAULTS) - {"rate limit", "server error", "overloaded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a rule charges for one request, and what it answers."""

    usd: float
    body: bytes
    status: int = 200
    seconds: float = ANSWER_SECONDS


Rule = Callable[[str, Mapping[str, Any], int], Bill]
"""From the path, the request and the number of earlier requests for its model to the bill."""


@dataclass(slots=True)
class Provider:
    """The state of a running server. `calm` makes it answer everything well."""

    chance: random.Random
    url: str = ""
    calm: bool = False
    is_down: bool = False
    """Refuse every request, as a provider in an outage does."""
    billed_usd: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    rules: dict[str, Rule] = field(default_factory=dict)
    """By the name of a model."""
    billed_by_model: Counter[str] = field(default_factory=Counter)
    calls_by_model: Counter[str] = field(default_factory=Counter)

    def next_fault(self) -> str:
        """The fault of the next answer."""
        if self.is_down:
            return "overloaded"
        fault = "none" if self.calm else self.chance.choices([*FAULTS], [*FAULTS.values()])[0]
        self.faults[fault] += 1
        return fault

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, or fail at it."""
        raw = await request.read()
        body = json.loads(raw)
        model = str(request.match_info.get("model") or body.get("model"))
        if rule := self.rules.get(model):
            bill = rule(request.path, body, self.calls_by_model[model])
            self.calls_by_model[model] += 1
            self.billed_by_model[model] += bill.usd
            await asyncio.sleep(bill.seconds)
            headers = {"Retry-After": "0.01"} if bill.status != 200 else {}
            return web.Response(
                body=bill.body, status=bill.status, content_type="application/json", headers=headers
            )
        self.keys.add(request.headers.get("Authorization", ""))
        fault = self.next_fault()
        choices = int(body.get("n") or 1)
        limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or USUAL_OUTPUT)
        tokens = len(raw) // BYTES_PER_TOKEN, min(limit, USUAL_OUTPUT) * choices
        if fault in BILLED:
            self.billed_usd += tokens[0] * INPUT_USD + tokens[1] * OUTPUT_USD
        if fault == "slow":
            await asyncio.sleep(0.05 + 0.3 * self.chance.random())
        if fault in ("rate limit", "server error", "overloaded"):
            status = {"rate limit": 429, "server error": 500, "overloaded": 503}[fault]
            error = {"error": {"message": f"{fault}, simulated", "type": "server_error"}}
            headers = {"Retry-After": "0.05"} if fault == "rate limit" else {}
            return web.json_response(error, status=status, headers=headers)
        if fault == "garbage":
            return web.Response(body=b"<html>\xff\xfe bad gateway</html>", content_type="text/html")
        if fault == "hang up":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        document = _completion(body, fault, tokens)
        if body.get("stream"):
            return await _stream(request, document, cut=fault == "cut")
        return await _whole(request, document, cut=fault == "cut")


def _completion(body: Mapping[str, Any], fault: str, tokens: tuple[int, int]) -> dict[str, Any]:
    message = _message(body)
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
    }
    usage: dict[str, Any] | None = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    if fault == "no usage":
        usage = None
    elif fault == "negative usage":
        usage = {"prompt_tokens": -tokens[0], "completion_tokens": -1, "total_tokens": -5}
    elif fault == "absurd usage":
        usage = {"prompt_tokens": "many", "completion_tokens": True, "total_tokens": None}
    model = "another-model-2031" if fault == "wrong model" else str(body.get("model"))
    document = {"id": "chatcmpl-1", "object": "chat.completion", "model": model, "choices": [choice]}
    return document if usage is None else {**document, "usage": usage}


# The benchmark's smoke task asks for this.
SOLVE = (
    "python3 -c \"from pathlib import Path; f = Path('greeting.py'); "
    "f.write_text('# Prints a greeting.\\n' + f.read_text())\""
)


def _message(body: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that the job can use: a task's solution, a narrator's state, a judge's score, a sentence."""
    messages = body.get("messages") or [{}]
    text = json.dumps(messages)
    if body.get("tools") and not any(each.get("role") == "assistant" for each in messages):
        call = {"name": "run", "arguments": json.dumps({"command": SOLVE})}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
        }
    if body.get("model") == "narrator":
        return {"role": "assistant", "content": "UPDATED STATE: cooperation level: 5"}
    if "one JSON object" in text:
        score = '{"reasoning": "It can be followed.", "score": "Very Helpful"}'
        return {"role": "assistant", "content": score}
    return {"role": "assistant", "content": "ACTION: it goes on as before, as agreed."}


async def _whole(request: web.Request, document: Mapping[str, Any], *, cut: bool) -> web.StreamResponse:
    data = json.dumps(document).encode()
    if not cut:
        return web.Response(body=data, content_type="application/json")
    response = web.StreamResponse(
        headers={"Content-Type": "application/json", "Content-Length": str(len(data))}
    )
    await response.prepare(request)
    await response.write(data[: len(data) // 2])
    assert request.transport is not None
    request.transport.close()
    return response


async def _stream(request: web.Request, document: Mapping[str, Any], *, cut: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    message = document["choices"][0]["message"]
    words = str(message["content"]).split(" ")
    head = {"id": document["id"], "object": "chat.completion.chunk", "model": document["model"]}
    for number, word in enumerate(words):
        if cut and number >= len(words) // 2:
            assert request.transport is not None
            request.transport.close()
            return response
        delta = {"role": "assistant", "content": f"{word} "}
        await _send(response, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    end = {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    await _send(response, {**end, **({"usage": document["usage"]} if "usage" in document else {})})
    await response.write(b"data: [DONE]\n\n")
    return response


async def _send(response: web.StreamResponse, event: Mapping[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@contextmanager
def running_provider(chance: random.Random) -> Iterator[Provider]:
    """A provider that runs in a thread of its own as long as the block."""
    provider = Provider(chance)
    loop = asyncio.new_event_loop()
    ready, stopped = threading.Event(), asyncio.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=64 << 20)
        for path in ("chat/completions", "responses", "messages", "models/{model}:generateContent"):
            app.router.add_post(f"/v1/{path}", provider.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        ready.set()
        await stopped.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    ready.wait(60)
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(60)


def clock_variables(file: Path) -> dict[str, str]:
    """Variables with which a process reads its clock from a file; none where libfaketime is missing."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    file.write_text("+0")
    if library is None:
        return {}
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
