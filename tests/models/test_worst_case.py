"""What a request can cost at most, by its parts; what has no bound is refused."""

import base64
import random
from datetime import UTC, datetime

import pytest

from proctor.model import WireAnswer
from proctor.models.prices import Price, Rates, SpendingRequest, price_of, usual_limit
from proctor.models.providers import Endpoint
from proctor.models.worst_case import billed_usage, estimated_tokens, with_tool_limits, worst_case_of
from proctor.session import Usage

DOLLAR = Price("plan", Rates(1.0, 1.0, 1.0, 10.0))
TEXT = {"messages": [{"role": "user", "content": "Hello."}]}
OPENAI = Endpoint(provider="openai", model="gpt-4o", base_url="https://api.openai.com/v1", wire="openai")


def message(*parts):
    return {"messages": [{"role": "user", "content": list(parts)}]}


def worst(body, model="openai/gpt-4o", *, limit=100, price=DOLLAR, endpoint=OPENAI):
    return worst_case_of(model, body, limit, price, endpoint=endpoint)


PIXELS = "data:image/png;base64," + "A" * 300_000
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0"}


@pytest.mark.parametrize(
    ("model", "body", "tokens"),
    [
        ("openai/gpt-4o", message({"type": "image_url", "image_url": {"url": PIXELS}}), 1445),
        ("openai/gpt-4o", message({"type": "image_url", "image_url": {"url": "https://x.invalid/a"}}), 1445),
        ("openai/gpt-4o-mini", message({"type": "image_url", "image_url": {"url": PIXELS}}), 48_169),
        ("acme/unknown", message({"type": "image_url", "image_url": {"url": PIXELS}}), 48_169),
        ("openai/gpt-5-mini", {"input": [{"content": [{"type": "input_image", "image_url": PIXELS}]}]}, 3779),
        (
            "anthropic/claude-sonnet-4-5",
            message({"type": "tool_result", "content": [{"type": "image", "source": {"data": PIXELS}}]}),
            4784,
        ),
        ("anthropic/claude-sonnet-4-5", message({"type": "document", "source": PDF}), 200_000),
        ("openai/gpt-4o", message({"type": "file", "file": {"file_data": PIXELS}}), 128_000),
        ("openai/gpt-4o", {"input": [{"content": [{"type": "input_file", "file_id": "f"}]}]}, 128_000),
        (
            "gemini/gemini-2.5-pro",
            {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": PIXELS}}]}]},
            4128,
        ),
        (
            "anthropic/claude-sonnet-4-5",
            message({"type": "document", "source": {"type": "text", "data": "word " * 600}}),
            1000,
        ),
        # By what the data is, wherever it stands.
        (
            "openai/gpt-4o",
            message({"type": "image_url", "image_url": {"url": "data:application/pdf;base64,JVBE"}}),
            128_000,
        ),
        # What the provider has stored is read by its ID.
        ("openai/gpt-5", {"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, 128_000),
        ("openai/gpt-5", {"input": [{"type": "reasoning", "id": "r"}] * 9}, 1_050_000),
        ("openai/gpt-5", {"input": [{"type": "web_search_call", "id": "ws_1"}]}, 8000),
        # Not an image because of its name or length: text is counted by its size.
        ("openai/gpt-4o", message({"type": "text", "text": "A" * 30_000}), 10_000),
        ("openai/gpt-4o", {"tools": [{"type": "function", "function": {"data": "A" * 30_000}}]}, 10_550),
    ],
)
def test_images_and_documents_count_at_the_maximum_of_the_provider(model, body, tokens):
    assert worst(body, model).input_tokens == pytest.approx(tokens, abs=120)
    assert worst(body, model).refusal == ""


def test_data_without_words_has_more_tokens_than_text_of_its_size():
    data = base64.b64encode(random.Random(0).randbytes(9000)).decode()
    assert worst(message({"type": "text", "text": data})).input_tokens > 9000


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (message({"type": "input_audio", "input_audio": {}}), "`input_audio`"),
        (message({"type": "video_url", "video_url": {}}), "`video_url`"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "`item_reference`"),
        ({"contents": [{"parts": [{"fileData": {"fileUri": "gs://x"}}]}]}, "`fileData`"),
        ({"contents": [{"parts": [{"inlineData": {"mimeType": "audio/wav"}}]}]}, "`audio data`"),
        (TEXT | {"previous_response_id": "r"}, "`previous_response_id`"),
        (TEXT | {"conversation": {"id": "c"}}, "`conversation`"),
        (TEXT | {"prompt": {"id": "p"}}, "`prompt`"),
        ({"cachedContent": "c"}, "`cachedContent`"),
        (TEXT | {"modalities": ["text", "audio"]}, "`modalities`"),
        (TEXT | {"web_search_options": {"search_context_size": "high"}}, "`web_search_options`"),
        (TEXT | {"plugins": [{"id": "web"}]}, "`plugins`"),
        (TEXT | {"service_tier": "turbo"}, "`service_tier`"),
        (TEXT | {"models": ["acme/dear"]}, "`models`"),
        (TEXT | {"fallbacks": ["acme/dear"]}, "`fallbacks`"),
        (TEXT | {"provider": {"order": ["acme"]}}, "`provider`"),
        (TEXT | {"num_retries": 3}, "`num_retries`"),
        (message({"type": "image_url", "image_url": {"url": "data:Video/mp4;base64,AA"}}), "`video data`"),
        (message({"type": "file", "file": {"file_data": "data:audio/wav;base64,AA"}}), "`audio data`"),
        (message({"type": "image", "source": {"type": "base64", "media_type": "video/mp4"}}), "`video data`"),
        ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "`generationConfig.responseModalities`"),
        (TEXT | {"tools": [{"type": "image_generation"}]}, "`image_generation`"),
        (TEXT | {"tools": [{"type": "code_interpreter"}]}, "`code_interpreter`"),
        (TEXT | {"tools": [{"type": "file_search"}]}, "`file_search`"),
        (TEXT | {"tools": [{"type": "mcp", "server_url": "x"}]}, "`mcp`"),
        (TEXT | {"tools": [{"type": "code_execution_20250522"}]}, "`code_execution_20250522`"),
        (TEXT | {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "`shell`"),
        ({"tools": [{"googleSearch": {}}]}, "`googleSearch`"),
        ({"tools": [{"functionDeclarations": [], "codeExecution": {}}]}, "`codeExecution`"),
        (TEXT | {"context_management": {"edits": [{"type": "compact_20260112"}]}}, "`context_management`"),
    ],
)
def test_what_has_no_known_price_is_named(body, named):
    assert named in worst(body).refusal


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-4o-search-preview",
        "openai/o3-deep-research",
        "perplexity/sonar",
        "openai/gpt-4o-audio-preview",
        "gemini/gemini-2.5-flash-image",
    ],
)
def test_a_model_that_bills_more_than_tokens_needs_a_declared_price(model):
    listed = price_of(model, {}, at=datetime(2026, 11, 1, tzinfo=UTC))
    assert listed is not None and model in worst(TEXT, model, price=listed).refusal
    assert worst(TEXT, model).refusal == ""


