"""Sessions that other tools recorded, each kind of record in its own file.

A module here has `kind`, what people call it (its file's name, with hyphens), and two functions:

    def recognises(path: Path) -> bool        does this file or folder look like one of mine?
    def read(path: Path) -> Iterator[ImportedSession | Unreadable]

`recognises` looks at a name and a little of a file, and never fails. `read` gives sessions one by one;
what it cannot read it names and goes on. A module may have `endings`, in which the names of its files end and
no others: a file called so that nobody recognises is named as broken, not passed over. Adding a kind is
adding a file; nothing is registered.

Knows no kind by name.
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
    """A module in this folder."""

    kind: str

    def recognises(self, path: Path) -> bool:
        """Whether a file or folder looks like one of this kind."""

    def read(self, path: Path) -> Iterator[Session | Unreadable]:
        """The sessions in it."""


def kind_names() -> list[str]:
    """The kinds of record there are, in order."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name.replace("_", "-") for module in modules if not module.name.startswith("_"))


def find_kind(name: str) -> Kind:
    """The kind called `name`; `NotFound` says which there are."""
    names = kind_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean `{near[0]}`? " if near else ""
        raise NotFound(f"there is no kind of record `{name}`\n{hint}There are: {', '.join(names) or 'none'}.")
    return cast(Kind, import_module(f"{__name__}.{name.replace('-', '_')}"))


def endings_of(kind: Kind) -> tuple[str, ...]:
    """How the names of files of a kind end, and those of no others; empty: there is no such ending."""
    found: tuple[str, ...] = getattr(kind, "endings", ())
    return found


def all_endings() -> tuple[str, ...]:
    """The endings of every kind."""
    return tuple(ending for name in kind_names() for ending in endings_of(find_kind(name)))


def recognised(path: Path) -> Kind | None:
    """The kind that a file or folder is of; None when no kind knows it."""
    return next((kind for kind in map(find_kind, kind_names()) if kind.recognises(path)), None)
