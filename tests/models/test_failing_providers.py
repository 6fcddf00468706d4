"""What becomes of a call when the provider refuses, breaks off, garbles or keeps silent."""

import asyncio

import pytest
from aiohttp import web
from openai_calls import KEY, ask, completion

from proctor.errors import ModelError, RateLimited
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.client import LARGEST_ANSWER_BYTES, CallRetryPolicy, Client
from waiting import TIME_LIMIT_SECONDS


def failed(status, said="no", headers=None):
    return web.json_response({"error": {"message": said}}, status=status, headers=headers)


async def test_a_refused_key_is_said_without_the_key_and_not_tried_again(provider, models):
    provider.answers = [failed(401, f"Incorrect API key provided: {KEY} or sk-proj-***abcd")]

    with pytest.raises(ModelError) as raised:
        await models.answer(ask())

    assert raised.value.reason == "auth"
    assert "Incorrect API key provided: [key] or [key]" in str(raised.value)
    assert "OPENAI_API_KEY" in str(raised.value)
    assert len(provider.bodies) == 1


async def test_a_bad_request_is_not_tried_again_and_its_words_are_clipped(provider, models):
    provider.answers = [failed(400, "unknown parameter " + "x" * 100_000)]

    with pytest.raises(ModelError) as raised:
        await models.answer(ask())

    assert raised.value.reason == "bad_request"
    assert "unknown parameter" in str(raised.value)
    assert len(str(raised.value)) < 700
    assert len(provider.bodies) == 1


async def test_a_rate_limit_is_sat_out_and_counted_as_waiting(provider, models):
    provider.answers = [failed(429, headers={"Retry-After": "0.2"}), completion()]
    told = []

    answer = await models.for_attempt(told.append).answer(ask())

    assert answer.text == "Paris"
    assert answer.call.waiting_ms >= 200
    assert answer.call.latency_ms < 200
    assert sum(told) * 1000 == pytest.approx(answer.call.waiting_ms)


async def test_a_rate_limit_longer_than_our_patience_is_reported_at_once(provider, models):
    provider.answers = [failed(429, headers={"Retry-After": "3600"})]

    with pytest.raises(RateLimited) as raised:
        await models.answer(ask())

    assert raised.value.retry_after_seconds == 3600
    assert len(provider.bodies) == 1


async def test_a_retry_after_given_as_a_date_counts_on_the_providers_clock(provider, models):
    headers = {"Date": "Wed, 01 Jan 2020 00:00:00 GMT", "Retry-After": "Wed, 01 Jan 2020 01:00:00 GMT"}
    provider.answers = [failed(429, headers=headers)]

    with pytest.raises(RateLimited) as raised:
        await models.answer(ask())

    assert raised.value.retry_after_seconds == 3600


async def test_a_retry_after_given_in_milliseconds_comes_before_one_in_whole_seconds(provider, models):
    headers = {"retry-after-ms": "3600500", "Retry-After": "3601"}
    provider.answers = [failed(429, headers=headers)]

    with pytest.raises(RateLimited) as raised:
        await models.answer(ask())

    assert raised.value.retry_after_seconds == 3600.5


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"code": "insufficient_quota", "message": "pay"}),
        (402, {"message": "Insufficient Balance"}),
        (400, {"type": "invalid_request_error", "message": "Your credit balance is too low."}),
    ],
)
async def test_an_empty_account_is_no_rate_limit(provider, models, status, error):
    provider.answers = [web.json_response({"error": error}, status=status)]
    with pytest.raises(ModelError) as raised:
        await models.answer(ask())
    assert raised.value.reason == "quota"
    assert len(provider.bodies) == 1


async def test_a_server_error_is_tried_again(provider, models):
    provider.answers = [failed(500), failed(503), completion("at last")]
    assert (await models.answer(ask())).text == "at last"
    assert len(provider.bodies) == 3


async def test_a_server_that_keeps_failing_is_given_up_after_five_tries(provider, models):
    provider.answers = [failed(502, "upstream is away")]

    with pytest.raises(ModelError, match="upstream is away") as raised:
        await models.answer(ask())

    assert raised.value.reason == "model_failed"
    assert len(provider.bodies) == 5


async def test_a_cut_connection_is_tried_again(provider, models):
    async def cut(request):
        request.transport.abort()
        return web.Response()

    provider.answers = [cut, completion("again")]
    assert (await models.answer(ask())).text == "again"


