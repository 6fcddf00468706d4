"""A call of a model that is on the price list has that price; a call of any other stays unpriced."""

from datetime import UTC, datetime

import pytest

from proctor.batch.ingest import priced
from proctor.session import ModelCall, Session, Step, TimedEvent, Usage

NOW = datetime(2026, 5, 1, 14, 30, tzinfo=UTC)
TOKENS = Usage(input_tokens=1_000_000, output_tokens=1_000_000)


def call(model, provider="", **more):
    made = ModelCall(model=model, provider=provider, usage=more.pop("usage", TOKENS), **more)
    step = Step(events=[TimedEvent(event=made, at=NOW)])
    (found,) = priced(Session(external_id="s", source="otlp", steps=[step]), NOW).steps[0].events
    return found.event


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o-mini-2024-07-18", "openai"),
        ("gpt-4o-mini", ""),
        ("openai/gpt-4o-mini", ""),
        ("openai/gpt-4o-mini", "openai"),
        ("gpt-4o-mini", "azure.ai.openai"),
        ("gpt-4o-mini", "strands-agents"),
    ],
)
def test_a_model_on_the_list_is_priced_under_any_of_its_names(model, provider):
    found = call(model, provider)

    assert found.cost_usd == pytest.approx(0.15 + 0.60)
    assert found.price_source.startswith("genai-prices ")
    assert (found.price["input"], found.price["output"]) == (0.15, 0.60)


@pytest.mark.parametrize(("model", "provider"), [("mine-7b", ""), ("mine-7b", "openai"), ("gpt-4o", "mine")])
def test_a_model_nobody_knows_stays_unpriced(model, provider):
    found = call(model, provider)

    assert (found.cost_usd, found.price_source) == (None, "")


@pytest.mark.parametrize("provider", ["", "strands-agents", "aws"])
def test_a_model_of_bedrock_is_priced_whatever_the_framework_calls_its_provider(provider):
    found = call("us.anthropic.claude-sonnet-4-20250514-v1:0", provider)

    assert found.cost_usd == pytest.approx(3.0 + 15.0, rel=0.2)


def test_a_model_of_vertex_is_priced_under_its_full_name():
    full = "projects/shop/locations/europe-central2/publishers/google/models/gemini-2.5-flash"

    assert call(full, "google").cost_usd == call("gemini-2.5-flash", "google").cost_usd > 0
