"""Asking a model over Anthropic's messages, against a server on loopback."""

import pytest
from aiohttp import web

from proctor.model import Request
from proctor.models import ModelRouter

KEY = "sk-ant-0123456789abcdef"


def message(*blocks, stop_reason="end_turn"):
    usage = {
        "input_tokens": 50,
        "cache_read_input_tokens": 30,
        "cache_creation_input_tokens": 20,
        "output_tokens": 9,
    }
    return web.json_response({"content": list(blocks), "stop_reason": stop_reason, "usage": usage})


@pytest.fixture
async def models(provider):
    made = ModelRouter({"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": KEY})
    yield made
    await made.close()


def ask(*messages, **more):
    return Request(model="claude-sonnet-4-5", messages=messages, **more)


async def test_an_answer_counts_cached_tokens_as_part_of_the_input(provider, models):
    provider.answers = [message({"type": "text", "text": "Pa"}, {"type": "text", "text": "ris"})]

    answer = await models.answer(ask({"role": "user", "content": "?"}))

    assert (answer.text, answer.finish_reason) == ("Paris", "stop")
    usage = answer.call.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens) == (100, 30, 20)
    assert answer.call.cost_usd == pytest.approx((50 * 3 + 30 * 0.3 + 20 * 3.75 + 9 * 15) / 1e6)
    assert answer.call.price_source.startswith("genai-prices")
    assert provider.headers[0]["x-api-key"] == KEY


async def test_system_text_stands_apart_and_a_limit_is_always_sent(provider, models):
    provider.answers = [message({"type": "text", "text": "ok"})]
    stop = {"stop": "END", "max_tokens": 77}

    await models.answer(
        ask({"role": "system", "content": "Be brief."}, {"role": "user", "content": "?"}, parameters=stop)
    )
    without = ask({"role": "user", "content": "?"})
    await models.answer(without)

    first, second = provider.bodies
    assert first["system"] == "Be brief."
    assert first["messages"] == [{"role": "user", "content": [{"type": "text", "text": "?"}]}]
    assert (first["stop_sequences"], first["max_tokens"]) == (["END"], 77)
    assert "stop" not in first
    assert second["max_tokens"] == models.worst_case(without).output_tokens > 0
    assert "system" not in second


async def test_a_conversation_with_tools_is_told_in_blocks(provider, models):
    use = {"type": "tool_use", "id": "u1", "name": "run", "input": {"command": "ls"}}
    provider.answers = [message(use, stop_reason="tool_use")]
    call = {"id": "u0", "type": "function", "function": {"name": "run", "arguments": '{"command": "pwd"}'}}
    broken = {"id": "u9", "type": "function", "function": {"name": "run", "arguments": "{oops"}}
    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}

    answer = await models.answer(
        ask(
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": "", "tool_calls": [call, broken]},
            {"role": "tool", "tool_call_id": "u0", "content": "/"},
            {"role": "tool", "tool_call_id": "u9", "content": "error"},
            tools=[tool],
        )
    )

    body = provider.bodies[0]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use", "tool_use"]
    assert body["messages"][1]["content"][0]["input"] == {"command": "pwd"}
    assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == ["u0", "u9"]
    assert body["tools"] == [{"name": "run", "description": "", "input_schema": {"type": "object"}}]
    wanted = answer.tool_requests[0]
    assert (wanted.id, wanted.name, wanted.arguments) == ("u1", "run", '{"command": "ls"}')
    assert answer.finish_reason == "tool_calls"


async def test_parameters_without_a_value_are_not_sent(provider, models):
    provider.answers = [message({"type": "text", "text": "ok"})]
    unset = dict.fromkeys(("temperature", "top_p", "tool_choice", "stop", "max_tokens", "user"))
    said = []

    await models.for_attempt(None, note=said.append).answer(
        ask({"role": "user", "content": "?"}, parameters=unset)
    )

    assert set(provider.bodies[0]) == {"model", "max_tokens", "messages"}
    assert provider.bodies[0]["max_tokens"] > 0
    assert said == []


async def test_json_of_no_particular_shape_cannot_be_asked_for_and_that_is_said(provider, models):
    provider.answers = [message({"type": "text", "text": "{}"})]
    said = []
    any_json = {"response_format": {"type": "json_object"}}

    await models.for_attempt(None, note=said.append).answer(
        ask({"role": "user", "content": "?"}, parameters=any_json)
    )

    assert "response_format" not in provider.bodies[0]
    assert said == ["claude-sonnet-4-5 was not sent `response_format`: anthropic does not take it"]


@pytest.mark.parametrize(
    ("choice", "theirs"),
    [
        ("required", {"type": "any"}),
        ("auto", {"type": "auto"}),
        ({"function": {"name": "f"}}, {"type": "tool", "name": "f"}),
        ({"type": "x"}, {"type": "x"}),
    ],
)
async def test_a_choice_of_tools_is_put_into_their_words(provider, models, choice, theirs):
    provider.answers = [message({"type": "text", "text": "ok"})]
    await models.answer(ask({"role": "user", "content": "?"}, parameters={"tool_choice": choice}))
    assert provider.bodies[0]["tool_choice"] == theirs


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("data:image/png;base64,AA", {"type": "base64", "media_type": "image/png", "data": "AA"}),
        ("http://x/a;base64,b", {"type": "url", "url": "http://x/a;base64,b"}),
    ],
)
async def test_an_image_is_sent_as_data_or_as_an_address(provider, models, address, source):
    provider.answers = [message({"type": "text", "text": "ok"})]
    image = {"type": "image_url", "image_url": {"url": address}}
    await models.answer(ask({"role": "user", "content": [image]}))
    assert provider.bodies[0]["messages"][0]["content"] == [{"type": "image", "source": source}]
