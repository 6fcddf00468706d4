"""What the library refuses before anything starts."""

from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.api import _check_item, _checked_engine, _checked_workers, _item_maker
from proctor.api.analysis import rank
from proctor.errors import UsageError
from proctor.item import Item

ITEM = Item(runner="prompt", prompt="p")


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2"])
def test_workers_are_a_positive_number(workers: Any) -> None:
    with pytest.raises(UsageError, match=f"the number of workers should be at least 1, not {workers}"):
        _checked_workers(workers)


def test_no_number_of_workers_and_one_are_possible() -> None:
    assert (_checked_workers(None), _checked_workers(1), _checked_workers(8)) == (None, 1, 8)


def test_engines_have_two_names() -> None:
    options = _checked_engine("ray", "ray://h:1")
    assert (options.name, options.ray_address) == ("ray", "ray://h:1")
    assert _checked_engine("local", "auto").name == "local"
    with pytest.raises(UsageError, match="the engine should be `local` or `ray`, not 'dask'"):
        _checked_engine("dask", "auto")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("p", "item 3 is 'p'\nGive proctor.Item"),
        (Item(runner="prompt", prompt=5), "the prompt of item 3 should be text, not 5"),  # type: ignore[arg-type]
        (Item(runner="prompt", prompt="p", settings={"a": object()}), "item 3 cannot be stored: "),
        (Item(runner="prompt", prompt="p", factors={"a": "\ud800"}), "item 3 cannot be stored: "),
    ],
)
def test_an_item_that_cannot_be_run_is_named_by_its_number(item: object, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        _check_item(item, 3)
    assert str(refused.value).startswith(message)


def test_items_take_the_agent_and_the_model_that_they_do_not_name() -> None:
    items: list[Item] = [
        ITEM,
        Item(runner="worktree", prompt="q"),
        Item(runner="prompt", prompt="r", agent="mine", model="own"),
    ]
    made = list(_item_maker(items, "agent", "model", {})())
    assert [(item.runner, item.agent, item.model) for item in made] == [
        ("function", "agent", "model"),
        ("worktree", "agent", "model"),
        ("prompt", "mine", "own"),
    ]
    plain = list(_item_maker([ITEM, ITEM], "", "", {})())
    assert [(item.runner, item.agent, item.model, item.repeat) for item in plain] == [
        ("prompt", "", "", 1),
        ("prompt", "", "", 2),
    ]


def test_no_items_and_overrides_of_items_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is nothing to run"):
        _item_maker([], "", "", {})
    with pytest.raises(UsageError, match="items have no override retries, color"):
        _item_maker([ITEM], "", "", {"retries": 1, "color": "red"})
    with pytest.raises(UsageError, match="a run has either a plan or items"):
        proctor.run("plan.yaml", items=[ITEM], home=tmp_path)
    with pytest.raises(UsageError, match="there is nothing to rank"):
        rank(home=tmp_path)
