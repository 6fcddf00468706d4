"""Functions behind `proctor serve` and `proctor gateway`: credentials, addresses, lines to paste, sockets."""

import asyncio
import errno
import json
import signal
import socket
import threading
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.agent import Access
from proctor.cli import serve
from proctor.cli.output import CTRL_C, SUCCEEDED
from proctor.context import Settings
from proctor.errors import UsageError
from proctor.models.recording import Recording, Replay
from proctor.session import ModelCall, Note, Usage
from proctor.store import Store

TOKEN = "t" * 32


def settings(folder: Path, token: str = "", **named: Any) -> Settings:
    variables = {"PROCTOR_TOKEN": token} if token else {}
    return Settings(home=folder, store_url="", user_environment=variables, **named)


def test_the_token_comes_from_the_file_then_the_variable_then_the_home(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    file.write_text(TOKEN + "\n")
    of_file = serve._credentials(file, settings(tmp_path, "v" * 32), no_token=False)
    assert (of_file.token, of_file.origin) == (TOKEN, str(file))
    assert of_file.shown == f"$(cat '{file}')"
    of_variable = serve._credentials(None, settings(tmp_path, "v" * 32), no_token=False)
    assert (of_variable.token, of_variable.shown, of_variable.origin) == (
        "v" * 32,
        "$PROCTOR_TOKEN",
        "PROCTOR_TOKEN",
    )
    own = serve._credentials(None, settings(tmp_path), no_token=False)
    assert own.token == own.shown == (tmp_path / "serve" / "token").read_text().strip() and not own.origin
    assert serve._credentials(None, settings(tmp_path), no_token=True) == serve._Credentials()
    with pytest.raises(UsageError, match="PROCTOR_TOKEN: the token has fewer than"):
        serve._credentials(None, settings(tmp_path, "short"), no_token=False)


@pytest.mark.parametrize("given", ["file", "variable", "named"])
def test_a_server_without_a_token_has_none_of_any_kind(given: str, tmp_path: Path) -> None:
    named: dict[str, Any] = {"tokens": {"ci": {"role": "view"}}} if given == "named" else {}
    with pytest.raises(UsageError, match="--no-token excludes --token-file, PROCTOR_TOKEN and"):
        serve._credentials(
            tmp_path / "token" if given == "file" else None,
            settings(tmp_path, TOKEN if given == "variable" else "", **named),
            no_token=True,
        )


@pytest.mark.parametrize(
    ("path", "root"),
    [("", ""), ("/", ""), ("proctor", "/proctor"), ("/a/b-c_d.e~/", "/a/b-c_d.e~"), ("//a", "/a")],
)
def test_the_path_below_a_proxy_begins_with_a_slash_and_ends_with_none(path: str, root: str) -> None:
    assert serve._root_path(path) == root


@pytest.mark.parametrize("path", ["/a b", "/a//b", "/../a", "/.a", "/a?b"])
def test_what_is_not_a_path_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="is not a path\nWrite it as  /proctor"):
        serve._root_path(path)


def test_a_proxy_is_an_address_or_a_network() -> None:
    assert serve._network("10.0.0.5") == ip_network("10.0.0.5/32")
    assert serve._network("10.1.2.3/8") == ip_network("10.0.0.0/8")
    with pytest.raises(UsageError, match="--trusted-proxy proxy is not an address or network"):
        serve._network("proxy")


def test_certificate_and_key_belong_together_and_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "a.pem"
    file.write_text("no certificate")
    assert serve._tls_files(None, None) is None
    for pair in ((file, None), (None, file)):
        with pytest.raises(UsageError, match="--tls-cert and --tls-key belong together"):
            serve._tls_files(*pair)
    with pytest.raises(UsageError, match=r"cannot load the certificate .*a\.pem with the key .*b\.pem"):
        serve._tls_files(file, tmp_path / "b.pem")


def test_the_certificate_is_loaded_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    context = SimpleNamespace(load_cert_chain=lambda *files, password: loaded.append((*files, password)))
    monkeypatch.setattr(
        serve.ssl, "create_default_context", lambda purpose: loaded.append(purpose) or context
    )
    pair = tmp_path / "cert.pem", tmp_path / "key.pem"
    assert serve._tls_files(*pair) == pair
    assert loaded == [serve.ssl.Purpose.CLIENT_AUTH, (*pair, "")]


