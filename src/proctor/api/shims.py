"""Modules under the names that scripts of earlier frameworks import, which call Proctor.

They are written to a folder of the user's, never installed, so that they cannot shadow a real package.
"""

from collections.abc import Mapping
from pathlib import Path

from proctor.errors import UsageError

MARK = "# Written by `proctor shims`."
_COMMAND = """\"\"\"{about}\"\"\"

{mark}
import sys
{names}
if __name__ == "__main__":
    from proctor.cli.main import main

    sys.exit(main([{words}, *sys.argv[1:]]))
"""


def _command(about: str, *words: str, names: str = "") -> str:
    quoted = ", ".join(f'"{word}"' for word in words)
    return _COMMAND.format(about=about, mark=MARK, names=f"\n{names}\n" if names else "", words=quoted)


_RUNNER = _command("Runs an experiment: `proctor experiment`.", "experiment")
_ANALYZER = f'{MARK}\nfrom proctor import BatchAnalyzer\n\n__all__ = ["BatchAnalyzer"]\n'
_TABLES = ("load_sessions", "sessions_to_dataframe", "turns_to_dataframe")
FILES: Mapping[str, str] = {
    "examples/__init__.py": f"{MARK}\n",
    "examples/batch_simulate.py": _command(
        "Runs a simulation: `proctor simulate`.",
        "simulate",
        names="\n".join(
            f"from proctor import {name} as {name}"
            for name in ("BatchConfig", "aggregate_results", "run_batch")
        ),
    ),
    "examples/export.py": _command("Writes dialogues as a table: `proctor export`.", "export"),
    "patienthub/__init__.py": f"{MARK}\n",
    "patienthub/utils/__init__.py": f"{MARK}\n",
    "patienthub/utils/export.py": f"{MARK}\n"
    + "\n".join(f"from proctor import {name} as {name}" for name in _TABLES)
    + "\n",
    "batch_runner.py": _RUNNER,
    "batch_analyzer.py": _ANALYZER,
    "src/batch_runner.py": _RUNNER,
    "src/batch_analyzer.py": _ANALYZER,
}
"""Text by path."""


def write_shims(folder: Path) -> list[Path]:
    """Write the modules to a folder, or write them again; none where one would hide another file."""
    for name in FILES:
        for path in (folder / name, folder / Path(name).parts[0] / "__init__.py"):
            if path.is_file() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
                raise UsageError(f"{path} is not a shim of Proctor\nPass another folder.")
        top = folder / Path(name).parts[0]
        if top.name not in ("src", name) and top.is_dir() and not (top / "__init__.py").is_file():
            raise UsageError(f"{top} is a folder of yours, which a package would hide\nPass another folder.")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [folder / name for name in FILES]
