"""How much there may be of everything, and how often it may be asked for.

The figures are those of the service this interface is known from; `[evaluation.limits]` in `proctor.toml` has
others for who wants them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from proctor.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Quotas of this server. A rate of 0 is no limit."""

    active_jobs: int = 5
    jobs: int = 2000
    evaluators: int = 1000
    online_configs: int = 1000
    start_per_second: float = 3
    stop_per_second: float = 3
    delete_per_second: float = 3
    get_per_second: float = 60
    list_per_second: float = 60
    evaluate_seconds: float = 55
    """When Evaluate answers with what it has. The client gives up after 60 and sends the same again."""
    evaluate_bytes: int = 200 * 1024 * 1024
    body_bytes: int = 32 * 1024 * 1024
    """What any other operation reads: 500 sessions with ample ground truth."""
    session_timeout_seconds: float | None = None
    """How long a session must have been quiet before an online configuration judges it, for all of them;
    None: as each configuration says, in minutes."""
    watch_seconds: float = 5
    """How often the server looks for sessions that online configurations wait for."""
    take_up_seconds: float = 15
    """How often it looks for jobs whose process died. One that it finds so twice in a row, it takes up."""

    @property
    def rates(self) -> Mapping[str, float]:
        """Calls a second, by operation."""
        return {
            "StartBatchEvaluation": self.start_per_second,
            "StopBatchEvaluation": self.stop_per_second,
            "DeleteBatchEvaluation": self.delete_per_second,
            "GetBatchEvaluation": self.get_per_second,
            "ListBatchEvaluations": self.list_per_second,
        }


def limits_of(settings: Mapping[str, Any]) -> Limits:
    """The limits with some of them set otherwise."""
    known = [field.name for field in fields(Limits)]
    for name, value in settings.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean `{near[0]}`? " if near else ""
            raise UsageError(f"[evaluation.limits] has no `{name}`\n{hint}There are: {', '.join(known)}.")
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise UsageError(f"[evaluation.limits]: `{name}` should be a number that is not negative")
    return replace(Limits(), **settings)
