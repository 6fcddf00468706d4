"""Hidden tests and the folders of a task: what is done in which order, with the work itself replaced."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import WorkspaceError
from proctor.processes import ProgramResult
from proctor.runners import benchmark
from proctor.workspace.test_reports import Verdict


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


HIDDEN = SimpleNamespace(
    command="pytest hidden", solution_paths=["src"], fail_to_pass=["a"], pass_to_pass=["b", "c"]
)


def finished(*, timed_out: bool = False) -> ProgramResult:
    return ProgramResult(exit_code=1, output="out", duration_ms=5, timed_out=timed_out)


@pytest.mark.parametrize("timed_out", [False, True])
@pytest.mark.parametrize("passed", [False, True])
async def test_hidden_tests_run_in_a_fresh_tree_and_give_one_score(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, passed: bool, timed_out: bool
) -> None:
    archive = tmp_path / "hidden.zip"
    session, fresh = Session(tmp_path / "own"), Session(tmp_path / "fresh")
    session.item.settings["hidden"] = "there"
    verdict = Verdict(passed, 0.5, "half")
    graded = SimpleNamespace(value=0.5, passed=passed, summary="x" * 3000, verdict=verdict)
    grades: list[tuple[Any, ...]] = []
    monkeypatch.setattr(benchmark, "grade", lambda *call: grades.append(call) or graded)
    calls.replace("_task_files", archive)
    calls.replace("_carry")
    calls.replace("run_command", finished(timed_out=timed_out))
    calls.in_thread(digest_of_archive="d1", read_archive=HIDDEN, read_results={"a": True})

    ran = await benchmark._run_hidden_tests(session, fresh, "d1")  # type: ignore[arg-type]

    place = fresh.home / "tmp"
    names = [call[0] for call in calls.calls]
    assert names == [
        *("_task_files", "digest_of_archive", "read_archive", "_carry", "lay_tests", "run_command"),
        "read_results",
    ]
    assert calls.calls[0][1:] == (session.services, "there")
    assert calls.calls[1][1:] == calls.calls[2][1:] == (archive,)
    assert calls.calls[3][1:] == (session, fresh, ["src"])
    (_, laid, tree, folder), (_, where, command, phase) = calls.calls[4], calls.calls[5]
    assert (laid, tree, folder.parent) == (archive, fresh.tree, place) and place.is_dir()
    assert folder.name.startswith("hidden-") and len(folder.name) == len("hidden-") + 12
    report = place / f"{folder.name}.report"
    assert (where, phase) == (fresh, "check")
    assert command == benchmark.with_report("pytest hidden", report)
    assert calls.calls[6][1:] == ("pytest hidden", report, 1)
    assert grades == [({"a": True}, ["a"], ["b", "c"])]
    assert (ran.criterion, ran.command, ran.verdict) == ("hidden tests", "pytest hidden", verdict)
    assert ran.finished == finished(timed_out=timed_out)
    (score,) = session.scores
    assert (score.evaluator, score.value) == ("hidden tests", 0.5)
    assert score.label == ("pass" if passed and not timed_out else "fail")
    assert score.explanation == benchmark.clipped("x" * 3000, 1000) != "x" * 3000


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


async def test_a_fresh_tree_is_set_up_for_hidden_tests_and_removed(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session, fresh = Session(tmp_path / "own", hidden="d1"), Session(tmp_path / "fresh")
    for name, result in (("fresh_session", fresh), ("set_up", None), ("_run_hidden_tests", "ran")):
        calls.replace(name, result)
    calls.replace("remove_fresh")
    ran: list[Any] = []
    await benchmark._check(session, CURRENT, ran)  # type: ignore[arg-type]
    assert calls.calls == [
        ("fresh_session", session),
        ("set_up", fresh),
        ("_run_hidden_tests", session, fresh, "d1"),
        ("remove_fresh", session),
    ]
    assert ran == ["ran"]


async def test_a_patch_of_tests_is_laid_over_the_work_in_a_fresh_tree(calls: Calls, tmp_path: Path) -> None:
    session = Session(
        tmp_path / "own", testPatch="digest", solutionPaths=["src"], settings={"testPatch": "the patch"}
    )
    fresh = Session(tmp_path / "fresh")
    calls.replace("fresh_session", fresh)
    for name in ("set_up", "_carry", "_run_checks", "remove_fresh"):
        calls.replace(name)
    calls.in_thread()
    ran: list[Any] = []
    await benchmark._check(session, CURRENT, ran)  # type: ignore[arg-type]
    assert calls.calls[2:] == [
        ("_carry", session, fresh, ["src"]),
        ("lay_patch", "the patch", fresh.tree),
        ("_run_checks", fresh, CURRENT, ran),
        ("remove_fresh", session),
    ]


async def test_checks_without_hidden_tests_run_in_the_tree_of_the_agent(calls: Calls, tmp_path: Path) -> None:
    session = Session(tmp_path)
    calls.replace("_run_checks")
    await benchmark._check(session, CURRENT, [])  # type: ignore[arg-type]
    assert calls.calls == [("_run_checks", session, CURRENT, [])]


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


# --- Folders and files ---


@pytest.mark.parametrize("places", [{"/logs": "logs"}, {"/x": "check_files"}, None])
async def test_folders_for_logs_are_made_where_programs_see_them(tmp_path: Path, places: Any) -> None:
    session = Session(tmp_path, places=places)
    for _ in range(2):
        await benchmark._lay_out_places(session)  # type: ignore[arg-type]
    found = sorted(path.name for path in session.logs.glob("*"))
    has_logs = bool(places) and "logs" in places.values()
    assert found == (["agent", "artifacts", "verifier"] if has_logs else [])
    assert not (tmp_path / "solution").exists()


@pytest.mark.parametrize("kind", ["folder", "texts"])
async def test_a_reference_solution_lies_beside_the_tree(tmp_path: Path, calls: Calls, kind: str) -> None:
    session = Session(tmp_path, settings={"solution": "there"})
    source = tmp_path / "source"
    source.mkdir()
    (source / "fix.sh").write_text("fix")
    texts = benchmark.files_of({"fix.sh": "fix"})
    calls.replace("_task_files", source if kind == "folder" else texts)
    for _ in range(2):
        await benchmark._lay_out_places(session)  # type: ignore[arg-type]
    assert (tmp_path / "solution/fix.sh").read_text() == "fix"
    assert calls.calls[0] == ("_task_files", session.services, "there")


class Driver:
    """The files of another machine."""

    async def fetch(self, path: Path) -> Path:
        return Path("/fetched") / path.name

    async def starting_repository(self, files: object, digest: str) -> tuple[object, ...]:
        return "driver", files, digest


async def test_files_of_a_task_are_fetched_from_the_driver(tmp_path: Path) -> None:
    here, there = Session(tmp_path).services, Session(tmp_path, driver_files=Driver()).services
    assert await benchmark._task_files(here, "/x/files") == Path("/x/files")  # type: ignore[arg-type]
    assert await benchmark._task_files(there, "/x/files") == Path("/fetched/files")  # type: ignore[arg-type]
    for services in (here, there):
        assert await benchmark._task_files(services, {"a": "b"}) == benchmark.files_of({"a": "b"})  # type: ignore[arg-type]


async def test_the_repository_that_an_item_begins_with(calls: Calls, tmp_path: Path) -> None:
    calls.replace("image_repository", "of an image")
    calls.replace("starting_repository", "of files")
    files = benchmark.files_of("/x/start")
    for driver in (None, Driver()):
        session = Session(tmp_path, start="d1", settings={"start": "/x/start"}, driver_files=driver)
        found = await benchmark._repository(session.item, session.services)  # type: ignore[arg-type]
        assert found == (("driver", files, "d1") if driver else "of files")
        session.item.settings["image"] = "image:1"
        if driver:
            with pytest.raises(WorkspaceError, match="runs only on the driver's machine: use --engine local"):
                await benchmark._repository(session.item, session.services)  # type: ignore[arg-type]
        else:
            assert await benchmark._repository(session.item, session.services) == "of an image"  # type: ignore[arg-type]
    home = tmp_path / "store"
    assert calls.calls == [
        ("starting_repository", home, files, "d1", {"A": "1"}),
        ("image_repository", home, "image:1", "d1", {"A": "1"}),
    ]


async def test_files_of_checks_and_steps_are_laid_out(calls: Calls, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    (stored / "inner").mkdir(parents=True)
    (stored / "inner/test.py").write_text("hidden")
    (stored / "other.py").write_text("new")
    settings = {"checkFiles": "check", "files3": "step"}
    session = Session(tmp_path, settings=settings)
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner/test.py").write_text("own")
    checkouts: list[tuple[str, ...]] = []
    session.tree = SimpleNamespace(folder=tree, git=lambda *words: checkouts.append(words))  # type: ignore[assignment]
    calls.replace("_task_files", stored)
    calls.replace("stored_files", stored)

    current = benchmark._Round([{"command": "x", "criterion": ""}], "d1", "checkFiles")
    await benchmark._lay_out_check_files(session, current)  # type: ignore[arg-type]
    assert (tree / "inner/test.py").read_text() == "hidden"
    assert calls.calls == [
        ("_task_files", session.services, "check"),
        ("stored_files", tmp_path / "store", stored, "d1"),
    ]
    for without in (benchmark._Round([], "d1", "checkFiles"), benchmark._Round([{}], "", "checkFiles")):
        await benchmark._remove_check_files(session, without)  # type: ignore[arg-type]
        assert (tree / "other.py").exists()
    await benchmark._remove_check_files(session, current)  # type: ignore[arg-type]
    assert not (tree / "inner/test.py").exists() and not (tree / "other.py").exists()
    assert (tree / "inner").is_dir()
    assert checkouts == [("checkout", "--quiet", "HEAD", "--", ".")]

    calls.calls.clear()
    await benchmark._add_step_files(session, {"files": ""}, 3)  # type: ignore[arg-type]
    assert calls.calls == []
    await benchmark._add_step_files(session, {"files": "d2"}, 3)  # type: ignore[arg-type]
    assert calls.calls == [
        ("_task_files", session.services, "step"),
        ("stored_files", tmp_path / "store", stored, "d2"),
    ]
    assert (tree / "other.py").read_text() == "new"


def test_files_of_checks_lie_in_the_tree_or_at_a_place_of_their_own(tmp_path: Path) -> None:
    session = Session(tmp_path, places={"/logs": "logs"})
    session.tree = SimpleNamespace(folder=tmp_path / "tree", git=None)  # type: ignore[assignment]
    assert benchmark._check_folder(session) == tmp_path / "tree"  # type: ignore[arg-type]
    session.item.details["places"] = {"/tests": "check_files"}
    for _ in range(2):
        assert benchmark._check_folder(session) == tmp_path / "check_files"  # type: ignore[arg-type]
    assert (tmp_path / "check_files").is_dir()
    # Nothing of the agent's is there to be brought back.
    benchmark._restore(session, tmp_path / "tree")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["", "reward", "report"])
async def test_how_a_check_is_run_and_judged(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    session = Session(tmp_path)
    verifier = session.logs / "verifier"
    verifier.mkdir(parents=True)
    (verifier / "junit.xml").write_text("by the agent")
    calls.replace("run_command", finished())
    judged: list[tuple[Any, ...]] = []
    reward, report = Verdict(True, 0.5, "r"), Verdict(False, 0.0, "j")
    monkeypatch.setattr(benchmark, "verdict_by_reward", lambda *call: judged.append(call) or reward)
    monkeypatch.setattr(benchmark, "verdict_by_report", lambda *call: judged.append(call) or report)
    check = {"verdict": kind, "timeoutSec": 7, "failToPass": ["a"], "passToPass": ["b"]}
    ran = await benchmark._run_check(session, check, "tool", "It works")  # type: ignore[arg-type]
    assert (ran.criterion, ran.command, ran.finished) == ("It works", "tool", finished())
    (call,) = calls.calls
    assert call[1:4] == (session, "tool", "check")
    if not kind:
        assert ran.verdict is None and call[4] == {"time_limit": 7.0}
        assert (verifier / "junit.xml").exists() and judged == []
        return
    file = verifier / "junit.xml"
    variables = {benchmark.REPORT_VARIABLE: str(file), benchmark.REWARD_VARIABLE: str(verifier)}
    assert call[4] == {"time_limit": 7.0, "variables": variables}
    assert not file.exists()
    assert judged == ([(verifier,)] if kind == "reward" else [(file, ["a"], ["b"], 1)])
    assert ran.verdict is (reward if kind == "reward" else report)

    session.mounts = {"/other": tmp_path, "/logs": session.logs}
    await benchmark._run_check(session, check, "tool", "")  # type: ignore[arg-type]
    assert calls.calls[1][4]["variables"][benchmark.REWARD_VARIABLE] == "/logs/verifier"