def test_parameters_that_a_library_puts_in_place_of_others_are_refused():
    body = TEXT | {"extra_body": {"max_tokens": 100_000}}
    assert "`extra_body`" in worst(body, "litellm/acme/x", endpoint=None).refusal
    assert worst(body).refusal == ""


@pytest.mark.parametrize(
    "body",
    [
        TEXT | {"tools": [{"type": "function", "function": {"name": "f"}}]},
        TEXT | {"tools": [{"name": "f", "input_schema": {"properties": {"file": {"type": "file"}}}}]},
        TEXT | {"tools": [{"type": "bash_20250124", "name": "bash"}, {"type": "custom", "name": "c"}]},
        TEXT | {"tools": [{"type": "local_shell"}, {"type": "apply_patch"}, {"type": "shell"}]},
        {"tools": [{"functionDeclarations": [{"name": "f"}]}]},
        TEXT | {"tools": [{"function": {"name": "f"}}, {"input_schema": {}}, {"name": "f"}]},
        TEXT | {"previous_response_id": None, "modalities": ["text"], "service_tier": "default"},
        {"input": [{"type": "reasoning", "encrypted_content": "x"}, {"role": "user", "content": "Hi."}]},
        message({"type": "tool_use", "input": {"type": "video"}}, {"type": "thinking", "thinking": "Hm."}),
    ],
)
def test_what_agents_usually_send_is_priced(body):
    assert worst(body).refusal == ""


def test_writing_to_the_cache_for_an_hour_costs_twice_the_input():
    price = price_of("anthropic/claude-x", {"claude-x": {"input": 1.0, "output": 0.0}}, at=None)
    usual = message({"type": "text", "text": "word " * 3000, "cache_control": {"type": "ephemeral"}})
    hour = message({"type": "text", "text": "word " * 3000, "cache_control": {"ttl": "1h"}})
    assert worst(usual, price=price).input_usd == pytest.approx(1.25 * 5033e-6, rel=0.01)
    assert worst(hour, price=price).input_usd == pytest.approx(2 * 5033e-6, rel=0.01)
    written = Usage(input_tokens=300, cache_write_tokens=300, long_cache_write_tokens=100)
    assert price.for_call(written)[0] == pytest.approx((200 * 1.25 + 100 * 2) / 1e6)


