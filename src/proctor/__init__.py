"""Runs AI agents in batches, records everything they do, judges it, and says what a difference is worth."""

__version__ = "0.1.0"
