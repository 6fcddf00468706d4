"""Tests in forks: each runs once, failures and deaths are reported, fixtures of a session are torn down."""

from collections import Counter
from pathlib import Path

import pytest

CONFTEST = """
import os
from pathlib import Path

import pytest

LOG = Path(__file__).with_name("log")

def note(*words):
    with LOG.open("a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

note("collected by", os.getpid())

@pytest.fixture(scope="session")
def shared():
    yield os.getpid()
    note("torn down in", os.getpid())

@pytest.fixture
def ran(request, shared, tmp_path):
    assert shared == os.getpid()
    note("ran", request.node.name, "in", shared, tmp_path.parent)
"""

TESTS = """
import os, pytest, warnings

@pytest.mark.parametrize("number", range(20))
def test_passes(ran, number):
    print("not shown")

def test_fails(ran):
    print("shown")
    assert 1 == 2

def test_dies(ran):
    os._exit(7)

def test_warns(ran):
    warnings.warn("take care")
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *words: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    for name in ("a", "b", "c"):
        pytester.makepyfile(**{f"test_{name}": TESTS.replace("def test_", f"def test_{name}_")})
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return pytester.runpytest_subprocess("-p", "forked_workers", "-p", "no:cacheprovider", *words)


def test_each_test_runs_once_in_a_fork_of_the_process_that_collected(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(pytester, monkeypatch, "--workers", "3")

    result.assert_outcomes(passed=63, failed=6, warnings=3)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*assert 1 == 2*", "shown"])
    result.stdout.fnmatch_lines(["the worker died of this test: exit code 7", "*UserWarning: take care*"])
    assert "not shown" not in result.stdout.str()
    lines = [line.split() for line in (pytester.path / "log").read_text().splitlines()]
    (collected_by,) = [words[-1] for words in lines if words[0] == "collected"]
    ran = [words[1:] for words in lines if words[0] == "ran"]
    assert Counter(name for name, *_ in ran).most_common(1)[0][1] == 1 and len(ran) == 69
    processes = {process for _, _, process, _ in ran}
    assert 3 <= len(processes) <= 6 and collected_by not in processes
    assert len({folder for *_, folder in ran}) == len(processes)
    torn_down = [words[-1] for words in lines if words[0] == "torn"]
    # All but those that died.
    died = {process for name, _, process, _ in ran if name.endswith("_dies")}
    assert sorted(torn_down) == sorted(processes - died)


def test_no_test_is_begun_after_the_first_failure_if_that_is_the_limit(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(pytester, monkeypatch, "--workers", "1", "-x", "-k", "not dies")

    # The next one was given to the worker already.
    result.assert_outcomes(passed=21, failed=1, warnings=1, deselected=3)
    assert result.ret == 1
