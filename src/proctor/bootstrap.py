"""Reads environment, paths and `proctor.toml` once, and opens the context of a run.

Of the library, only this module reads `os.environ`.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from proctor.config import FILE, read_config, redirected_keys
from proctor.context import Notice, People, RunContext, Settings
from proctor.errors import UsageError
from proctor.models.rate_limits import OUTAGE_PATIENCE_SECONDS
from proctor.store import Store
from proctor.store.keys import Keys, SigningKeyFile, read_keys
from proctor.store.writer import this_process

_latest = (0, datetime.fromtimestamp(0, UTC))
"""Millisecond of the last call of `now`, and the time it returned."""
SIGNING_KEY = "signing.key"
"""File in the home folder with the key that results are signed with."""


def now() -> datetime:
    """The current time in milliseconds, as the store writes it.

    The same object within a millisecond: a batch asks for it ten times an item.
    """
    global _latest
    millisecond = time.time_ns() // 1_000_000
    latest = _latest
    if latest[0] != millisecond:
        _latest = latest = (millisecond, datetime.fromtimestamp(millisecond / 1000, UTC))
    return latest[1]


def locate(*, home: str = "", store: str = "") -> tuple[Path, str]:
    """The home folder and the path or URL of the store: by argument, by environment, or by default."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    folder = Path(home or os.environ.get("PROCTOR_HOME") or data / "proctor").expanduser().resolve()
    return folder, store or os.environ.get("PROCTOR_STORE") or str(folder / "proctor.db")


def load_settings(folders: Sequence[Path] = (), *, home: str = "", store: str = "") -> Settings:
    """Read environment and `proctor.toml`; files in `folders` and the working folder take precedence.

    `home` and `store` override PROCTOR_HOME and PROCTOR_STORE.
    """
    home_folder, store_url = locate(home=home, store=store)
    user_folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "proctor"
    shared = [home_folder, user_folder]
    config = read_config([*folders, Path.cwd(), *shared], os.environ)
    trusted = read_config(shared, os.environ)
    places = f"{home_folder / FILE} or {user_folder / FILE}"
    if config.encryption and config.encryption != trusted.encryption:
        # Every process must use the same key for one store, whichever folder it is started in.
        raise UsageError(
            "a proctor.toml in a working folder names a key for the store, which others would not find\n"
            f"Move its section [encryption] to {places}."
        )
    for section, own, others in (
        ("tokens", config.tokens, trusted.tokens),
        ("access_keys", config.access_keys, trusted.access_keys),
    ):
        if own != others:
            # A folder that another user wrote must not grant them access.
            raise UsageError(
                f"a proctor.toml in a working folder names {section.replace('_', ' ')} of the server\n"
                f"Move its section [serve.{section}] to {places}."
            )
    if config.watches != trusted.watches:
        # It starts programs and sends results elsewhere.
        raise UsageError(f"a proctor.toml in a working folder has a [[watch]]\nMove it to {places}.")
    return Settings(
        home=home_folder,
        store_url=store_url,
        folders=tuple(folders),
        user_environment=dict(os.environ),
        environment={**config.variables, **os.environ},
        variables=config.variables,
        prices=config.prices,
        call_limits=config.limits,
        outage_patience_seconds=(
            OUTAGE_PATIENCE_SECONDS
            if config.outage_patience_seconds is None
            else config.outage_patience_seconds
        ),
        store_budget_usd=config.budget_usd,
        serve=config.serve,
        access_keys=config.access_keys,
        tokens=config.tokens,
        evaluation=config.evaluation,
        watches=config.watches,
        encryption=config.encryption,
        sandbox=config.sandbox,
        remarks=tuple(redirected_keys(config, trusted)),
    )


def store_keys(settings: Settings) -> Keys:
    """The keys of the store: those that encrypt it, and the one that signs results."""
    signing = SigningKeyFile(settings.home / SIGNING_KEY)
    return replace(read_keys(settings.encryption, os.environ), signing=signing)


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
    """The context of a run whose names are looked up in `folders`; its store is closed afterward.

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
        keys=lambda: store_keys(settings),
        notice=notice,
        store=opened,
        people=people,
    )
    try:
        yield context
    finally:
        context.close()
