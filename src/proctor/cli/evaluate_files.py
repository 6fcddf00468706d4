"""Files of sessions that are to be judged: imported first, then judged like any other."""

from collections.abc import Sequence
from pathlib import Path

from proctor.batch.importing import import_paths
from proctor.cli.house import now
from proctor.cli.words import count, printable, say
from proctor.errors import UsageError
from proctor.store import Store

MOST_SAID = 5


def import_files(store: Store, paths: Sequence[Path], kind: str) -> list[str]:
    """Import every session in files and folders; their ids in the store."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
    done = import_paths(store, paths, kind, now())
    for each in done.unreadable[:MOST_SAID]:
        say(f"left out {printable(each, width=300)}")
    if done.unreadable_count > MOST_SAID:
        say(f"… and {done.unreadable_count - MOST_SAID:,} more that could not be read")
    say(f"{count(len(done.session_ids), 'session')} imported")
    return list(done.session_ids)
