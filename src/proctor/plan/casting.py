"""Who plays: one role with its profiles, options and model, on one side.

Knows nothing of combinations or runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.dialogue.role import CLIENT, Role
from proctor.errors import UsageError
from proctor.plan.roles import RoleFolder, Roles, read_profiles
from proctor.plan.suggest import did_you_mean

TEMPERATURE = "temperature"
STAND_IN_MODEL = "scripted/lines"
"""Under this name a role that only recites appears where others have their model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Casting:
    """One role, cast."""

    label: str
    """What it is called in files and tables; the role's name where nothing else is said."""
    role: Role
    digest: str
    """The role's, kept because it takes a while to compute."""
    profiles: Sequence[tuple[str, Mapping[str, Any]]]
    """In the order in which runs take them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""
    """Worth saying before anything starts."""

    def profile_name(self, run: int) -> str:
        """Who it is in one run."""
        return self.profiles[run % len(self.profiles)][0]

    def details(self, run: int) -> dict[str, Any]:
        """What an item asks of this side."""
        name, profile = self.profiles[run % len(self.profiles)]
        return {
            "role": self.role.name,
            "label": self.label,
            "digest": self.digest,
            "profileName": name,
            "profile": profile,
            "options": dict(self.options),
            "model": self.model,
            "parameters": dict(self.parameters),
        }

    def settled(self, model: str, parameters: Mapping[str, Any]) -> "Casting":
        """The same with a model and parameters, where its own entry says nothing."""
        if not self.role.asks:
            return replace(self, model=STAND_IN_MODEL if self.role.stand_in else "", parameters={})
        given = {name: value for name, value in parameters.items() if value is not None}
        merged = {**self.role.parameters, **given, **self.parameters}
        return replace(self, model=self.model or self.role.model or model, parameters=merged)


def cast(entry: Mapping[str, Any], side: str, language: str, folder: Path, roles: Roles) -> Casting:
    """Cast one entry of a config; raises `UsageError` with what is wrong with it."""
    found = roles.find(entry["role"])
    if side not in found.plays:
        raise UsageError(f"the role {found.name} does not play a {side}\nIt plays: {', '.join(found.plays)}.")
    role, options = found.role(language), dict(entry.get("options") or {})
    spoken = f"{found.name} has no templates in `{language}`: it is played in `{role.language}`"
    _check_options(found, options)
    return Casting(
        label=_label(entry),
        role=role,
        digest=role.digest,
        profiles=_profiles(found, entry, side, folder),
        options=options,
        model=entry.get("model") or "",
        parameters={} if entry.get(TEMPERATURE) is None else {TEMPERATURE: entry[TEMPERATURE]},
        remark=spoken if language.partition("-")[0] != role.language.partition("-")[0] else "",
    )


def _label(entry: Mapping[str, Any]) -> str:
    label = str(entry.get("label") or entry["role"])
    # It becomes part of a file's name.
    if not all(letter.isalnum() or letter in "._-" for letter in label) or label.startswith("."):
        raise UsageError(f"`{label}` is no label\nUse letters, digits, dots, dashes and underscores.")
    return label


def _check_options(role: RoleFolder, options: Mapping[str, Any]) -> None:
    choices = role.source.data.get("choices") or {}
    for name, value in options.items():
        if name not in role.options:
            known = ", ".join(role.options) or "none"
            remedy = f"{did_you_mean(name, role.options)} It has: {known}.".strip()
            raise UsageError(f"the role {role.name} has no option `{name}`\n{remedy}")
        if name in choices and value not in choices[name]:
            allowed = ", ".join(map(str, choices[name]))
            raise UsageError(f"`{name}` of {role.name} cannot be `{value}`\nIt can be: {allowed}.")


def _profiles(
    role: RoleFolder, entry: Mapping[str, Any], side: str, folder: Path
) -> list[tuple[str, Mapping[str, Any]]]:
    there = dict(role.profiles)
    if file := entry.get("profiles_file"):
        there = _from_file(role, folder / Path(file).expanduser())
    if not there:
        raise UsageError(f"the role {role.name} has no profile\nAdd one to {role.folder / 'profiles'}.")
    wanted = entry.get("profile")
    if wanted is None:
        default = role.source.data.get("default_profile")
        names = list(there)
        if default in there and not entry.get("profiles_file"):
            names = [str(default), *(name for name in names if name != default)]
        return [(name, there[name]) for name in (names if side == CLIENT else names[:1])]
    if wanted == "all":
        return list(there.items())
    listed = wanted if isinstance(wanted, list) else [wanted]
    return [_one(role, there, each) for each in listed]


def _one(role: RoleFolder, there: Mapping[str, Any], wanted: str | int) -> tuple[str, Mapping[str, Any]]:
    names = list(there)
    if isinstance(wanted, int) and 0 <= wanted < len(names):
        return names[wanted], there[names[wanted]]
    if isinstance(wanted, str) and wanted in there:
        return wanted, there[wanted]
    remedy = did_you_mean(str(wanted), names) or f"There are: {', '.join(names)}."
    raise UsageError(f"the role {role.name} has no profile `{wanted}`\n{remedy}")


def _from_file(role: RoleFolder, path: Path) -> dict[str, Mapping[str, Any]]:
    if not path.is_file():
        raise UsageError(f"there is no file {path} with profiles for {role.name}")
    there = read_profiles(path)
    for name, profile in there.items():
        if wrong := role.check_profile(profile):
            raise UsageError(f"{path}: the profile {name} is none for {role.name}: {wrong[0]}")
    return there
