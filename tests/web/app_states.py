"""The state of a server under test, from a store, folders and an environment of its own."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.bootstrap import ignore_notice
from proctor.config import WatchSection
from proctor.context import RunContext, Settings
from proctor.store import Store
from proctor.store.keys import Keys
from proctor.store.writer import this_process
from proctor.web.state import AppState


def make_state(
    store: Store,
    *,
    home: Path,
    folder: Path,
    environment: Mapping[str, str],
    command: Sequence[str],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    evaluation: Mapping[str, Any] | None = None,
    watches: Sequence[WatchSection] = (),
    **options: Any,
) -> AppState:
    """A state whose settings come from the arguments, and from no file."""
    settings = Settings(
        home=home,
        store_url=environment.get("PROCTOR_STORE") or str(home / "proctor.db"),
        folders=(folder,),
        user_environment=environment,
        environment=environment,
        evaluation=evaluation or {},
        watches=tuple(watches),
    )
    return AppState(context=_context(settings, store, now, time.monotonic), command=command, **options)


def changed_state(state: AppState, **changes: Any) -> AppState:
    """The same with other fields, settings (`environment`), store or clocks (`now`, `monotonic`)."""
    store = changes.pop("store", state.context.store)
    clocks = changes.pop("now", state.now), changes.pop("monotonic", state.context.monotonic)
    names = {each.name for each in fields(Settings)} & set(changes) - {each.name for each in fields(AppState)}
    settings = replace(state.context.settings, **{name: changes.pop(name) for name in names})
    return replace(state, context=_context(settings, store, *clocks), **changes)


def _context(
    settings: Settings, store: Store, now: Callable[[], datetime], monotonic: Callable[[], float]
) -> RunContext:
    return RunContext(
        settings,
        owner=this_process(),
        now=now,
        monotonic=monotonic,
        settings_for=lambda _: settings,
        keys=Keys,
        notice=ignore_notice,
        store=store,
    )
