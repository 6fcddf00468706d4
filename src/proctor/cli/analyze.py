"""`proctor analyze`: say what the runs in a folder show, whatever kind of runs they are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.cli import ending as codes
from proctor.cli.options import Json
from proctor.cli.words import print_json, printable, say
from proctor.errors import UsageError

analyze_app = typer.Typer(add_completion=False)
apps = {"analyze": analyze_app}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line says."""

    report: bool
    metric: str
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an analysis came to."""

    document: Any
    """All of it, for `--json`."""
    words: str
    """For people."""
    files: Sequence[Path] = ()


Analyse = Callable[[Path, Asked], Told]
KINDS: dict[str, tuple[Sequence[str], str]] = {
    "experiment": (("runs/var-*", "batch-state.json"), "proctor.cli.analyze_experiment"),
    "simulation": (("batch_summary.json", "*_run[0-9]*.json"), "proctor.cli.analyze_dialogues"),
}
"""Each kind of folder: what is found in it (any of these), and the module whose `analyse` knows it."""


@analyze_app.command()
def analyze(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of an experiment or a simulation.")
    ],
    report: Annotated[
        bool, typer.Option("--report", help="Also write the report, in Markdown and HTML.")
    ] = False,
    metric: Annotated[str, typer.Option("--metric", help="Only this metric.")] = "",
    as_json: Json = False,
) -> int:
    """Say what the runs in DIR show: statistics, comparisons, effects and patterns, written to its analysis/.

    Example:  proctor analyze experiments/my-experiment --report
    """
    if not folder.is_dir():
        remedy = "Give the folder that an experiment or a simulation was written to."
        raise UsageError(f"there is no folder {folder}\n{remedy}")
    told = _analyse_of(folder)(folder, Asked(report=report, metric=metric, as_json=as_json))
    if as_json:
        print_json(told.document)
    else:
        print(printable(told.words, lines=True))
    for path in told.files:
        say(f"wrote {printable(path)}")
    return codes.SUCCEEDED


def _analyse_of(folder: Path) -> Analyse:
    for marks, module in KINDS.values():
        if any(next(folder.glob(mark), None) for mark in marks):
            # Each kind brings its own libraries; only the one that is needed is loaded.
            found: Analyse = import_module(module).analyse
            return found
    kinds = ", ".join(KINDS)
    raise UsageError(f"nothing in {folder} can be analysed\nIt knows the folders of: {kinds}.")
