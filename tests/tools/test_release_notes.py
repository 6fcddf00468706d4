"""`make release-notes`: the notes of a release are its section of the changelog."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## Unreleased

### Added

- `proctor fly` ([docs/fly.md](docs/fly.md#wings)).

## 0.2.0 (2026-12-01)

### Fixed

- Nothing falls.

## 0.1.0

"""


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("release_notes", ROOT / "tools" / "release_notes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notes_are_the_section_of_the_version_without_links(tool: Any) -> None:
    assert tool.release_notes(CHANGELOG, "Unreleased") == (
        "# Proctor Unreleased\n\n## Added\n\n- `proctor fly` (docs/fly.md).\n"
    )
    assert tool.release_notes(CHANGELOG, "0.2.0").startswith("# Proctor 0.2.0 (2026-12-01)\n\n## Fixed")


@pytest.mark.parametrize(
    ("version", "problem"), [("0.3.0", "it has: Unreleased, 0.2.0"), ("0.1.0", "no entries")]
)
def test_a_release_without_notes_is_an_error(tool: Any, version: str, problem: str) -> None:
    with pytest.raises(tool.NoNotes, match=problem):
        tool.release_notes(CHANGELOG, version)


def test_it_refuses_a_version_that_the_package_does_not_have(tool: Any, capsys) -> None:
    assert tool.main(["99.0"]) == 1
    assert "not 99.0" in capsys.readouterr().err


def test_the_changelog_has_notes_for_the_next_release(tool: Any, capsys) -> None:
    assert tool.main([]) == 0
    assert "\n## Added\n" in capsys.readouterr().out
