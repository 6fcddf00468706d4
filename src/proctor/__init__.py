"""Run AI agents in batches, record every step, score the results, and compare runs.

    import proctor

    run = proctor.run("plan.yaml", concurrency=8)
    for item in run.items(status="fail"):
        print(item.id, item.reason, item.session.diff)

Names are loaded when they are first used: `import proctor` itself imports nothing.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from proctor.agents._function import AgentContext
    from proctor.api.dialogues import BatchConfig, aggregate_results, run_batch
    from proctor.api.handles import Run, Table
    from proctor.api.library import (
        ComparisonResult,
        ItemsPlan,
        PowerAnalysis,
        ProctorStore,
        compare,
        continue_session,
        evaluate,
        evaluate_async,
        import_table,
        import_traces,
        open_store,
        power,
        rank,
        resume,
        run,
        run_async,
    )
    from proctor.api.sessions import RunItem, RunSession
    from proctor.errors import NotFound, PlanError, ProctorError, StoreError, UsageError
    from proctor.evaluator import Evidence
    from proctor.item import Item
    from proctor.jobs.dialogue.tables import load_sessions, sessions_to_dataframe, turns_to_dataframe
    from proctor.jobs.scenario.analysis import BatchAnalyzer
    from proctor.model import Answer, Request
    from proctor.score import Score
    from proctor.session import Message, ModelCall, Note, Session, ToolCall

__all__ = [
    "AgentContext",
    "Answer",
    "BatchAnalyzer",
    "BatchConfig",
    "ComparisonResult",
    "Evidence",
    "Item",
    "ItemsPlan",
    "Message",
    "ModelCall",
    "NotFound",
    "Note",
    "PlanError",
    "PowerAnalysis",
    "ProctorError",
    "ProctorStore",
    "Request",
    "Run",
    "RunItem",
    "RunSession",
    "Score",
    "Session",
    "StoreError",
    "Table",
    "ToolCall",
    "UsageError",
    "__version__",
    "aggregate_results",
    "compare",
    "continue_session",
    "evaluate",
    "evaluate_async",
    "import_table",
    "import_traces",
    "load_sessions",
    "open_store",
    "power",
    "rank",
    "resume",
    "run",
    "run_async",
    "run_batch",
    "sessions_to_dataframe",
    "turns_to_dataframe",
]

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any misspelled name.
    _HOMES = {
        "proctor.agents._function": ("AgentContext",),
        "proctor.api.library": (
            "ComparisonResult",
            "ItemsPlan",
            "PowerAnalysis",
            "ProctorStore",
            "compare",
            "continue_session",
            "evaluate",
            "evaluate_async",
            "power",
            "rank",
            "import_table",
            "import_traces",
            "import_traces",
            "open_store",
            "resume",
            "run",
            "run_async",
        ),
        "proctor.api.dialogues": ("BatchConfig", "aggregate_results", "run_batch"),
        "proctor.api.handles": ("Run", "Table"),
        "proctor.api.sessions": ("RunItem", "RunSession"),
        "proctor.errors": ("NotFound", "PlanError", "ProctorError", "StoreError", "UsageError"),
        "proctor.evaluator": ("Evidence",),
        "proctor.item": ("Item",),
        "proctor.jobs.dialogue.tables": ("load_sessions", "sessions_to_dataframe", "turns_to_dataframe"),
        "proctor.jobs.scenario.analysis": ("BatchAnalyzer",),
        "proctor.model": ("Answer", "Request"),
        "proctor.score": ("Score",),
        "proctor.session": ("Message", "ModelCall", "Note", "Session", "ToolCall"),
    }
    _HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

    def __getattr__(name):
        """Load a public name when it is first used."""
        if name in _HOME_OF:
            # Here, so that `import proctor` itself imports nothing.
            from importlib import import_module

            return getattr(import_module(_HOME_OF[name]), name)
        raise AttributeError(f"module 'proctor' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
