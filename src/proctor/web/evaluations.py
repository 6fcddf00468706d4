"""The Evaluations pages and their API: list, results, sessions, reports."""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from proctor.api import evaluation as api
from proctor.api.calibration import Estimate, Rate
from proctor.api.deprecated import OLD_NAMES_OF_EVALUATIONS, OLD_NAMES_OF_JUDGED_SESSIONS
from proctor.api.labels import verdict_of
from proctor.api.run_list import RunLine, RunLines
from proctor.cache import LruCache
from proctor.errors import NotFound
from proctor.json_values import JsonMap, as_map, as_whole_number, maps_in
from proctor.report import as_markdown
from proctor.report.render import document_html
from proctor.web.evaluation_schemas import (
    DriftAnswer,
    DriftLineShape,
    EstimateShape,
    EvaluationAnswer,
    EvaluationLine,
    EvaluationPage,
    EvaluatorSummary,
    JudgedSession,
    JudgedSessions,
    SessionScore,
    Verdicts,
)
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import RowModel, SessionId
from proctor.web.runs import REPORT_POLICY
from proctor.web.state import AppState

MOST_CACHED = 500
MOST_INSIGHTS = 100
"""Insights on the page; files and command line have all."""
REST = 5
"""Results of a running evaluation are cached for this multiple of the time they took."""
NO_COUNTS = {"queued": 0, "running": 0, "success": 0, "fail": 0, "timeout": 0, "error": 0}


class EvaluationLines:
    """Makes responses for evaluations, with cached results; thread-safe."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._runs = RunLines(site.context)
        self._cache: LruCache[str, tuple[tuple[str, str], float, api.EvaluationResults]] = LruCache(
            MOST_CACHED
        )
        """By ID: state and change of a finished evaluation, expiry of a running one, and results."""
        self._lock = threading.Lock()

    def of(self, jobs: Sequence[api.EvaluationState]) -> list[EvaluationLine]:
        """The lines of these evaluations."""
        runs = {run.run_id: run for run in self._runs.named([job.id for job in jobs])}
        return [EvaluationLine(**self._line(job, runs.get(job.id), plots=False)) for job in jobs]

    def answer(self, evaluation: str) -> EvaluationAnswer:
        """A complete evaluation, by ID or prefix."""
        job = api.find_evaluation(self._site.context, evaluation)
        results = self.results(job)
        run = next(iter(self._runs.named([job.id])), None)
        document = job.document
        return EvaluationAnswer(
            **self._line(job, run, plots=True),
            description=str(document.get("description") or ""),
            source=dict(as_map(document, "dataSourceConfig")),
            judge=str(document.get("judge") or ""),
            votes=as_whole_number(document.get("votes")) or 1,
            ground_truth=[
                str(entry["dataset"]) for entry in maps_in(document.get("groundTruth")) if "dataset" in entry
            ],
            completed=results.completed,
            in_progress=results.in_progress,
            failed=results.failed,
            ignored=results.ignored,
            tokens=results.tokens,
            notes=list(results.remarks),
            chart=api.averages_chart(results.summaries) if _have_averages(results.summaries) else "",
            insights=api.insights(self._site.context, results)[:MOST_INSIGHTS],
            pairwise=api.pairwise_result(self._site.context, results),
        )

    def results(self, job: api.EvaluationState) -> api.EvaluationResults:
        """The results of an evaluation so far."""
        state, began = (job.state, api.timestamp(job.updated_at)), time.monotonic()
        with self._lock:
            cached = self._cache.get(job.id)
        if cached is not None and (cached[0] == state if job.is_finished else began < cached[1]):
            return cached[2]
        results = api.results_of(self._site.context, job)
        ended = time.monotonic()
        until = 0.0 if job.is_finished else ended + REST * (ended - began)
        with self._lock:
            self._cache.put(job.id, (state, until, results))
        return results

    def _line(self, job: api.EvaluationState, run: RunLine | None, *, plots: bool) -> dict[str, Any]:
        results = self.results(job)
        return {
            "id": job.id,
            "name": job.name,
            "state": job.state,
            "created_at": api.timestamp(job.created_at),
            "updated_at": api.timestamp(job.updated_at),
            "evaluators": list(job.evaluators),
            "is_online": api.is_online(job.document),
            "sessions": results.total or job.sessions_found,
            "counts": run.counts if run else NO_COUNTS,
            "item_count": run.item_count if run else 0,
            "finished_count": run.finished_count if run else 0,
            "averages": [summary_shape(each, plots=plots) for each in results.summaries],
            "cost_usd": results.cost_usd,
            "budget_usd": run.budget_usd if run else None,
            "details": list(job.error_details),
        }


def find_job(site: AppState, evaluation: str) -> api.EvaluationState:
    """An evaluation by its full ID, for changes."""
    job = api.find_evaluation(site.context, evaluation)
    if job.id != evaluation:
        raise NotFound(f"there is no evaluation {evaluation}\nIt may have been deleted already.")
    return job


def summary_shape(result: api.EvaluatorResult, *, plots: bool) -> EvaluatorSummary:
    """The response shape of an evaluator's results."""
    members = {
        **asdict(result),
        "average": estimate_shape(result.average),
        "scope": result.average.scope,
        "correction": result.correction,
        "labels_chart": api.labels_chart(result) if plots and result.labels else "",
    }
    return EvaluatorSummary.model_validate(members)


