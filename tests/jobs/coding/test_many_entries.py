"""Plans with thousands of entries: read in parts, checked by representatives, reported at their places."""

import tracemalloc
from pathlib import Path

import pytest

from proctor.errors import PlanError
from proctor.jobs.coding.job import read_plan
from proctor.jobs.coding.plan import NO_OVERRIDES
from proctor.jobs.coding.schema import EntrySettings, settings_of, settled


def read(entries: list[str], head: str = ""):
    text = f"{head}defaults: {{model: scripted/echo}}\nmatrix:\n" + "".join(
        f"  - {each}\n" for each in entries
    )
    return read_plan(text, file="plan.yaml", folder=Path("/plans"), overrides=NO_OVERRIDES)


def test_problems_in_any_part_of_a_long_list_are_reported_at_their_lines():
    entries = [f"{{prompt: say {number}}}" for number in range(2500)]
    for number in (0, 999, 1000, 2400):
        entries[number] = "{prompt: 1}"

    with pytest.raises(PlanError) as raised:
        read(entries, head="concurrency: 0\n")

    problems = [(problem.at.line, problem.problem) for problem in raised.value.problems]
    assert [line for line, _ in problems] == [1, 4, 1003, 1004, 2404]
    assert problems[-1][1].startswith("`prompt` of item 2401 should be text")


def test_a_plain_prompt_for_each_model_of_an_entry_stands_for_all():
    plan = read(
        [
            "{prompt: [a, b, c], model: [scripted/x, scripted/y], runs: 5, seed: [1, 2]}",
            "{prompt: d, expect: {contains: d}}",
        ]
    )
    items = list(plan.items())
    chosen = list(plan.representatives())

    places = [(position, item.model, item.prompt) for position, item in chosen]
    assert places == [(0, "scripted/x", "a"), (10, "scripted/y", "a"), (60, "scripted/echo", "d")]
    assert all(items[position].inputs == item.inputs for position, item in chosen)


def test_entries_with_exclusions_are_checked_one_by_one():
    plan = read(
        ["{prompt: [a, b], model: [scripted/x, scripted/y], exclude: [{model: scripted/x, prompt: a}]}"]
    )
    assert [(position, item.model) for position, item in plan.representatives()] == [
        (position, item.model) for position, item in enumerate(plan.items())
    ]


@pytest.mark.parametrize(
    "defaults", [{}, {"model": "m", "retries": 2}, {"expect": {"equals": "a"}, "runs": 3}]
)
@pytest.mark.parametrize(
    "entry", [{"prompt": "x"}, {"prompt": ["x"], "runs": 2, "expect": {"contains": "b"}}]
)
def test_settings_of_plain_entries_are_those_of_any_entry(entry, defaults):
    settings = settings_of(entry, defaults, settled({}, defaults))
    assert isinstance(settings, EntrySettings)
    assert dict(settings) == settled(entry, defaults)
    assert len(settings) == len(settled(entry, defaults))
    assert "nothing" not in settings and settings.get("nothing") is None


@pytest.mark.parametrize(
    "entry", [{"model": None}, {"env": {"A": "b"}}, {"repo": "r"}, {"settings": {"n": 1}}]
)
def test_other_entries_are_combined_with_the_defaults(entry):
    defaults = {"model": "m", "env": {"C": "d"}, "settings": {"k": 2}}
    assert settings_of(entry, defaults, settled({}, defaults)) == settled(entry, defaults)


def test_an_entry_takes_little_memory():
    entries = [
        f"{{prompt: say hello to number {number}, expect: {{contains: hello}}}}" for number in range(2000)
    ]
    read(entries[:10])
    tracemalloc.start()
    plan = read(entries)
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert plan.item_count == 2000
    # 3.9 kB with positions of every value and a list for each axis.
    assert size / 2000 < 1100
    assert peak / 2000 < 2600
