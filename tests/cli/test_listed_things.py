"""What commands list and show: agents, models, roles, sessions, questions, rankings; tools of assistants."""

import asyncio
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.cli import (
    calibrate,
    compare,
    evaluate,
    evaluators,
    inventory,
    mcp,
    runs,
    scenario,
    sessions,
    setup,
    simulate,
    tasks,
)
from proctor.cli import store as store_commands
from proctor.cli.main import main
from proctor.errors import PlanError, UsageError
from proctor.tasks.history import CommitCandidate, CommitValidation

Printed = pytest.CaptureFixture[str]


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- Agents, models and roles ---


def test_agents_are_a_table_or_a_document(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    ready = SimpleNamespace(ready=True, version="1.2", problem="", remedy="unused")
    missing = SimpleNamespace(ready=False, version="", problem="not found", remedy="install b")
    listed = [
        SimpleNamespace(name="a", availability=ready, stand_in=True, document=lambda: {"name": "a"}),
        SimpleNamespace(name="b", availability=missing, stand_in=False, document=lambda: {"name": "b"}),
    ]
    monkeypatch.setattr(inventory, "list_agents", lambda environment: listed)
    assert main(["agents", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"agents": [{"name": "a"}, {"name": "b"}]}
    assert main(["agents"]) == 0
    assert words(capsys.readouterr().out) == [
        ["AGENT", "READY", "VERSION", "REMARK", "REMEDY"],
        ["a", "yes", "1.2", "mock", "agent,", "for", "tests", "and", "demos"],
        ["b", "no", "not", "found", "install", "b"],
    ]


def test_providers_that_do_not_list_their_models_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    asked: list[Any] = []

    def listing(settings: Any, folders: Any, now: Any, *, search: str) -> Any:
        asked.append((list(folders), search))
        return SimpleNamespace(models=[], silent={"acme": "no answer"}, document=lambda: {"models": []})

    monkeypatch.setattr(inventory, "list_models", listing)
    assert main(["models", "--search", "llama", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"models": []}
    assert printed.err == "note: acme did not list its models: no answer\n"
    assert asked == [([folder], "llama")]


def test_roles_are_a_table_and_a_broken_one_hides_no_other(folder: Path, capsys: Printed) -> None:
    broken = folder / "roles" / "broken"
    broken.mkdir(parents=True)
    (broken / "role.yaml").write_text("plays: [nobody]\n")
    assert main(["roles"]) == 0
    heading, *lines = words(capsys.readouterr().out)
    assert heading == ["ROLE", "PLAYS", "PROFILES", "LANGUAGES", "DESCRIPTION"]
    by_name = {line[0]: line for line in lines}
    assert by_name["broken"][1:6] == ["–", "–", "–", "cannot", "be"]
    assert by_name["eeyore"][1] == "client" and "MI" in by_name
    assert main(["roles", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["roles"]}
    assert set(listed["broken"]) == {"name", "error"} and listed["broken"]["error"].startswith(str(broken))
    assert listed["eeyore"]["builtIn"] is True and listed["eeyore"]["plays"] == ["client"]


def test_a_role_that_cannot_be_read_has_one_line() -> None:
    def find(name: str) -> Any:
        raise PlanError([])

    there: Any = SimpleNamespace(find=find)
    assert "\n" not in str(inventory._read(there, "x"))
    assert inventory._role_cells("x", "why") == ("x", "–", "–", "–", "cannot be read: why")


# --- Sessions ---


def test_sessions_to_delete_must_be_selected(folder: Path, capsys: Printed) -> None:
    assert main(["sessions", "delete", "--yes"]) == 2
    assert capsys.readouterr().err == (
        "proctor: no sessions selected\nPass session IDs, --log-group NAME, or --before DATE.\n"
    )
    assert main(["sessions", "delete", "--log-group", "g", "--json"]) == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out), printed.err) == ({"sessions": []}, "deleted 0 imported sessions\n")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_patch_is_written_unchanged_unless_it_is_read_at_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    sessions._print_text("a\x07b\n", {"diff": "x"}, as_json=False)
    text = capsys.readouterr().out
    assert ("\x07" in text) is not is_terminal and text.startswith("a")
    sessions._print_text("a", {"diff": "x"}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"diff": "x"}


def test_a_session_is_printed_with_its_scores(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    parts = {
        "messages": [{"position": 2, "text": "second"}],
        "tool_calls": [{"position": 1, "text": "first"}],
        "iterations": [{"text": "step"}],
        "scores": [
            {"evaluator": "tone", "label": "kind", "value": None, "explanation": "It is."},
            {"evaluator": "help", "label": "x", "value": 0.5, "explanation": ""},
        ],
    }
    store: Any = SimpleNamespace(read=SimpleNamespace(parts_of_session=lambda _: parts))
    row: Any = {"id": "s", "notes": "[]"}
    monkeypatch.setattr(runs, "_print_head", lambda row: print(f"head of {row['id']}"))
    monkeypatch.setattr(runs, "_message", lambda part, full: f"message {part['text']} {full}")
    monkeypatch.setattr(runs, "_tool", lambda part, full: f"tool {part['text']} {full}")
    monkeypatch.setattr(runs, "_print_step", lambda step, full: print(f"{step['text']} {full}"))
    runs.show_session(store, row, True, False)
    assert capsys.readouterr().out == (
        "head of s\n\ntool first True\n\nmessage second True\nstep True\n"
        "score tone: kind  It is.\nscore help: 0.5  \n"
    )
    runs.show_session(store, row, False, True)
    assert json.loads(capsys.readouterr().out) == {"id": "s", **parts, "notes": []}


def test_a_deleted_run_says_what_it_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    deletion = SimpleNamespace(branches=2, problems=["branch x is checked out"])
    read = SimpleNamespace(
        batch=lambda *_: {"runId": "r", "status": "completed"}, totals=lambda _: {"items": 3}
    )
    settings = SimpleNamespace(user_environment={})
    ctx = SimpleNamespace(store=SimpleNamespace(read=read), now=lambda: None, home=folder, settings=settings)
    called: list[Any] = []
    monkeypatch.setattr(runs, "terminal_context", lambda options: nullcontext(ctx))
    monkeypatch.setattr(runs, "delete_run", lambda *given, **named: called.append(named) or deletion)
    assert main(["delete", "r", "--yes"]) == 0
    assert capsys.readouterr().err == (
        "r deleted; 2 session branches removed\nnote: branch x is checked out\n"
    )
    assert main(["delete", "r", "--yes", "--keep-branches", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "runId": "r",
        "status": "deleted",
        "branches": 2,
        "kept": ["branch x is checked out"],
    }
    assert called == [{"branches": True}, {"branches": False}]


# --- Scenarios ---


def test_open_questions_are_printed_whole(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    rows = [{"runId": "r1", "id": "q1", "actor": "port", "prompt": "What now?\nSay it."}]
    asked: list[str] = []
    store = SimpleNamespace(
        read=SimpleNamespace(batch=lambda run, now: {"runId": f"{run}-whole"}),
        open_questions=lambda run_id: asked.append(run_id) or rows,
    )
    ctx = SimpleNamespace(store=store, now=lambda: None)
    monkeypatch.setattr(scenario, "terminal_context", lambda options: nullcontext(ctx))
    assert main(["scenario", "questions", "r1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "── r1 q1: you are port\nWhat now?\nSay it.\n"
    assert printed.err == "1 open question. Answer with: proctor scenario answer RUN QUESTION TEXT\n"
    assert main(["scenario", "questions", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows
    assert asked == ["r1-whole", ""]


def estimate_of(monkeypatch: pytest.MonkeyPatch, expected: Any, cost: Any = (0.5, 1.0)) -> None:
    rows = [
        {"description": "a", "calls": [1, 2], "tokens": [1000, 2000], "cost_usd": cost},
        {"description": "b", "calls": [3, 3], "tokens": [4, 4], "cost_usd": cost},
    ]
    read = SimpleNamespace(
        loaded=SimpleNamespace(scenario=SimpleNamespace(name="Fees")), runs_per_variation=3, run_count=6
    )

    async def estimates(*_: object) -> Any:
        return rows

    ctx = SimpleNamespace(store=SimpleNamespace(read="read"), models=lambda options: "models")
    monkeypatch.setattr(scenario, "terminal_context", lambda options: nullcontext(ctx))
    monkeypatch.setattr(scenario, "as_experiment", lambda target: read)
    monkeypatch.setattr(
        scenario, "ScenarioPlan", lambda experiment: SimpleNamespace(model_options=lambda: None)
    )
    monkeypatch.setattr(scenario, "experience", lambda *_: "known")
    monkeypatch.setattr(scenario, "earlier_runs", lambda *_: [])
    monkeypatch.setattr(scenario, "as_document", lambda known: {"is": known})
    monkeypatch.setattr(scenario, "estimates", estimates)
    monkeypatch.setattr(scenario, "summed_expectations", lambda rows: expected)


def test_an_estimate_is_of_all_runs(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    estimate_of(monkeypatch, None)
    assert main(["scenario", "estimate", "x"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "6 runs: 12 to 15 calls, 3,012 to 6,012 tokens, $3.00 to $6.00 "
        "(from prompt sizes and answers of typical length)",
        "The store has no earlier run of this scenario to estimate from.",
    ]
    assert words("\n".join(lines[:3])) == [
        ["VARIATION", "CALLS", "PER", "RUN", "TOKENS", "PER", "RUN", "COST", "PER", "RUN"],
        ["a", "1", "to", "2", "1,000", "to", "2,000", "$0.50", "to", "$1.00"],
        ["b", "3", "4", "$0.50", "to", "$1.00"],
    ]
    assert main(["scenario", "estimate", "x", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["scenario"], document["earlier_runs"]) == ("Fees", {"is": "known"})
    assert document["total"] == {
        "runs": 6,
        "calls": [12, 15],
        "tokens": [3012, 6012],
        "cost_usd": [3.0, 6.0],
        "from_earlier_runs": None,
    }


def test_an_estimate_from_earlier_runs_has_its_notes(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    figure = {"mean": 1234.0, "low": 1000.0, "high": 2000.0}
    expected = {"runs": 2, "calls": figure, "tokens": figure, "cost_usd": figure, "notes": ["a note"]}
    estimate_of(monkeypatch, expected)
    assert main(["scenario", "estimate", "x"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "From 2 earlier runs, with the models and turns they had:",
        "  1,234 (1,000 to 2,000) calls, 1,234 (1,000 to 2,000) tokens, "
        "$1,234.00 ($1,000.00 to $2,000.00) (95% CI)",
        "  a note",
    ]


def test_a_valid_scenario_is_counted(folder: Path, capsys: Printed) -> None:
    (folder / "s" / "actors").mkdir(parents=True)
    (folder / "s" / "scenario.yaml").write_text(
        "name: Harbor\ninitial_world_state: Spring\nturns: 2\nworld_state_model: scripted/w\nodd_key: 1\n"
    )
    (folder / "s" / "actors" / "port.yaml").write_text("name: P\ncontrol: human\n")
    assert main(["scenario", "validate", "s", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == {
        "scenario": "Harbor",
        "turns": 2,
        "actors": {"port": "human"},
        "metrics": [],
        "events": [],
        "checks": [],
        "prompts": [],
        "models": ["scripted/w"],
        "remarks": ["s/scenario.yaml:5:1: a scenario has no `odd_key`; it is not used."],
        "valid": True,
    }
    assert printed.err == (
        "note: s/scenario.yaml:5:1: a scenario has no `odd_key`; it is not used.\n"
        "Harbor is valid: 1 actor, 2 turns, 0 metrics, 0 events.\n"
    )


# --- Evaluations ---


def test_the_request_of_an_extension_is_the_earlier_one_with_the_flags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Pending:
        folder: str = "none"
        asked: Any = None

    monkeypatch.setattr(
        evaluate, "read_request", lambda plan, flags, store: Pending(asked=(plan, flags, store))
    )
    monkeypatch.setattr(
        evaluate.JOB, "restore", lambda batch, ctx: SimpleNamespace(folder=f"of {batch}"), raising=False
    )
    store = SimpleNamespace(
        evaluations=SimpleNamespace(metadata=lambda name: [name]),
        read=SimpleNamespace(batch=lambda name, now: f"{name} {now}"),
    )
    ctx: Any = SimpleNamespace(store=store, now=lambda: "now")
    earlier: Any = SimpleNamespace(id="e", document={"votes": 1, "judge": "a"}, evaluators=("x", "y"))
    flags = evaluate.Flags(top={"votes": 3, "judge": None}, evaluators=["y", "z"])
    found: Any = evaluate._extension(earlier, None, flags, ctx)
    plan, extended, _ = found.asked
    assert (plan, found.folder, extended.evaluators) == (None, "of e now", ["x", "y", "z"])
    assert extended.top == {
        "votes": 3,
        "judge": "a",
        "evaluationMetadata": {"sessionMetadata": ["e"]},
    }
    path = Path("plan.yaml")
    assert evaluate._extension(earlier, path, flags, ctx).asked == (path, flags, store)  # type: ignore[attr-defined]


def test_the_options_of_an_evaluation_are_its_flags(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def read_request(plan: Any, flags: Any, store: Any) -> Any:
        seen.append((plan, flags))
        raise UsageError("enough")

    monkeypatch.setattr(evaluate, "read_request", read_request)
    start = ["evaluate", "start"]
    assert main([*start, "--name", "n"]) == 2
    more = "--evaluator e --log-group g --log-group-prefix p --service s --session-id i --run r --job j"
    more += " --role o --model m --files f --kind otlp --start 2026-01-01 --end 2026-01-02"
    more += " --ground-truth t.yaml --max-sessions 3 --judge a/b --votes 5 --budget 2 --concurrency 4"
    more += " --timeout 7 --retries 0 --client-token c --description d"
    assert main([*start, *more.split()]) == 2
    (plan, empty), (_, full) = seen
    assert plan is None and {name: value for name, value in empty.top.items() if value is not None} == {
        "batchEvaluationName": "n"
    }
    assert empty == evaluate.Flags(top=empty.top)
    assert {name: value for name, value in full.top.items() if value is not None} == {
        "maxSessions": 3,
        "judge": "a/b",
        "votes": 5,
        "budget": 2.0,
        "concurrency": 4,
        "timeoutSec": 7.0,
        "retries": 0,
        "clientToken": "c",
        "description": "d",
    }
    assert full == evaluate.Flags(
        top=full.top,
        evaluators=["e"],
        log_groups=["g"],
        log_group_prefixes=["p"],
        services=["s"],
        session_ids=["i"],
        runs=["r"],
        jobs=["j"],
        roles=["o"],
        models=["m"],
        files=["f"],
        kind="otlp",
        start="2026-01-01",
        end="2026-01-02",
        ground_truth=[Path("t.yaml")],
    )


def test_an_evaluator_that_fails_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    class Workbench:
        def __init__(self, ctx: Any, *, judge: str, votes: int) -> None:
            assert (judge, votes) == ("a/b", 2)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing to close."""

        def evaluator(self, name: str) -> Any:
            return SimpleNamespace(name=name, digest="d")

        async def judged(self, evaluator: Any, evidence: Any) -> list[Any]:
            return [UsageError("the judge is silent")]

    monkeypatch.setattr(evaluators, "session_from", lambda store, session, truth: "evidence")
    monkeypatch.setattr(evaluators, "EvaluatorWorkbench", Workbench)
    command = ["evaluators", "test", "E", "--session", "s", "--judge", "a/b", "--votes", "2"]
    assert main(command) == 2
    assert capsys.readouterr().err == "proctor: the judge is silent\n"


def test_a_workbench_closes_its_recording() -> None:
    bench = calibrate.EvaluatorWorkbench.__new__(calibrate.EvaluatorWorkbench)
    closed: list[bool] = []
    recording = SimpleNamespace(close=lambda: closed.append(True))
    bench._models = SimpleNamespace(recording=None)  # type: ignore[assignment]
    with bench:
        pass
    assert closed == []
    bench._models = SimpleNamespace(recording=recording)  # type: ignore[assignment]
    with bench as same:
        assert same is bench
    assert closed == [True]


def test_a_file_of_labels_must_be_readable(tmp_path: Path) -> None:
    file = tmp_path / "labels.csv"
    with pytest.raises(UsageError) as error:
        calibrate.label_rows(file)
    assert str(error.value).startswith(f"{file}: ")
    file.write_text("Session,label,value,rater\n s1 ,good,, Ada\ns2,,0.5,\n")
    (first, one), (second, two) = calibrate.label_rows(file)
    assert (first, one["session"], one["label"], one["value"]) == (2, "s1", "good", None)
    assert (second, two["session"], two["label"], two["value"]) == (3, "s2", "", 0.5)
    for row, problem in (
        (",good,,", "a label needs a session, and a label or a value"),
        ("s,,,", "a label needs a session, and a label or a value"),
        ("s,,many,", "`many` is no number"),
    ):
        file.write_text(f"Session,label,value,rater\n{row}\n")
        with pytest.raises(UsageError) as error:
            calibrate.label_rows(file)
        assert str(error.value) == f"{file}:2: {problem}"


# --- Comparisons ---


def contrast(**changes: Any) -> Any:
    usual: dict[str, Any] = {"metric": "success", "candidate": "new", "errors": (0, 0), "unpaired": 0}
    return SimpleNamespace(**usual | {"remarks": (), "difference": None} | changes)


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, []),
        ({"errors": (0, 2)}, ["0 and 2 items with errors excluded"]),
        ({"errors": (1, 0)}, ["1 and 0 items with errors excluded"]),
        ({"unpaired": 1}, ["1 unpaired task excluded"]),
        ({"unpaired": 3, "remarks": ("few", "rare")}, ["3 unpaired tasks excluded", "few", "rare"]),
        ({"difference": SimpleNamespace(note="wide", needs_words="")}, ["wide"]),
        ({"difference": SimpleNamespace(note="", needs_words="needs 9")}, ["needs 9"]),
    ],
)
def test_the_notes_of_a_comparison(changes: dict[str, Any], lines: list[str], capsys: Printed) -> None:
    compare._print_notes(contrast(**changes))
    assert capsys.readouterr().err.splitlines() == [f"note: success, new: {line}" for line in lines]


def rank(**changes: Any) -> Any:
    usual: dict[str, Any] = {"name": "a", "value": 0.5, "low": 0.25, "high": 0.75, "sem": 0.1, "note": ""}
    return SimpleNamespace(
        **usual | {"rank": 1, "rank_low": 1, "rank_high": 1, "tasks": 4, "runs": 4} | changes
    )


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "not enough data"),
        (0.25, 0.75, "25% to 75%"),
        (0.25, None, "25% to no upper limit"),
    ],
)
def test_the_interval_of_a_rank(low: float | None, high: float | None, text: str) -> None:
    assert compare._range(rank(low=low, high=high), "success") == text


def test_a_run_that_stopped_early_has_intervals_that_are_too_narrow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    (folder / "r.csv").write_text(
        "task,model,success\n" + "".join(f"t{n},{m},{n % 2}\n" for n in range(4) for m in "ab")
    )
    monkeypatch.setattr(compare, "stop_document", lambda read, run: {"run": run})
    monkeypatch.setattr(compare, "stop_lines", lambda state: [f"stopped: {state['run']}"])
    assert main(["rank", "r.csv"]) == 0
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "note: a run that stops early by its results: ordinary intervals are too narrow",
        "stopped: r",
    ]


# --- Plans, simulations, tasks ---


def test_a_repository_without_a_commit_has_no_branch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Repository:
        def __init__(self, path: Path, environment: Any) -> None:
            self.path, self.environment = path, environment

        def run(self, *words: str) -> tuple[int, str, str]:
            return codes[words[1]], "/top\n", ""

    monkeypatch.setattr(setup, "Git", Repository)
    codes = {"--show-toplevel": 0, "--verify": 0}
    found: Any = setup._repository()
    assert found.path == Path("/top")
    codes["--verify"] = 1
    with pytest.raises(UsageError) as error:
        setup._repository()
    assert str(error.value) == (
        "the repository has no commit yet\nCommit once: agents work on copies of a branch."
    )
    codes["--show-toplevel"] = 128
    assert setup._repository() is None


def test_dialogues_are_exported_by_session_or_turn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^there is no level `word`\nThere are: session, turn\.$"):
        simulate.export_dialogues(tmp_path, tmp_path / "x.csv", level="word", stats=False, as_json=False)
    with pytest.raises(UsageError, match=r"^no output file is given\nGive one: --output results\.csv\.$"):
        simulate.export_dialogues(tmp_path, None, level="turn", stats=False, as_json=False)


CANDIDATE = CommitCandidate(
    commit="0123456789abcdef",
    parent="",
    title="",
    message="",
    date="",
    tests=(),
    source=(),
    lines=1,
    language="",
)


def test_progress_of_mining_is_drawn_at_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    task = CommitValidation(commit="c", state="task", fail_to_pass=("a",), pass_to_pass=("b", "c"))
    flaky = CommitValidation(commit="c", state="flaky", reason="two results")
    with tasks._progress(3, 2, quiet=False) as report:
        assert report is not None
        report(CANDIDATE, flaky)
        report(CANDIDATE, task)
    printed = capsys.readouterr().err
    assert "0123456789 flaky: two results" in printed and "0123456789 task: 1 to fix, 2 to keep" in printed
    assert "1 of at most 2 tasks" in printed and "2/3" in printed


def test_each_commit_is_a_line_without_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    flaky = CommitValidation(commit="c", state="flaky", reason="two results")
    with tasks._progress(3, 2, quiet=False) as report:
        assert report is not None
        report(CANDIDATE, flaky)
    assert capsys.readouterr().err == "0123456789 flaky: two results\n"
    with tasks._progress(3, 2, quiet=True) as report:
        assert report is None


def test_what_was_not_read_or_converted_is_noted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    class Unread:
        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return f"{self.name}: no task"

        def document(self) -> dict[str, str]:
            return {"file": self.name}

    found = SimpleNamespace(tasks=(), not_read=(Unread("a"),), summary=lambda path: f"{path}: 0 tasks")
    monkeypatch.setattr(tasks, "read_task_set", lambda path, reading: found)
    monkeypatch.setattr(tasks, "write_task_set", lambda task_set, out: ([Path("o/t.md")], [Unread("b")]))
    assert main(["tasks", "list", "x"]) == 0
    assert capsys.readouterr().err == "not read: a: no task\nx: 0 tasks\n"
    assert main(["tasks", "convert", "x", "--out", "o"]) == 0
    assert capsys.readouterr().err == "not converted: a: no task\nnot converted: b: no task\no: 1 task\n"
    assert main(["tasks", "convert", "x", "--out", "o", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "files": ["o/t.md"],
        "notRead": [{"file": "a"}, {"file": "b"}],
    }


def test_tasks_are_checked_with_the_options(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    seen: list[Any] = []
    one = SimpleNamespace(task="t", oracle="3/3", noop="0/3", note="", is_well=True)
    result = SimpleNamespace(tasks=[one], not_read=[], is_well=True, document=lambda: {"tasks": 1})
    monkeypatch.setattr(
        tasks, "check_tasks", lambda path, overrides, ctx: seen.append((path, overrides)) or result
    )
    assert main(["tasks", "check", "x"]) == 0
    printed = capsys.readouterr()
    assert words(printed.out) == [["TASK", "ORACLE", "NOOP", "NOTE"], ["t", "3/3", "0/3"]]
    assert printed.err == "x: 1 of 1 task well\n"
    result.is_well = False
    assert main(["tasks", "check", "x", "--runs", "5", "--parallel", "7", "--task-network", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"tasks": 1}
    (path, usual), (_, chosen) = seen
    assert (path, usual.oracle, usual.noop, usual.runs, usual.parallel, usual.task_network) == (
        Path("x"),
        True,
        True,
        3,
        2,
        False,
    )
    assert (chosen.runs, chosen.parallel, chosen.task_network) == (5, 7, True)


# --- Tools of assistants ---


async def test_an_assistant_waits_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    states = ["running", "running", "completed", "never asked"]
    asked: list[Any] = []

    async def command(self: Any, name: str, options: list[str], *words: str, timeout_seconds: float) -> str:
        asked.append((name, options, words, timeout_seconds))
        return json.dumps({"status": states.pop(0), "items": [1], "runId": "r"})

    monkeypatch.setattr(mcp.Tools, "_command", command)
    monkeypatch.setattr(mcp, "POLL_SECONDS", 0)
    made = mcp.Tools({})
    assert json.loads(await made.watch("r")) == {"status": "completed", "runId": "r"}
    assert [each[:3] for each in asked] == [("show", ["--limit=1"], ("r",))] * 3
    assert all(mcp.DEFAULT_SECONDS <= each[3] <= max(60, mcp.DEFAULT_SECONDS) for each in asked)
    states[:] = ["running", "not asked"]
    assert json.loads(await made.watch("r", seconds=0))["status"] == "running"
    assert states == ["not asked"]


async def test_a_command_of_an_assistant_prints_a_document_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def printing(text: str) -> None:
        script = tmp_path / "program.sh"
        script.write_text(f"#!/bin/sh\n{text}\n")
        monkeypatch.setattr(mcp, "_program", lambda: ("/bin/sh", str(script)))

    made = mcp.Tools({"home": "/h"})
    printing('printf \'{"words": "%s"}\' "$*"')
    text = await made._command("show", ["--limit=1"], "r", timeout_seconds=9)
    assert json.loads(text) == {"words": "--home=/h show --json --limit=1 -- r"}
    printing('echo \'{"error": "no run"}\'')
    with pytest.raises(UsageError, match=r"^no run$"):
        await made._command("show", [], "r", timeout_seconds=9)
    printing("echo broken >&2")
    with pytest.raises(UsageError, match=r"^broken$"):
        await made._command("show", [], "r", timeout_seconds=9)
    printing("true")
    with pytest.raises(UsageError, match=r"^show printed nothing$"):
        await made._command("show", [], "r", timeout_seconds=9)
    with pytest.raises(UsageError, match=r"^a name or text has a NUL character\nRemove it\.$"):
        await made._command("show", [], "r\0", timeout_seconds=9)


async def test_a_time_limit_of_something_else_is_not_that_of_the_tool() -> None:
    with pytest.raises(TimeoutError):
        async with mcp._limited("show", 60):
            raise TimeoutError
    async with mcp._limited("show", 60):
        await asyncio.sleep(0)


async def test_tools_of_assistants_have_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def command(self: Any, name: str, options: list[str], *words: str, timeout_seconds: float) -> str:
        asked.append((name, options, words, timeout_seconds))
        return ""

    monkeypatch.setattr(mcp.Tools, "_command", command)
    made = mcp.Tools({})
    await made.runs()
    await made.runs(limit=3, timeout_seconds=9)
    await made.show("r")
    await made.show("r", status="fail", text="x", limit=2)
    await made.search("words")
    await made.compare(["a", "b"])
    await made.abort("r")
    assert asked == [
        ("runs", ["--limit=20"], (), 120.0),
        ("runs", ["--limit=3"], (), 9),
        ("show", ["--limit=20"], ("r",), 120.0),
        ("show", ["--limit=2", "--status=fail", "--search=x"], ("r",), 120.0),
        ("search", ["--limit=20"], ("words",), 120.0),
        ("compare", ["--metric=success"], ("a", "b"), 120.0),
        ("abort-run", [], ("r",), 120.0),
    ]


def test_a_plan_of_an_assistant_is_a_readable_file(tmp_path: Path) -> None:
    made = mcp.Tools({})
    with pytest.raises(UsageError) as error:
        made._request(str(tmp_path / "lost.yaml"), {})
    text = str(error.value)
    assert text.startswith(f"cannot read the plan {tmp_path}/lost.yaml: ")
    assert text.endswith("\nGive the path of a YAML file.")
    (tmp_path / "plan.yaml").write_text("matrix: []")
    request = made._request(str(tmp_path / "plan.yaml"), {"budget": 1.0})
    assert (request.text, request.overrides.budget, request.overrides.runId) == ("matrix: []", 1.0, None)


def test_the_state_of_encryption_counts_keys_and_values() -> None:
    def key(name: str, scope: str = "", retired: str | None = None) -> dict[str, Any]:
        return {
            "id": name,
            "masterKeyId": f"m-{name}",
            "createdAt": "c",
            "retiredAt": retired,
            "emptiedAt": None,
            "scope": scope,
            "secret": "hidden",
        }

    rows = [key("old", retired="r"), key("new"), key("own", "s1"), key("own2", "s2"), key("own3", "s3")]
    counted = SimpleNamespace(current=4, retired=3, own=2, plain=1)
    store: Any = SimpleNamespace(
        count_encrypted=lambda: {"sessions": counted},
        data_keys=SimpleNamespace(rows=rows, unfinished=True),
    )
    keys: Any = SimpleNamespace(own="key")
    listed = [{name: row[name] for name in row if name not in ("scope", "secret")} for row in rows[:2]]
    assert store_commands._status(store, keys, "why") == {
        "sealed": True,
        "keyId": "m-new",
        "isHere": True,
        "problem": "why",
        "dataKeys": listed,
        "ownKeys": 3,
        "unfinished": True,
        "tables": {"sessions": {"sealed": 4, "retired": 3, "own": 2, "plain": 1}},
    }
    assert store_commands._status(store, None, "")["isHere"] is False
    rows[1]["retiredAt"] = "r"
    plain = store_commands._status(store, keys, "")
    assert (plain["sealed"], plain["keyId"], plain["isHere"]) == (False, None, False)