def test_the_lines_at_the_start_show_a_token_only_if_proctor_made_it() -> None:
    own = list(serve._start_lines("http://h:1", serve._Credentials(token="T", shown="T"), "eu-west-1"))
    configured = serve._Credentials(token="T", shown="$PROCTOR_TOKEN", origin="PROCTOR_TOKEN")
    theirs = list(serve._start_lines("http://h:1", configured, "eu-west-1"))
    stop = "Press Ctrl-C to stop; runs continue without the server."
    assert own[:2] == [
        "Serving at http://h:1/?token=T",
        f"Whoever has this address can run commands as you. {stop}",
    ]
    assert theirs[0] == f"Serving at http://h:1 (token from PROCTOR_TOKEN). {stop}"
    assert (
        own[2:]
        == [line.replace("$PROCTOR_TOKEN", "T") for line in theirs[1:]]
        == [
            "OpenTelemetry exporters:",
            "  export OTEL_EXPORTER_OTLP_ENDPOINT=http://h:1 OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
            '  export OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20T"',
            "AWS clients:",
            *(f"  export AWS_ENDPOINT_URL_{each}=http://h:1" for each in serve.AWS_SERVICES),
            "  export AWS_ACCESS_KEY_ID=proctor AWS_DEFAULT_REGION=eu-west-1",
            '  export AWS_SECRET_ACCESS_KEY="T"',
        ]
    )
    without = list(serve._start_lines("http://h:1", serve._Credentials(), "eu-west-1"))
    assert without == [
        "Serving at http://h:1 without a token: every user and program of this machine has full access.",
        stop,
    ]


def test_a_page_is_opened_through_a_file_that_only_the_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for _ in range(2):
        serve._open_in_browser('http://h:1/?token="T"', tmp_path / "serve")
    page = tmp_path / "serve" / "open.html"
    assert opened == [page.as_uri()] * 2 and page.stat().st_mode & 0o777 == 0o600
    assert 'content="0; url=http://h:1/?token=&quot;T&quot;"' in page.read_text()


@pytest.mark.parametrize(
    ("host", "bracketed"), [("h", "h"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("[::1]", "[::1]")]
)
def test_addresses_with_colons_have_brackets_in_urls(host: str, bracketed: str) -> None:
    assert serve._bracketed(host) == bracketed
    address = serve._Address(scheme="https", host=host, port=8, root_path="/p")
    assert address.url == f"https://{bracketed}:8/p"


def test_access_keys_of_the_environment() -> None:
    assert serve._access_keys("") == {}
    assert serve._access_keys(" a = b=c ,, d=e") == {"a": "b=c", "d": "e"}
    for text in ("a", "a=", "=b", "a=b,c"):
        with pytest.raises(UsageError, match="PROCTOR_ACCESS_KEYS is not valid"):
            serve._access_keys(text)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            errno.EADDRINUSE,
            "port 80 is already in use\nChoose another (--port N), or any free one (--port 0).",
        ),
        (errno.EACCES, "port 80 requires more privileges\nUse one above 1023: --port 8765."),
        (errno.EINVAL, "cannot listen on h, port 80: Invalid argument\nUse an address of this machine."),
    ],
)
def test_why_nothing_can_listen(number: int, message: str) -> None:
    assert serve._listen_error("h", 80, OSError(number, "Invalid argument")) == message


def test_one_of_two_servers_listens_on_a_port() -> None:
    with serve._listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
        socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(UsageError, match=f"port {port} is already in use"):
            with serve._listening("127.0.0.1", port):
                pass
    assert listener.fileno() == -1
    with pytest.raises(UsageError, match="cannot listen on no such host: "):
        with serve._listening("no such host", 0):
            pass


class Transport:
    """A connection that counts how often it was aborted."""

    def __init__(self) -> None:
        self.aborted = 0
        self.protocol: object = None

    def get_protocol(self) -> object:
        return self.protocol

    def abort(self) -> None:
        self.aborted += 1


def waiting_protocol() -> tuple[serve.TimedProtocol, Transport]:
    protocol = serve.TimedProtocol.__new__(serve.TimedProtocol)
    transport = Transport()
    transport.protocol = protocol
    protocol.transport, protocol.cycle = transport, None  # type: ignore[assignment]
    return protocol, transport


