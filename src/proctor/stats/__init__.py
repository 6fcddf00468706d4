"""Sessions and scores turned into figures. All statistics are made here, nowhere else."""

from proctor.stats.progress import Progress, progress
from proctor.stats.summary import Summary, summarise

__all__ = ["Progress", "Summary", "progress", "summarise"]
