"""What `proctor roles` prints."""

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
