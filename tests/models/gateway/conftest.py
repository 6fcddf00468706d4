"""A gateway between a client on loopback and a provider on loopback."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from loopback import KEY, PRICES, QUICK, Attempt

from proctor.models import ModelRouter
from proctor.models.client import Client
from proctor.models.gateway.server import Gateway

Begin = Callable[..., Attempt]


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
