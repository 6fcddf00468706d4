"""Who carries out a batch, and whether they still live.

An owner is written as `host:pid:start:random`. On its own host a process can be looked up, so
its death shows at once; on another host only the heartbeat tells.

Knows nothing of batches.
"""

import os
import secrets
import socket
from datetime import datetime, timedelta
from pathlib import Path

SILENCE = timedelta(seconds=10)
"""A heartbeat comes every second; ten missed ones survive a busy disk, not a dead process."""


def this_process() -> str:
    """A name for this process as the owner of a batch, never given twice."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid)}:{secrets.token_hex(4)}"


def is_alive(owner: str, heartbeat: datetime | None, now: datetime) -> bool:
    """Whether the process that took the batch is still at it."""
    host, pid, started, *_ = [*owner.rsplit(":", 3), "", "", ""]
    if host == socket.gethostname() and pid.isdigit() and Path("/proc/self/stat").exists():
        # A stopped process (Ctrl-Z) still owns its batch: it would go on when continued.
        return bool(started) and _started(int(pid)) == started
    return heartbeat is not None and now - heartbeat < SILENCE


def _started(pid: int) -> str:
    try:
        # The 22nd field of stat, counted behind the name, which may itself hold spaces and brackets.
        stat = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return ""
    return "" if stat[0] == "Z" else stat[19]
