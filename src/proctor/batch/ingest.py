"""Import sessions that other tools recorded: from files and folders, log groups and telemetry.

Unreadable records are reported and skipped; everything else is stored. Importing again replaces.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, islice
from pathlib import Path

from proctor import __version__
from proctor.errors import UsageError
from proctor.formatting import plural
from proctor.job import check_run_id
from proctor.json_values import as_map, as_text
from proctor.models.prices import listed_price
from proctor.records import Kind, all_endings, endings_of, find_kind, kind_names, recognized
from proctor.session import ModelCall, Session, Step, TimedEvent, Unreadable
from proctor.store import Store
from proctor.store.intake import BuiltSessions
from proctor.telemetry import sources
from proctor.telemetry.dialects import read_span
from proctor.telemetry.documents import Document, SessionName, is_span, mark_of
from proctor.telemetry.sessions import SOURCE, session_of
from proctor.telemetry.sources import LogGroupQuery, LogsClient, read_log_groups
from proctor.telemetry.span import span_of


def priced(session: Session, now: datetime) -> Session:
    """The same session with the list price of every call that has tokens, a known model and no cost yet."""
    if not any(_is_open(timed) for step in session.steps for timed in step.events):
        return session
    at = session.started_at or now
    return replace(session, steps=[_step(step, at) for step in session.steps])


def _step(step: Step, at: datetime) -> Step:
    timed = [_priced(each, each.at or step.started_at or at) for each in step.events]
    return replace(step, events=timed)


def _is_open(timed: TimedEvent) -> bool:
    call = timed.event
    if not isinstance(call, ModelCall) or call.cost_usd is not None or call.price_source:
        return False
    return bool(call.model and call.usage.total_tokens)


def _priced(timed: TimedEvent, at: datetime) -> TimedEvent:
    call = timed.event
    if not isinstance(call, ModelCall) or not _is_open(timed):
        return timed
    # Prices change by the day at most; a lookup per second would never hit the cache.
    day = datetime(at.year, at.month, at.day, tzinfo=UTC)
    price = listed_price(call.provider, call.model, at=day)
    if price is None:
        return timed
    cost, rates = price.for_call(call.usage)
    return replace(timed, event=replace(call, cost_usd=cost, price_source=price.source, price=rates))


# Telemetry.


LONGEST_ERROR = 500
DOCUMENTS_AT_ONCE = 2_000
"""Documents per transaction. A span takes some 4 kB until it is compressed."""


def keep_arrivals(
    store: Store,
    documents: Iterable[Document],
    now: datetime,
    *,
    log_group: str = "",
    fallback: str = "",
    service: str = "",
) -> int:
    """Store documents and return their number; all are committed on return.

    `log_group` is the one the sender named, `fallback` the default; `service` is the default service.
    """
    count, waiting = 0, iter(documents)
    while some := list(islice(waiting, DOCUMENTS_AT_ONCE)):
        marked = (
            (mark_of(document, log_group=log_group, fallback=fallback, service=service), document)
            for document in some
        )
        store.arrivals.save(marked, now)
        count += len(some)
    return count


def build_sessions(store: Store, now: datetime) -> BuiltSessions:
    """Build sessions from the spans that have arrived. One small query when there are none."""
    if not store.arrivals.has_new():
        return BuiltSessions()

    def build(name: SessionName, documents: Sequence[Document], left_out: int) -> Session | None:
        session = _session_of(name, documents, left_out)
        return None if session is None else priced(session, now)

    return store.arrivals.build_sessions(build, now)


def _session_of(name: SessionName, documents: Sequence[Document], left_out: int) -> Session | None:
    try:
        return session_of(
            documents,
            external_id=name.external_id,
            service=name.service,
            log_group=name.log_group,
            left_out=left_out,
        )
    except Exception as error:
        # Senders are untrusted. An unreadable session is stored as failed: raised, the error would recur each
        # time and prevent all other sessions from being built.
        return _unreadable(name, error)


def _unreadable(name: SessionName, error: Exception) -> Session:
    return Session(
        external_id=name.external_id,
        source=SOURCE,
        service=name.service,
        log_group=name.log_group,
        name=name.external_id,
        status="error",
        end_reason="internal_error",
        error=f"what arrived of it cannot be read: {type(error).__name__}: {error}"[:LONGEST_ERROR],
    )


OTLP, AUTO = "otlp", "auto"
MOST_SEEN = 5
"""Names and scopes of spans that the reason for an import without sessions lists."""
MOST_NAMED = 1_000
"""Unreadable records that are listed; all are counted."""


@dataclass(slots=True)
class ImportResult:
    """The result of an import."""

    session_ids: list[str] = field(default_factory=list)
    """Ids in the store, in the order of the files; also of sessions that were imported before."""
    unreadable: list[Unreadable] = field(default_factory=list)
    """The first ones."""
    unreadable_count: int = 0
    documents: int = 0
    """Spans and event records."""
    traces: dict[str, None] = field(default_factory=dict)
    passed_over: list[str] = field(default_factory=list)
    """The first files in folders whose names no reader recognizes, such as notes and images."""
    passed_over_count: int = 0
    run_id: str = ""
    """The run the sessions are items of. Empty: none."""
    added: int = 0
    """Items that the run did not have before."""
    on_progress: Callable[[int], None] = lambda done: None  # noqa: ARG005
    """Called with the number of records so far."""
    _files: dict[tuple[str, str], Path] = field(default_factory=dict)
    """The first file of each session."""

    def add_unreadable(self, unreadable: Unreadable) -> None:
        """Add an unreadable record."""
        self.unreadable_count += 1
        if len(self.unreadable) < MOST_NAMED:
            self.unreadable.append(unreadable)

    def own_id(self, session: Session, path: Path) -> str:
        """The id of a session in a file. Another file may have one of the same id, such as the continuation
        of its trajectory: then the file's name is added."""
        key = (session.source, session.external_id)
        first = self._files.setdefault(key, path)
        return (
            session.external_id
            if first == path
            else f"{session.external_id} ({path.parent.name}/{path.name})"
        )

    def pass_over(self, path: Path) -> None:
        """Add a file that is not a record."""
        self.passed_over_count += 1
        if len(self.passed_over) < MOST_NAMED:
            self.passed_over.append(str(path))


