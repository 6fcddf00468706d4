"""Write what `proctor analyze` has to say as pages."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from proctor.analyse.experiment import FOLDER
from proctor.plan.experiment import slug_of
from proctor.report.plot_files import PLOTS


def analysis_folder(folder: Path, metric: str) -> Path:
    """Where an analysis is written. That of one metric stands apart: it must not replace that of all."""
    target = folder / FOLDER / f"only-{slug_of(metric)}" if metric else folder / FOLDER
    target.mkdir(parents=True, exist_ok=True)
    return target


def write_pages(target: Path, pages: Mapping[str, str]) -> list[Path]:
    """Write a report and the plots it shows into the folder of an analysis; the files."""
    # Plots of an earlier report that this one has no more would only mislead.
    shutil.rmtree(target / PLOTS, ignore_errors=True)
    (target / PLOTS).mkdir(parents=True)
    for name, text in pages.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in pages]
