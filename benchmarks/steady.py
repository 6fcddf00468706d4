"""Send spans to a server at a steady rate; seconds that the requests took and the spans accepted, as JSON.

python benchmarks/steady.py URL SPANS_PER_SECOND SPANS_PER_REQUEST SECONDS SESSIONS

With SESSIONS 0, every four spans are a session; otherwise all spans are in so many.
"""

import asyncio
import json
import secrets
import sys
import time

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ASKED = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Where is my order? " * 32}]}])
ANSWERED = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "On its way. " * 28}]}])
OPERATIONS = ("invoke_agent", "chat", "execute_tool", "chat")


def main() -> None:
    """Send them, each request at its time, whether or not those before it have been answered."""
    address, (rate, size, seconds, sessions) = sys.argv[1], map(int, sys.argv[2:])
    bodies = [_body(number, size, sessions) for number in range(rate * seconds // size)]
    times = asyncio.run(_send(f"{address}/v1/traces", bodies, size / rate))
    print(json.dumps({"times": sorted(times), "accepted": len(times) * size}))


async def _send(url: str, bodies: list[bytes], pause: float) -> list[float]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def send(body: bytes) -> float:
            started = time.perf_counter()
            headers = {"content-type": "application/x-protobuf"}
            async with client.post(url, data=body, headers=headers) as response:
                await response.read()
                assert response.status == 200, response.status
            return time.perf_counter() - started

        started, sending = time.perf_counter(), []
        for number, body in enumerate(bodies):
            await asyncio.sleep(max(0.0, started + number * pause - time.perf_counter()))
            sending.append(asyncio.create_task(send(body)))
        return await asyncio.gather(*sending)


def _body(number: int, size: int, sessions: int) -> bytes:
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for trace in range(number * size // 4, (number + 1) * size // 4):
        trace_id, root, now = secrets.token_bytes(16), secrets.token_bytes(8), time.time_ns()
        for place, operation in enumerate(OPERATIONS):
            ids = {"span_id": secrets.token_bytes(8), "parent_span_id": root} if place else {"span_id": root}
            span = spans.add(trace_id=trace_id, name=operation, **ids)
            span.start_time_unix_nano, span.end_time_unix_nano = now + place, now + place + 1000
            attributes = {
                "gen_ai.operation.name": operation,
                "gen_ai.request.model": "gpt-4o-mini",
                "gen_ai.input.messages": ASKED,
                "gen_ai.output.messages": ANSWERED,
            }
            if sessions:
                attributes["session.id"] = f"session-{trace % sessions}"
            for key, value in attributes.items():
                span.attributes.add(key=key).value.string_value = value
    return message.SerializeToString()


if __name__ == "__main__":
    main()
