"""A tree, a home and a recorder for agents to work with."""

import os
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from recordings import Stage

from proctor.agent import Agent, Assignment, WorkDone
from proctor.session import Event


@dataclass
class Place:
    """Somewhere to work, and what was recorded there."""

    folder: Path
    home: Path
    environment: dict[str, str]
    events: list[Event] = field(default_factory=list)
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)

    def assignment(self, prompt: str = "Fix it.", **more: Any) -> Assignment:
        more.setdefault("environment", self.environment)
        return Assignment(prompt=prompt, folder=self.folder, home=self.home, attempt=self.attempt, **more)

    async def work(self, agent: Agent, prompt: str = "Fix it.", **more: Any) -> WorkDone:
        return await agent.work(self.assignment(prompt, **more), self.events.append)

    def recorded(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def program(self, name: str, text: str) -> Path:
        """Put a program on the PATH."""
        file = self.home / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return file

    def left_running(self) -> list[int]:
        """Processes that still carry this attempt's mark."""
        marked = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.attempt.encode() in (entry / "environ").read_bytes():
                    marked.append(int(entry.name))
            except OSError:
                pass
        return marked


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder, home = tmp_path / "tree", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    environment = {"PATH": f"{home}/bin{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    return Place(folder, home, environment)


@pytest.fixture
def repository(place: Place) -> Place:
    subprocess.run(["git", "init", "--quiet", str(place.folder)], check=True)
    return place


@pytest.fixture
def stage(place: Place) -> Stage:
    return Stage(place)
