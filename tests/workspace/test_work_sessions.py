"""The work session of a coding item: its settings, folders, notes, and how it is prepared and cleaned up."""

import os
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.item import Item
from proctor.runner import no_commit
from proctor.session import Note
from proctor.testing import make_git_repository
from proctor.workspace import setup
from proctor.workspace.setup import WorkSession
from proctor.workspace.source_repository import SourceRepository, open_source

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> SourceRepository:
    return open_source(
        make_git_repository(tmp_path_factory.mktemp("source") / "shop", {"a.txt": "a\n"}), ENVIRONMENT
    )


class Services:
    """What an attempt may use; records events, phases and confinements."""

    def __init__(self, home: Path, **more: Any) -> None:
        self.events, self.phases, self.confined = list[Any](), list[str](), list[Any]()
        self.home, self.session_id, self.attempt = home, "s1", 1
        self.environment: Mapping[str, str] = ENVIRONMENT
        self.driver_files, self.record = None, self.events.append
        self.sandbox = SimpleNamespace(kind_of=lambda setting: f"kind of {setting}", confine=self._confine)
        self.now, self.commit = lambda: NOW, no_commit
        for name, value in more.items():
            setattr(self, name, value)

    def _confine(self, *arguments: Any, **named: Any) -> str:
        self.confined.append((arguments, named))
        return "confined"

    @contextmanager
    def phase(self, name: str) -> Any:
        self.phases.append(name)
        yield

    @property
    def notes(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Note)]


def item(repo: Path | str = "/x", **more: Any) -> Item:
    """A coding item; `settings` and `details` are added to the usual ones."""
    settings = {"repo": str(repo), "sandbox": "none", **more.pop("settings", {})}
    details = {"baseBranch": "main", **more.pop("details", {})}
    return Item(**{"prompt": "Fix it.", "model": "m"} | more, settings=settings, details=details)


def session(place: Path, of: Item | None = None, **more: Any) -> WorkSession:
    """A session whose tree is not made."""
    source = SimpleNamespace(
        root=place / "shop",
        common=place / "shop/.git",
        copy=None,
    )
    tree = SimpleNamespace(
        place=place / "s",
        folder=place / "s/shop",
        branch="batch/x",
        source=source,
        repository=place / "s/git",
        base=SimpleNamespace(folders=(place / "objects",)),
    )
    usual = {
        "item": of or item(place / "shop"),
        "services": Services(place / "home"),
        "tree": tree,
        "home": place / "s/home",
        "environment": {},
        "port": 20_000,
        "before": {},
    }
    return WorkSession(**usual | more)


def test_branches_of_one_moment_have_different_names() -> None:
    at = NOW.astimezone(timezone(timedelta(hours=2)))
    start = "batch/fix/20260102-030405/"
    assert setup.session_name("fix", at, "0123456789", 1) == f"{start}01234567"
    assert setup.session_name("fix", at, "0123456789", 2) == f"{start}01234567-2"
    assert setup.session_name("fix", at, "0123", 1) == f"{start}0123"
    names = [f"{start}01234567", f"{start}012345678", f"{start}0123456789"]
    assert setup.session_name("fix", at, "0123456789", 1, names[:1]) == names[1]
    assert setup.session_name("fix", at, "0123456789", 1, names[:2]) == names[2]
    assert setup.session_name("fix", at, "0123456789", 1, names) == f"{names[2]}.1"
    everything = [*names, *(f"{names[2]}.{number}" for number in range(1, 100))]
    assert setup.session_name("fix", at, "0123456789", 1, everything[:-1]) == f"{names[2]}.99"
    assert setup.session_name("fix", at, "0123456789", 1, everything) == f"{names[2]}.99"


@pytest.mark.parametrize(
    ("settings", "limit", "setup_limit", "check_limit"),
    [
        ({}, None, 900.0, 900.0),
        ({"timeoutSec": 60}, 60.0, 900.0, 900.0),
        ({"timeoutSec": 1000}, 1000.0, 1000.0, 1000.0),
        ({"timeoutSec": 1000, "setupTimeoutSec": 5}, 1000.0, 5.0, 1000.0),
        ({"checkTimeoutSec": 7}, None, 900.0, 7.0),
    ],
)
def test_how_long_the_parts_of_a_session_may_take(
    settings: dict[str, int], limit: float | None, setup_limit: float, check_limit: float, tmp_path: Path
) -> None:
    made = session(tmp_path, item(settings=settings))
    assert (made.time_limit, made.command_limit("setup"), made.command_limit("check")) == (
        limit,
        setup_limit,
        check_limit,
    )


def test_programs_are_confined_to_what_the_plan_names(tmp_path: Path) -> None:
    made = session(tmp_path, item(details={"env": {"A": "/data"}}, settings={"sandbox": "bubblewrap"}))
    made.confinement(
        "agent", named=["run /x"], serve={1: "s"}, usual_network="none", concealed=[Path("/secret")]
    )
    made.confinement("check")
    full, plain = made.services.confined
    assert full[0] == ("agent", "bubblewrap") and plain[0] == ("check", "bubblewrap")
    assert full[1] == {
        "folders": [tmp_path / "s" / name for name in ("shop", "git", "home")],
        "home": tmp_path / "s/home",
        "read": (tmp_path / "objects",),
        "named": ["run /x", "/data"],
        "serve": {1: "s"},
        "usual_network": "none",
        "mounts": {},
        "concealed": [Path("/secret")],
    }
    assert (plain[1]["named"], plain[1]["serve"], plain[1]["concealed"]) == (["/data"], None, ())
    bare = session(tmp_path)
    bare.confinement("check")
    assert bare.services.confined[0][1]["named"] == []


def test_the_environment_of_a_session_has_its_own_places_and_no_settings_of_the_user() -> None:
    visible = {"PATH": "/bin", "GIT_DIR": "g", "SSH_KEY": "s", "PROCTOR_X": "p", "XDG_X": "x", "HOME": "/u"}
    made = setup.session_environment(
        item(prompt="Do\0 it", details={"env": {"A": "${PATH}:1", "PORT": "5"}}),
        visible,
        Path("/h"),
        Path("/w"),
        20_001,
    )
    assert made == {
        "PATH": "/bin",
        "HOME": "/h",
        "XDG_CONFIG_HOME": "/h/.config",
        "XDG_DATA_HOME": "/h/.local/share",
        "XDG_STATE_HOME": "/h/.local/state",
        "XDG_CACHE_HOME": "/h/.cache",
        "TMPDIR": "/h/tmp",
        "PWD": "/w",
        "PORT": "5",
        "PROCTOR_PORT": "20001",
        "PROCTOR_PROMPT": "Do it",
        "PROCTOR_MODEL": "m",
        "A": "/bin:1",
    }
