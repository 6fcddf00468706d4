"""Environment variables of a coding session: its own HOME, port and temporary folder.

Starts from the variables that agents may see and replaces those that lead to the user's own files. The
prompt and the model are passed as variables too.
"""

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.item import Item

# Linux limits a variable to 128 KiB. Agents also get the prompt in other ways.
PROMPT_LIMIT_BYTES = 100_000

# Below the ephemeral ports, above those of known services.
FIRST_PORT, PORT_COUNT = 20_000, 10_000
_HIDDEN_PREFIXES = ("GIT_", "SSH_", "PROCTOR_", "XDG_")
_GIT_IDENTITY = """[user]
	name = Proctor agent
	email = agent@proctor.localhost
[safe]
	directory = *
[init]
	defaultBranch = main
[advice]
	detachedHead = false
"""
_ports_in_use: set[int] = set()


def make_home(home: Path) -> None:
    """Create a HOME with a git identity."""
    for folder in ("", ".config", ".local/share", ".local/state", ".cache", "tmp"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text(_GIT_IDENTITY)


def session_environment(
    item: Item, visible: Mapping[str, str], home: Path, folder: Path, port: int
) -> dict[str, str]:
    """All environment variables of the setup, agent and check of one attempt."""
    inherited = {name: value for name, value in visible.items() if not name.startswith(_HIDDEN_PREFIXES)}
    own = {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "TMPDIR": str(home / "tmp"),
        "PWD": str(folder),
        "PORT": str(port),
        "PROCTOR_PORT": str(port),
        "PROCTOR_PROMPT": _shortened(item.prompt),
        "PROCTOR_MODEL": item.model,
    }
    overrides = item.details.get("env") or {}
    overrides = {name: _resolved(name, str(value), visible) for name, value in overrides.items()}
    return inherited | own | overrides


def reserve_port(session: str) -> int:
    """Reserve a free port for a session of this process; `release_port` releases it."""
    start = sum(session.encode()) * 7919
    for step in range(PORT_COUNT):
        port = FIRST_PORT + (start + step) % PORT_COUNT
        if port not in _ports_in_use and _is_free(port):
            _ports_in_use.add(port)
            return port
    raise WorkspaceError(f"no port between {FIRST_PORT} and {FIRST_PORT + PORT_COUNT} is free")


def release_port(port: int) -> None:
    """Release a reserved port."""
    _ports_in_use.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _shortened(prompt: str) -> str:
    return prompt.replace("\0", "").encode("utf-8", "replace")[:PROMPT_LIMIT_BYTES].decode("utf-8", "ignore")


def _resolved(name: str, value: str, visible: Mapping[str, str]) -> str:
    """The value of a variable, with each `${NAME}` replaced."""

    def replacement(reference: re.Match[str]) -> str:
        if reference[1] not in visible:
            raise WorkspaceError(
                f"env.{name} refers to ${{{reference[1]}}}, which is not set or not visible to agents"
            )
        return visible[reference[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", replacement, value)
