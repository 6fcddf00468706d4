"""Plans to begin with, one for every job: they run as they are, with no key and no network.

Knows nothing of how plans are read.
"""

import secrets
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel

STARTERS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("coding.yaml", "coding", "Coding sessions", {}),
    ("prompts.yaml", "coding", "Prompts with checks", {}),
    ("models.yaml", "coding", "Model comparison", {}),
    ("benchmark.md", "benchmark", "Benchmark task", {"models": "scripted/echo,scripted/ok"}),
    ("experiment.yaml", "scenario", "Scenario experiment", {}),
    ("dialogues.yaml", "dialogue", "Dialogues", {}),
    ("evaluation.yaml", "evaluation", "Evaluation", {}),
)


class Example(BaseModel):
    """A plan to begin with."""

    name: str
    job: str
    text: str
    overrides: dict[str, Any]
    """What it needs to be told besides."""


def examples() -> list[Example]:
    """A plan for every job, in the order the page shows them."""
    return [
        Example(name=title, job=job, text=_text(file), overrides=more) for file, job, title, more in STARTERS
    ]


def _text(file: str) -> str:
    text = files("proctor.web").joinpath("starters", file).read_text(encoding="utf-8")
    # Two who begin with the same example must not write into one folder.
    return text.replace("{examples}", str(_examples())).replace("{unique}", f"harbour-{secrets.token_hex(2)}")


def _examples() -> Path:
    """The folder of examples: in the package once it is installed, at the top of the source before."""
    installed = Path(str(files("proctor").joinpath("examples")))
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples"
