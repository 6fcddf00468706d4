"""What commands list and show: agents, models, roles, sessions, questions, rankings; tools of assistants."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.cli import (
    calibrate,
    scenario,
    simulate,
)
from proctor.cli.main import main
from proctor.errors import UsageError

Printed = pytest.CaptureFixture[str]


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- Agents, models and roles ---


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


# --- Sessions ---


def test_sessions_to_delete_must_be_selected(folder: Path, capsys: Printed) -> None:
    assert main(["sessions", "delete", "--yes"]) == 2
    assert capsys.readouterr().err == (
        "proctor: no sessions selected\nPass session IDs, --log-group NAME, or --before DATE.\n"
    )
    assert main(["sessions", "delete", "--log-group", "g", "--json"]) == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out), printed.err) == ({"sessions": []}, "deleted 0 imported sessions\n")


# --- Scenarios ---


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


# --- Plans, simulations, tasks ---


def test_dialogues_are_exported_by_session_or_turn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^there is no level `word`\nThere are: session, turn\.$"):
        simulate.export_dialogues(tmp_path, tmp_path / "x.csv", level="word", stats=False, as_json=False)
    with pytest.raises(UsageError, match=r"^no output file is given\nGive one: --output results\.csv\.$"):
        simulate.export_dialogues(tmp_path, None, level="turn", stats=False, as_json=False)
