"""Which provider a name means."""

import pytest

from proctor.errors import NotFound
from proctor.models.providers import find_endpoint
from proctor.secrets import is_loopback


@pytest.mark.parametrize(
    ("name", "provider", "model"),
    [
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("o3-mini", "openai", "o3-mini"),
        ("o3", "openai", "o3"),
        ("claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        ("grok-4", "xai", "grok-4"),
        ("openrouter/meta/llama:free", "openrouter", "meta/llama:free"),
        ("ollama/llama3.2:3b", "ollama", "llama3.2:3b"),
    ],
)
def test_a_name_finds_its_provider(name, provider, model):
    found = find_endpoint(name, {})
    assert (found.provider, found.model) == (provider, model)


@pytest.mark.parametrize(
    ("variable", "value", "name", "base"),
    [
        ("OPENAI_BASE_URL", "http://10.0.0.1:8000/v1/", "gpt-4o", "http://10.0.0.1:8000/v1"),
        ("ANTHROPIC_BASE_URL", "http://10.0.0.1/v1", "claude-x", "http://10.0.0.1"),
        ("OLLAMA_HOST", "0.0.0.0:11500", "ollama/a", "http://127.0.0.1:11500/v1"),
        ("OLLAMA_HOST", "box", "ollama/a", "http://box:11434/v1"),
        ("OLLAMA_HOST", ":11500", "ollama/a", "http://127.0.0.1:11500/v1"),
        ("OLLAMA_HOST", "http://box:11500/below/", "ollama/a", "http://box:11500/below/v1"),
        ("OLLAMA_HOST", "https://box.example", "ollama/a", "https://box.example/v1"),
        ("OLLAMA_BASE_URL", "https://box.example/v1", "ollama/a", "https://box.example/v1"),
        ("OLLAMA_HOST", "::", "ollama/a", "http://[::1]:11434/v1"),
        ("OLLAMA_HOST", "[::]:11500", "ollama/a", "http://[::1]:11500/v1"),
        ("OLLAMA_HOST", "box:port", "ollama/a", "http://box:port/v1"),
        ("ACME_AI_BASE_URL", "https://acme.example/v1/", "acme-ai/m", "https://acme.example/v1"),
    ],
)
def test_the_environment_says_where_a_provider_is(variable, value, name, base):
    assert find_endpoint(name, {variable: value}).base_url == base


def test_a_model_nobody_has_is_not_found_and_near_names_are_offered():
    with pytest.raises(NotFound, match="did you mean `openai`") as raised:
        find_endpoint("opnai/gpt-4o", {})
    assert "anthropic" in str(raised.value) and "PROCTOR_DEFAULT_PROVIDER" in str(raised.value)
    with pytest.raises(NotFound, match="no provider has a model `frobnicator`"):
        find_endpoint("frobnicator", {})
    with pytest.raises(NotFound):
        find_endpoint("", {"PROCTOR_DEFAULT_PROVIDER": "openai"})


@pytest.mark.parametrize("name", ["gpt-oss-20b", "llama-3.1-8b", "deepseek-chat", "mistral-large-latest"])
def test_a_bare_name_that_several_have_is_refused_with_the_choices(name):
    with pytest.raises(NotFound, match=f"`{name}` is ambiguous") as raised:
        find_endpoint(name, {})
    assert f"`groq/{name}`" in str(raised.value) and f"`ollama/{name}`" in str(raised.value)
    assert find_endpoint(name, {"PROCTOR_DEFAULT_PROVIDER": "together"}).provider == "together"


def test_a_name_that_says_too_little_is_told_what_it_lacks():
    with pytest.raises(NotFound, match="`openai/` does not name a model"):
        find_endpoint("openai/", {})
    with pytest.raises(NotFound, match="write `litellm/bedrock/claude`"):
        find_endpoint("bedrock/claude", {})


def test_the_default_provider_takes_what_nobody_claims_whole():
    environment = {"PROCTOR_DEFAULT_PROVIDER": "openrouter"}
    found = find_endpoint("meta-llama/llama-4", environment)
    assert (found.provider, found.model) == ("openrouter", "meta-llama/llama-4")
    assert find_endpoint("openai/gpt-4o", environment).provider == "openai"
    with pytest.raises(NotFound, match="PROCTOR_DEFAULT_PROVIDER"):
        find_endpoint("x/y", {"PROCTOR_DEFAULT_PROVIDER": "nowhere"})


def test_a_missing_key_is_named_unless_the_server_is_on_this_machine():
    assert find_endpoint("gpt-4o", {}).missing_key == "OPENAI_API_KEY"
    assert find_endpoint("gpt-4o", {"OPENAI_API_KEY": "k"}).missing_key is None
    assert find_endpoint("gpt-4o", {"OPENAI_BASE_URL": "http://localhost:1/v1"}).missing_key is None
    assert find_endpoint("ollama/x", {}).missing_key is None
    assert find_endpoint("gemini/x", {"GOOGLE_API_KEY": "k"}).key == "k"


@pytest.mark.parametrize("name", ["ollama", "vllm", "lmstudio", "local", "acme"])
def test_a_server_of_ones_own_is_asked_without_a_key_or_with_the_one_that_is_set(name):
    environment = {f"{name.upper()}_BASE_URL": "http://box.example:8000/v1"}
    assert find_endpoint(f"{name}/x", environment).missing_key is None
    assert find_endpoint(f"{name}/x", {**environment, f"{name.upper()}_API_KEY": "k"}).key == "k"


def test_a_key_is_not_in_what_an_endpoint_prints():
    assert "secret" not in repr(find_endpoint("gpt-4o", {"OPENAI_API_KEY": "secret"}))


def test_only_this_machine_is_loopback():
    assert is_loopback("http://127.0.0.2:80") and is_loopback("http://[::1]:80")
    assert is_loopback("http://localhost")
    assert not is_loopback("http://localhost.example.org") and not is_loopback("http://10.0.0.1")


ROUTER = {"OPENROUTER_API_KEY": "or-0123456789abcdef"}


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("openai/gpt-4o", "openai/gpt-4o"),
        ("gpt-4o", "openai/gpt-4o"),
        ("gemini/gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("alibaba/qwen3-coder", "qwen/qwen3-coder"),
        ("cohere/command-r", "cohere/command-r"),
    ],
)
def test_vendors_are_called_over_openrouter_where_its_key_is_the_only_one(name, model):
    found = find_endpoint(name, ROUTER)
    assert (found.provider, found.model, found.missing_key) == ("openrouter", model, None)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("openai/gpt-4o", {"OPENAI_API_KEY": "sk"}),
        ("openai/gpt-4o", {"ANTHROPIC_API_KEY": "sk"}),
        ("openai/gpt-4o", {"OPENAI_API_BASE": "http://10.0.0.1/v1"}),
        ("ollama/llama3", {}),
        ("groq/llama3", {}),
    ],
)
def test_otherwise_a_model_goes_to_its_own_provider(name, more):
    assert find_endpoint(name, {**ROUTER, **more}).provider == name.partition("/")[0]


def test_a_misspelled_provider_is_refused_even_then():
    with pytest.raises(NotFound, match="did you mean `openai`"):
        find_endpoint("opnai/gpt-4o", ROUTER)
