"""Failures of set-up and tests while a history is mined: when to stop, and what to advise."""

import re
from dataclasses import dataclass
from typing import Literal

from proctor.errors import WorkspaceError
from proctor.formatting import clipped
from proctor.git import Git
from proctor.json_values import JsonObject
from proctor.tasks.test_command import TestCommands, advised_setup

EQUAL_FAILURES, EQUAL_FAILURES_LATER = 3, 10
"""Failures of one kind in a row after which mining stops: before tests of any commit have run, and after."""
SHOWN_LINES = 20
"""Of the output of a failed command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFailure:
    """Why the tests of a commit could not be run: something is missing here, or the commit is too old."""

    kind: Literal["setup", "tests", "time"]
    command: str
    output: str = ""
    """The end of what the command printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedMining:
    """Why mining stopped before there were enough tasks."""

    failure: EnvironmentFailure
    commits: int
    """How many failed so, one after the other."""
    is_early: bool
    """Whether there are more candidates."""
    advice: str
    """What to do, with options to paste where these are known."""

    @property
    def problem(self) -> str:
        """What happened, in one line."""
        what = {
            "setup": "set-up failed",
            "tests": "the tests did not run",
            "time": "the tests took too long",
        }[self.failure.kind]
        row = f" for {self.commits} commits in a row" if self.commits > 1 else ""
        return f"{what}{row}: `{self.failure.command}`"

    def document(self) -> JsonObject:
        """As `--json` prints it."""
        return {"reason": self.problem, "output": self.failure.output, "advice": self.advice}


class NotRun(WorkspaceError):
    """Set-up failed, or the tests had no result."""

    def __init__(self, message: str, failure: EnvironmentFailure) -> None:
        super().__init__(message)
        self.failure = failure


class FailureCount:
    """Counts failures of one kind in a row."""

    def __init__(self, git: Git, commands: TestCommands) -> None:
        self._git, self._commands = git, commands
        self._failures: list[EnvironmentFailure] = []
        self._have_run = False

    def clear(self) -> None:
        """The tests of a commit ran."""
        self._failures, self._have_run = [], True

    def add(self, failure: EnvironmentFailure) -> StoppedMining | None:
        """Count one; returns why to stop, None to continue."""
        self._failures = [*(each for each in self._failures if each.kind == failure.kind), failure]
        number = len(self._failures)
        if number < (EQUAL_FAILURES_LATER if self._have_run else EQUAL_FAILURES):
            return None
        return self._stopped(is_early=True)

    def at_end(self) -> StoppedMining | None:
        """Why the tests of no commit ran; None: those of some did."""
        return None if self._have_run or not self._failures else self._stopped(is_early=False)

    def _stopped(self, *, is_early: bool) -> StoppedMining:
        failure = self._failures[-1]
        advice = _advice(self._git, self._commands, failure)
        return StoppedMining(failure=failure, commits=len(self._failures), is_early=is_early, advice=advice)


def tail_of(output: str) -> str:
    """The last lines of an output, for people."""
    written = (line.rstrip() for line in output.splitlines())
    lines = [clipped(line, 300) for line in written if line and not line.startswith("npm notice")]
    return "\n".join(lines[-SHOWN_LINES:])


_OFFLINE = re.compile(
    r"Temporary failure in name resolution|EAI_AGAIN|getaddrinfo|Could not resolve host|dial tcp"
    r"|Network is unreachable|failed to download|NameResolutionError"
)
_HINTS = (
    (
        re.compile(
            r"No module named|ModuleNotFoundError|Cannot find (?:module|package)|ENOTCACHED|unresolved import"
            r"|no required module"
        ),
        "A package is missing: install it with --setup.",
    ),
    (
        re.compile(r"rustup could not choose a version"),
        "Sandboxed programs do not see the toolchain:  export RUSTUP_HOME=~/.rustup",
    ),
    (
        re.compile(r"Permission denied|Read-only file system|Operation not permitted"),
        "A sandboxed program cannot read or write there: list the folder under `read` of [sandbox] in "
        "proctor.toml.",
    ),
    (
        re.compile(r"(?:command )?not found|No such file or directory"),
        "A program or file is missing: install it, or make it with --setup.",
    ),
)
_NEEDS_NETWORK = "Tests run without the network: install what they need with --setup, which has it."
_NO_NETWORK = "The set-up cannot reach the network: check it, or set `network` of [sandbox] in proctor.toml."
_NO_HINT = "Try the commands in a fresh clone, and pass those that work as --setup and --check."
_MORE_TIME = (
    "Allow more time with --timeout SECONDS, or run fewer tests: {tests} in --check stands for the test "
    "files of a commit."
)


def _advice(git: Git, commands: TestCommands, failure: EnvironmentFailure) -> str:
    if failure.kind == "time":
        return _MORE_TIME
    if failure.kind == "setup" and _OFFLINE.search(failure.output):
        return _NO_NETWORK
    hint = _NEEDS_NETWORK if _OFFLINE.search(failure.output) else ""
    hint = hint or next((text for pattern, text in _HINTS if pattern.search(failure.output)), _NO_HINT)
    options = "" if commands.setup else advised_setup(git, commands.check, failure.output)
    return f"{hint}\nTry:  {options}" if options else hint
