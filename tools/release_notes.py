"""Print the notes of a release from CHANGELOG.md: the version's section, or the unreleased one.

    python tools/release_notes.py [VERSION]

Links to files become plain names, since notes are read elsewhere. Fails if the changelog has
no such section, if it is empty, or if VERSION is not the version of the package.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "Unreleased"


class NoNotes(Exception):
    """The changelog has no notes for this version."""


def release_notes(changelog: str, version: str) -> str:
    """The section of a version: headings one level higher, without links."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, body = section.partition("\n")
        if version in re.split(r"[\s\[\](),]+", title):
            break
    else:
        known = ", ".join(section.partition("\n")[0] for section in sections)
        raise NoNotes(f"CHANGELOG.md has no section {version}; it has: {known}")
    if not re.search(r"^- ", body, re.MULTILINE):
        raise NoNotes(f"the section {version} of CHANGELOG.md has no entries")
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", body)
    raised = re.sub(r"^##(#+) ", r"#\1 ", plain, flags=re.MULTILINE)
    return f"# Proctor {title}\n\n{raised.strip()}\n"


def package_version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def main(arguments: list[str]) -> int:
    """Print the notes; the exit code."""
    version = arguments[0] if arguments else UNRELEASED
    if version not in (UNRELEASED, package_version()):
        print(f"pyproject.toml has version {package_version()}, not {version}", file=sys.stderr)
        return 1
    try:
        print(release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version), end="")
    except NoNotes as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
