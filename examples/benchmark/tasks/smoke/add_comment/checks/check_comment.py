"""Looks at greeting.py in the current folder: `check_comment.py comment` or `… behaviour`."""

import subprocess
import sys
from pathlib import Path


def comment():
    lines = [line for line in Path("greeting.py").read_text().splitlines() if not line.startswith("#!")]
    first = lines[0].strip() if lines else ""
    if not first.startswith(("#", '"""', "'''")):
        return f"the first line is no comment: {first!r}"
    # A docstring may open on one line and say what it has to say on the next.
    if "greeting" not in " ".join(lines[:2]).lower():
        return "the comment does not mention the greeting"
    return ""


def behaviour():
    for words, wanted in (([], "Good morning, world."), (["Ada"], "Good morning, Ada.")):
        printed = subprocess.run(
            [sys.executable, "greeting.py", *words], capture_output=True, text=True, timeout=30
        ).stdout.strip()
        if printed != wanted:
            return f"it printed {printed!r} instead of {wanted!r}"
    return ""


problem = {"comment": comment, "behaviour": behaviour}[sys.argv[1]]()
print(problem or "ok")
sys.exit(bool(problem))
