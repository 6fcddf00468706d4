"""What becomes of a call when the provider refuses, breaks off, garbles or keeps silent."""

import asyncio
from itertools import count

import pytest
from aiohttp import web
from openai_calls import KEY, ask, completion

from proctor.errors import ModelError, RateLimited
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.client import LARGEST_ANSWER_BYTES, CallRetryPolicy, Client, RetryableError, error_of
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import RatePolicy, RatePools


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


async def test_a_rate_limit_is_sat_out_and_counted_as_waiting(provider, models):
    provider.answers = [failed(429, headers={"Retry-After": "0.2"}), completion()]
    told = []

    answer = await models.for_attempt(told.append).answer(ask())

    assert answer.text == "Paris"
    assert answer.call.waiting_ms >= 200
    assert answer.call.latency_ms < 200
    assert sum(told) * 1000 == pytest.approx(answer.call.waiting_ms)


async def test_a_server_that_keeps_failing_is_given_up_after_five_tries(provider, models):
    provider.answers = [failed(502, "upstream is away")]

    with pytest.raises(ModelError, match="upstream is away") as raised:
        await models.answer(ask())

    assert raised.value.reason == "model_failed"
    assert len(provider.bodies) == 5


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>busy</html>", "did not answer with JSON"),
        (b'{"choices": [', "did not answer with JSON"),
        (b"[1]", "not an object"),
        (b"{}", "unknown format"),
        (b'{"choices": []}', "unknown format"),
        (b'{"choices": [null]}', "unknown format"),
        (b'{"error": {"message": "provider down"}, "choices": []}', "with an error: .*provider down"),
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


async def abort(request):
    request.transport.abort()
    return web.Response()


async def half(request):
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices"')
    request.transport.abort()
    return response


@pytest.mark.parametrize("failure", [failed(500), failed(408), abort, half])
async def test_a_failure_that_may_pass_is_tried_again(provider, models, failure):
    provider.answers = [failure, failed(503), completion("at last")]
    assert (await models.answer(ask())).text == "at last"
    assert len(provider.bodies) == 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "3600"}, 3600),
        ({"retry-after-ms": "3600500", "Retry-After": "3601"}, 3600.5),
        # Dates count on the clock of the provider.
        ({"Date": "Wed, 01 Jan 2020 00:00:05 GMT", "Retry-After": "Wed, 01 Jan 2020 01:00:00 GMT"}, 3595),
    ],
)
async def test_a_rate_limit_longer_than_our_patience_is_reported_at_once(provider, models, headers, seconds):
    provider.answers = [failed(429, headers=headers)]

    with pytest.raises(RateLimited) as raised:
        await models.answer(ask())

    assert raised.value.retry_after_seconds == seconds
    assert len(provider.bodies) == 1


NONSENSE = ("inf", "nan", "-5", "soon", "9" * 400, "")
ENDPOINT = Endpoint(provider="openai", model="tiny", base_url="http://127.0.0.1:1", key="k", wire="openai")


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry-After": "9"}, 9.0),
        (500, {"Retry-After": "9"}, 9.0),
        (408, {}, None),
        *((429, {"Retry-After": nonsense, "retry-after-ms": nonsense}, None) for nonsense in NONSENSE),
        (503, {"Retry-After": "Thu, 01 Jan 2026 00:00:20 GMT"}, None),
        (
            503,
            {"Retry-After": "Thu, 01 Jan 2026 00:00:00 GMT", "Date": "Thu, 01 Jan 2026 00:00:05 GMT"},
            0.0,
        ),
    ],
)
def test_statuses_after_which_a_call_is_repeated(status, headers, seconds):
    error = error_of(status, headers, b"", ENDPOINT)

    assert isinstance(error, RetryableError)
    assert error.retry_after_seconds == seconds
    assert isinstance(error.error, RateLimited) is (status == 429)
    assert str(error.error) == f"openai answered {status} for tiny: no details"


