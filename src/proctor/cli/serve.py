"""`proctor serve` and `proctor gateway`: the web app with its HTTP API, and the model gateway alone."""

import asyncio
import errno
import json
import os
import re
import shlex
import signal
import socket
import ssl
import sys
import threading
import webbrowser
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from html import escape
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any

import typer
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.agent import Access
from proctor.api.gateway import OpenGateway, open_gateway
from proctor.api.intake import build_sessions
from proctor.api.launch import BUILD_COMMAND, BUILT, CHECK_COMMAND
from proctor.bootstrap import open_context
from proctor.cli import output
from proctor.cli.output import count, money, print_json, print_next, print_note, printable
from proctor.cli.run import protect_memory, terminal_context
from proctor.config import checked_token, read_token_file, serve_tokens
from proctor.context import Settings
from proctor.errors import StoreError, UsageError
from proctor.json_values import as_map, parse_json
from proctor.secrets import is_loopback, open_private, private_folder
from proctor.session import Event, ModelCall, Note
from proctor.web.access import MAIN, stored_token
from proctor.web.app import create_app
from proctor.web.auth import own_names
from proctor.web.otlp import check_grpc_installed
from proctor.web.plans import check_plan
from proctor.web.state import AppState

serve_app = typer.Typer(add_completion=False)
gateway_app = typer.Typer(add_completion=False)
check_app = typer.Typer(add_completion=False)
build_app = typer.Typer(add_completion=False)
apps = {"serve": serve_app, "gateway": gateway_app, CHECK_COMMAND: check_app, BUILD_COMMAND: build_app}
TOKEN, ACCESS_KEYS = "PROCTOR_TOKEN", "PROCTOR_ACCESS_KEYS"
AWS_SERVICES = ("BEDROCK_AGENTCORE", "BEDROCK_AGENTCORE_CONTROL", "CLOUDWATCH_LOGS", "CLOUDWATCH", "STS")
"""Services that `proctor serve` implements, as the AWS clients name them in variables."""
HEADER_SECONDS = 20.0
"""How long a client may take to send the headers of a request."""
# Pages that are loading may finish; live connections are closed and reconnect later.
GRACE_SECONDS = 2
MOST_THREADS = 16
"""Threads that update watched topics, stop runs and write files; each has its own store connection."""
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.", metavar="N")
]


@serve_app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="HOST")] = "127.0.0.1",
    port: Port = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that callers must send (default: PROCTOR_TOKEN, or a generated token).",
            metavar="FILE",
        ),
    ] = None,
    no_token: Annotated[
        bool,
        typer.Option(
            "--no-token", help="Require no token: every user and program of this machine has full access."
        ),
    ] = False,
    root_path: Annotated[
        str, typer.Option(help="Path below which a proxy serves Proctor: /proctor.", metavar="PATH")
    ] = "",
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy whose X-Forwarded headers are trusted; repeatable.",
            metavar="ADDR",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain in PEM format; serves HTTPS.", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(help="Private key of the certificate, in PEM format.", metavar="FILE")
    ] = None,
    otlp_grpc: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Also receive OpenTelemetry over gRPC, on this port; 0: any free port. Extra: otlp.",
            metavar="N",
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document once it listens: url, host, port, token."),
    ] = False,
    token: Annotated[str, typer.Option(hidden=True)] = "",
) -> int:
    """Serve the web app and the HTTP API until Ctrl-C. Runs started from it continue without it.

    Example:  proctor serve --port 8765 --open
    """
    if token:
        raise UsageError(
            "--token shows the token to every user of this machine, in the list of processes\n"
            "Set the environment variable PROCTOR_TOKEN, or name a file:  --token-file FILE"
        )
    if no_token and not is_loopback(f"//{_bracketed(host)}"):
        raise UsageError(
            f"without a token, {host} accepts every caller that can reach this machine\n"
            "Leave out --no-token, or listen on 127.0.0.1."
        )
    tls = _tls_files(tls_cert, tls_key)
    grpc_address = "" if otlp_grpc is None else _grpc_address(host, otlp_grpc)
    # Messages of the library about a plan are part of the response, not of the terminal.
    with open_context([Path.cwd()], **(context.obj or {})) as ctx, _listening(host, port) as listener:
        settings = ctx.settings
        # Opened now: a store that cannot be opened is an error of the command.
        ctx.store  # noqa: B018
        credentials = _credentials(token_file, settings, no_token=no_token)
        site = AppState(
            context=ctx,
            command=[sys.executable, "-m", "proctor", "--home", str(settings.home)],
            token=credentials.token,
            tokens=serve_tokens(settings.tokens, settings.environment),
            hosts=own_names([host]),
            access_keys={**settings.access_keys, **_access_keys(settings.environment.get(ACCESS_KEYS, ""))},
            root_path=_root_path(root_path),
            proxies=[_network(each) for each in trusted_proxy or []],
            grpc_address=grpc_address,
            grpc_tls=tls,
            **settings.serve,
        )
        # A browser cannot open an address that stands for all interfaces.
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        address = _Address(
            scheme="https" if tls else "http",
            host=local,
            port=listener.getsockname()[1],
            root_path=site.root_path,
        )
        protect_memory()
        server = _Server(site, address, credentials, tls=tls, open_page=open_page, as_json=as_json)
        return _run(server.run(listener))


