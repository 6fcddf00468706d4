"""What decides whether work passed: reports, rewards, and which files of an agent count."""

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import WorkspaceError
from proctor.workspace import starting_files, test_reports
from proctor.workspace.starting_files import digest_of_folder, digest_of_texts, text_files
from proctor.workspace.test_reports import Verdict, grade, read_junit, verdict_by_report, verdict_by_reward


def report(folder: Path, *cases: tuple[str, str], group: str = "t") -> Path:
    inside = {"passed": "", "failed": "<failure/>", "error": "<error/>", "skipped": "<skipped/>"}
    lines = "".join(
        f'<testcase classname="{group}" name="{name}">{inside[status]}</testcase>' for name, status in cases
    )
    file = folder / "junit.xml"
    file.write_text(f"<testsuites><testsuite>{lines}</testsuite></testsuites>")
    return file


@pytest.mark.parametrize(
    ("cases", "exit_code", "verdict"),
    [
        ([("a", "passed"), ("b", "passed")], 0, Verdict(True, 1.0, "2 tests passed")),
        ([("a", "passed"), ("b", "skipped")], 0, Verdict(True, 1.0, "1 tests passed")),
        ([("a", "passed")], 1, Verdict(False, 1.0, "no test failed, but the exit code is 1")),
        ([("a", "passed")], None, Verdict(False, 1.0, "no test failed, but the exit code is None")),
        ([("a", "failed"), ("b", "passed"), ("c", "passed"), ("d", "error")], 1,
         Verdict(False, 0.5, "2 of 4 tests failed: t::a, t::d")),
        ([("a", "failed"), ("b", "passed"), ("c", "passed"), ("d", "skipped")], 0,
         Verdict(False, 1 - 1 / 3, "1 of 3 tests failed: t::a")),
        ([("a", "skipped")], 0, Verdict(False, 0.0, "the report names no test that ran")),
        ([], 0, Verdict(False, 0.0, "the report names no test that ran")),
    ],
)  # fmt: skip
def test_without_named_tests_all_must_pass(tmp_path, cases, exit_code, verdict):
    assert verdict_by_report(report(tmp_path, *cases), [], [], exit_code) == verdict


def test_named_tests_decide_whatever_the_exit_code(tmp_path: Path) -> None:
    file = report(tmp_path, ("a", "passed"), ("b", "skipped"), ("c", "failed"), ("d", "passed"))
    assert verdict_by_report(file, ["t::a"], ["t::b"], 9).passed
    failed = verdict_by_report(file, ["t::a", "t::b"], ["t::c", "t::d"], 0)
    assert (failed.passed, failed.value) == (False, 0.25)
    assert failed.explanation == "1 of 2 failing tests pass, 1 of 2 others; not passed: t::b, t::c"
    assert verdict_by_report(file, [], ["t.py::d"], 0).passed


def test_a_report_that_is_nested_too_deeply_is_no_error_of_ours(tmp_path: Path) -> None:
    inner = '<testcase name="x"/>'
    (tmp_path / "report").write_text("<testsuite>" * 5000 + inner + "</testsuite>" * 5000)
    assert test_reports.read_results("node --test", tmp_path / "report", 1) == {}


def test_a_report_that_an_agent_could_have_prepared_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    assert read_junit(tmp_path / "none") == ({}, "the tests wrote no report")
    file = report(tmp_path, ("a", "passed"))
    (tmp_path / "link").symlink_to(file)
    assert read_junit(tmp_path / "link")[1] == "the test report is a link or too large"
    # The real limit is 64 MiB.
    monkeypatch.setattr(test_reports, "MOST_REPORT_BYTES", file.stat().st_size)
    assert read_junit(file) == ({"t::a": "passed"}, "")
    monkeypatch.setattr(test_reports, "MOST_REPORT_BYTES", file.stat().st_size - 1)
    assert read_junit(file)[1] == "the test report is a link or too large"
    monkeypatch.undo()
    for text, problem in (
        ("<!DOCTYPE x><testsuite/>", "declares entities"),
        ("<testsuite><!ENTITY a></testsuite>", "declares entities"),
        ("<testsuite>", "is incomplete"),
    ):
        file.write_text(text)
        assert problem in read_junit(file)[1] and read_junit(file)[0] == {}


def test_the_worst_status_of_a_test_that_comes_twice_counts(tmp_path: Path) -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        statuses = [("a", ("passed", "skipped", "failed")[index]) for index in order]
        assert read_junit(report(tmp_path, *statuses))[0] == {"t::a": "failed"}
    assert read_junit(report(tmp_path, ("a", "skipped"), ("a", "passed")))[0] == {"t::a": "skipped"}


@pytest.mark.parametrize(
    ("fixed", "to_fix", "kept", "to_keep", "missing", "passed", "value"),
    [
        (2, 2, 3, 3, (), True, 1.0),
        (1, 2, 3, 4, ("x",), False, 0.375),
        (0, 0, 1, 2, ("x",), False, 0.5),
        (1, 4, 0, 0, ("x",), False, 0.25),
        (0, 0, 0, 0, (), False, 0.0),
        (0, 0, 1, 1, (), True, 1.0),
    ],
)
def test_a_grade_is_the_share_of_fixed_times_the_share_of_kept(
    fixed: int, to_fix: int, kept: int, to_keep: int, missing: Any, passed: bool, value: float
) -> None:
    made = test_reports.Grade(fixed=fixed, to_fix=to_fix, kept=kept, to_keep=to_keep, missing=missing)
    assert (made.passed, made.value) == (passed, value)


