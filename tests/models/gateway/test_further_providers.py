"""Providers with ways of their own: Azure, and the long tail through litellm."""

import sys

import pytest
from openai_calls import KEY, completion

from proctor.errors import ModelError, NotFound, RateLimited, UsageError
from proctor.model import Request
from proctor.models import ModelRouter

MESSAGES = [{"role": "user", "content": "Capital?"}]


@pytest.mark.parametrize(
    ("version", "path"),
    [("", "/openai/v1/chat/completions"), ("2024-10-21", "/openai/deployments/mine/chat/completions")],
)
async def test_azure_has_an_address_and_a_header_of_its_own(provider, version, path):
    async def answer(request):
        assert (request.path, request.query.get("api-version", "")) == (path, version)
        return completion()

    provider.answers = [answer]
    environment = {"AZURE_OPENAI_ENDPOINT": f"{provider.url}/", "AZURE_OPENAI_API_KEY": KEY}
    models = ModelRouter(environment | ({"AZURE_OPENAI_API_VERSION": version} if version else {}))
    assert (await models.answer(Request(model="azure/mine", messages=MESSAGES))).text == "Paris"
    assert provider.headers[0]["api-key"] == KEY and "Authorization" not in provider.headers[0]
    await models.close()


def test_azure_without_an_address_says_which_variable_to_set():
    with pytest.raises(NotFound, match="AZURE_OPENAI_ENDPOINT"):
        ModelRouter({}).check("azure/mine")


async def test_the_long_tail_is_asked_through_litellm(litellm):
    models = ModelRouter({}, prices={"litellm/bedrock/x": {"input": 1, "output": 1}})
    request = Request(
        model="litellm/bedrock/x",
        messages=MESSAGES,
        parameters={"temperature": 0, "stream": True},
        tools=({"type": "function"},),
        seed=0,
    )
    answer = await models.answer(request)
    sent = ["max_retries", "messages", "model", "num_retries", "seed", "temperature", "tools"]
    assert answer.text == f"{sent}bedrock/x"
    assert (answer.call.provider, answer.call.usage.input_tokens) == ("litellm", 8)
    assert answer.call.cost_usd == pytest.approx(10 / 1e6)
    assert models.missing_key("litellm/bedrock/x") is None


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (429, RateLimited, "rate_limit"),
        (500, ModelError, "model_failed"),
        *((status, ModelError, "auth") for status in (401, 403)),
        *((status, ModelError, "bad_request") for status in (400, 404, 422)),
    ],
)
async def test_litellm_s_failures_are_ours_and_hold_no_key(litellm, status, error, reason):
    with pytest.raises(error) as raised:
        await ModelRouter({}).answer(Request(model=f"litellm/fail/{status}", messages=MESSAGES))
    assert raised.value.reason == reason
    assert "secret" not in str(raised.value)


def test_without_litellm_one_is_told_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(UsageError, match=r"proctor\[litellm\]"):
        ModelRouter({}).check("litellm/bedrock/x")


async def test_parameters_a_provider_does_not_take_are_said_once_in_process_too(provider):
    provider.answers = [completion()]
    models = ModelRouter({"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": KEY})
    said = []
    for _ in range(2):
        asker = models.for_attempt(None, note=said.append)
        with pytest.raises(ModelError, match="unknown format"):
            await asker.answer(Request(model="anthropic/tiny", messages=MESSAGES, seed=1))
    await models.close()
    assert said == ["anthropic/tiny was not sent `seed`: anthropic does not take it"]
