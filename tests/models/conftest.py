"""A provider on loopback that answers as a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from openai_calls import KEY, QUICK

from proctor.models import ModelRouter
from proctor.models.client import Client

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Provider:
    """A server that keeps what it was asked and answers with the next of its answers."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[Any] = []
        self.answers: list[Handler | web.Response] = []
        self.disconnected = asyncio.Event()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(str(request.rel_url))
        self.bodies.append(json.loads(await request.read() or "null"))
        self.headers.append(request.headers.copy())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, web.Response):
            # A response can be sent once; tests reuse the last one.
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        try:
            return await answer(request)
        except asyncio.CancelledError:
            self.disconnected.set()
            raise


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    served = Provider()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}"
    yield served
    await runner.cleanup()


@pytest.fixture
async def models(provider: Provider) -> AsyncIterator[ModelRouter]:
    """Models at the provider, as one with the API of OpenAI."""
    environment = {"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": KEY}
    made = ModelRouter(environment, client=Client(QUICK), prices={"openai/tiny": {"input": 1, "output": 10}})
    yield made
    await made.close()