def import_kinds() -> list[str]:
    """The kinds of `import_paths`."""
    return [AUTO, OTLP, *kind_names()]


def import_paths(
    store: Store,
    paths: Sequence[Path],
    kind: str,
    now: datetime,
    *,
    service: str = "",
    log_group: str = "",
    run_id: str = "",
    on_progress: Callable[[int], None] | None = None,
) -> ImportResult:
    """Import every session in files and folders; `auto` detects the kind of each.

    `service` and `log_group` are defaults for sessions without one. With `run_id`, the sessions become items
    of that run, which is created if it does not exist.
    """
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
    known = None if kind in (OTLP, AUTO) else find_kind(kind)
    done = _begin(store, run_id, now)
    done.on_progress = on_progress or done.on_progress
    importer = _PathImporter(store, done, now, service, log_group)
    for path in paths:
        if known is not None:
            importer.import_records(known, _each(path, known))
        elif kind == OTLP:
            importer.import_spans(sources.files_in(path))
        else:
            importer.import_detected(path)
    return _build_and_count(store, done, now)


def _begin(store: Store, run_id: str, now: datetime) -> ImportResult:
    if run_id:
        check_run_id(run_id)
        store.imported_runs.begin(run_id, now, __version__)
    return ImportResult(run_id=run_id, added=-store.read.totals(run_id)["items"] if run_id else 0)


def import_log_groups(
    store: Store, client: LogsClient, query: LogGroupQuery, now: datetime, run_id: str = ""
) -> ImportResult:
    """Import log groups from CloudWatch Logs; `client` comes from `logs_client`."""
    done = _begin(store, run_id, now)
    for log_group, group in groupby(read_log_groups(client, query), key=lambda each: each[0]):
        documents = _counted((document for _, document in group), done)
        keep_arrivals(store, documents, now, log_group=log_group, service=query.service)
    return _build_and_count(store, done, now)


def _build_and_count(store: Store, done: ImportResult, now: datetime) -> ImportResult:
    build_sessions(store, now)
    built = store.arrivals.sessions_of(done.traces)
    if done.run_id:
        for session_id in built:
            if other := store.imported_runs.adopt(done.run_id, session_id):
                done.add_unreadable(Unreadable(path=session_id, problem=f"it belongs to the run {other}"))
        done.added += store.imported_runs.finish(done.run_id, now)
    done.session_ids = list(dict.fromkeys((*done.session_ids, *built)))
    return done


