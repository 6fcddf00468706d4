"""Parts of results as columns: codes, digests of inputs, ranges and the rest of cut labels."""

from types import SimpleNamespace

import numpy as np
import pytest

from proctor.stats.results import (
    LONGEST_LABEL,
    LONGEST_REST,
    SHORTEST_CUT,
    SHOWN_REST,
    InputReader,
    _Codes,
    _distinct,
    _flat,
    _is_crossed,
    _is_varied,
    _labels,
    _mix,
    _range_of,
    _Reader,
    score_name,
)


def splitmix(value: int) -> int:
    """The finalizer of SplitMix64 in whole numbers, and its increment."""
    most = 2**64 - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & most
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & most
    return ((value ^ (value >> 31)) + 0x9E3779B97F4A7C15) & most


def test_digests_are_mixed_as_by_splitmix() -> None:
    values = [0, 1, 2, 12345, 2**40 + 7, 2**63, 2**64 - 1]
    assert _mix(np.array(values, dtype=np.uint64)).tolist() == list(map(splitmix, values))


@pytest.mark.parametrize(
    ("groups", "codes", "distinct"),
    [
        ([0, 0, 1, 1], [0, 1, 0, 1], 4),
        ([0, 0, 1, 1], [0, 0, 1, 1], 2),
        ([0, 1, 2], [2, 1, 0], 3),
        ([], [], 0),
    ],
)
def test_pairs_of_a_group_and_a_code_are_counted(groups, codes, distinct) -> None:
    assert _distinct(np.array(groups, dtype=np.int64), np.array(codes, dtype=np.int64)) == distinct


@pytest.mark.parametrize(
    ("values", "is_varied", "is_crossed"),
    [
        ([5, 5, 5, 5], False, True),
        ([5, 5, 7, 7], True, False),
        ([5, 6, 7, 8], True, False),
        ([5, 7, 7, 5], False, True),
        ([5, 7, 7, 8], False, False),
        # 0: the row does not have it.
        ([0, 5, 0, 7], True, False),
        ([5, 0, 0, 5], False, True),
        ([0, 0, 5, 5], True, False),
    ],
)
def test_an_input_is_varied_between_two_groups_or_crossed_with_them(values, is_varied, is_crossed) -> None:
    digests, groups = np.array(values, dtype=np.uint64), np.array([0, 0, 1, 1])
    assert (_is_varied(digests, groups), _is_crossed(digests, groups)) == (is_varied, is_crossed)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"type": "boolean"}, (0.0, 1.0)),
        ({"type": "number", "range": [1, 5]}, (1, 5)),
        ({"range": [5, 1]}, None),
        ({"range": [3, 3]}, None),
        ({"range": [1]}, None),
        ({"range": [1, 2, 3]}, None),
        ({"range": [1, None]}, None),
        ({}, None),
    ],
)
def test_the_range_of_a_metric_has_two_ends_in_order(rule, expected) -> None:
    assert _range_of(rule) == expected


def test_inputs_are_flattened_by_their_paths() -> None:
    value = {"a": {"b": 1, "c": {}}, "d": [1, {"e": 2}], "f": {"g": {"h": "x"}}}
    expected = [("a.b", 1), ("a.c", {}), ("d", [1, {"e": 2}]), ("f.g.h", "x")]
    assert list(_flat("", value)) == expected
    assert list(_flat("details", {"a": 1})) == [("details.a", 1)]
    assert (score_name("tone"), score_name("tone", "warmth")) == ("score:tone", "score:tone/warmth")


def test_texts_are_coded_as_they_appear_and_the_empty_one_is_no_label() -> None:
    column = _Codes()
    assert column.extend(["b", "", "a", "b"]) == ["b", "", "a"]
    assert column.extend(["a", "c", "c"]) == ["c"]
    assert list(column.codes) == [0, 1, 2, 0, 2, 3, 3]
    labels = _labels(column)
    assert (labels.labels, labels.codes.tolist()) == (("b", "a", "c"), [0, -1, 1, 0, 1, 2, 2])


