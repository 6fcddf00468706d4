"""Which real agents are here to be tried."""

import os

from real_desk import INSTALLED, PROGRAMS

from proctor.agent import Agent
from proctor.agents import find_agent

SETTINGS = {"aider": {"files": ["hello.txt"], "map_tokens": 0}}
NAMES = (
    "claude",
    "codex",
    "gemini",
    "opencode",
    "aider",
    "mini-swe-agent",
    "continue",
    "qwen",
    "pi",
    "copilot",
    "cline",
    "openhands",
)
NEED_ANOTHER_PYTHON = ("openhands",)
"""Those that a machine may be unable to install; what installs them says so, and here they are left out."""


def ready_names() -> list[str]:
    """All of them, but for those that could not be had."""
    here = {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    maybe = NAMES if INSTALLED else NEED_ANOTHER_PYTHON
    missing = {name for name in maybe if not ready_agent(name).installable.find(here)}
    return [name for name in NAMES if name not in missing]


def ready_agent(name: str) -> Agent:
    """The agent with the settings these tests give it."""
    return find_agent(name, SETTINGS.get(name, {}))
