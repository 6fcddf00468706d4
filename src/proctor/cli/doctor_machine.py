"""What `proctor doctor` finds out about this machine: programs, folders, processes, keys, agents.

Costs no money, asks nobody outside, and leaves nothing behind. Of keys only the names of the
variables are told.
"""

import asyncio
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.agents import agent_names
from proctor.cli.agents import look
from proctor.cli.house import Places
from proctor.errors import ProctorError
from proctor.git import Git
from proctor.models import local
from proctor.models.providers import PROVIDERS
from proctor.processes import run
from proctor.store.pools import withdraw

OLDEST_PYTHON = (3, 11)
# Older ones do not know all of what work trees are made with.
OLDEST_GIT = (2, 31)
LEAST_FREE_BYTES = 2 * 1024**3
"""A batch of agents fills a work tree and a home each; below this the first may already fail."""
_SEVERAL = 4
"""Agents whose version is asked for at once; each starts a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    well: bool | None
    """None: neither well nor wrong, worth knowing."""
    said: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What trying something came to, for people and for programs."""

    finding: Finding
    document: Mapping[str, Any]


def look_at_machine(where: Places, environment: Mapping[str, str]) -> Iterator[Finding]:
    """What every batch needs."""
    yield _python()
    yield _git(environment)
    yield _store(where)
    yield _disk(where.home)
    yield asyncio.run(_processes(environment))


def look_around(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Who could be asked and who could work. Nobody has to be there: stand-ins need neither."""
    yield _keys(environment)
    names = [name for name in agent_names() if name not in ("command", "scripted")]
    with ThreadPoolExecutor(_SEVERAL) as several:
        for name, (found, _) in zip(names, several.map(look, names), strict=True):
            known = found.version or found.problem
            said = f"ready, {known}".removesuffix(", ") if found.ready else found.problem
            yield Finding(
                name=f"agent {name}", well=True if found.ready else None, said=said, remedy=found.remedy
            )


def _python() -> Finding:
    well = sys.version_info[:2] >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    remedy = "" if well else f"Install Python {oldest} or newer."
    return Finding(name="python", well=well, said=platform.python_version(), remedy=remedy)


def _git(environment: Mapping[str, str]) -> Finding:
    wanted = ".".join(map(str, OLDEST_GIT))
    try:
        said = Git(Path("/"), environment)("version").strip()
    except (ProctorError, OSError) as error:
        return Finding(
            name="git",
            well=False,
            said=f"cannot be started: {error}",
            remedy=f"Install git {wanted} or newer.",
        )
    number = re.search(r"(\d+)\.(\d+)", said)
    well = number is not None and (int(number[1]), int(number[2])) >= OLDEST_GIT
    return Finding(name="git", well=well, said=said, remedy="" if well else f"Install git {wanted} or newer.")


def _store(where: Places) -> Finding:
    if "://" not in where.store and not Path(where.store).exists():
        folder = _existing(Path(where.store).parent)
        well = os.access(folder, os.W_OK)
        said = "will be made by the first batch" if well else f"cannot be made: {folder} is not writable"
        remedy = "" if well else "Give another place with --home or PROCTOR_HOME."
        return Finding(name="store", well=well, said=f"{where.store} {said}", remedy=remedy)
    try:
        with where.open_store() as store:
            writer = store.writer()
            try:
                # Changes nothing, but is refused where nothing can be changed.
                writer.ask(lambda connection: withdraw(connection, "doctor")).result(timeout=30)
            finally:
                writer.close()
            shown = store.url
    except (ProctorError, OSError, TimeoutError) as error:
        remedy = "Give another place with --store or PROCTOR_STORE, or mend this one."
        return Finding(name="store", well=False, said=str(error), remedy=remedy)
    return Finding(name="store", well=True, said=f"{shown} can be read and written")


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(_existing(home)).free
    well = free >= LEAST_FREE_BYTES
    remedy = "" if well else "Make room, or give another place with --home or PROCTOR_HOME."
    return Finding(name="disk", well=well, said=f"{free / 1024**3:.1f} GiB free at {home}", remedy=remedy)


async def _processes(environment: Mapping[str, str]) -> Finding:
    """Leave a process behind, as agents do, and see whether it is found and ended."""
    given = {"PATH": environment.get("PATH", os.defpath)}
    try:
        ran = await run(
            "sleep 60 & exit 0", folder=Path("/"), environment=given, attempt="doctor", time_limit=20
        )
    except ProctorError as error:
        return Finding(name="processes", well=False, said=f"no program can be started: {error}")
    if ran.leftovers:
        return Finding(name="processes", well=True, said="what a program leaves running is found and ended")
    said = "what a program leaves running is not found, so it cannot be ended"
    return Finding(name="processes", well=False, said=said, remedy="Proctor needs Linux, with /proc mounted.")


def _keys(environment: Mapping[str, str]) -> Finding:
    found = [
        f"{name} ({variable})"
        for name, provider in PROVIDERS.items()
        for variable in provider.key_variables
        if environment.get(variable)
    ]
    if local.is_ours(local.MODEL, environment) and local.is_installed():
        found.append(f"{local.MODEL} (needs none)")
    if found:
        return Finding(name="keys", well=True, said=f"set for {', '.join(found)}")
    said = "no provider's key is set; scripted models and servers on this machine need none"
    return Finding(name="keys", well=None, said=said, remedy="`docs/models.md` lists the variables.")


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def is_well(findings: Sequence[Finding]) -> bool:
    """Whether nothing was found to be wrong."""
    return not any(finding.well is False for finding in findings)
