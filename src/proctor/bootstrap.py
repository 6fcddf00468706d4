"""Reads the environment and the paths, once, and opens the context that everything else is given.

Of the library, only this module reads `os.environ`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.config import FILE, read_config
from proctor.context import Notice, People, RunContext, Settings
from proctor.errors import UsageError
from proctor.store import Store
from proctor.store.keys import Keys, read_keys
from proctor.store.writer import this_process


def now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


def environment() -> Mapping[str, str]:
    """The user's environment."""
    return os.environ


@dataclass(frozen=True, slots=True)
class StorePlaces:
    """Where Proctor keeps things."""

    home: Path
    store: str

    def open_store(self) -> Store:
        """The store, made or brought up to date if need be, sealed where a key is named."""
        return Store(self.store, keys_of(self))


def places(options: Mapping[str, str] | None) -> StorePlaces:
    """Where things are kept: by option, by environment, or in the user's data folder."""
    given = options or {}
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    home = (
        Path(given.get("home") or os.environ.get("PROCTOR_HOME") or data / "proctor").expanduser().resolve()
    )
    store = given.get("store") or os.environ.get("PROCTOR_STORE") or str(home / "proctor.db")
    return StorePlaces(home=home, store=store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What `proctor.toml` and the environment say together."""

    environment: Mapping[str, str]
    """The user's environment, with the addresses and keys of providers that the file names."""
    variables: Mapping[str, str]
    prices: Mapping[str, Mapping[str, float]]
    limits: Mapping[str, int]
    budget_usd: float | None = None
    """What all batches on one store may spend together; None: no limit."""
    serve: Mapping[str, str] = field(default_factory=dict)
    access_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    encryption: Mapping[str, Any] = field(default_factory=dict)


def keys_of(where: StorePlaces) -> Keys:
    """The keys that `proctor.toml` and the environment name."""
    return read_keys(configuration(where).encryption, os.environ)


def configuration(where: StorePlaces, folders: Sequence[Path] = ()) -> Configuration:
    """Read what holds for every plan; files in `folders` and the working folder come first."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "proctor"
    found = read_config([*folders, Path.cwd(), where.home, settings], os.environ)
    if found.encryption and found.encryption != read_config([where.home, settings], os.environ).encryption:
        # Every command and process has to come to the same key for one store, wherever it is started.
        raise UsageError(
            "a proctor.toml in a working folder names a key for the store, which others would not find\n"
            f"Move its section [encryption] to {where.home / FILE} or {settings / FILE}."
        )
    return Configuration(
        environment={**found.variables, **os.environ},
        variables=found.variables,
        prices=found.prices,
        limits=found.limits,
        budget_usd=found.budget_usd,
        serve=found.serve,
        access_keys=found.access_keys,
        evaluation=found.evaluation,
        encryption=found.encryption,
    )


def load_settings(folders: Sequence[Path] = (), *, home: str = "", store: str = "") -> Settings:
    """Read environment and `proctor.toml`; files in `folders` and the working folder take precedence.

    `home` and `store` override PROCTOR_HOME and PROCTOR_STORE.
    """
    where = places({"home": home, "store": store})
    config = configuration(where, folders)
    return Settings(
        home=where.home,
        store_url=where.store,
        folders=tuple(folders),
        user_environment=dict(os.environ),
        environment=config.environment,
        variables=config.variables,
        prices=config.prices,
        call_limits=config.limits,
        store_budget_usd=config.budget_usd,
        serve=config.serve,
        access_keys=config.access_keys,
        evaluation=config.evaluation,
        encryption=config.encryption,
    )


def ignore_notice(notice: Notice) -> None:
    """For callers that show no messages."""


@contextmanager
def open_context(
    folders: Sequence[Path] = (),
    *,
    home: str = "",
    store: str = "",
    opened: Store | None = None,
    notice: Callable[[Notice], None] = ignore_notice,
    people: People | None = None,
) -> Iterator[RunContext]:
    """The context of a run whose names are looked up in `folders`; its store is closed afterwards.

    With `opened`, an open store is used and stays open. `people` asks the person at this terminal.
    """

    def settings_for(others: Sequence[Path]) -> Settings:
        return load_settings(others, home=home, store=store)

    settings = settings_for(folders)
    context = RunContext(
        settings,
        owner=this_process(),
        now=now,
        monotonic=time.monotonic,
        settings_for=settings_for,
        keys=lambda: keys_of(StorePlaces(home=settings.home, store=settings.store_url)),
        notice=notice,
        store=opened,
        people=people,
    )
    try:
        yield context
    finally:
        context.close()
