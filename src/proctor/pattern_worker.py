"""Process that calls functions which may take forever, for `patterns.py`: a timer ends it.

It ends with the process that started it, too, because its input then ends.
"""

import json
import os
import signal
import struct
import sys
from importlib import import_module

# Not those of `patterns.py`: Proctor can be imported only once the first request has brought the path.


def main() -> None:
    """Answer requests until the input ends."""
    seconds = float(sys.argv[1])
    requests, answers = os.fdopen(0, "rb"), os.fdopen(1, "wb")
    while head := requests.read(8):
        request = json.loads(requests.read(struct.unpack(">Q", head)[0]))
        sys.path[:] = request["path"]
        module, _, name = request["function"].partition(":")
        function = getattr(import_module(module), name)
        # Its action is to end the process: no Python code runs while an expression is matched.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            answer = (function(*request["arguments"]), "")
        except Exception as error:
            answer = (None, f"{type(error).__name__}: {error}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        data = json.dumps(answer).encode()
        answers.write(struct.pack(">Q", len(data)) + data)
        answers.flush()


if __name__ == "__main__":
    main()
