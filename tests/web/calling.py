"""Someone who calls a server over HTTP, with exactly the headers that are meant."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from proctor.testing import eventually
from proctor.web.state import AppState
from waiting import TIME_LIMIT_SECONDS


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

    def wait_for(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """The line of a run, once it has one of these statuses."""
        return eventually(lambda: self._line(run_id, statuses))

    def _line(self, run_id: str, statuses: tuple[str, ...]) -> Any:
        found = self.get(f"/api/runs?search={run_id}").json["runs"]
        return next((run for run in found if run["runId"] == run_id and run["status"] in statuses), None)
