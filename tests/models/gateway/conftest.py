"""A gateway between a client on loopback and a provider on loopback."""

import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gateway_requests import PRICES, Attempt
from openai_calls import KEY, QUICK

from proctor.models import ModelRouter
from proctor.models.client import Client
from proctor.models.gateway.server import Gateway

Begin = Callable[..., Attempt]

LITELLM = """
class Failure(Exception):
    def __init__(self, status):
        super().__init__("the key is secret-key-123456")
        self.status_code = status

class Response:
    def __init__(self, text):
        self.text = text

    def model_dump(self):
        choice = {"message": {"content": self.text}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 8, "completion_tokens": 2}}

async def acompletion(**asked):
    if asked["model"].startswith("fail/"):
        raise Failure(int(asked["model"][5:]))
    if api_base := asked.get("api_base"):
        import asyncio, urllib.request
        request = urllib.request.Request(api_base, b"{}", {"Authorization": "Bearer of-the-provider"})
        await asyncio.to_thread(urllib.request.urlopen, request)
    return Response(repr(sorted(asked)) + asked["model"])
"""


@pytest.fixture
def litellm(tmp_path, monkeypatch):
    """A stand-in for the library, put where Python finds it: it sends its key where it is told to."""
    (tmp_path / "litellm.py").write_text(LITELLM)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("litellm", None)


@pytest.fixture
def environment(provider) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": f"{provider.url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": provider.url,
        "ANTHROPIC_API_KEY": KEY,
        "GEMINI_BASE_URL": f"{provider.url}/v1beta/openai",
        "GEMINI_API_KEY": KEY,
        "ACME_BASE_URL": f"{provider.url}/v1",
        "ACME_API_KEY": KEY,
    }


@pytest.fixture
async def open_gateway(environment, tmp_path) -> AsyncIterator[Callable[..., Any]]:
    """Start a gateway over models made as one likes; all are closed at the end."""
    opened = list[tuple[Gateway, ModelRouter]]()

    async def start(**more: Any) -> Gateway:
        settings = {"prices": PRICES, "client": Client(QUICK), "folders": [tmp_path]} | more
        models = ModelRouter(settings.pop("environment", environment), **settings)
        gateway = Gateway(models)
        await gateway.start()
        opened.append((gateway, models))
        return gateway

    yield start
    for gateway, models in opened:
        await gateway.close()
        await models.close()


@pytest.fixture
async def begin(open_gateway) -> AsyncIterator[Begin]:
    """`begin(model=…)` gives an attempt access to a gateway; `gateway=` to one that is there already."""
    attempts, usual = list[Attempt](), await open_gateway()

    def start(gateway: Gateway | None = None, **caller: Any) -> Attempt:
        attempts.append(Attempt(gateway or usual, **caller))
        return attempts[-1]

    yield start
    for attempt in attempts:
        await attempt.session.close()
