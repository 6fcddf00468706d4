"""How often an operation may be called: a bucket of tokens that fills again by itself.

Knows nothing of the operations.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime

from proctor.web.agentcore.errors import ThrottlingException


class Rates:
    """One bucket an operation. A bucket holds what a second allows, and at least one call."""

    def __init__(self, per_second: Mapping[str, float], now: Callable[[], datetime]) -> None:
        """Operations that are not in `per_second`, or have 0 there, are not limited."""
        self._per_second = per_second
        self._now = now
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, datetime]] = {}

    def take(self, operation: str) -> None:
        """Count one call, or refuse it."""
        rate = self._per_second.get(operation, 0)
        if rate <= 0:
            return
        now, most = self._now(), max(1.0, rate)
        with self._lock:
            left, at = self._left.get(operation, (most, now))
            # A clock that was set back must not fill or drain anything.
            left = min(most, left + max(0.0, (now - at).total_seconds()) * rate)
            if left < 1:
                raise ThrottlingException(f"Rate exceeded: {operation} takes {rate:g} calls a second.")
            self._left[operation] = (left - 1, now)
