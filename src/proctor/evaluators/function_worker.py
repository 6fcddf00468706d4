"""Runs one function of the user repeatedly, in a separate process.

`python -P function_worker.py SOCKET MODULE:FUNCTION FOLDER MEGABYTES`. Connects to the socket and answers
each message on it: a line with two lengths, then the part of the event that several targets share (0: as in
the message before) and the part about one target, both JSON. The function is called with both merged; the
answer is a line with its length, then `{"outcome": …}` or `{"raised": TYPE, "message": …}`.

Output of the function goes to the output of the process. Imports only the standard library.
"""

import asyncio
import importlib
import inspect
import json
import os
import resource
import socket
import sys
from collections.abc import Callable

from proctor.json_values import JsonObject

# Maximum size of a result.
LONGEST_ANSWER = 1024 * 1024


def main(address: str, name: str, folder: str, megabytes: int) -> None:
    """Serve until the other end closes."""
    link = socket.socket(socket.AF_UNIX)
    # An address has at most 107 bytes, and a temporary folder can have more.
    here, (place, link_name) = os.open(".", os.O_RDONLY), os.path.split(address)
    os.chdir(place)
    link.connect(link_name)
    os.fchdir(here)
    os.close(here)
    stream = link.makefile("rwb")
    sys.path.insert(0, folder)
    limit = megabytes * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    function, base = None, b"{}"
    while (line := stream.readline()).strip():
        base_size, target_size = map(int, line.split())
        if base_size:
            # Kept as text: a function may modify its argument, and the next call must not see that.
            base = stream.read(base_size)
        target = json.loads(stream.read(target_size))
        try:
            if function is None:
                function = load_function(name)
            answer = json.dumps({"outcome": call_function(function, {**json.loads(base), **target})})
            if len(answer) > LONGEST_ANSWER:
                answer = json.dumps({"raised": "ValueError", "message": "it returned more than a megabyte"})
        except Exception as problem:
            answer = json.dumps({"raised": type(problem).__name__, "message": str(problem)[:2000]})
        body = answer.encode("utf-8", "replace")
        stream.write(b"%d\n" % len(body) + body)
        stream.flush()


def load_function(name: str) -> Callable[..., object]:
    """Import the function."""
    module, _, attribute = name.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    return function


def call_function(function: Callable[..., object], event: JsonObject) -> object:
    """The result of the function for an event; a second parameter (a context) gets None."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind in kinds and parameter.default is inspect.Parameter.empty
    ]
    result = function(event, None) if len(needed) == 2 else function(event)
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    return result


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
