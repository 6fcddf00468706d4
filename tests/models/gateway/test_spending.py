"""What a call could cost is asked for before it is made, and kept to."""

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import web
from gateway_requests import COMPLETIONS, GEMINI, sse, streaming
from openai_calls import QUICK, completion

from proctor.models.client import Client
from proctor.models.prices import Grant, SpendingRequest
from proctor.models.rate_limits import RatePools
from proctor.testing import eventually_async

PROMPT = "Tell me everything you know. " * 100
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1000}
CONTENTS = {"contents": [{"parts": [{"text": PROMPT}]}]}


class Purse:
    """Grants what it is told to grant, and keeps what it was asked."""

    def __init__(self, **grant):
        self.asked: list[SpendingRequest] = []
        self.settled: list[float | None] = []
        self.lost: list[float | None] = []
        self._grant = Grant(settle=self.settled.append, lose=self.lost.append, **grant)

    async def __call__(self, request: SpendingRequest) -> Grant:
        self.asked.append(request)
        return self._grant


async def test_the_worst_case_is_asked_for_and_what_it_came_to_is_settled(provider, begin):
    provider.answers = [completion()]
    purse = Purse()
    attempt = begin(spend=purse)
    await attempt.asked(COMPLETIONS, CHAT)

    (request,) = purse.asked
    assert request.model == "openai/tiny"
    # Four letters a token is usual; the estimate is on the safe side of that.
    assert len(PROMPT) / 4 < request.input_tokens < len(PROMPT) / 2
    assert request.output_tokens == 1000
    assert request.cost_usd == pytest.approx((request.input_tokens * 1 + 1000 * 10) / 1e6)
    assert purse.settled == [attempt.calls[0].cost_usd]
    assert provider.bodies[0]["max_tokens"] == 1000


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        (COMPLETIONS, CHAT, "max_tokens"),
        (COMPLETIONS, CHAT | {"max_tokens": None}, "max_tokens"),
        (
            COMPLETIONS,
            {"messages": CHAT["messages"], "max_completion_tokens": 900},
            "max_completion_tokens",
        ),
        ("/v1/responses", {"input": PROMPT}, "max_output_tokens"),
        ("/v1/messages", CHAT, "max_tokens"),
        (GEMINI, CONTENTS, "max_tokens"),
    ],
)
async def test_an_answer_is_kept_as_short_as_was_granted(provider, begin, path, body, name):
    provider.answers = [completion()]
    attempt = begin(spend=Purse(most_output_tokens=50))
    for _ in range(2):
        await attempt.post(path, body)
    assert [sent[name] for sent in provider.bodies] == [50, 50]
    assert attempt.notes == ["answers were kept shorter than was asked for, to stay within the cost limit"]


async def test_a_reasoning_model_gets_its_limit_by_the_name_it_knows(provider, begin):
    provider.answers = [completion()]
    attempt = begin(model="openai/gpt-5", spend=Purse(most_output_tokens=50))
    for limit in ({}, {"max_tokens": 1000}, {"max_completion_tokens": 1000}):
        body = {"model": "openai/gpt-5", "messages": CHAT["messages"]}
        await attempt.post(COMPLETIONS, body | limit)
    assert [sent.get("max_completion_tokens") for sent in provider.bodies] == [50, 50, 50]
    assert not any("max_tokens" in sent for sent in provider.bodies)


