"""Evaluations of recorded sessions that a server starts, resumes and answers for, and their results."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from proctor import __version__
from proctor.api.launch import LaunchedProcess
from proctor.context import RunContext
from proctor.errors import NotFound, QuotaReached
from proctor.evaluator import Evidence
from proctor.jobs.evaluation import online, results, state
from proctor.jobs.evaluation.drift import Alerts, DriftWatch
from proctor.jobs.evaluation.online import is_online
from proctor.jobs.evaluation.request import JUDGE, EvaluationRequest, named
from proctor.jobs.evaluation.state import FAILED, PENDING, EvaluationState, page_mark
from proctor.json_values import JsonMap
from proctor.models import ModelRouter
from proctor.stats.evaluation import (
    Cluster,
    EvaluationResults,
    EvaluatorResult,
    InsightFinding,
    bare,
    clusters,
)
from proctor.store import evaluations
from proctor.store.sessions import evidence_of_session
from proctor.telemetry import Document, session_of

__all__ = [
    "JUDGE",
    "Cluster",
    "EvaluationState",
    "EvaluationWatch",
    "EvaluatorResult",
    "InsightFinding",
    "ModelRouter",
    "bare",
    "clusters",
    "delete_evaluation",
    "evaluation",
    "evaluation_arn",
    "evaluations_page",
    "evidence_of_documents",
    "insight_findings",
    "named",
    "page_mark",
    "results_so_far",
    "start_evaluation",
    "stop_evaluation",
    "watched_log_groups",
]
_quota_lock = threading.Lock()


def start_evaluation(
    ctx: RunContext,
    document: JsonMap,
    *,
    region: str,
    account: str,
    most_active: int,
    most: int,
    tags: Mapping[str, str] | None = None,
) -> EvaluationState:
    """Open an evaluation by a checked document; a known client token returns the one that it opened.

    If it `is_new`, the caller starts a process for it. Raises `QuotaReached`.
    """
    request = EvaluationRequest.from_document(document, online_source=online.online_source(ctx.store))
    # Counted and opened under one lock, so that concurrent requests count each other.
    with _quota_lock:
        if not evaluations.is_token_used(ctx.store.read, request.client_token):
            _check_quotas(ctx, most_active, most)
        opened = state.open_evaluation(
            ctx.store,
            request,
            now=ctx.now(),
            version=__version__,
            region=region,
            account=account,
            definitions=online.copies_of(ctx.store, named(document, "evaluators")),
            is_detached=True,
        )
    if opened.is_new and tags:
        ctx.store.definitions.tag(opened.arn, tags)
    return opened


def _check_quotas(ctx: RunContext, most_active: int, most: int) -> None:
    unfinished = evaluations.unfinished_evaluations(ctx.store.read)
    if sum(not is_online(json.loads(row["requestJson"])) for row in unfinished) >= most_active:
        raise QuotaReached(
            f"There may be {most_active} active batch evaluations; wait for one to end, or stop one."
        )
    if evaluations.count_evaluations(ctx.store.read) >= most:
        raise QuotaReached(f"There may be {most} batch evaluations; delete some.")


def evaluation(ctx: RunContext, evaluation_id: str) -> EvaluationState:
    """An evaluation by its whole ID. Raises `NotFound`, also for those of online configurations."""
    found = state.evaluation_of(ctx.store, evaluation_id, ctx.now())
    if found.state == FAILED and not found.error_details:
        # It failed between the two reads; the reason is written before the state.
        found = state.evaluation_of(ctx.store, found.id, ctx.now())
    if found.id != evaluation_id or is_online(found.document):
        raise NotFound(f"There is no batch evaluation {evaluation_id}.")
    return found


def evaluation_arn(ctx: RunContext, evaluation_id: str) -> str:
    """The ARN of an evaluation, which may be of another region. Raises `NotFound`."""
    return ctx.store.evaluations.row(evaluation_id)["arn"]


def evaluations_page(
    ctx: RunContext, *, after: tuple[str, str] | None = None, limit: int = 100
) -> list[EvaluationState]:
    """Evaluations without those of online configurations, newest first, after a `page_mark`."""
    listed: list[EvaluationState] = []
    while len(listed) < limit:
        page = state.evaluations_page(ctx.store, ctx.now(), after=after, limit=limit)
        listed += [each for each in page if not is_online(each.document)]
        if len(page) < limit:
            break
        after = page_mark(page[-1])
    return listed[:limit]


def stop_evaluation(ctx: RunContext, evaluation_id: str) -> EvaluationState:
    """Request a stop without waiting; results stay."""
    return state.stop_evaluation(ctx.store, evaluation(ctx, evaluation_id).id, ctx.now)


def delete_evaluation(ctx: RunContext, evaluation_id: str) -> EvaluationState:
    """Remove a finished evaluation from lists; its results stay readable."""
    return state.delete_evaluation(ctx.store, evaluation(ctx, evaluation_id).id, ctx.now())


def results_so_far(ctx: RunContext, of: EvaluationState) -> EvaluationResults | None:
    """Results of an evaluation; None before its sessions are discovered, and if its key was deleted."""
    is_early = of.state == PENDING or not (of.sessions_found or of.is_finished)
    if is_early or not ctx.store.data_keys.can_open(of.run_id):
        return None
    return results.results_of(ctx.store, of.run_id)


def insight_findings(ctx: RunContext, run_id: str, insight: str) -> list[InsightFinding]:
    """What an insight found in the sessions of an evaluation."""
    return results.insight_findings(ctx.store.read, run_id, insight)


def watched_log_groups(ctx: RunContext, config_arn: str) -> JsonMap:
    """The log groups that an online configuration watches. Raises `NotFound`."""
    return online.online_source(ctx.store)(config_arn)


def evidence_of_documents(documents: Sequence[Document], *, session_id: str, service: str) -> Evidence | None:
    """The session in some spans, which is not stored, for evaluators; None: nothing in them can be read."""
    session = session_of(documents, external_id=session_id, service=service)
    return None if session is None else evidence_of_session(session)


RESTART_DELAY = timedelta(seconds=30)
"""Minimum time between failed starts of one evaluation."""
FINISHED = (0, 1)
"""Exit codes of processes that completed their evaluation."""
MOST_RESTARTS = 5
"""Maximum restarts of an evaluation whose process keeps dying."""


class EvaluationWatch:
    """What a server does for evaluations beside requests: it starts the processes of interrupted ones and of
    online configurations, follows drift, and sends alerts."""

    def __init__(
        self,
        ctx: RunContext,
        start: Callable[[str], LaunchedProcess],
        *,
        judging: JsonMap,
        region: str,
        account: str,
        quiet_seconds: float | None,
    ) -> None:
        """`start` executes an evaluation in a process that outlives the server; `judging` has further members
        of requests. After `quiet_seconds` without spans a session has ended; None: as configurations say."""
        self._ctx = ctx
        self._start_process = start
        self._started: dict[str, tuple[LaunchedProcess, datetime]] = {}
        self._unowned: set[str] = set()
        self._restarts: Counter[str] = Counter()
        self._online = online.OnlineWatch(
            ctx.store,
            online.OnlineEvaluationState(
                judging=judging,
                version=__version__,
                region=region,
                account=account,
                quiet_seconds=quiet_seconds,
            ),
        )
        settings = ctx.settings
        self._drift = DriftWatch(ctx.store, settings.watches)
        self._alerts = Alerts(ctx.store, settings.watches, settings.environment, settings.folders[0])

    def resume(self) -> None:
        """Resume all unfinished evaluations without a live owner."""
        for evaluation_id in list(self._interrupted()):
            self._start(evaluation_id)

    def restart_dead(self) -> None:
        """Restart detached evaluations whose process died.

        Only those seen twice in a row: a new process takes a moment to claim its evaluation.
        """
        unowned = set(self._interrupted(only_detached=True))
        for evaluation_id in sorted(unowned & self._unowned):
            if self._restarts[evaluation_id] < MOST_RESTARTS and self._start(evaluation_id):
                self._restarts[evaluation_id] += 1
        self._unowned = unowned

    def follow_drift(self) -> None:
        """Extend the drift lines of online configurations."""
        self._drift.look(self._ctx.now())

    async def send_alerts(self) -> None:
        """Send the alerts that are due."""
        await self._alerts.send(self._ctx.now())

    def evaluate_arrivals(self) -> None:
        """Evaluate the sessions that online configurations select."""
        for evaluation_id in self._online.look(self._ctx.now()):
            self._start(evaluation_id)

    def _interrupted(self, *, only_detached: bool = False) -> Iterator[str]:
        return state.interrupted_evaluations(self._ctx.store, self._ctx.now(), only_detached=only_detached)

    def _start(self, evaluation_id: str) -> bool:
        """Start a process, unless the previous one is running or has just failed."""
        now = self._ctx.now()
        if evaluation_id in self._started:
            earlier, at = self._started[evaluation_id]
            exit_code = earlier.process.poll()
            if exit_code is None or (exit_code not in FINISHED and now - at < RESTART_DELAY):
                return False
        self._started[evaluation_id] = (self._start_process(evaluation_id), now)
        return True
