"""Tables as files."""

from proctor.export.files import FORMATS, export_tables
from proctor.export.rows import TABLES
from proctor.export.sessions import SESSION_FORMATS, export_sessions

__all__ = ["FORMATS", "SESSION_FORMATS", "TABLES", "export_sessions", "export_tables"]
