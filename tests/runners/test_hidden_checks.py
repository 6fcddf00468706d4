"""Hidden tests and the folders of a task: what is done in which order, with the work itself replaced."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import WorkspaceError
from proctor.runners import benchmark


class Session:
    """A session of one item: its folders, its scores, its notes."""

    def __init__(self, folder: Path, *, driver_files: Any = None, **details: Any) -> None:
        settings = details.pop("settings", {})
        self.item = SimpleNamespace(details=details, settings=settings, prompt="Do it.")
        self.scores, self.notes = list[Any](), list[str]()
        self.services = SimpleNamespace(
            driver_files=driver_files, home=folder / "store", environment={"A": "1"}, score=self.scores.append
        )
        self.home, self.logs = folder / "home", folder / "logs"
        self.tree, self.mounts, self.note = f"tree of {folder.name}", {}, self.notes.append


class Calls:
    """Replaces functions of the runner; keeps what they are called with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch, self.calls = monkeypatch, list[tuple[Any, ...]]()

    def replace(self, name: str, result: Any = None) -> None:
        async def called(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, *arguments, *([named] if named else [])))
            return result

        self._patch.setattr(benchmark, name, called)

    def in_thread(self, **results: Any) -> None:
        """What functions return that run in a thread."""

        async def run(function: Any, *arguments: Any) -> Any:
            self.calls.append((function.__name__, *arguments))
            return results.get(function.__name__)

        self._patch.setattr(benchmark, "in_thread", run)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


async def test_hidden_tests_that_have_changed_are_an_error(calls: Calls, tmp_path: Path) -> None:
    session = Session(tmp_path, settings={"hidden": "there"})
    calls.replace("_task_files", tmp_path / "hidden.zip")
    calls.in_thread(digest_of_archive="d2")
    with pytest.raises(
        WorkspaceError, match=r"hidden\.zip has changed since this was planned; start it again"
    ):
        await benchmark._run_hidden_tests(session, session, "d1")  # type: ignore[arg-type]


@pytest.mark.parametrize("changed", [[], ["t.py", "ci.yml"], [f"t{number}" for number in range(60)]])
@pytest.mark.parametrize("suspicious", [[], [f"line {number}" for number in range(12)]])
async def test_what_an_agent_changed_of_tests_is_told(
    calls: Calls, tmp_path: Path, changed: list[str], suspicious: list[str]
) -> None:
    session, fresh = Session(tmp_path / "own"), Session(tmp_path / "fresh")
    calls.in_thread(carry_work=changed, lines_about_runner=suspicious)
    await benchmark._carry(session, fresh, ["src"])  # type: ignore[arg-type]
    assert calls.calls == [
        ("carry_work", session.tree, fresh.tree, ["src"]),
        ("lines_about_runner", fresh.tree),
    ]
    (score,) = session.scores
    assert (score.evaluator, score.value) == ("changed tests", None)
    if changed:
        assert (score.label, score.explanation) == ("changed", ", ".join(changed))
        assert session.notes[0].endswith(f"this does not count: {', '.join(changed[:50])}")
    else:
        assert (score.label, score.explanation) == ("unchanged", "no test, test setting or CI file")
    assert len(session.notes) == bool(changed) + bool(suspicious)
    if suspicious:
        assert session.notes[-1].endswith(f"it refers to the test runner: {'; '.join(suspicious[:10])}")


CURRENT = benchmark._Round([], "", "checkFiles")


async def test_the_fresh_tree_is_removed_where_its_setup_fails(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def fail(session: object) -> None:
        raise WorkspaceError("no")

    calls.replace("remove_fresh")
    monkeypatch.setattr(benchmark, "fresh_session", fail)
    with pytest.raises(WorkspaceError):
        await benchmark._check(Session(tmp_path, hidden="d"), CURRENT, [])  # type: ignore[arg-type]
    assert [call[0] for call in calls.calls] == ["remove_fresh"]
