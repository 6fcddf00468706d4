"""Providers with ways of their own: Azure, and the long tail through litellm."""

import sys
from textwrap import dedent

import pytest
from loopback import KEY, completion

from proctor.errors import ModelError, NotFound, RateLimited, UsageError
from proctor.model import Request
from proctor.models import ModelRouter

MESSAGES = [{"role": "user", "content": "Capital?"}]

LITELLM = dedent(
    """
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
        return Response(repr(sorted(asked)) + asked["model"])
    """
)


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


@pytest.fixture
def litellm(tmp_path, monkeypatch):
    """A stand-in for the library, put where Python finds it."""
    (tmp_path / "litellm.py").write_text(LITELLM)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("litellm", None)


async def test_the_long_tail_is_asked_through_litellm(litellm):
    models = ModelRouter({}, prices={"litellm/bedrock/x": {"input": 1, "output": 1}})
    request = Request(
        model="litellm/bedrock/x", messages=MESSAGES, parameters={"temperature": 0, "stream": True}
    )
    answer = await models.answer(request)
    assert answer.text == "['max_retries', 'messages', 'model', 'num_retries', 'temperature']bedrock/x"
    assert (answer.call.provider, answer.call.usage.input_tokens) == ("litellm", 8)
    assert answer.call.cost_usd == pytest.approx(10 / 1e6)
    assert models.missing_key("litellm/bedrock/x") is None


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [(429, RateLimited, "rate_limit"), (401, ModelError, "auth"), (500, ModelError, "model_failed")],
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
