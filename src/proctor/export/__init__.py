"""Exports: tables, and sessions in the formats of other tools."""

from proctor.export.sessions import SESSION_FORMATS, export_sessions
from proctor.export.tables import FORMATS, TABLES, export_tables

__all__ = ["FORMATS", "SESSION_FORMATS", "TABLES", "export_sessions", "export_tables"]
