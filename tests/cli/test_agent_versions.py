"""Versions of agents are recorded with their sessions, shown, exported and compared."""

import csv
import json
from pathlib import Path

import pytest

PROGRAM = """#!/bin/sh
[ "$1" = --version ] && { echo "$(basename "$0") 1.2.3"; exit 0; }
echo work > done.txt
"""
PLAN = """
defaults: {model: scripted/ok, scriptCommand: test -f done.txt}
matrix: [{repo: shop, prompt: Do it, agent: [codex, claude, gemini, qwen]}]
"""


@pytest.fixture
def programs(proctor, tmp_path: Path) -> Path:
    """A folder on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    proctor.environment["PATH"] = f"{folder}:{proctor.environment['PATH']}"
    return folder


def install(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_the_version_of_an_agent_is_recorded_with_each_session(proctor, programs, repository, tmp_path):
    for name in ("codex", "claude", "gemini", "qwen"):
        install(programs, name, PROGRAM)
    (tmp_path / "plan.yaml").write_text(PLAN)

    run = json.loads(proctor("batch", "plan.yaml", "--json").stdout)
    proctor("export", "--run", run["runId"], "--tables", "sessions", "--format", "csv", "--out", "tables")
    report = proctor("report", "--run", run["runId"]).stdout

    (file,) = (tmp_path / "tables").glob("sessions*.csv")
    with file.open() as rows:
        sessions = list(csv.DictReader(rows))
    assert {row["agent"]: row["agentVersion"] for row in sessions} == {
        name: f"{name} 1.2.3" for name in ("codex", "claude", "gemini", "qwen")
    }
    shown = proctor("show", sessions[0]["id"]).stdout
    assert f"{sessions[0]['agent']} ({sessions[0]['agentVersion']})" in shown
    assert "Agents: claude 1.2.3, codex 1.2.3, gemini 1.2.3, qwen 1.2.3." in report


def test_two_versions_of_an_agent_are_levels_that_can_be_compared(proctor, repository, tmp_path):
    (tmp_path / "plan.yaml").write_text(
        """
defaults: {scriptCommand: test -f done.txt}
matrix:
  - {repo: shop, prompt: [a, b], command: [touch, done.txt], settings: {version_command: echo 1.0}}
  - {repo: shop, prompt: [a, b], command: [touch, other.txt], settings: {version_command: echo 2.0}}
  - {repo: shop, prompt: [a, b], command: [touch, done.txt, x], settings: {version_command: no-such-program}}
"""
    )

    run = json.loads(proctor("batch", "plan.yaml", "--json").stdout)
    compared = proctor("compare", run["runId"], "--by", "agentVersion", "--json")

    document = json.loads(compared.stdout)
    assert (run["successCount"], run["failCount"], run["errorCount"]) == (4, 2, 0)
    assert document["baseline"] == "command 1.0"
    assert document["groups"] == ["command 1.0", "command 2.0"]
    success = document["contrasts"][0]
    assert (success["baselineMean"]["value"], success["candidateMean"]["value"]) == (1.0, 0.0)
