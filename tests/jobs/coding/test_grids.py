"""Lists in an entry: what they come to, in which order, and what is left out."""

import itertools
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.batch.extend import what_changed
from proctor.errors import PlanError
from proctor.item import Item
from proctor.jobs.coding.job import read_plan
from proctor.jobs.coding.plan import Overrides


def plan(text: str):
    return read_plan(text, file="plan.yaml", folder=Path("/plans"), home=Path("/me"))


def wrong(text: str) -> list[str]:
    with pytest.raises(PlanError) as caught:
        plan(text).items()
    return [str(problem) for problem in caught.value.problems]


def test_lists_expand_in_a_fixed_order_the_last_fastest():
    found = plan("matrix: [{model: [a, b], repo: [r, s], prompt: [p, q], timeoutSec: [1, 2]}]").items()
    assert [
        (item.details["repository"], item.prompt, item.model, item.settings["timeoutSec"]) for item in found
    ] == list(itertools.product("rs", "pq", "ab", (1, 2)))


def test_every_axis_may_be_a_list():
    text = """
matrix:
  - repo: [r]
    prompt: [p]
    agent: [x, y]
    model: [a, b]
    baseBranch: [main, dev]
    scriptCommand: [one, two]
    setup: [one, two]
    seed: [1, 2]
  - prompt: [p]
    model: [a, b]
    system: [calm, stern]
"""
    read = plan(text)
    assert read.item_count == 2**6 + 2**2 == len({item.id for item in read.items()})


def test_a_combination_that_is_excluded_is_left_out():
    text = """
matrix:
  - repo: [r, s]
    prompt: p
    model: [a, b, c]
    exclude:
      - {repo: ./r, model: [a, b]}
  - repo: t
    prompt: p
    model: [a, b]
exclude:
  - {model: c}
"""
    read = plan(text)
    left = [(item.details["repository"], item.model) for item in read.items()]
    assert left == [("s", "a"), ("s", "b"), ("t", "a"), ("t", "b")]
    assert read.item_count == 4
    assert str(read.place(1, "model")) == "plan.yaml:5:16"
    assert str(read.place(2, "repo")) == "plan.yaml:8:11"


def test_exclusions_look_at_what_holds_not_only_at_what_is_written():
    text = "defaults: {model: [a, b]}\nmatrix: [{repo: r, prompt: p}]\nexclude: [{model: b, agent: amp}]"
    assert [item.model for item in plan(text).items()] == ["a"]
    with pytest.raises(PlanError, match="matches no combination"):
        plan(text).under(Overrides(model="o")).items()


def test_an_exclusion_that_matches_nothing_is_a_mistake():
    text = """
matrix:
  - {repo: r, prompt: p, model: [a, b], exclude: [{model: c}]}
exclude:
  - model: a
    repo: nowhere
"""
    found = wrong(text)
    assert found[0].startswith("plan.yaml:3:51: exclusion 1 of item 1 matches no combination")
    assert found[1].startswith("plan.yaml:5:5: exclusion 1 matches no combination")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("matrix: [{repo: r, prompt: p, model: [a, b]}]\nexclude: [{model: [a, b]}]", "excludes every item"),
        ("matrix: [{repo: r, prompt: p, model: [a, b]}]\nexclude: [{}]", "excludes every item"),
        (
            "matrix: [{repo: r, prompt: p, exclude: [{repo: r}]}, {repo: r, prompt: q}]",
            "item 1 excludes every combination",
        ),
        ("matrix: [{repo: r, prompt: p}]\nexclude: [{modle: a}]", "exclusion 1 has no setting `modle`"),
    ],
)
def test_an_exclusion_of_everything_or_of_what_cannot_vary_is_a_mistake(text, problem):
    found = wrong(text)[0]
    assert problem in found
    assert ("Did you mean `model`?" in found) is ("modle" in text)


axis = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)


@given(axis, axis, axis, st.integers(1, 3))
def test_no_two_items_of_a_plan_share_an_id_and_all_are_counted(repos, prompts, models, runs):
    grid = f"{{repo: {repos}, prompt: {prompts}, model: {models}, runs: {runs}}}"
    text = f"matrix: [{grid}, {{repo: a, prompt: a, model: a}}]"
    read = plan(text)
    ids = [item.id for item in read.items()]
    assert len(ids) == len(set(ids)) == read.item_count
    assert ids == [item.id for item in read.items()]
    assert ids == [item.id for item in plan(text).items()]


def test_thousands_of_items_are_made_as_they_are_asked_for():
    numbers = [f"p{number}" for number in range(100)]
    read = plan(f"matrix: [{{prompt: {numbers}, model: {numbers}}}]")
    assert read.item_count == 10_000
    tracemalloc.start()
    try:
        found = read.items()
        assert next(found).prompt == "p0"
        first = tracemalloc.get_traced_memory()[1]
        assert sum(1 for _ in found) == 9_999
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # All items would take 10 MB; what is kept of each is a number.
    assert first < 400_000 and peak < 3_000_000


# What made an item new


def item(**more) -> Item:
    return Item(runner="worktree", prompt="p", agent="amp", **more)


def test_an_item_is_new_because_of_the_fields_that_differ_from_the_nearest_one():
    old = [item(model="a", details={"setup": "x"}).inputs, item(model="a").inputs]
    assert what_changed(item(model="b"), old) == ["model"]
    assert what_changed(item(model="a", details={"setup": "y"}), old) == ["setup"]
    assert what_changed(item(model="b", details={"seed": 1}), old) == ["model", "seed"]
    assert what_changed(item(repeat=2), [item().inputs]) == ["runs"]
    assert what_changed(item(), []) == []
