"""Sessions as OTLP's JSON lines: what a collector's file exporter writes and its receiver reads.

Each line is a whole message with one session.

Knows nothing of stores or commands.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from proctor.imported import ImportedSession
from proctor.telemetry.encoding import encode_spans
from proctor.telemetry.spans import documents_of


def write(sessions: Iterable[ImportedSession], out: Path, label: str) -> list[Path]:
    """One file, `otlp-<label>.jsonl`."""
    path = out / f"otlp-{label}.jsonl"
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for session in sessions:
            if session.steps:
                file.write(json.dumps(encode_spans(documents_of(session)), ensure_ascii=False) + "\n")
    return [path]
