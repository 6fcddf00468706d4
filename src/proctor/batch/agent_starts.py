"""Notices an agent that does not start, before a run has spent its time on all items of it."""

import json

from proctor.errors import AgentNotStarted, WorkspaceError
from proctor.formatting import one_line
from proctor.item import Item
from proctor.job import ItemFinished
from proctor.runner import agent_settings

MOST_TITLE, MOST_ERROR = 60, 180
"""Characters of an agent and its error in a message."""
FAILED_STARTS = 3
"""One program that does not start may be bad luck; a third is none."""


class AgentStarts:
    """The items of each agent that could not start it."""

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}
        """By agent with its settings; 0: it has started once."""

    def follow(self, end: ItemFinished) -> str:
        """Follow a finished item. What to tell the user once its agent has started in none; else empty."""
        item, outcome = end.item, end.outcome
        # Before the agent, so that it says nothing about it.
        if outcome.reason == WorkspaceError.reason:
            return ""
        name = _identity(item)
        if outcome.reason != AgentNotStarted.reason:
            self._failed[name] = 0
        elif self._failed.get(name) != 0:
            self._failed[name] = self._failed.get(name, 0) + 1
        if self._failed[name] != FAILED_STARTS:
            return ""
        return (
            f"the agent {_title(item)} did not start in any of {FAILED_STARTS} items, so the run stops; see "
            f"`proctor show {end.session_id} --output`, or insist with --keep-going: "
            f"{one_line(outcome.error, MOST_ERROR)}"
        )


def _identity(item: Item) -> str:
    return json.dumps([item.agent, agent_settings(item)], sort_keys=True, default=str)


def _title(item: Item) -> str:
    command = agent_settings(item).get("command") or item.agent
    words = command if isinstance(command, list) else [command]
    return f"`{one_line(' '.join(map(str, words)), MOST_TITLE)}`"
