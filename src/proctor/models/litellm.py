"""Ask the long tail of providers through litellm, for those who have installed it.

`litellm/bedrock/NAME` asks what litellm calls `bedrock/NAME`. The library takes seconds to import
and finds its keys by itself, so it is loaded only when such a model is asked.

Knows nothing of prices or records.
"""

import asyncio
from importlib import import_module
from typing import Any

from proctor.errors import ModelError, RateLimited, UsageError
from proctor.model import Request
from proctor.models import openai
from proctor.models.wire import Reading

PREFIX = "litellm/"


def load() -> Any:
    """The library itself; a `UsageError` says how to get it when it is missing."""
    try:
        # Imported here because it takes more than four seconds and is an extra.
        return import_module("litellm")
    except ImportError as cause:
        raise UsageError("`litellm/…` models need the library litellm: install `proctor[litellm]`") from cause


async def ask(library: Any, request: Request) -> Reading:
    """Ask, and read the answer, which comes in the shape of chat completions."""
    asked: dict[str, Any] = {key: value for key, value in request.parameters.items() if key != "stream"}
    asked |= {"model": request.model.removeprefix(PREFIX), "messages": list(request.messages)}
    if request.tools:
        asked["tools"] = list(request.tools)
    if request.seed is not None:
        asked["seed"] = request.seed
    try:
        answer = await library.acompletion(**asked)
    except asyncio.CancelledError:
        raise
    except Exception as failure:
        raise _attributed(failure) from failure
    try:
        return openai.read(answer.model_dump())
    except (LookupError, TypeError, AttributeError) as cause:
        raise ModelError("litellm answered in no known shape") from cause


def _attributed(failure: Exception) -> ModelError:
    """Its errors carry the provider's status; its words may carry a key, so only the type is said."""
    status = getattr(failure, "status_code", None)
    said = f"litellm: {type(failure).__name__}" + (f" ({status})" if status else "")
    if status == 429:
        return RateLimited(said)
    reasons = {400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 422: "bad_request"}
    return ModelError(said, reason=reasons.get(status or 0))
