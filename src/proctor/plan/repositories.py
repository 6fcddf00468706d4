"""Find the path that is meant, and a name for it that is the same on every machine.

Knows nothing of git, and never looks at the disk.
"""

import os
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePath


@lru_cache(maxsize=10_000)
def resolved(written: str, *, folder: Path, home: Path) -> str:
    """The absolute path meant by `written`: `~` is `home`, and the rest is relative to `folder`.

    Links are not followed: the name a user gives a repository is the one that counts.
    """
    if written == "~" or written.startswith("~/"):
        written = str(home / written[2:])
    return os.path.normpath(folder / written)


def repository_names(paths: Iterable[str]) -> dict[str, str]:
    """Each path's shortest tail that no other path shares: `api`, or `a/api` beside `b/api`."""
    names: dict[str, str] = {}
    unnamed = {path: PurePath(path).parts for path in paths}
    length = 1
    while unnamed:
        tails = Counter(parts[-length:] for parts in unnamed.values())
        done = {
            path for path, parts in unnamed.items() if tails[parts[-length:]] == 1 or length >= len(parts)
        }
        names |= {path: str(PurePath(*unnamed[path][-length:])) for path in done}
        unnamed = {path: parts for path, parts in unnamed.items() if path not in done}
        length += 1
    return names
