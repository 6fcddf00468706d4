"""An evaluation job as an answer: how far it is, and what each evaluator found so far.

What a job that has ended came to is kept: it stays so until the job is taken up again, which its state
and time tell. Of one under way it is added up again only after a rest, the longer the more there is to add.

Knows nothing of routes.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from proctor.analyse.evaluation import EvaluationResults, EvaluatorResult, results_of
from proctor.analyse.insights import insights_of
from proctor.analyse.intervals import Estimate, Rate
from proctor.batch.evaluation import Evaluation, evaluation_of
from proctor.batch.online import is_online
from proctor.errors import NotFound
from proctor.report.evaluation import averages_chart, labels_chart
from proctor.store import timestamp
from proctor.web.judging_shapes import (
    EstimateShape,
    EvaluationAnswer,
    EvaluationLine,
    EvaluatorSummary,
    InsightShape,
)
from proctor.web.run_list import RunLine, RunLines
from proctor.web.site import Site

MOST_KEPT = 500
MOST_INSIGHTS = 100
"""That a page shows; files and the command line have them all."""
REST = 5
"""Times as long as adding up took, before it is done again for a job under way."""
NO_COUNTS = {"queued": 0, "running": 0, "success": 0, "fail": 0, "timeout": 0, "error": 0}


class EvaluationLines:
    """Makes answers of jobs, from any thread."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._runs = RunLines(site)
        self._kept: dict[tuple[str, str, str], EvaluationResults] = {}
        self._lately: dict[str, tuple[float, EvaluationResults]] = {}
        """Of jobs under way: until when they may be told, and what was found."""
        self._lock = threading.Lock()

    def of(self, ids: Sequence[str]) -> list[EvaluationLine]:
        """The lines of these jobs."""
        jobs = [evaluation_of(self._site.store, id_, self._site.now()) for id_ in ids]
        runs = {run.runId: run for run in self._runs.named(ids)}
        return [EvaluationLine(**self._line(job, runs.get(job.id), plots=False)) for job in jobs]

    def answer(self, evaluation: str) -> EvaluationAnswer:
        """One job, whole, by its id or the beginning of it."""
        job = evaluation_of(self._site.store, evaluation, self._site.now())
        results = self.results(job)
        run = next(iter(self._runs.named([job.id])), None)
        document = job.document
        return EvaluationAnswer(
            **self._line(job, run, plots=True),
            description=str(document.get("description") or ""),
            source=dict(document.get("dataSourceConfig") or {}),
            judge=str(document.get("judge") or ""),
            votes=document.get("votes") or 1,
            ground_truth=[each["dataset"] for each in document.get("groundTruth") or () if "dataset" in each],
            completed=results.completed,
            in_progress=results.in_progress,
            failed=results.failed,
            ignored=results.ignored,
            tokens=results.tokens,
            remarks=list(results.remarks),
            chart=averages_chart(results.summaries) if _have_averages(results.summaries) else "",
            insights=self._insights(job, results),
        )

    def _insights(self, job: Evaluation, results: EvaluationResults) -> list[InsightShape]:
        asked = (each.asked_as for each in results.summaries)
        found = insights_of(self._site.store.read, job.id, asked)[:MOST_INSIGHTS]
        return [
            InsightShape(
                insight=each.insight, found=each.found, example=each.example, sessions=[*each.sessions]
            )
            for each in found
        ]

    def results(self, job: Evaluation) -> EvaluationResults:
        """What a job came to, as far as it is."""
        key = (job.id, job.state, timestamp(job.updated_at))
        began = time.monotonic()
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                return kept
            until, found = self._lately.get(job.id, (0.0, None))
            if found is not None and not job.is_finished and began < until:
                return found
        made = results_of(self._site.store, job.id)
        with self._lock:
            if len(self._kept) + len(self._lately) > MOST_KEPT:
                self._kept.clear()
                self._lately.clear()
            if job.is_finished:
                self._kept[key] = made
                self._lately.pop(job.id, None)
            else:
                ended = time.monotonic()
                self._lately[job.id] = (ended + REST * (ended - began), made)
        return made

    def _line(self, job: Evaluation, run: RunLine | None, *, plots: bool) -> dict[str, Any]:
        results = self.results(job)
        return {
            "id": job.id,
            "name": job.name,
            "state": job.state,
            "created_at": timestamp(job.created_at),
            "updated_at": timestamp(job.updated_at),
            "evaluators": list(job.evaluators),
            "is_online": is_online(job.document),
            "sessions": results.total or job.sessions_found,
            "counts": run.counts if run else NO_COUNTS,
            "item_count": run.itemCount if run else 0,
            "finished_count": run.finishedCount if run else 0,
            "averages": [summary_shape(each, plots=plots) for each in results.summaries],
            "cost_usd": results.cost_usd,
            "budget_usd": run.budgetUsd if run else None,
            "details": list(job.error_details),
        }


def find_job(site: Site, evaluation: str) -> Evaluation:
    """A job by its whole id; what is stopped or deleted must not be guessed."""
    found = evaluation_of(site.store, evaluation, site.now())
    if found.id != evaluation:
        raise NotFound(f"there is no evaluation {evaluation}\nIt may have been deleted already.")
    return found


def summary_shape(result: EvaluatorResult, *, plots: bool) -> EvaluatorSummary:
    """What an evaluator came to, as an answer."""
    drawn = labels_chart(result) if plots and result.labels else ""
    return EvaluatorSummary(
        **{name: value for name, value in asdict(result).items() if name in _SAME},
        average=estimate_shape(result.average),
        high_is_bad=result.high_is_bad,
        labels_chart=drawn,
    )


def estimate_shape(estimate: Estimate | Rate) -> EstimateShape:
    """A figure with its interval, as an answer."""
    n = estimate.n if isinstance(estimate, Estimate) else estimate.trials
    return EstimateShape(value=estimate.value, low=estimate.low, high=estimate.high, n=n)


_SAME = (
    *("evaluator", "asked_as", "digest", "level", "dimension", "evaluated", "failed", "sessions", "labels"),
    *("if_failures_were_zero", "wavering", "cost_usd"),
)


def _have_averages(results: Sequence[EvaluatorResult]) -> bool:
    return any(result.average.value is not None for result in results)
