"""Agents: one adapter per file, found by file name. Files with a leading underscore are shared code."""

from proctor.agents._loader import agent_names, find_agent, keys_of, with_keys

__all__ = ["agent_names", "find_agent", "keys_of", "with_keys"]
