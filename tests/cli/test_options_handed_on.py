"""Which arguments a command gives the library, and what becomes of its answer."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filled import add_batch, items
from proctor.batch import lifecycle
from proctor.batch.lifecycle import BatchChanges
from proctor.cli import batch, bench, compare, import_export, resume
from proctor.cli.main import main
from proctor.cli.run import OutputOptions, TerminalObserver
from proctor.context import EngineOptions
from proctor.jobs.benchmark.plan import TaskPlanOverrides
from proctor.store import RetrySelection, Scope, Store

ENDED = 7
"""The exit code of a replaced `run_command`."""


@pytest.fixture
def folder(folder: Path, tmp_path: Path) -> Path:
    """With two plans and a task."""
    (tmp_path / "plan.yaml").write_text(
        "runId: of-plan\ndefaults: {model: scripted/ok}\nmatrix: [{prompt: a}]\n"
    )
    (tmp_path / "tasks.yaml").write_text("runId: of-tasks\nmodel: scripted/ok\ntasks: task.md\n")
    (tmp_path / "task.md").write_text("---\nempty: true\n---\n# Do it\n\nDo it well.\n")
    return tmp_path


class Calls:
    """Replaces functions by ones that keep their arguments and return a given value."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.of: dict[str, tuple[Any, ...]] = {}
        self.named: dict[str, dict[str, Any]] = {}

    def replace(self, owner: Any, name: str, value: Any) -> None:
        def called(*arguments: Any, **named: Any) -> Any:
            self.of[name], self.named[name] = arguments, named
            return value

        self._monkeypatch.setattr(owner, name, called)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def replace_lifecycle(calls: Calls, *modules: Any) -> None:
    calls.replace(lifecycle, "start", "started")
    calls.replace(lifecycle, "resume", "resumed")
    calls.replace(lifecycle, "find_earlier", "earlier-run")
    for module in modules:
        calls.replace(module, "run_command", ENDED)


def test_a_plan_is_started_with_the_options_of_the_command(folder: Path, calls: Calls) -> None:
    replace_lifecycle(calls, batch)
    words = ["batch", "plan.yaml", "--run-id", "mine", "--workers", "3", "--ray-address", "here", "--jsonl"]
    assert main(words) == ENDED
    job, plan, ctx = calls.of["start"]
    assert job is batch.JOB and plan.run_id == "of-plan"
    named = calls.named["start"]
    assert (named["run_id"], named["workers"]) == ("mine", 3)
    assert isinstance(named["observer"], TerminalObserver)
    assert ctx.engine == EngineOptions("local", "here")
    output = OutputOptions(as_json=False, as_jsonl=True)
    assert calls.of["run_command"] == (ctx, "started", output) and named["observer"]._output == output
    assert "resume" not in calls.of and "find_earlier" not in calls.of


@pytest.mark.parametrize(
    ("words", "asked", "retry"),
    [
        (["--resume"], "", RetrySelection()),
        (["--resume", "abc", "--retry-errors"], "abc", RetrySelection(errors=True)),
        (["--resume=abc", "--retry-failed", "--json"], "abc", RetrySelection(failures=True)),
        (["--run-id", "mine", "--resume"], "mine", RetrySelection()),
        (["--run-id", "abc", "--resume", "abc"], "abc", RetrySelection()),
    ],
)
def test_a_changed_plan_resumes_the_run_that_is_named_or_the_latest(
    words: list[str], asked: str, retry: RetrySelection, folder: Path, calls: Calls
) -> None:
    replace_lifecycle(calls, batch)
    assert main(["batch", "plan.yaml", *words]) == ENDED
    job, plan, ctx, name = calls.of["find_earlier"]
    assert (job, plan.run_id, name) == (batch.JOB, "of-plan", asked)
    assert calls.of["resume"] == (batch.JOB, "earlier-run", ctx)
    named = calls.named["resume"]
    assert (named["plan"], named["retry"], named["workers"]) == (plan, retry, None)
    assert calls.of["run_command"] == (ctx, "resumed", OutputOptions(as_json="--json" in words))
    assert "start" not in calls.of


