"""What the server stands on: the outside world, handed in from the edge.

Knows nothing of HTTP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.models import ModelRouter
from proctor.session import DEFAULT_LOG_GROUP
from proctor.store import Store


@dataclass(frozen=True, kw_only=True)
class AppState:
    """One server over one store. What it starts are processes of their own, by `command`."""

    store: Store
    home: Path
    folder: Path
    """Where plans that are typed in are at home: relative paths begin here."""
    now: Callable[[], datetime]
    command: Sequence[str]
    """How a `proctor` of this store and home is started: the program and its global options."""
    make_models: Callable[[], ModelRouter]
    """Every model that can be reached from here; close it after use."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What is found in the user's environment and configuration. Never shown."""
    token: str = ""
    """What callers must show. Empty: everybody on this machine may call."""
    hosts: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"})
    """The names this server may be called by while it asks for no token; a page of another site that
    had its own name point here would be called by that one."""
    access_keys: Mapping[str, str] = field(default_factory=dict)
    """Access key ids and their secrets, for callers that sign their requests."""
    log_group: str = DEFAULT_LOG_GROUP
    """Where sessions belong that arrive without saying so."""
    region: str = "us-east-1"
    account: str = "000000000000"
    """What names of resources say."""
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    """What the configuration says of evaluations: `judge`, `harmful_value`, `limits`, `lambdas`."""

    @property
    def kept(self) -> Path:
        """Where the server keeps what it needs itself: plans that were typed in, logs of what it started."""
        return self.home / "serve"
