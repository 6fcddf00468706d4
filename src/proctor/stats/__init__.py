"""Statistics of sessions and scores."""

from proctor.stats.progress import Progress, progress
from proctor.stats.summary import Summary, summarise

__all__ = ["Progress", "Summary", "progress", "summarise"]
