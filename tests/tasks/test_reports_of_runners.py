"""Reports of test runners: how commands are made to write them, and how they are read."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.workspace.test_reports import read_results, restricted, runner_of, verdict_by_report, with_report

JUNIT = """<?xml version="1.0"?><testsuites><testsuite name="pytest">
<testcase classname="tests.test_a.TestSum" name="test_two[1-2]" file="tests/test_a.py" line="3"/>
<testcase classname="tests.test_a" name="test_bad" file="tests/test_a.py"><failure message="x"/></testcase>
<testcase classname="tests.test_a" name="test_late" file="tests/test_a.py"/>
<testcase classname="tests.test_a" name="test_late" file="tests/test_a.py"><error message="x"/></testcase>
<testcase classname="tests.test_a" name="test_off" file="tests/test_a.py"><skipped/></testcase>
</testsuite></testsuites>"""
JEST = """{"testResults": [
{"name": "/work/x/test/a.test.js", "status": "failed", "assertionResults": [
 {"ancestorTitles": ["sum", "of two"], "title": "adds", "status": "passed"},
 {"ancestorTitles": [], "title": "fails", "status": "failed"},
 {"ancestorTitles": [], "title": "later", "status": "pending"}]},
{"name": "/work/x/test/b.test.js", "status": "failed", "assertionResults": []}]}"""
MOCHA = '{"passes": [{"fullTitle": "sum adds"}], "failures": [{"fullTitle": "sum fails"}], "pending": []}'
GO = """{"Action":"run","Package":"ex.org/a","Test":"TestSum"}
{"Action":"output","Package":"ex.org/a","Test":"TestSum","Output":"--- FAIL"}
{"Action":"pass","Package":"ex.org/a","Test":"TestSum/two"}
{"Action":"fail","Package":"ex.org/a","Test":"TestSum"}
{"Action":"fail","Package":"ex.org/a"}
not json
"""
CARGO = """   Compiling a v0.1.0
     Running unittests src/lib.rs (target/debug/deps/a-1f)
running 2 tests
test tests::adds ... ok
test tests::fails ... FAILED
     Running tests/it.rs (target/debug/deps/it-2e)
test adds ... ignored
   Doc-tests a
