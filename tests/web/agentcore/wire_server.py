"""A real server over a store in a folder, and the stock client, whose model its answers are held against."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from app_states import make_state
from botocore.config import Config
from botocore.exceptions import ClientError
from threaded_server import ThreadedServer
from wire_contract import problems_of_response

from proctor.batch.ingest import build_sessions, keep_arrivals
from proctor.store import Store
from proctor.telemetry import normalized
from proctor.web.app import create_app
from proctor.web.state import AppState

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
_session = boto3.session.Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1")


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ACCOUNT = "arn:aws:bedrock-agentcore:us-east-1:000000000000"
"""How ARNs of this server begin."""


@dataclass(frozen=True)
class Refusal:
    """What a client is told whose request is refused."""

    code: str
    status: int
    message: str
    reason: str
    fields: dict[str, str]
    """Constraints by the names of the members that break them."""


def refused(call: Callable[..., Any], *words: Any, **members: Any) -> Refusal:
    with pytest.raises(ClientError) as caught:
        call(*words, **members)
    answer = caught.value.response
    return Refusal(
        code=answer["Error"]["Code"],
        status=answer["ResponseMetadata"]["HTTPStatusCode"],
        message=answer["Error"]["Message"],
        reason=answer.get("reason", ""),
        fields={each["name"]: each["message"] for each in answer.get("fieldList", [])},
    )


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """The members of an answer."""
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def pages(call: Callable[..., Any], entries: str, **members: Any) -> list[list[Any]]:
    """The entries of each page until one has no token."""
    found, token = list[list[Any]](), dict[str, str]()
    while True:
        page = call(**members, **token)
        found.append(page[entries])
        if "nextToken" not in page:
            return found
        token = {"nextToken": page["nextToken"]}


def arrive(store: Store, documents: Iterable[Any], log_group: str, at: datetime | None = None) -> None:
    """Spans come to a log group; their sessions are there."""
    at = at or datetime.now(UTC)
    keep_arrivals(store, [normalized(each) for each in documents], at, log_group=log_group)
    build_sessions(store, at)


@dataclass
class Served:
    """A server under test."""

    url: str
    site: AppState
    broken: list[str] = field(default_factory=list)
    """What is wrong with responses so far."""
    clients: dict[str, Any] = field(default_factory=dict)
    """Of each service the client that is used over and over: to make one takes longer than most calls."""

    @property
    def store(self) -> Store:
        return self.site.context.store

    def client(self, service: str, **options: Any) -> Any:
        """The stock client, pointed here."""
        config = Config(retries={"total_max_attempts": 1}, **options.pop("config", {}))
        made = _session.client(service, endpoint_url=self.url, config=config, **options)
        made.meta.events.register("after-call.*.*", self._check)
        return made

    def _kept(self, service: str) -> Any:
        if service not in self.clients:
            self.clients[service] = self.client(service)
        return self.clients[service]

    @property
    def data(self) -> Any:
        return self._kept("bedrock-agentcore")

    @property
    def control(self) -> Any:
        return self._kept("bedrock-agentcore-control")

    @property
    def logs(self) -> Any:
        return self._kept("logs")

    def _check(self, http_response: Any, model: Any, **_: Any) -> None:
        self.broken += problems_of_response(model, http_response)


@contextmanager
def servers(tmp_path: Path, program: Sequence[str], empty_store: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers; whatever they answered is held against the client's model at the end.

    `program` is the command line of `proctor`, which executes their jobs. They have no pages, whose routes
    take longer to make than most tests; `test_wire_restarts.py` starts whole servers.
    """
    running: list[tuple[ThreadedServer, Served]] = []
    shutil.copy(empty_store, tmp_path / "proctor.db")

    def start(**options: Any) -> Served:
        home = tmp_path / "home"
        store = Store(str(tmp_path / "proctor.db"))
        path = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment = {
            **path,
            "PROCTOR_STORE": str(tmp_path / "proctor.db"),
            **options.pop("environment", {}),
        }
        site = make_state(
            store,
            home=home,
            folder=tmp_path,
            command=options.pop("command", [*program, "--home", str(home)]),
            environment=environment,
            **options,
        )
        server = ThreadedServer(create_app(site, makers=()), lifespan="on")
        served = Served(f"http://127.0.0.1:{server.port}", site)
        running.append((server, served))
        return served

    yield start
    for server, served in running:
        server.stop()
        served.store.close()
    assert [problem for *_, served in running for problem in served.broken] == []
