"""Start the process that carries a job out, and leave it to itself.

It lives on when whoever started it ends; what it owns and how far it is stands in the store.

Knows nothing of how the job is done.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

LOGS = "evaluations"
"""The folder below Proctor's home in which these processes leave what went wrong with them."""


def start_evaluation(
    evaluation_id: str,
    *,
    store: str,
    home: Path,
    environment: Mapping[str, str],
    folder: Path,
    has_log: bool = True,
) -> int:
    """Start `proctor evaluate run ID` in a session of its own; its process id.

    `store` is the store's address as it was configured, which may hold a password: it is handed over in
    the environment, where other users cannot read it. Without a log, nothing it says lies open on the disk.
    """
    logs = home / LOGS
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / f"{evaluation_id}.log" if has_log else Path(os.devnull)).open("ab") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", "proctor", "evaluate", "run", evaluation_id, "--json"],
            cwd=folder,
            env={**environment, "PROCTOR_STORE": store, "PROCTOR_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    return started.pid
