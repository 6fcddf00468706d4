"""Trends: runs of a plan, evaluations of a name, or all evaluations by an evaluator, over time."""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor.cache import LruCache
from proctor.context import RunContext
from proctor.document import CaptionedChart
from proctor.errors import NotFound
from proctor.json_values import CamelJson
from proctor.store.runs import TrendRun, evaluators_of, trend_runs

if TYPE_CHECKING:
    from proctor.stats.comparison import Contrast

MOST_RUNS = 20
"""Runs of a trend: the last ones."""
MOST_ITEMS = 200_000
"""Items of a trend; of larger runs, fewer are shown."""
MOST_TRENDS = 200
MOST_CACHED = 50
MOST_EVALUATIONS = 2000
"""Evaluations whose evaluators are known."""


@dataclass(frozen=True, slots=True)
class TrendLine:
    """A plan, evaluation or evaluator with several runs, oldest first."""

    key: str
    name: str
    job: str
    runs: Sequence[TrendRun]
    evaluator: str = ""
    """The one whose scores it shows; empty: all figures of the runs."""

    @property
    def last_at(self) -> str:
        """When its latest run was created."""
        return self.runs[-1]["createdAt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendChange(CamelJson):
    """A significant change from one run to the next."""

    run_id: str
    before: str
    """The run before it."""
    is_regression: bool | None
    """Null: neither better nor worse, as with a metric."""
    text: str
    direction: str
    """`higher` or `lower`: of the tasks that changed, for `compare/items`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend(CamelJson):
    """One trend in one metric: a figure of each run, and the significant changes."""

    key: str
    name: str
    metric: str
    metrics: Sequence[str]
    """All metrics that it can show."""
    chart: CaptionedChart
    runs: Sequence[str]
    changes: Sequence[TrendChange]
    """The latest first."""
    summary: str
    omitted: int
    """Earlier runs that are not shown."""
    model: str = ""
    """The model, or judge, that it is of; empty: all of them together."""
    models: Sequence[str] = ()
    """Those that it can show alone; empty where there is only one."""


class Trends:
    """Trends with their figures, cached as long as their runs stay the same; thread-safe."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._lock = threading.Lock()
        self._answers: LruCache[tuple[object, ...], Trend] = LruCache(MOST_CACHED)
        self._evaluators: LruCache[tuple[object, ...], list[str]] = LruCache(MOST_EVALUATIONS)

    def plans(self) -> list[TrendLine]:
        """Plans, evaluations and evaluators with at least two runs that have results, the latest first."""
        by_key: dict[str, list[TrendRun]] = {}
        runs = trend_runs(self._ctx.store.read, self._ctx.now())
        for run in runs:
            by_key.setdefault(_key(run), []).append(run)
        plans = [
            TrendLine(key=key, name=_name(runs[0]), job=runs[0]["job"], runs=runs[::-1])
            for key, runs in by_key.items()
            if len(runs) > 1
        ]
        plans += self._by_evaluator([run for run in runs if run["evaluation"]])
        plans.sort(key=lambda plan: plan.last_at, reverse=True)
        return plans[:MOST_TRENDS]

    def _by_evaluator(self, evaluations: Sequence[TrendRun]) -> list[TrendLine]:
        """Evaluators of evaluations with different names: those of one name have a trend already."""
        names = self._evaluators_of(evaluations)
        by_evaluator: dict[str, list[TrendRun]] = {}
        for run in evaluations:
            for name in names.get(run["runId"], ()):
                by_evaluator.setdefault(name, []).append(run)
        return [
            TrendLine(
                key=json.dumps(["evaluator", name]),
                name=name.removeprefix("Builtin."),
                job=runs[0]["job"],
                runs=runs[::-1],
                evaluator=name,
            )
            for name, runs in by_evaluator.items()
            if _has_several_names(runs)
        ]

    def _evaluators_of(self, evaluations: Sequence[TrendRun]) -> dict[str, list[str]]:
        """The evaluators of evaluations; all items of each are read once."""
        states = {run["runId"]: (run["runId"], run["finishedAt"], run["items"]) for run in evaluations}
        with self._lock:
            known = {run_id: self._evaluators.get(state) for run_id, state in states.items()}
        new = [run_id for run_id, names in known.items() if names is None]
        names = evaluators_of(self._ctx.store.read, new) if new else {}
        with self._lock:
            for run_id in new:
                self._evaluators.put(states[run_id], names.get(run_id, []))
        return {run_id: names.get(run_id, []) if each is None else each for run_id, each in known.items()}

    def line(self, key: str, metric: str, model: str = "") -> Trend:
        """One trend in one metric; empty: the first it has. `model`: of the items of this one alone."""
        plan = next((each for each in self.plans() if each.key == key), None)
        if plan is None:
            raise NotFound("there is no such plan with several runs\nIts runs may have been deleted.")
        runs = _last(plan.runs)
        state = (key, metric, model, *((run["runId"], run["finishedAt"], run["items"]) for run in runs))
        with self._lock:
            answer = self._answers.get(state)
            if answer is None:
                answer = self._compute(plan, runs, metric, model)
                self._answers.put(state, answer)
        return answer

    def _compute(self, plan: TrendLine, runs: Sequence[TrendRun], metric: str, model: str) -> Trend:
        # numpy is loaded with the first trend, not with the server.
        from proctor.metric import score_name
        from proctor.report.comparison import change_text, is_regression, trend_plot, trend_summary
        from proctor.results.loading import load_results
        from proctor.stats.figures import trend_metrics, trend_of

        results = load_results(self._ctx.store.read, [run["runId"] for run in runs], self._ctx.now())
        models = results.factors["model"].labels if "model" in results.factors else ()
        if model and model not in models:
            raise NotFound(f"these runs have no model {model}\nAvailable: {', '.join(models) or 'none'}.")
        if model:
            results = results.where(results.factors["model"].mask(model))
        metrics = trend_metrics(results)
        if plan.evaluator:
            own = score_name(plan.evaluator)
            metrics = [name for name in metrics if name == own or name.startswith(f"{own}/")]
        if not metrics or (metric and metric not in metrics):
            known = ", ".join(metrics) or "none"
            raise NotFound(f"these runs have no {metric or 'figures'}\nThere are: {known}.")
        metric = metric or metrics[0]
        points = trend_of(results, metric)
        at = {run["runId"]: run["createdAt"] for run in runs}
        svg, marks = trend_plot(plan.name, points, metric, at)
        changes = [
            TrendChange(
                run_id=point.run_id,
                before=point.change.baseline,
                is_regression=is_regression(point.change),
                text=change_text(point.change),
                direction="higher" if _is_higher(point.change) else "lower",
            )
            for point in reversed(points)
            if point.change and point.change.is_significant and point.change.difference
        ]
        return Trend(
            key=plan.key,
            name=plan.name,
            metric=metric,
            metrics=metrics,
            chart=CaptionedChart(caption=metric, svg=svg, marks=marks),
            runs=[each.run_id for each in points],
            changes=changes,
            summary=trend_summary(points, metric),
            omitted=len(plan.runs) - len(runs),
            model=model,
            models=models if len(models) > 1 else (),
        )


def _has_several_names(evaluations: Sequence[TrendRun]) -> bool:
    names = {run["evaluation"] for run in evaluations}
    return len(names) > 1


def _is_higher(contrast: "Contrast") -> bool:
    difference = contrast.difference
    return difference is not None and difference.value is not None and difference.value > difference.null


def _key(run: TrendRun) -> str:
    """What runs of one trend have in common; imported runs without a plan have nothing."""
    plan = run["evaluation"] or run["planPath"] or run["planDigest"]
    return json.dumps([run["job"], plan or f"run {run['runId']}"])


def _name(run: TrendRun) -> str:
    path = run["planPath"]
    return run["evaluation"] or (path.rpartition("/")[2] if path else "") or f"plan of {run['runId']}"


def _last(runs: Sequence[TrendRun]) -> list[TrendRun]:
    """The last runs that are not too many, nor too large."""
    chosen: list[TrendRun] = []
    for run in reversed(runs[-MOST_RUNS:]):
        if len(chosen) >= 2 and sum(each["items"] for each in chosen) + run["items"] > MOST_ITEMS:
            break
        chosen.insert(0, run)
    return chosen
