"""Someone who calls a server over HTTP, with exactly the headers that are meant."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from websockets.sync.client import ClientConnection, connect

from commands import Command
from proctor.testing import eventually
from proctor.web.state import AppState
from waiting import TIME_LIMIT_SECONDS


@contextmanager
def serving(proctor: Command, *words: str) -> Iterator[tuple[Any, str]]:
    """`proctor serve` as a process, and the first line it prints; asked to, it ends well."""
    server = proctor.start("serve", "--port", "0", *words)
    try:
        yield server, server.stdout.readline()
    finally:
        server.terminate()
        assert server.wait(timeout=TIME_LIMIT_SECONDS) == 0
        server.stdout.close()


@dataclass(frozen=True)
class Reply:
    """What the server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass(frozen=True)
class Live:
    """The live channel of a page."""

    socket: ClientConnection

    def watch(self, *topics: tuple[str, str] | dict[str, Any]) -> Any:
        """Watch topics, each by kind and id, or as a page asks for it again; the first message about them."""
        named = [{"topic": each[0], "id": each[1]} if isinstance(each, tuple) else each for each in topics]
        self.socket.send(json.dumps({"watch": named}))
        return self.next()

    def next(self) -> Any:
        """The next message."""
        return json.loads(self.socket.recv(timeout=TIME_LIMIT_SECONDS))


@dataclass(frozen=True)
class Served:
    """A server that is up."""

    site: AppState
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request, with exactly these headers besides the necessary ones."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIME_LIMIT_SECONDS)
        sent = dict(headers or {})
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self.ask("POST", path, {} if body is None else body, headers)

    def start(self, text: str, **typed: Any) -> str:
        """Start a plan as the page does; its run's id."""
        reply = self.post("/api/runs", {"text": text, **typed})
        assert reply.status == 201, reply.text
        return str(reply.json["runId"])

    @contextmanager
    def live(self, path: str = "/api/live", **options: Any) -> Iterator["Live"]:
        """The live channel of a page; `options` are those of `websockets`."""
        with connect(f"ws://127.0.0.1:{self.port}{path}", **options) as socket:
            yield Live(socket)

    def wait_for(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """The line of a run, once it has one of these statuses."""
        return eventually(lambda: self._line(run_id, statuses))

    def _line(self, run_id: str, statuses: tuple[str, ...]) -> Any:
        found = self.get(f"/api/runs?search={run_id}").json["runs"]
        return next((run for run in found if run["runId"] == run_id and run["status"] in statuses), None)
