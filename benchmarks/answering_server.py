"""A server that answers every chat completion with the same words, at once or after a while.

A process of its own, so that its work is not counted as that of those who ask it. It reads just as
much of HTTP as keep-alive clients send, and prints the port it listens on.

    python benchmarks/answering_server.py [SECONDS]
"""

import asyncio
import json
import sys

COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "bench",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello to you"}}
    ],
    "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
}
BODY = json.dumps(COMPLETION).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


class Answering(asyncio.Protocol):
    """One connection: waits until a request is whole, then answers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            whole = end + 4 + _length(self._received[:end])
            if len(self._received) < whole:
                return
            self._received = self._received[whole:]
            self._answer()

    def _answer(self) -> None:
        if self._seconds:
            asyncio.get_running_loop().call_later(self._seconds, self._transport.write, ANSWER)
        else:
            self._transport.write(ANSWER)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


async def serve(seconds: float) -> None:
    """Answer until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(seconds), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(serve(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0))
    except KeyboardInterrupt:
        pass
