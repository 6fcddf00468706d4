"""Rankings of a benchmark, waiting for an evaluation, files that cannot be read, and folders of branches."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.cli import simulate
from proctor.cli.report import AnalyzeRequest
from proctor.errors import UsageError


def model(name: str, **changes: Any) -> dict[str, Any]:
    rate = {"value": 0.5, "low": None, "high": None, "n": 4}
    usual: dict[str, Any] = {"model": name, "counts": {"success": 2, "error": 0}, "success_rate": rate}
    usual |= {"success_rate_with_errors": {"value": 0.25}, "completion_time": {"value": 3.0}}
    usual |= {"prompts_sent": {"value": 1.5}, "human_interventions": {"value": None}, "total_tokens": 0}
    return usual | {"cost_usd": None} | changes


def test_an_analysis_names_files_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = AnalyzeRequest(report=False, metric="", as_json=False)
    (tmp_path / "batch_summary.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UsageError):
        simulate.analyze_simulation(tmp_path, request)
    sides = {
        side: {"model": "a/x", "profile": "p", "parameters": {}, "role": side, "options": {}, "digest": "d"}
        for side in ("client", "therapist")
    }
    session = {
        "messages": [{"role": "client", "content": "Hi."}],
        "client": "eeyore",
        "therapist": "MI",
        "run_id": 0,
        "combination": "eeyore_MI",
        "num_turns": 3,
        "status": "success",
        "roles": sides,
        "usage": {},
        "scores": [],
        "states": [],
        "record": {},
    }
    (tmp_path / "eeyore_MI_run0.json").write_text(json.dumps(session))
    capsys.readouterr()
    analysis = simulate.analyze_simulation(tmp_path, request)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"skipped {tmp_path / 'broken.json'}: ") or lines[0].startswith(
        "skipped broken.json: "
    )
    assert lines[-1] == "1 file in the folder could not be read and were skipped."
    assert [path.name for path in analysis.files] == ["variance.json"]
