"""Install every agent into build/agents/, by the very commands that Proctor tells its users.

Called by `make test-agents`. What is there already in the right version is left alone. An agent that
cannot be installed is said at the end; the exit code is then 1, unless all that is missing for it is a
Python that this machine cannot get.

Installs nothing outside build/agents/ but what npm and uv keep in their caches.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from proctor.agents import agent_names, find_agent
from proctor.agents._program import GatewayProgram

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "agents"
NEEDS_ANOTHER_PYTHON = "openhands"


def main() -> int:
    """Install what is missing; 0 when all that can be had is there."""
    agents = [agent for name in own_names() if isinstance(agent := find_agent(name, {}), GatewayProgram)]
    failed = [agent.installable.agent for agent in agents if not install(agent)]
    for name in failed:
        print(f"install_agents: {name.upper()} COULD NOT BE INSTALLED AND IS NOT TESTED", file=sys.stderr)
    return 1 if set(failed) - {NEEDS_ANOTHER_PYTHON} else 0


def own_names() -> list[str]:
    """Those that can be made without settings."""
    return [name for name in agent_names() if name not in ("command", "scripted")]


def install(agent: GatewayProgram) -> bool:
    """Run the agent's own remedy, with its targets moved into build/agents/."""
    wanted = agent.installable.install
    version = re.split(r"@|==", wanted)[-1]
    environment = surroundings()
    if version in agent.availability(environment).version:
        return True
    print(f"install_agents: {wanted}", file=sys.stderr, flush=True)
    ran = subprocess.run(
        shlex.split(wanted), env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if ran.returncode != 0:
        sys.stderr.buffer.write(ran.stdout + ran.stderr)
    return ran.returncode == 0 and version in agent.availability(environment).version


def surroundings() -> dict[str, str]:
    """Where npm and uv put things, and where they look for Python."""
    pythons = sorted(map(str, Path.home().glob(".pyenv/versions/*/bin")))
    path = [str(TARGET / "bin"), str(Path(sys.executable).parent), os.environ["PATH"], *pythons]
    return {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "npm_config_prefix": str(TARGET),
        "npm_config_fund": "false",
        "npm_config_audit": "false",
        "npm_config_loglevel": "error",
        "UV_TOOL_DIR": str(TARGET / "python"),
        "UV_TOOL_BIN_DIR": str(TARGET / "bin"),
    }


if __name__ == "__main__":
    sys.exit(main())