@pytest.mark.parametrize(
    ("path", "body", "answers", "tokens"),
    [
        (COMPLETIONS, CHAT | {"n": 50}, 50, 1000),
        (COMPLETIONS, CHAT | {"n": "50"}, 50, 1000),
        (COMPLETIONS, CHAT | {"n": 50.0}, 50, 1000),
        (COMPLETIONS, CHAT | {"n": 2, "best_of": 20}, 20, 1000),
        (COMPLETIONS, CHAT | {"extra_body": {"best_of": 20}}, 1, 1000),
        (GEMINI, CONTENTS | {"generation_config": {"candidate_count": 8, "max_output_tokens": 9}}, 8, 9),
        (COMPLETIONS, CHAT | {"n": True}, 1, 1000),
        (COMPLETIONS, CHAT | {"n": -3}, 1, 1000),
        (COMPLETIONS, CHAT | {"max_completion_tokens": 10}, 1, 1000),
        (COMPLETIONS, CHAT | {"max_tokens": 1000.0}, 1, 1000),
        (
            COMPLETIONS,
            CHAT | {"max_completion_tokens": 10, "reasoning": {"max_tokens": 500}},
            1,
            1000,
        ),
        (COMPLETIONS, CHAT | {"reasoning": {"max_tokens": 4000}}, 1, 5000),
        ("/v1/messages", CHAT | {"thinking": {"type": "enabled", "budget_tokens": 500}}, 1, 1000),
        ("/v1/messages", CHAT | {"thinking": {"type": "enabled", "budget_tokens": 4000}}, 1, 5000),
        (GEMINI, CONTENTS | {"generationConfig": {"candidateCount": 8, "maxOutputTokens": 100}}, 8, 100),
        (
            GEMINI,
            CONTENTS
            | {"generationConfig": {"maxOutputTokens": 100, "thinkingConfig": {"thinkingBudget": 2000}}},
            1,
            2100,
        ),
    ],
)
async def test_every_answer_and_all_reasoning_is_in_the_worst_case(
    provider, begin, path, body, answers, tokens
):
    provider.answers = [completion()]
    purse = Purse()
    await begin(spend=purse).post(path, body)
    (request,) = purse.asked
    assert (request.answers, request.output_tokens) == (answers, tokens)
    assert request.cost_usd == pytest.approx((request.input_tokens + answers * tokens * 10) / 1e6)


@pytest.mark.parametrize(
    ("path", "tools", "more", "reads"),
    [
        ("/v1/responses", [{"type": "function", "name": "web_search", "parameters": {}}], {}, 1),
        ("/v1/responses", [{"type": "web_search"}], {}, 4),
        ("/v1/responses", [{"type": "web_search"}], {"max_tool_calls": 1}, 2),
        ("/v1/messages", [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}], {}, 9),
    ],
)
async def test_tools_that_the_provider_runs_make_it_read_the_prompt_again(
    provider, begin, path, tools, more, reads
):
    provider.answers = [completion()]
    purse = Purse()
    prompt = {"input": PROMPT} if path == "/v1/responses" else CHAT
    await begin(spend=purse).post(path, prompt | {"tools": tools} | more)
    (request,) = purse.asked
    uses = reads - 1
    # Each time with what providers say to a model about tools.
    results, answers = 8000 * uses * reads // 2 + 582 * reads, request.output_tokens * uses
    assert request.input_tokens - results - answers == pytest.approx(reads * len(PROMPT) / 3, rel=0.1)
    assert request.input_usd == pytest.approx(request.input_tokens / 1e6 + 0.01 * uses)


async def test_a_lower_limit_of_gemini_is_shared_with_its_thinking(provider, begin, open_gateway):
    provider.answers = [completion()]
    settings = {"maxOutputTokens": 900, "thinkingConfig": {"thinkingBudget": 2000}}
    attempt = begin(
        await open_gateway(), spend=Purse(most_output_tokens=600), model="gemini/gemini-2.5-flash"
    )
    await attempt.post(GEMINI, CONTENTS | {"generationConfig": settings})
    (sent,) = provider.bodies
    assert sent["generationConfig"] == {"maxOutputTokens": 300, "thinkingConfig": {"thinkingBudget": 300}}


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/messages", "/v1/responses"])
async def test_a_refused_call_is_not_made_and_the_client_is_told_why(provider, begin, path):
    purse = Purse(refused="the $0.50 this item may spend are spent")
    attempt = begin(spend=purse)
    status, raw = await attempt.post(path, CHAT)
    assert status == 402 and "$0.50" in json.loads(raw)["error"]["message"]
    assert provider.bodies == []
    (call,) = attempt.calls
    assert (call.status, call.cost_usd) == ("cost_limit", 0.0)
    assert purse.settled == [0.0]


