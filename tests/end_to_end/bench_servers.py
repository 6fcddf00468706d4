"""A model server on loopback for tests of benchmarks: it lists models and answers as each is called.

`solver…` does the task, `idler…` does nothing, `broken…` is refused, `hanging…` never answers, `slow…`
does the task after a while, or once others are asked as well. Speaks OpenAI's chat completions, and Ollama's
list of models.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from waiting import TIME_LIMIT_SECONDS

SOLUTION = "sed -i '1i # Prints a greeting.' greeting.py"


class Server:
    """What a test may look at."""

    def __init__(self, models: Sequence[str], port: int) -> None:
        self.models = list(models)
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.most_at_once = 0
        self.at_once = 0
        self.lists = True
        """Whether it says which models it has."""
        self.waits_for = 0
        """How many first requests to `slow…` are answered together."""
        self.arrived = 0
        self.arrival = threading.Condition()

    def wait_for_others(self) -> None:
        """Until as many requests as `waits_for` have come."""
        with self.arrival:
            self.arrived += 1
            together = -(-self.arrived // self.waits_for) * self.waits_for
            self.arrival.notify_all()
            self.arrival.wait_for(lambda: self.arrived >= together, TIME_LIMIT_SECONDS)

    def calls_of(self, model: str) -> int:
        return sum(body["model"] == model for body in self.asked)


@contextmanager
def serving(*models: str) -> Iterator[Server]:
    """A server that has these models, for as long as the block."""
    running = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    running.daemon_threads = True
    server = running.state = Server(models, running.server_address[1])  # type: ignore[attr-defined]
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        running.shutdown()
        running.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()

    @property
    def state(self) -> Server:
        return self.server.state  # type: ignore[attr-defined, no-any-return]

    def log_message(self, *_: object) -> None:
        return None

    def do_GET(self) -> None:
        if self.state.lists and self.path == "/api/tags":
            self._send(200, {"models": [{"name": name} for name in self.state.models]})
        elif self.state.lists and self.path == "/v1/models":
            self._send(200, {"data": [{"id": name} for name in self.state.models]})
        else:
            self._send(404, {"error": "no"})

    def do_POST(self) -> None:
        state = self.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            state.asked.append(body)
            state.keys.append(self.headers.get("Authorization", ""))
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
        try:
            self._answer(body)
        finally:
            with self.lock:
                state.at_once -= 1

    def _answer(self, body: dict[str, Any]) -> None:
        name, answered = body["model"], any(each["role"] == "assistant" for each in body["messages"])
        if name.startswith("broken"):
            # Some providers repeat what they were sent; a key must not get any further.
            said = f"no such model, and your header was {self.headers.get('Authorization')}"
            self._send(400, {"error": {"message": said}})
            return
        if name.startswith("hanging"):
            time.sleep(30)
        if name.startswith("slow") and not answered:
            if self.state.waits_for:
                self.state.wait_for_others()
            # Long enough for a request that should not have been sent yet.
            time.sleep(0.2)
        if name.startswith("idler") or answered:
            self._say("I have finished.")
        else:
            self._say("", [{"name": "run", "arguments": json.dumps({"command": SOLUTION})}])

    def _say(self, text: str, tools: Sequence[dict[str, str]] = ()) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if tools:
            message["tool_calls"] = [
                {"id": f"call_{number}", "type": "function", "function": tool}
                for number, tool in enumerate(tools)
            ]
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tools else "stop"}
        self._send(200, {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})

    def _send(self, status: int, document: Any) -> None:
        data = json.dumps(document).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            # Whoever asked has given up.
            self.close_connection = True
