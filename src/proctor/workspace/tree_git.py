"""git in a session's worktree, after programs that are not trusted have run there.

This is the only way in which Proctor's git touches such a tree. git opens the tree by a descriptor, so a link
in its place leads nowhere, and works with a *control repository* that no confined program can see or change:
its settings, index, references, hooks and attributes are ours. Nothing that a program wrote can name a
program for git to start:

- Settings are those of the control repository alone. The user's and the system's are not read: they may
  define filters, drivers and helpers that an attribute in the tree would turn loose.
- The only filter is our own for large files (`large_files.py`). The user's filters run only while the tree is
  filled with a commit that is not the work of a session (`with_user_filters`).
- Hooks, fsmonitor, pagers, editors, signing and submodule recursion are off; replaced objects are ignored.
- Relative entries of PATH, which would be programs in the tree, are left out.

git looks into `.git` of nested repositories: `commit` moves them out of the way while it adds files.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.git import Git, GitError, Input
from proctor.sandbox.paths import interpreter
from proctor.workspace import beneath

_NOT_REPEATED = ("merge", "rebase")
"""Commands that a second call does not simply complete."""


@dataclass(frozen=True, slots=True)
class TreeGit(Git):
    """git in one worktree, with its control repository. `folder` is below `root`, which is ours."""

    root: Path = Path("/nonexistent")
    control: Path = Path("/nonexistent")
    trusted: bool = False
    """Whether the user's settings apply: only while no confined program has run."""

    @contextmanager
    def _working_folder(self) -> Iterator[str]:
        try:
            with beneath.opened(self.root, self.folder.relative_to(self.root)) as descriptor:
                yield f"/proc/self/fd/{descriptor}" if Path("/proc/self/fd").is_dir() else str(self.folder)
        except OSError as error:
            raise GitError((), 128, f"the worktree {self.folder} cannot be opened: {error}") from error

    def _run(
        self, arguments: Sequence[str], stdin: Input | None, variables: Mapping[str, str]
    ) -> tuple[int, bytes, bytes]:
        ended = super(TreeGit, self)._run(arguments, stdin, variables)
        if ended[0] < 0:
            # git was killed; its locks are ours, and whoever held them is gone.
            remove_locks(self.control)
            if arguments[0] not in _NOT_REPEATED:
                if stdin is not None and not isinstance(stdin, str | bytes):
                    os.lseek(stdin.fileno(), 0, os.SEEK_SET)
                ended = super(TreeGit, self)._run(arguments, stdin, variables)
        return ended

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        environment = super(TreeGit, self)._environment({})
        environment["PATH"] = absolute_path(environment.get("PATH", os.defpath))
        own = {
            "GIT_DIR": str(self.control),
            "GIT_WORK_TREE": ".",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ALLOW_PROTOCOL": "file",
            "GIT_PAGER": "cat",
        }
        if not self.trusted:
            own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
        return environment | own | dict(variables)

    def at(self, folder: Path, **settings: str) -> "Git":
        """The same git with other variables, in the same worktree."""
        if folder != self.folder:
            raise ValueError(f"{folder} is not the worktree {self.folder}")
        return replace(self, settings=settings)

    def with_user_filters(self, filters: Mapping[str, str]) -> "TreeGit":
        """The same git with the filters of the user's settings, before any confined program has run."""
        settings = {f"GIT_CONFIG_KEY_{number}": name for number, name in enumerate(filters)}
        settings |= {f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(filters.values())}
        settings["GIT_CONFIG_COUNT"] = str(len(filters))
        return replace(self, settings={**self.settings, **settings}, trusted=True)


def absolute_path(path: str) -> str:
    """A PATH without relative folders: those are in whatever folder a program is started in."""
    return os.pathsep.join(part for part in path.split(os.pathsep) if part.startswith("/"))


def remove_locks(control: Path) -> None:
    """Remove the locks that a killed git left in a control repository; nobody else uses it."""
    for lock in (*control.glob("*.lock"), *(control / "refs").rglob("*.lock")):
        lock.unlink(missing_ok=True)


def large_file_settings(stores: Sequence[Path]) -> str:
    """Settings of a control repository with our filter for large files; `stores` has ours first."""
    program = Path(__file__).with_name("large_files.py")
    command = shlex.join([interpreter(), "-I", "-S", str(program), *map(str, stores)])
    quoted = command.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'[filter "lfs"]\n\tprocess = "{quoted}"\n\trequired = true\n'
