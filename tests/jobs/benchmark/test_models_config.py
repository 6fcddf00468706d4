"""What models_config.yaml says."""

from pathlib import Path

import pytest

from proctor.errors import PlanError
from proctor.jobs.benchmark.models import ModelsConfig, read_models_config

SAMPLE = Path(__file__).parents[3] / "examples" / "benchmark" / "models_config.yaml"


def read(text: str) -> ModelsConfig:
    return read_models_config(text, file="models_config.yaml")


def problem(text: str) -> str:
    with pytest.raises(PlanError) as caught:
        read(text)
    return str(caught.value)


def test_the_sample_enables_nothing_and_has_the_documented_categories() -> None:
    sample = read_models_config(SAMPLE.read_bytes(), file=str(SAMPLE))

    assert [one.name for one in sample.models] == ["gpt-4", "claude-3-opus", "gemini-1.5-pro"]
    assert not any(one.is_enabled for one in sample.models)
    assert set(sample.categories) == {"fast", "balanced", "powerful", "coding_specialized"}


def test_every_field_of_a_model_means_something() -> None:
    (model,) = read(
        """
models:
  - name: gpt-4
    provider: openai
    display_name: GPT-4
    api_key: ${MY_KEY}
    base_url: http://127.0.0.1:1/v1
    settings: {temperature: 0.7}
    price: {input: 0, output: 2}
"""
    ).models

    assert (model.name, model.model, model.display_name) == ("gpt-4", "openai/gpt-4", "GPT-4")
    assert (model.key_variable, model.base_url) == ("MY_KEY", "http://127.0.0.1:1/v1")
    assert model.settings == {"temperature": 0.7}
    assert model.price == {"input": 0, "output": 2}
    assert model.is_enabled


@pytest.mark.parametrize(
    ("models", "names"),
    [
        # Providers may be called as others call them, models of this machine as they are found.
        ("{name: gemini-1.5-pro, provider: google}", [("gemini-1.5-pro", "gemini/gemini-1.5-pro")]),
        (
            "{name: mixtral, provider: ollama}, {name: ollama/phi, provider: ollama}",
            [("ollama/mixtral", "ollama/mixtral"), ("ollama/phi", "ollama/phi")],
        ),
        # One name at two providers is two models.
        (
            "{name: llama, provider: groq}, {name: llama, provider: together}",
            [("groq/llama", "groq/llama"), ("together/llama", "together/llama")],
        ),
    ],
)
def test_a_model_is_named_by_its_provider_where_it_must_be(models: str, names: list[tuple[str, str]]) -> None:
    assert [(one.name, one.model) for one in read(f"models: [{models}]").models] == names


def test_settings_have_the_documented_defaults() -> None:
    settings = read("models: []").settings

    assert (settings.default_timeout, settings.max_parallel, settings.max_retries) == (1800, 3, 2)
    assert (settings.save_intermediate, settings.retry_on_failure) == (True, False)
    assert settings.show_progress is True
    assert read("# nothing yet\n") == ModelsConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [{provider: openai}]", "model 1 has no `name`"),
        ("models: [{name: x, providr: openai}]", "Did you mean `provider`?"),
        ("models: [{name: x, enabled: maybe}]", "`enabled` of model 1 should be true or false"),
        ("models: [{name: 'x y'}]", "`name` of model 1 should be 1 to 256"),
        ("models: [{name: x, provider: a}, {name: x, provider: a}]", "the model `x` is given twice"),
        (
            "models: [{name: x, provider: a, api_key: '${K}'}, {name: y, provider: a, api_key: '${L}'}]",
            "two different values for `api_key`",
        ),
        ("models: [{name: x, api_key: '${K}'}]", "has `api_key`, but no `provider`"),
        ("batch_settings: {max_parallel: 0}", "should be at least 1"),
        ("categories: {fast: gpt-4}", "should be a list"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(text: str, said: str) -> None:
    assert said in problem(text)


def test_a_key_that_is_written_out_is_refused_and_never_shown() -> None:
    said = problem("models:\n  - name: x\n    provider: openai\n    api_key: sk-secret-secret\n")

    assert "models_config.yaml:4:14" in said and "never the key" in said
    assert "sk-secret" not in said


def test_a_training_cutoff_is_a_month_or_a_day() -> None:
    models = read("models: [{name: a, cutoff: '2025-03'}, {name: b, cutoff: '2025-03-10'}, {name: c}]").models

    assert [one.cutoff for one in models] == ["2025-03-31", "2025-03-10", ""]
    assert "as '2024-06' or '2024-06-30'" in problem("models: [{name: a, cutoff: spring}]")
    assert read("models: [{name: a, cutoff: 2025-03-10}]").models[0].cutoff == "2025-03-10"
