"""What tests of dialogues share: a model that talks, and ways to look at what was said."""

import csv
import json
from pathlib import Path
from typing import Any

from proctor import BatchConfig

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "dialogues"

TALKING = """
rules:
  - match: Answer with one JSON object
    reply: '{"Deny": 10, "Downplay": 20, "Blame": 10, "Inform": 40, "Engage": 20, "number": 1, "score": 4,
      "addressed": false, "rationale": "no", "reasoning": "so"}'
  - {after: 3, reply: [One more thing., Lastly this., And then nothing.]}
  - {after: 2, reply: [It was on a Monday., It was in March., It was at work.]}
  - {after: 1, reply: [I could not sleep., I could not eat., I could not stay.]}
  - reply: [It began slowly., It began at home., It began with a letter.]
"""


def config(**given: Any) -> BatchConfig:
    usual = {"num_runs": 2, "max_turns": 3, "seed": 42, "model_name": "scripted/talking"}
    return BatchConfig(**{**usual, **given})


def said(folder: Path, *, seeds: bool = False) -> dict[str, Any]:
    """What the files of a folder hold, but for what differs from one time to the next."""
    held = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*_run*.json"))}
    for document in held.values():
        document.pop("record")
        if not seeds:
            document.pop("seed")
    return held


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def split(command: str) -> list[str]:
    return command.split()
