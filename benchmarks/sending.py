"""Send sessions to a server with OpenTelemetry's own SDK and exporter; how long that took, as JSON.

python benchmarks/sending.py URL COUNT
"""

import json
import sys
import time

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

ANSWER = "It is sunny in Bonn, with a light wind from the west. " * 20


def main() -> None:
    """Send them all, and say so when the server has taken the last."""
    address, count = sys.argv[1], int(sys.argv[2])
    provider = TracerProvider(resource=Resource({"service.name": "Bench.DEFAULT"}))
    # Room for all: the default queue of 2,048 spans throws away what it cannot hold.
    processor = BatchSpanProcessor(
        OTLPSpanExporter(f"{address}/v1/traces"), max_queue_size=4 * count + 1, schedule_delay_millis=100
    )
    provider.add_span_processor(processor)
    started = time.perf_counter()
    for number in range(count):
        _session(provider, number)
    assert provider.force_flush(600_000)
    provider.shutdown()
    print(json.dumps({"seconds": time.perf_counter() - started}))


def _session(provider: TracerProvider, number: int) -> None:
    tracer = provider.get_tracer("bench.agent")
    asked = [
        {"role": "user", "parts": [{"type": "text", "content": f"How is the weather in town {number}?"}]}
    ]
    answered = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}]
    about = {
        "gen_ai.operation.name": "invoke_agent",
        "session.id": f"session-{number}",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(answered),
    }
    with tracer.start_as_current_span("invoke_agent Forecaster", attributes=about):
        for turn in range(2):
            model = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "large",
                "gen_ai.usage.input_tokens": 900,
                "gen_ai.usage.output_tokens": 40,
                "gen_ai.input.messages": json.dumps(asked),
            }
            with tracer.start_as_current_span(f"chat {turn}", attributes=model):
                pass
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "weather",
            "gen_ai.tool.call.arguments": json.dumps({"city": "Bonn"}),
            "gen_ai.tool.call.result": ANSWER,
        }
        with tracer.start_as_current_span("execute_tool weather", attributes=tool):
            pass


if __name__ == "__main__":
    main()
