"""What the tests of coding sessions share: small repositories, a plain agent, services by hand."""

import asyncio
import os
import subprocess
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from proctor.agent import Agent, WorkDone
from proctor.errors import TimeLimit
from proctor.item import Item
from proctor.processes import run
from proctor.runner import Services
from proctor.runners.worktree import WorktreeRunner
from proctor.session import Iteration, Merge, Note, Workspace
from proctor.workspace.merge_queue import merge

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def git(folder, *words, check=True):
    """git as the user has it, apart from this machine's own settings."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "User",
        "GIT_AUTHOR_EMAIL": "user@example.org",
        "GIT_COMMITTER_NAME": "User",
        "GIT_COMMITTER_EMAIL": "user@example.org",
    }
    words = ["git", "-C", str(folder), *words]
    return subprocess.run(words, env=environment, check=check, capture_output=True, text=True).stdout.strip()


def repository(folder, files=None, *, flags=()):
    """A repository with one commit on `main`."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main", *flags)
    for name, content in (files or {"hello.txt": "hello\n", "src/app.py": "print(1)\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def snapshot(folder):
    """Every byte of a checkout and its repository, but for what publishing a session adds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or name.startswith(
            (".git/objects/", ".git/refs/heads/batch/", ".git/logs/refs/heads/batch/")
        ):
            continue
        found[name] = path.readlink() if path.is_symlink() else path.read_bytes()
    return found


@dataclass
class Shell(Agent):
    """An agent that does what a shell is told, and says how that ended."""

    command: str
    is_mock: ClassVar[bool] = True

    async def work(self, assignment, record):
        finished = await run(
            self.command,
            folder=assignment.folder,
            environment=assignment.environment,
            attempt=assignment.attempt,
            grace_seconds=0.5,
        )
        failure = f"exited with {finished.exit_code}" if finished.exit_code else ""
        return WorkDone(exit_code=finished.exit_code, output=finished.output, failure=failure)


@asynccontextmanager
async def time_limit(seconds, what):
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimeLimit(f"{what} took longer than {seconds} s") from None


@dataclass
class Attempt:
    """One attempt at an item, and what was recorded of it."""

    home: Path
    repo: Path
    agent: object
    events: list = field(default_factory=list)
    id: str = field(default_factory=lambda: f"s-{uuid.uuid4().hex[:12]}")

    async def run(self, prompt="Fix the bug", *, number=1, item_settings=None, environment=None, **details):
        settings = {"repo": str(self.repo), "timeoutSec": 60, **(item_settings or {})}
        details = {"repository": self.repo.name, "baseBranch": "main", **details}
        item = Item(
            runner="worktree", prompt=prompt, agent="shell", model="m1", details=details, settings=settings
        )
        return await WorktreeRunner().run(item, self.services(number, environment or {}))

    def services(self, number=1, environment=None):
        visible = {"PATH": os.environ["PATH"], "HOME": str(self.home / "of-the-user"), **(environment or {})}
        return Services(
            session_id=self.id,
            attempt=number,
            record=self.events.append,
            score=lambda score: None,
            models=None,
            access=_no_access,
            agent=self.find,
            home=self.home,
            environment=visible,
            now=lambda: NOW,
            time_limit=time_limit,
            merge=partial(merge, home=self.home, environment=visible),
        )

    def find(self, name, settings):
        self.settings = settings
        return self.agent

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def iteration(self):
        (only,) = self.of(Iteration)
        return only

    @property
    def workspace(self):
        (only,) = [event for event in self.of(Workspace) if event.branch]
        return only

    @property
    def branch(self):
        return self.workspace.branch

    @property
    def folder(self):
        return self.home / "worktrees" / self.id / "work"

    @property
    def notes(self):
        return [note.text for note in self.of(Note)]

    @property
    def merges(self):
        return self.of(Merge)


def attempt(tmp_path, repo, command):
    """An attempt at which the agent runs a shell command."""
    return Attempt(tmp_path / "home", repo, Shell(command))


async def _no_access(agent: object) -> None:
    """The agents of these tests reach no models."""
