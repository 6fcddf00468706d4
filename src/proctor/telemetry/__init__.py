"""OpenTelemetry: sessions from spans, and spans from sessions."""

from proctor.telemetry.documents import Document, normalized
from proctor.telemetry.sessions import session_of, sessions_of
from proctor.telemetry.span_writer import documents_of, spans_of

__all__ = ["Document", "documents_of", "normalized", "session_of", "sessions_of", "spans_of"]
