"""What reports and the ends of runs say about few items, and about repositories."""

from pathlib import Path
from typing import Any

from proctor.testing import make_git_repository


def test_repositories_are_listed_and_not_ranked(proctor: Any, tmp_path: Path) -> None:
    for name in ("shop", "bank"):
        make_git_repository(tmp_path / name, {"README.md": name})
    (tmp_path / "plan.yaml").write_text(
        "runId: both\n"
        "defaults: {scriptCommand: test -f done.txt}\n"
        "matrix:\n"
        "  - {repo: [shop, bank], prompt: [a, b], command: [touch, done.txt]}\n"
    )
    proctor("batch", "plan.yaml")

    report = proctor("report", "--run", "both").stdout

    _, _, section = report.partition("### By repository")
    assert "| repository | Success rate |" in section
    assert "| bank | 100% | needs more tasks |" in section
    assert "Rank" not in section


def test_a_finished_item_is_said_in_the_singular(proctor: Any, tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text("failures: {every: 1, status: 429}\nrules: [{reply: fine}]\n")
    (tmp_path / "plan.yaml").write_text("runId: ok\nmatrix: [{prompt: p, model: scripted/ok}]\n")
    (tmp_path / "bad.yaml").write_text("runId: bad\nmatrix: [{prompt: p, model: scripted/model}]\n")
    proctor("batch", "plan.yaml")

    again, failed = proctor("resume", "ok"), proctor("batch", "bad.yaml")

    assert "ok: nothing to resume, its item is finished: 1 of 1 item succeeded" in again.stderr
    assert "0 of 1 item succeeded, 1 error\n" in failed.stderr
