"""Asking a model over OpenAI's chat completions, against a server on loopback."""

import json

import pytest
from aiohttp import web
from openai_calls import KEY, ask, completion

from proctor.errors import ModelError
from proctor.model import Request
from proctor.models import ModelRouter


async def test_an_answer_comes_with_its_tokens_price_and_time(provider, models):
    provider.answers = [completion()]

    answer = await models.answer(ask())

    assert answer.text == "Paris"
    call = answer.call
    assert (call.provider, call.model, call.status) == ("openai", "openai/tiny", "ok")
    assert (call.usage.input_tokens, call.usage.cached_tokens) == (100, 40)
    assert (call.usage.output_tokens, call.usage.reasoning_tokens) == (20, 7)
    assert call.cost_usd == pytest.approx((100 * 1 + 20 * 10) / 1e6)
    assert call.price_source == "plan"
    assert 0 < call.latency_ms < 5000
    assert call.waiting_ms == 0


async def test_everything_asked_for_is_sent_and_the_model_has_its_own_name(provider, models):
    provider.answers = [completion()]
    tools = [{"type": "function", "function": {"name": "run", "parameters": {}}}]
    shape = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}

    await models.answer(
        ask(tools=tools, seed=7, parameters={"temperature": 0.5, "response_format": shape, "stream": True})
    )

    body = provider.bodies[0]
    assert body["model"] == "tiny"
    assert body["messages"] == [{"role": "user", "content": "What is the capital of France?"}]
    assert (body["seed"], body["temperature"], body["tools"]) == (7, 0.5, tools)
    assert body["response_format"] == shape and "stream" not in body
    assert provider.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_tool_calls_are_handed_on_as_the_model_wrote_them(provider, models):
    calls = [{"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"command": '}}]
    provider.answers = [completion(None, tool_calls=calls)]

    answer = await models.answer(ask())

    assert answer.text == ""
    assert [(each.id, each.name, each.arguments) for each in answer.tool_requests] == [
        ("c1", "run", '{"command": ')
    ]


async def test_bodies_are_kept_only_when_wanted_and_hold_no_key(provider):
    provider.answers = [completion()]
    environment = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": KEY}
    models = ModelRouter(environment, keep_bodies=True)

    call = (await models.answer(ask())).call
    await models.close()

    assert json.loads(call.request)["messages"][0]["content"].startswith("What")
    assert json.loads(call.response)["id"] == "x"
    assert KEY not in repr(call)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [7],
        "many",
        {},
        {"prompt_tokens": "many", "completion_tokens": -5},
        {"prompt_tokens": True, "completion_tokens": False},
        {"prompt_tokens": None, "completion_tokens": 1e400},
        {"prompt_tokens": 10**9, "completion_tokens": 10**9},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": -7},
        {"prompt_tokens": 25, "completion_tokens": 10, "total_tokens": 10**11},
        {"prompt_tokens": 25, "completion_tokens": 0},
    ],
)
async def test_token_counts_that_make_no_sense_are_estimated_and_marked(provider, models, usage):
    """No answer of a model with a price is free, and none costs a fortune by a wrong count."""
    choice = {"message": {"content": "word " * 24}}
    provider.answers = [web.json_response({"choices": [choice], "usage": usage})]

    call = (await models.answer(ask(parameters={"max_tokens": 100}))).call

    assert (call.usage.output_tokens, call.usage.reasoning_tokens) == (40, 0)
    assert 20 < call.usage.input_tokens < 60
    assert call.cost_usd == pytest.approx((call.usage.input_tokens * 1 + 40 * 10) / 1e6)
    assert call.price_source == "plan (estimated)"


async def test_a_missing_key_is_said_before_anything_is_sent():
    models = ModelRouter({})
    with pytest.raises(ModelError, match="OPENAI_API_KEY") as raised:
        await models.answer(Request(model="gpt-4o", messages=[{"role": "user", "content": "hi"}]))
    assert raised.value.reason == "auth"
    assert models.missing_key("gpt-4o") == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("content", "more", "usage", "tokens", "source"),
    [
        # More cached tokens than there are tokens are not believed.
        (
            "hi",
            {},
            {"prompt_tokens": 25, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 10**11}},
            (25, 0, 5, 0),
            "plan (estimated)",
        ),
        # Reasoning beyond the limit is paid as the provider counts it.
        (
            "hi",
            {"max_tokens": 100},
            {
                "prompt_tokens": 25,
                "completion_tokens": 1000,
                "completion_tokens_details": {"reasoning_tokens": 900},
            },
            (25, 0, 1000, 900),
            "plan",
        ),
        # Thoughts that only the total counts are paid for, though nothing was said.
        (None, {}, {"prompt_tokens": 100, "total_tokens": 400}, (100, 0, 300, 300), "plan"),
    ],
)
async def test_the_tokens_that_are_paid_for(provider, models, content, more, usage, tokens, source):
    provider.answers = [web.json_response({"choices": [{"message": {"content": content}}], "usage": usage})]
    call = (await models.answer(ask(parameters=more))).call
    counted = call.usage
    assert (
        counted.input_tokens,
        counted.cached_tokens,
        counted.output_tokens,
        counted.reasoning_tokens,
    ) == tokens
    assert call.price_source == source
    assert call.cost_usd == pytest.approx((tokens[0] * 1 + tokens[2] * 10) / 1e6)


async def test_the_tokens_of_several_answers_are_estimated_for_all_of_them(provider, models):
    provider.answers = [web.json_response({"choices": [{"message": {"content": "word " * 24}}] * 3})]
    call = (await models.answer(ask(parameters={"max_tokens": 100, "n": 3}))).call
    assert call.usage.output_tokens == 120