async def test_an_unknown_price_is_not_nothing(provider, begin, open_gateway):
    provider.answers = [completion()]
    purse = Purse()
    attempt = begin(await open_gateway(prices={}), spend=purse, model="acme/strange")
    await attempt.asked(COMPLETIONS, CHAT)
    assert purse.asked[0].cost_usd is None
    assert attempt.calls[0].cost_usd is None and purse.settled == [None]
    provider.answers = [web.json_response({"error": {"message": "no"}}, status=400)]
    await attempt.post(COMPLETIONS, CHAT)
    assert attempt.calls[1].cost_usd == 0.0, "a refusal costs nothing whatever the price"


async def test_a_stream_that_the_agent_cuts_is_recorded_as_such_and_charged_at_its_worst_case(
    provider, begin
):
    """The model may have reasoned unseen before the first word, or go on: what came says little."""
    first = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Par"}}]}
    provider.answers = [streaming(sse(first), b"", pause=asyncio.Event())]
    purse = Purse()
    attempt = begin(spend=purse)
    async with attempt.open(COMPLETIONS, CHAT | {"stream": True}) as response:
        await response.content.readany()
        response.close()
    await eventually_async(lambda: bool(purse.lost))

    (call,) = attempt.calls
    assert call.status == "cancelled" and "Par" in call.response
    assert call.error == "the client hung up before the answer had ended; its tokens are estimated"
    assert call.cost_usd > 0 and call.price_source == "plan (estimated)"
    # What is recorded of it is not counted twice.
    assert purse.lost == [call.cost_usd] and purse.settled == []


async def test_an_answer_that_would_come_later_and_elsewhere_is_not_ordered(provider, begin):
    provider.answers = [completion()]
    await begin(spend=Purse()).post("/v1/responses", {"input": PROMPT, "background": True})
    assert "background" not in provider.bodies[0]


@pytest.mark.parametrize(
    ("path", "more", "factor"),
    [
        (COMPLETIONS, {"service_tier": "priority"}, 2),
        (COMPLETIONS, {"service_tier": "flex"}, 1),
        ("/v1/messages", {"speed": "fast"}, 6),
    ],
)
async def test_faster_answers_cost_more(provider, begin, path, more, factor):
    provider.answers = [completion()]
    purse = Purse()
    attempt = begin(spend=purse)
    await attempt.post(path, CHAT)
    await attempt.post(path, CHAT | more)
    usual, faster = purse.asked
    # The text of the setting itself is counted, too.
    assert faster.cost_usd == pytest.approx(factor * usual.cost_usd, rel=0.01)
    if path == COMPLETIONS:
        assert attempt.calls[1].cost_usd == pytest.approx(factor * attempt.calls[0].cost_usd)


async def test_another_try_after_a_server_error_is_reserved_and_limited_again(provider, begin, open_gateway):
    pools = RatePools()
    # As in a run: each try that may be billed is paid for.
    pools.repeats_billed = False
    gateway = await open_gateway(client=Client(pools=pools))
    error = web.json_response({"error": {"message": "busy"}}, status=503, headers={"Retry-After": "0.01"})
    provider.answers = [error, completion()]
    granted = iter([900, 300])
    lost, settled = list[float | None](), list[float | None]()

    async def spend(request):
        grant = Grant(settle=settled.append, lose=lost.append, is_limited=True)
        return replace(grant, most_output_tokens=next(granted))

    await begin(gateway, spend=spend).asked(COMPLETIONS, CHAT)

    assert [body["max_tokens"] for body in provider.bodies] == [900, 300]
    assert lost == [None] and len(settled) == 1, "the error may be billed"


@pytest.mark.parametrize(
    ("status", "is_lost"),
    [(202, True), (500, True), (503, True), (400, False), (404, False), (429, False)],
)
async def test_what_fails_at_the_provider_counts_and_what_it_refuses_does_not(
    provider, begin, status, is_lost
):
    headers = {"Retry-After": "3600"}
    provider.answers = [web.json_response({"error": {"message": "no"}}, status=status, headers=headers)]
    purse = Purse()

    assert (await begin(spend=purse).post(COMPLETIONS, CHAT))[0] == status

    assert (len(purse.lost), len(purse.settled)) == ((1, 0) if is_lost else (0, 1))


