"""Write what `proctor analyze` has to say as pages."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from proctor.report.plot_files import PLOTS


def write_pages(target: Path, pages: Mapping[str, str]) -> list[Path]:
    """Write a report and the plots it shows into the folder of an analysis; the files."""
    # Plots of an earlier report that this one has no more would only mislead.
    shutil.rmtree(target / PLOTS, ignore_errors=True)
    (target / PLOTS).mkdir(parents=True)
    for name, text in pages.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in pages]
