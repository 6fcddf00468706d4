"""What commands print: errors with their exit codes, tables, figures, and the state of encryption."""

import errno
import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.cli import bench, compare, output
from proctor.cli import store as store_commands
from proctor.errors import KeyMissing, ProctorError, StoreError, StoreUnavailable, UsageError
from proctor.store import Store


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("wrong\nDo better."), 2, "proctor: wrong\nDo better.\n"),
        (StoreUnavailable("no store"), 2, "proctor: no store\n"),
        (StoreError("damaged"), 3, "proctor: damaged\n"),
        (ProctorError("failed"), 1, "proctor: failed\n"),
        (
            OSError(errno.ENAMETOOLONG, "x", "p" * 100),
            2,
            f"proctor: {'p' * 60}… is too long for the path of a file\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_is_a_message_and_an_exit_code(
    error: BaseException, code: int, message: str, as_json: bool, capsys: Any
) -> None:
    with output.exit_on_error(as_json=as_json) as end:
        raise error
    printed = capsys.readouterr()
    assert end.code == code and printed.err == message
    if as_json and message:
        assert f"proctor: {json.loads(printed.out)['error']}\n" == message
    else:
        assert printed.out == ""


def test_a_damaged_value_of_the_store_and_other_errors(capsys: Any) -> None:
    with output.exit_on_error(as_json=False) as end:
        json.loads("{")
    assert end.code == 3 and "proctor store check" in capsys.readouterr().err
    with pytest.raises(OSError, match="full"), output.exit_on_error(as_json=False):
        raise OSError(errno.ENOSPC, "full")
    with output.exit_on_error(as_json=False) as end:
        pass
    assert end.code is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("", None),
        (" 2024-01-31 ", datetime(2024, 1, 31, tzinfo=UTC)),
        ("2024-01-31T14:00", datetime(2024, 1, 31, 14, tzinfo=UTC)),
        ("2024-01-31T14:00+02:00", datetime(2024, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_date_of_the_command_line(text: str, moment: datetime | None) -> None:
    assert output.moment_of(text) == moment


def test_a_date_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`31.1.2024` is not a valid date"):
        output.moment_of("31.1.2024")


def test_sessions_are_selected_by_days_with_the_last_one_whole(tmp_path: Path) -> None:
    with Store(str(tmp_path / "proctor.db")) as store:
        scope = output.scope_of(store, "", "", "2024-01-31", "2024-02-01")
        assert (scope.start, scope.end) == (
            datetime(2024, 1, 31, tzinfo=UTC),
            datetime(2024, 2, 2, tzinfo=UTC),
        )
        exact = output.scope_of(store, "", " , ", "", "2024-02-01T10:00")
        assert (
            exact.end == datetime(2024, 2, 1, 10, tzinfo=UTC) and not exact.session_ids and exact.run_id == ""
        )
        with pytest.raises(UsageError, match="no sessions selected"):
            output.scope_of(store, "", "", "", "")


def test_a_command_that_does_not_exist_has_a_neighbor() -> None:
    commands = {"batch": 1, "runs": 1}
    assert "Did you mean `batch`?" in str(output.unknown_command("bach", commands))
    assert "`proctor --help` lists them." in str(output.unknown_command("xyz", commands))


def test_next_commands_are_on_one_line_if_they_fit(capsys: Any) -> None:
    output.print_next(["proctor a", "proctor b"])
    assert capsys.readouterr().err == "Next:  proctor a  ·  proctor b\n"
    first = "x" * (output.NEXT_WIDTH - 6)
    output.print_next([first, "y"])
    assert capsys.readouterr().err == f"Next:  {first}  ·  y\n"
    output.print_next([first, "yz"])
    assert capsys.readouterr().err == f"Next:  {first}\n       yz\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    output.write_file(tmp_path / "new" / "a.txt", "ü")
    assert (tmp_path / "new" / "a.txt").read_text(encoding="utf-8") == "ü"
    with pytest.raises(UsageError, match="cannot write"):
        output.write_file(tmp_path / "new", "x")


TABLE = {"NAME": ["alphabet", "b"], "EMPTY": ["", ""], "STATUS": ["success", "fail"]}


@pytest.mark.parametrize(
    ("width", "drop", "fitted"),
    [
        (100, [], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
        (17, [], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
        (17, ["STATUS"], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
        (16, ["STATUS", "NAME"], {"NAME": ["alphabet", "b"]}),
        (16, [], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
    ],
)
def test_columns_are_left_out_in_order_until_a_table_fits(
    width: int, drop: list[str], fitted: dict[str, list[str]]
) -> None:
    assert output.fitted(TABLE, width, drop) == fitted


def test_the_widest_columns_are_cut_but_not_below_eight_characters() -> None:
    table = {"A": ["x" * 30], "B": ["y" * 12]}
    assert output.fitted(table, 26, []) == {"A": ["x" * 11 + "…"], "B": ["y" * 12]}
    assert output.fitted(table, 5, []) == {"A": ["x" * 7 + "…"], "B": ["y" * 7 + "…"]}
    assert output.fitted({"A": [""]}, 5, []) == {"A": [""]}


def test_a_table_in_a_pipe_has_aligned_columns(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output.print_table(("A", "BC"), [("xyz", 1), ("q", "y" * 61)])
    assert capsys.readouterr().out.splitlines() == ["A    BC", "xyz  1", f"q    {'y' * 59}…"]
    monkeypatch.setenv("COLUMNS", "12")
    assert output.terminal_width() == 12
    monkeypatch.setenv("COLUMNS", "0")
    assert output.terminal_width() is None


def test_how_far_a_command_is() -> None:
    working = output.Working("reading")
    assert working._description() == "reading"
    working.update(1500)
    assert working._description() == "reading: 1,500"
    working.update(2, 3000, title="writing")
    assert working._description() == "writing: 2 of 3,000"


# --- Figures ---


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (3.0, "3"), (3.14, "3.1"), (0.0, "0")])
def test_a_mean_has_a_digit_where_it_is_no_whole_number(value: float | None, text: str) -> None:
    assert bench._figure(value) == text


def test_a_rate_has_its_interval() -> None:
    assert bench._rate({"value": 0.5, "low": 0.2, "high": 0.8}) == "50% (20% to 80%)"
    assert bench._rate({"value": 0.5, "low": None, "high": None}) == "50%"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [(None, None, "not enough data"), (0.25, 0.75, "25% to 75%"), (0.25, None, "25% to no upper limit")],
)
def test_the_range_of_a_rank(low: float | None, high: float | None, text: str) -> None:
    each: Any = SimpleNamespace(low=low, high=high, rank=2, rank_low=1, rank_high=3)
    assert compare._range(each, "success") == text and compare._place(each) == "2 (1 to 3)"


# --- Encryption ---


def status(**changes: Any) -> Any:
    counts = {"sealed": 0, "retired": 0, "own": 0, "plain": 0}
    document = {
        "sealed": True,
        "keyId": "k1",
        "isHere": True,
        "problem": "",
        "unfinished": False,
        "dataKeys": [],
        "ownKeys": 0,
        "tables": {"messages": {**counts, "sealed": 3, "plain": changes.pop("plain", 0)}, "scores": counts},
    }
    return {**document, **changes}


@pytest.mark.parametrize(
    ("changes", "words", "absent"),
    [
        (
            {},
            ["encrypted with the key k1 (available)", "messages"],
            ["scores", "Plain text", "Resume", "not encrypted"],
        ),
        ({"isHere": False, "problem": "no key"}, ["(not available)", "no key"], []),
        ({"sealed": False, "plain": 2}, ["The store is not encrypted"], ["with the key", "Plain text"]),
        ({"plain": 1}, ["Plain text was written before"], []),
        ({"unfinished": True}, ["Re-encryption has not finished"], []),
    ],
)
def test_the_state_of_encryption_in_words(
    changes: Any, words: list[str], absent: list[str], capsys: Any
) -> None:
    store_commands._print_status(status(**changes))
    printed = capsys.readouterr().out
    assert all(word in printed for word in words) and not any(word in printed for word in absent)


def test_the_state_of_a_store_without_keys(tmp_path: Path) -> None:
    with Store(str(tmp_path / "proctor.db")) as store:
        document = store_commands._status(store, None, "why")
    assert (document["sealed"], document["keyId"], document["isHere"], document["problem"]) == (
        False,
        None,
        False,
        "why",
    )
    assert (document["dataKeys"], document["ownKeys"], document["unfinished"]) == ([], 0, False)


def test_one_new_key_is_given_in_one_way(tmp_path: Path) -> None:
    assert store_commands._new_key(None, "", "") is None
    for given in ((tmp_path / "k", "NAME", ""), (None, "NAME", "arn"), (tmp_path / "k", "", "arn")):
        with pytest.raises(UsageError, match="more than one new key"):
            store_commands._new_key(*given)
    assert store_commands._new_key(None, "", "arn:aws:kms:eu-west-1:1:key/x") is not None
    with pytest.raises((UsageError, KeyMissing)):
        store_commands._new_key(tmp_path / "none", "", "")


def test_rotating_needs_something_to_rotate_and_a_key(proctor: Any, tmp_path: Path) -> None:
    nothing = proctor("encryption", "rotate")
    assert nothing.returncode == 2 and "nothing to rotate" in nothing.stderr
    keyless = proctor("encryption", "rotate", "--again")
    assert keyless.returncode == 2 and "no key is configured" in keyless.stderr


@pytest.mark.parametrize(
    ("rows", "printed"), [(0, True), (499, True), (500, False), (9_999, False), (10_000, True)]
)
def test_progress_is_printed_every_ten_thousand_rows(rows: int, printed: bool, capsys: Any) -> None:
    store_commands._print_progress("messages", rows)
    assert bool(capsys.readouterr().err) is printed


def test_columns_whose_headings_begin_alike_stay_two_columns_when_they_are_cut() -> None:
    table = {"CANDIDATE": ["scripted/echo-long"], "CANDIDATE MEAN": ["43%"], "DIFF": ["+42.6 pp"]}
    shown = output.fitted(table, 30, [])
    assert list(shown.values())[1:] == [["43%"], ["+42.6 pp"]] and len(shown) == 3
    assert next(iter(shown.values()))[0].startswith("scripted")
