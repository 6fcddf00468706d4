"""The Evaluations pages: every job there is, and one job with what it found.

Knows nothing of how sessions are judged.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from proctor.analyse.evaluation import high_is_bad
from proctor.analyse.evaluation_targets import failed_targets, worst_targets
from proctor.batch.evaluation import delete_evaluation, evaluation_of, stop_evaluation
from proctor.export.evaluation import records_of
from proctor.report.evaluation import EvaluationPage as ReportPage
from proctor.report.evaluation import evaluation_html, evaluation_markdown
from proctor.store import judged
from proctor.store.judged import JudgedFilter
from proctor.web.answers import ERRORS, page
from proctor.web.downloads import REPORT_POLICY
from proctor.web.evaluation_document import EvaluationLines, find_job
from proctor.web.judging_shapes import (
    EvaluationAnswer,
    EvaluationPage,
    JudgedSession,
    JudgedSessions,
    SessionScore,
    Verdicts,
    VerdictShape,
)
from proctor.web.shapes import SessionId, Shape
from proctor.web.site import Site

EvaluationId = Annotated[str, Path(description="The job's id.", max_length=200)]
Order = Literal["lowest", "mean", "failed", "session", "position"]


class Changed(Shape):
    """What became of a job that was stopped or deleted."""

    id: str
    state: str


def router(site: Site) -> APIRouter:
    """The pages, and what they ask."""
    made = APIRouter(tags=["evaluations"], responses=ERRORS)
    lines = EvaluationLines(site)

    @made.get("/evaluations", include_in_schema=False)
    def listed_page(request: Request) -> Response:
        return page(request, "evaluations.html", title="Evaluations")

    @made.get("/evaluations/new", include_in_schema=False)
    def new_page(request: Request) -> Response:
        return page(request, "evaluation_new.html", title="New Evaluation")

    @made.get("/evaluations/{evaluation_id}", include_in_schema=False)
    def one_page(request: Request, evaluation_id: EvaluationId) -> Response:
        job = evaluation_of(site.store, evaluation_id, site.now())
        if job.id != evaluation_id:
            return RedirectResponse(f"/evaluations/{job.id}")
        is_sealed = site.store.data_keys.is_sealed
        return page(
            request,
            "evaluation.html",
            title=job.name,
            evaluation_id=job.id,
            name=job.name,
            is_sealed=is_sealed,
        )

    @made.get("/api/evaluations", summary="The jobs there are, newest first")
    def listed(
        search: Annotated[str, Query(max_length=200, description="Text in the id.")] = "",
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    ) -> EvaluationPage:
        ids, total = judged.jobs_page(site.store.read, search.replace("\0", ""), limit=limit, offset=offset)
        all_ = judged.jobs_page(site.store.read, "", limit=1, offset=0)[1] if search else total
        return EvaluationPage(evaluations=lines.of(ids), total=total, all=all_)

    @made.get("/api/evaluations/{evaluation_id}", summary="A job, and what it found so far")
    def one(evaluation_id: EvaluationId) -> EvaluationAnswer:
        return lines.answer(evaluation_id)

    @made.get("/api/evaluations/{evaluation_id}/sessions", summary="Its sessions, the lowest scores first")
    def sessions(
        evaluation_id: EvaluationId,
        evaluator: Annotated[str, Query(max_length=500, description="By this one's scores alone.")] = "",
        dimension: Annotated[str, Query(max_length=500)] = "",
        search: Annotated[str, Query(max_length=500, description="Text in what the session is called.")] = "",
        order: Order = "lowest",
        descending: bool = False,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> JudgedSessions:
        """Sorted and cut by the store. Where a high value is bad, 1 less that value counts."""
        job = evaluation_of(site.store, evaluation_id, site.now())
        wanted = JudgedFilter(
            evaluator=evaluator.replace("\0", ""),
            dimension=dimension.replace("\0", ""),
            search=search.replace("\0", ""),
            reversed_=high_is_bad(job.document),
        )
        return _sessions(site, job.id, wanted, order, descending=descending, offset=offset, limit=limit)

    @made.get(
        "/api/evaluations/{evaluation_id}/sessions/{session_id}", summary="Its results about one session"
    )
    def verdicts(evaluation_id: EvaluationId, session_id: SessionId) -> Verdicts:
        job = evaluation_of(site.store, evaluation_id, site.now())
        rows = judged.verdicts_of(site.store.read, job.id, session_id.replace("\0", ""))
        return Verdicts(session_id=session_id, verdicts=[verdict_shape(row) for row in rows])

    @made.post("/api/evaluations/{evaluation_id}/stop", summary="Stop a job; what is judged stays")
    def stop(evaluation_id: EvaluationId) -> Changed:
        job = stop_evaluation(site.store, find_job(site, evaluation_id).id, site.now)
        return Changed(id=job.id, state=job.state)

    @made.delete("/api/evaluations/{evaluation_id}", summary="Take a finished job off the list")
    def delete(evaluation_id: EvaluationId) -> Changed:
        """Its results stay readable for those who know where they were written."""
        job = delete_evaluation(site.store, find_job(site, evaluation_id).id, site.now())
        return Changed(id=job.id, state=job.state)

    @made.get(
        "/api/evaluations/{evaluation_id}/records",
        summary="Every single result as a line of JSON",
        response_class=Response,
        responses={200: {"content": {"application/x-ndjson": {}}, "description": "The file."}},
    )
    def records(evaluation_id: EvaluationId) -> Response:
        job = evaluation_of(site.store, evaluation_id, site.now())
        headers = {"content-disposition": f'attachment; filename="{job.id}.jsonl"'}
        return StreamingResponse(_lines(site, job.id), media_type="application/x-ndjson", headers=headers)

    @made.get(
        "/api/evaluations/{evaluation_id}/report",
        summary="What a job came to, as a page to keep",
        response_class=Response,
        responses={
            200: {"content": {"text/html": {}, "text/markdown": {}, "text/plain": {}}, "description": "It."}
        },
    )
    def report(
        evaluation_id: EvaluationId,
        format_: Annotated[Literal["html", "md"], Query(alias="format")] = "html",
        download: Annotated[bool, Query(description="To be kept, not shown.")] = False,
    ) -> Response:
        job = evaluation_of(site.store, evaluation_id, site.now())
        headers = {"content-disposition": f'attachment; filename="{job.id}.{format_}"'} if download else {}
        found = _report(site, lines, job.id)
        if format_ == "md":
            kind = "text/markdown" if download else "text/plain"
            return Response(evaluation_markdown(found), media_type=f"{kind}; charset=utf-8", headers=headers)
        return HTMLResponse(
            evaluation_html(found), headers={**headers, "content-security-policy": REPORT_POLICY}
        )

    return made


def verdict_shape(row: dict[str, Any]) -> VerdictShape:
    """A score as an answer."""
    return VerdictShape(
        **{name: row[name] for name in ("evaluator", "level", "target", "dimension", "value", "label")},
        digest=row["evaluatorDigest"],
        explanation=row["explanation"],
        error=row["error"],
        votes=json.loads(row["votes"] or "[]"),
        cost_usd=row["costUsd"],
    )


def _sessions(
    site: Site,
    run_id: str,
    wanted: JudgedFilter,
    order: str,
    *,
    descending: bool,
    offset: int,
    limit: int,
) -> JudgedSessions:
    read = site.store.read
    rows, total = judged.sessions_page(
        read, run_id, wanted, order=order, descending=descending, limit=limit, offset=offset
    )
    by_words: dict[str, list[SessionScore]] = {row["words"]: [] for row in rows}
    for score in judged.scores_by_session(read, run_id, list(by_words)):
        label = score["label"] if score["labels"] == 1 else ""
        by_words[score["words"]].append(SessionScore.model_validate({**score, "label": label or ""}))
    found = [
        JudgedSession(
            session_id=row["sessionId"],
            words=row["words"],
            lowest=row["lowest"],
            mean=row["mean"],
            results=row["results"],
            failed=row["failed"],
            is_open=bool(row["open"]),
            scores=by_words[row["words"]],
        )
        for row in rows
    ]
    return JudgedSessions(sessions=found, offset=offset, total=total)


def _lines(site: Site, run_id: str) -> Iterator[bytes]:
    for record in records_of(site.store, run_id):
        yield json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"


def _report(site: Site, lines: EvaluationLines, run_id: str) -> ReportPage:
    job = evaluation_of(site.store, run_id, site.now())
    results, read = lines.results(job), site.store.read
    return ReportPage(
        evaluation=job,
        results=results,
        worst=[worst_targets(read, run_id, each) for each in results.summaries],
        failed=[failed_targets(read, run_id, each) for each in results.summaries],
    )
