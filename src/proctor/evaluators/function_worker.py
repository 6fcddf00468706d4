"""Runs one function of the user's own, again and again, in a process apart.

`python -P function_worker.py SOCKET MODULE:FUNCTION FOLDER MEGABYTES`. Connects to the socket and answers
each message on it: a line with the length, then JSON. A message with `base` is kept for those after it;
one with `target` calls the function with both together and is answered with `{"outcome": …}`, or with
`{"raised": TYPE, "said": …}`.

Whatever the function prints goes to the process's own output and disturbs nobody. Imports only the
standard library. Knows nothing of Proctor.
"""

import asyncio
import importlib
import inspect
import json
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

# A function that returns more than this returns no score.
LONGEST_ANSWER = 1024 * 1024


def main(address: str, name: str, folder: str, megabytes: int) -> None:
    """Serve until the other end closes."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(address)
    stream = link.makefile("rwb")
    sys.path.insert(0, folder)
    limit = megabytes * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    function, base = None, "{}"
    while (line := stream.readline()).strip():
        message = json.loads(stream.read(int(line)))
        if "base" in message:
            # Kept as text: a function may change what it is given, and the next call must not see it.
            base = json.dumps(message["base"])
            continue
        try:
            if function is None:
                function = found(name)
            answer = json.dumps({"outcome": called(function, {**json.loads(base), **message["target"]})})
            if len(answer) > LONGEST_ANSWER:
                answer = json.dumps({"raised": "ValueError", "said": "it returned more than a megabyte"})
        except Exception as problem:
            answer = json.dumps({"raised": type(problem).__name__, "said": str(problem)[:2000]})
        body = answer.encode("utf-8", "replace")
        stream.write(b"%d\n" % len(body) + body)
        stream.flush()


def found(name: str) -> Callable[..., Any]:
    """The function a name stands for."""
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


def called(function: Callable[..., Any], event: dict[str, Any]) -> Any:
    """What the function says to an event; one that wants a context as well gets None for it."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind in kinds and each.default is inspect.Parameter.empty
    ]
    result = function(event, None) if len(needed) == 2 else function(event)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    return result


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