def test_a_plan_resumes_one_run(folder: Path, calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    replace_lifecycle(calls, batch)
    assert main(["batch", "plan.yaml", "--resume", "abc", "--run-id", "mine"]) == 2
    assert "--resume names run abc, and --run-id names run mine\nName one of them." in capsys.readouterr().err
    assert "resume" not in calls.of and "find_earlier" not in calls.of


def test_a_dry_run_predicts_what_is_left_of_the_earlier_run(folder: Path, calls: Calls) -> None:
    replace_lifecycle(calls, batch)
    calls.replace(lifecycle, "preview", "previewed")
    calls.replace(batch, "predict_cost_and_time", "forecast")
    calls.replace(batch, "_dry_run", ENDED)
    assert main(["batch", "plan.yaml", "--dry-run", "--resume", "x", "--retry-errors", "--json"]) == ENDED
    plan, ctx = calls.of["preview"]
    assert calls.named["preview"] == {"run_id": "earlier-run"}
    assert calls.of["predict_cost_and_time"] == ("coding", plan, ctx)
    assert calls.named["predict_cost_and_time"] == {
        "run_id": "earlier-run",
        "retry": RetrySelection(errors=True),
    }
    assert calls.of["_dry_run"] == (plan, "previewed", "forecast")
    assert calls.named["_dry_run"] == {"as_json": True}
    main(["batch", "plan.yaml", "--dry-run"])
    assert calls.named["preview"] == {"run_id": ""} and calls.named["_dry_run"] == {"as_json": False}
    assert "start" not in calls.of and "resume" not in calls.of


def test_a_plan_with_tasks_is_run_as_a_benchmark(folder: Path, calls: Calls) -> None:
    replace_lifecycle(calls, bench)
    words = ["--model", "scripted/echo", "--concurrency", "2", "--budget", "3", "--timeout-sec", "4"]
    assert main(["batch", "tasks.yaml", *words]) == ENDED
    job, plan, ctx = calls.of["start"]
    assert job is bench.JOB and calls.named["start"]["run_id"] == "of-tasks"
    assert (plan.concurrency, plan.overrides.models) == (2, "scripted/echo")
    assert (plan.overrides.budget, plan.overrides.timeout) == (3.0, 4.0)
    assert calls.of["run_command"] == (ctx, "started", OutputOptions())
    assert calls.named["run_command"] == {"present": bench.present}
    assert isinstance(calls.named["start"]["observer"], bench.JobObserver)
    assert calls.named["start"]["observer"].settings == plan.settings
    assert main(["batch", "tasks.yaml", "--run-id", "mine"]) == ENDED
    assert calls.named["start"]["run_id"] == "mine"


def test_a_plan_with_tasks_is_read_with_the_options(folder: Path, calls: Calls) -> None:
    calls.replace(bench, "run_task_plan", ENDED)
    words = ["--model", "m", "--agent", "a", "--folder", str(folder / "home"), "--dry-run", "--jsonl"]
    assert main(["batch", "tasks.yaml", *words, "--run-id", "mine"]) == ENDED
    _, text, chosen, output = calls.of["run_task_plan"]
    assert (text.path, text.folder) == (Path("tasks.yaml"), folder / "home")
    assert text.text == (folder / "tasks.yaml").read_bytes()
    assert chosen == TaskPlanOverrides(
        model="m", agent="a", concurrency=None, budget=None, timeout_seconds=None
    )
    assert output == OutputOptions(as_jsonl=True)
    assert calls.named["run_task_plan"] == {"dry_run": True, "run_id": "mine"}


@pytest.mark.parametrize(
    ("text", "has"),
    [
        (b"tasks: x", True),
        (b"a: 1\ntasks : x", True),
        (b"'tasks': x", True),
        (b'{ "tasks": "x"}', True),
        (b"a:\n  tasks: x", False),
        (b"subtasks: x", False),
        (b"tasks", False),
    ],
)
def test_which_plans_have_tasks(text: bytes, has: bool) -> None:
    assert batch._has_tasks(text) is has


def test_a_benchmark_is_started_or_resumed(
    folder: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_lifecycle(calls, bench)
    words = ["bench", "--task", "task.md", "--models", "scripted/ok", "--output", "out"]
    assert main([*words, "--workers", "2", "--agent", "a,b", "--agent", "c", "--json"]) == ENDED
    _, plan, ctx = calls.of["start"]
    assert calls.named["start"]["workers"] == 2 and ctx.engine == EngineOptions("local", "auto")
    assert plan.overrides.agent == ["a,b", "c"] and plan.overrides.parallel == "1"
    assert calls.of["run_command"] == (ctx, "started", OutputOptions(as_json=True))
    assert calls.named["run_command"] == {"present": bench.present}

    earlier = SimpleNamespace(
        options={"taskPath": "task.md"}, path=folder / "earlier", is_known=True, run_id="known"
    )
    calls.replace(bench, "find_earlier", earlier)
    words = ["bench", "--models", "scripted/ok", "--output", "out", "--resume", "the-run", "--workers", "4"]
    assert main(words) == ENDED
    store, name, output = calls.of["find_earlier"]
    assert (type(store), name, output) == (Store, "the-run", Path("out"))
    assert calls.of["resume"][:2] == (bench.JOB, "known") and calls.named["resume"]["workers"] == 4
    plan = calls.named["resume"]["plan"]
    assert (plan.output, plan.imports_results) == (folder / "earlier", True)
    assert calls.of["run_command"][1] == "resumed"

    # Its files are here, but not its run: it becomes a run of this store.
    earlier.is_known = False
    assert main(words) == ENDED
    assert calls.of["run_command"][1] == "started" and calls.named["start"]["run_id"] == "known"
    calls.replace(bench, "_dry_run", 5)
    for is_known, run_id in ((False, ""), (True, "known")):
        earlier.is_known = is_known
        assert main([*words, "--dry-run"]) == 5
        assert calls.named["_dry_run"] == {"as_json": False, "earlier": run_id}


def test_a_run_is_resumed_with_the_options_of_the_command(folder: Path, calls: Calls) -> None:
    with Store(str(folder / "home" / "proctor.db")) as store:
        add_batch(store, "nightly-42", items()[:1])
    replace_lifecycle(calls, resume)
    words = ["resume", "nightly", "--concurrency", "3", "--budget", "40", "--workers", "2", "--retry-failed"]
    assert main([*words, "--ray-address", "there", "--json"]) == ENDED
    job, run_id, ctx = calls.of["resume"]
    assert (job.name, run_id) == ("coding", "nightly-42") and ctx.engine == EngineOptions("local", "there")
    named = calls.named["resume"]
    assert named["changes"] == BatchChanges(concurrency=3, budget_usd=40.0, stops_early=True)
    assert (named["retry"], named["workers"]) == (RetrySelection(failures=True), 2)
    assert type(named["observer"]) is TerminalObserver
    assert calls.of["run_command"] == (ctx, "resumed", OutputOptions(as_json=True))
    assert calls.named["run_command"] == {"present": None}
    assert main(["resume", "nightly-42", "--no-stop", "--retry-errors"]) == ENDED
    named = calls.named["resume"]
    assert named["changes"] == BatchChanges(concurrency=None, budget_usd=None, stops_early=False)
    assert named["retry"] == RetrySelection(errors=True)


def imported(**changes: Any) -> Any:
    usual = {"run_id": "", "added": 0, "session_ids": ["s"], "documents": 0, "unreadable": []}
    usual |= {"unreadable_count": 0, "passed_over": [], "passed_over_count": 0}
    return SimpleNamespace(**usual | changes)


def test_log_groups_are_imported_with_the_client_and_query_of_the_options(folder: Path, calls: Calls) -> None:
    calls.replace(import_export, "logs_client", "client")
    calls.replace(import_export, "import_log_groups", imported())
    words = ["import", "cloudwatch", "--log-group", "a", "--log-group", "b", "--service", "s", "--run", "r"]
    words += ["--session-id", "i", "--start", "2024-01-31", "--end", "2024-02-01T10:00"]
    assert main([*words, "--region", "eu", "--endpoint-url", "http://h"]) == 0
    assert calls.named["logs_client"] == {"region": "eu", "endpoint_url": "http://h"}
    store, client, query, _, run = calls.of["import_log_groups"]
    assert (type(store), client, run) == (Store, "client", "r")
    assert (list(query.names), list(query.prefixes), query.service) == (["a", "b"], [], "s")
    assert list(query.session_ids) == ["i"]
    assert (query.start.isoformat(), query.end.isoformat()) == (
        "2024-01-31T00:00:00+00:00",
        "2024-02-01T10:00:00+00:00",
    )
    # A prefix alone selects groups, too.
    assert main(["import", "cloudwatch", "--log-group-prefix", "/aws"]) == 0
    assert list(calls.of["import_log_groups"][2].prefixes) == ["/aws"]


def test_files_are_imported_with_the_options(folder: Path, calls: Calls) -> None:
    calls.replace(import_export, "import_paths", imported())
    words = ["import", "otlp", "x", "y", "--service", "s", "--log-group", "g", "--run", "r"]
    assert main(words) == 0
    store, paths, kind, _ = calls.of["import_paths"]
    assert (type(store), paths, kind) == (Store, [Path("x"), Path("y")], "otlp")
    named = calls.named["import_paths"]
    assert (named["service"], named["log_group"], named["run_id"]) == ("s", "g", "r")
    assert callable(named["on_progress"])


@pytest.mark.parametrize(
    ("done", "code", "lines"),
    [
        (imported(), 0, ["1 session imported"]),
        (imported(session_ids=[]), 2, ["0 sessions imported"]),
        (imported(session_ids=[], run_id="r"), 2, ["0 sessions imported"]),
        (imported(documents=1), 0, ["1 session imported from 1 span or record"]),
        (
            imported(session_ids=["a", "b", "c"], run_id="r", added=1, documents=2),
            0,
            ["3 sessions imported from 2 spans and records into the run r (1 new, 2 replaced)"],
        ),
        (
            imported(unreadable=["p"] * 20, unreadable_count=20),
            1,
            [*["skipped p"] * 20, "1 session imported"],
        ),
        (
            imported(unreadable=["p"] * 21, unreadable_count=1234),
            1,
            [*["skipped p"] * 20, "… and 1,214 more (--json)", "1 session imported"],
        ),
        (
            imported(passed_over=[f"d/{n}" for n in range(5)], passed_over_count=5),
            0,
            ["skipped 5 other files: 0, 1, 2, 3, 4", "1 session imported"],
        ),
        (
            imported(passed_over=[f"d/{n}" for n in range(6)], passed_over_count=6),
            0,
            ["skipped 6 other files: 0, 1, 2, 3, 4, …", "1 session imported"],
        ),
    ],
)
def test_the_result_of_an_import(done: Any, code: int, lines: list[str], capsys: Any) -> None:
    assert import_export._print_result(done, as_json=False) == code
    printed = capsys.readouterr()
    assert (printed.err.splitlines(), printed.out) == (lines, "")


def test_an_export_has_the_scope_and_the_tables_of_the_options(
    folder: Path, calls: Calls, capsys: Any
) -> None:
    with Store(str(folder / "home" / "proctor.db")) as store:
        add_batch(store, "nightly-42", items()[:1])
    calls.replace(import_export, "export_tables", [Path("a.csv")])
    calls.replace(import_export, "export_sessions", [Path("b")])
    words = ["export", "--out", "t", "--run", "nightly", "--tables", " sessions ,, scores"]
    assert main([*words, "--format", "csv"]) == 0
    assert calls.of["export_tables"][1] == Scope(run_id="nightly-42", session_ids=[])
    named = calls.named["export_tables"]
    named.pop("on_progress")
    assert named == {
        "out": Path("t"),
        "format": "csv",
        "tables": ["sessions", "scores"],
        "label": "nightly-42",
    }
    assert capsys.readouterr().err == "wrote a.csv\n"
    assert main(["export", "--out", "t", "--all", "--run", "nothing"]) == 0
    assert calls.of["export_tables"][1] == Scope()
    assert (calls.named["export_tables"]["label"], calls.named["export_tables"]["tables"]) == ("export", None)
    assert main(["export", "--out", "t", "--all", "--format", "atif"]) == 0
    assert calls.named["export_sessions"] == {"out": Path("t"), "form": "atif", "label": "export"}
    assert main(["export", "--out", "t", "--all", "--format", "swe-bench"]) == 2
    assert "patches are exported of a run" in capsys.readouterr().err


def test_a_comparison_is_made_of_the_options(
    folder: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (folder / "r.csv").write_text(
        "task,model,score\n" + "".join(f"t{n},{m},{n % 2}\n" for n in range(4) for m in "ab")
    )
    (folder / "s.csv").write_text((folder / "r.csv").read_text())
    seen: list[tuple[Any, ...]] = []

    def keep(name: str) -> Callable[..., Any]:
        function = getattr(compare, name)

        def called(*arguments: Any, **named: Any) -> Any:
            seen.append((name, named))
            return function(*arguments, **named)

        return called

    for name in ("groups_by", "groups_of", "compare_groups"):
        monkeypatch.setattr(compare, name, keep(name))
    words = ["compare", "r.csv", "--by", "model", "--against", "b", "--pair", "task", "--metric", "success"]
    assert main([*words, "--mixed"]) == 0
    assert seen == [
        ("groups_by", {"pair": "task", "against": "b"}),
        ("compare_groups", {"metrics": ["success"], "gates": [], "mixed": True}),
    ]
    assert "Baseline: b" in capsys.readouterr().err
    seen.clear()
    assert main(["compare", "r.csv", "s.csv", "--pair", "task"]) == 0
    assert seen == [
        ("groups_of", {"pair": "task"}),
        ("compare_groups", {"metrics": (), "gates": [], "mixed": False}),
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a", "b", "--by", "model"], "--by compares parts of one run"),
        (["a"], "there is nothing to compare with"),
        (["a", "b", "--against", "x"], "--against names a level of --by"),
        (["a", "b", "--format", "junit"], "a JUnit file holds the verdicts of gates"),
        (["a", "b", "--format", "x"], "there is no format x"),
    ],
)
def test_a_comparison_of_options_that_do_not_fit_is_refused(
    words: list[str], problem: str, folder: Path, capsys: Any
) -> None:
    assert main(["compare", *words]) == 2
    assert capsys.readouterr().err.startswith(f"proctor: {problem}\n")
