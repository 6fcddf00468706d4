"""The page on evaluators says what they are: its definitions can be used, its tables are complete."""

import re
from pathlib import Path

import pytest
import yaml
from judged_sessions import Judge, weather

from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.definition import problems_of
from proctor.evaluators.judging import PLACEHOLDERS
from proctor.evaluators.registry import EvaluationSettings, builtin_names, evaluator_of

PAGE = (Path(__file__).parents[2] / "docs" / "evaluators.md").read_text(encoding="utf-8")
DEFINITIONS = re.findall(r"^```yaml evaluator\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", DEFINITIONS)
def test_definitions_in_the_manual_have_no_problems(text):
    assert problems_of(yaml.safe_load(text)) == []


def test_the_manual_has_a_definition_of_each_kind():
    kinds = {kind for text in DEFINITIONS for kind in yaml.safe_load(text)["evaluatorConfig"]}

    assert kinds == {"llmAsAJudge", "derived", "codeBased"}


async def test_the_function_in_the_manual_works(tmp_path):
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "checks.py").write_text(source)
    (definition,) = (yaml.safe_load(text) for text in DEFINITIONS if "function:" in text)

    judging = evaluator_of(definition, models=Judge(""), settings=EvaluationSettings(folder=tmp_path))
    (score,) = await judging.judge(weather())

    assert (score.label, score.value, score.explanation) == ("short", 4.0, "4 words")


@pytest.mark.parametrize("name", builtin_names())
def test_each_built_in_is_in_the_manual_with_its_level(name):
    row = re.search(rf"^\| `{name}` \| ([a-z ]+) \|.*$", PAGE, re.MULTILINE)

    assert row is not None
    short = name.removeprefix(PREFIX)
    assert row[1].replace(" ", "_") == (JUDGED[short].level if short in JUDGED else "session")


@pytest.mark.parametrize("place", sorted({place for places in PLACEHOLDERS.values() for place in places}))
def test_each_placeholder_is_in_the_manual(place):
    assert f"`{{{place}}}`" in PAGE