def estimate_shape(estimate: Estimate | Rate) -> EstimateShape:
    """The response shape of an estimate."""
    n = estimate.n if isinstance(estimate, Estimate) else estimate.trials
    return EstimateShape(value=estimate.value, low=estimate.low, high=estimate.high, n=n)


def _have_averages(results: Sequence[api.EvaluatorResult]) -> bool:
    return any(result.average.value is not None for result in results)


EvaluationId = Annotated[str, Path(description="ID of the evaluation.", max_length=200)]
Order = Literal["lowest", "mean", "failed", "session", "position"]


class ChangedEvaluation(RowModel):
    """The state of a stopped or deleted evaluation."""

    id: str
    state: str


def router(site: AppState) -> APIRouter:
    """The Evaluations pages and their routes."""
    routes = APIRouter(tags=["evaluations"], responses=ERRORS)
    lines = EvaluationLines(site)
    job_names = " ".join(api.evaluation_jobs())

    @routes.get("/evaluations", include_in_schema=False)
    def listed_page(request: Request) -> Response:
        return page(request, "evaluations.html", title="Evaluations", evaluation_jobs=job_names)

    @routes.get("/evaluations/new", include_in_schema=False)
    def new_page(request: Request) -> Response:
        return page(request, "evaluation_new.html", title="New Evaluation", evaluation_jobs=job_names)

    @routes.get("/evaluations/{evaluation_id}", include_in_schema=False)
    def one_page(request: Request, evaluation_id: EvaluationId) -> Response:
        job = api.find_evaluation(site.context, evaluation_id)
        if job.id != evaluation_id:
            return RedirectResponse(f"/evaluations/{job.id}")
        is_sealed = site.context.store.data_keys.is_encrypted
        return page(
            request,
            "evaluation.html",
            title=job.name,
            evaluation_id=job.id,
            name=job.name,
            is_sealed=is_sealed,
        )

    @routes.get(
        "/api/evaluations",
        summary="List evaluations, newest first",
        response_class=with_deprecated(OLD_NAMES_OF_EVALUATIONS),
    )
    def listed(
        search: Annotated[str, Query(max_length=200, description="Text in the ID.")] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> EvaluationPage:
        text = search.replace("\0", "")
        found, total, count = api.search_evaluations(site.context, text, limit=limit, offset=offset)
        return EvaluationPage(evaluations=lines.of(found), total=total, all=count)

    @routes.get("/api/drift", summary="Scores of online evaluation over time, with bounds and crossings")
    def drift(
        name: Annotated[str, Query(max_length=200, description="Only this online configuration.")] = "",
    ) -> DriftAnswer:
        """One line per online configuration, evaluator and dimension. Computed as sessions are evaluated."""
        return DriftAnswer(
            lines=[
                DriftLineShape.model_validate(
                    {**asdict(line), "state": line.state, "chart": api.drift_chart(line)}
                )
                for line in api.drift_lines(site.context, name.replace("\0", ""))
            ]
        )

    @routes.get(
        "/api/evaluations/{evaluation_id}",
        summary="An evaluation and its results so far",
        response_class=with_deprecated(OLD_NAMES_OF_EVALUATIONS),
    )
    def one(evaluation_id: EvaluationId) -> EvaluationAnswer:
        return lines.answer(evaluation_id)

    @routes.get(
        "/api/evaluations/{evaluation_id}/sessions",
        summary="The sessions of an evaluation, lowest scores first",
        response_class=with_deprecated(OLD_NAMES_OF_JUDGED_SESSIONS),
    )
    def sessions(
        evaluation_id: EvaluationId,
        evaluator: Annotated[str, Query(max_length=500, description="Only scores of this evaluator.")] = "",
        dimension: Annotated[str, Query(max_length=500)] = "",
        search: Annotated[str, Query(max_length=500, description="Text in the session name.")] = "",
        order: Order = "lowest",
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> JudgedSessions:
        """Sorted by the store. Where high values are bad, 1 − value counts."""
        job = api.find_evaluation(site.context, evaluation_id)
        found, total = api.judged_sessions(
            site.context,
            job,
            evaluator=evaluator.replace("\0", ""),
            dimension=dimension.replace("\0", ""),
            search=search.replace("\0", ""),
            order=order,
            descending=descending,
            offset=offset,
            limit=limit,
        )
        return JudgedSessions(sessions=[_judged(*each) for each in found], offset=offset, total=total)

    @routes.get(
        "/api/evaluations/{evaluation_id}/sessions/{session_id}", summary="The results of one session"
    )
    def verdicts(evaluation_id: EvaluationId, session_id: SessionId) -> Verdicts:
        job = api.find_evaluation(site.context, evaluation_id)
        rows = api.scores_of_session(site.context, job, session_id.replace("\0", ""))
        return Verdicts(session_id=session_id, verdicts=list(map(verdict_of, rows)))

    @routes.post(
        "/api/evaluations/{evaluation_id}/stop", summary="Stop an evaluation; results so far are kept"
    )
    def stop(evaluation_id: EvaluationId) -> ChangedEvaluation:
        job = api.stop_evaluation(site.context, find_job(site, evaluation_id).id)
        return ChangedEvaluation(id=job.id, state=job.state)

    @routes.delete("/api/evaluations/{evaluation_id}", summary="Remove a finished evaluation from the list")
    def delete(evaluation_id: EvaluationId) -> ChangedEvaluation:
        """Its results stay readable in the log group."""
        job = api.delete_evaluation(site.context, find_job(site, evaluation_id).id)
        return ChangedEvaluation(id=job.id, state=job.state)

    @routes.get(
        "/api/evaluations/{evaluation_id}/records",
        summary="All results as JSON lines",
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": {}}, "description": "The file."}},
    )
    def records(evaluation_id: EvaluationId) -> Response:
        job = api.find_evaluation(site.context, evaluation_id)
        headers = {"content-disposition": f'attachment; filename="{job.id}.jsonl"'}
        return StreamingResponse(
            _lines(api.evaluation_records(site.context, job)),
            media_type="application/x-ndjson",
            headers=headers,
        )

    @routes.get(
        "/api/evaluations/{evaluation_id}/report",
        summary="The report of an evaluation",
        response_class=Response,
        responses={
            200: {
                "content": {"text/html": {}, "text/markdown": {}, "text/plain": {}},
                "description": "The report.",
            }
        },
    )
    def report(
        evaluation_id: EvaluationId,
        format_: Annotated[Literal["html", "md"], Query(alias="format")] = "html",
        download: Annotated[bool, Query(description="Send as an attachment.")] = False,
    ) -> Response:
        job = api.find_evaluation(site.context, evaluation_id)
        headers = {"content-disposition": f'attachment; filename="{job.id}.{format_}"'} if download else {}
        document = api.report_document(api.evaluation_report(site.context, job.id, known=lines.results(job)))
        if format_ == "md":
            kind = "text/markdown" if download else "text/plain"
            text = as_markdown.render(document)
            return Response(text, media_type=f"{kind}; charset=utf-8", headers=headers)
        return HTMLResponse(
            document_html(document), headers={**headers, "content-security-policy": REPORT_POLICY}
        )

    return routes


def _judged(row: Mapping[str, Any], scores: Sequence[Mapping[str, Any]]) -> JudgedSession:
    shown = [
        SessionScore.model_validate({**score, "label": (score["labels"] == 1 and score["label"]) or ""})
        for score in scores
    ]
    return JudgedSession.model_validate(
        {**row, "name": row["prompt"], "isOpen": bool(row["open"]), "scores": shown}
    )


def _lines(found: Iterable[JsonMap]) -> Iterator[bytes]:
    for record in found:
        yield json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
