"""Runs AI agents in batches, records everything they do, judges it, and says what a difference is worth."""

__version__ = "0.1.0"


_PUBLIC = {
    "BatchAnalyzer": "proctor.jobs.scenario.analysis",
    "BatchConfig": "proctor.api.dialogues",
    "aggregate_results": "proctor.api.dialogues",
    "load_sessions": "proctor.jobs.dialogue.tables",
    "run_batch": "proctor.api.dialogues",
    "sessions_to_dataframe": "proctor.jobs.dialogue.tables",
}
"""What `from proctor import …` gives, and where it is: loaded when it is asked for, not before."""


def __getattr__(name: str) -> object:
    """Find a public name; whoever imports `proctor` alone loads none of them."""
    if name in _PUBLIC:
        # Here, so that `import proctor` itself imports nothing at all.
        from importlib import import_module

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'proctor' has no attribute {name!r}")
