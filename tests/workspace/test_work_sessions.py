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
        self.now = lambda: NOW
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


@pytest.mark.parametrize(
    ("prompt", "slug"),
    [
        ("Fix it, please!", "fix-it-please"),
        ("--a--", "a"),
        ("x" * 40, "x" * 30),
        ("x" * 29 + " yz", "x" * 29),
        ("", "session"),
        ("äöü", "session"),
        (" " * 1000 + "late", "session"),
        (" " * 999 + "late", "l"),
    ],
)
def test_the_start_of_a_prompt_names_the_branch(prompt: str, slug: str) -> None:
    assert setup.slug_of(prompt) == slug


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
    ("prompt", "title"),
    [
        ("x" * 72, "x" * 72),
        ("x" * 73, "x" * 71 + "…"),
        ("x" * 70 + " yz", "x" * 70 + "…"),
        ("\n\n  Fix it. \nNow.", "Fix it."),
        ("", "Changes by the agent"),
    ],
)
def test_the_first_line_of_a_prompt_is_the_title(prompt: str, title: str, tmp_path: Path) -> None:
    assert setup.title_of(prompt) == title
    assert session(tmp_path, item(prompt=prompt)).message == f"{title}\n\nbatch/x\n"


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


def test_the_base_and_the_check_of_a_session(tmp_path: Path) -> None:
    made = session(tmp_path, item(details={"baseBranch": "dev", "scriptCommand": "make test"}))
    assert (made.base_branch, made.check, made.logs) == ("dev", "make test", tmp_path / "s/logs")
    assert session(tmp_path).check == ""


def test_package_caches_are_shared_with_setup_alone(tmp_path: Path) -> None:
    apart, shared = session(tmp_path), session(tmp_path, item(settings={"cache": "shared"}))
    caches = tmp_path / "home/caches"
    assert (apart.caches, apart.cache_variables, caches.exists()) == (None, {}, False)
    variables = shared.cache_variables
    assert shared.caches == caches and shared.cache_variables == variables
    assert variables["PIP_CACHE_DIR"] == str(caches / "pip") and variables["UV_LINK_MODE"] == "copy"
    assert variables["npm_config_store_dir"] == str(caches / "pnpm")
    assert {path.name for path in caches.iterdir()} == set(setup.SHARED_CACHES.values())

    for each in (apart, shared):
        for phase in ("setup", "agent"):
            assert each.confinement(phase) == "confined"
    folders = [[path.name for path in named["folders"]] for _, named in apart.services.confined]
    assert folders == [["shop", "git", "home"], ["shop", "git", "home"]]
    folders = [[path.name for path in named["folders"]] for _, named in shared.services.confined]
    assert folders == [["shop", "git", "home", "caches"], ["shop", "git", "home"]]


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


def test_answers_of_a_task_are_where_its_files_and_later_commits_are(tmp_path: Path) -> None:
    assert session(tmp_path).answers == [tmp_path / "shop/.git"]
    sealed = session(tmp_path, item(details={"sealed": True}))
    assert sealed.answers == [tmp_path / "shop", tmp_path / "shop/.git"]
    (tmp_path / "link").symlink_to(tmp_path / "tasks")
    named = session(tmp_path, item(settings={"taskPath": str(tmp_path / "link")}))
    assert named.answers == [tmp_path / "tasks", tmp_path / "shop/.git"]


def test_folders_are_mounted_where_programs_of_the_task_expect_them(tmp_path: Path) -> None:
    places = {"/work": "work", "/logs": "logs", "/tests": "check_files", "/answer": "solution"}
    made = session(tmp_path, item(details={"places": places}))
    assert made.mounts == {}
    for folder in ("s/shop", "s/logs", "s/check_files"):
        (tmp_path / folder).mkdir(parents=True)
    # A program with a sandbox may have left this; it must not show a folder of the user's.
    (tmp_path / "s/solution").symlink_to(tmp_path)
    assert made.mounts == {
        "/work": tmp_path / "s/shop",
        "/logs": tmp_path / "s/logs",
        "/tests": tmp_path / "s/check_files",
    }
    assert session(tmp_path).mounts == {}


def test_a_long_note_is_clipped(tmp_path: Path) -> None:
    made = session(tmp_path)
    made.note("x" * 8000)
    made.note("x" * 4000 + "y" + "z" * 4000)
    short, long = made.services.notes
    assert short == "x" * 8000
    assert long == "x" * 4000 + "\n[… 1 characters left out …]\n" + "z" * 4000


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
