"""A server over a store in the test's folder, someone who calls it, and a real browser."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from app_states import changed_state, make_state
from calling import Served
from threaded_server import ThreadedServer

from command_server import CommandServer
from commands import Command
from proctor.web.app import create_app
from proctor.web.state import AppState

PAGE_SECONDS = 120.0
"""For anything a test expects of a page."""
CHROMIUM = (
    "--no-sandbox",
    # One process for all pages, one less for the network: a page takes a fifth less processor time.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--enable-features=NetworkServiceInProcess2",
)


@dataclass
class _Servers:
    """Servers of a test, ended with it."""

    site: AppState
    running: list[ThreadedServer] = field(default_factory=list)

    def __call__(self, **changes: Any) -> Served:
        port = changes.pop("port", None)
        site = changed_state(self.site, **changes)
        app = create_app(site)
        server = _start_on_usual_port(app) if port is None else ThreadedServer(app, port=port)
        self.running.append(server)
        return Served(site, server.port)

    def end(self) -> None:
        for server in self.running:
            server.stop()


_usual_port = 0


def _start_on_usual_port(app: Any) -> ThreadedServer:
    """A server on the port of the first one if that is free: the browser has its scripts already."""
    global _usual_port
    try:
        server = ThreadedServer(app, port=_usual_port)
    except OSError:
        return ThreadedServer(app)
    _usual_port = server.port
    return server


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
def serve_shared(
    tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer, empty_store_file: Path
) -> Iterator[Callable[..., Served]]:
    """Starts servers over one empty store, for all tests of a module."""
    proctor = Command(tmp_path_factory.mktemp("shared"), command_server)
    with _site(proctor, empty_store_file) as site, _servers(site) as servers:
        yield servers


@pytest.fixture(scope="module")
def shared(serve_shared: Callable[..., Served]) -> Served:
    """A server over an empty store, for all tests of a module that change nothing."""
    return serve_shared()


@pytest.fixture
def slow_model(proctor: Command) -> Path:
    """The file of a model that takes longer than any test."""
    path = proctor.folder / "slow.yaml"
    path.write_text("rules: [{reply: done}]\nlatency_seconds: 600\n")
    return path


WINDOW = {"width": 1280, "height": 800}


class Chromium:
    """A browser, and the event loop it is driven by, which is at rest between tests.

    One context serves a test after the other. Scripts of pages stay in its cache, compiled, and its empty
    page keeps the process of the pages alive: the first page of a test takes half the processor time it
    takes in a context of its own. Between tests it forgets everything else.
    """

    def __init__(self, browser: Any, loop: Any) -> None:
        self.browser, self._loop = browser, loop
        self._is_lent = False
        self._renew()

    def _renew(self) -> None:
        self._context = self.new_context()
        self._empty_page = self._context.new_page()
        self._storage = self._context.new_cdp_session(self._empty_page)

    @contextmanager
    def driven(self) -> Iterator[Any]:
        """The browser. While its loop counts as running, no test can have one of its own."""
        asyncio._set_running_loop(self._loop)
        try:
            yield self.browser
        finally:
            asyncio._set_running_loop(None)

    def new_context(self, **options: Any) -> Any:
        """A context that knows nothing yet, where nothing moves: animations are drawn 60 times a second."""
        context = self.browser.new_context(**{"viewport": WINDOW, "reduced_motion": "reduce", **options})
        context.set_default_timeout(PAGE_SECONDS * 1000)
        return context

    def new_page(self, **options: Any) -> Any:
        """A page in a context that knows nothing yet but scripts, or in a new one if a test has that one."""
        if self._is_lent or options.keys() - {"viewport", "color_scheme"}:
            return self.new_context(**options).new_page()
        self._is_lent = True
        page = self._context.new_page()
        if viewport := options.get("viewport"):
            page.set_viewport_size(viewport)
        if scheme := options.get("color_scheme"):
            page.emulate_media(color_scheme=scheme)
        return page

    def forget(self) -> None:
        """Close the pages of a test, and remove what they stored."""
        for context in self.browser.contexts:
            if context is not self._context:
                context.close()
        if not self._is_lent:
            return
        self._is_lent = False
        if self._empty_page.evaluate("'__pwClock' in globalThis"):
            # A clock that a test has set applies to every page from then on.
            self._context.close()
            self._renew()
            return
        pages = [page for page in self._context.pages if page is not self._empty_page]
        origins = {"{0.scheme}://{0.netloc}".format(urlsplit(page.url)) for page in pages}
        for page in pages:
            page.close()
        for origin in origins | {f"http://127.0.0.1:{_usual_port}"}:
            self._storage.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
        self._context.clear_cookies()
        self._context.clear_permissions()
        self._context.unroute_all()


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
