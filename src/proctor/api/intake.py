"""Intake of telemetry: messages that applications send are stored, and become sessions."""

from proctor.batch import ingest
from proctor.context import RunContext
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

__all__ = ["LOGS", "METRICS", "SIGNALS", "DecodedSpans", "TooLarge", "UnknownCompression"]


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


def build_sessions(ctx: RunContext) -> None:
    """Build the sessions of what has arrived."""
    ingest.build_sessions(ctx.store, ctx.now())
