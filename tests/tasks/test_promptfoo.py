"""promptfoo configurations: the same cells and assertions, and a list of what is not read."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.expect import AnswerFacts, check_assertion, check_group, split_list
from proctor.model import Answer, Request
from proctor.runners._judging import facts_of
from proctor.session import ModelCall
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


@pytest.mark.parametrize(
    ("assertion", "answer", "passes"),
    [
        ({"type": "equals", "value": "a"}, "a ", False),
        ({"type": "equals", "value": {"a": 1}}, '{"a": 1}', True),
        ({"type": "contains", "value": 4}, "it is 42", True),
        ({"type": "contains-any", "value": '"a, b", c'}, "c", True),
        ({"type": "contains-all", "value": "x, y"}, "just x", False),
        ({"type": "icontains-all", "value": ["X", "y"]}, "x Y", True),
        ({"type": "not-icontains", "value": "no"}, "NO", False),
        ({"type": "regex", "value": "(?<n>\\d+)$"}, "42\n", False),
        ({"type": "regex", "value": "(?<n>\\d+)$"}, "is 42", True),
        ({"type": "not-regex", "value": "("}, "anything", False),
        ({"type": "is-json"}, '```json\n{"a": 1}\n```', False),
        ({"type": "contains-json", "value": {"required": ["a"]}}, 'so: {"b": 1} or {"a": 1}', True),
        ({"type": "is-json", "value": {"type": "object", "required": ["a"]}}, '{"b": 1}', False),
        ({"type": "word-count", "value": {"min": 2, "max": 3}}, "one two three", True),
        ({"type": "levenshtein", "value": "kitten", "threshold": 2}, "sitting", False),
        ({"type": "levenshtein", "value": "kitten", "threshold": 3}, "sitting", True),
        ({"type": "latency", "threshold": 100}, "", True),
        ({"type": "cost", "threshold": 1}, "", False),
        ({"type": "is-refusal"}, "I’m sorry, but I cannot", True),
        ({"type": "is-xml", "value": "a.b"}, "<a><b/></a>", True),
        ({"type": "starts-with", "value": "Yes"}, "No. Yes", False),
        ({"type": "min-length", "value": 1}, "long", False),
    ],
)
def test_assertions_mean_what_they_mean_there(assertion: Any, answer: str, passes: bool) -> None:
    facts = AnswerFacts(latency_ms=99.0)

    assert check_assertion(assertion, answer, facts).passed is passes


def test_the_score_is_the_weighted_mean_and_a_threshold_replaces_all_must_pass() -> None:
    assertions = [{"type": "contains", "value": "a", "weight": 3}, {"type": "contains", "value": "b"}]
    whole, _ = check_group({"assertions": assertions}, "a", AnswerFacts())
    enough, _ = check_group({"assertions": assertions, "threshold": 0.75}, "a", AnswerFacts())
    measured, _ = check_group({"assertions": [{**assertions[1], "weight": 0}]}, "a", AnswerFacts())

    assert (whole.passed, whole.score) == (False, 0.75)
    assert (enough.passed, enough.score) == (True, 0.75)
    assert measured.passed


def test_names_of_providers_and_cells() -> None:
    assert model_of("anthropic:messages:claude-x") == "anthropic/claude-x"
    assert model_of("google:gemini-x") == "gemini/gemini-x"
    assert model_of("http://host") == ""
    assert assertion_of("latency:") == {"type": "latency", "value": "", "threshold": 0.75}
    assert assertion_of("note: it") == {"type": "equals", "value": "note: it"}
    with pytest.raises(ValueError, match="no end"):
        split_list('"a, b')


class Judge:
    """Answers every request with the same text."""

    def __init__(self, text: str) -> None:
        self.text, self.requests = text, list[Request]()

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        return Answer(text=self.text, call=ModelCall(model=request.model))


@pytest.mark.parametrize(
    ("verdict", "threshold", "passes"),
    [
        ('Sure: {"reason": "r", "score": 0.9, "pass": true}', None, True),
        ('{"reason": "r", "score": 0.9, "pass": false}', None, False),
        ('{"score": 0.6}', 0.7, False),
        ("no JSON at all", None, False),
    ],
)
async def test_a_rubric_is_judged_by_the_named_model(
    verdict: str, threshold: float | None, passes: bool
) -> None:
    judge = Judge(verdict)
    rubric = {"type": "llm-rubric", "value": "is polite", "judge": "openai/judge"}
    group = {"assertions": [rubric if threshold is None else {**rubric, "threshold": threshold}]}
    answer = Answer(text="Dear all", call=ModelCall(model="m"))
    services: Any = SimpleNamespace(models=judge, record=lambda event: None)

    facts = await facts_of(group, answer, services)

    assert check_group(group, "Dear all", facts)[0].passed is passes
    assert judge.requests[0].model == "openai/judge"
    assert "Dear all" in judge.requests[0].messages[0]["content"]
