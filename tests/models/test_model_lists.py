"""Which models are found, and who is asked for them."""

import asyncio

from aiohttp import web

from proctor.models.discovery import discover


class Listing:
    """A server that lists one model at every path that ends like a list, and keeps how it was asked."""

    def __init__(self):
        self.asked = []

    async def answer(self, request):
        self.asked.append((str(request.rel_url), dict(request.headers)))
        if request.path == "/api/tags":
            return web.json_response({"models": [{"name": "llama3:8b"}]})
        return web.json_response({"data": [{"id": "one"}]})

    async def __aenter__(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()


# Nobody listens there, so that what runs on this machine is not found.
NOWHERE = dict.fromkeys(
    ("OLLAMA_BASE_URL", "LMSTUDIO_BASE_URL", "LOCAL_BASE_URL", "VLLM_BASE_URL"), "http://127.0.0.1:9/v1"
)


async def names(environment, extra=()):
    found = await discover({**NOWHERE, **environment}, extra=extra)
    return {model.name for model in found.models if not model.name.startswith("scripted/")}


async def test_azure_is_asked_with_its_own_header_where_it_lists_its_models():
    async with Listing() as server:
        environment = {
            "AZURE_OPENAI_ENDPOINT": f"http://127.0.0.1:{server.port}",
            "AZURE_OPENAI_API_KEY": "az-key",
        }
        assert await names(environment) == {"azure/one"}
        await names({**environment, "AZURE_OPENAI_API_VERSION": "2024-10-21"})

    assert [path for path, _ in server.asked] == [
        "/openai/v1/models",
        "/openai/models?api-version=2024-10-21",
    ]
    assert all(headers["api-key"] == "az-key" for _, headers in server.asked)


async def test_servers_of_ones_own_are_asked_without_a_key_also_on_another_machine():
    async with Listing() as server:
        # Reaches this machine, and is no loopback address by its name.
        there = f"http://0.0.0.0:{server.port}/v1"
        found = await names({"VLLM_BASE_URL": there, "ACME_BASE_URL": there}, extra=["acme"])

    assert found == {"vllm/one", "acme/one"}


async def test_a_provider_of_ones_own_that_does_not_answer_is_named():
    found = await asyncio.wait_for(
        discover({**NOWHERE, "ACME_BASE_URL": "http://127.0.0.1:9/v1"}, extra=["acme"]), 20
    )
    assert "acme" in found.silent
