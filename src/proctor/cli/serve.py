"""`proctor serve`: the web app and the HTTP interface of this store."""

import asyncio
import errno
import json
import os
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn

from proctor import secrets as secrecy
from proctor.agent import Access
from proctor.bootstrap import Configuration, StorePlaces, configuration, make_models, now, places
from proctor.cli import output
from proctor.cli.output import count, money, print_json, print_note, printable
from proctor.errors import UsageError
from proctor.item import RUNNING, SUCCESS
from proctor.models import ModelRouter, is_stand_in
from proctor.models.gateway.access import Caller
from proctor.models.gateway.server import Gateway
from proctor.models.providers import is_loopback
from proctor.models.rate_limits import RatePools
from proctor.models.recording import Recording, Replay
from proctor.models.router import Tape
from proctor.session import Event, ModelCall, Note
from proctor.store import Recorder, Store, timestamp
from proctor.web.app import create_app
from proctor.web.auth import own_names
from proctor.web.state import AppState

serve_app = typer.Typer(add_completion=False)


ACCESS_KEYS = "PROCTOR_ACCESS_KEYS"


# Pages that are being loaded may finish; a live connection is told to come back later.
GRACE_SECONDS = 2


MOST_THREADS = 16
"""That look after what is watched, stop runs and write files; each has a connection of its own."""


@serve_app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = 8765,
    token: Annotated[
        str,
        typer.Option(
            help="What callers must show; needed for a --host beyond this machine.", envvar="PROCTOR_TOKEN"
        ),
    ] = "",
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document once it listens: url, host, port.")
    ] = False,
) -> int:
    """Serve the web app and the HTTP interface, until Ctrl-C. Runs that it started go on without it.

    Example:  proctor serve --port 8765 --open
    """
    if not token and not is_loopback(f"//{_bracketed(host)}"):
        raise UsageError(
            f"without a token, {host} would let everybody in who can reach this machine\n"
            "Give one:  --token, or the environment variable PROCTOR_TOKEN."
        )
    where = places(context.obj)
    config = configuration(where)
    with _listening(host, port) as listener, where.open_store() as store:
        site = AppState(
            store=store,
            home=where.home,
            folder=Path.cwd(),
            now=now,
            command=[sys.executable, "-m", "proctor", "--home", str(where.home)],
            make_models=lambda: make_models(where, [Path.cwd()]),
            environment=_environment(where, config),
            token=token,
            hosts=own_names([host]),
            access_keys={**config.access_keys, **_access_keys(config.environment.get(ACCESS_KEYS, ""))},
            evaluation=config.evaluation,
            **config.serve,
        )
        # An address that stands for all of this machine's is none that a browser can go to.
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        address = f"http://{_bracketed(reached)}:{listener.getsockname()[1]}"
        server = _Server(site, address, token=token, open_page=open_page, as_json=as_json)
        return _run(server.run(listener))


