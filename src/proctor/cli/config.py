"""`proctor.toml`: providers, prices and limits that hold for every plan.

Looked for beside the plan, in the working folder, in Proctor's home and in the user's settings; the
nearest file that says something about a thing wins. Keys are never written in it: `key` names the
environment variable that holds one.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from proctor.errors import UsageError

FILE = "proctor.toml"
SECTIONS = {
    "providers": ("base_url", "key"),
    "prices": ("input", "cached", "cache_write", "output"),
    "limits": ("concurrency",),
}
"""What a file may hold: each section's entries, and the settings of an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the files say together."""

    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """USD per million tokens, by model."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Calls at once, by `provider/model` or provider."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What a provider's settings come to as environment variables: `ACME_BASE_URL`, `ACME_API_KEY`."""
    files: tuple[str, ...] = ()


def read_config(folders: Iterable[Path], environment: Mapping[str, str]) -> Config:
    """Read every `proctor.toml` in these folders, the most important first."""
    found = [folder / FILE for folder in dict.fromkeys(folders) if (folder / FILE).is_file()]
    merged: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for path in reversed(found):
        for section, entries in _read(path).items():
            merged[section].update(entries)
    return Config(
        prices=merged["prices"],
        limits={name: entry["concurrency"] for name, entry in merged["limits"].items()},
        variables=_variables(merged["providers"], environment),
        files=tuple(map(str, found)),
    )


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}\nMend the file, or move it away.") from error
    for section, entries in data.items():
        if section not in SECTIONS:
            raise UsageError(f"{path}: there is no section [{section}]\n{_near(section, SECTIONS)}")
        if not isinstance(entries, dict):
            raise UsageError(f"{path}: `{section}` is no section\nWrite [{section}.NAME].")
        for name, entry in entries.items():
            _check(path, section, name, entry)
    return data


def _check(path: Path, section: str, name: str, entry: Any) -> None:
    where = f"{path}: [{section}.{name}]"
    if not isinstance(entry, dict):
        raise UsageError(f"{where} holds no settings\nIt may have: {', '.join(SECTIONS[section])}.")
    for setting, value in entry.items():
        if setting not in SECTIONS[section]:
            raise UsageError(f"{where} has no setting `{setting}`\n{_near(setting, SECTIONS[section])}")
        if section == "providers" and not isinstance(value, str):
            raise UsageError(f"{where}: `{setting}` should be text")
        if section != "providers" and not (type(value) in (int, float) and value >= 0):
            raise UsageError(f"{where}: `{setting}` should be a number that is not negative")
    needed = {"providers": ("base_url",), "prices": ("input", "output"), "limits": ("concurrency",)}[section]
    for setting in needed:
        if setting not in entry:
            raise UsageError(f"{where} lacks `{setting}`")


def _variables(providers: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for name, settings in providers.items():
        prefix = "".join(letter if letter.isalnum() else "_" for letter in name).upper()
        made[f"{prefix}_BASE_URL"] = settings["base_url"]
        variable = settings.get("key", "").removeprefix("${").removesuffix("}")
        if variable and (key := environment.get(variable)):
            made[f"{prefix}_API_KEY"] = key
    return made


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return (f"Did you mean `{near[0]}`? " if near else "") + f"There are: {', '.join(names)}."
