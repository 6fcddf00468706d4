"""A clock for tests."""

from datetime import timedelta
from typing import Any


class Clock:
    """Stands still until it is moved; shows a moment, or a number of seconds."""

    def __init__(self, now: Any) -> None:
        self.now = now
        self.looks = 0
        """How often somebody has looked at it."""

    def __call__(self) -> Any:
        self.looks += 1
        return self.now

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)