def _grpc_address(host: str, port: int) -> str:
    """Address of the receiver over gRPC, once it is known that it can listen there."""
    check_grpc_installed()
    with _listening(host, port) as listener:
        return f"{_bracketed(host)}:{listener.getsockname()[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    scheme: str
    host: str
    port: int
    root_path: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}{self.root_path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credentials:
    """The server's token, and how it is shown: a token that the user configured is not printed."""

    token: str = field(default="", repr=False)
    shown: str = field(default="", repr=False)
    """The token, or the shell expression that gives it."""
    origin: str = ""
    """Where the user configured it; empty: Proctor made it."""


def _credentials(token_file: Path | None, settings: Settings, *, no_token: bool) -> _Credentials:
    variable = settings.user_environment.get(TOKEN, "")
    if no_token:
        if token_file or variable or settings.tokens:
            raise UsageError(
                f"--no-token excludes --token-file, {TOKEN} and [serve.tokens]\nLeave out one of them."
            )
        return _Credentials()
    if token_file:
        token = read_token_file(token_file, "--token-file")
        return _Credentials(
            token=token, shown=f"$(cat {shlex.quote(str(token_file.absolute()))})", origin=str(token_file)
        )
    if variable:
        return _Credentials(token=checked_token(variable, TOKEN), shown=f"${TOKEN}", origin=TOKEN)
    token = stored_token(settings.home / "serve")
    return _Credentials(token=token, shown=token)


def _root_path(path: str) -> str:
    path = f"/{path.strip('/')}" if path.strip("/") else ""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", path) or "/." in path:
        raise UsageError(f"--root-path {path} is not a path\nWrite it as  /proctor")
    return path


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise UsageError(
            f"--trusted-proxy {text} is not an address or network\nWrite it as  10.0.0.5 or 10.0.0.0/8"
        ) from None


def _tls_files(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Certificate and key, once they have been loaded without an error."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("--tls-cert and --tls-key belong together\nGive both, each a PEM file.")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot load the certificate {certificate} with the key {key}: {error}\n"
            "Both must be PEM files that belong together, the key without a password."
        ) from None
    return certificate, key


@check_app.command()
def check_plan_command(context: typer.Context) -> int:
    """Check the plan on standard input, for the web app."""
    request = as_map(parse_json(sys.stdin.buffer.read()))
    with open_context([Path.cwd()], **(context.obj or {})) as ctx:
        print(check_plan(request, ctx).model_dump_json())
    return output.SUCCEEDED


@build_app.command()
def build_sessions_command(context: typer.Context) -> int:
    """Build the sessions of received spans for each line on standard input, for the server."""
    asked = threading.Semaphore(0)
    threading.Thread(target=_read_requests, args=[asked], daemon=True).start()
    with open_context([Path.cwd()], **(context.obj or {})) as ctx:
        while asked.acquire():
            try:
                build_sessions(ctx)
            except StoreError:
                print("later", flush=True)
            else:
                print(BUILT.decode(), end="", flush=True)
    return output.SUCCEEDED


def _read_requests(asked: threading.Semaphore) -> None:
    for _ in sys.stdin:
        asked.release()
    # The server is gone. What is not committed is built when sessions are next read.
    os._exit(output.SUCCEEDED)


def _run(serving: Coroutine[Any, Any, int]) -> int:
    """Serve to the end; the exit code.

    Threads that are still busy are abandoned: one that stops a run waits up to a minute, and its caller is
    gone.
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
    # Idle threads end at once.
    thread.join(0.2)
    return thread.is_alive()


class _Server:
    """Serves one application until a signal."""

    def __init__(
        self,
        site: AppState,
        address: _Address,
        credentials: _Credentials,
        *,
        tls: tuple[Path, Path] | None,
        open_page: bool,
        as_json: bool,
    ) -> None:
        self._site, self._address, self._credentials = site, address, credentials
        self._open_page, self._as_json = open_page, as_json
        options = uvicorn.Config(
            create_app(site),
            # With uvloop, writing to a process that has ended raises where asyncio ignores it.
            loop="asyncio",
            http=TimedProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            # The application reads the headers of trusted proxies.
            proxy_headers=False,
            ws_max_size=64 * 1024,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
        )
        self._server = uvicorn.Server(options)
        self._signal: int | None = None

    async def run(self, listener: socket.socket) -> int:
        """Serve; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop, number)
        # Its own handlers would re-raise the signal after a clean shutdown.
        self._server.capture_signals = _no_signals  # type: ignore[method-assign]
        announcement = asyncio.create_task(self._announce())
        await self._server.serve(sockets=[listener])
        announcement.cancel()
        return output.CTRL_C if self._signal == signal.SIGINT else output.SUCCEEDED

    def _stop(self, number: int) -> None:
        # The second signal stops at once, without waiting for open requests.
        self._server.force_exit = self._signal is not None
        self._signal = number
        self._server.should_exit = True

    async def _announce(self) -> None:
        while not self._server.started:
            await asyncio.sleep(0.01)
        address, credentials = self._address, self._credentials
        if self._as_json:
            document = {"url": address.url, "host": address.host, "port": address.port}
            if self._site.grpc_address:
                document["grpcPort"] = int(self._site.grpc_address.rpartition(":")[2])
            print(json.dumps({**document, "token": credentials.token}), flush=True)
        for line in _start_lines(address.url, credentials, self._site.region):
            print_note(line)
        if self._site.grpc_address:
            port = self._site.grpc_address.rpartition(":")[2]
            url = f"{address.scheme}://{_bracketed(address.host)}:{port}"
            print_note("OpenTelemetry exporters over gRPC, with the same headers:")
            print_note(f"  export OTEL_EXPORTER_OTLP_ENDPOINT={url} OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
        if self._open_page:
            url = f"{address.url}/?token={credentials.token}" if credentials.token else address.url
            await asyncio.to_thread(_open_in_browser, url, self._site.data_folder)


def _start_lines(url: str, credentials: _Credentials, region: str) -> Iterator[str]:
    """How to reach the server, with lines to paste for exporters and AWS clients."""
    stop = "Press Ctrl-C to stop; runs continue without the server."
    if not credentials.token:
        yield f"Serving at {url} without a token: every user and program of this machine has full access."
        yield stop
        return
    if credentials.origin:
        yield f"Serving at {url} (token from {credentials.origin}). {stop}"
    else:
        yield f"Serving at {url}/?token={credentials.token}"
        yield f"Whoever has this address can run commands as you. {stop}"
    yield "OpenTelemetry exporters:"
    yield f"  export OTEL_EXPORTER_OTLP_ENDPOINT={url} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    yield f'  export OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20{credentials.shown}"'
    yield "AWS clients:"
    yield from (f"  export AWS_ENDPOINT_URL_{each}={url}" for each in AWS_SERVICES)
    yield f"  export AWS_ACCESS_KEY_ID={MAIN} AWS_DEFAULT_REGION={region}"
    yield f'  export AWS_SECRET_ACCESS_KEY="{credentials.shown}"'


def _open_in_browser(url: str, folder: Path) -> None:
    """Open an address with a token; arguments of programs are visible to every user of the machine."""
    path = private_folder(folder) / "open.html"
    path.unlink(missing_ok=True)
    with open(path, "x", encoding="utf-8", opener=open_private) as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(url)}">\n')
    webbrowser.open(path.as_uri())


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request line and headers take too long."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection."""
        super().connection_made(transport)
        self._expect_request()

    def on_response_complete(self) -> None:
        """Wait for the next request of the connection."""
        super().on_response_complete()
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        if self._timer:
            self._timer.cancel()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = self.loop.call_later(HEADER_SECONDS, self._close_without_request)

    def _close_without_request(self) -> None:
        is_upgraded = self.transport.get_protocol() is not self
        if not is_upgraded and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket, so that a port in use is an error before anything starts."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}: {error.strerror}\nUse an address of this machine."
        ) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            # Now, not when the server is ready, so that one of two concurrent starts fails.
            listener.listen(100)
        except OSError as error:
            raise UsageError(_listen_error(host, port, error)) from None
        yield listener


