"""The work session of a coding item: its settings, folders, notes, and how it is prepared and cleaned up."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import WorkspaceError
from proctor.git import GitError
from proctor.item import Item
from proctor.session import Note, Workspace
from proctor.testing import make_git_repository
from proctor.workspace import setup
from proctor.workspace.setup import WorkSession
from proctor.workspace.source_repository import CopyOf, SourceRepository, open_source
from proctor.workspace.worktree import Submodules, session_folder

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


def test_a_prompt_in_the_environment_has_at_most_100_000_bytes() -> None:
    assert setup._shortened("é" * 50_000 + "x") == "é" * 50_000
    assert setup._shortened("x" * 100_001) == "x" * 100_000


async def test_a_session_is_prepared_and_its_repository_is_left_as_it_was(
    tmp_path: Path, source: SourceRepository
) -> None:
    services = Services(tmp_path / "home")
    made = await setup.prepare(item(source.root), services)
    place = session_folder(tmp_path / "home", "s1") / "work"
    name = f"batch/fix-it/20260102-030405/{item(source.root).id[:8]}"
    base = source.base_commit("main")
    assert services.events == [
        Workspace(
            name=name,
            branch=name,
            worktree=str(place / "shop"),
            repo=str(source.root),
            base_branch="main",
            base_sha=base,
            sandbox="kind of none",
        )
    ]
    assert services.phases == ["checkout", "checkout"]
    assert (made.tree.folder / "a.txt").read_text() == "a\n"
    assert (made.home, made.environment["HOME"]) == (place / "home", str(place / "home"))
    assert made.environment["PWD"] == str(place / "shop")
    assert made.environment["PORT"] == str(made.port) and made.port in setup._ports_in_use
    assert made.before["HEAD"] == "main" and made.before["refs/heads/main"] == base
    assert made.submodules == Submodules()

    fresh = await setup.fresh_session(made)
    judged = place.parent / "judged/work"
    assert fresh.tree.folder == judged / "shop"
    assert (fresh.tree.branch, fresh.tree.base_sha, fresh.port) == (name, base, made.port)
    assert (fresh.home, fresh.environment["HOME"]) == (judged / "home", str(judged / "home"))
    assert fresh.environment["PWD"] == str(judged / "shop")
    assert (fresh.tree.folder / "a.txt").read_text() == "a\n" and (fresh.home / ".gitconfig").exists()
    await setup.remove_fresh(made)
    assert not judged.parent.exists() and made.tree.folder.exists()

    await setup.clean_up(made, True)
    assert not place.parent.exists() and made.port not in setup._ports_in_use and services.notes == []


async def test_a_session_that_cannot_be_prepared_leaves_no_port_and_no_folder(
    tmp_path: Path, source: SourceRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = set(setup._ports_in_use)

    def broken(*_: object) -> None:
        raise GitError(("status",), 1, "broken")

    services = Services(tmp_path / "home")
    for name, problem in (
        ("make_tree", "making a work tree of"),
        ("fingerprint", "reading the repository"),
        ("own_references", "reading the repository"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(setup, name, broken if name != "make_tree" else lambda *_, **__: broken())
            with pytest.raises(WorkspaceError, match=f"^{problem} {source.root}: .*broken"):
                await setup.prepare(item(source.root), services)
        assert setup._ports_in_use == ports
        assert not session_folder(tmp_path / "home", "s1").exists()


async def test_a_repository_of_another_machine_is_a_copy_of_it(
    tmp_path: Path, source: SourceRepository
) -> None:
    asked = list[Any]()

    async def repository(path: Path, base: str) -> Path:
        asked.append((path, base))
        return source.root

    services = Services(tmp_path, driver_files=SimpleNamespace(repository=repository))
    opened = await setup._open(item("/there/shop", details={"baseBranch": "dev"}), services)
    assert (opened.root, asked) == (source.root, [(Path("/there/shop"), "dev")])
    address = "https://example.org/shop.git"
    with pytest.raises(WorkspaceError, match=f"{address}: clone it for workers on other machines"):
        await setup._open(item(address), services)


@pytest.mark.parametrize(
    ("below", "copy", "is_inside"),
    [
        ("shop", None, False),
        ("shop/.git", None, False),
        ("shop/part", None, True),
        ("shop", CopyOf(bases={}, is_inside=True), True),
        ("shop/part", CopyOf(bases={}, is_inside=False), False),
    ],
)
def test_what_a_session_cannot_do_is_noted(
    tmp_path: Path, below: str, copy: CopyOf | None, is_inside: bool
) -> None:
    made = session(tmp_path, item(tmp_path / below))
    made.tree.source.copy = copy
    setup._note_limitations(made)
    note = f"{tmp_path / below} is inside the repository {tmp_path / 'shop'}; the session works in all of it"
    assert made.services.notes == ([note] if is_inside else [])


def test_submodules_and_addresses_of_a_session(tmp_path: Path) -> None:
    empty = tuple(f"m{number:02}" for number in range(21))
    made = session(
        tmp_path, item("https://example.org/shop.git"), submodules=Submodules(empty=empty, filled=("x",))
    )
    setup._note_limitations(made)
    assert made.services.notes == [
        f"submodules whose files your checkout does not have are empty: {', '.join(empty[:20])}",
        "changes of the agent in submodules are not committed",
    ]


def test_changes_of_the_repository_are_noted_but_not_those_of_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = "refs/heads/main"
    after = {base: "2", "its index": "b", "new": "x"}
    before = {base: "1", "its index": "a"}
    made = session(tmp_path, before=before)
    made.tree.source.references = dict
    asked = list[Any]()
    is_merge = [False]
    monkeypatch.setattr(setup, "fingerprint", lambda source, references: dict(after))
    monkeypatch.setattr(setup, "was_merged", lambda *call: asked.append(call) or is_merge[0])

    start = f"while this ran, the repository at {tmp_path / 'shop'} changed: "
    changes = setup._repository_changes(made)
    assert changes == f"{start}its index changed; new is new; {base} changed"
    is_merge[0] = True
    assert setup._repository_changes(made) == f"{start}new is new"
    assert asked[0] == (tmp_path / "home", made.tree.source, "2") and before[base] == "1"
    del asked[:]
    after[base] = "1"
    assert setup._repository_changes(made) == f"{start}its index changed; new is new" and asked == []
    after.clear()
    after.update(before)
    assert setup._repository_changes(made) == ""
    after.update({f"f{number:02}": "x" for number in range(31)})
    assert setup._repository_changes(made).count(" is new") == 30

    def unreadable(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(setup, "fingerprint", unreadable)
    problem = f"the repository at {tmp_path / 'shop'} can no longer be read: gone"
    assert setup._repository_changes(made) == problem


async def test_as_many_worktrees_are_filled_at_once_as_there_are_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    slots = setup._fill_slots()
    assert setup._fill_slots() is slots
    async with asyncio.timeout(30):
        for _ in range(3):
            assert not slots.locked()
            await slots.acquire()
    assert slots.locked()
