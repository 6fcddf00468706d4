"""What commands print: errors with their exit codes, tables and figures."""

import errno
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.bootstrap import open_context
from proctor.cli import output
from proctor.errors import ProctorError, StoreError, StoreUnavailable, UsageError
from proctor.report.as_text import fitted


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
    with open_context(home=str(tmp_path)) as ctx:
        scope = output.scope_of(ctx, "", "", "2024-01-31", "2024-02-01")
        assert (scope.start, scope.end) == (
            datetime(2024, 1, 31, tzinfo=UTC),
            datetime(2024, 2, 2, tzinfo=UTC),
        )
        exact = output.scope_of(ctx, "", " , ", "", "2024-02-01T10:00")
        assert (
            exact.end == datetime(2024, 2, 1, 10, tzinfo=UTC) and not exact.session_ids and exact.run_id == ""
        )
        with pytest.raises(UsageError, match="no sessions selected"):
            output.scope_of(ctx, "", "", "", "")


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
    ("width", "drop", "expected"),
    [
        (100, [], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
        (17, [], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
        (17, ["STATUS"], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
        (16, ["STATUS", "NAME"], {"NAME": ["alphabet", "b"]}),
        (16, [], {"NAME": ["alphabet", "b"], "STATUS": ["success", "fail"]}),
    ],
)
def test_columns_are_left_out_in_order_until_a_table_fits(
    width: int, drop: list[str], expected: dict[str, list[str]]
) -> None:
    assert fitted(TABLE, width, drop) == expected


def test_the_widest_columns_are_cut_but_not_below_eight_characters() -> None:
    table = {"A": ["x" * 30], "B": ["y" * 12]}
    assert fitted(table, 26, []) == {"A": ["x" * 11 + "…"], "B": ["y" * 12]}
    assert fitted(table, 5, []) == {"A": ["x" * 7 + "…"], "B": ["y" * 7 + "…"]}
    assert fitted({"A": [""]}, 5, []) == {"A": [""]}


def test_a_table_in_a_pipe_has_aligned_columns(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output.print_table(("A", "BC"), [("xyz", 1), ("q", "y" * 61)])
    assert capsys.readouterr().out.splitlines() == ["A    BC", "xyz  1", f"q    {'y' * 59}…"]
    monkeypatch.setenv("COLUMNS", "12")
    assert output.terminal_width() == 12
    monkeypatch.setenv("COLUMNS", "0")
    assert output.terminal_width() is None


def test_columns_whose_headings_begin_alike_stay_two_columns_when_they_are_cut() -> None:
    table = {"CANDIDATE": ["scripted/echo-long"], "CANDIDATE MEAN": ["43%"], "DIFF": ["+42.6 pp"]}
    shown = fitted(table, 30, [])
    assert list(shown.values())[1:] == [["43%"], ["+42.6 pp"]] and len(shown) == 3
    assert next(iter(shown.values()))[0].startswith("scripted")
