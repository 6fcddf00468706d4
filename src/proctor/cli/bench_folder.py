"""The folder of a benchmark's results: where it is, what is written to it, and finding it again."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.bootstrap import now
from proctor.errors import NotFound, UsageError
from proctor.jobs.benchmark.job import JOB
from proctor.jobs.benchmark.report import benchmark_html
from proctor.jobs.benchmark.results import as_json, result_files, write_comparison, write_file, write_result
from proctor.json_values import parse_json
from proctor.stats.leaderboard import compare
from proctor.store import Store
from proctor.store.runs import run_ids_of_job

RESULTS = Path("benchmark/results")


ABOUT, MACHINE = "batch.json", "machine_info.json"


LARGEST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFolder:
    """Where the results of one benchmark are written."""

    path: Path
    store: Store
    run_id: str

    def begin(self, about: Mapping[str, Any], machine: Mapping[str, Any]) -> None:
        """Make the folder, and say in it what is going to be run: enough to go on elsewhere."""
        write_file(self.path / ABOUT, as_json(about))
        write_file(self.path / MACHINE, as_json(machine))

    def keep(self, model: str) -> None:
        """Write the result file of one model, as far as it is."""
        comparison = compare(self.store.read, self.run_id, now())
        names = self._names()
        for figures in comparison.models:
            if figures.name == model:
                write_result(self.path, names[model], comparison, figures)

    def finish(self) -> dict[str, Any]:
        """Write every file; the comparison as a document."""
        comparison = compare(self.store.read, self.run_id, now())
        names, moment = self._names(), now()
        for figures in comparison.models:
            if any(run.is_finished for run in figures.runs):
                write_result(self.path, names[figures.name], comparison, figures)
        machine = read_object(self.path / MACHINE)
        write_file(self.path / "comparison_report.html", benchmark_html(comparison, machine, moment))
        return write_comparison(self.path, comparison, machine, moment)

    def models_of(self, file: str) -> list[str]:
        """Whose results a file of this name holds."""
        return [model for model, name in self._names().items() if name == file]

    def _names(self) -> dict[str, str]:
        # In the order of the items, which extending does not change: names once given stay.
        rows = self.store.read.items(self.run_id, limit=1_000_000)
        return result_files([json.loads(row["factors"])["model"] for row in rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierResults:
    """A benchmark that was begun before."""

    run_id: str
    path: Path | None
    """Its folder; None: nobody knows of one."""
    options: Mapping[str, Any]
    """What it was started with, as far as that is known."""
    is_known: bool
    """Whether the store knows it; if not, its folder came from elsewhere."""


def find_earlier(store: Store, wanted: str, output: Path | None) -> EarlierResults:
    """The benchmark meant by a batch id or by the path of its folder."""
    places = [Path(wanted), RESULTS / wanted, *([output] if output else [])]
    folder = next((place for place in places if wanted and place.is_dir()), None)
    about = read_object(folder / ABOUT) if folder else {}
    names = [name for name in (about.get("batch_id"), folder.name if folder else None, wanted) if name]
    for name in names:
        rows = store.read.exact_batch(str(name))
        if rows and rows[0]["job"] != JOB:
            raise UsageError(f"{name} is no benchmark\nGo on with it:  proctor resume {name}")
        if rows:
            options = json.loads(rows[0]["optionsJson"])
            # The folder that was named wins: it may have been moved since.
            path = (folder or Path(options["output"])) if options.get("output") or folder else None
            return EarlierResults(run_id=str(name), path=path, options=options, is_known=True)
    if folder is None:
        raise _not_found(store, wanted)
    return EarlierResults(run_id=_plain(str(names[0])), path=folder, options=about, is_known=False)


def new_run_id(store: Store, moment: datetime) -> str:
    """`batch_<yyyymmdd_HHMMSS>`, numbered when another began in the same second."""
    stem = f"batch_{moment:%Y%m%d_%H%M%S}"
    for number in range(1, 1000):
        name = stem if number == 1 else f"{stem}_{number}"
        taken = store.read.exact_batch(name)
        if not taken and not (RESULTS / name).exists():
            return name
    raise UsageError(f"there are too many runs called {stem}")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object in a file; empty when there is none to be read."""
    try:
        with path.open("rb") as file:
            found = parse_json(file.read(LARGEST_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _not_found(store: Store, wanted: str) -> NotFound:
    known = run_ids_of_job(store.read, JOB)[:200]
    known += [path.name for path in RESULTS.iterdir() if path.is_dir()] if RESULTS.is_dir() else []
    near = difflib.get_close_matches(wanted, dict.fromkeys(known), n=2)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return NotFound(
        f"there is no benchmark {wanted}, in the store or in {RESULTS}/\n"
        f"{hint}Give the id of a batch, or the path of the folder with its results."
    )


def _plain(name: str) -> str:
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)[:128]
    return kept.lstrip(".-") or "batch"
