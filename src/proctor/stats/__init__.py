"""Statistics on plain sequences, numpy arrays and data frames, and of the sessions in the store.

    from proctor import stats

    rate = stats.mean(passed, task=tasks, lo=0, hi=1)
    change = stats.difference(before, after, task=tasks, lo=0, hi=1)

Names are loaded when they are first used: numpy and scipy are no part of a plain run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.stats.agreement import alpha, kappa, rank_correlation
    from proctor.stats.classical import (
        clopper_pearson,
        cohen_h,
        factor_test,
        fisher,
        mcnemar,
        newcombe,
        newcombe_paired,
    )
    from proctor.stats.differences import (
        Difference,
        Family,
        GateVerdict,
        difference,
        family,
        gate,
        holm,
        ratio,
    )
    from proctor.stats.intervals import (
        Estimate,
        Rate,
        geometric_mean,
        mean,
        mean_cost,
        pass_at,
        pass_hat,
        per_success,
        wilson,
    )
    from proctor.stats.power import Detectable, TasksNeeded, detectable, tasks_for_gate, tasks_needed
    from proctor.stats.ranking import Rank, ranks, table_of
    from proctor.stats.samples import plus_interval
    from proctor.stats.sequential import ConfidenceSequence, LogConfidenceSequence, Monitor
    from proctor.stats.summary import Summary, summarize
    from proctor.stats.variance import Components, MixedModel, components, mixed_model

__all__ = [
    "Components",
    "ConfidenceSequence",
    "Detectable",
    "Difference",
    "Estimate",
    "Family",
    "GateVerdict",
    "LogConfidenceSequence",
    "MixedModel",
    "Monitor",
    "Rank",
    "Rate",
    "Summary",
    "TasksNeeded",
    "alpha",
    "clopper_pearson",
    "cohen_h",
    "components",
    "detectable",
    "difference",
    "factor_test",
    "family",
    "fisher",
    "gate",
    "geometric_mean",
    "holm",
    "kappa",
    "mcnemar",
    "mean",
    "mean_cost",
    "mixed_model",
    "newcombe",
    "newcombe_paired",
    "pass_at",
    "pass_hat",
    "per_success",
    "plus_interval",
    "rank_correlation",
    "ranks",
    "ratio",
    "summarize",
    "table_of",
    "tasks_for_gate",
    "tasks_needed",
    "wilson",
]

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any misspelled name.
    _HOMES = {
        "agreement": ("alpha", "kappa", "rank_correlation"),
        "classical": (
            "clopper_pearson",
            "cohen_h",
            "factor_test",
            "fisher",
            "mcnemar",
            "newcombe",
            "newcombe_paired",
        ),
        "differences": (
            "Difference",
            "Family",
            "GateVerdict",
            "difference",
            "family",
            "gate",
            "holm",
            "ratio",
        ),
        "intervals": (
            "Estimate",
            "Rate",
            "mean_cost",
            "mean",
            "pass_at",
            "pass_hat",
            "per_success",
            "geometric_mean",
            "wilson",
        ),
        "power": ("Detectable", "TasksNeeded", "detectable", "tasks_for_gate", "tasks_needed"),
        "ranking": ("Rank", "ranks", "table_of"),
        "samples": ("plus_interval",),
        "sequential": ("ConfidenceSequence", "LogConfidenceSequence", "Monitor"),
        "summary": ("Summary", "summarize"),
        "variance": ("Components", "MixedModel", "components", "mixed_model"),
    }
    _HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

    _RENAMED = {
        "bill": "mean_cost",
        "fewest_for_gate": "tasks_for_gate",
        "summarise": "summarize",
        "typical": "geometric_mean",
    }
    """Deprecated names, with those to use instead."""

    def __getattr__(name):
        """Load a public name when it is first used."""
        if name in _RENAMED:
            import warnings

            new = _RENAMED[name]
            warnings.warn(f"stats.{name} is now stats.{new}", DeprecationWarning, stacklevel=2)
            name = new
        if name in _HOME_OF:
            # Here, so that importing one module of the package imports no other.
            from importlib import import_module

            return getattr(import_module(f"proctor.stats.{_HOME_OF[name]}"), name)
        raise AttributeError(f"module 'proctor.stats' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
