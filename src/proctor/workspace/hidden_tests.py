"""Hidden tests and the reference solution of a task made of a commit, in one compressed archive.

    task.json           the command, and the tests that must pass
    tests/…             test files of the commit
    solution/…          other files of the commit
    solution.patch      the same as a patch, for readers

The archive stays closed while an agent works: no test in it is a file on the disk. Before judging, the test
files and settings of test runners are restored, so that tests an agent changed decide nothing.
"""

import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from proctor.errors import WorkspaceError
from proctor.json_values import as_map, as_text, parse_json, texts_in
from proctor.workspace.starting_files import copy_over
from proctor.workspace.worktree import Worktree

_TEST_FOLDERS = frozenset(
    {"test", "tests", "__tests__", "__snapshots__", "testdata", "e2e", "cypress", "spec"}
)
_NOT_TESTS = frozenset({"docs", "doc", "examples", "example", "node_modules", "vendor", "site-packages"})
_TEST_NAME = re.compile(
    r"(test_.*|.*_test|tests|conftest)\.py|.*\.(test|spec)\.[cm]?[jt]sx?|.*_test\.(go|cc|cpp|rb|exs)|.*_spec\.rb"
    r"|.*(Test|Tests|IT)\.(java|kt|php|cs)|test\.[cm]?[jt]s"
)
_SETTINGS_NAME = re.compile(
    r"pytest\.ini|tox\.ini|setup\.cfg|pyproject\.toml|noxfile\.py|sitecustomize\.py|usercustomize\.py"
    r"|(jest|vitest|karma|playwright)\.(config|setup)\..*|\.mocharc.*|\.taprc|package\.json|babel\.config\..*"
    r"|Makefile|build\.rs|phpunit\.xml.*|\.coveragerc|\.nycrc.*|\.gitattributes"
)
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
    return bool(_SETTINGS_NAME.fullmatch(PurePosixPath(path).name))


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


def lay_tests(file: Path, digest: str, tree: Worktree, aside: Path) -> tuple[HiddenTests, list[str]]:
    """Restore the test files and settings of a worktree, and put the hidden tests into it.

    Returns what the archive says, and the paths of tests, test settings and CI that the agent changed.
    `aside` is a folder for the unpacked archive; it is removed again.
    """
    if digest_of_archive(file) != digest:
        raise WorkspaceError(f"{file} has changed since this was planned; start it anew")
    hidden = read_archive(file)
    changed = _changed_paths(tree)
    touched = [path for path in changed if is_test(path) or is_test_setting(path) or is_ci(path)]
    # A setting that the reference solution changes itself is part of the work.
    _restore(tree, [path for path in touched if path not in hidden.solution_paths])
    for path in hidden.removed_tests:
        _remove(tree.folder, path)
    try:
        with tarfile.open(file, "r:*") as archive:
            members = [about for about in archive if about.name.startswith("tests/")]
            archive.extractall(aside, members=members, filter="data")
        if (aside / "tests").is_dir():
            copy_over(aside / "tests", tree.folder)
    except (OSError, tarfile.TarError) as error:
        raise WorkspaceError(f"putting the hidden tests into the tree: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return hidden, touched


def _changed_paths(tree: Worktree) -> list[str]:
    """Paths that differ from the base commit, whether committed, ignored or neither."""
    listed = tree.git("diff", "--name-only", "--no-renames", "-z", tree.base_sha)
    # Ignored files too: git would not show a `conftest.py` that the agent made git ignore.
    others = tree.git("ls-files", "--others", "-z")
    ours = {path for path in others.split("\0") if path and not _is_generated(path)}
    return sorted({path for path in listed.split("\0") if path} | ours)


def _is_generated(path: str) -> bool:
    parts = PurePosixPath(path).parts
    folders = {"node_modules", ".venv", "venv", "target", "__pycache__", "site-packages", ".tox", "build"}
    return bool(folders & set(parts)) or any(part.endswith(".egg-info") for part in parts)


def _restore(tree: Worktree, paths: Sequence[str]) -> None:
    for path in paths:
        _remove(tree.folder, path)
        if tree.git.run("cat-file", "-e", f"{tree.base_sha}:{path}")[0] == 0:
            tree.git("checkout", "--quiet", tree.base_sha, "--", path)


def _remove(folder: Path, path: str) -> None:
    target = folder / path
    # Never through a link that an agent put in place of a folder.
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        return
    if target.is_symlink() or target.is_file():
        target.unlink()
