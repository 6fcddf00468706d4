"""`make release-notes`: the notes of a release are its section of the changelog."""

import pytest

from project_tools import load_tool

CHANGELOG = """# Changelog

## Unreleased

### Added

- `proctor fly` ([docs/fly.md](docs/fly.md#wings)).

## 0.2.0 (2026-12-01)

### Fixed

- Nothing falls.

## 0.1.0

"""


TOOL = load_tool("release_notes")


def test_notes_are_the_section_of_the_version_without_links() -> None:
    assert TOOL.release_notes(CHANGELOG, "Unreleased") == (
        "# Proctor Unreleased\n\n## Added\n\n- `proctor fly` (docs/fly.md).\n"
    )
    assert TOOL.release_notes(CHANGELOG, "0.2.0").startswith("# Proctor 0.2.0 (2026-12-01)\n\n## Fixed")


@pytest.mark.parametrize(
    ("version", "problem"), [("0.3.0", "it has: Unreleased, 0.2.0"), ("0.1.0", "no entries")]
)
def test_a_release_without_notes_is_an_error(version: str, problem: str) -> None:
    with pytest.raises(TOOL.NoNotes, match=problem):
        TOOL.release_notes(CHANGELOG, version)


def test_it_refuses_a_version_that_the_package_does_not_have(capsys) -> None:
    assert TOOL.main(["99.0"]) == 1
    assert "not 99.0" in capsys.readouterr().err


def test_the_changelog_has_notes_for_the_next_release(capsys) -> None:
    assert TOOL.main([]) == 0
    assert "\n## Added\n" in capsys.readouterr().out
