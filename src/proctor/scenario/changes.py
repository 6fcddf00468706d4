"""Vary a scenario by path: `turns`, `actors.port.system_prompt`, `metrics.trust.pattern`.

Works on the plain form, and says which paths there are, so that a slip of the pen is found before the
first call. Flattened, the plain form is what an item's id is made of: a changed word in a scenario
makes its runs new, and the path says why.

Knows nothing of experiments or files.
"""

import copy
from collections.abc import Mapping
from typing import Any

from proctor.item import digest_of
from proctor.scenario.definition import Actor, Check, Event, Measure, Plain, Scenario, Validation, names_of

LONGEST_LEVEL = 80
"""A longer value stands in the id by its digest."""
_PARTS: Mapping[str, type] = {"actors": Actor, "metrics": Measure, "events": Event}


class NoSuchPath(Exception):
    """A scenario has nothing at this path; `known` are the names it has there."""

    def __init__(self, name: str, known: list[str], where: str) -> None:
        super().__init__(name)
        self.name, self.known, self.where = name, known, where


def check_path(plain: Plain, path: str) -> tuple[str, ...]:
    """The steps of a path that exists, or may, in this scenario; else raises `NoSuchPath`."""
    steps = tuple(path.split("."))
    _known(steps[0], names_of(Scenario), "a scenario")
    if len(steps) == 1:
        return steps
    if steps[0] == "validation" and len(steps) > 1:
        _known(steps[1], names_of(Validation), "`validation`")
        if steps[1] == "checks" and len(steps) > 2:
            _known(steps[2], list((plain.get("validation") or {}).get("checks", {})), "`validation.checks`")
            if len(steps) > 3:
                _known(steps[3], names_of(Check), f"the check `{steps[2]}`")
        return steps
    if steps[0] in _PARTS:
        _known(steps[1], list(plain.get(steps[0], {})), f"`{steps[0]}`")
        if len(steps) > 2:
            _known(steps[2], names_of(_PARTS[steps[0]]), f"`{steps[0]}.{steps[1]}`")
        return steps
    if not isinstance(plain.get(steps[0], {}), dict):
        raise NoSuchPath(steps[1], [], f"`{steps[0]}`")
    return steps


def _known(name: str, names: list[str], where: str) -> None:
    if name not in names:
        raise NoSuchPath(name, names, where)


def changed(plain: Plain, changes: Mapping[str, Any]) -> Plain:
    """A copy of a scenario with these values at these paths."""
    made = copy.deepcopy(plain)
    for path, value in changes.items():
        *outer, last = path.split(".")
        part = made
        for step in outer:
            part = part.setdefault(step, {})
        part[last] = value
    return made


def flattened(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Each value of a scenario by its path; long ones by their digest. `about` is not what is played."""
    found: dict[str, Any] = {}
    _flatten({name: value for name, value in plain.items() if name != "about"}, "", found)
    return found


def _flatten(part: Mapping[str, Any], above: str, found: dict[str, Any]) -> None:
    for name, value in part.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{above}{name}.", found)
        elif (isinstance(value, str) and len(value) > LONGEST_LEVEL) or isinstance(value, list):
            found[f"{above}{name}"] = f"sha256:{digest_of(value)[:16]}"
        else:
            found[f"{above}{name}"] = value
