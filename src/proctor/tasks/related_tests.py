"""Test files beside those of a commit that use what the commit changed: by their names and imports."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from proctor.git import Git

MOST_RELATED = 10
"""Each takes time in every attempt, and the nearest come first."""
_NO_NAME = ("__init__", "__main__", "index", "main", "mod", "lib")
"""Modules that are imported by the name of their folder."""


def related_tests(git: Git, commit: str, source: Iterable[str], tests: Sequence[str]) -> list[str]:
    """Those of the test files `tests` that use changed source files, the nearest first: named for one, beside
    one of Go, or importing one."""
    files = [PurePosixPath(path) for path in source]
    names = {path.parent.name if path.stem in _NO_NAME else path.stem for path in files} - {""}
    packages = {path.parent for path in files if path.suffix == ".go"}
    near = [
        path
        for path in map(PurePosixPath, tests)
        if _tested_name(path) in names or (path.suffix == ".go" and path.parent in packages)
    ]
    importing = _importing(git, commit, names) if names else set[str]()
    ordered = dict.fromkeys([*map(str, near), *(path for path in tests if path in importing)])
    return list(ordered)[:MOST_RELATED]


def _tested_name(path: PurePosixPath) -> str:
    """What a test file is named for: `test_shop.py`, `shop_test.py`, `shop.test.js`, `shop.spec.ts`."""
    return re.sub(r"^test_|(_test|_spec|\.test|\.spec|-test)$", "", path.stem)


def _importing(git: Git, commit: str, names: Iterable[str]) -> set[str]:
    """The files of a commit with a line that imports one of these names."""
    either = "|".join(map(re.escape, sorted(names)))
    pattern = rf"(import|from|require|use)\b.*\b({either})\b"
    listed = git.run("grep", "-l", "-z", "-I", "-E", "-e", pattern, commit)[1]
    return {entry.partition(":")[2] for entry in listed.split("\0")}