def _listen_error(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is already in use\nChoose another (--port N), or any free one (--port 0)."
    if error.errno == errno.EACCES:
        return f"port {port} requires more privileges\nUse one above 1023: --port 8765."
    return f"cannot listen on {host}, port {port}: {error.strerror}\nUse an address of this machine."


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _access_keys(text: str) -> dict[str, str]:
    """Parse `AKID=secret,AKID2=secret2`."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair.strip())
    keys = {name.strip(): secret.strip() for name, _, secret in pairs}
    if not all(name and secret for name, secret in keys.items()):
        raise UsageError(f"{ACCESS_KEYS} is not valid\nWrite it as  AKID=secret,AKID=secret")
    return keys


# The gateway


@gateway_app.command()
def gateway(
    context: typer.Context,
    port: Port = 0,
    model: Annotated[
        str, typer.Option(help="Model that answers every call (default: the requested one).", metavar="MODEL")
    ] = "",
    models: Annotated[
        str,
        typer.Option(
            help="Models that may be requested, separated by commas (default: all of known providers).",
            metavar="MODELS",
        ),
    ] = "",
    record: Annotated[Path | None, typer.Option(help="Record the traffic to FILE.", metavar="FILE")] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Answer from the recording FILE; call no model.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the start.")] = False,
) -> int:
    """Run a local model gateway that records and prices every call, until Ctrl-C. Agents get no API keys.

    Example:  proctor gateway --model anthropic/claude-sonnet-4-5 --record traffic.ndjson
    """
    names = [name.strip() for name in models.split(",") if name.strip()]
    with terminal_context(context.obj, [Path.cwd()]) as ctx:
        gateway = open_gateway(
            ctx,
            port=port,
            model=model,
            models=names,
            record=record,
            replay=replay,
            observe=_print_event,
        )
        return asyncio.run(_serve(gateway, as_json=as_json))


async def _serve(opening: AbstractAsyncContextManager[OpenGateway], *, as_json: bool) -> int:
    async with opening as gateway:
        _print_access(gateway.access, gateway.session_id, as_json=as_json)
        await _until_stopped()
    totals, usage = gateway.totals, gateway.totals.usage
    tokens = f"{usage.input_tokens:,} tokens in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
    print_note(f"{count(totals.model_calls, 'call')}, {tokens}, {money(totals.cost_usd)}")
    print_next([f"proctor show {gateway.session_id}"])
    return output.SUCCEEDED


def _print_event(event: Event) -> None:
    if isinstance(event, Note):
        print_note(f"note: {printable(event.text)}")
    elif isinstance(event, ModelCall):
        print_note(_line(event))


def _line(call: ModelCall) -> str:
    usage = call.usage
    took = f"{(call.latency_ms or 0.0) / 1000:.2f} s"
    waited = f" after waiting {call.waiting_ms / 1000:.1f} s" if call.waiting_ms else ""
    failed = "" if call.status == "ok" else f"  {call.status}: {printable(call.error, width=80)}"
    tokens = f"{usage.input_tokens:,} in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
    return f"{printable(call.model)}  {tokens}  {money(call.cost_usd)}  {took}{waited}{failed}"


def _print_access(access: Access, session_id: str, *, as_json: bool) -> None:
    variables = access.variables
    if as_json:
        print_json(
            {"url": access.url, "token": access.token, "sessionId": session_id, "variables": variables}
        )
    else:
        for name, value in variables.items():
            print(f"export {name}={value}")
    # A reader at the other end of a pipe waits for this.
    sys.stdout.flush()
    print_note("Listening. Set these variables for an agent. Press Ctrl-C to stop and revoke the token.")


async def _until_stopped() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
