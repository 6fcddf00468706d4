"""What single commands print: roles, and a valid scenario."""

import json
from pathlib import Path

import pytest

from proctor.cli.main import main

Printed = pytest.CaptureFixture[str]


def test_roles_are_a_table_and_a_broken_one_hides_no_other(folder: Path, capsys: Printed) -> None:
    broken = folder / "roles" / "broken"
    broken.mkdir(parents=True)
    (broken / "role.yaml").write_text("plays: [nobody]\n")
    assert main(["roles"]) == 0
    heading, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert heading == ["ROLE", "PLAYS", "PROFILES", "LANGUAGES", "DESCRIPTION"]
    by_name = {line[0]: line for line in lines}
    assert by_name["broken"][1:6] == ["–", "–", "–", "cannot", "be"]
    assert by_name["eeyore"][1] == "client" and "MI" in by_name
    assert main(["roles", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["roles"]}
    assert set(listed["broken"]) == {"name", "error"} and listed["broken"]["error"].startswith(str(broken))
    assert listed["eeyore"]["builtIn"] is True and listed["eeyore"]["plays"] == ["client"]


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
