"""Parts of a coding session on their own: verdicts, merges, setup, and what runs in which order."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.agent import WorkDone
from proctor.processes import ProgramResult
from proctor.runners import worktree
from proctor.session import Iteration


def ended(exit_code: int = 0, *, timed_out: bool = False, output: str = "", **more: Any) -> ProgramResult:
    return ProgramResult(exit_code=exit_code, output=output, duration_ms=5.0, timed_out=timed_out, **more)


def committed(sha: str = "abc") -> Any:
    changes = SimpleNamespace(files=1, lines_added=2, lines_removed=3)
    return SimpleNamespace(sha=sha, changes=changes, notes=["of the commit"])


@dataclass
class Place:
    """A session without a tree, and what happened in it."""

    settings: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    check: str = "make test"
    events: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cache_variables: dict[str, str] = field(default_factory=lambda: {"CACHE": "/c"})
    environment: dict[str, str] = field(default_factory=lambda: {"A": "1"})
    base_branch: str = "main"
    message: str = "Fix"
    time_limit: float = 60

    def settle(self) -> None:
        """Nothing has run here."""

    def __post_init__(self) -> None:
        self.item: Any = SimpleNamespace(
            settings=self.settings, details=self.details, model="m1", prompt="Do it", agent="shell"
        )
        self.phases = list[str]()
        self.services: Any = SimpleNamespace(
            record=self.events.append, session_id="s1", phase=self.phase, driver_files=None
        )
        self.tree: Any = SimpleNamespace(
            folder=Path("/tree"), branch="batch/x", source=SimpleNamespace(root=Path("/repo"))
        )
        self.note = self.notes.append

    @contextmanager
    def phase(self, name: str) -> Any:
        self.phases.append(name)
        yield

    def command_limit(self, phase: str) -> float:
        return {"check": 7.0, "setup": 9.0}[phase]

    def confinement(self, phase: str, **more: Any) -> Any:
        return (phase, more)


@pytest.mark.parametrize(
    ("checked", "result", "code"),
    [
        (None, "", None),
        (ended(), "pass", 0),
        (ended(3), "fail", 3),
        (ended(timed_out=True), "fail", 0),
        (ended(143, timed_out=True), "fail", 143),
    ],
)
def test_an_iteration_has_the_result_of_its_check(checked: Any, result: str, code: int | None) -> None:
    done = WorkDone(exit_code=4, output="", failure="gave up")
    assert worktree.iteration_of(Place(), done, committed(), checked) == Iteration(  # type: ignore[arg-type]
        commit_sha="abc",
        changed_files=1,
        lines_added=2,
        lines_removed=3,
        test_result=result,
        test_exit_code=code,
        test_duration_ms=None if checked is None else 5.0,
        test_output="",
        model="m1",
        exit_code=4,
        output="gave up",
    )
