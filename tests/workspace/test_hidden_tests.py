"""Archives of hidden tests, and the fresh tree in which an agent's work is judged by them."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from proctor.errors import WorkspaceError
from proctor.testing import make_git_repository
from proctor.workspace import hidden_tests
from proctor.workspace.commit import commit_changes
from proctor.workspace.hidden_tests import HiddenTests
from proctor.workspace.source_repository import SourceRepository, open_source
from proctor.workspace.worktree import Worktree, fill, make_tree

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
FILES = {
    "shop.py": "total = 1\n",
    "old.py": "old = 1\n",
    "tests/test_shop.py": "def test_total(): pass\n",
    "tests/test_old.py": "def test_old(): pass\n",
    "pyproject.toml": "[project]\n",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceRepository:
    place = make_git_repository(tmp_path_factory.mktemp("source") / "shop", FILES)
    return open_source(place, ENVIRONMENT)


def tree_in(place: Path, source: SourceRepository) -> Worktree:
    tree = make_tree(place, source, "batch/run/1", source.base_commit("main"), {})
    fill(tree)
    return tree


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    folder.mkdir(exist_ok=True)
    return folder


HIDDEN = HiddenTests(
    command="pytest",
    fail_to_pass=("t::new",),
    pass_to_pass=("t::old",),
    removed_tests=("tests/test_old.py",),
    removed_files=("old.py",),
    solution_paths=("shop.py",),
    commit="c1",
    facts={"seconds": 2},
)


def archive(folder: Path, hidden: HiddenTests = HIDDEN, **solution: str) -> Path:
    tests = write(folder / "t", {"tests/test_shop.py": "def test_new(): pass\n"})
    files = write(folder / "s", solution or {"shop.py": "total = 2\n"})
    hidden_tests.write_archive(folder / "a.tar.xz", hidden, tests=tests, solution=files, patch="the patch")
    return folder / "a.tar.xz"


@pytest.mark.parametrize(
    ("path", "kinds"),
    [
        ("src/a.py", ""),
        ("tests/helper.txt", "test"),
        ("src/test_a.py", "test"),
        ("src/a_test.go", "test"),
        ("src/a.spec.ts", "test"),
        ("src/AbcTest.java", "test"),
        ("conftest.py", "test"),
        ("docs/tests/a.py", ""),
        ("examples/test_a.py", ""),
        ("testing.py", ""),
        ("tests", ""),
        ("pyproject.toml", "setting"),
        ("sub/Makefile", "setting"),
        (".cargo/config.toml", "setting"),
        ("jest.config.js", "setting"),
        ("a/package.json", "setting"),
        ("package.json.md", ""),
        (".github/workflows/x.yml", "ci"),
        ("sub/.github/x.yml", ""),
        ("Jenkinsfile", "ci"),
        ("sub/Jenkinsfile", ""),
    ],
)
def test_which_files_are_tests_settings_and_ci(path: str, kinds: str) -> None:
    made = {
        "test": hidden_tests.is_test(path),
        "setting": hidden_tests.is_test_setting(path),
        "ci": hidden_tests.is_ci(path),
    }
    assert [kind for kind, holds in made.items() if holds] == ([kinds] if kinds else [])
    assert hidden_tests.is_about_tests(path) is bool(kinds)


@pytest.mark.parametrize(
    ("path", "replaces"),
    [
        ("pytest.py", True),
        ("src/json/__init__.py", True),
        ("lib/_pytest.py", True),
        ("mine/json.py", False),
        ("src/mine.py", False),
        ("json.txt", False),
        (".venv/lib/a.py", True),
        ("node_modules/x/index.js", True),
        ("node_modules", False),
        ("pytest.pyc", True),
        ("src/_pytest/__init__.pyc", True),
        ("json.cpython-311-x86_64-linux-gnu.so", True),
        ("shop/native.abi3.so", False),
    ],
)
def test_which_new_files_would_be_loaded_in_place_of_the_runner(path: str, replaces: bool) -> None:
    assert hidden_tests.is_in_place_of_runner(path) is replaces


def test_an_archive_says_what_was_written_and_has_the_same_bytes_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first = archive(tmp_path / "a")
    os.utime(first.parent / "s" / "shop.py", (1, 1))
    second = archive(tmp_path / "b")

    assert hidden_tests.digest_of_archive(first) == hidden_tests.digest_of_archive(second)
    read = hidden_tests.read_archive(first)
    assert read == HiddenTests(
        **{name: getattr(HIDDEN, name) for name in HiddenTests.__slots__ if name != "facts"}
    )
    with tarfile.open(first) as opened:
        document = json.loads(opened.extractfile("task.json").read())
        patch = opened.extractfile("solution.patch").read()
        owners = {(each.uid, each.gid, each.uname, each.gname, each.mtime) for each in opened}
    assert (document["seconds"], patch, owners) == (2, b"the patch", {(0, 0, "", "", 0)})
    assert list(hidden_tests.solution_files(first)) == [("shop.py", "total = 2\n")]


def test_an_archive_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    for hidden in (HiddenTests(command="", fail_to_pass=("t",)), HiddenTests(command="c", fail_to_pass=())):
        with pytest.raises(WorkspaceError, match="names no command, or no test that must pass"):
            hidden_tests.read_archive(archive(tmp_path, hidden))
    with pytest.raises(WorkspaceError, match=r"cannot read .*none: No such file"):
        hidden_tests.digest_of_archive(tmp_path / "none")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(WorkspaceError, match="is no archive of hidden tests"):
        hidden_tests.read_archive(tmp_path / "text")
    with pytest.raises(WorkspaceError, match="cannot be read as text"):
        list(hidden_tests.solution_files(tmp_path / "text"))
    with tarfile.open(tmp_path / "empty", "w"):
        pass
    with pytest.raises(WorkspaceError, match="is no archive of hidden tests"):
        hidden_tests.read_archive(tmp_path / "empty")


def test_work_is_judged_without_its_changes_of_tests_settings_and_runners(tmp_path, source):
    tree, judged = tree_in(tmp_path / "a", source), tree_in(tmp_path / "b", source)
    write(
        tree.folder,
        {
            "shop.py": "total = 2\nimport os; os._exit(0)\n",
            "new: file.py": "x = 1\n",
            "pytest.py": "fake = 1\n",
            "json.py": "fake = 1\n",
            "tests/test_shop.py": "def test_total(): os._exit(0)\n",
            "pyproject.toml": "[tool]\n",
            "Makefile": "all:\n",
            ".gitignore": "*.log\n",
        },
    )
    (tree.folder / "old.py").unlink()
    commit_changes(tree, "work")
    write(tree.folder, {"tests/kept.log": "x", "build/tests/x.log": "x", "plain.log": "x"})

    ignored = hidden_tests.carry_work(tree, judged, ["Makefile"])

    assert ignored == [
        "Makefile",
        "json.py",
        "pyproject.toml",
        "pytest.py",
        "tests/kept.log",
        "tests/test_shop.py",
    ]
    assert (judged.folder / "shop.py").read_text().startswith("total = 2\n")
    assert (judged.folder / "new: file.py").is_file() and (judged.folder / "Makefile").is_file()
    assert not (judged.folder / "old.py").exists()
    assert (judged.folder / "tests/test_shop.py").read_text() == FILES["tests/test_shop.py"]
    assert (judged.folder / "pyproject.toml").read_text() == "[project]\n"
    assert not (judged.folder / "pytest.py").exists()
    assert hidden_tests.lines_about_runner(judged) == ["shop.py: import os; os._exit(0)"]


def test_hidden_tests_replace_those_in_the_tree(tmp_path: Path, source: SourceRepository) -> None:
    tree = tree_in(tmp_path / "a", source)
    hidden_tests.lay_tests(archive(tmp_path), tree)

    assert (tree.folder / "tests/test_shop.py").read_text() == "def test_new(): pass\n"
    assert not (tree.folder / "tests/test_old.py").exists()
    assert (tree.folder / "old.py").exists() and not (tree.control / "hidden").exists()


def test_an_archive_without_tests_leaves_the_tree(tmp_path: Path, source: SourceRepository) -> None:
    tree, file = tree_in(tmp_path / "a", source), tmp_path / "b.tar"
    data = json.dumps({"command": "c", "failToPass": ["t"]}).encode()
    with tarfile.open(file, "w") as opened:
        about = tarfile.TarInfo("task.json")
        about.size = len(data)
        opened.addfile(about, io.BytesIO(data))
    hidden_tests.lay_tests(file, tree)
    assert tree.git("status", "--porcelain") == ""


PATCH = """--- a/tests/test_shop.py
+++ b/tests/test_shop.py
@@ -1 +1 @@
-def test_total(): pass
+def test_new(): pass
--- /dev/null
+++ b/tests/test_more.py
@@ -0,0 +1 @@
+def test_more(): pass"""


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_tests_of_a_patch_replace_what_an_agent_made_of_them(tmp_path, source, end):
    tree = tree_in(tmp_path / "a", source)
    write(tree.folder, {"tests/test_shop.py": "mine\n", "tests/test_more.py": "mine\n", "shop.py": "x\n"})
    hidden_tests.lay_patch(PATCH + end, tree)

    assert (tree.folder / "tests/test_shop.py").read_text() == "def test_new(): pass\n"
    assert (tree.folder / "tests/test_more.py").read_text() == "def test_more(): pass\n"
    assert (tree.folder / "shop.py").read_text() == "x\n"
    with pytest.raises(WorkspaceError, match="the patch with the tests does not apply"):
        hidden_tests.lay_patch(PATCH.replace("-def test_total", "-def test_other"), tree)


def test_nothing_is_removed_through_a_link(tmp_path: Path, source: SourceRepository) -> None:
    tree = tree_in(tmp_path / "a", source)
    outside = write(tmp_path / "outside", {"a.py": "x", "b.py": "x"})
    before = {path.name for path in tree.folder.iterdir()}
    (tree.folder / "folder").symlink_to(outside)
    (tree.folder / "b.py").symlink_to(outside / "b.py")
    (tree.folder / "inner").mkdir()
    # Git lists no such paths; what it lists may have been replaced by a link meanwhile.
    for path in ("folder/a.py", "b.py", "inner", "none.py", "../git/config"):
        hidden_tests._remove(tree, path)
    assert sorted(path.name for path in outside.iterdir()) == ["a.py", "b.py"]
    assert {path.name for path in tree.folder.iterdir()} - before == {"folder", "inner"}
    assert (tree.repository / "config").is_file()
