"""Find roles, read them, and make new ones.

A role is a folder:

    NAME/role.yaml               what it is, what it remembers, the steps it takes
    NAME/templates/LANG/*.j2     what it says to its model, in each language
    NAME/profile.schema.yaml     what a profile has to hold (JSON Schema)
    NAME/profiles/*.yaml|json    the people it can be; a file holds one, or a list
    NAME/data/*.yaml|json        whatever else its templates speak of

Ours are in the package; a user's are in folders called `roles`, which are looked in first. Everything
wrong with a role is said before anyone speaks.

Knows nothing of configs, items or models.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from proctor.dialogue.role import Role
from proctor.errors import NotFound, Place, Problem, UsageError
from proctor.plan.files import bytes_of
from proctor.plan.reading import read_source
from proctor.plan.role_checks import problems_of
from proctor.plan.role_schema import RoleFile, vocabulary
from proctor.plan.source import Source, refuse
from proctor.plan.suggest import did_you_mean
from proctor.plan.validate import check_shape

BUILT_IN = Path(str(files("proctor").joinpath("roles")))
FALLBACK = "en"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class RoleFolder:
    """A role as it lies in its folder, checked."""

    name: str
    folder: Path
    source: Source = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    templates: Mapping[str, Mapping[str, str]] = field(repr=False)
    """By language, then by name."""
    profiles: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """In the order of their names; `file` or `file:number`."""
    schema: Mapping[str, Any] | None = field(repr=False)

    @property
    def is_built_in(self) -> bool:
        return self.folder.parent == BUILT_IN

    @property
    def plays(self) -> Sequence[str]:
        return tuple(self.source.data["plays"])

    @property
    def description(self) -> str:
        return " ".join(str(self.source.data["description"]).split())

    @property
    def languages(self) -> Sequence[str]:
        """Empty: it says nothing to a model, so any language does."""
        return tuple(self.templates)

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """What a user may set, with defaults."""
        return self.source.data.get("options") or {}

    def language_for(self, wanted: str) -> str:
        """What it speaks when a language is wanted: that, or its nearest, or English, or its own."""
        if not self.languages:
            return wanted
        for language in (wanted, wanted.partition("-")[0], FALLBACK):
            if language in self.languages:
                return language
        return self.languages[0]

    def role(self, wanted: str) -> Role:
        """The role in one language, or in the one it falls back to."""
        language = self.language_for(wanted)
        given = {name: value for name, value in self.source.data.items() if value is not None}
        for name in ("description", "sources", "field", "choices", "default_profile"):
            given.pop(name, None)
        return Role(
            **given,
            name=self.name,
            templates=dict(self.templates.get(language, {})),
            data=dict(self.data),
            language=language,
        )

    def check_profile(self, profile: Any) -> list[str]:
        """What is wrong with a profile, in words."""
        if not isinstance(profile, Mapping):
            return ["a profile is a mapping of names to values"]
        if self.schema is None:
            return []
        wrong = [
            (".".join(map(str, error.path)) or "the profile", _short(error.message))
            for error in Draft202012Validator(self.schema).iter_errors(profile)
        ]
        return [f"{where}: {what}" for where, what in sorted(wrong)]


class Roles:
    """The roles there are: in these folders first, then ours."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = [*dict.fromkeys(folders), BUILT_IN]
        self._read: dict[str, RoleFolder] = {}

    def names(self) -> list[str]:
        """Every role's name."""
        found = {
            entry.name
            for folder in self._folders
            if folder.is_dir()
            for entry in folder.iterdir()
            if (entry / "role.yaml").is_file()
        }
        return sorted(found, key=str.casefold)

    def find(self, name: str) -> RoleFolder:
        """One role, read and checked; raises `NotFound`, or `PlanError` with all that is wrong with it."""
        if name not in self._read:
            self._read[name] = read_role(self._folder_of(name))
        return self._read[name]

    def _folder_of(self, name: str) -> Path:
        for folder in self._folders:
            # A name is a name: `../elsewhere` is none.
            if Path(name).name == name and (folder / name / "role.yaml").is_file():
                return folder / name
        known = self.names()
        remedy = did_you_mean(name, known) or f"There are: {', '.join(known)}."
        raise NotFound(f"there is no role called `{name}`\n{remedy}")


def read_role(folder: Path) -> RoleFolder:
    """Read one role's folder; raises `PlanError` with everything that is wrong with it."""
    source = _source(folder / "role.yaml")
    problems = list(check_shape(source, RoleFile, vocabulary).problems)
    if problems:
        refuse(problems)
    templates = {
        language.name: {path.name.removesuffix(".j2"): _text(path) for path in sorted(language.glob("*.j2"))}
        for language in sorted((folder / "templates").glob("*/"))
    }
    role = RoleFolder(
        name=folder.name,
        folder=folder,
        source=source,
        data={path.stem: read_data(path) for path in _data_files(folder / "data")},
        templates=templates,
        profiles=dict(_profiles(folder / "profiles")),
        schema=_schema(folder),
    )
    if problems := problems_of(role.source, role.folder, role.templates, role.data):
        refuse(problems)
    for profile_name, profile in role.profiles.items():
        problems += _profile_problems(role, profile_name, profile)
    if problems:
        refuse(problems)
    return role


def read_profiles(path: Path) -> dict[str, Mapping[str, Any]]:
    """The profiles of one file, as any framework writes them: one, or a list of them."""
    return dict(_named(path.stem, read_data(path)))


def read_data(path: Path) -> Any:
    """A YAML or JSON file as plain data."""
    if path.suffix == ".json":
        try:
            return json.loads(_text(path))
        except ValueError as error:
            raise UsageError(f"{path}: this is not JSON: {error}") from error
    source = _source(path)
    if source.problems:
        refuse(list(source.problems))
    return source.data


def new_role(name: str, folder: Path, *, plays: str) -> list[Path]:
    """Make the folder of a new role with one of everything; the files that were written."""
    if not name.isidentifier():
        raise UsageError(f"`{name}` is no name for a role\nUse letters, digits and underscores.")
    if folder.exists():
        raise UsageError(f"{folder} is there already\nGive another name, or remove it.")
    pattern = BUILT_IN / "_new"
    written = []
    for path in sorted(pattern.rglob("*")):
        if path.is_file():
            target = folder / path.relative_to(pattern).with_name(path.name.removesuffix(".txt"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_text(path).replace("@NAME@", name).replace("@PLAYS@", plays), encoding="utf-8")
            written.append(target)
    return written


def _source(path: Path) -> Source:
    return read_source(bytes_of(path), file=str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES) if folder.is_dir() else []


def _profiles(folder: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path in _data_files(folder):
        yield from _named(path.stem, read_data(path))


def _named(stem: str, data: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(data, list):
        yield from ((f"{stem}:{number}", entry) for number, entry in enumerate(data))
    else:
        yield stem, data


def _schema(folder: Path) -> Mapping[str, Any] | None:
    path = folder / "profile.schema.yaml"
    if not path.is_file():
        return None
    schema: Mapping[str, Any] = read_data(path)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"{path}: this is no JSON Schema: {_short(error.message)}") from error
    return schema


def _profile_problems(role: RoleFolder, name: str, profile: Any) -> list[Problem]:
    at = Place(str(role.folder / "profiles" / name), 1, 1)
    remedy = "profile.schema.yaml says what is needed."
    return [Problem(at=at, problem=wrong, remedy=remedy) for wrong in role.check_profile(profile)]


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"
