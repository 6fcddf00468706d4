"""Recorded output: how documents are written, and that no difference between them is lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded_files import RECORD_VARIABLE, check, written

ITEM = {"id": "a", "repeat": 1, "factors": {"model": "openai/large", "repository": "dates"}, "error": "none"}


def test_objects_that_are_alike_are_written_as_changes() -> None:
    later = {"id": "b", "repeat": 1, "factors": {"model": "openai/small", "repository": "dates"}}

    assert written({"items": [ITEM, later], "total count": 2, "notes": []}).splitlines() == [
        "{",
        " items: [",
        '  {id: "a", repeat: 1, factors: {model: "openai/large", repository: "dates"}, error: "none"},',
        '  ~{id: "b", factors: ~{model: "openai/small"}, -error}',
        " ],",
        ' "total count": 2, notes: []',
        "}",
    ]


VALUES = st.sampled_from([None, True, 0, 1, 1.0, "a", "-a", "~{}", "a" * 50])
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    VALUES,
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "-a", "b c", "d"]), parts, max_size=4)
    ),
    max_leaves=12,
)


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_different_documents_are_written_differently(before: Any, one: Any, other: Any) -> None:
    texts = [written([before, each]) for each in (one, other)]
    assert (texts[0] == texts[1]) is (json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def test_a_difference_is_shown_and_recorded_on_demand(tmp_path, monkeypatch):
    file = tmp_path / "recorded" / "items.txt"
    monkeypatch.delenv(RECORD_VARIABLE, raising=False)
    with pytest.raises(AssertionError, match=r"(?s)items\.txt differs.*\n\+\{id: \"a\""):
        check(file, ITEM)

    monkeypatch.setenv(RECORD_VARIABLE, "1")
    check(file, ITEM)
    monkeypatch.delenv(RECORD_VARIABLE)

    check(file, ITEM)
    with pytest.raises(AssertionError, match=r'(?s)\n-\{id: "a".*\n\+\{id: "b"'):
        check(file, ITEM | {"id": "b"})
