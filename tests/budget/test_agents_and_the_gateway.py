"""What an agent gets through the gateway: the models that its plan allows, within the budget, and no more."""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from commands import Command
from databases import query
from loopback import Posted, posted_to
from proctor.testing import make_git_repository

INPUT_USD, OUTPUT_USD = 1.0, 1000.0
"""Per million tokens."""
BUDGET_USD = 8.0
"""Several times the worst case of a request: whichever arrives first, others follow."""
HOSTILE_AGENT = """
import http.client, json, os, sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

address = urlsplit(os.environ["OPENAI_BASE_URL"])
CHAT, RESPONSES = "/chat/completions", "/responses"
MESSAGES = {"messages": [{"role": "user", "content": "Go."}]}
WAYS = [
    (CHAT, MESSAGES | {"max_tokens": 50, "n": 20}, None),
    (CHAT, MESSAGES | {"max_tokens": 50, "n": 1, "best_of": 20}, None),
    (CHAT, MESSAGES | {"max_tokens": 50, "service_tier": "priority"}, None),
    (CHAT, MESSAGES | {"max_tokens": 100, "stream": True}, 1),
    (CHAT, MESSAGES | {"max_tokens": 100}, 0),
    (RESPONSES, {"input": "Go.", "max_output_tokens": 100, "background": True}, None),
]

def attack(number):
    path, body, bytes_read = WAYS[number % len(WAYS)]
    link = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
    try:
        body = json.dumps({"model": "m", **body})
        headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        link.request("POST", address.path + path, body, headers)
        if bytes_read == 0:
            # Hang up at once.
            link.close()
            return 0
        response = link.getresponse()
        if bytes_read is None:
            response.read()
        else:
            response.read(bytes_read)
        return response.status
    except OSError:
        return -1
    finally:
        link.close()

with ThreadPoolExecutor(12) as pool:
    print(sorted(pool.map(attack, range(240))))
"""


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


class Provider:
    """Bills every request for all it may generate, whatever its client reads of it."""

    def __init__(self) -> None:
        self.url = ""
        self.billed_usd = 0.0
        self.requests: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def answer(self, posted: Posted) -> Any:
        body = posted.document
        limit = body.get("max_tokens") or body.get("max_output_tokens") or body["max_completion_tokens"]
        tokens = limit * max(body.get("n") or 1, body.get("best_of") or 1)
        factor = 2.0 if body.get("service_tier") == "priority" else 1.0
        with self._lock:
            self.billed_usd += factor * (20 * INPUT_USD + tokens * OUTPUT_USD) / 1e6
            self.requests.append(body)
        if body.get("stream"):
            # It has reasoned up to its limit before the first word.
            return b'data: {"choices": [{"index": 0, "delta": {"content": "A"}}]}\n\n'
        usage = {"input_tokens": 20, "output_tokens": tokens}
        if "input" in body:
            return {"id": "r", "status": "completed", "output": [], "usage": usage}
        usage |= {"prompt_tokens": 20, "completion_tokens": tokens}
        choice = {"index": 0, "message": {"content": "A"}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": usage}

    @property
    def models(self) -> list[object]:
        """Those that were called."""
        return [body["model"] for body in self.requests]


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    with posted_to(provider.answer) as server:
        provider.url = f"{server.url}/v1"
        yield provider


def run(
    proctor: Command,
    provider: Provider,
    arguments: list[str],
    agent: str = AGENT,
    entry: Mapping[str, object] = {},
    **plan: object,
) -> Any:
    """Run a plan with this agent, which requests these models; what the command printed."""
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    (proctor.folder / "agent.py").write_text(agent)
    item = {
        "repo": str(repository),
        "prompt": "Ask.",
        "command": [sys.executable, str(proctor.folder / "agent.py"), *arguments],
        "settings": {"gateway": True},
        "timeoutSec": 60,
        "scriptCommand": "true",
    }
    (proctor.folder / "plan.yaml").write_text(
        json.dumps({"runId": "r", "matrix": [item | dict(entry)], **plan})
    )
    variables = dict.fromkeys(("OPENAI_BASE_URL", "ACME_BASE_URL"), provider.url)
    variables["OPENAI_API_KEY"] = "any"
    return proctor("batch", "plan.yaml", environment=variables)


def test_an_agent_cannot_spend_more_than_the_budget(proctor: Command, provider: Provider) -> None:
    prices = {"openai/m": {"input": INPUT_USD, "output": OUTPUT_USD}}
    entry = {"model": "openai/m", "timeoutSec": 100}

    ended = run(proctor, provider, [], HOSTILE_AGENT, entry, budget=BUDGET_USD, prices=prices)

    assert "Traceback" not in ended.stderr
    assert len(provider.requests) > 5, ended.stderr
    assert 0.5 * BUDGET_USD < provider.billed_usd <= BUDGET_USD + 1e-9, ended.stderr
    assert not any("background" in body for body in provider.requests)
    with proctor.open_store() as store:
        reserved, spent = store.read.reserved_and_spent("r")
    assert provider.billed_usd <= reserved + spent + 1e-9


def test_an_agent_gets_only_the_models_that_its_plan_allows(proctor, provider):
    requests = ["python/sys:exit", "scripted/echo", "acme/m:free", "openai/gpt-5", "openai/m", "m"]
    ended = run(proctor, provider, requests, models=["openai/m"])

    assert ended.returncode == 0, ended.stderr
    assert provider.models == ["m", "m"]
    with proctor.open_store() as store:
        calls = query(store, 'SELECT "model", "status" FROM "model_calls" ORDER BY "id"')
    refused = [(name, "403") for name in requests[:4]]
    assert [(row["model"], row["status"]) for row in calls] == [*refused, *[("openai/m", "ok")] * 2]


def test_without_models_in_the_plan_every_request_is_rejected_and_announced(proctor, provider):
    ended = run(proctor, provider, ["python/sys:exit", "openai/m"])
    assert "the gateway rejects its calls" in ended.stderr + ended.stdout
    assert provider.models == []
    with proctor.open_store() as store:
        assert [row["status"] for row in query(store, 'SELECT * FROM "batches"')] == ["completed"]


@pytest.mark.parametrize(
    ("models", "budget", "problem"),
    [
        (["acme/m:free", "acme/m"], 1, "no price is known for {}"),
        (
            ["python/sys:exit", "scripted/echo", "replay/x.ndjson"],
            None,
            "`{}` cannot be requested by an agent",
        ),
    ],
    ids=["no price", "no provider"],
)
def test_models_without_a_price_in_a_budget_and_functions_scripts_and_recordings_are_not_allowed(
    proctor: Command, provider: Provider, models: list[str], budget: int | None, problem: str
) -> None:
    limits = {} if budget is None else {"budget": budget}
    ended = run(
        proctor, provider, models, models=["openai/m", *models] if budget is None else models, **limits
    )
    assert ended.returncode == 2
    assert [model for model in models if problem.format(model) not in ended.stderr] == []
    assert provider.models == []


def test_a_model_that_is_declared_free_is_called_within_a_budget(proctor, provider):
    prices = {"acme/m": {"input": 0, "output": 0}}
    ended = run(proctor, provider, ["acme/m"], models="acme/m", budget=1, prices=prices)
    assert ended.returncode == 0, ended.stderr
    assert provider.models == ["m"]


def test_an_item_budget_also_stops_calls_without_a_price(proctor: Command, provider: Provider) -> None:
    run(proctor, provider, ["acme/m"] * 3, models="acme/m", defaults={"budget": 0.5})
    assert provider.models == []
