"""Find an agent's program on this machine, and say how to get it when it is not here.

A program is looked for on the PATH it would be started with; `<AGENT>_BIN` names another. It is asked
for its version, and for nothing else.

Knows nothing of what the program does. Reads no environment but the mapping it is handed.
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.agent import Availability
from proctor.errors import WorkspaceError

# The slowest of them takes four seconds to say its version on a machine that is busy.
VERSION_SECONDS = 20
_VERSION_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Installable:
    """A program that can be installed, and the version that was seen to work with us."""

    agent: str
    """The agent's name in a plan."""
    program: str
    """What it is called on the PATH."""
    install: str
    """The command that installs the known version."""
    also_named_by: Sequence[str] = ()
    """Variables besides `<AGENT>_BIN` that may name the program."""

    @property
    def variable(self) -> str:
        """The variable that names another program than the one on the PATH."""
        return f"{self.agent.upper().replace('-', '_')}_BIN"

    def find(self, environment: Mapping[str, str]) -> str | None:
        """Where the program is; None when it is not here."""
        names = (environment.get(name) for name in (self.variable, *self.also_named_by))
        chosen = next(filter(None, names), self.program)
        return shutil.which(chosen, path=environment.get("PATH", ""))

    def require(self, environment: Mapping[str, str]) -> str:
        """Where the program is; `WorkspaceError` says how to install it."""
        if found := self.find(environment):
            return found
        raise WorkspaceError(f"`{self.program}` is not on the PATH; install it with: {self.install}")

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether it is here, and in which version."""
        found = self.find(environment)
        if found is None:
            problem = f"`{self.program}` is not on the PATH"
            return Availability(ready=False, problem=problem, remedy=self.install)
        return _asked(found, environment, self.install)


def _asked(program: str, environment: Mapping[str, str], install: str) -> Availability:
    """Its version, or what is wrong with it. Only one that cannot even be started is of no use."""
    try:
        asked = subprocess.run(
            [program, "--version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_SECONDS,
            check=False,
        )
    except OSError as error:
        problem = f"`{program}` cannot be started: {error.strerror}"
        return Availability(ready=False, problem=problem, remedy=install)
    except subprocess.TimeoutExpired:
        return Availability(ready=True, problem=f"did not say its version within {VERSION_SECONDS} s")
    # Most say it on standard output and warn on the other; pi says it on the other.
    said = (asked.stdout.strip() or asked.stderr.strip()).splitlines()
    first = said[0][:_VERSION_CHARACTERS] if said else ""
    if asked.returncode:
        return Availability(ready=True, problem=f"`--version` failed ({asked.returncode}): {first}")
    return Availability(ready=True, version=first)
