"""A desk for a real agent: a repository, a home, its programs, and what was recorded."""

import os
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.agent import Access, Agent, Assignment, WorkDone
from proctor.session import Event

PROGRAMS = Path(__file__).resolve().parents[2] / "build" / "agents" / "bin"
TOKEN = "token-of-this-attempt-0123456789abcdef"


@dataclass
class Desk:
    """A repository, a home and what was recorded."""

    folder: Path
    home: Path
    events: list[Event] = field(default_factory=list)
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self) -> dict[str, str]:
        home = str(self.home)
        return {
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "HOME": home,
            "XDG_CONFIG_HOME": f"{home}/.config",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state",
            "XDG_CACHE_HOME": f"{home}/.cache",
            "TMPDIR": f"{home}/tmp",
            "LANG": "C.UTF-8",
        }

    async def work(self, agent: Agent, url: str, prompt: str, *, token: str = TOKEN) -> WorkDone:
        assignment = Assignment(
            prompt=prompt,
            folder=self.folder,
            home=self.home,
            environment=self.environment(),
            attempt=self.attempt,
            model="loopback/edit",
            access=Access(url=url, token=token),
        )
        return await agent.work(assignment, self.events.append)

    def recorded(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def left_running(self) -> list[str]:
        """The commands that still carry this attempt's mark."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and self.attempt.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                pass
        return found

    def git(self, *arguments: str) -> str:
        ran = subprocess.run(
            ["git", *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout.strip()