def _run(serving: Coroutine[Any, Any, int]) -> int:
    """Serve to the end; the exit code.

    Threads that are still at work then are left: one that stops a run waits for it up to a minute, and
    whoever asked it is no longer there.
    """
    loop, threads = asyncio.new_event_loop(), ThreadPoolExecutor(MOST_THREADS)
    loop.set_default_executor(threads)
    code = loop.run_until_complete(serving)
    threads.shutdown(wait=False, cancel_futures=True)
    if any(_is_busy(thread) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    loop.close()
    return code


def _is_busy(thread: threading.Thread) -> bool:
    if thread is threading.main_thread() or thread.daemon:
        return False
    # Idle ones have been told to end, and do so at once.
    thread.join(0.2)
    return thread.is_alive()


class _Server:
    """Serves one site until a signal comes."""

    def __init__(self, site: AppState, address: str, *, token: str, open_page: bool, as_json: bool) -> None:
        self._address, self._token = address, token
        self._open_page, self._as_json = open_page, as_json
        options = uvicorn.Config(
            create_app(site),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws_max_size=64 * 1024,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = uvicorn.Server(options)
        self._heard: int | None = None

    async def run(self, listener: socket.socket) -> int:
        """Serve; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, number)
        # Its own handlers would have the process die of the signal, after it has ended well.
        self._server.capture_signals = _no_signals  # type: ignore[method-assign]
        telling = asyncio.create_task(self._tell())
        await self._server.serve(sockets=[listener])
        telling.cancel()
        return output.CTRL_C if self._heard == signal.SIGINT else output.SUCCEEDED

    def _stop(self, number: int) -> None:
        # The second time at once, whoever is still being answered.
        self._server.force_exit = self._heard is not None
        self._heard = number
        self._server.should_exit = True

    async def _tell(self) -> None:
        while not self._server.started:
            await asyncio.sleep(0.01)
        if self._as_json:
            host, _, port = self._address.removeprefix("http://").rpartition(":")
            print(json.dumps({"url": self._address, "host": host.strip("[]"), "port": int(port)}), flush=True)
        wants = " It asks for the token." if self._token else ""
        print_note(f"Proctor is at {self._address}.{wants} Ctrl-C ends it; runs go on without it.")
        if self._open_page:
            shown = f"{self._address}/?token={self._token}" if self._token else self._address
            await asyncio.to_thread(webbrowser.open, shown)


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket on which nobody is answered yet; a port that is taken is found before anything starts."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}: {error.strerror}\nGive an address of this machine."
        ) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            # Now, not when the server is ready: of two who start at once, one is told.
            listener.listen(100)
        except OSError as error:
            raise UsageError(_why_not(host, port, error)) from None
        yield listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is taken by another program\nTake another (--port N), or any free one (--port 0)."
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than you have\nTake one above 1023: --port 8765."
    return f"cannot listen on {host}, port {port}: {error.strerror}\nGive an address of this machine."


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _environment(where: StorePlaces, config: Configuration) -> Mapping[str, str]:
    """The user's environment. The store is told there, since an address may hold a password."""
    return {**config.environment, "PROCTOR_STORE": where.store}


def _access_keys(text: str) -> dict[str, str]:
    """`AKID=secret,AKID2=secret2`, as the environment has them."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    keys = {name.strip(): secret.strip() for name, _, secret in pairs}
    if not all(name and secret for name, secret in keys.items()):
        raise UsageError(f"{ACCESS_KEYS} should hold  AKID=secret,AKID=secret")
    return keys


# `proctor gateway`: the gateway alone, for use by hand.


gateway_app = typer.Typer(add_completion=False)


@gateway_app.command()
def gateway(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any free port.")] = 0,
    model: Annotated[
        str, typer.Option(help="Who answers, whatever is asked for; by default the model asked for.")
    ] = "",
    record: Annotated[Path | None, typer.Option(help="Keep the traffic in this file.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Answer from this file and ask nobody.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the start.")] = False,
) -> int:
    """Let agents reach models through Proctor: recorded, priced, with keys kept back. Ctrl-C ends it.

    Example:  proctor gateway --model anthropic/claude-sonnet-4-5 --record traffic.ndjson
    """
    if record and replay:
        raise UsageError("--record and --replay exclude each other: what is replayed is recorded already")
    where = places(context.obj)
    config = configuration(where)
    blot = secrecy.redactor(config.environment)
    with where.open_store() as store, _tape(record, replay, blot) as tape:
        pools = RatePools(most=config.limits)
        models = ModelRouter(
            config.environment, folders=[Path.cwd()], prices=config.prices, tape=tape, pools=pools
        )
        if model:
            models.check(model)
        desk = _Desk(store, model, tape, blot)
        return asyncio.run(_serve(models, desk, port, as_json=as_json))


@contextmanager
def _tape(record: Path | None, replay: Path | None, blot: Callable[[str], str]) -> Iterator[Tape | None]:
    tape: Tape | None = None
    if record:
        tape = Recording(record, blot)
    elif replay:
        tape = Replay(replay)
    try:
        yield tape
    finally:
        if tape:
            tape.close()


async def _serve(models: ModelRouter, desk: "_Desk", port: int, *, as_json: bool) -> int:
    served = Gateway(models, now=now)
    try:
        await served.start(port=port)
        desk.begin()
        access = served.open(Caller(record=desk.record, model=desk.model, item_id="gateway"))
        _tell(access, desk.session_id, as_json=as_json)
        await _until_stopped()
        served.shut(access.token)
        desk.end()
    finally:
        await served.close()
        await models.close()
        desk.close()
    return output.SUCCEEDED


class _Desk:
    """The session of everything that is asked: kept in the store, and told line by line."""

    def __init__(self, store: Store, model: str, tape: Tape | None, blot: Callable[[str], str]) -> None:
        self.session_id = f"{int(now().timestamp() * 1000):012x}{secrets.token_hex(4)}"
        self.model = model
        self._stand_in = is_stand_in(model) or isinstance(tape, Replay)
        self._blot = blot
        self._writer = store.writer()
        self._started = now()
        self._calls = 0

    def begin(self) -> None:
        row = {
            "attempt": 1,
            "job": "gateway",
            "name": "gateway",
            "model": self.model,
            "standIn": int(self._stand_in),
            "status": RUNNING,
            "source": "gateway",
            "startedAt": timestamp(self._started),
        }
        self._recorder = Recorder(self._writer, self.session_id, row, now, self._blot)

    def record(self, event: Event) -> None:
        self._recorder.record(event)
        if isinstance(event, Note):
            print_note(f"note: {printable(event.text)}")
        elif isinstance(event, ModelCall):
            self._calls += 1
            print_note(_line(event))

    def end(self) -> None:
        seconds = (now() - self._started).total_seconds()
        self._recorder.end(SUCCESS, "completed", "", work_seconds=seconds, waiting_seconds=0.0)
        totals = self._recorder.totals
        usage = totals.usage
        tokens = (
            f"{usage.input_tokens:,} tokens in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
        )
        print_note(f"{count(self._calls, 'call')}, {tokens}, {money(totals.cost_usd)}")
        print_note(f"Look further:  proctor show {self.session_id}")

    def close(self) -> None:
        self._writer.close()


def _line(call: ModelCall) -> str:
    usage = call.usage
    took = f"{(call.latency_ms or 0.0) / 1000:.2f} s"
    waited = f" after waiting {call.waiting_ms / 1000:.1f} s" if call.waiting_ms else ""
    failed = "" if call.status == "ok" else f"  {call.status}: {printable(call.error, width=80)}"
    tokens = f"{usage.input_tokens:,} in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
    return f"{printable(call.model)}  {tokens}  {money(call.cost_usd)}  {took}{waited}{failed}"


def _tell(access: Access, session_id: str, *, as_json: bool) -> None:
    variables = access.variables
    if as_json:
        print_json(
            {"url": access.url, "token": access.token, "sessionId": session_id, "variables": variables}
        )
    else:
        for name, value in variables.items():
            print(f"export {name}={value}")
    # Whoever reads this through a pipe waits for it; nothing more will come to push it out.
    sys.stdout.flush()
    print_note("Listening. Set these variables for an agent; Ctrl-C ends this and the token with it.")


async def _until_stopped() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()


apps = {"serve": serve_app, "gateway": gateway_app}
