"""Hidden tests and the reference solution of a task made of a commit, in one compressed archive.

    task.json           the command, and the tests that must pass
    tests/…             test files of the commit
    solution/…          other files of the commit
    solution.patch      the same as a patch, for readers

The archive stays closed while an agent works: no test in it is a file on the disk. The work is judged in a
fresh tree that gets the agent's commits without their changes of tests, settings of test runners and CI: what
an agent did to these, to installed packages, to compiled code or to its HOME decides nothing.
"""

import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from proctor.errors import WorkspaceError
from proctor.formatting import clipped
from proctor.git import GitError
from proctor.json_values import as_map, as_text, parse_json, texts_in
from proctor.workspace import beneath
from proctor.workspace.starting_files import copy_over
from proctor.workspace.worktree import Worktree, settle

_TEST_FOLDERS = frozenset(
    {"test", "tests", "__tests__", "__snapshots__", "testdata", "e2e", "cypress", "spec"}
)
_NOT_TESTS = frozenset({"docs", "doc", "examples", "example", "node_modules", "vendor", "site-packages"})
_TEST_NAME = re.compile(
    r"(test_.*|.*_test|tests|conftest)\.py|.*\.(test|spec)\.[cm]?[jt]sx?|.*_test\.(go|cc|cpp|rb|exs)|.*_spec\.rb"
    r"|.*(Test|Tests|IT)\.(java|kt|php|cs)|test\.[cm]?[jt]s"
)
_SETTINGS_NAME = re.compile(
    r"\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml|noxfile\.py|sitecustomize\.py|usercustomize\.py"
    r"|(jest|vitest|vite|karma|playwright)\.(config|setup)\..*|\.mocharc.*|\.taprc|package\.json|\.npmrc"
    r"|babel\.config\..*|\.babelrc.*|bunfig\.toml|\.rspec|rust-toolchain(\.toml)?"
    r"|Makefile|build\.rs|phpunit\.xml.*|\.coveragerc|\.nycrc.*|\.gitattributes"
)
_SETTINGS_FOLDERS = frozenset({".cargo"})
_INSTALLED = frozenset({"node_modules", ".venv", "venv", "site-packages", ".tox", ".nox"})
"""Folders of installed packages."""
_RUNNER_MODULES = frozenset(
    {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "xdist", "py"}
)
_MODULE_FILE = re.compile(r"(\w+)(?:/__init__)?(?:\.[\w-]+)?\.(?:py|pyc|so|pyd)")
"""A module, also a compiled one: Python loads `pytest.pyc` and `json.abi3.so` as well."""
_MODULE_ROOTS = ("", "src/", "lib/")
_ABOUT_RUNNER = re.compile(
    r"os\._exit|junit|_pytest\b|pytest_runtest|PYTEST_|PROCTOR_|TestResult|TestCase\.run\b"
    r"|process\.exit\(0|sys\.modules\[.(pytest|unittest)|\batexit\b|\.report\b"
)
"""What a program needs to end its tests early, or to forge their report."""
_CI_FOLDERS = (".github", ".circleci", ".gitlab", ".buildkite")
_CI_NAMES = frozenset({".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml", "Jenkinsfile", "appveyor.yml"})


def is_test(path: str) -> bool:
    """Whether a path is a test file, or a file in a folder of tests, in the usual ecosystems."""
    parts = PurePosixPath(path).parts
    if _NOT_TESTS & set(parts[:-1]):
        return False
    return bool(_TEST_FOLDERS & set(parts[:-1])) or bool(_TEST_NAME.fullmatch(parts[-1]))


def is_test_setting(path: str) -> bool:
    """Whether a path may configure a test runner, or how Python or git start."""
    parts = PurePosixPath(path).parts
    return bool(_SETTINGS_NAME.fullmatch(parts[-1])) or bool(_SETTINGS_FOLDERS & set(parts[:-1]))


