"""Roles of simulations: list, show and create them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import PlanError
from proctor.jobs.dialogue import roles
from proctor.jobs.dialogue.roles import RoleFolder, Roles


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRole:
    """A role."""

    name: str
    plays: Sequence[str]
    """Sides that it can play: `client`, `therapist`."""
    description: str
    sources: Sequence[str]
    """Publications that it follows."""
    profiles: Sequence[str]
    options: Mapping[str, object]
    """Default of each option."""
    choices: Mapping[str, Sequence[object]]
    """Values of options that have no others."""
    languages: Sequence[str]
    built_in: bool
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRole:
    """A role of the user that cannot be read: it must not hide the others."""

    name: str
    error: str


def list_roles(home: Path) -> list[ListedRole | UnreadableRole]:
    """Roles in a folder `roles` here or in the home, then the built-in ones."""
    known_roles = _roles(home)

    def listed(name: str) -> ListedRole | UnreadableRole:
        try:
            return _listed(name, known_roles.find(name))
        except PlanError as error:
            return UnreadableRole(name=name, error=error.problem)

    return [listed(name) for name in known_roles.names()]


def find_role(home: Path, name: str) -> ListedRole:
    """A role by its name. Raises for one that does not exist or cannot be read."""
    return _listed(name, _roles(home).find(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRole:
    """The files of a role that was created."""

    files: Sequence[Path]
    replaces_built_in: bool
    """Whether a built-in role of this name is not used where the folder is."""


def create_role(name: str, folder: Path, *, plays: str) -> NewRole:
    """Create the folder of a role that can be run, with an example of every file."""
    files = roles.new_role(name, folder, plays=plays)
    return NewRole(files=files, replaces_built_in=(roles.BUILT_IN / name).is_dir())


def _roles(home: Path) -> Roles:
    return Roles([Path.cwd() / "roles", home / "roles"])


def _listed(name: str, role: RoleFolder) -> ListedRole:
    data = role.source.data
    return ListedRole(
        name=name,
        plays=role.plays,
        description=role.description,
        sources=data.get("sources") or (),
        profiles=list(role.profiles),
        options=role.options,
        choices=data.get("choices") or {},
        languages=role.languages,
        built_in=role.is_built_in,
        folder=str(role.folder),
    )