@pytest.mark.parametrize(
    ("status", "raw", "reason"),
    [
        (402, b"", "quota"),
        (429, b'{"error": {"code": "insufficient_quota"}}', "quota"),
        (500, b'{"error": {"code": "insufficient_quota"}}', None),
        (401, b"", "auth"),
        (403, b"", "auth"),
        (400, b"Your credit balance is too low.", "quota"),
        (404, b"", "bad_request"),
        (499, b"", "bad_request"),
    ],
)
def test_statuses_after_which_a_call_has_failed(status, raw, reason):
    error = error_of(status, {}, raw, ENDPOINT)
    assert getattr(error, "reason", None) == reason


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"error": {"message": "no  k\\nhere"}}', "no [key] here"),
        (b'{"error": "plain"}', "plain"),
        (b'{"error": {}}', '{"error": {}}'),
        (b"", "no details"),
        (b"\xff", "\ufffd"),
        (b"x" * 500, "x" * 500),
        (b"x" * 501, "x" * 500 + "…"),
    ],
)
def test_the_message_of_a_provider_is_one_clipped_line_without_the_key(raw, message):
    assert str(error_of(404, {}, raw, ENDPOINT)) == f"openai answered 404 for tiny: {message}"


@pytest.mark.parametrize(("seconds", "is_answered"), [(0.1, True), (0.11, False)])
async def test_the_pauses_of_a_call_have_a_limit_in_total(provider, seconds, is_answered):
    limited = [failed(503, headers={"Retry-After": str(pause)}) for pause in (0.1, seconds)]
    provider.answers = [*limited, completion()]
    client = Client(CallRetryPolicy(most_waiting_seconds=0.2), jitter=lambda: 0)
    models = ModelRouter({"OPENAI_BASE_URL": provider.url}, client=client)
    waited = []
    asking = models.for_attempt(waited.append).answer(ask())
    if is_answered:
        assert (await asking).text == "Paris"
        assert waited == pytest.approx([0.1, 0.1])
    else:
        with pytest.raises(ModelError, match="503"):
            await asking
    await models.close()


async def test_without_a_hint_pauses_double_with_a_jitter_of_a_half(provider):
    provider.answers = [failed(503), failed(503), completion()]
    client = Client(CallRetryPolicy(first_pause_seconds=0.01), jitter=lambda: 0.25)
    models = ModelRouter({"OPENAI_BASE_URL": provider.url}, client=client)
    waited = []
    await models.for_attempt(waited.append).answer(ask())
    await models.close()
    assert waited == pytest.approx([0.0075, 0.015])


async def test_a_request_that_is_no_json_is_refused(models):
    with pytest.raises(ModelError, match="the request cannot be sent") as raised:
        await models.answer(Request(model="openai/tiny", messages=[{"role": "user", "content": {1, 2}}]))
    assert raised.value.reason == "bad_request"


async def test_a_pool_is_held_by_an_answer_that_says_that_the_quota_is_spent(provider):
    pools = RatePools()
    models = ModelRouter({"OPENAI_BASE_URL": provider.url}, client=Client(pools=pools), pools=pools)
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "30s"}
    answer = completion()
    answer.headers.update(spent)
    provider.answers = [answer]
    await models.answer(ask())
    await models.close()
    assert 29 < pools.states[0].held_seconds <= 30


async def test_the_duration_of_a_call_is_in_milliseconds(provider):
    provider.answers = [completion()]
    ticks = count()
    models = ModelRouter({"OPENAI_BASE_URL": provider.url}, client=Client(clock=lambda: next(ticks) / 4))
    call = (await models.answer(ask())).call
    await models.close()
    assert (call.latency_ms, call.waiting_ms) == (250, 0)


async def test_a_provider_that_never_says_until_when_is_given_up_in_the_end(provider):
    provider.answers = [failed(429)]
    pools = RatePools(RatePolicy(longest_pause_seconds=0.001))
    client = Client(CallRetryPolicy(tries=1), pools=pools)
    models = ModelRouter({"OPENAI_BASE_URL": provider.url}, client=client, pools=pools)
    with pytest.raises(RateLimited):
        await models.answer(ask())
    await models.close()
    assert pools.states[0].limited == len(provider.bodies) > 5