async def test_an_answer_cut_in_the_middle_is_tried_again(provider, models):
    async def half(request):
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices"')
        request.transport.abort()
        return response

    provider.answers = [half, completion("whole")]
    assert (await models.answer(ask())).text == "whole"


async def test_a_server_that_is_not_there_is_a_model_failure():
    models = ModelRouter({"OPENAI_BASE_URL": "http://127.0.0.1:1"}, client=Client(CallRetryPolicy(tries=1)))
    with pytest.raises(ModelError, match="did not answer") as raised:
        await models.answer(ask())
    await models.close()
    assert raised.value.reason == "model_failed"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>busy</html>", "did not answer with JSON"),
        (b'{"choices": [', "did not answer with JSON"),
        (b"[1]", "not an object"),
        (b"{}", "unknown format"),
        (b'{"choices": []}', "unknown format"),
        (b'{"choices": [null]}', "unknown format"),
        (b'{"error": {"message": "provider down"}}', "provider down"),
        (b"[" * 100_000, "did not answer with JSON"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_model_failure(provider, models, body, words):
    provider.answers = [web.Response(body=body)]
    with pytest.raises(ModelError, match=words):
        await models.answer(ask())


async def test_a_giant_answer_is_not_read_to_its_end(provider, models):
    sent = 0

    async def endless(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 10 * LARGEST_ANSWER_BYTES:
            await response.write(b" " * (1 << 20))
            sent += 1 << 20
        return response

    provider.answers = [endless]
    with pytest.raises(ModelError, match="more than 32 MiB"):
        await models.answer(ask())
    assert sent < 2 * LARGEST_ANSWER_BYTES


async def test_a_redirect_is_not_followed_with_the_key(provider, models):
    provider.answers = [web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(ModelError) as raised:
        await models.answer(ask())
    assert raised.value.reason == "bad_request"


async def test_a_cancelled_call_closes_the_connection(provider, models):
    reached = asyncio.Event()

    async def slow(request):
        reached.set()
        await asyncio.sleep(60)
        return web.Response()

    provider.answers = [slow]
    asking = asyncio.create_task(models.answer(ask()))
    await reached.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait_for(provider.disconnected.wait(), TIME_LIMIT_SECONDS)


async def test_a_silent_server_is_given_up(provider):
    async def slow(request):
        await asyncio.sleep(60)
        return web.Response()

    provider.answers = [slow]
    patience = CallRetryPolicy(silence_seconds=0.1, tries=1)
    models = ModelRouter({"OPENAI_BASE_URL": provider.url}, client=Client(patience))
    with pytest.raises(ModelError, match="did not answer"):
        await models.answer(ask())
    await models.close()


async def test_a_connection_that_was_idle_longer_than_the_read_timeout_still_serves(provider):
    """Some releases of aiohttp hand such a connection out broken."""
    provider.answers = [completion()]
    models = ModelRouter(
        {"OPENAI_BASE_URL": provider.url}, client=Client(CallRetryPolicy(silence_seconds=0.2, tries=1))
    )
    for _ in range(4):
        assert (await models.answer(ask())).text == "Paris"
        await asyncio.sleep(0.35)
    await models.close()


async def test_a_model_nobody_has_is_a_failure_of_the_call_once_the_batch_runs(models):
    with pytest.raises(ModelError, match="no provider `opnai`") as raised:
        await models.answer(Request(model="opnai/x", messages=[]))
    assert raised.value.reason == "bad_request"


@pytest.mark.parametrize(
    "environment",
    [
        {"OPENAI_API_KEY": "sk-two\nlines"},
        {"OPENAI_BASE_URL": "http://user:sk-secret@[broken"},
        {"OPENAI_BASE_URL": "ftp://user:sk-secret@127.0.0.1/"},
    ],
)
async def test_a_malformed_address_or_key_is_said_without_showing_it(provider, environment):
    models = ModelRouter({"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-good"} | environment)
    with pytest.raises(ModelError, match="malformed") as raised:
        await models.answer(ask())
    await models.close()
    assert raised.value.reason == "bad_request"
    assert "sk-" not in str(raised.value)


@pytest.mark.parametrize("nonsense", ["inf", "nan", "-5", "soon", "9" * 400, ""])
async def test_a_retry_after_that_makes_no_sense_is_not_waited_for(provider, models, nonsense):
    headers = {"Retry-After": nonsense, "retry-after-ms": nonsense}
    provider.answers = [failed(429, headers=headers), completion()]
    answer = await models.answer(ask())
    assert answer.call.waiting_ms < 100
