"""An agent whose item has no model gets the models that its plan allows, within the budget, and no other."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from commands import Command
from databases import query
from proctor.testing import make_git_repository

AGENT = """
import json, os, sys, urllib.error, urllib.request

for model in sys.argv[1:]:
    body = {"model": model, "messages": [{"role": "user", "content": "Go."}], "max_tokens": 100}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            print(model, response.status, flush=True)
    except urllib.error.HTTPError as error:
        print(model, error.code, flush=True)
"""
ANSWER = {
    "choices": [{"index": 0, "message": {"content": "A"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 100},
}


class Provider(ThreadingHTTPServer):
    """Answers everything, and keeps the names of the models."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        self.server.models.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["model"])
        data = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def run(proctor: Command, provider: Provider, requests: list[str], **plan: object) -> object:
    """Run a plan whose agent requests these models; what the command printed."""
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    (proctor.folder / "agent.py").write_text(AGENT)
    entry = {
        "repo": str(repository),
        "prompt": "Ask.",
        "command": [sys.executable, str(proctor.folder / "agent.py"), *requests],
        "settings": {"gateway": True},
        "timeoutSec": 60,
        "scriptCommand": "true",
    }
    (proctor.folder / "plan.yaml").write_text(json.dumps({"runId": "r", "matrix": [entry], **plan}))
    url = f"http://127.0.0.1:{provider.server_address[1]}/v1"
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any", "ACME_BASE_URL": url}
    return proctor.process("batch", "plan.yaml", environment=variables)


def test_an_agent_gets_only_the_models_that_its_plan_allows(proctor: Command, provider: Provider) -> None:
    requests = ["python/sys:exit", "scripted/echo", "acme/m:free", "openai/gpt-5", "openai/m", "m"]
    ended = run(proctor, provider, requests, models=["openai/m"])

    assert ended.returncode == 0, ended.stderr
    assert provider.models == ["m", "m"]
    with proctor.open_store() as store:
        calls = query(store, 'SELECT "model", "status" FROM "model_calls" ORDER BY "id"')
    refused = [(name, "403") for name in requests[:4]]
    assert [(row["model"], row["status"]) for row in calls] == [*refused, *[("openai/m", "ok")] * 2]


def test_without_models_in_the_plan_every_request_is_rejected_and_announced(
    proctor: Command, provider: Provider
) -> None:
    ended = run(proctor, provider, ["python/sys:exit", "openai/m"])
    assert "the gateway rejects its calls" in ended.stderr + ended.stdout
    assert provider.models == []
    with proctor.open_store() as store:
        assert [row["status"] for row in query(store, 'SELECT * FROM "batches"')] == ["completed"]


@pytest.mark.parametrize("model", ["acme/m:free", "acme/m"])
def test_a_model_without_a_price_is_not_allowed_where_a_budget_stands(
    proctor: Command, provider: Provider, model: str
) -> None:
    ended = run(proctor, provider, [model], models=[model], budget=1)
    assert ended.returncode == 2
    assert f"no price is known for {model}" in ended.stderr
    assert provider.models == []


@pytest.mark.parametrize("model", ["python/sys:exit", "scripted/echo", "replay/x.ndjson"])
def test_functions_scripts_and_recordings_cannot_be_allowed(
    proctor: Command, provider: Provider, model: str
) -> None:
    ended = run(proctor, provider, [model], models=["openai/m", model])
    assert ended.returncode == 2
    assert f"`{model}` cannot be requested by an agent" in ended.stderr


def test_a_model_that_is_declared_free_is_called_within_a_budget(
    proctor: Command, provider: Provider
) -> None:
    prices = {"acme/m": {"input": 0, "output": 0}}
    ended = run(proctor, provider, ["acme/m"], models="acme/m", budget=1, prices=prices)
    assert ended.returncode == 0, ended.stderr
    assert provider.models == ["m"]


def test_an_item_budget_also_stops_calls_without_a_price(proctor: Command, provider: Provider) -> None:
    run(proctor, provider, ["acme/m"] * 3, models="acme/m", defaults={"budget": 0.5})
    assert provider.models == []
