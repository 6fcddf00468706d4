"""Bring in sessions that were recorded elsewhere: files and folders of any kind, and log groups.

What cannot be read is named, counted and left out; everything else is kept. Importing again replaces.

Knows nothing of commands.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from proctor.batch.arrivals import keep_arrivals, tell_arrivals
from proctor.batch.import_prices import priced
from proctor.errors import UsageError
from proctor.imported import Unreadable
from proctor.records import Kind, all_endings, endings_of, find_kind, kind_names, recognised
from proctor.store import Store
from proctor.telemetry import files
from proctor.telemetry.cloudwatch import LogGroups, read_log_groups
from proctor.telemetry.documents import Document

OTLP, AUTO = "otlp", "auto"
MOST_NAMED = 1_000
"""Things that could not be read which are named; all are counted."""


@dataclass(slots=True)
class Imported:
    """What came of an import."""

    session_ids: list[str] = field(default_factory=list)
    """In the store, in the order of the files; also of sessions that were there already."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """The first of them."""
    unreadable_count: int = 0
    documents: int = 0
    """Spans and event records."""
    traces: dict[str, None] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)
    """The first files in a folder that are called like nothing anybody reads: notes, pictures, programs."""
    passed_over_count: int = 0

    def name(self, unreadable: Unreadable) -> None:
        """Note something that could not be read."""
        self.unreadable_count += 1
        if len(self.unreadable) < MOST_NAMED:
            self.unreadable.append(unreadable)

    def pass_over(self, path: Path) -> None:
        """Note a file that nobody would take for a record."""
        self.passed_over_count += 1
        if len(self.passed_over) < MOST_NAMED:
            self.passed_over.append(str(path))


def import_kinds() -> list[str]:
    """What `import_paths` knows."""
    return [AUTO, OTLP, *kind_names()]


def import_paths(
    store: Store,
    paths: Sequence[Path],
    kind: str,
    now: datetime,
    *,
    service: str = "",
    log_group: str = "",
) -> Imported:
    """Import every session in files and folders; `auto` finds out what each of them is.

    `service` and `log_group` are for sessions that do not name theirs.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
    known = None if kind in (OTLP, AUTO) else find_kind(kind)
    done = Imported()
    for path in paths:
        if known is not None:
            _keep_records(store, known, _each(path, known), done, now, service, log_group)
        elif kind == OTLP:
            _keep_spans(store, files.files_in(path), done, now, service, log_group)
        else:
            _keep_whatever(store, path, done, now, service, log_group)
    return _told(store, done, now)


def import_log_groups(store: Store, client: Any, wanted: LogGroups, now: datetime) -> Imported:
    """Import what CloudWatch Logs holds of these groups; `client` comes from `logs_client`."""
    done = Imported()
    for log_group, found in groupby(read_log_groups(client, wanted), key=lambda each: each[0]):
        documents = _counted((document for _, document in found), done)
        keep_arrivals(store, documents, now, log_group=log_group, service=wanted.service)
    return _told(store, done, now)


def _told(store: Store, done: Imported, now: datetime) -> Imported:
    tell_arrivals(store, now)
    done.session_ids += store.arrivals.sessions_of(done.traces)
    done.session_ids = list(dict.fromkeys(done.session_ids))
    return done


def _keep_spans(
    store: Store, paths: Iterable[Path], done: Imported, now: datetime, service: str, log_group: str
) -> None:
    for path in paths:
        documents = _counted(_readable(files.read_documents(path), done), done)
        keep_arrivals(store, documents, now, fallback=log_group, service=service)


def _readable(found: Iterable[Document | Unreadable], done: Imported) -> Iterator[Document]:
    for each in found:
        if isinstance(each, Unreadable):
            done.name(each)
        else:
            yield each


def _counted(documents: Iterable[Document], done: Imported) -> Iterator[Document]:
    for document in documents:
        done.documents += 1
        done.traces[document["traceId"]] = None
        yield document


def _keep_records(
    store: Store,
    kind: Kind,
    paths: Iterable[Path],
    done: Imported,
    now: datetime,
    service: str,
    log_group: str,
) -> None:
    for path in paths:
        for found in kind.read(path):
            if isinstance(found, Unreadable):
                done.name(found)
                continue
            session = replace(found, service=found.service or service, log_group=found.log_group or log_group)
            done.session_ids.append(store.keep_imported(priced(session, now), now))


def _each(path: Path, kind: Kind) -> list[Path]:
    """What a kind reads at a path: the path itself, or what it recognises in a folder."""
    if not path.is_dir() or kind.recognises(path):
        return [path]
    return [
        file
        for file in sorted(path.rglob("*"))
        # Also one that is called like a record and is broken: reading it says why.
        if kind.recognises(file) or (file.is_file() and file.name.endswith(endings_of(kind)))
    ]


def _keep_whatever(
    store: Store, path: Path, done: Imported, now: datetime, service: str, log_group: str
) -> None:
    kind = recognised(path)
    if kind is not None:
        _keep_records(store, kind, [path], done, now, service, log_group)
    elif path.is_dir():
        looked_at = (*files.SUFFIXES, *all_endings())
        for inner in sorted(path.iterdir()):
            # A link to a folder may lead back up, to what is read already.
            if inner.is_dir() and inner.is_symlink():
                done.pass_over(inner)
            elif inner.is_dir() or inner.name.endswith(looked_at) or recognised(inner):
                _keep_whatever(store, inner, done, now, service, log_group)
            else:
                done.pass_over(inner)
    elif files.recognises(path):
        _keep_spans(store, [path], done, now, service, log_group)
    else:
        done.name(Unreadable(path=str(path), problem="nothing here knows what this is"))
