"""Parts of a model call on their own: times, limits, idle connections, lists, prices of answers."""

from datetime import UTC, datetime
from itertools import count

import pytest
from test_http import raw_server

from proctor.models import prices, worst_case
from proctor.models.client import CallTarget, Client
from proctor.models.prices import SpendingRequest, usual_limit
from proctor.models.providers import Endpoint
from proctor.models.rate_limits import spent_window_seconds
from proctor.session import Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDPOINT = Endpoint(provider="openai", model="tiny", base_url="http://127.0.0.1:1", key="k", wire="openai")


def test_a_pause_lasts_until_the_latest_exhausted_window_resets():
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": " 0 ",
        "x-ratelimit-reset-tokens": "7s",
        "x-ratelimit-remaining-images": "1",
        "x-ratelimit-reset-images": "90s",
    }
    assert spent_window_seconds(headers, NOW) == 7
    assert spent_window_seconds({"x-ratelimit-remaining-requests": "0"}, NOW) is None
    assert spent_window_seconds({"x-remaining": "0", "x-reset": "2s"}, NOW) is None


async def test_the_duration_of_a_call_is_in_milliseconds():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    ticks = count()
    async with raw_server(answer) as server:
        client = Client(clock=lambda: next(ticks) / 4)
        called = CallTarget(ENDPOINT, f"http://127.0.0.1:{server.port}/v1", {})
        response = await client.post(called, b"{}")
        await client.close()

    assert response.latency_ms % 250 == 0 and 0 < response.latency_ms <= 1000
    assert response.waiting_ms == 0


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-3-opus-20240229", 4096),
        ("claude-3-5-sonnet", 8192),
        ("claude-sonnet-4", 64_000),
        ("gpt-5-mini", 128_000),
        ("o3", 100_000),
        ("gpt-4.1-nano", 32_768),
        ("gemini-2.5-pro", 65_536),
        ("mistral-large", 16_384),
    ],
)
def test_the_longest_answer_of_a_family_of_models(model, tokens):
    assert usual_limit(f"provider/{model}") == tokens


def test_the_length_of_answers_that_money_pays_for():
    request = {"model": "m", "input_tokens": 10, "output_tokens": 100, "input_usd": 1.0}
    priced = SpendingRequest(**request, output_usd_per_token=0.01, answers=2)
    assert priced.cost_usd == 1 + 2 * 100 * 0.01
    assert priced.affordable_tokens(2.0) == 50 and priced.affordable_tokens(1.0) == 0
    free = SpendingRequest(**request, output_usd_per_token=0.0)
    assert (free.cost_usd, free.affordable_tokens(5)) == (1.0, 0)
    unknown = SpendingRequest(**request | {"input_usd": None}, output_usd_per_token=0.01)
    assert (unknown.cost_usd, unknown.affordable_tokens(5)) == (None, 0)
    assert SpendingRequest(**request, output_usd_per_token=None).cost_usd is None


def test_the_constants_of_worst_cases():
    """A change of one changes what is reserved for every call."""
    assert (worst_case.BYTES_PER_TOKEN, prices.SMALLEST_THINKING_BUDGET) == (3, 1024)
    assert (worst_case.HOSTED_TOOL_USES, worst_case.SEARCH_RESULT_TOKENS) == (3, 8000)
    assert worst_case.MOST_TOKENS == 4_000_000


def test_tokens_are_counted_from_zero_and_add_up():
    names = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "cache_write_tokens")
    assert [getattr(Usage(), name) for name in names] == [0] * 5
    one = Usage(**{name: number for number, name in enumerate(names, 1)})
    both = one + Usage(**{name: 10 * number for number, name in enumerate(names, 1)})
    assert [getattr(both, name) for name in names] == [11, 22, 33, 44, 55]
    assert (one.total_tokens, both.total_tokens) == (4, 44)


def test_a_free_call_costs_nothing_whatever_its_tokens():
    usage = Usage(input_tokens=9, cached_tokens=2, output_tokens=8, reasoning_tokens=1, cache_write_tokens=3)
    cost, _ = prices.FREE.for_call(usage)
    assert (cost, prices.FREE.source) == (0.0, "free")
