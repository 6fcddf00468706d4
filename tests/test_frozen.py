"""Frozen dataclasses that are made fast are like those that `dataclasses` makes."""

import copy
import inspect
import pickle
from dataclasses import dataclass, field, replace

import pytest

from proctor.frozen import fast_init


@dataclass(frozen=True, slots=True)
class Plain:
    first: int
    second: str = "two"
    third: dict[str, int] = field(default_factory=dict)
    only: int = field(default=4, kw_only=True)
    made: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.first + 1)


@fast_init
@dataclass(frozen=True, slots=True)
class Fast:
    first: int
    second: str = "two"
    third: dict[str, int] = field(default_factory=dict)
    only: int = field(default=4, kw_only=True)
    made: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made", self.first + 1)


class Below(Fast):
    """Without slots: its layout is another."""


def test_an_object_has_the_same_values_and_the_same_text():
    for arguments, names in (((1,), {}), ((1, "b"), {"only": 5}), ((), {"first": 2, "third": {"x": 1}})):
        assert repr(Fast(*arguments, **names)).replace("Fast", "Plain") == repr(Plain(*arguments, **names))


def test_objects_are_equal_copied_pickled_and_replaced_as_others_are():
    one = Fast(1, third={})

    assert one == Fast(1) != Fast(2)
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))
    assert replace(one, first=5).made == 6
    assert type(one) is Fast


def test_a_subclass_is_made_and_pickled_as_one():
    one = Below(1)

    assert type(one) is Below
    assert (one.third, one.made) == ({}, 2)
    assert type(pickle.loads(pickle.dumps(one))) is Below
    assert copy.copy(one) == one


def test_wrong_arguments_are_named():
    assert list(inspect.signature(Fast).parameters) == list(inspect.signature(Plain).parameters)
    for arguments, names in (((), {}), ((1,), {"other": 2}), ((1, "b", {}, 4), {})):
        with pytest.raises(TypeError) as plain:
            Plain(*arguments, **names)
        with pytest.raises(TypeError) as fast:
            Fast(*arguments, **names)
        assert str(fast.value).replace("Fast", "Plain") == str(plain.value)


def test_a_class_with_another_layout_is_rejected():
    with pytest.raises(TypeError, match="base class"):

        @fast_init
        @dataclass(frozen=True, slots=True)
        class Lower(Plain):
            fourth: int = 4
