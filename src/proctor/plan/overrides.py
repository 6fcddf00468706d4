"""What the command line says in place of a plan's defaults.

Knows nothing of command lines or of the plan at hand.
"""

from dataclasses import dataclass
from typing import Any

from proctor.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Each replaces a default, and an item's own value still wins. None: the plan decides."""

    concurrency: int | None = None
    model: str | None = None
    agent: str | None = None
    budget_usd: float | None = None
    """What the whole batch may cost."""
    timeout_sec: float | None = None
    retries: int | None = None
    merge_on_pass: bool | None = None
    json_logs: bool | None = None

    def __post_init__(self) -> None:
        if self.concurrency is not None and self.concurrency < 1:
            raise UsageError(f"the concurrency should be at least 1, not {self.concurrency}")
        if self.timeout_sec is not None and not 0 < self.timeout_sec < float("inf"):
            raise UsageError(f"the timeout should be more than 0 seconds, not {self.timeout_sec:g}")
        if self.retries is not None and self.retries < 0:
            raise UsageError(f"the retries should be at least 0, not {self.retries}")
        if self.budget_usd is not None and not 0 < self.budget_usd < float("inf"):
            raise UsageError(f"the budget should be more than 0 dollars, not {self.budget_usd:g}")
        for name in ("model", "agent"):
            if getattr(self, name) is not None and not getattr(self, name).strip():
                raise UsageError(f"the {name}'s name should not be empty")

    def as_defaults(self) -> dict[str, Any]:
        """Those that stand among the defaults, under the names a plan gives them."""
        given = {
            "model": self.model,
            "agent": self.agent,
            "timeoutSec": self.timeout_sec,
            "retries": self.retries,
            "mergeOnPass": self.merge_on_pass,
            "jsonLogs": self.json_logs,
        }
        return {name: value for name, value in given.items() if value is not None}


NO_OVERRIDES = Overrides()
