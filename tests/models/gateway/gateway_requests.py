"""What tests of the gateway share: someone with access to it, and answers as providers write them."""

import asyncio
import json
from typing import Any

import aiohttp
from aiohttp import web

from proctor.models.gateway.access import Caller
from proctor.models.gateway.server import Gateway
from proctor.session import Event, Message, ModelCall, Note, ToolCall

PRICES = {
    name: {"input": 1, "cached": 0.1, "output": 10} for name in ("tiny", "openai/tiny", "anthropic/tiny")
}


COMPLETIONS, GEMINI = "/v1/chat/completions", "/v1beta/models/tiny:generateContent"
PATHS = {"chat": COMPLETIONS, "responses": "/v1/responses", "messages": "/v1/messages", "gemini": GEMINI}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Capital of France?"}]}


class Attempt:
    """Someone with access: asks the gateway, and keeps what is recorded of it."""

    def __init__(self, gateway: Gateway, **caller: Any) -> None:
        self.events: list[Event] = []
        self.gateway = gateway
        self.access = gateway.open(Caller(**{"record": self.events.append, "model": "openai/tiny"} | caller))
        self.session = aiohttp.ClientSession()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, bytes]:
        async with self.open(path, body, **headers) as response:
            return response.status, await response.read()

    def open(self, path: str, body: Any, **headers: str) -> Any:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if not {"Authorization", "x-api-key", "x-goog-api-key"} & set(sent):
            sent["Authorization"] = f"Bearer {self.access.token}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.session.post(f"{self.access.url}{path}", data=data, headers=sent)

    async def asked(self, path: str, body: Any, **headers: str) -> Any:
        """A whole answer, read."""
        status, raw = await self.post(path, body, **headers)
        assert status == 200, raw
        return json.loads(raw)

    async def streamed(self, path: str, body: Any, **headers: str) -> list[Any]:
        """The events of a stream, read."""
        status, raw = await self.post(path, body, **headers)
        assert status == 200, raw
        found = [
            line.removeprefix("data: ") for line in raw.decode().split("\n") if line.startswith("data: ")
        ]
        return [each if each == "[DONE]" else json.loads(each) for each in found]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def calls(self) -> list[ModelCall]:
        return self.of(ModelCall)

    @property
    def notes(self) -> list[str]:
        return [note.text for note in self.of(Note)]

    @property
    def told(self) -> list[Message | ToolCall]:
        return [event for event in self.events if isinstance(event, Message | ToolCall)]


def sse(*events: Any, names: bool = False) -> bytes:
    """A stream as a provider writes it."""
    blocks = []
    for each in events:
        head = f"event: {each['type']}\n" if names else ""
        blocks.append(head + "data: " + (each if isinstance(each, str) else json.dumps(each)) + "\n\n")
    return "".join(blocks).encode()


def streaming(*chunks: bytes, pause: asyncio.Event | None = None):
    """A handler that sends the chunks; with `pause` it waits for that before the last one."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for number, chunk in enumerate(chunks):
            if pause and number == len(chunks) - 1:
                await pause.wait()
            await response.write(chunk)
        return response

    return handle


def anthropic_answer(*blocks: Any, **usage: int) -> web.Response:
    """A whole answer as Anthropic writes it."""
    return web.json_response({"content": blocks, "usage": {"input_tokens": 3, "output_tokens": 2} | usage})


def counts(call: ModelCall) -> tuple[int, int, int, int]:
    """The tokens of a call: in, of them cached, out, of them reasoning."""
    usage = call.usage
    return usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens
