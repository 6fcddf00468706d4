"""Looks at MANUAL.md and inbox.py in the current folder."""

import contextlib
import io
import sys
from pathlib import Path

MANUAL = """# Inbox

Messages you receive are kept in the order in which they came.

## Limits

You can receive a hundred messages a day. Received messages are deleted after a week.
"""


def manual():
    return "MANUAL.md still has the typo" if "recieve" in Path("MANUAL.md").read_text().lower() else ""


def program():
    sys.path.insert(0, ".")
    import inbox

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        inbox.recieve_all(["hello"])
        inbox.recieve_all([])
    wanted = "You received: hello\nNothing to receive.\n"
    return "" if printed.getvalue() == wanted else f"it printed {printed.getvalue()!r}"


def rest():
    if Path("MANUAL.md").read_text().rstrip() != MANUAL.rstrip():
        return "MANUAL.md differs in more than the typo"
    if "def recieve_all(messages):" not in Path("inbox.py").read_text():
        return "inbox.py no longer has the function recieve_all"
    return ""


problem = {"manual": manual, "program": program, "rest": rest}[sys.argv[1]]()
print(problem or "ok")
sys.exit(bool(problem))
