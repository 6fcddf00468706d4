"""A server over a store in the test's folder, someone who calls it, and a real browser."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from app_states import changed_state, make_state
from calling import Served
from looks import WINDOW
from threaded_server import ThreadedServer

from command_server import CommandServer
from commands import Command
from proctor.results.loading import load_results
from proctor.testing import make_git_repository
from proctor.web.app import create_app
from proctor.web.state import AppState
from waiting import TIME_LIMIT_SECONDS

PAGE_SECONDS = 120.0
"""For anything a test expects of a page."""
CHROMIUM = (
    "--no-sandbox",
    # One process for all pages, one less for the network: a page takes a fifth less processor time.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--enable-features=NetworkServiceInProcess2",
)


STORED = "local_storage,indexeddb,websql,service_workers,cache_storage,file_systems"
"""All kinds but the cache of what servers answered."""


@dataclass
class _Servers:
    """Servers of a test, ended with it."""

    site: AppState
    running: list[ThreadedServer] = field(default_factory=list)

    def __call__(self, **changes: Any) -> Served:
        port = changes.pop("port", 0)
        site = changed_state(self.site, **changes)
        server = ThreadedServer(create_app(site), port=port)
        self.running.append(server)
        return Served(site, server.port)

    def end(self) -> None:
        for server in self.running:
            server.stop()


@contextmanager
def _site(proctor: Command, empty_store_file: Path) -> Iterator[AppState]:
    home = proctor.folder / "proctor-home"
    home.mkdir(mode=0o700)
    shutil.copy(empty_store_file, home / "proctor.db")
    with proctor.open_store() as store:
        yield make_state(
            store,
            home=home,
            folder=proctor.folder,
            command=[*proctor.program, "--home", str(home)],
            environment=proctor.environment,
        )


@contextmanager
def _servers(site: AppState) -> Iterator[_Servers]:
    servers = _Servers(site)
    yield servers
    servers.end()


@pytest.fixture
def site(proctor: Command, empty_store_file: Path) -> Iterator[AppState]:
    """What a server stands on: the store and home of `proctor`, and the command itself."""
    with _site(proctor, empty_store_file) as site:
        yield site


@pytest.fixture
def serve(site: AppState) -> Iterator[Callable[..., Served]]:
    """Starts servers over one store; `serve(token="…")` changes what they stand on."""
    with _servers(site) as servers:
        yield servers


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    """A server that is up."""
    return serve()


@pytest.fixture(scope="module")
def shared_proctor(tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer) -> Command:
    """The command, with the store of `shared`."""
    return Command(tmp_path_factory.mktemp("shared"), command_server)


@pytest.fixture(scope="module")
def serve_shared(shared_proctor: Command, empty_store_file: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers over one empty store, for all tests of a module."""
    with _site(shared_proctor, empty_store_file) as site, _servers(site) as servers:
        yield servers


@pytest.fixture(scope="module")
def shared(serve_shared: Callable[..., Served]) -> Served:
    """A server over an empty store, for all tests of a module that change nothing."""
    return serve_shared()


MENDED = ("read", "merged", "conflicting", "discarded")


def _mending(name: str) -> dict[str, Any]:
    """An entry of a plan that mends one file, and prints colors and markup when it is checked."""
    script = [
        {"say": "It should add."},
        {"run": f"cat {name}.py"},
        {"usage": {"input": 900, "output": 40, "cost": 0.002}},
        {"write": {"path": f"{name}.py", "content": "# Adds.\ntotal = 1 + 1\n"}},
    ]
    check = f"printf '\\033[31mred\\033[0m and <b>bold</b>'; grep -q + {name}.py"
    return {"repo": "shop", "prompt": f"Mend {name}", "scriptCommand": check, "script": script}


@pytest.fixture(scope="module")
def mended(shared: Served, shared_proctor: Command) -> dict[str, str]:
    """Sessions of a coding batch that went well, by the file of `shop` that each has changed."""
    folder = shared_proctor.folder
    make_git_repository(folder / "shop", {f"{name}.py": "total = 1 - 1\n" for name in MENDED})
    (folder / "mend.yaml").write_text(
        json.dumps({"runId": "mend", "matrix": [_mending(name) for name in MENDED]})
    )
    done = shared_proctor("batch", "mend.yaml")
    assert done.returncode == 0, done.stderr
    items = shared.get("/api/runs/mend/items").json["items"]
    return {name: item["sessionId"] for name, item in zip(MENDED, items, strict=True)}


