"""Which models are found, and who is asked for them."""

import asyncio
import json

import pytest
from aiohttp import web

from proctor.models.discovery import discover
from waiting import TIME_LIMIT_SECONDS

# Nobody listens there, so that what runs on this machine is not found.
NOWHERE = dict.fromkeys(
    ("OLLAMA_BASE_URL", "LMSTUDIO_BASE_URL", "LOCAL_BASE_URL", "VLLM_BASE_URL"), "http://127.0.0.1:9/v1"
)


async def names(environment, extra=()):
    found = await discover({**NOWHERE, **environment}, extra=extra)
    return {model.name for model in found.models if not model.name.startswith("scripted/")}


@pytest.fixture
def listing(provider):
    """A server that lists one model."""
    provider.answers = [web.json_response({"data": [{"id": "one"}]})]
    return provider


async def test_azure_is_asked_with_its_own_header_where_it_lists_its_models(listing):
    environment = {"AZURE_OPENAI_ENDPOINT": listing.url, "AZURE_OPENAI_API_KEY": "az-key"}
    assert await names(environment) == {"azure/one"}
    await names({**environment, "AZURE_OPENAI_API_VERSION": "2024-10-21"})

    assert listing.paths == ["/openai/v1/models", "/openai/models?api-version=2024-10-21"]
    assert all(headers["api-key"] == "az-key" for headers in listing.headers)


async def test_servers_of_ones_own_are_asked_without_a_key_also_on_another_machine(listing):
    # Reaches this machine, and is no loopback address by its name.
    there = listing.url.replace("127.0.0.1", "0.0.0.0") + "/v1"
    found = await names({"VLLM_BASE_URL": there, "ACME_BASE_URL": there}, extra=["acme"])

    assert found == {"vllm/one", "acme/one"}


async def test_a_provider_of_ones_own_that_does_not_answer_is_named():
    found = await asyncio.wait_for(
        discover({**NOWHERE, "ACME_BASE_URL": "http://127.0.0.1:9/v1"}, extra=["acme"]), TIME_LIMIT_SECONDS
    )
    assert "acme" in found.silent


async def test_a_list_too_long_for_one_piece_is_read_to_its_end(provider):
    entries = [{"id": f"vendor/model-{number}", "description": "x" * 500} for number in range(100)]

    async def in_pieces(request):
        response = web.StreamResponse()
        await response.prepare(request)
        raw = json.dumps({"data": entries}).encode()
        for start in range(0, len(raw), 10_000):
            await response.write(raw[start : start + 10_000])
            await asyncio.sleep(0.001)
        return response

    provider.answers = [in_pieces]
    found = await names({"OPENROUTER_BASE_URL": f"{provider.url}/v1"})

    assert found == {f"openrouter/{entry['id']}" for entry in entries}


async def test_lists_as_together_and_google_write_them_are_read(provider):
    async def answer(request):
        if request.path.startswith("/together"):
            return web.json_response([{"id": "meta-llama/Llama-3"}])
        return web.json_response({"data": [{"id": "models/gemini-2.5-pro"}]})

    provider.answers = [answer]
    found = await names(
        {"TOGETHER_BASE_URL": f"{provider.url}/together/v1", "GEMINI_BASE_URL": f"{provider.url}/openai"}
    )

    assert found == {"together/meta-llama/Llama-3", "gemini/gemini-2.5-pro"}
