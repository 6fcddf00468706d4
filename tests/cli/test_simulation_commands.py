"""`proctor experiment`, `scenario`, `simulate` and `sessions`: arguments of the library, printed figures."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from filled import add_batch, filled_store, items
from proctor.batch import lifecycle, session_branch
from proctor.batch.session_branch import SessionBranch
from proctor.cli import run as run_commands
from proctor.cli import scenario, sessions, simulate
from proctor.cli.main import main
from proctor.cli.run import CostAndTime, OutputOptions, print_preview
from proctor.context import EngineOptions
from proctor.item import Item
from proctor.store import RetrySelection, Store
from proctor.workspace.merge_queue import MergeRequest

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDED = 7


class Calls(dict[str, Any]):
    """Replaces functions; the arguments of the last call of each, those by name last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch

    def replace(self, owner: Any, **values: Any) -> None:
        for name, value in values.items():
            self._monkeypatch.setattr(owner, name, self._replacement(name, value))

    def _replacement(self, name: str, value: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            self[name] = (*arguments, named)
            return value

        return called


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def test_an_experiment_is_started_with_its_options(folder: Path, calls: Calls) -> None:
    config = EXAMPLES / "experiments" / "harbour-fee.yaml"
    calls.replace(lifecycle, start="started")
    calls.replace(scenario, run_command=ENDED)
    words = ["experiment", str(config), "--max-parallel", "3", "--budget", "4", "--workers", "2", "--jsonl"]
    assert main([*words, "--human", "web", "--ray-address", "there"]) == ENDED
    job, plan, ctx, named = calls["start"]
    assert (job, named["workers"]) == (scenario.JOB, 2)
    assert (plan.experiment.max_parallel, plan.experiment.budget_usd) == (3, 4.0)
    assert ctx.engine == EngineOptions("local", "there")
    output = OutputOptions(as_jsonl=True)
    assert calls["run_command"] == (ctx, "started", output, {"present": scenario.present})
    assert named["observer"]._output == output


@pytest.mark.parametrize(("words", "failures"), [([], False), (["--retry-failed"], True)])
def test_an_experiment_is_resumed_with_its_errors(
    words: list[str], failures: bool, folder: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EXAMPLES / "experiments" / "harbour-fee.yaml"
    calls.replace(lifecycle, resume="resumed")
    calls.replace(scenario, run_command=ENDED)
    monkeypatch.setattr(type(scenario.JOB), "earlier", lambda self, plan, ctx: "earlier-run")
    assert main(["experiment", str(config), "--resume", "--workers", "2", "--json", *words]) == ENDED
    job, run_id, ctx, named = calls["resume"]
    assert (job, run_id, named["workers"]) == (scenario.JOB, "earlier-run", 2)
    assert named["retry"] == RetrySelection(errors=True, failures=failures)
    assert named["plan"].experiment.name == "Patience at the harbour"
    assert calls["run_command"][:3] == (ctx, "resumed", OutputOptions(as_json=True))


def test_the_folder_of_an_unknown_experiment_is_continued(calls: Calls) -> None:
    calls.replace(scenario, _start=5)
    plan: Any = SimpleNamespace(continuing_folder=lambda: "continued")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(scenario.JOB), "earlier", lambda self, plan, ctx: None)
        output = OutputOptions()
        assert scenario._resume(plan, "ctx", output, workers=3) == 5  # type: ignore[arg-type]
    assert calls["_start"] == ("continued", "ctx", output, {"workers": 3})


def test_a_dry_run_shows_what_resuming_would_add(
    folder: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = EXAMPLES / "experiments" / "harbour-fee.yaml"
    with Store(str(folder / "home" / "proctor.db")) as store:
        add_batch(store, "earlier-run", items()[:1])
    extension = SimpleNamespace(
        added=1,
        new=[Item(runner="scenario", prompt="x", settings={"label": "var-009-run-001"})],
        reasons={"model": 1},
        reasons_text=lambda noun: f"why: {noun}",
        done=2,
        dropped=0,
        retained=0,
    )
    calls.replace(lifecycle, preview=SimpleNamespace(remarks=["a remark"], extension=extension))
    calls.replace(scenario, predict_cost_and_time=CostAndTime(["about 3 s"], {}))
    job = type(scenario.JOB)
    monkeypatch.setattr(job, "earlier", lambda self, plan, ctx: "earlier-run")
    numbered: list[Any] = []

    def for_run(self: Any, row: Any, ctx: Any) -> Any:
        numbered.append(row["runId"])
        return self

    monkeypatch.setattr(scenario.ScenarioPlan, "for_run", for_run)
    assert main(["experiment", str(config), "--dry-run", "--resume"]) == 0
    assert calls["preview"][2] == {"run_id": "earlier-run"} and numbered == ["earlier-run"]
    assert calls["predict_cost_and_time"][0] == "scenario"
    assert calls["predict_cost_and_time"][3] == {"run_id": "earlier-run"}
    noun = scenario.JOB.noun
    assert capsys.readouterr().err.splitlines()[:5] == [
        "note: a remark",
        f"--resume would add 1 new {noun}: var-009-run-001",
        f"  why: {noun}",
        f"  done already: 2 {noun}s",
        "about 3 s",
    ]
    assert main(["experiment", str(config), "--dry-run"]) == 0
    assert calls["preview"][2] == {} and calls["predict_cost_and_time"][3] == {"run_id": ""}
    assert "--resume would add" not in capsys.readouterr().err


def test_a_scenario_is_run_with_its_options(folder: Path, calls: Calls) -> None:
    harbour = EXAMPLES / "scenarios" / "harbour-fee"
    calls.replace(lifecycle, start="started")
    calls.replace(scenario, run_command=ENDED)
    words = ["scenario", "run", str(harbour), "--runs", "3", "--seed", "5", "--max-turns", "2"]
    words += ["--max-parallel", "2", "--workers", "4", "--budget", "1", "--timeout", "9", "--output", "out"]
    assert main([*words, "--ray-address", "there", "--json"]) == ENDED
    _, plan, ctx, named = calls["start"]
    read = plan.experiment
    assert (read.runs_per_variation, read.max_parallel, read.budget_usd) == (3, 2, 1.0)
    assert (read.output, named["workers"]) == (folder / "out", 4)
    assert [dict(each.changes) for each in read.variations] == [{"turns": 2}]
    assert ctx.engine == EngineOptions("local", "there")
    assert calls["run_command"][1:3] == ("started", OutputOptions(as_json=True))
    # Without an output folder: one below `runs` with the time in its name.
    assert main(["scenario", "run", str(harbour)]) == ENDED
    read = calls["start"][1].experiment
    assert read.output.parent == folder / "runs" and read.output.name.startswith("harbour-fee-20")
    assert (read.runs_per_variation, read.max_parallel, read.budget_usd) == (1, 1, None)


def test_a_scenario_is_resumed_by_its_folder(folder: Path, calls: Calls) -> None:
    config = (EXAMPLES / "experiments" / "harbour-fee.yaml").read_text()
    (folder / "out").mkdir()
    (folder / "out" / scenario.CONFIG).write_text(
        config.replace("../scenarios", str(EXAMPLES / "scenarios")).replace(
            "examples/scenarios", str(EXAMPLES / "scenarios")
        )
    )
    calls.replace(scenario, _resume=5)
    words = ["scenario", "run", "anything", "--resume", "--output", "out", "--workers", "2"]
    code = main(words)
    plan, ctx, output, named = calls["_resume"]
    assert code == 5 and isinstance(plan, scenario.ScenarioPlan)
    assert ctx.engine == EngineOptions("local", "auto")
    assert (output, named) == (OutputOptions(), {"workers": 2})


@pytest.mark.parametrize(("values", "text"), [([5, 5], "5"), ([1200, 1300], "1,200 to 1,300")])
def test_a_range_of_figures(values: list[int], text: str) -> None:
    assert scenario._range(values) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [(None, "price unknown"), ((0.5, 0.5), "$0.50"), ((0.5, 1.5), "$0.50 to $1.50"), ((0.0, 0.0), "$0.00")],
)
def test_a_range_of_costs(cost: Any, text: str) -> None:
    assert scenario._cost({"cost_usd": cost}) == text


@pytest.mark.parametrize(
    ("mean", "low", "high", "usd", "text"),
    [
        (None, None, None, False, "price unknown"),
        (1234.6, None, None, False, "1,235 (no CI)"),
        (1234.4, 1000.0, 2000.0, False, "1,234 (1,000 to 2,000)"),
        (0.5, 0.25, 1.0, True, "$0.50 ($0.25 to $1.00)"),
        (0.0, 0.0, 0.0, True, "$0.00 ($0.00 to $0.00)"),
    ],
)
def test_an_expected_figure(mean: Any, low: Any, high: Any, usd: bool, text: str) -> None:
    assert scenario._expected({"mean": mean, "low": low, "high": high}, usd=usd) == text


def test_the_lines_of_an_analysis() -> None:
    pair = {"descriptions": ("a", "b"), "value": 0.5, "p_corrected": 0.04, "test": "t-test"}
    statistics = {"n": 4, "mean": 2.0, "low": 1.0, "high": 3.0, "note": ""}
    patterns: dict[str, Any] = {
        "successful_runs": 3,
        "total_runs": 4,
        "success_rate": 0.75,
        "success_rate_interval": (0.3, 0.95),
        "errors": 0,
        "stand_ins": [],
        "success_rate_if_errors_failed": 0.6,
        "success_factors": [{"statement": f"s{number}"} for number in range(19)],
        "failure_modes": [{"statement": "f"}],
        "metric_effects": [{"statement": "m"}],
        "notes": ["n"],
    }
    document = {
        "patterns": patterns,
        "metrics_analysis": {"fee": statistics, "none": {**statistics, "n": 0, "note": "no values"}},
        "comparisons": {"fee": [pair] * 11},
    }
    lines = scenario._analysis_lines(document)
    assert lines[0] == "3 of 4 runs completed: 75% (95% CI 30% to 95%)"
    assert lines[1] == "fee: 2 (95% CI 1 to 3, n = 4)"
    assert lines[2:12] == ["  a − b: 0.5 (p = 0.040, corrected; t-test)"] * 10
    assert lines[12] == "none: no values"
    assert lines[13:] == [*(f"s{number}" for number in range(19)), "f", "n"]
    pair["p_corrected"] = 1e-9
    patterns |= {"errors": 1, "stand_ins": ["scripted"]}
    lines = scenario._analysis_lines(document)
    assert lines[1:3] == [
        "1 excluded: ended in an infrastructure error; counted as failures, the success rate is 60%.",
        "Mock models took part: these results say nothing about real models.",
    ]
    assert "(p < 0.001" in lines[4] or "(p <0.001" in lines[4]


@pytest.mark.parametrize(
    ("new", "dropped", "retained", "lines"),
    [
        (
            0,
            0,
            0,
            ["--resume would add no run: all of them are in the earlier run.", "  done already: 1 run"],
        ),
        (1, 0, 0, ["--resume would add 1 new run: i0", "  why", "  done already: 1 run"]),
        (
            0,
            1,
            0,
            [
                "--resume would add no run: all of them are in the earlier run.",
                "  done already: 1 run",
                "  no longer in the plan: 1 would be dropped, 0 with results kept",
            ],
        ),
        (
            0,
            0,
            2,
            [
                "--resume would add no run: all of them are in the earlier run.",
                "  done already: 1 run",
                "  no longer in the plan: 0 would be dropped, 2 with results kept",
            ],
        ),
    ],
)
def test_what_resuming_would_change(
    new: int, dropped: int, retained: int, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    extension: Any = SimpleNamespace(
        added=new, new=[f"i{n}" for n in range(new)], done=1, dropped=dropped, retained=retained
    )
    extension.reasons_text = lambda noun: "why"
    print_preview(extension, "run", str)  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(("new", "more"), [(20, ""), (21, " and 1 more (--json)")])
def test_twenty_new_items_are_listed(new: int, more: str, capsys: pytest.CaptureFixture[str]) -> None:
    extension: Any = SimpleNamespace(
        added=new, new=[f"i{n}" for n in range(new)], done=1, dropped=0, retained=0
    )
    extension.reasons_text = lambda noun: "why"
    print_preview(extension, "run", str)  # type: ignore[arg-type]
    named = ", ".join(f"i{number}" for number in range(20))
    assert capsys.readouterr().err.splitlines()[0] == f"--resume would add {new} new runs: {named}{more}"


# --- Dialogues ---


def test_a_simulation_is_started_or_resumed_with_its_options(folder: Path, calls: Calls) -> None:
    calls.replace(lifecycle, start="started", resume="resumed", find_earlier="earlier-run")
    calls.replace(simulate, run_command=ENDED)
    words = [
        "simulate",
        "--clients",
        "scripted",
        "--therapists",
        "eliza",
        "--num-runs",
        "2",
        "--max-turns",
        "3",
    ]
    words += ["--workers", "2", "--ray-address", "there", "--seed", "4", "--output-dir", "talks"]
    assert main([*words, "--json"]) == ENDED
    job, plan, ctx, named = calls["start"]
    assert (job, named["workers"]) == (simulate.JOB, 2) and ctx.engine == EngineOptions("local", "there")
    config = plan.simulation.config
    assert (config["num_runs"], config["max_turns"], config["seed"]) == (2, 3, 4)
    assert calls["run_command"] == (
        ctx,
        "started",
        OutputOptions(as_json=True),
        {"present": simulate.present},
    )
    assert main([*words, "--resume", "--retry-errors"]) == ENDED
    assert calls["find_earlier"][0] is simulate.JOB
    job, run_id, ctx, named = calls["resume"]
    assert (run_id, named["workers"], named["retry"]) == ("earlier-run", 2, RetrySelection(errors=True))
    assert named["plan"] is calls["find_earlier"][1]
    assert calls["run_command"][1] == "resumed"


def test_a_dry_run_of_a_simulation_predicts_what_is_left(folder: Path, calls: Calls) -> None:
    calls.replace(lifecycle, preview="preview", find_earlier="earlier-run")
    calls.replace(simulate, predict_cost_and_time="forecast", _dry_run=5)
    words = ["simulate", "--clients", "scripted", "--therapists", "eliza", "--dry-run", "--retry-failed"]
    for more, run_id in (([], ""), (["--resume"], "earlier-run")):
        assert main([*words, *more]) == 5
        plan, ctx, named = calls["preview"]
        assert named == {"run_id": run_id}
        retry = RetrySelection(failures=True)
        assert calls["predict_cost_and_time"] == ("dialogue", plan, ctx, {"run_id": run_id, "retry": retry})
        assert calls["_dry_run"] == (plan, "preview", "forecast", {"as_json": False})


def test_the_outcome_of_a_simulation(capsys: pytest.CaptureFixture[str], calls: Calls) -> None:
    calls.replace(simulate, print_summary=None, print_document=None)
    combinations = {
        "a × b": {"successful": 2, "num_runs": 3, "avg_turns": 4.25},
        "c × d": {"successful": 0, "num_runs": 1, "avg_turns": None},
    }
    summary = {"summary": {"by_combination": combinations}, "outputDir": "out"}
    ctx: Any = SimpleNamespace(store="store")
    finished: Any = SimpleNamespace(summary=summary)
    for output in (OutputOptions(as_json=True), OutputOptions(as_jsonl=True)):
        simulate.present(ctx, finished, output)
        assert capsys.readouterr().err == "" and calls["print_document"] == (summary, output, {})
    simulate.present(ctx, finished, OutputOptions())
    assert capsys.readouterr().err.splitlines() == [
        "  a × b: 2 of 3 successful, 4.2 turns on average",
        "  c × d: 0 of 1 successful",
        "files: out",
    ]
    assert calls["print_summary"] == (summary, {"store": "store"})


@pytest.mark.parametrize("number", [0, 1, 10, 12])
def test_ten_unreadable_files_are_named_and_all_counted(
    number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped: Any = SimpleNamespace(files={f"f{each}": "no JSON" for each in range(number)})
    simulate.print_skipped(skipped)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:-1] == [f"skipped f{each}: no JSON" for each in range(min(number, 10))]
    if number:
        files = "1 file" if number == 1 else f"{number} files"
        assert lines[-1] == f"{files} in the folder could not be read and were skipped."


def test_statistics_of_a_column() -> None:
    rows = [{"num_turns": 2, "session_id": "a"}, {"num_turns": 6, "session_id": "b"}, {"num_turns": None}]
    figures = {each["column"]: each for each in simulate._statistics(rows)}
    turns = figures["num_turns"]
    assert (turns["mean"], turns["min"], turns["max"], turns["n"]) == (4.0, 2, 6, 2)
    # The sample's standard deviation of 2 and 6: the square root of 8.
    assert turns["std"] == pytest.approx(8**0.5)
    (single,) = simulate._statistics(rows[:1])
    assert single["std"] is None
    cells = {"column": "c", "n": 2, "mean": 4.0, "std": None, "min": 2, "max": 6, "low": None, "high": None}
    assert simulate._cells(cells) == ("c", "2", "4", "–", "2", "6", "–")
    assert simulate._cells(cells | {"low": 1.0, "high": 7.0})[-1] == "1 to 7"


# --- Sessions ---


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        (None, "A session\n\nname"),
        ("", "A session\n\nname"),
        ("  Fix it\nplease", "Fix it\n\nname"),
        ("x" * 73, "x" * 72 + "\n\nname"),
    ],
)
def test_the_default_message_of_a_squash(prompt: str | None, title: str) -> None:
    row: Any = {"name": "name", "branch": "b", "baseBranch": "main", "id": "s"}
    item: Any = None if prompt is None else {"prompt": prompt}
    match = SessionBranch(row, item, "source")  # type: ignore[arg-type]
    assert (match.title, match.branch, match.base_branch) == (title, "b", "main")