def page_of(*items: dict[str, str]) -> dict[str, list[str]]:
    known = {"runner": "prompt", "agent": "amp", "model": "m", "details": "{}", "prompt": "p"}
    rows = [known | item for item in items]
    columns = {name: [row[name] for row in rows] for name in known}
    return columns | {"digest": [repr(row) for row in rows]}


def test_equal_inputs_have_equal_digests_and_text_is_no_number() -> None:
    reader = InputReader()
    reader.add(page_of({}, {"prompt": "q"}, {}, {"details": '{"a": "1", "b": {"c": 2}}'}))
    reader.add(page_of({"details": '{"a": 1, "b": {"c": 2}}'}, {"details": '{"prompt": "q"}'}))
    inputs = reader.inputs()

    assert set(inputs.paths) >= {"a", "b.c"} and inputs.digests.shape == (6, len(inputs.paths))
    columns = {path: inputs.digests[:, at].tolist() for at, path in enumerate(inputs.paths)}
    assert len(set(columns["model"])) == 1 and 0 not in columns["model"]
    prompts = columns["prompt"]
    assert prompts[0] == prompts[2] == prompts[3] != prompts[1]
    assert prompts[5] == prompts[1], "a detail of the same name wins"
    assert columns["a"][:3] == [0, 0, 0] and columns["a"][5] == 0
    assert 0 != columns["a"][3] != columns["a"][4] != 0, "text and number"
    assert columns["b.c"][3] == columns["b.c"][4] != 0


@pytest.mark.parametrize(
    ("label", "prompt", "rest"),
    [
        ("a" * SHORTEST_CUT, "a" * SHORTEST_CUT + " b\nc", " b c"),
        ("a" * SHORTEST_CUT, "  " + "a" * SHORTEST_CUT + " b", " b"),
        ("a" * (SHORTEST_CUT - 1), "a" * (SHORTEST_CUT - 1) + " b", ""),
        ("a" * SHORTEST_CUT, "b" + "a" * SHORTEST_CUT, ""),
        ("a" * SHORTEST_CUT, "a" * SHORTEST_CUT, ""),
        ("a" * SHORTEST_CUT, "a" * SHORTEST_CUT + "b" * LONGEST_REST, "b" * min(LONGEST_REST, LONGEST_LABEL)),
        (
            "a" * SHORTEST_CUT,
            "a" * SHORTEST_CUT + "b" * LONGEST_REST + "c",
            "b" * min(LONGEST_LABEL, LONGEST_REST - SHOWN_REST) + " … " + "b" * (SHOWN_REST - 1) + "c",
        ),
    ],
)
def test_the_rest_of_a_prompt_is_what_follows_its_cut_label(label, prompt, rest) -> None:
    reader = _Reader()
    reader._labels = ["earlier", label]
    reader._read_rests([prompt])
    assert reader._rests == ["", rest]


@pytest.mark.parametrize(("keys", "rows"), [([3, 5, 9], [10, 11, 12]), ([4, 1, 10, 3], [-1, -1, -1, 10])])
def test_rows_of_a_run_are_found_by_their_positions(keys, rows) -> None:
    reader = _Reader()
    reader._starts, reader._keys = {"r": 10}, {"r": [[3, 5], [9]]}
    find = reader._row_finder(SimpleNamespace(run_id="r"))
    assert find(keys).tolist() == rows
    assert reader._row_finder(SimpleNamespace(run_id="other"))(keys).tolist() == [-1] * len(keys)


def test_rows_of_several_runs_are_found_by_their_sessions() -> None:
    reader = _Reader()
    reader._keys = {"r": [["s1", ""], ["s2"]], "q": [["s3"]]}
    find = reader._row_finder(SimpleNamespace(run_id=""))
    assert find(["s3", "s1", "", "s9", "s2"]).tolist() == [3, 0, -1, -1, 2]
