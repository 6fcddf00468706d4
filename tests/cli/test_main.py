"""How a command line is read before its command is loaded."""

from pathlib import Path

import pytest

from commands import Command
from proctor import __version__
from proctor.cli.main import main


@pytest.mark.parametrize(
    ("words", "store"),
    [
        (("runs", "--store", "s.db"), "s.db"),
        (("--store=s.db", "runs", "--limit", "3"), "s.db"),
        (("--home=h", "runs"), "h/proctor.db"),
        (("runs", "--home", "h", "--json"), "h/proctor.db"),
        (("search", "--store", "s.db", "--", "--home=h"), "s.db"),
        (("search", "--store=s.db", "--", "--home"), "s.db"),
    ],
)
def test_global_options_may_stand_anywhere_before_two_dashes(
    proctor: Command, words: tuple[str, ...], store: str
) -> None:
    done = proctor(*words)

    assert done.returncode == (1 if "search" in words else 0), done.stderr
    assert [str(path.relative_to(proctor.folder)) for path in Path(proctor.folder).rglob("*.db")] == [store]


def test_help_and_version_load_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main([]), main(["--help"]), main(["-h"]), main(["help"])] == [2, 0, 0, 0]
    text = capsys.readouterr().out
    assert text.count("proctor COMMAND [OPTIONS]\n") == 4
    assert "\nRun:\n  batch       Run a plan of repositories × prompts × agents.\n  bench       Run" in text
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"proctor {__version__}\n"
