"""A desk for a real agent: a repository, a home, its programs, and what was recorded."""

import asyncio
import os
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from proctor.agent import Access, Agent, Assignment, WorkDone
from proctor.processes import Serve
from proctor.sandbox import Sandbox
from proctor.session import Event
from proctor.testing import eventually_async

INSTALLED = os.environ.get("PROCTOR_AGENT_PROGRAMS")
"""Where the programs of another installation are, to try it: one row of the table in docs/trust.md."""
PROGRAMS = INSTALLED or str(Path(__file__).resolve().parents[2] / "build" / "agents" / "bin")
TOKEN = "token-of-this-attempt-0123456789abcdef"


class ServesSockets(Protocol):
    """A model, or the gateway to it."""

    @property
    def url(self) -> str: ...

    @property
    def serve(self) -> Serve: ...


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

    async def work(
        self,
        agent: Agent,
        server: ServesSockets,
        prompt: str,
        *,
        token: str = TOKEN,
        kind: str = "auto",
        message: str = "",
    ) -> WorkDone:
        """Confined as in a batch: of the network, it reaches only the server. `message` comes when it has
        called the model once."""
        port = urlsplit(server.url).port
        assert port is not None
        confinement = Sandbox(hidden=(Path.home(),), user_home=Path.home()).confine(
            "agent", kind, folders=[self.home.parent], home=self.home, serve={port: server.serve}
        )
        assert confinement, "no sandbox works here"
        assignment = Assignment(
            prompt=prompt,
            folder=self.folder,
            home=self.home,
            environment=self.environment(),
            attempt=self.attempt,
            model="loopback/edit",
            access=Access(url=server.url, token=token),
            confinement=confinement,
        )
        working = asyncio.ensure_future(agent.work(assignment, self.events.append))
        if message:
            await eventually_async(lambda: working.done() or getattr(server, "requests", None))
            assignment.messages.put_nowait(message)
        return await working

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