@pytest.mark.parametrize(
    ("cycle", "upgraded", "aborted"),
    [
        (None, False, 1),
        (SimpleNamespace(response_complete=True), False, 1),
        (SimpleNamespace(response_complete=False), False, 0),
        (None, True, 0),
        (SimpleNamespace(response_complete=True), True, 0),
    ],
)
def test_a_connection_is_closed_only_while_it_waits_for_a_request(
    cycle: Any, upgraded: bool, aborted: int
) -> None:
    protocol, transport = waiting_protocol()
    protocol.cycle = cycle
    if upgraded:
        transport.protocol = object()
    protocol._close_without_request()
    assert transport.aborted == aborted


async def test_the_time_for_headers_begins_anew_with_each_request() -> None:
    protocol, _ = waiting_protocol()
    protocol.loop = asyncio.get_running_loop()
    protocol._expect_request()
    first = protocol._timer
    protocol._expect_request()
    second = protocol._timer
    assert first is not None and second is not None
    assert first.cancelled() and not second.cancelled()
    assert 19 < second.when() - asyncio.get_running_loop().time() <= 20
    second.cancel()


def test_the_second_signal_stops_at_once() -> None:
    server = serve._Server.__new__(serve._Server)
    server._server, server._signal = SimpleNamespace(force_exit=False, should_exit=False), None  # type: ignore[assignment]
    server._stop(signal.SIGTERM)
    assert (server._server.should_exit, server._server.force_exit) == (True, False)
    server._stop(signal.SIGINT)
    assert (server._server.force_exit, server._signal) == (True, signal.SIGINT)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, CTRL_C), (signal.SIGTERM, SUCCEEDED), (signal.SIGHUP, SUCCEEDED)]
)
async def test_the_exit_code_tells_ctrl_c_from_other_signals(number: int, code: int) -> None:
    server = serve._Server.__new__(serve._Server)
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    async def until_stopped(sockets: list[object]) -> None:
        assert sockets == ["listener"]
        signal.raise_signal(number)
        while not server._server.should_exit:
            await asyncio.sleep(0)

    server._server = SimpleNamespace(started=False, should_exit=False, serve=until_stopped)  # type: ignore[assignment]
    server._signal = None
    try:
        assert await server.run("listener") == code  # type: ignore[arg-type]
    finally:
        for each, handler in handlers.items():
            asyncio.get_running_loop().remove_signal_handler(each)
            signal.signal(each, handler)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("grpc", ["", "127.0.0.1:4317"])
async def test_a_server_tells_where_it_listens(
    as_json: bool, grpc: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    opened: list[tuple[str, Path]] = []
    monkeypatch.setattr(serve, "_open_in_browser", lambda *given: opened.append(given))
    server = serve._Server.__new__(serve._Server)
    server._server = SimpleNamespace(started=True)  # type: ignore[assignment]
    server._site = SimpleNamespace(grpc_address=grpc, region="r", data_folder=tmp_path)  # type: ignore[assignment]
    server._address = serve._Address(scheme="http", host="::1", port=8, root_path="/p")
    server._credentials = serve._Credentials(token="T", shown="T")
    server._as_json, server._open_page = as_json, True
    await server._announce()
    server._credentials = serve._Credentials()
    await server._announce()
    printed = capsys.readouterr()
    assert opened == [("http://[::1]:8/p/?token=T", tmp_path), ("http://[::1]:8/p", tmp_path)]
    documents = [json.loads(line) for line in printed.out.splitlines()]
    expected = {"url": "http://[::1]:8/p", "host": "::1", "port": 8} | ({"grpcPort": 4317} if grpc else {})
    assert documents == ([expected | {"token": "T"}, expected | {"token": ""}] if as_json else [])
    line = "export OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
    assert printed.err.count(line) == (2 if grpc else 0)
    assert printed.err.startswith("Serving at http://[::1]:8/p/?token=T\n")


def test_threads_that_end_by_themselves_are_not_busy() -> None:
    leave = threading.Event()
    busy = threading.Thread(target=leave.wait)
    daemon = threading.Thread(target=leave.wait, daemon=True)
    ended = threading.Thread(target=lambda: None)
    for thread in (busy, daemon, ended):
        thread.start()
    assert [serve._is_busy(each) for each in (busy, daemon, ended, threading.main_thread())] == [
        True,
        False,
        False,
        False,
    ]
    leave.set()
    busy.join()


# The gateway


def test_a_gateway_records_or_replays_or_neither(tmp_path: Path) -> None:
    file = tmp_path / "traffic.ndjson"
    with serve._recording(None, None, str) as nothing:
        assert nothing is None
    with serve._recording(file, None, str) as recording:
        assert isinstance(recording, Recording)
    with serve._recording(None, file, str) as replay:
        assert isinstance(replay, Replay)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            ModelCall(
                model="m",
                usage=Usage(input_tokens=1200, cached_tokens=1000, output_tokens=34),
                cost_usd=0.5,
                latency_ms=1234.0,
            ),
            "m  1,200 in (1,000 cached), 34 out  $0.50  1.23 s",
        ),
        (
            ModelCall(model="m", waiting_ms=2500.0, status="429", error="slow down"),
            "m  0 in (0 cached), 0 out  unknown  0.00 s after waiting 2.5 s  429: slow down",
        ),
    ],
)
def test_a_call_of_the_gateway_is_one_line(call: ModelCall, line: str) -> None:
    assert serve._line(call) == line


