"""Which commits become tasks, how statements read, where clones are found, how tasks are written."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.tasks import history
from proctor.tasks.commit_context import entries_of
from proctor.tasks.history import (
    CommitCandidate,
    CommitValidation,
    MiningResult,
    Rejection,
    find_candidates,
    since_date,
)
from proctor.tasks.interface import interface_of
from proctor.tasks.statement import title_and_body
from proctor.tasks.task import ReadOptions, read_repos

NOW = datetime(2026, 2, 1, tzinfo=UTC)


def refused(call: Any) -> str:
    with pytest.raises(UsageError) as error:
        call()
    return str(error.value)


# --- Commits of a history ---


def log(*entries: tuple[str, str, str, str, str]) -> Any:
    """Git with commits: name, parents, author, message and figures."""
    text = "".join(
        f"\x01{commit}\x02{parents}\x022026-01-02T00:00:00+00:00\x02{author}\x02{message}\x03{figures}"
        for commit, parents, author, message, figures in entries
    )
    calls: list[tuple[str, ...]] = []

    def git(*words: str) -> str:
        calls.append(words)
        return text

    git.calls = calls  # type: ignore[attr-defined]
    return git


FIGURES = "\n\n3\t1\tsrc/shop.py\n2\t0\ttests/test_shop.py\n-\t-\tlogo.png\n"


def candidate(
    author: str = "Ada", message: str = "Add totals", figures: str = FIGURES, parents: str = "p1"
) -> Any:
    candidates, rejected = find_candidates(log(("c1", parents, author, message, figures)), "10d", NOW)
    assert len(candidates) + len(rejected) == 1
    return candidates[0] if candidates else rejected[0].reason


def test_a_commit_is_read_with_its_files() -> None:
    git = log(("c1", "p1", "Ada", "Add totals\n\nWith \x02 odd signs.\n", FIGURES))
    (one,), rejected = find_candidates(git, "10d", NOW)
    assert rejected == []
    assert one == CommitCandidate(
        commit="c1",
        parent="p1",
        title="Add totals",
        message="Add totals\n\nWith \x02 odd signs.",
        date="2026-01-02T00:00:00+00:00",
        tests=("tests/test_shop.py",),
        source=("src/shop.py", "logo.png"),
        lines=4,
        language="Python",
    )
    assert "--since=2026-01-22T00:00:00+00:00" in git.calls[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parents": ""}, "first commit"),
        ({"parents": "p1 p2"}, "merge commit"),
        ({"author": "dependabot[bot]"}, "written by a bot"),
        ({"message": "Release 1.0"}, "release, revert, documentation or maintenance"),
        ({"figures": "1\t1\tsrc/shop.py\n"}, "no tests changed"),
        (
            {"figures": "1\t1\ttests/test_a.py\n1\t1\tdocs/a.py\n1\t1\tREADME.md\n1\t1\tuv.lock\n"},
            "no source changed",
        ),
    ],
)
def test_a_commit_that_is_no_task_has_a_reason(changes: dict[str, str], reason: str) -> None:
    assert candidate(**changes) == reason


def test_a_commit_may_be_so_large() -> None:
    tests = "1\t0\ttests/test_a.py\n"

    def sized(files: int, lines: int, test_files: int = 1) -> Any:
        source = "".join(f"{lines if n == 0 else 0}\t0\tsrc/f{n}.py\n" for n in range(files))
        return candidate(figures=source + "".join(f"1\t0\ttests/test_{n}.py\n" for n in range(test_files)))

    files, lines, most = history.MOST_SOURCE_FILES, history.MOST_SOURCE_LINES, history.MOST_TEST_FILES
    assert isinstance(sized(files, lines, most), CommitCandidate)
    assert sized(files + 1, 1) == f"too large: {files + 1} source files, 1 lines, 1 test files"
    assert sized(1, lines + 1) == f"too large: 1 source files, {lines + 1} lines, 1 test files"
    assert sized(1, 1, most + 1) == f"too large: 1 source files, 1 lines, {most + 1} test files"
    assert candidate(figures=f"1\t2\tsrc/a.js\n3\t0\tsrc/b.py\n0\t0\tsrc/c.py\n{tests}").language == "Python"


def test_the_same_change_is_taken_once() -> None:
    same = ("p1", "Ada", "Add totals\n\nBody", FIGURES)
    other = ("p1", "Ada", "Add totals", FIGURES.replace("3", "5"))
    renamed = ("p1", "Ada", "Add sums", FIGURES)
    commits = (("c1", *same), ("c2", *same), ("c3", *other), ("c4", *renamed))
    candidates, rejected = find_candidates(log(*commits), "1y", NOW)
    assert [each.commit for each in candidates] == ["c1", "c3", "c4"]
    assert rejected == [Rejection(commit="c2", reason="the same change as a newer commit")]


@pytest.mark.parametrize(
    ("since", "start"),
    [
        ("10d", "2026-01-22T00:00:00+00:00"),
        ("2 w", "2026-01-18T00:00:00+00:00"),
        ("1m", "2026-01-02T00:00:00+00:00"),
        (" 1y ", "2025-02-01T00:00:00+00:00"),
        ("99999d", "1926-02-26T00:00:00+00:00"),
        ("2024-01-31", "2024-01-31T00:00:00+00:00"),
        ("2024-01-31T10:00:00+02:00", "2024-01-31T10:00:00+02:00"),
    ],
)
def test_periods(since: str, start: str) -> None:
    assert since_date(since, NOW).isoformat() == start


@pytest.mark.parametrize("since", ["", "10", "10x", "999999d", "soon"])
def test_what_is_no_period(since: str) -> None:
    assert refused(lambda: since_date(since, NOW)) == (
        f"`{since}` is no period\nWrite it like 365d, 12w, 6m, 2y, or 2024-01-31."
    )


def test_the_document_of_what_was_found() -> None:
    (one,), _ = find_candidates(log(("c1", "p1", "Ada", "Add totals", FIGURES)), "10d", NOW)
    task = CommitValidation(
        commit="c1",
        state="task",
        fail_to_pass=("a",),
        pass_to_pass=("b", "c"),
        seconds=1.26,
        folder="totals",
        underspecification=0.4,
        sources=("issue",),
    )
    flaky = CommitValidation(commit="c2", state="flaky", wavering=tuple(f"t{n}" for n in range(25)))
    result = MiningResult(
        repo="/r",
        check="make test",
        check_source="Makefile",
        candidates=[one],
        tasks=[task],
        flaky=[flaky],
        rejected=[Rejection(commit="c3", reason="no tests changed")],
    )
    about = {"commit": "c1", "title": "Add totals", "date": "2026-01-02T00:00:00+00:00"}
    counts = {"sourceFiles": 2, "testFiles": 1, "lines": 4}
    task_counts = {
        "failToPass": 1,
        "passToPass": 2,
        "otherTestFiles": 0,
        "underspecification": 0.4,
        "sources": ["issue"],
    }
    task_counts["seconds"] = 1.3
    assert result.document() == {
        "repo": "/r",
        "check": "make test",
        "checkSource": "Makefile",
        "candidates": [{**about, "language": "Python", **counts}],
        "tasks": [{**about, "folder": "totals", **task_counts}],
        "flaky": [{"commit": "c2", "tests": [f"t{n}" for n in range(20)]}],
        "rejected": [{"commit": "c3", "reason": "no tests changed"}],
    }


# --- Issues and repositories ---


@pytest.mark.parametrize(
    ("message", "title", "body"),
    [
        ("fix: totals are wrong.", "Totals are wrong", ""),
        ("totals() is wrong", "totals() is wrong", ""),
        ("date_signed is a datetime", "date_signed is a datetime", ""),
        ("don't accept the future", "Don't accept the future", ""),
        ("lib/a.py: stop crashing", "Stop crashing", ""),
        ("fix(isSlug): allow dots", "isSlug: allow dots", ""),
        ("fix(deps): allow dots", "Allow dots", ""),
        ("Add x\n\nReplaced `a` by `b` in it.\n\nIt is useful.", "Add x", "It is useful."),
        ("added routes with tests", "Added routes with tests", ""),
        ("Issue 1214: Totals are wrong", "Totals are wrong", ""),
        ("Fixed #36001 -- Made totals right.", "Made totals right", ""),
        ("[#12] Fix: totals (#13)", "Totals", ""),
        ("Fixes #12: don't crash", "Don't crash", ""),
        (
            "Add x\n\n* Add a real thing\n* Update lib/a.py\n* Apply suggestions from code review",
            "Add x",
            "* Add a real thing",
        ),
        ("Add x\n\nAdd tests for it\n\nIt is useful.", "Add x", "It is useful."),
        ("{func}`edit` takes a {class}`Path`. {issue}`3` {pr}`4`", "`edit` takes a `Path`", ""),
        ("[#12](https://h/o/r/pull/12) `isTime`: add x @someone", "`isTime`: add x", ""),
        ("Add x\n\nFollow-up of #12.", "Add x", ""),
        ("Fix\n\nReal text.\n\n```diff\n- a\n+ b\n```\n\n## Test plan\nrun x", "Fix", "Real text."),
        (
            "Add x\n\nTies are the value\nseen first, see #4.\n\nCloses #90, #91",
            "Add x",
            "Ties are the value\nseen first.",
        ),
        (
            "Add x\n\nBugs in\nreferences (#12). Fixes\nboth #13 cases.",
            "Add x",
            "Bugs in\nreferences. Fixes\nboth cases.",
        ),
        (
            "[CLI-3] Reject x (#4)\n\n* reject x.\n\n* Sort members\n\n* It was taken.\n\n"
            "* Potential fix for pull request finding\n\nCo-authored-by: A <a@b>\n\n---------\n\n"
            "Signed-off-by: B <b@b>",
            "Reject x",
            "* It was taken.",
        ),
        ("Add x\n\nSort members", "Add x", ""),
        ("Add x\n\nUseful.\nAdd tests for\nit all. So.", "Add x", "Useful.\nAdd tests for\nit all. So."),
        ("Add x\n\nAs it is.\n\nWork-Id: 01a0106e-73be\nSigned-off-by: A", "Add x", "As it is."),
        ("Add x\n\nSend\nContent-Type: a/b\nalways.", "Add x", "Send\nContent-Type: a/b\nalways."),
        ("Add x\r\n\r\nBody  \n\n\n\nMore", "Add x", "Body\n\nMore"),
        ("Add x\n\n```diff\n-a\n+b\n```\nText\n```py\ncode\n```", "Add x", "Text\n```py\ncode\n```"),
    ],
)
def test_statements_of_commit_messages(message: str, title: str, body: str) -> None:
    assert title_and_body(message, ["lib/a.py"], hints=False) == (title, body)


GO = {
    "a.go": 'package a\n\ntype Response struct {\n\tBody string\n\tStatusCode int `json:"code"`\n}\n\n'
    "func Parse(text string, strict bool) (*Response, error) {\n\tlocal := 1\n\treturn nil, nil\n}\n"
}
PYTHON = {
    "a.py": "class Tree:\n    def grow(\n        self,\n        size: int,\n    ) -> None:\n"
    "        self.size = size\n\n\ndef plant(*, deep=True):\n    raise ValueError('no room here')\n"
}


def added(text: str) -> str:
    return "".join(f"+{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("files", "removed", "tests", "known", "told"),
    [
        (
            GO,
            "-func Parse(text string) (*Response, error) {\n",
            "r, _ := Parse(x, true)\nlocal := r.StatusCode",
            {"Parse", "Response"},
            (
                "Tests use these new names:\n\n- `StatusCode int` in `type Response struct`\n\n"
                "Tests use these functions with a new signature:\n\n"
                "- `func Parse(text string, strict bool) (*Response, error)`"
            ),
        ),
        (
            PYTHON,
            "",
            "Tree().grow(3)\nwith raises(ValueError, match='no room here'): plant(deep=1)",
            {"ValueError"},
            (
                "Tests use these new names:\n\n- `class Tree`\n"
                "- `def grow(self, size: int) -> None` in `class Tree`\n"
                "- `def plant(*, deep=True)`\n\nTests expect these texts:\n\n- `no room here`"
            ),
        ),
        (PYTHON, "", "def plant(): pass\n# Tree", {"def"}, ""),
        (
            {"a.js": "var join = function join(a, limit) {\n    return a;\n};\nconst cut = (a) => a;\n"},
            "-var join = function join(a) {\n",
            "join([], 2); cut(1)",
            {"join"},
            "Tests use these new names:\n\n- `const cut(a)`\n\n"
            "Tests use these functions with a new signature:\n\n- `var join(a, limit)`",
        ),
    ],
)
def test_an_agent_is_told_what_tests_use_and_only_the_solution_has(files, removed, tests, known, told):
    patch = removed + "".join(added(text) for text in files.values())
    interface = interface_of(patch, added(tests), files, lambda text: text in known)
    assert interface.markdown().removeprefix("## Interface\n\n") == told


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (
            "# 1.0\n\n- One thing\n  more of it\n- `b`\n  - second [#2](x)\n\nNot one\n",
            ["One thing more of it", "second [#2](x)"],
        ),
        ("Fixed a bug\nin totals.\n", ["Fixed a bug in totals."]),
        ("", []),
    ],
)
def test_entries_of_a_changelog(text: str, entries: list[str]) -> None:
    assert list(entries_of(text)) == entries


def test_repositories_are_a_folder_of_clones_or_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert read_repos("") == {}
    assert read_repos(f" {tmp_path}/a , o/n={tmp_path}/b,") == {"": tmp_path / "a", "o/n": tmp_path / "b"}
    assert refused(lambda: read_repos(f"o/n={tmp_path}/lost")) == (
        f"there is no folder {tmp_path}/lost\nGive --repos a folder of clones, or owner/name=PATH."
    )


@pytest.mark.parametrize("place", ["o/n", "o/n.git", "o__n", "n", "n.git"])
def test_clones_are_found_by_owner_and_name(tmp_path: Path, place: str) -> None:
    (tmp_path / "clones" / place).mkdir(parents=True)
    options = ReadOptions(repos={"": tmp_path / "clones", "x/y": tmp_path / "xy"})
    assert options.repository("o/n", tmp_path) == tmp_path / "clones" / place
    assert options.repository("x/y", tmp_path) == tmp_path / "xy"
    assert options.repository("o/other", tmp_path) is None
    assert ReadOptions().repository("o/n", tmp_path) is None
    (tmp_path / "o" / "n").mkdir(parents=True)
    assert options.repository("o/n", tmp_path) == tmp_path / "o" / "n"
