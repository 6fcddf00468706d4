"""Statistics on plain sequences, numpy arrays and data frames, and of the sessions in the store.

    from proctor import stats

    rate = stats.mean(passed, task=tasks, lo=0, hi=1)
    change = stats.difference(before, after, task=tasks, lo=0, hi=1)

Names are loaded when they are first used: numpy and scipy are no part of a plain run.
"""

from typing import TYPE_CHECKING

# Not late, as the others are: a module of that name would take the place of the function.
from proctor.stats.progress import Progress, progress

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
        bill,
        mean,
        pass_at,
        pass_hat,
        per_success,
        typical,
        wilson,
    )
    from proctor.stats.power import Detectable, TasksNeeded, detectable, fewest_for_gate, tasks_needed
    from proctor.stats.ranking import Rank, ranks, table_of
    from proctor.stats.samples import plus_interval
    from proctor.stats.sequential import ConfidenceSequence, LogConfidenceSequence, Monitor
    from proctor.stats.summary import Summary, summarise
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
    "Progress",
    "Rank",
    "Rate",
    "Summary",
    "TasksNeeded",
    "alpha",
    "bill",
    "clopper_pearson",
    "cohen_h",
    "components",
    "detectable",
    "difference",
    "factor_test",
    "family",
    "fewest_for_gate",
    "fisher",
    "gate",
    "holm",
    "kappa",
    "mcnemar",
    "mean",
    "mixed_model",
    "newcombe",
    "newcombe_paired",
    "pass_at",
    "pass_hat",
    "per_success",
    "plus_interval",
    "progress",
    "rank_correlation",
    "ranks",
    "ratio",
    "summarise",
    "table_of",
    "tasks_needed",
    "typical",
    "wilson",
]

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise accept any misspelled name.
    _HOMES = {
        "agreement": ("alpha", "kappa", "rank_correlation"),
        "classical": (
            *("clopper_pearson", "cohen_h", "factor_test", "fisher"),
            *("mcnemar", "newcombe", "newcombe_paired"),
        ),
        "differences": (
            *("Difference", "Family", "GateVerdict", "difference", "family", "gate", "holm", "ratio"),
        ),
        "intervals": (
            *("Estimate", "Rate", "bill", "mean", "pass_at", "pass_hat", "per_success", "typical", "wilson"),
        ),
        "power": ("Detectable", "TasksNeeded", "detectable", "fewest_for_gate", "tasks_needed"),
        "ranking": ("Rank", "ranks", "table_of"),
        "samples": ("plus_interval",),
        "sequential": ("ConfidenceSequence", "LogConfidenceSequence", "Monitor"),
        "summary": ("Summary", "summarise"),
        "variance": ("Components", "MixedModel", "components", "mixed_model"),
    }
    _HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

    def __getattr__(name):
        """Load a public name when it is first used."""
        if name in _HOME_OF:
            # Here, so that importing one module of the package imports no other.
            from importlib import import_module

            return getattr(import_module(f"proctor.stats.{_HOME_OF[name]}"), name)
        raise AttributeError(f"module 'proctor.stats' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
