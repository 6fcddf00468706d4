"""An agent that tries to spend more than its budget through the gateway, by every way a request offers."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from commands import Command
from proctor.testing import make_git_repository

INPUT_USD, OUTPUT_USD = 1.0, 1000.0
"""Per million tokens."""
BUDGET_USD = 8.0
"""Several times the worst case of a request: whichever arrives first, others follow."""
AGENT = """
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


class BillingServer(ThreadingHTTPServer):
    """Bills every request for all it may generate, whatever its client reads of it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.billed_usd = 0.0
        self.requests: list[dict[str, object]] = []


class _Handler(BaseHTTPRequestHandler):
    server: BillingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        limit = body.get("max_tokens") or body.get("max_output_tokens") or body["max_completion_tokens"]
        tokens = limit * max(body.get("n") or 1, body.get("best_of") or 1)
        factor = 2.0 if body.get("service_tier") == "priority" else 1.0
        with self.server.lock:
            self.server.billed_usd += factor * (20 * INPUT_USD + tokens * OUTPUT_USD) / 1e6
            self.server.requests.append(body)
        usage = {
            "prompt_tokens": 20,
            "completion_tokens": tokens,
            "input_tokens": 20,
            "output_tokens": tokens,
        }
        if body.get("stream"):
            # It has reasoned up to its limit before the first word.
            self._send(
                "text/event-stream", b'data: {"choices": [{"index": 0, "delta": {"content": "A"}}]}\n\n'
            )
        elif "input" in body:
            usage = {"input_tokens": 20, "output_tokens": tokens}
            document = {"id": "r", "status": "completed", "output": [], "usage": usage}
            self._send("application/json", json.dumps(document).encode())
        else:
            choice = {"index": 0, "message": {"content": "A"}, "finish_reason": "stop"}
            self._send("application/json", json.dumps({"choices": [choice], "usage": usage}).encode())

    def _send(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def provider() -> Iterator[BillingServer]:
    with BillingServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_an_agent_cannot_spend_more_than_the_budget(proctor: Command, provider: BillingServer) -> None:
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    (proctor.folder / "agent.py").write_text(AGENT)
    plan = {
        "runId": "hostile",
        "budget": BUDGET_USD,
        "prices": {"openai/m": {"input": INPUT_USD, "output": OUTPUT_USD}},
        "matrix": [
            {
                "repo": str(repository),
                "prompt": "Spend.",
                "model": "openai/m",
                "command": [sys.executable, str(proctor.folder / "agent.py")],
                "settings": {"gateway": True},
                "timeoutSec": 100,
            }
        ],
    }
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))
    url = f"http://127.0.0.1:{provider.server_address[1]}/v1"

    ended = proctor.process(
        "batch", "plan.yaml", environment={"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any"}
    )

    assert "Traceback" not in ended.stderr
    assert len(provider.requests) > 5, ended.stderr
    assert 0.5 * BUDGET_USD < provider.billed_usd <= BUDGET_USD + 1e-9, ended.stderr
    assert not any("background" in body for body in provider.requests)
    with proctor.open_store() as store:
        reserved, spent = store.read.reserved_and_spent("hostile")
    assert provider.billed_usd <= reserved + spent + 1e-9
