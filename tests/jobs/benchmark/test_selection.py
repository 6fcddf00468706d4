"""Which models the words on a command line mean."""

import pytest

from proctor.errors import UsageError
from proctor.jobs.benchmark.models import Candidate, ModelSupply, choose, read_models_config

OLLAMA = [
    "ollama/llama3:latest",
    "ollama/llama3:70b",
    "ollama/mistral:7b",
    "ollama/mistral-nemo:latest",
    "ollama/codellama:13b",
    "ollama/codellama:34b",
]
HERE = [
    Candidate(name="gpt-4", model="openai/gpt-4", display_name="GPT-4"),
    Candidate(name="opus", model="anthropic/claude-3-opus", is_enabled=False),
    *(Candidate(name=name, model=name) for name in OLLAMA),
    Candidate(name="openai/gpt-4o", model="openai/gpt-4o", is_usual=False),
    Candidate(name="ollama/gone", model="ollama/gone", missing="is not in the running Ollama"),
]
CATEGORIES = {"fast": ["ollama/mistral", "gpt-4", "nowhere", "opus"], "none": ["nowhere"]}


def other(word: str) -> Candidate | None:
    known = ("claude-3-haiku", "groq/kimi")
    return Candidate(name=word, model=word) if word in known else None


def names(words: str) -> list[str]:
    return [model.name for model in choose(words, HERE, CATEGORIES, other).models]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("gpt-4", ["gpt-4"]),
        ("GPT-4", ["gpt-4"]),
        ("openai/gpt-4", ["gpt-4"]),
        ("llama3", ["ollama/llama3:latest"]),
        ("llama3:70b", ["ollama/llama3:70b"]),
        ("ollama/llama3", ["ollama/llama3:latest"]),
        ("mistral", ["ollama/mistral:7b"]),
        ("nemo", ["ollama/mistral-nemo:latest"]),
        ("gpt-4o", ["openai/gpt-4o"]),
        ("groq/kimi", ["groq/kimi"]),
        ("claude-3-haiku", ["claude-3-haiku"]),
        ("opus", ["opus"]),
        ("llama3, llama3,gpt-4", ["ollama/llama3:latest", "gpt-4"]),
        ("fast,llama3:70b", ["ollama/mistral:7b", "gpt-4", "ollama/llama3:70b"]),
    ],
)
def test_a_word_means_the_nearest_model(words: str, meant: list[str]) -> None:
    assert names(words) == meant


def test_all_are_those_of_this_machine_and_those_that_are_enabled() -> None:
    assert names("all") == ["gpt-4", *OLLAMA]


def test_members_of_a_category_that_are_not_here_are_remarked_on() -> None:
    remarks = choose("fast", HERE, CATEGORIES, other).remarks

    assert remarks == (
        "of the category fast, nowhere was not found",
        "of the category fast, opus is not enabled",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("codellama", "may be several models: ollama/codellama:13b, ollama/codellama:34b"),
        ("mistrl", "Did you mean `ollama/mistral:7b`"),
        ("fst", "Did you mean `fast`"),
        ("ollama/gone", "the model ollama/gone is not in the running Ollama"),
        ("none", "none of the models in the category none is here: nowhere"),
        (",", "no models were found"),
    ],
)
def test_a_word_that_means_nothing_or_several_things_is_refused_with_what_is_near(words, said):
    with pytest.raises(UsageError) as caught:
        names(words)

    assert said in str(caught.value)


def test_an_entry_whose_provider_is_not_known_disables_itself_with_a_word() -> None:
    config = read_models_config(
        "models:\n- {name: command-r, provider: cohere}\n- {name: gpt-4, provider: openai}\n", file="m.yaml"
    )
    supply = ModelSupply(config=config, config_path=None, environment={}, variables={}, prices={})

    chosen = choose("all", supply.candidates(), {}, other)

    assert [model.name for model in chosen.models] == ["gpt-4"]
    (remark,) = chosen.remarks
    assert remark.startswith("command-r is left out: it cannot be called here: there is no provider `cohere`")
    with pytest.raises(UsageError, match="cannot be called here"):
        choose("command-r", supply.candidates(), {}, other)
