"""Calls of a model at a provider with the API of OpenAI, and its answers."""

from typing import Any

from aiohttp import web

from proctor.model import Request
from proctor.models.client import CallRetryPolicy

# Of no known shape, so that only knowing it helps to hide it.
KEY = "0123456789abcdefplain"
QUICK = CallRetryPolicy(first_pause_seconds=0.01, most_waiting_seconds=2)


def completion(text: str | None = "Paris", **more: Any) -> web.Response:
    """An answer with its usage."""
    message = {"role": "assistant", "content": text, **more}
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 40},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if more else "stop"}
    return web.json_response({"id": "x", "choices": [choice], "usage": usage})


def ask(text: str = "What is the capital of France?", **more: Any) -> Request:
    """A request to the model that `models` reaches."""
    return Request(model="openai/tiny", messages=[{"role": "user", "content": text}], **more)
