"""Statistics on plain sequences, numpy arrays and data frames, and of the sessions in the store.

    from proctor import stats

    rate = stats.mean(passed, task=tasks, lo=0, hi=1)
    change = stats.difference(before, after, task=tasks, lo=0, hi=1)

Names are loaded when they are first used: numpy and scipy are no part of a plain run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.results.summary import Summary as Summary
    from proctor.results.summary import summarize as summarize
    from proctor.stats.agreement import alpha as alpha
    from proctor.stats.agreement import kappa as kappa
    from proctor.stats.agreement import rank_correlation as rank_correlation
    from proctor.stats.classical import clopper_pearson as clopper_pearson
    from proctor.stats.classical import cohen_h as cohen_h
    from proctor.stats.classical import factor_test as factor_test
    from proctor.stats.classical import fisher as fisher
    from proctor.stats.classical import mcnemar as mcnemar
    from proctor.stats.classical import newcombe as newcombe
    from proctor.stats.classical import newcombe_paired as newcombe_paired
    from proctor.stats.differences import Difference as Difference
    from proctor.stats.differences import Family as Family
    from proctor.stats.differences import GateVerdict as GateVerdict
    from proctor.stats.differences import difference as difference
    from proctor.stats.differences import family as family
    from proctor.stats.differences import gate as gate
    from proctor.stats.differences import holm as holm
    from proctor.stats.differences import ratio as ratio
    from proctor.stats.effects import anova as anova
    from proctor.stats.effects import association as association
    from proctor.stats.effects import hedges_g as hedges_g
    from proctor.stats.effects import rank_test as rank_test
    from proctor.stats.intervals import Estimate as Estimate
    from proctor.stats.intervals import Rate as Rate
    from proctor.stats.intervals import Strength as Strength
    from proctor.stats.intervals import geometric_mean as geometric_mean
    from proctor.stats.intervals import mean as mean
    from proctor.stats.intervals import mean_cost as mean_cost
    from proctor.stats.intervals import pass_at as pass_at
    from proctor.stats.intervals import pass_hat as pass_hat
    from proctor.stats.intervals import per_success as per_success
    from proctor.stats.intervals import wilson as wilson
    from proctor.stats.odds import odds_model as odds_model
    from proctor.stats.power import Detectable as Detectable
    from proctor.stats.power import TasksNeeded as TasksNeeded
    from proctor.stats.power import detectable as detectable
    from proctor.stats.power import tasks_for_gate as tasks_for_gate
    from proctor.stats.power import tasks_needed as tasks_needed
    from proctor.stats.ranking import Rank as Rank
    from proctor.stats.ranking import bradley_terry as bradley_terry
    from proctor.stats.ranking import ranks as ranks
    from proctor.stats.ranking import table_of as table_of
    from proctor.stats.samples import plus_interval as plus_interval
    from proctor.stats.sequential import ConfidenceSequence as ConfidenceSequence
    from proctor.stats.sequential import LogConfidenceSequence as LogConfidenceSequence
    from proctor.stats.sequential import Monitor as Monitor
    from proctor.stats.variance import Components as Components
    from proctor.stats.variance import MixedModel as MixedModel
    from proctor.stats.variance import components as components
    from proctor.stats.variance import mixed_model as mixed_model

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
        "effects": ("anova", "association", "hedges_g", "rank_test"),
        "intervals": (
            "Estimate",
            "Rate",
            "Strength",
            "mean_cost",
            "mean",
            "pass_at",
            "pass_hat",
            "per_success",
            "geometric_mean",
            "wilson",
        ),
        "odds": ("odds_model",),
        "power": ("Detectable", "TasksNeeded", "detectable", "tasks_for_gate", "tasks_needed"),
        "ranking": ("Rank", "bradley_terry", "ranks", "table_of"),
        "samples": ("plus_interval",),
        "sequential": ("ConfidenceSequence", "LogConfidenceSequence", "Monitor"),
        "variance": ("Components", "MixedModel", "components", "mixed_model"),
    }
    _HOME_OF = {name: f"proctor.stats.{module}" for module, names in _HOMES.items() for name in names}
    # They read a store, of which statistics know nothing.
    _HOME_OF |= dict.fromkeys(("Summary", "summarize"), "proctor.results.summary")
    __all__ = sorted(_HOME_OF)

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

            return getattr(import_module(_HOME_OF[name]), name)
        raise AttributeError(f"module 'proctor.stats' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
