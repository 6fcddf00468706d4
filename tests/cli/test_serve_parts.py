"""Functions behind `proctor serve` and `proctor gateway`: credentials, addresses, lines to paste, sockets."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.cli import serve
from proctor.models.recording import Replay
from proctor.session import ModelCall, Note, Usage
from proctor.store import Store

# The gateway


@pytest.mark.parametrize(
    ("model", "replay", "stand_in"), [("m", False, 0), ("scripted/ok", False, 1), ("m", True, 1)]
)
def test_the_calls_of_a_gateway_are_one_session(
    model: str, replay: bool, stand_in: int, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "traffic.ndjson"
    file.write_text("")
    recording = Replay(file) if replay else None
    session = serve._GatewaySession(store, model, recording, lambda text: text.replace("secret", "***"))
    session.begin()
    usage = Usage(input_tokens=2000, cached_tokens=1500, output_tokens=3)
    session.record(ModelCall(model="m", usage=usage, cost_usd=0.25))
    session.record(ModelCall(model="m", usage=usage, cost_usd=0.25))
    session.record(Note(text="a secret"))
    session.end()
    session.close()
    row = store.read.session(session.session_id)
    assert (row["job"], row["name"], row["model"], row["standIn"]) == ("gateway", "gateway", model, stand_in)
    assert (row["status"], row["endReason"], row["source"], row["attempt"]) == (
        "success",
        "completed",
        "gateway",
        1,
    )
    assert (row["modelCalls"], row["costUsd"], json.loads(row["notes"])) == (2, 0.5, ["a ***"])
    assert 0 <= row["workSeconds"] < 3600 and row["waitingSeconds"] == 0
    started = datetime.fromtimestamp(int(session.session_id[:12], 16) / 1000, UTC)
    assert abs((datetime.fromisoformat(row["startedAt"]) - started).total_seconds()) < 60
    lines = capsys.readouterr().err.splitlines()
    assert lines[2:] == [
        "note: a secret",
        "2 calls, 4,000 tokens in (3,000 cached), 6 out, $0.50",
        f"Next:  proctor show {session.session_id}",
    ]
