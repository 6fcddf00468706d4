"""Sessions and scores turned into figures. All statistics are made here, nowhere else."""

from proctor.analyse.progress import Progress, progress
from proctor.analyse.summary import Summary, summarise

__all__ = ["Progress", "Summary", "progress", "summarise"]