@pytest.mark.parametrize(
    ("endpoint", "more", "margin"),
    [
        (OPENAI, {}, 0),
        (None, {}, 16_384),
        (Endpoint(provider="openai", model="m", base_url="http://127.0.0.1:1/v1", wire="openai"), {}, 16_384),
        (Endpoint(provider="xai", model="m", base_url="https://api.x.ai/v1", wire="openai"), {}, 16_384),
        (None, {"n": 2}, 2 * 16_384),
        (None, {"reasoning": {"max_tokens": 2000}}, 2000),
        (None, {"reasoning_effort": "none"}, 0),
        (None, {"reasoning": {"enabled": False}}, 0),
        (None, {"thinking": {"type": "disabled"}}, 0),
        (None, {"chat_template_kwargs": {"enable_thinking": False}}, 0),
    ],
)
def test_reasoning_is_reserved_for_where_limits_may_not_include_it(endpoint, more, margin):
    assert worst(TEXT | more, "acme/m", endpoint=endpoint).margin_usd == pytest.approx(margin * 10 / 1e6)


def test_the_limit_of_a_request_without_one_is_to_be_sent():
    without = worst(TEXT, limit=None)
    assert (without.sets_limit, without.output_tokens) == (True, 16_384)
    assert not worst(TEXT).sets_limit


def test_limits_of_tools_that_the_provider_runs_are_sent_with_the_request():
    searching = {"tools": [{"type": "web_search_20250305"}, {"type": "web_fetch_1", "max_uses": 9}]}
    assert with_tool_limits(TEXT | searching)["tools"] == [
        {"type": "web_search_20250305", "max_uses": 3},
        {"type": "web_fetch_1", "max_uses": 9, "max_content_tokens": 20_000},
    ]
    responses = {"input": "Hi.", "tools": [{"type": "web_search"}]}
    assert with_tool_limits(responses)["max_tool_calls"] == 3
    assert with_tool_limits(responses | {"max_tool_calls": 1})["max_tool_calls"] == 1
    # The limit that is reserved is the limit that is sent, also for a client that names a higher one.
    assert with_tool_limits(responses | {"max_tool_calls": 100})["max_tool_calls"] == 3
    assert with_tool_limits(TEXT) is TEXT


@pytest.mark.parametrize(
    ("usage", "output_tokens", "is_estimated"),
    [
        (Usage(input_tokens=9, output_tokens=5000), 5000, False),
        (Usage(input_tokens=9, output_tokens=0), 2, True),
        (Usage(input_tokens=9, output_tokens=10**9), 2, True),
        (Usage(input_tokens=9, output_tokens=5, cache_write_tokens=10), 5, True),
        (Usage(), 2, True),
    ],
)
def test_usage_counts_as_reported_unless_it_is_impossible(usage, output_tokens, is_estimated):
    billed, estimated = billed_usage(WireAnswer("Hello.", usage), TEXT | {"max_tokens": 100})
    assert (billed.output_tokens, billed.cache_write_tokens, estimated) == (output_tokens, 0, is_estimated)


def test_the_length_of_answers_that_money_pays_for():
    request = {"model": "m", "input_tokens": 10, "output_tokens": 100, "input_usd": 1.0}
    priced = SpendingRequest(**request, output_usd_per_token=0.01, answers=2)
    assert priced.cost_usd == 1 + 2 * 100 * 0.01
    assert (priced.affordable_tokens(2.0), priced.affordable_tokens(1.0)) == (50, 0)
    free = SpendingRequest(**request, output_usd_per_token=0.0)
    assert (free.cost_usd, free.affordable_tokens(5)) == (1.0, 0)
    unknown = SpendingRequest(**request | {"input_usd": None}, output_usd_per_token=0.01)
    assert (unknown.cost_usd, unknown.affordable_tokens(5)) == (None, 0)
    assert SpendingRequest(**request, output_usd_per_token=None).cost_usd is None


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("anthropic/claude-3-opus-20240229", 4096),
        ("anthropic/claude-3-5-sonnet", 8192),
        ("anthropic/claude-sonnet-4", 64_000),
        ("openrouter/openai/gpt-5-mini", 128_000),
        ("openai/o3", 100_000),
        ("openai/gpt-4.1-nano", 32_768),
        ("gemini/gemini-2.5-pro", 65_536),
        ("mistral/mistral-large", 16_384),
    ],
)
def test_the_longest_answer_of_a_family_of_models(model, tokens):
    assert usual_limit(model) == tokens


def test_a_picture_is_not_counted_by_its_bytes():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000_000}}
    assert estimated_tokens({"messages": [{"content": [picture]}]}) == 2021


def test_a_predicted_output_may_be_billed_once_more_for_each_answer():
    predicted = TEXT | {"n": 2, "prediction": {"type": "content", "content": "x" * 30_000}}
    spent = worst(predicted).input_usd - worst(predicted).input_tokens / 1e6
    assert spent == pytest.approx(2 * 10_000 * 10 / 1e6, rel=0.01)
