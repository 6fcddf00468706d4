"""Clear away what attempts left behind whose process was killed.

Knows nothing of why it was.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proctor.processes import end_attempt
from proctor.workspace.tree import remove_folder, session_folder


def clear_leftovers(sessions: Iterable[Mapping[str, Any]], home: Path) -> None:
    """End every process these sessions may have left running, and remove their work trees."""
    for session in sessions:
        end_attempt(session["id"])
        if session["worktree"]:
            remove_folder(session_folder(home, session["id"]))
