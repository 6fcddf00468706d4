"""Decide what holds for an entry: its own word, else the defaults', else what is built in.

`null` in an entry takes a default away. `env` and `settings` are joined name by name. A `command`
without an agent beside it means the agent `command`, a `script` the agent `scripted`.

Knows nothing of YAML, grids or items.
"""

from collections.abc import Mapping
from typing import Any

DEFAULT_AGENT = "amp"
DEFAULT_CONCURRENCY = 4
BUILT_IN: Mapping[str, Any] = {
    "baseBranch": "main",
    "jsonLogs": True,
    "timeoutSec": 900,
    "retries": 0,
    "mergeOnPass": False,
    "runs": 1,
    "retryOn": ["error", "timeout"],
    "keep": "on_failure",
    "tags": [],
}
IMPLIED_AGENTS = {"command": "command", "script": "scripted"}
"""The settings that name an agent, when it is not named itself."""
_JOINED = ("env", "settings")


def with_agent(level: Mapping[str, Any]) -> dict[str, Any]:
    """An entry or the defaults, with the agent that its own settings imply."""
    if level.get("agent") is None:
        for setting, agent in IMPLIED_AGENTS.items():
            if level.get(setting) is not None:
                return {**level, "agent": agent}
    return dict(level)


def settled(entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that holds for `entry`. What is absent is not in it."""
    joined = {name: _joined(entry, defaults, name) for name in _JOINED}
    merged = {**with_agent(defaults), **with_agent(entry), **joined}
    return {**BUILT_IN, **{name: value for name, value in merged.items() if value is not None}}


def _joined(entry: Mapping[str, Any], defaults: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    if name in entry and entry[name] is None:
        return None
    both = {**(defaults.get(name) or {}), **(entry.get(name) or {})}
    return {key: value for key, value in both.items() if value is not None} or None