def test_results_are_graded_by_name() -> None:
    results: Any = {"a": "passed", "b": "failed", "c": "skipped", "d": "passed"}
    made = grade(results, ["a", "a", "b"], ["c", "d", "e"])
    assert (made.fixed, made.to_fix, made.kept, made.to_keep) == (1, 2, 1, 3)
    assert made.missing == ("b", "c", "e")
    kept = grade(results, ["a", "c"], ["c", "d"], skipped_is_kept=True)
    assert kept.missing == ("c",) and (kept.fixed, kept.kept) == (1, 2)
    many = grade({}, [str(number) for number in range(7)], [])
    assert many.summary.endswith("not passed: 0, 1, 2, 3, 4 and 2 more")
    assert "more" not in grade({}, [str(number) for number in range(5)], []).summary


@pytest.mark.parametrize(
    ("name", "group", "case"),
    [
        ("tests/a.py::T::m[1]", "tests.a.T", "m[1]"),
        ("m (tests.a.T)", "tests.a.T", "m"),
        ("m (tests.a.T.m)", "tests.a.T", "m"),
        (" tests/a.py::m ", "tests.a", "m"),
    ],
)
def test_names_of_one_test_in_several_tools_are_the_same(tmp_path, name, group, case):
    file = report(tmp_path, (case, "passed"), group=group)
    assert verdict_by_report(file, [name], [], 0).passed
    assert not verdict_by_report(file, [f"{name}x"], [], 0).passed


def test_a_name_that_was_cut_stands_for_all_tests_that_begin_so_if_they_agree(tmp_path: Path) -> None:
    file = report(
        tmp_path, *((name, "passed") for name in ("a[x 1]", "a[x 2]", "b[x 1]")), ("b[x 2]", "failed")
    )
    for name, passes in (("t::a[x", True), ("t::b[x", False), ("t::c", False), ("t::a", False)):
        assert verdict_by_report(file, [name], [], 0).passed is passes


@pytest.mark.parametrize(
    ("files", "reward"),
    [
        ({}, None),
        ({"reward.txt": " 0.5\n"}, 0.5),
        *(({"reward.txt": text}, None) for text in ("many", "nan", "inf", "1e999", "-inf")),
        ({"reward.json": '{"reward": 1, "other": 0}'}, 1.0),
        ({"reward.json": '{"reward": true}'}, 1.0),
        ({"reward.json": '{"score": 0.25}'}, 0.25),
        ({"reward.json": '{"a": 1, "b": 2}'}, None),
        ({"reward.json": '{"a": 1}', "reward.txt": "0.75"}, 0.75),
        ({"reward.json": '{"reward": 0.5}', "reward.txt": "1"}, 0.5),
        ({"reward.json": "{", "reward.txt": "1"}, 1.0),
        ({"reward.json": '{"reward": "1"}'}, None),
    ],
)
def test_the_reward_of_a_check(tmp_path: Path, files: dict[str, str], reward: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    verdict = verdict_by_reward(tmp_path)
    if reward is None:
        assert verdict == Verdict(False, 0.0, "the check wrote no reward")
    else:
        assert verdict == Verdict(reward >= 1, reward, f"reward {reward:g}")


def test_a_reward_behind_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("1")
    (tmp_path / "reward.txt").symlink_to(tmp_path / "own.txt")
    assert not verdict_by_reward(tmp_path).passed


# --- Starting files ---


def test_the_digest_of_a_folder_is_of_names_contents_and_executable_bits(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "sub" / "b.txt").write_text("two")
    first = digest_of_folder(folder)
    assert first == digest_of_texts({"sub/b.txt": "two", "a.txt": "one"})
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("x")
    assert digest_of_folder(folder) == first
    assert dict(text_files(folder)) == {"a.txt": "one", "sub/b.txt": "two"}
    (folder / "a.txt").chmod(0o755)
    assert digest_of_folder(folder) != first
    (folder / "a.txt").chmod(0o644)
    (folder / "link").symlink_to("a.txt")
    linked = digest_of_folder(folder)
    assert linked != first
    (folder / "link").unlink()
    (folder / "link").symlink_to("../elsewhere")
    with pytest.raises(WorkspaceError):
        digest_of_folder(folder)


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES"])
def test_a_folder_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: Any, limit: str) -> None:
    for name in "abc":
        (tmp_path / name).write_text("x")
    # The real limits are 20,000 files and 512 MiB.
    monkeypatch.setattr(starting_files, limit, 2)
    with pytest.raises(WorkspaceError, match="is too large for a task: 3 files, 3 bytes"):
        digest_of_folder(tmp_path)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(WorkspaceError, match="cannot be read as text"):
        list(text_files(tmp_path))
