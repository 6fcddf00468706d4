"""Sessions that are to be judged and are not here yet: imported first, then judged like any other."""

from collections.abc import Sequence
from pathlib import Path

from proctor.batch.importing import Imported, import_log_groups, import_paths
from proctor.cli.house import now
from proctor.cli.words import count, printable, say
from proctor.errors import UsageError
from proctor.plan.evaluation import LogGroups
from proctor.store import Store
from proctor.telemetry import cloudwatch

MOST_SAID = 5


def import_files(store: Store, paths: Sequence[Path], kind: str) -> list[str]:
    """Import every session in files and folders; their ids in the store."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
    return _told(import_paths(store, paths, kind, now()))


def import_cloudwatch(store: Store, wanted: object) -> None:
    """Import what CloudWatch Logs holds of the log groups that are to be judged."""
    if not isinstance(wanted, LogGroups):
        raise UsageError("--cloudwatch fetches log groups\nName them: --log-group or --log-group-prefix.")
    groups = cloudwatch.LogGroups(
        names=wanted.names,
        prefixes=wanted.prefixes,
        service=next(iter(wanted.services), ""),
        session_ids=(*wanted.session_ids, *wanted.traces),
        start=wanted.period.start,
        end=wanted.period.end,
    )
    _told(import_log_groups(store, cloudwatch.logs_client(), groups, now()))


def _told(done: Imported) -> list[str]:
    for each in done.unreadable[:MOST_SAID]:
        say(f"left out {printable(each, width=300)}")
    if done.unreadable_count > MOST_SAID:
        say(f"… and {done.unreadable_count - MOST_SAID:,} more that could not be read")
    say(f"{count(len(done.session_ids), 'session')} imported")
    return list(done.session_ids)
