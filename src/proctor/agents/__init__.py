"""Agents: one adapter a file, found by the file's name.

Files whose names begin with an underscore hold what several adapters share; they are no agents.
"""

from proctor.agents._loader import agent_names, find_agent, keys_of, with_keys

__all__ = ["agent_names", "find_agent", "keys_of", "with_keys"]
