"""`python -m proctor` is the command `proctor`."""

import os
import sys
from typing import NoReturn

from proctor.cli.main import main


def run() -> NoReturn:
    """Run the command, and leave.

    All is written and closed by then. Python would go on to take apart, piece by piece, what the system
    takes back as a whole: 20 ms of every command.
    """
    code = 0
    try:
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        # The reader of the output has ended (`| head`).
        pass
    os._exit(code)


if __name__ == "__main__":
    run()
