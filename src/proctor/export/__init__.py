"""Tables as files."""

from proctor.export.files import FORMATS, export_tables
from proctor.export.rows import TABLES

__all__ = ["FORMATS", "TABLES", "export_tables"]
