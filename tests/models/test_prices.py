"""What a call costs."""

from datetime import UTC, datetime

import pytest
from genai_prices.data_snapshot import get_snapshot

from proctor.models import prices
from proctor.models.prices import listed_price, output_limit, price_of, with_output_limit
from proctor.session import Usage

NOW = datetime(2026, 11, 15, tzinfo=UTC)
MILLION = Usage(input_tokens=1_000_000, output_tokens=100_000)


def test_a_declared_price_wins_over_everything():
    declared = {
        "openai/gpt-4o": {"input": 1, "cached": 0.5, "output": 2},
        "scripted/ok": {"input": 1, "output": 1},
    }
    usage = Usage(input_tokens=1000, cached_tokens=400, output_tokens=100)

    price = price_of("openai/gpt-4o", declared, at=NOW)
    cost, rates = price.for_call(usage)

    assert cost == pytest.approx((600 * 1 + 400 * 0.5 + 100 * 2) / 1e6)
    assert (price.source, rates) == ("plan", {"input": 1, "cached": 0.5, "output": 2})
    assert price_of("scripted/ok", declared, at=NOW).source == "plan"


def test_a_declared_price_may_name_the_model_alone():
    assert price_of("openai/mine", {"mine": {"input": 1, "output": 0}}, at=NOW).for_call(MILLION)[0] == 1


@pytest.mark.parametrize(
    "name", ["scripted/x", "ollama/llama3:8b", "local/y", "replay/z", "openrouter/a/b:free"]
)
def test_what_runs_here_is_free(name):
    price = price_of(name, {}, at=NOW)
    assert (price.for_call(MILLION)[0], price.source) == (0.0, "free")


@pytest.mark.parametrize(
    "name", ["openai/never-heard-of", "acme/gpt-4o", "acme/x", "openai/text-embedding-3-small"]
)
def test_an_unknown_price_is_unknown_and_not_nothing(name):
    assert price_of(name, {}, at=NOW) is None


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("openai/gpt-4o", "openai"),
        ("anthropic/claude-sonnet-4-5", "anthropic"),
        ("gemini/gemini-2.5-pro", "google"),
        ("deepseek/deepseek-chat", "deepseek"),
        ("openrouter/openai/gpt-4o", "openrouter"),
    ],
)
@pytest.mark.parametrize("size", [10_000, 300_000])
def test_our_quick_sums_agree_with_the_table_itself(name, provider, size):
    import genai_prices

    usage = Usage(input_tokens=size, cached_tokens=size // 2, output_tokens=5000)
    theirs = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=size, cache_read_tokens=size // 2, output_tokens=5000),
        model_ref=name.partition("/")[2],
        provider_id=provider,
        genai_request_timestamp=NOW,
    )

    assert price_of(name, {}, at=NOW).for_call(usage)[0] == pytest.approx(float(theirs.total_price))


def test_a_long_prompt_is_charged_at_the_dearer_rate():
    price = price_of("anthropic/claude-sonnet-4-5", {}, at=NOW)
    assert price is not None
    short, dear = price.for_call(Usage(input_tokens=200_000)), price.for_call(Usage(input_tokens=200_001))
    assert dear[0] > 1.9 * short[0]
    assert dear[1]["input"] == 2 * short[1]["input"]


def test_many_short_calls_are_not_charged_as_one_long_one():
    price = price_of("anthropic/claude-sonnet-4-5", {}, at=NOW)
    assert price is not None
    one = price.for_call(Usage(input_tokens=3000, cached_tokens=1000, output_tokens=200))[0]
    together = Usage(input_tokens=300_000, cached_tokens=100_000, output_tokens=20_000)

    assert price.for_calls(100, together) == pytest.approx(100 * one)
    assert price.for_call(together)[0] > 1.5 * price.for_calls(100, together)
    assert price.for_calls(0, Usage()) == 0.0


THINKING, REASONING = {"thinking": {"budget_tokens": 5000}}, {"reasoning": {"max_tokens": 5000}}


@pytest.mark.parametrize(
    ("parameters", "limit", "lower", "limited"),
    [
        ({}, None, 300, {"max_tokens": 300}),
        ({"max_tokens": 900, "seed": 1}, 900, 300, {"max_tokens": 300, "seed": 1}),
        ({"max_completion_tokens": 800}, 800, 300, {"max_completion_tokens": 300}),
        ({"max_completion_tokens": "many"}, None, 300, {"max_completion_tokens": 300}),
        # The budget of reasoning is lowered with it.
        (THINKING, None, 4000, {"max_tokens": 4000, "thinking": {"budget_tokens": 3999}}),
        (
            {"thinking": {"budget_tokens": 3999}},
            None,
            4000,
            {"max_tokens": 4000, "thinking": {"budget_tokens": 3999}},
        ),
        (THINKING, None, 1024, {"max_tokens": 1024, "thinking": {"type": "disabled"}}),
        (
            {"reasoning": {"max_tokens": 4000}},
            None,
            4000,
            {"max_tokens": 4000, "reasoning": {"max_tokens": 3999}},
        ),
        (REASONING, None, 100, {"max_tokens": 100, "reasoning": {"enabled": False}}),
    ],
)
def test_the_limit_of_an_answer_is_lowered_where_it_is_set(parameters, limit, lower, limited):
    assert output_limit(parameters) == limit
    assert with_output_limit(parameters, lower) == limited


def test_loading_one_provider_gives_what_the_whole_table_gives():
    whole = get_snapshot()
    names = 0
    for provider in whole.providers:
        # Some providers offer the models of others as well.
        others = [other for other in whole.providers if other.id in (provider.fallback_model_providers or ())]
        models = [model.id for each in (provider, *others) for model in each.models]
        # Every fifth: all of them take five seconds.
        for name in [*models[::5], "no-such-model"]:
            try:
                expected = whole.find_provider_model(name, None, provider.id, None)[1]
            except LookupError:
                expected = None
            assert prices.find_model(provider.id, name) == expected
            names += 1
    assert names > 200


def test_a_provider_by_another_name_is_found_in_the_whole_table():
    assert prices.find_model("", "gpt-4o-mini").id == "gpt-4o-mini"
    assert prices.find_model("azure-openai", "gpt-4o-mini") is not None


def test_a_list_price_is_found_with_and_without_its_provider():
    known = listed_price("openai", "gpt-4o", at=NOW)
    assert known is not None and listed_price("", "openai/gpt-4o", at=NOW) == known
    assert listed_price("openai", "no-such-model", at=NOW) is None
    name = "anthropic.claude-3-5-sonnet-20240620-v1:0"
    assert listed_price("", name, at=NOW) == listed_price("aws", name, at=NOW) is not None
