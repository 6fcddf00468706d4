"""promptfoo configurations: the same cells and assertions, and a list of what is not read."""

from pathlib import Path
from typing import Any

import pytest

from proctor.expect import split_list
from proctor.tasks.formats import read_task_set
from proctor.tasks.promptfoo import assertion_of, model_of
from proctor.tasks.task import ReadOptions

CONFIG = """prompts:
  - 'Say {{word}} in {{language}}'
  - {label: short, raw: '{{word}}!'}
providers:
  - openai:chat:gpt-4o-mini
  - {id: echo, label: mirror}
  - file://own_provider.py
defaultTest:
  vars: {language: French}
  assert:
    - {type: not-contains, value: sorry}
tests:
  - description: greeting
    vars: {word: [hello, bye]}
    assert:
      - {type: icontains, value: '{{word}}'}
      - type: javascript
        value: output.length > 3
  - vars: {word: cat, language: German}
    providers: [mirror]
    prompts: [short]
"""


def read(folder: Path, text: str = CONFIG, **options: Any) -> Any:
    file = folder / "promptfooconfig.yaml"
    file.write_text(text)
    return read_task_set(file, ReadOptions(**options))


def test_tests_times_variables_times_prompts_are_tasks_and_providers_are_models(tmp_path: Path) -> None:
    found = read(tmp_path)

    assert [task.prompt for task in found.tasks] == [
        "Say hello in French",
        "hello!",
        "Say bye in French",
        "bye!",
        "cat!",
    ]
    assert found.models == ("openai/gpt-4o-mini", "scripted/echo")
    assert [task.models for task in found.tasks] == [(), (), (), (), ("scripted/echo",)]
    assert found.tasks[2].expect["assert"]["assertions"] == [
        {"type": "not-contains", "value": "sorry"},
        {"type": "icontains", "value": "bye"},
    ]


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
    assert [task.name for task in read(tmp_path, text).tasks] == names


def test_what_has_no_equivalent_is_listed_by_name_and_line(tmp_path: Path) -> None:
    found = read(tmp_path)

    assert [(each.line, each.reason) for each in found.not_read] == [
        (7, "the provider `file://own_provider.py` has no equivalent"),
        (17, "the assertion `javascript` has no equivalent"),
    ]


def test_names_of_providers_and_cells() -> None:
    assert model_of("anthropic:messages:claude-x") == "anthropic/claude-x"
    assert model_of("google:gemini-x") == "gemini/gemini-x"
    assert model_of("http://host") == ""
    assert assertion_of("latency:") == {"type": "latency", "value": "", "threshold": 0.75}
    assert assertion_of("note: it") == {"type": "equals", "value": "note: it"}
    with pytest.raises(ValueError, match="no end"):
        split_list('"a, b')
