"""Parts of a coding session on their own: verdicts, merges, setup, and what runs in which order."""

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.agent import WorkDone
from proctor.errors import AgentError, WorkspaceError
from proctor.processes import ProgramResult
from proctor.runner import Outcome
from proctor.runners import worktree
from proctor.session import Iteration, Workspace


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


@pytest.mark.parametrize(
    ("checked", "outcome"),
    [
        (ended(), ("success", "completed", "")),
        (ended(timed_out=True), ("timeout", "timeout", "`make test` was still running after 7 s")),
        (ended(2, output=" \n"), ("fail", "checks_failed", "`make test` exited with 2")),
        (ended(2, output="a\n  b \n\n"), ("fail", "checks_failed", "`make test` exited with 2: b")),
    ],
)
def test_the_outcome_follows_from_the_check(checked: Any, outcome: tuple[str, ...]) -> None:
    verdict = worktree._verdict(Place(), checked, {"iterSha": "abc"})  # type: ignore[arg-type]
    assert (verdict.status, verdict.reason, verdict.error) == outcome
    assert verdict.result == {"iterSha": "abc"}


@pytest.mark.parametrize(
    ("check", "baseline", "merges", "status", "sha", "steps"),
    [
        ("make", True, True, "success", "abc", ["baseline", "agent", "commit", "judge", "merge"]),
        ("make", False, True, "success", "abc", ["agent", "commit", "judge", "merge"]),
        ("", True, True, "success", "abc", ["agent", "commit", "judge", "merge"]),
        ("make", True, False, "success", "abc", ["baseline", "agent", "commit", "judge"]),
        ("make", True, True, "fail", "abc", ["baseline", "agent", "commit", "judge"]),
        ("make", True, True, "success", "", ["baseline", "agent", "commit", "judge"]),
    ],
)
async def test_the_steps_of_a_session(
    check: str,
    baseline: bool,
    merges: bool,
    status: str,
    sha: str,
    steps: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened = list[str]()

    def step(name: str, result: Any) -> Any:
        async def run(*_: Any, **__: Any) -> Any:
            happened.append(name)
            return result

        return run

    monkeypatch.setattr(worktree, "set_up", step("setup", [f"f{number}" for number in range(25)]))
    monkeypatch.setattr(worktree, "_run_baseline", step("baseline", None))
    monkeypatch.setattr(worktree, "run_agent", step("agent", WorkDone()))
    monkeypatch.setattr(worktree, "commit_and_publish", step("commit", committed(sha)))
    monkeypatch.setattr(worktree, "_merge_to_base", step("merge", Outcome(reason="merged")))
    place: Any = Place(check=check, settings={"baseline": baseline, "mergeOnPass": merges})
    outcome = await worktree._run_in_worktree(place, step("judge", Outcome(status=status)))
    assert happened == ["setup", *steps]
    assert (outcome.reason == "merged") is (steps[-1] == "merge")
    listed = ", ".join(f"f{number}" for number in range(20))
    assert place.notes == [f"not counted as the agent's work, since setup made it: {listed}"]


async def test_an_agent_that_is_cut_off_is_rescued_with_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    rescued = list[str]()

    async def nothing(_: Any) -> list[str]:
        return []

    async def run_agent(_: Any, *, output: Any) -> WorkDone:
        output.add("so far")
        raise WorkspaceError("cut off")

    async def rescue(_: Any, output: str) -> None:
        rescued.append(output)

    monkeypatch.setattr(worktree, "set_up", nothing)
    monkeypatch.setattr(worktree, "run_agent", run_agent)
    monkeypatch.setattr(worktree, "_rescue", rescue)
    place: Any = Place()
    with pytest.raises(WorkspaceError, match="cut off"):
        await worktree._run_in_worktree(place, None)  # type: ignore[arg-type]
    assert rescued == ["so far"] and place.notes == []


@pytest.mark.parametrize("fails", [False, True])
async def test_rescued_work_is_an_iteration_without_a_check(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def commit(_: Any) -> Any:
        if fails:
            raise WorkspaceError("disk full")
        return committed()

    monkeypatch.setattr(worktree, "commit_and_publish", commit)
    place: Any = Place()
    await worktree._rescue(place, "so far")
    (event,) = place.events
    assert (event.output, event.model, event.test_result) == ("so far", "m1", "")
    assert event.commit_sha == ("" if fails else "abc")
    assert place.notes == (["the agent's changes could not be committed: disk full"] if fails else [])


@pytest.mark.parametrize(
    ("finished", "baseline"), [(ended(), "pass"), (ended(1), "fail"), (ended(timed_out=True), "fail")]
)
async def test_a_check_that_passes_before_the_agent_is_noted(
    finished: Any, baseline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored = list[Any]()

    async def run_command(_: Any, command: str, phase: str) -> Any:
        assert (command, phase) == ("make test", "check")
        return finished

    monkeypatch.setattr(worktree, "run_command", run_command)
    monkeypatch.setattr(worktree, "restore", restored.append)
    place: Any = Place()
    await worktree._run_baseline(place)
    assert place.events == [Workspace(baseline=baseline)] and restored == [place.tree]
    note = "`make test` passes already before the agent: it does not show what the agent did"
    assert place.notes == ([note] if baseline == "pass" else [])


@pytest.mark.parametrize(
    ("result", "recheck", "outcome", "note"),
    [
        ("success", None, ("success", "completed", ""), ""),
        ("success", ended(1), ("success", "completed", ""), ""),
        ("conflict", None, ("success", "completed", ""), "not merged: conflicts with main in a, b"),
        (
            "error",
            ended(1),
            ("fail", "checks_failed_after_rebase", "`make test` exited with 1"),
            "",
        ),
        ("error", None, ("error", "merge_failed", "no luck"), ""),
    ],
)
async def test_how_a_merge_ended_decides_the_outcome(
    result: str, recheck: Any, outcome: tuple[str, ...], note: str
) -> None:
    requests = list[Any]()
    end = SimpleNamespace(result=result, base_branch="main", conflict_files=["a", "b"], error="no luck")

    async def merge(request: Any) -> Any:
        requests.append(request)
        return SimpleNamespace(merges=["attempted"], notes=["of the merge"], result=end, recheck=recheck)

    place: Any = Place(settings={"sandbox": "none"})
    place.services.merge = merge
    merged = await worktree._merge_to_base(place, Outcome(result={"iterSha": "abc"}))
    assert (merged.status, merged.reason, merged.error) == outcome
    assert merged.result == {"iterSha": "abc", "merge": result}
    assert place.events == ["attempted"] and place.notes == ["of the merge", *([note] if note else [])]
    (request,) = requests
    assert (request.repo, request.branch, request.base_branch) == (Path("/repo"), "batch/x", "main")
    assert (request.message, request.check, request.attempt) == ("Fix", "make test", "s1")
    assert (request.environment, request.time_limit, request.sandbox) == ({"A": "1"}, 7.0, "none")


def test_the_login_of_an_agent_is_copied_or_its_absence_named(tmp_path: Path) -> None:
    user, home = tmp_path / "user", tmp_path / "home"
    (user / ".tool").mkdir(parents=True)
    home.mkdir()
    environment = {"HOME": str(user)}
    assert worktree._copy_login([], {}, home) == []
    with pytest.raises(WorkspaceError) as raised:
        worktree._copy_login([".tool/a", ".tool/b"], environment, home)
    problem = f"there is no login of the agent: none of .tool/a, .tool/b is in {user}"
    assert str(raised.value) == problem
    with pytest.raises(WorkspaceError, match="is in /nonexistent"):
        worktree._copy_login(["a"], {}, home)
    (user / ".tool" / "b").write_text("key")
    assert worktree._copy_login([".tool/a", ".tool/b"], environment, home) == [home / ".tool" / "b"]
    assert (home / ".tool" / "b").read_text() == "key"
    (user / ".tool" / "b").write_bytes(b"\xff")
    with pytest.raises(WorkspaceError, match=r"^copying the login of the agent: "):
        worktree._copy_login([".tool/b"], environment, home)


@pytest.mark.parametrize(
    ("error", "failure"), [(None, ""), (AgentError("no"), "no"), (AgentError(""), "the agent failed")]
)
async def test_an_agent_is_run_within_its_limit_and_its_error_is_a_failure(
    error: AgentError | None, failure: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits, assigned = list[Any](), list[Any]()

    @asynccontextmanager
    async def time_limit(seconds: float, what: str) -> Any:
        limits.append((seconds, what))
        yield

    class Agent:
        async def work(self, assignment: Any, record: Any) -> WorkDone:
            assigned.append(assignment)
            if error:
                raise error
            return WorkDone(output="done")

    async def access(_: Any) -> None:
        return None

    place: Any = Place(settings={"agent": {}})
    place.home = tmp_path
    place.answers = ()
    place.services.agent = lambda name, settings: Agent()
    place.services.access, place.services.time_limit = access, time_limit
    place.services.environment, place.services.models = {}, None
    monkeypatch.setattr(worktree, "agent_settings", lambda item: {"command": "c", "arguments": ["x"]})
    monkeypatch.setattr(worktree, "seed_of", lambda item: 5)
    done = await worktree.run_agent(place, "Another prompt")
    assert done == (WorkDone(failure=failure) if error else WorkDone(output="done"))
    assert limits == [(60, "the agent")] and place.phases == ["agent"]
    (assignment,) = assigned
    assert (assignment.prompt, assignment.folder, assignment.home) == (
        "Another prompt",
        Path("/tree"),
        tmp_path,
    )
    assert (assignment.attempt, assignment.model, assignment.seed) == ("s1", "m1", 5)
    assert assignment.keep_events is True
    named = {"named": ["c", ["x"]], "serve": None, "usual_network": None, "concealed": ()}
    assert assignment.confinement == ("agent", named)
    await worktree.run_agent(place)
    assert assigned[1].prompt == "Do it"
