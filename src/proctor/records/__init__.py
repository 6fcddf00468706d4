"""Import formats: sessions recorded by other tools, one module per format.

A module has `kind`, its name (that of the file, with hyphens), and two functions:

    def recognizes(path: Path) -> bool        does this file or folder look like this format?
    def read(path: Path) -> Iterator[Session | Unreadable]

`recognizes` looks at the name and the beginning of a file, and never fails. `read` yields sessions one by
one; parts it cannot read are reported and skipped. A module may define `endings`, suffixes that only this
format uses: such a file that no format recognizes is reported as broken. Formats are found by file name;
nothing is registered.
"""

import difflib
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from proctor.errors import NotFound
from proctor.session import Session, Unreadable


class Kind(Protocol):
    """A module of this package."""

    kind: str

    def recognizes(self, path: Path) -> bool:
        """Whether a file or folder looks like this format."""

    def read(self, path: Path) -> Iterator[Session | Unreadable]:
        """Its sessions."""


def kind_names() -> list[str]:
    """The import formats, in order."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name.replace("_", "-") for module in modules if not module.name.startswith("_"))


def find_kind(name: str) -> Kind:
    """The format `name`; a `NotFound` lists the formats."""
    names = kind_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean `{near[0]}`? " if near else ""
        raise NotFound(f"there is no kind of record `{name}`\n{hint}There are: {', '.join(names) or 'none'}.")
    return cast(Kind, import_module(f"{__name__}.{name.replace('-', '_')}"))


def endings_of(kind: Kind) -> tuple[str, ...]:
    """File suffixes that only this format uses; empty: none."""
    endings: tuple[str, ...] = getattr(kind, "endings", ())
    return endings


def all_endings() -> tuple[str, ...]:
    """The suffixes of all formats."""
    return tuple(ending for name in kind_names() for ending in endings_of(find_kind(name)))


def recognized(path: Path) -> Kind | None:
    """The format of a file or folder; None: unknown."""
    return next((kind for kind in map(find_kind, kind_names()) if kind.recognizes(path)), None)