async def test_a_stream_that_ends_without_counting_its_answer_is_charged_at_its_worst_case(
    provider, begin, open_gateway
):
    """What its first event counts is the beginning."""
    usage = {"input_tokens": 20, "output_tokens": 1}
    events = [
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Paris"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    provider.answers = [streaming(*map(sse, events))]
    purse = Purse()
    gateway = await open_gateway(prices={"anthropic/tiny": {"input": 1, "output": 10}})
    attempt = begin(gateway, spend=purse, model="anthropic/tiny")

    await attempt.post("/v1/messages", CHAT | {"stream": True})

    assert purse.lost == [attempt.calls[0].cost_usd] and purse.settled == []


@pytest.mark.parametrize(
    ("path", "stream"), [("chat/completions", False), ("chat/completions", True), ("messages", False)]
)
async def test_an_answer_costs_what_its_tier_does_also_when_the_account_chose_it(
    provider, begin, path, stream
):
    written = {"content": "Paris"}
    choice = {"index": 0, "message": written, "delta": written, "finish_reason": "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 20}
    documents = [
        {"choices": [choice], "usage": usage, "service_tier": tier} for tier in ("default", "priority")
    ]
    provider.answers = [streaming(sse(each)) if stream else web.json_response(each) for each in documents]
    attempt = begin(spend=Purse())

    for _ in documents:
        await attempt.post(f"/v1/{path}", CHAT | {"stream": stream})

    usual, faster = (call.cost_usd for call in attempt.calls)
    assert faster == pytest.approx(2 * usual)


async def test_a_translated_answer_without_counts_is_charged_at_its_worst_case(provider, begin):
    choice = {"index": 0, "message": {"content": "Paris"}, "finish_reason": "stop"}
    provider.answers = [web.json_response({"choices": [choice]})]
    purse = Purse()
    attempt = begin(spend=purse)

    await attempt.post("/v1/messages", CHAT)

    assert purse.lost == [attempt.calls[0].cost_usd] and purse.settled == []
    assert attempt.calls[0].price_source == "plan (estimated)"


@pytest.mark.parametrize("newer", [None, 0])
async def test_a_limit_without_a_value_does_not_replace_the_one_that_is_reserved(
    provider, begin, open_gateway, newer
):
    provider.answers = [completion()]
    purse = Purse()
    gateway = await open_gateway(prices={"openai/gpt-5": {"input": 1, "output": 10}})
    await begin(gateway, spend=purse, model="openai/gpt-5").asked(
        COMPLETIONS, CHAT | {"max_completion_tokens": newer}
    )
    assert (purse.asked[0].output_tokens, provider.bodies[0]["max_completion_tokens"]) == (1000, 1000)


async def test_a_request_without_a_known_price_is_refused_by_name_and_others_go_on(provider, begin):
    provider.answers = [completion()]
    attempt = begin(spend=Purse(refused="`audio` has no known cost", is_refusal_final=False))

    status, raw = await attempt.post(COMPLETIONS, CHAT)

    assert status == 400 and "`audio`" in json.loads(raw)["error"]["message"]
    assert attempt.calls[0].status == "not_priced" and provider.bodies == []
    assert attempt.notes == ["a request was refused: `audio` has no known cost"]


async def test_a_server_error_that_lasts_is_handed_on_with_the_provider_s_own_words(
    provider, begin, open_gateway
):
    pools = RatePools()
    pools.repeats_billed = False
    said = b'{"error": {"message": "busy"}}'
    provider.answers = [web.Response(body=said, status=503, content_type="application/json")]
    attempt = begin(await open_gateway(client=Client(QUICK, pools=pools)))
    assert await attempt.post(COMPLETIONS, CHAT) == (503, said)
