"""promptfoo configurations: the same cells and assertions, and a list of what is not read."""

from pathlib import Path

import pytest

from proctor.evaluators.expect import split_list
from proctor.tasks.formats import read_task_set
from proctor.tasks.promptfoo import assertion_of, model_of


@pytest.mark.parametrize(
    ("prompts", "words", "names"),
    [
        ("[Hi]", "x", ["test-1"]),
        ("[Hi]", "[x, y]", ["test-1.1", "test-1.2"]),
        ("[{label: a, raw: Hi}, {label: b, raw: Ho}]", "x", ["test-1 / a", "test-1 / b"]),
        (
            "[{label: a, raw: Hi}, {label: b, raw: Ho}, {label: c, raw: Hu}]",
            "[x, y]",
            [f"test-1.{number} / {label}" for number in (1, 2) for label in "abc"],
        ),
    ],
)
def test_a_task_is_named_by_its_test_its_variables_and_its_prompt(
    prompts: str, words: str, names: list[str], tmp_path: Path
) -> None:
    text = f"prompts: {prompts}\nproviders: [echo]\ntests:\n  - vars: {{word: {words}}}\n"
    file = tmp_path / "promptfooconfig.yaml"
    file.write_text(text)
    assert [task.name for task in read_task_set(file).tasks] == names


def test_names_of_providers_and_cells() -> None:
    assert model_of("anthropic:messages:claude-x") == "anthropic/claude-x"
    assert model_of("google:gemini-x") == "gemini/gemini-x"
    assert model_of("http://host") == ""
    assert assertion_of("latency:") == {"type": "latency", "value": "", "threshold": 0.75}
    assert assertion_of("note: it") == {"type": "equals", "value": "note: it"}
    with pytest.raises(ValueError, match="no end"):
        split_list('"a, b')