def test_access_to_the_gateway_is_printed_for_a_shell_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    access = Access(url="http://127.0.0.1:9", token="T")
    serve._print_access(access, "s", as_json=False)
    lines = capsys.readouterr()
    assert lines.out.splitlines() == [f"export {name}={value}" for name, value in access.variables.items()]
    assert lines.err.startswith("Listening. Set these variables for an agent.")
    serve._print_access(access, "s", as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "url": access.url,
        "token": "T",
        "sessionId": "s",
        "variables": access.variables,
    }


@pytest.mark.parametrize(
    ("model", "replay", "stand_in"), [("m", False, 0), ("scripted/ok", False, 1), ("m", True, 1)]
)
def test_the_calls_of_a_gateway_are_one_session(
    model: str, replay: bool, stand_in: int, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "traffic.ndjson"
    file.write_text("")
    recording = Replay(file) if replay else None
    session = serve._GatewaySession(store, model, recording, lambda text: text.replace("secret", "***"))
    session.begin()
    usage = Usage(input_tokens=2000, cached_tokens=1500, output_tokens=3)
    session.record(ModelCall(model="m", usage=usage, cost_usd=0.25))
    session.record(ModelCall(model="m", usage=usage, cost_usd=0.25))
    session.record(Note(text="a secret"))
    session.end()
    session.close()
    row = store.read.session(session.session_id)
    assert (row["job"], row["name"], row["model"], row["standIn"]) == ("gateway", "gateway", model, stand_in)
    assert (row["status"], row["endReason"], row["source"], row["attempt"]) == (
        "success",
        "completed",
        "gateway",
        1,
    )
    assert (row["modelCalls"], row["costUsd"], json.loads(row["notes"])) == (2, 0.5, ["a ***"])
    assert 0 <= row["workSeconds"] < 3600 and row["waitingSeconds"] == 0
    started = datetime.fromtimestamp(int(session.session_id[:12], 16) / 1000, UTC)
    assert abs((datetime.fromisoformat(row["startedAt"]) - started).total_seconds()) < 60
    lines = capsys.readouterr().err.splitlines()
    assert lines[2:] == [
        "note: a secret",
        "2 calls, 4,000 tokens in (3,000 cached), 6 out, $0.50",
        f"Next:  proctor show {session.session_id}",
    ]


def test_a_connection_is_accepted_answered_and_released_as_by_the_server_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    parent = serve.TimedProtocol.__mro__[1]
    monkeypatch.setattr(parent, "connection_made", lambda self, transport: calls.append(("made", transport)))
    monkeypatch.setattr(parent, "on_response_complete", lambda self: calls.append("answered"))
    monkeypatch.setattr(parent, "connection_lost", lambda self, error: calls.append(("lost", error)))
    monkeypatch.setattr(serve.TimedProtocol, "_expect_request", lambda self: calls.append("waits"))
    protocol = serve.TimedProtocol.__new__(serve.TimedProtocol)
    transport: Any = "transport"
    protocol.connection_made(transport)
    protocol.on_response_complete()
    protocol.connection_lost(None)
    assert calls == [("made", "transport"), "waits", "answered", "waits", ("lost", None)]