test src/lib.rs - add (line 12) ... ok
"""
TAP = "TAP version 13\n# sum\nok 1 one\nnot ok 2 two\n# product\nok 3 x # SKIP\nok 4 y\n# tests 4\n# pass 3\n"
NODE = """<testsuites><testsuite name="sum"><testcase name="adds"/>
<testcase name="fails"><failure/></testcase></testsuite><testcase name="/w/x/test.mjs"><failure/></testcase>
</testsuites>"""


@pytest.mark.parametrize(
    ("command", "report", "expected"),
    [
        (
            "pytest -q",
            JUNIT,
            {
                "tests/test_a.py::TestSum::test_two[1-2]": "passed",
                "tests/test_a.py::test_bad": "failed",
                "tests/test_a.py::test_late": "failed",
                "tests/test_a.py::test_off": "skipped",
            },
        ),
        (
            "npx jest",
            JEST,
            {
                "test/a.test.js > sum > of two > adds": "passed",
                "test/a.test.js > fails": "failed",
                "test/a.test.js > later": "skipped",
                "test/b.test.js": "failed",
            },
        ),
        ("npx mocha", MOCHA, {"sum adds": "passed", "sum fails": "failed"}),
        (
            "npx mocha",
            'a log {}\n{"stats": {}, "passes": [{"fullTitle": "sum adds"}], "failures": []}\nbye\n',
            {"sum adds": "passed"},
        ),
        ("go test ./...", GO, {"ex.org/a.TestSum/two": "passed", "ex.org/a.TestSum": "failed"}),
        (
            "cargo test",
            CARGO,
            {
                "src/lib.rs tests::adds": "passed",
                "src/lib.rs tests::fails": "failed",
                "tests/it.rs adds": "skipped",
                "doc a src/lib.rs - add": "passed",
            },
        ),
        (
            "mvn -q -B -o test",
            '<?xml version="1.0"?>\n<testsuite><testcase name="adds" classname="app.ShopTest"/></testsuite>\n'
            '<?xml version="1.0"?><testsuite><testcase name="of(int)[1]" classname="app.BagTest"><failure/>'
            "</testcase></testsuite>",
            {"app::ShopTest::adds": "passed", "app::BagTest::of(int)[1]": "failed"},
        ),
        ("npx tape test/*.js", TAP, {"sum": "failed", "product": "skipped"}),
        ("node --test", NODE, {"sum > adds": "passed", "sum > fails": "failed", "test.mjs": "failed"}),
    ],
)
def test_reports_are_read_by_test_id(tmp_path: Path, command: str, report: str, expected: dict[str, str]):
    (tmp_path / "report").write_text(report)
    assert read_results(command, tmp_path / "report", 0) == expected


DJANGO = """\
Testing against Django installed in '/w/django'
Found 9 test(s).
System check identified no issues (0 silenced).
test_get_default_encoding (utils_tests.test_encoding.Some.test_get_default_encoding) ... ok
test_force_str_exception (utils_tests.test_encoding.Some.test_force_str_exception)
Broken __str__ actually raises an error. ... ok
test_bad (utils_tests.test_encoding.Some.test_bad)
A totals test (#12) that fails. ... FAIL
test_error (utils_tests.test_encoding.Some.test_error) ... ERROR
test_expected (utils_tests.test_encoding.Some.test_expected) ... expected failure
test_later (utils_tests.test_encoding.Some.test_later) ... skipped 'later'
test_prints (utils_tests.test_encoding.Some.test_prints) ... some output
ok
test_sub (utils_tests.test_encoding.Some.test_sub) ...
  test_sub (utils_tests.test_encoding.Some.test_sub) (n=2) ... FAIL

======================================================================
FAIL: test_bad (utils_tests.test_encoding.Some.test_bad)
A totals test (#12) that fails.
----------------------------------------------------------------------
Ran 9 tests in 0.028s
"""
"""Printed by `tests/runtests.py --verbosity 2` of Django 4.2, shortened."""
SYMPY = """\
============================= test process starts ==============================
executable:         /w/bin/python  (3.11.7-final-0) [CPython]
random seed:        17229844

sympy/core/tests/test_compatibility.py[8]
test_compatibility_submodule ok
test_bad F
test_error E
test_skipped later s
test_expected f
test_prints some output
ok
test_last ok                                                              [FAIL]

sympy/core/tests/test_symbol.py[1]
test_Str ok                                                                 [OK]

________________________________________________________________________________
_______________ sympy/core/tests/test_compatibility.py:test_bad ________________
AssertionError
 tests finished: 17 passed, 1 failed, 2 skipped, 1 expected to fail,
1 exceptions, in 0.78 seconds
DO *NOT* COMMIT!
"""
"""Printed by `bin/test --verbose` of sympy 1.12, shortened."""


@pytest.mark.parametrize(
    ("log", "passed", "failed"),
    [
        (
            DJANGO,
            [
                "test_get_default_encoding (utils_tests.test_encoding.Some)",
                "test_force_str_exception (utils_tests.test_encoding.Some.test_force_str_exception)",
                "Broken __str__ actually raises an error.",
                "test_prints (utils_tests.test_encoding.Some)",
            ],
            [
                "A totals test (#12) that fails.",
                "test_bad (utils_tests.test_encoding.Some)",
                "test_error (utils_tests.test_encoding.Some)",
                "test_sub (utils_tests.test_encoding.Some)",
                "test_expected (utils_tests.test_encoding.Some)",
                "test_gone (utils_tests.test_encoding.Some)",
            ],
        ),
        (
            SYMPY,
            ["test_compatibility_submodule", "test_prints", "test_last", "test_Str"],
            ["test_bad", "test_error", "test_skipped", "test_expected", "test_gone"],
        ),
    ],
    ids=["django", "sympy"],
)
def test_logs_of_django_and_sympy_are_read_by_the_ids_of_swe_bench(tmp_path, log, passed, failed):
    (tmp_path / "log").write_text(log)
    assert verdict_by_report(tmp_path / "log", passed, [], 1).passed
    for name in failed:
        assert not verdict_by_report(tmp_path / "log", [*passed, name], [], 0).passed, name


def test_a_runner_without_a_report_has_no_results(tmp_path: Path):
    assert read_results("pytest", tmp_path / "none", 0) == {}
    (tmp_path / "half").write_text(JUNIT[:200])
    assert read_results("pytest", tmp_path / "half", 0) == {}


def test_an_unknown_command_is_one_test(tmp_path: Path):
    assert runner_of("make check") is None
    assert with_report("make check", tmp_path) == "make check"
    assert read_results("make check", tmp_path, 0) == {"command": "passed"}
    assert read_results("make check", tmp_path, 2) == {"command": "failed"}


@pytest.mark.parametrize(
    ("command", "restricted_command"),
    [
        ("pytest -q", "pytest -q tests/test_a.py"),
        ("go test ./...", "go test ./tests"),
        ("go test ./cmd", "go test ./cmd"),
        ("make test", "make test"),
        ("run {tests} --fast", "run tests/test_a.py tests/data.json tests/a_test.go --fast"),
    ],
)
def test_commands_are_restricted_to_the_tests_of_a_commit(command: str, restricted_command: str):
    files = ["tests/test_a.py", "tests/data.json", "tests/a_test.go"]
    if command.startswith("pytest"):
        files = files[:2]
    assert restricted(command, files) == restricted_command


def test_helpers_beside_the_tests_restrict_nothing():
    assert restricted("pytest -q", ["tests/helpers.py", "tests/conftest.py"]) == "pytest -q"
    assert restricted("npx jest", ["test/a.test.ts", "test/x.snap"]) == "npx jest test/a.test.ts"


REAL = {
    "unittest": (
        "test_it.py",
        "import unittest\nclass A(unittest.TestCase):\n    def test_ok(self): pass\n"
        "    def test_bad(self): self.fail()\n    def test_sub(self):\n"
        "        with self.subTest(n=1): self.fail()\n",
        "python3 -m unittest",
        {"test_it.A.test_ok": "passed", "test_it.A.test_bad": "failed", "test_it.A.test_sub": "failed"},
    ),
    "pytest": (
        "test_it.py",
        "class TestA:\n    def test_ok(self): pass\n    def test_bad(self): assert 0\n",
        f"{shlex.quote(sys.executable)} -m pytest -q",
        {"test_it.py::TestA::test_ok": "passed", "test_it.py::TestA::test_bad": "failed"},
    ),
    "node": (
        "it.test.mjs",
        "import {test, describe} from 'node:test'\ndescribe('sum', () => { test('adds', () => {}) })\n"
        "test('fails', () => { throw new Error('no') })\n",
        "node --test",
        {"sum > adds": "passed", "fails": "failed"},
    ),
}


@pytest.mark.parametrize("name", REAL)
def test_real_runners_write_the_report(tmp_path: Path, name: str):
    file, text, command, expected = REAL[name]
    if not shutil.which(command.split()[0]):
        pytest.skip(f"{name} is not installed")
    (tmp_path / file).write_text(text)
    report = tmp_path / "the report"
    # Plugins of pytest would take most of the time.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = with_report(command, report)
    done = subprocess.run(
        words, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert read_results(command, report, done.returncode) == expected, done.stderr