def is_ci(path: str) -> bool:
    """Whether a path configures continuous integration."""
    return path.split("/")[0] in _CI_FOLDERS or path in _CI_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenTests:
    """What an archive says about its tests."""

    command: str
    """Runs them."""
    fail_to_pass: tuple[str, ...]
    """IDs of the tests that fail before the reference solution and pass after it."""
    pass_to_pass: tuple[str, ...] = ()
    """IDs of the tests that pass before and after it."""
    removed_tests: tuple[str, ...] = ()
    """Test files that the commit removes."""
    removed_files: tuple[str, ...] = ()
    """Other files that the commit removes."""
    solution_paths: tuple[str, ...] = ()
    """Files that the reference solution changes."""
    commit: str = ""
    facts: dict[str, object] = field(default_factory=dict)
    """Figures of the validation, for readers."""


def write_archive(file: Path, hidden: HiddenTests, *, tests: Path, solution: Path, patch: str) -> None:
    """Write an archive of two folders; the same contents give the same bytes."""
    document = {
        "command": hidden.command,
        "failToPass": list(hidden.fail_to_pass),
        "passToPass": list(hidden.pass_to_pass),
        "removedTests": list(hidden.removed_tests),
        "removedFiles": list(hidden.removed_files),
        "solutionPaths": list(hidden.solution_paths),
        "commit": hidden.commit,
        **hidden.facts,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    # xz, unlike gzip, stores no time.
    with tarfile.open(file, "w:xz") as archive:
        for name, data in (("task.json", text.encode()), ("solution.patch", patch.encode(errors="replace"))):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
        for name, folder in (("tests", tests), ("solution", solution)):
            archive.add(folder, name, filter=_anonymous)


def _anonymous(about: tarfile.TarInfo) -> tarfile.TarInfo:
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    about.mtime = 0
    return about


def digest_of_archive(file: Path) -> str:
    """SHA-256 of the archive."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise WorkspaceError(f"cannot read {file}: {error.strerror}") from error


def read_archive(file: Path) -> HiddenTests:
    """What an archive says about its tests. Raises `WorkspaceError`."""
    document = as_map(parse_json(_member(file, "task.json")))
    if not as_text(document, "command") or not texts_in(document, "failToPass"):
        raise WorkspaceError(f"{file} names no command, or no test that must pass")
    return HiddenTests(
        command=as_text(document, "command"),
        fail_to_pass=tuple(texts_in(document, "failToPass")),
        pass_to_pass=tuple(texts_in(document, "passToPass")),
        removed_tests=tuple(texts_in(document, "removedTests")),
        removed_files=tuple(texts_in(document, "removedFiles")),
        solution_paths=tuple(texts_in(document, "solutionPaths")),
        commit=as_text(document, "commit"),
    )


def solution_files(file: Path) -> Iterator[tuple[str, str]]:
    """The relative path and text of each file of the reference solution."""
    try:
        with tarfile.open(file, "r:*") as archive:
            for about in archive:
                if about.isfile() and about.name.startswith("solution/"):
                    opened = archive.extractfile(about)
                    assert opened is not None
                    yield about.name.removeprefix("solution/"), opened.read().decode("utf-8")
    except (OSError, tarfile.TarError, UnicodeDecodeError) as error:
        raise WorkspaceError(f"the reference solution in {file} cannot be read as text: {error}") from error


def _member(file: Path, name: str) -> bytes:
    try:
        with tarfile.open(file, "r:*") as archive:
            opened = archive.extractfile(name)
            return opened.read() if opened else b""
    except (OSError, tarfile.TarError, KeyError) as error:
        raise WorkspaceError(f"{file} is no archive of hidden tests: {error}") from error


def is_about_tests(path: str) -> bool:
    """Whether an agent's change of this path decides nothing: tests, their settings, and CI."""
    return is_test(path) or is_test_setting(path) or is_ci(path)


def is_in_place_of_runner(path: str) -> bool:
    """Whether a new file would be loaded in place of a test runner, its modules, or installed packages."""
    if _INSTALLED & set(PurePosixPath(path).parts[:-1]):
        return True
    root = next(root for root in reversed(_MODULE_ROOTS) if path.startswith(root))
    module = _MODULE_FILE.fullmatch(path.removeprefix(root))
    return module is not None and module[1] in _RUNNER_MODULES | sys.stdlib_module_names


def carry_work(tree: Worktree, judged: Worktree, part_of_work: Collection[str]) -> list[str]:
    """Put the committed changes of an agent into a fresh tree, without those of tests, settings and CI.

    A setting in `part_of_work`, because the reference solution changes it, is taken over. Returns the paths
    of tests, settings and CI that the agent changed, committed or not.
    """
    reference = f"refs/heads/{tree.branch}"
    quietly = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
    judged.git("fetch", *quietly, str(tree.control), f"+{reference}:refs/heads/work")
    # NUL after each path: names may contain anything else.
    listed = judged.git("diff", "--name-only", "--no-renames", "-z", tree.base_sha, "refs/heads/work")
    changed = [path for path in listed.split("\0") if path]
    before = set(judged.git("ls-tree", "-r", "-z", "--name-only", tree.base_sha).split("\0"))

    def decides_nothing(path: str) -> bool:
        return is_about_tests(path) or (path not in before and is_in_place_of_runner(path))

    carried = [path for path in changed if path in part_of_work or not decides_nothing(path)]
    present = set(judged.git("ls-tree", "-r", "-z", "--name-only", "refs/heads/work").split("\0"))
    settle(judged)
    for path in carried:
        _remove(judged, path)
    paths = "".join(f"{path}\0" for path in carried if path in present)
    if paths:
        judged.git(
            "checkout",
            "--quiet",
            "refs/heads/work",
            "--pathspec-from-file=-",
            "--pathspec-file-nul",
            stdin=paths,
            GIT_LITERAL_PATHSPECS="1",
        )
    uncommitted = {path for path in _uncommitted(tree) if is_about_tests(path)}
    return sorted({path for path in changed if decides_nothing(path)} | uncommitted)


def lines_about_runner(judged: Worktree) -> list[str]:
    """Added lines of the agent's work that refer to the test runner or its report, for readers to look at."""
    added = judged.git(
        "diff", "--unified=0", "--no-renames", "--no-ext-diff", judged.base_sha, "refs/heads/work"
    )
    path, lines = "", list[str]()
    for line in added.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif line.startswith("+") and _ABOUT_RUNNER.search(line) and not is_about_tests(path):
            lines.append(f"{path}: {clipped(line[1:].strip(), 80)}")
    return lines


def lay_tests(file: Path, tree: Worktree) -> None:
    """Put the hidden tests of an archive into a tree."""
    aside = tree.control / "hidden"
    settle(tree)
    for path in read_archive(file).removed_tests:
        _remove(tree, path)
    try:
        with tarfile.open(file, "r:*") as archive:
            members = [about for about in archive if about.name.startswith("tests/")]
            archive.extractall(aside, members=members, filter="data")
        if (aside / "tests").is_dir():
            copy_over(aside / "tests", tree.place, tree.folder.name)
    except (OSError, tarfile.TarError) as error:
        raise WorkspaceError(f"putting the hidden tests into the tree: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def lay_patch(patch: str, tree: Worktree) -> None:
    """Put the tests of a patch into a tree."""
    text = patch if patch.endswith("\n") else f"{patch}\n"
    paths = sorted(set(re.findall(r"^(?:---|\+\+\+) [ab]/(.+?)\t?$", text, re.MULTILINE)))
    settle(tree)
    for path in paths:
        # Its tests may be in files whose names do not tell.
        _remove(tree, path)
        tree.git.run("checkout", "--quiet", tree.base_sha, "--", path, GIT_LITERAL_PATHSPECS="1")
    try:
        tree.git("apply", "--whitespace=nowarn", "-", stdin=text)
    except GitError as error:
        raise WorkspaceError(f"the patch with the tests does not apply: {error}") from error


def _uncommitted(tree: Worktree) -> list[str]:
    """Files that git does not track or is made to ignore, besides generated ones."""
    others = tree.git("ls-files", "--others", "-z").split("\0")
    return [path for path in others if path and not _is_generated(path)]


def _is_generated(path: str) -> bool:
    parts = PurePosixPath(path).parts
    folders = {"node_modules", ".venv", "venv", "target", "__pycache__", "site-packages", ".tox", "build"}
    return bool(folders & set(parts)) or any(part.endswith(".egg-info") for part in parts)


def _remove(tree: Worktree, path: str) -> None:
    """Remove a file or link of a tree, never through a link that an agent put in place of a folder."""
    target = PurePosixPath(tree.folder.name) / path
    if ".." not in target.parts and not beneath.is_folder(tree.place, target):
        beneath.remove(tree.place, target)
