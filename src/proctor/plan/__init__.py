"""Text → plan → list of items."""