@pytest.fixture
def slow_model(proctor: Command) -> Path:
    """The file of a model that takes longer than any test."""
    path = proctor.folder / "slow.yaml"
    path.write_text("rules: [{reply: done}]\nlatency_seconds: 600\n")
    return path


GATE = """
import asyncio, pathlib

async def answer(prompt):
    while not pathlib.Path("OPEN").exists():
        await asyncio.sleep(0.02)
    return "right"
"""


@pytest.fixture
def gate_model(proctor: Command, shared_proctor: Command) -> Path:
    """A file with which the model `python/gate:answer` answers, and not before it is there."""
    gate = proctor.folder / "open"
    for folder in (proctor.folder, shared_proctor.folder):
        (folder / "gate.py").write_text(GATE.replace("OPEN", str(gate)))
    return gate


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Every run is large; loading it waits after its first page until the gate is opened."""
    gate = threading.Event()

    def load(read: Any, runs: Any, now: Any, progress: Callable[[int], None]) -> Any:
        def waiting(items: int) -> None:
            progress(items)
            assert gate.wait(TIME_LIMIT_SECONDS)
            progress(0)

        return load_results(read, runs, now, waiting)

    monkeypatch.setattr("proctor.results.loading.load_results", load)
    monkeypatch.setattr("proctor.api.loaded_results.LARGE", 0)
    yield gate
    gate.set()


class Chromium:
    """A browser, and the event loop it is driven by, which is at rest between tests."""

    def __init__(self, browser: Any, loop: Any) -> None:
        self.browser, self._loop = browser, loop
        # A page in a context of its own takes twice the processor time: its process compiles all scripts.
        # The page that stays open keeps the process of this one.
        self._context = self._new_context()
        self._storage = self._context.new_cdp_session(self._context.new_page())
        self._is_used = False

    @contextmanager
    def driven(self) -> Iterator[Any]:
        """The browser. While its loop counts as running, no test can have one of its own."""
        asyncio._set_running_loop(self._loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(None)

    def new_page(self, *, apart: bool = False, **options: Any) -> Any:
        """A page that knows nothing yet, where nothing moves: animations are drawn 60 times a second.

        `apart`: not in the context that tests share, which a clock, for instance, changes for good.
        """
        context = self._new_context(**options) if apart or options or self._is_used else self._context
        self._is_used |= context is self._context
        return context.new_page()

    def forget(self) -> None:
        """Close the pages of a test, and clear all that they stored but scripts and styles."""
        for context in self.browser.contexts:
            if context is not self._context:
                context.close()
        for page in self._context.pages[1:]:
            page.close()
        if self._is_used:
            self._context.clear_cookies()
            self._storage.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": STORED})
        self._is_used = False

    def _new_context(self, **options: Any) -> Any:
        context = self.browser.new_context(**{"viewport": WINDOW, "reduced_motion": "reduce", **options})
        context.set_default_timeout(PAGE_SECONDS * 1000)
        return context


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """A browser, started once for all tests of a worker."""
    # Without a window around each page it takes less than half the time.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    # Loaded late: tests without a browser need not wait for it.
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PAGE_SECONDS * 1000)
    manager = sync_playwright()
    playwright = manager.start()
    browser = playwright.chromium.launch(executable_path=program, args=[*CHROMIUM])
    started = Chromium(browser, asyncio._get_running_loop())
    asyncio._set_running_loop(None)
    yield started
    with started.driven():
        browser.close()
        playwright.stop()


class Complaints(list[str]):
    """What a page complained of: scripts that failed, policies that were broken, dialogs that opened."""


@pytest.fixture
def open_page(chromium: Chromium) -> Iterator[Callable[..., Any]]:
    """Opens pages in a browser that knows nothing yet; at the end none may have complained."""
    complaints = Complaints()

    def opened(url: str, **options: Any) -> Any:
        page = chromium.new_page(**options)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("console", lambda said: complaints.append(said.text) if is_complaint(said) else None)
        page.goto(url)
        return page

    opened.complaints = complaints  # type: ignore[attr-defined]
    with chromium.driven():
        yield opened
        chromium.forget()
    assert complaints == []


def is_complaint(said: Any) -> bool:
    """An error of ours. That something was refused or not there, the page itself shows."""
    expected = ("Failed to load resource", "WebSocket connection to")
    return said.type == "error" and not any(words in said.text for words in expected)
