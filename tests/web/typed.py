"""Plans that tests of the server start, and how long they wait."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 30.0

PROMPTS = """
concurrency: 2
defaults: {model: scripted/echo}
matrix:
  - prompt: the tide comes in at noon
    expect: {contains: noon}
    runs: 3
  - prompt: something else
    expect: {contains: noon}
"""
"""Three succeed and one fails, at once."""
SLOW = """
concurrency: 2
defaults: {model: scripted/slow}
matrix: [{prompt: [one, two, three, four]}]
"""
"""Goes on until somebody stops it; needs the fixture `slow_model`."""


def until(look: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Look until there is something to see."""
    patience = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < patience, "nothing was seen in time"
        time.sleep(0.02)
    return found