@pytest.fixture
def found(folder: Path, calls: Calls) -> Any:
    row = {"name": "name", "branch": "work", "baseBranch": "main", "id": "s1"}
    item = {"prompt": "Fix it", "details": "{}", "settings": "{}"}
    source = SimpleNamespace(root=folder / "repo")
    match = SessionBranch(row, item, source)  # type: ignore[arg-type]
    calls.replace(sessions, _find=match)
    return match


def test_the_changes_and_commits_of_a_session(
    found: Any, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.replace(sessions.merge_queue, diff="the diff\n", log="the log\n", squash="0123456789abcdef")
    for words, flags in (([], ()), (["--stat"], ("--stat",)), (["--name-only"], ("--name-only",))):
        assert main(["sessions", "diff", "s1", *words]) == 0
        assert calls["diff"] == (found.source, "work", "main", *flags, {})
        assert capsys.readouterr().out == "the diff\n"
    assert calls["_find"][1] == "s1"
    assert main(["sessions", "log", "s1"]) == 0
    assert calls["log"] == (found.source, "work", "main", {}) and capsys.readouterr().out == "the log\n"
    for words, message in (([], "Fix it\n\nname"), (["-m", "mine"], "mine")):
        assert main(["sessions", "squash", "s1", *words]) == 0
        assert calls["squash"] == (found.source, "work", "main", message, {})
        assert capsys.readouterr().err == "work is now one commit, 0123456789ab\n"


@pytest.mark.parametrize(("words", "base"), [([], "main"), (["--onto", "next"], "next")])
def test_a_session_is_rebased(
    words: list[str], base: str, found: Any, calls: Calls, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for conflicts, code, line in (
        ((), 0, f"work is rebased onto {base}, at 0123456789ab"),
        (("a", "b"), 1, f"work conflicts with {base} in a, b; nothing was changed"),
    ):

        async def rebase(*arguments: Any, conflicts: Any = conflicts) -> Any:
            calls["rebase"] = arguments
            return "0123456789abcdef", conflicts

        sessions.merge_queue.rebase, original = rebase, sessions.merge_queue.rebase  # type: ignore[assignment]
        try:
            assert main(["sessions", "rebase", "s1", *words]) == code
        finally:
            sessions.merge_queue.rebase = original  # type: ignore[assignment]
        assert calls["rebase"] == (found.source, "work", base, folder / "home")
        assert capsys.readouterr().err == f"{line}\n"


def test_a_merge_reruns_the_check_with_the_settings_of_the_item() -> None:
    request = MergeRequest(repo=Path("r"), branch="work", base_branch="main", message="m")
    item: Any = {
        "details": '{"scriptCommand": "make", "env": {"A": "${TOKEN}"}}',
        "settings": '{"timeoutSec": 9, "sandbox": "none"}',
    }
    row: Any = {"id": "s1"}
    settings: Any = SimpleNamespace(user_environment={"PATH": "p", "TOKEN": "t"})
    match = SessionBranch(row, item, None)  # type: ignore[arg-type]
    checked = session_branch._with_check(request, settings, match)
    assert (checked.check, checked.attempt, checked.time_limit, checked.sandbox) == (
        "make",
        "merge-s1",
        9,
        "none",
    )
    assert checked.environment is not None and checked.environment["PATH"] == "p"
    for other in (None, {"details": "{}", "settings": "{}"}):
        assert session_branch._with_check(request, settings, SessionBranch(row, other, None)) == request  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "code", "line"),
    [
        ({"result": "success"}, 0, "work is merged to main, 0123456789ab"),
        ({"result": "conflict", "conflict_files": ("a", "b")}, 1, "work is not merged: conflicts in a, b"),
        ({"result": "error", "error": "no check"}, 1, "work is not merged: no check"),
    ],
)
@pytest.mark.parametrize("with_check", [True, False])
def test_a_session_is_merged(
    result: dict[str, Any],
    code: int,
    line: str,
    with_check: bool,
    found: Any,
    calls: Calls,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    usual = {"conflict_files": (), "after_sha": "0123456789abcdef", "error": "", "base_branch": "main"}
    end = SimpleNamespace(**usual | result)
    saved: list[Any] = []

    async def merge(request: Any, **named: Any) -> Any:
        calls["merge"] = (request, named)
        return SimpleNamespace(merges=["one", "two"], result=end, notes=["a note"])

    monkeypatch.setattr(sessions.merge_queue, "merge", merge)
    monkeypatch.setattr(Store, "save_merge", lambda self, *arguments: saved.append(arguments[:2]))
    calls.replace(session_branch, _with_check="with check")
    assert main(["sessions", "merge", "s1", *([] if with_check else ["--no-check"])]) == code
    request, named = calls["merge"]
    plain = MergeRequest(repo=folder / "repo", branch="work", base_branch="main", message="Fix it\n\nname")
    assert request == ("with check" if with_check else plain)
    assert calls["_with_check"][0] == plain if with_check else "_with_check" not in calls
    assert named["home"] == folder / "home"
    assert saved == [("s1", "one"), ("s1", "two")]
    assert capsys.readouterr().err == f"note: a note\n{line}\n"


def test_what_is_cleaned_up_of_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with filled_store(folder / "home") as store:
        number = len(store.read.sessions(sessions.Scope(run_id="compare"), limit=1000))
        first = store.read.sessions(sessions.Scope(run_id="compare"), limit=1)[0]["id"]
    cleaned: list[Any] = []
    monkeypatch.setattr(
        sessions.merge_queue, "clean_up", lambda home, *arguments: cleaned.append(arguments) or "kept"
    )
    assert main(["sessions", "cleanup", first]) == 0
    assert cleaned == [(first,)]
    assert capsys.readouterr().err == "cleaned up 1 sessions\nnote: kept\n"
    cleaned.clear()
    assert main(["sessions", "cleanup", "--run", "comp"]) == 0
    assert len(cleaned) == number > 30 and [each[0] for each in cleaned] != []
    capsys.readouterr()
    for words in ([], [first, "--run", "compare"]):
        assert main(["sessions", "cleanup", *words]) == 2
        assert "nothing selected to clean up" in capsys.readouterr().err
    monkeypatch.setattr(sessions, "is_sure", lambda question: False)
    cleaned.clear()
    assert main(["sessions", "cleanup", first, "--branches"]) == 1 and cleaned == []
    assert main(["sessions", "cleanup", first, "--branches", "--yes"]) == 0 and cleaned == [(first,)]


def test_a_question_of_an_experiment_is_answered_at_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", iter(["one\n", "two\n", " . \n", "three\n"]))
    assert run_commands._ask_here("port\x1b", "What now?\nSay.") == "one\ntwo"
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].startswith("── you are port ") and lines[1].endswith(" " + "─" * 40)
    assert lines[2:] == [
        "What now?",
        "Say.",
        "── your answer; end it with a line that holds a single dot",
        "── waiting for the next question",
    ]


@pytest.mark.parametrize(
    ("yes", "sure", "number", "code"),
    [(True, False, 2, 0), (False, True, 2, 0), (False, False, 2, 1), (False, False, 0, 0)],
)
def test_imported_sessions_are_deleted_when_somebody_is_sure(
    yes: bool,
    sure: bool,
    number: int,
    code: int,
    folder: Path,
    calls: Calls,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = [f"s{each}" for each in range(number)]
    calls.replace(sessions, imported_sessions=chosen, delete_sessions=None, is_sure=sure)
    words = ["sessions", "delete", "a", "--log-group", "g", "--before", "2026-01-31"]
    assert main([*words, *(["--yes"] if yes else [])]) == code
    named = calls["imported_sessions"][2]
    assert (named["session_ids"], named["log_group"], str(named["before"])[:10]) == (["a"], "g", "2026-01-31")
    assert ("is_sure" in calls) is (not yes and number > 0)
    assert ("delete_sessions" in calls) is (code == 0)
    if code == 0:
        assert calls["delete_sessions"][1] == chosen
        assert capsys.readouterr().err == f"deleted {number} imported sessions\n"
