"""Intake: sessions of files, log groups and telemetry messages, and tables of results, are stored."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from proctor.batch import ingest
from proctor.batch.ingest import AUTO, OTLP, ImportResult
from proctor.context import RunContext
from proctor.session import DEFAULT_LOG_GROUP
from proctor.store.imported_runs import TableImport
from proctor.telemetry.otlp import (
    LOGS,
    METRICS,
    SIGNALS,
    DecodedSpans,
    TooLarge,
    decode_json,
    decode_protobuf,
    unpacked,
)
from proctor.telemetry.sources import LogGroupQuery, logs_client

__all__ = [
    "AUTO",
    "LOGS",
    "METRICS",
    "OTLP",
    "SIGNALS",
    "DecodedSpans",
    "ImportResult",
    "LogGroupQuery",
    "TableImport",
    "TooLarge",
    "UnknownCompression",
]


class UnknownCompression(ValueError):
    """The message is compressed neither with gzip nor with zlib."""


def receive_telemetry(
    ctx: RunContext,
    message: bytes,
    signal: str,
    *,
    is_json: bool,
    compression: str = "",
    most_bytes: int,
    log_group: str = "",
    fallback: str = "",
) -> DecodedSpans:
    """Decode an OTLP message and store its documents, which are committed on return.

    `most_bytes` limits it when unpacked; `log_group` is the one that the sender named, `fallback` the
    default.
    Raises `UnknownCompression`, `TooLarge`, and `ValueError` for a message that cannot be read.
    """
    compression = compression.strip().lower()
    if compression in ("gzip", "deflate", "x-gzip"):
        message = unpacked(message, most=most_bytes) if message else message
    elif compression not in ("", "identity"):
        raise UnknownCompression("the body may be packed with gzip")
    decoded = decode_json(message, signal) if is_json else decode_protobuf(message, signal)
    ingest.keep_arrivals(ctx.store, decoded.documents, ctx.now(), log_group=log_group, fallback=fallback)
    return decoded


def has_new_spans(ctx: RunContext) -> bool:
    """Whether anything has arrived that no session is built from."""
    return ctx.store.arrivals.has_new()


def build_sessions(ctx: RunContext) -> None:
    """Build the sessions of what has arrived."""
    ingest.build_sessions(ctx.store, ctx.now())


def import_files(
    ctx: RunContext,
    paths: Sequence[Path],
    kind: str = AUTO,
    *,
    service: str = "",
    log_group: str = DEFAULT_LOG_GROUP,
    run_id: str = "",
    on_progress: Callable[[int], None] | None = None,
) -> ImportResult:
    """Import the sessions in files and folders; `AUTO` detects the kind of each.

    `service` and `log_group` are those of sessions that name none. With `run_id`, the sessions become items
    of that run. `on_progress` is called with the number of records.
    """
    return ingest.import_paths(
        ctx.store,
        paths,
        kind,
        ctx.now(),
        service=service,
        log_group=log_group,
        run_id=run_id,
        on_progress=on_progress,
    )


def import_cloudwatch(
    ctx: RunContext, query: LogGroupQuery, *, region: str = "", endpoint_url: str = "", run_id: str = ""
) -> ImportResult:
    """Import the sessions in log groups of CloudWatch Logs, with the credentials of boto3."""
    client = logs_client(region=region, endpoint_url=endpoint_url)
    return ingest.import_log_groups(ctx.store, client, query, ctx.now(), run_id)


def import_table(
    ctx: RunContext,
    paths: Sequence[Path],
    run_id: str,
    *,
    columns: Mapping[str, str] | Sequence[str] | None = None,
    pass_score: float | None = None,
) -> TableImport:
    """Make the rows of tables items of a run; raise with every problem before storing anything.

    `columns` names the column of the file for `task`, `model`, …: a mapping, or texts `NAME=COLUMN`.
    `pass_score` is the lowest score that counts as success in a table without `success` or `status`.
    """
    # Loaded here: other imports read no tables.
    from proctor.jobs.imported import table

    names = columns if isinstance(columns, Mapping) else table.columns_of(columns)
    return table.import_table(ctx.store, paths, run_id, ctx.now(), columns=names, pass_score=pass_score)
