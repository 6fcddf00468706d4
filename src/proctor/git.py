"""Interface to the `git` program.

Calls never prompt, run no hooks, start no background maintenance, sign nothing, and ignore inherited `GIT_…`
variables. Commits are authored by `Proctor <proctor@localhost>`. Blocks: call it from a thread.
"""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from proctor.errors import ProctorError
from proctor.formatting import clipped

TIME_LIMIT_SECONDS = 300
"""For one call. The slowest is checking out a large repository on a slow disk."""
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgsign=false",
    "fetch.writeCommitGraph=false",
    "protocol.file.allow=always",
    "advice.detachedHead=false",
    "merge.autoStash=false",
    "merge.ff=true",
    "rebase.autoStash=false",
    "submodule.recurse=false",
)

Input = str | bytes | IO[bytes]
"""Standard input of git: text, bytes or an open file."""

_IDENTITY = {
    "GIT_AUTHOR_NAME": "Proctor",
    "GIT_AUTHOR_EMAIL": "proctor@localhost",
    "GIT_COMMITTER_NAME": "Proctor",
    "GIT_COMMITTER_EMAIL": "proctor@localhost",
}


class GitError(ProctorError):
    """A git command failed."""

    def __init__(self, command: Sequence[str], exit_code: int, stderr: str) -> None:
        self.command, self.exit_code, self.stderr = tuple(command), exit_code, stderr
        command_text = clipped(" ".join(command), 200)
        super().__init__(f"`git {command_text}` exited with {exit_code}: {clipped(stderr.strip(), 1000)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Size of the difference between two commits."""

    files: int = 0
    """Includes binary files."""
    lines_added: int = 0
    lines_removed: int = 0


@dataclass(frozen=True, slots=True)
class Git:
    """git in one folder."""

    folder: Path
    environment: Mapping[str, str]
    """PATH and HOME, for git's programs and the user's settings. `GIT_…` variables are ignored."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Additional variables of every call: `GIT_DIR`, `GIT_INDEX_FILE`."""
    time_limit: float | None = None
    """Seconds for one call; None: the usual limit."""

    def __call__(
        self,
        *arguments: str,
        stdin: Input | None = None,
        allowed: Sequence[int] = (0,),
        **variables: str,
    ) -> str:
        """Run git and return its standard output; raise `GitError` for other exit codes than `allowed`."""
        exit_code, stdout, stderr = self.run(*arguments, stdin=stdin, **variables)
        if exit_code not in allowed:
            raise GitError(arguments, exit_code, stderr or stdout)
        return stdout

    def run(self, *arguments: str, stdin: Input | None = None, **variables: str) -> tuple[int, str, str]:
        """Run git and return its exit code, standard output and standard error."""
        exit_code, stdout, stderr = self._run(arguments, stdin, variables)
        return exit_code, _text(stdout), _text(stderr)

    def binary(self, *arguments: str, stdin: Input | None = None) -> bytes:
        """Run git and return its standard output as it is; raise `GitError` when it fails."""
        exit_code, stdout, stderr = self._run(arguments, stdin, {})
        if exit_code:
            raise GitError(arguments, exit_code, _text(stderr))
        return stdout

    @contextmanager
    def _working_folder(self) -> Iterator[str]:
        """The folder in which git is started."""
        yield os.fspath(self.folder)

    def _run(
        self, arguments: Sequence[str], stdin: Input | None, variables: Mapping[str, str]
    ) -> tuple[int, bytes, bytes]:
        command = ["git", *(part for setting in _CONFIG for part in ("-c", setting)), *arguments]
        data = stdin.encode("utf-8", "surrogateescape") if isinstance(stdin, str) else stdin
        with self._working_folder() as folder:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=self._environment(variables),
                stdin=subprocess.PIPE if isinstance(data, bytes) else data or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        limit = self.time_limit or TIME_LIMIT_SECONDS
        try:
            typed = data if isinstance(data, bytes) else None
            stdout, stderr = process.communicate(typed, timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise GitError(arguments, 124, f"still running after {limit:g} s") from None
        return process.returncode, stdout, stderr

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in self.environment.items() if not name.startswith("GIT_")}
        ours = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "GIT_EDITOR": "true", "LC_ALL": "C"}
        return inherited | ours | _IDENTITY | dict(self.settings) | dict(variables)

    def line(self, *arguments: str, **variables: str) -> str:
        """Stripped standard output; empty when git fails."""
        exit_code, printed, _ = self.run(*arguments, **variables)
        return printed.strip() if exit_code == 0 else ""

    def commit_of(self, name: str) -> str:
        """The commit ID of a name; empty: there is none."""
        return self.line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether `older` is `newer` or one of its ancestors."""
        return self.run("merge-base", "--is-ancestor", older, newer)[0] == 0

    def branches(self) -> list[str]:
        """The twenty most recent local branches, newest first, without session branches."""
        listed = self("for-each-ref", "--sort=-committerdate", "--format=%(refname:short)", "refs/heads")
        return [name for name in listed.splitlines() if not name.startswith("batch/")][:20]

    def changes(self, older: str, newer: str) -> Changes:
        """Count the differences between two commits; a renamed file counts once."""
        listed = self("diff", "--numstat", "-z", "-M", "--no-ext-diff", "--no-textconv", older, newer, "--")
        # The two names of a renamed file are in separate fields, without counts.
        figures = [field.split("\t") for field in listed.split("\0") if field.count("\t") >= 2]
        return Changes(
            files=len(figures),
            lines_added=sum(int(added) for added, *_ in figures if added != "-"),
            lines_removed=sum(int(removed) for _, removed, *_ in figures if removed != "-"),
        )

    def commit_tree(self, tree: str, parents: Sequence[str], message: str, *, as_user: bool = False) -> str:
        """Commit a tree object, without changing any branch, index or file.

        `as_user`: in the name of the user, if the settings have one, and signed if they say so.
        """
        flags = [word for parent in parents for word in ("-p", parent)]
        variables = self.user_identity() if as_user else {}
        if as_user and self.users_setting("commit.gpgSign", "bool") == "true":
            flags.append("-S")
        git = self.at(self.folder, **{**self.settings, **variables})
        return git("commit-tree", tree, *flags, "-F", "-", stdin=message).strip()

    def users_setting(self, name: str, kind: str) -> str:
        """A setting of the user or the repository, which calls here may replace; empty: not set."""
        listed = self.line("config", "--show-scope", f"--type={kind}", "--get-all", name)
        pairs = (line.partition("\t") for line in listed.splitlines())
        return next((value for scope, _, value in reversed(list(pairs)) if scope != "command"), "")

    def user_identity(self) -> dict[str, str]:
        """Name and address of the user for commits, as variables; empty: the settings have none."""
        listed = self.run("config", "-z", "--get-regexp", r"^(user|author|committer)\.(name|email)$")[1]
        values = dict(entry.split("\n", 1) for entry in listed.split("\0") if "\n" in entry)
        identity = {
            f"GIT_{role.upper()}_{part.upper()}": values.get(f"{role}.{part}")
            or values.get(f"user.{part}", "")
            for role in ("author", "committer")
            for part in ("name", "email")
        }
        return identity if all(identity.values()) else {}

    def at(self, folder: Path, **settings: str) -> "Git":
        """The same git in another folder."""
        return Git(folder, self.environment, settings)


_ADDRESS = re.compile(r"(https?|ssh|git|file)://[^\s-]\S*|[\w.-]+@[\w.-]+:[^\s-]\S*")


def is_address(repo: str) -> bool:
    """Whether a repository is named by an address that can be cloned, and not by a path."""
    return bool(_ADDRESS.fullmatch(repo))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")
