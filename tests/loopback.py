"""An HTTP server on loopback that notes what it is sent, and answers as a function says."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Posted:
    """One request."""

    path: str
    headers: Any
    data: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.data)


class Loopback(ThreadingHTTPServer):
    """What came, the first request first, and where to send it."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Posted], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests = list[Posted]()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Loopback
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        posted = Posted(self.path, self.headers, self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(posted)
        answer = self.server.answer(posted)
        status, data = (answer, b"") if isinstance(answer, int) else (200, answer)
        kind = "application/json"
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        elif data:
            kind = "text/event-stream"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def posted_to(answer: Callable[[Posted], Any] = lambda _: 200) -> Iterator[Loopback]:
    """A server for as long as the block. An answer is a status, a document of JSON, or bytes of a stream."""
    with Loopback(answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
