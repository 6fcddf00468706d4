"""HOME of the setup, agent and checks of one session: each has its own, all at the same path.

    home/         what a program sees as HOME
    setup-home/   HOME as setup left it, out of reach of every program
    agent-home/   the agent's HOME while a check runs

A check gets what setup installed, as setup left it, and nothing that the agent or another check wrote: a
`usercustomize.py`, a program in `~/.local/bin` or a setting of git, pip, npm or cargo could replace what it
runs. The agent, when it runs again, gets its own HOME back, and nothing that a check wrote.
"""

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import WorkspaceError, blame
from proctor.processes import undisturbed
from proctor.workspace import beneath
from proctor.workspace.folders import copy_folder, remove_folder
from proctor.workspace.worktree import GIT_IDENTITY, HOME_FOLDERS, make_home


def home_variables(home: Path) -> dict[str, str]:
    """The variables that lead to a HOME."""
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "TMPDIR": str(home / "tmp"),
        # Java takes a user's HOME from the system's list of users.
        "MAVEN_OPTS": f"-Duser.home={home}",
        "GRADLE_USER_HOME": str(home / ".gradle"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHomes:
    """The HOMEs of one session."""

    home: Path
    own: Path
    """Folder that no program of the session can change, on the same file system."""

    @property
    def _saved(self) -> Path:
        return self.own / "setup-home"

    async def save(self, *, agent_follows: bool) -> None:
        """Keep HOME as setup has left it, for checks; it is copied only if the agent gets it too.

        Raises `WorkspaceError`.
        """
        with blame(WorkspaceError, "keeping the HOME that setup made"):
            await undisturbed(asyncio.to_thread(self._save, agent_follows))

    def _save(self, agent_follows: bool) -> None:
        if _is_new(self.home):
            # Most setups write to the worktree and to shared caches only.
            return
        if agent_follows:
            copy_folder(self.home, self._saved)
        else:
            self.home.rename(self._saved)
            make_home(self.home)

    @asynccontextmanager
    async def for_check(self, *, is_last: bool) -> AsyncIterator[None]:
        """Replace HOME by one for a check, in the body; after the last check the saved one is used up.

        Raises `WorkspaceError`.
        """
        with blame(WorkspaceError, "making the HOME of the check"):
            await undisturbed(asyncio.to_thread(self._enter, is_last))
        try:
            yield
        finally:
            with blame(WorkspaceError, "removing the HOME of the check"):
                await undisturbed(asyncio.to_thread(self._leave))

    def _enter(self, is_last: bool) -> None:
        # An agent may have removed it.
        with suppress(FileNotFoundError):
            self.home.rename(self.own / "agent-home")
        if not self._saved.is_dir():
            make_home(self.home)
        elif is_last:
            self._saved.rename(self.home)
        else:
            copy_folder(self._saved, self.home)

    def _leave(self) -> None:
        # First out of reach: the agent may run again, and must not see it even if it cannot be removed.
        used = self.own / "check-home"
        self.home.rename(used)
        remove_folder(used)
        with suppress(FileNotFoundError):
            (self.own / "agent-home").rename(self.home)

    def discard(self) -> None:
        """Remove the saved HOME: nobody needs it in a worktree that is kept."""
        remove_folder(self._saved)


def _is_new(home: Path) -> bool:
    """Whether nothing was written to a HOME since `make_home`; setup may have replaced anything."""
    kinds = {entry.path: stat.S_IFMT(entry.mode) for entry in beneath.entries(home)}
    if kinds != {**dict.fromkeys(HOME_FOLDERS, stat.S_IFDIR), ".gitconfig": stat.S_IFREG}:
        return False
    identity = GIT_IDENTITY.encode()
    return beneath.read(home, ".gitconfig", len(identity) + 1) == identity