@dataclass(frozen=True, slots=True)
class _PathImporter:
    """Imports files into a store. `service` and `log_group` are defaults for sessions without one."""

    store: Store
    done: ImportResult
    now: datetime
    service: str
    log_group: str

    def import_spans(self, paths: Iterable[Path]) -> None:
        """Store the spans of files; sessions are built of them later."""
        done = self.done
        for path in paths:
            content, before = FileContent(), done.unreadable_count
            documents = _counted(content.counted(_readable(sources.read_documents(path), done)), done)
            keep_arrivals(self.store, documents, self.now, fallback=self.log_group, service=self.service)
            if not content.has_work and done.unreadable_count == before:
                done.add_unreadable(Unreadable(path=str(path), problem=content.reason()))

    def import_records(self, kind: Kind, paths: Iterable[Path]) -> None:
        """Store the sessions in files of a kind."""
        done = self.done
        for path in paths:
            for record in kind.read(path):
                if isinstance(record, Unreadable):
                    done.add_unreadable(record)
                    continue
                session = replace(
                    record,
                    external_id=done.own_id(record, path),
                    service=record.service or self.service,
                    log_group=record.log_group or self.log_group,
                )
                session_id = self.store.save_imported(priced(session, self.now), self.now, done.run_id)
                done.session_ids.append(session_id)
                done.on_progress(len(done.session_ids))

    def import_detected(self, path: Path) -> None:
        """Import a file of any kind, or the files in a folder that a reader recognizes."""
        if kind := recognized(path):
            self.import_records(kind, [path])
        elif path.is_dir():
            endings = (*sources.SUFFIXES, *all_endings())
            for inner in sorted(path.iterdir()):
                # A link to a folder may lead to a parent that is being read.
                if inner.is_dir() and inner.is_symlink():
                    self.done.pass_over(inner)
                elif inner.is_dir() or inner.name.endswith(endings) or recognized(inner):
                    self.import_detected(inner)
                else:
                    self.done.pass_over(inner)
        elif sources.recognizes(path):
            self.import_spans([path])
        else:
            problem = "nothing here knows what this is"
            self.done.add_unreadable(Unreadable(path=str(path), problem=problem))


@dataclass(slots=True)
class FileContent:
    """Counts of a file of spans, for the reason when it has no session."""

    spans: int = 0
    records: int = 0
    has_work: bool = False
    """Whether any span records work of an agent, or may once its record or span has arrived."""
    names: dict[str, None] = field(default_factory=dict)
    scopes: dict[str, None] = field(default_factory=dict)

    def counted(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents, counted."""
        for document in documents:
            if is_span(document):
                self.spans += 1
                self._examine(document)
            else:
                # Its span may be in another file.
                self.records += 1
                self.has_work = True
            yield document

    def _examine(self, document: Document) -> None:
        if not self.has_work:
            self.has_work = read_span(span_of(document, ())) is not None
            names = ((self.names, document["name"]), (self.scopes, as_map(document, "scope").get("name")))
            for known, name in names:
                if name and len(known) < MOST_SEEN:
                    known[as_text(name)] = None

    def reason(self) -> str:
        """Why the file has no session."""
        if not self.spans:
            return "no session: it holds no spans and no event records"
        scopes = f" of {', '.join(self.scopes)}" if self.scopes else ""
        names = f": {', '.join(self.names)}" if self.names else ""
        return (
            f"no session: none of its {plural(self.spans, 'span')}{scopes} is of an agent, a model or a tool"
            f"{names}"
        )


def _readable(documents: Iterable[Document | Unreadable], done: ImportResult) -> Iterator[Document]:
    for document in documents:
        if isinstance(document, Unreadable):
            done.add_unreadable(document)
        else:
            yield document


def _counted(documents: Iterable[Document], done: ImportResult) -> Iterator[Document]:
    for document in documents:
        done.documents += 1
        done.traces[as_text(document["traceId"])] = None
        done.on_progress(done.documents)
        yield document


def _each(path: Path, kind: Kind) -> list[Path]:
    """The paths that a kind reads: the path itself, or those it recognizes in a folder."""
    if not path.is_dir() or kind.recognizes(path):
        return [path]
    return [
        file
        for file in sorted(path.rglob("*"))
        # Also broken ones with the right name: reading them reports why.
        if kind.recognizes(file) or (file.is_file() and file.name.endswith(endings_of(kind)))
    ]
