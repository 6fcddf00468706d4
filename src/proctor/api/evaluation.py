"""Evaluations of recorded sessions: read a request, estimate it, open and execute it, and read its results.

`proctor evaluate`, the Evaluations pages and the AWS-compatible service share these verbs.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from proctor import __version__
from proctor.api.launch import LaunchedProcess, Launcher, LaunchRequest
from proctor.batch import lifecycle
from proctor.batch.executor import SILENT, Observer, RunResult
from proctor.batch.ingest import build_sessions, import_kinds
from proctor.context import RunContext
from proctor.errors import NotFound, QuotaReached, UsageError
from proctor.evaluator import Evidence
from proctor.job import make_overrides
from proctor.jobs import jobs
from proctor.jobs.evaluation import drift, online, prepare, results, state
from proctor.jobs.evaluation.drift import DriftLine, drift_chart
from proctor.jobs.evaluation.evaluator_results import EvaluationResults, EvaluatorResult, high_is_bad
from proctor.jobs.evaluation.insights import Cluster, Insight, InsightFinding, bare, clusters
from proctor.jobs.evaluation.job import JOB, EvaluationJobPlan
from proctor.jobs.evaluation.online import is_online
from proctor.jobs.evaluation.pairs import PairwiseResult
from proctor.jobs.evaluation.prepare import (
    EvaluationEstimate,
    EvaluatorEstimate,
    PendingEvaluationRequest,
    SessionDiscovery,
    pending_request,
)
from proctor.jobs.evaluation.request import (
    JUDGE,
    NAME,
    EvaluationRequest,
    named,
    read_dataset,
    read_evaluation,
)
from proctor.jobs.evaluation.results import (
    EvaluationReport,
    averages_chart,
    evaluation_document,
    labels_chart,
    report_document,
)
from proctor.jobs.evaluation.state import COMPLETED, FAILED, PENDING, EvaluationState, page_mark
from proctor.json_values import JsonMap, JsonObject, as_map, without_empty
from proctor.models import ModelRouter
from proctor.plan.source import bytes_of
from proctor.store import evaluations, scores, timestamp
from proctor.store.evaluations import LogGroup
from proctor.store.sessions import evidence_of_session
from proctor.store.tables import DriftCrossingRow, ScoreRow
from proctor.telemetry import Document, session_of

__all__ = [
    "COMPLETED",
    "JOB",
    "JUDGE",
    "NAME",
    "PENDING",
    "Cluster",
    "DriftCrossingRow",
    "DriftLine",
    "EvaluationEstimate",
    "EvaluationJobPlan",
    "EvaluationReport",
    "EvaluationResults",
    "EvaluationState",
    "EvaluationWatch",
    "EvaluatorEstimate",
    "EvaluatorResult",
    "Insight",
    "InsightFinding",
    "LogGroup",
    "ModelRouter",
    "PairwiseResult",
    "PendingEvaluationRequest",
    "RequestFlags",
    "RunResult",
    "averages_chart",
    "bare",
    "batch_evaluation",
    "clusters",
    "delete_evaluation",
    "detach_evaluation",
    "drift_chart",
    "drift_lines",
    "estimate",
    "evaluation_arn",
    "evaluation_document",
    "evaluation_jobs",
    "evaluation_records",
    "evaluation_report",
    "evaluations_page",
    "evidence_of_documents",
    "execute_evaluation",
    "extend_evaluation",
    "find_evaluation",
    "import_kinds",
    "insight_findings",
    "insights",
    "is_online",
    "judged_sessions",
    "labels_chart",
    "named",
    "open_request",
    "page_mark",
    "pairwise_result",
    "pending_request",
    "preview_sessions",
    "read_dataset",
    "read_request",
    "received_sessions",
    "report_document",
    "results_of",
    "results_so_far",
    "scores_of_session",
    "search_evaluations",
    "start_evaluation",
    "stop_evaluation",
    "timestamp",
    "watched_log_groups",
    "write_results",
]
_quota_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFlags:
    """A request on the command line. None or empty: not given."""

    settings: JsonMap = field(default_factory=dict)
    """Overrides of the plan, by name."""
    earlier: JsonMap = field(default_factory=dict)
    """The request of the evaluation that is extended."""
    evaluators: Sequence[str] = ()
    log_groups: Sequence[str] = ()
    log_group_prefixes: Sequence[str] = ()
    services: Sequence[str] = ()
    session_ids: Sequence[str] = ()
    runs: Sequence[str] = ()
    jobs: Sequence[str] = ()
    roles: Sequence[str] = ()
    models: Sequence[str] = ()
    files: Sequence[str] = ()
    kind: str = ""
    start: str = ""
    end: str = ""
    ground_truth: Sequence[Path] = ()
    pairwise: JsonMap = field(default_factory=dict)
    """Members of `pairwise`; empty: sessions are scored one by one."""


def read_request(ctx: RunContext, flags: RequestFlags, plan: Path | None = None) -> PendingEvaluationRequest:
    """The request of a plan, of flags, or of both; flags take precedence. Raises with every problem."""
    document, text, folder = JsonObject(), b"", Path.cwd()
    if plan is not None:
        text = bytes_of(plan, "the plan", remedy="Give a YAML or JSON file.")
        folder = plan.resolve().parent
        document = read_evaluation(text, file=str(plan))
    document |= {**flags.earlier, **make_overrides(JOB, flags.settings).members()}
    if flags.pairwise:
        document["pairwise"] = {**as_map(document, "pairwise"), **flags.pairwise}
    if flags.evaluators:
        document["evaluators"] = list(flags.evaluators)
    if source := _source(flags, as_map(document, "dataSourceConfig")):
        document["dataSourceConfig"] = source
    return pending_request(
        document,
        folder=folder,
        plan_path=str(plan.resolve()) if plan else "",
        plan_text=text.decode(errors="replace"),
        ground_truth=flags.ground_truth,
        files_folder=Path.cwd() if flags.files else folder,
        store=ctx.store,
    )


def _source(flags: RequestFlags, planned: JsonMap) -> JsonObject:
    """The source of sessions on the command line; filters alone narrow the source of the plan."""
    period = without_empty({"startTime": flags.start, "endTime": flags.end})
    filters = without_empty({"sessionIds": flags.session_ids, "timeRange": period})
    groups = without_empty(
        {
            "logGroupNames": flags.log_groups,
            "logGroupNamePrefixes": flags.log_group_prefixes,
            "serviceNames": flags.services,
        }
    )
    own = without_empty(
        {"runIds": flags.runs, "jobs": flags.jobs, "roles": flags.roles, "models": flags.models}
    )
    sources = {"log groups": groups, "runs of this store": own, "files": flags.files}
    kinds = [name for name, members in sources.items() if members]
    if len(kinds) > 1:
        raise UsageError(f"sessions come from one source, not from {' and '.join(kinds)}")
    if flags.kind and not flags.files:
        raise UsageError("--kind is the import format of files\nGive them with --files.")
    if flags.files or (not kinds and "files" in planned):
        if filters:
            raise UsageError(
                "files are evaluated whole: --session-id, --start and --end select sessions of the store\n"
                "Import them first:  proctor import auto PATH"
            )
        return {"files": {"paths": list(flags.files), "kind": flags.kind or "auto"}} if flags.files else {}
    if not kinds and planned:
        return _narrowed(planned, list(flags.session_ids), period)
    if groups:
        return {"cloudWatchLogs": groups | without_empty({"filterConfig": filters})}
    return without_empty({"store": own | filters})


def _narrowed(planned: JsonMap, session_ids: list[str], period: JsonMap) -> JsonObject:
    """The source of a plan, narrowed by flags; empty when there are none."""
    ((kind, planned_source),) = planned.items()
    source = as_map(planned_source)
    if not session_ids and not period:
        return {}
    if session_ids and kind == "onlineEvaluationConfigSource":
        raise UsageError("--session-id does not apply to an online configuration")
    inside = dict(as_map(source, "filterConfig")) if kind == "cloudWatchLogs" else dict(source)
    if session_ids:
        inside["sessionIds"] = session_ids
        # Either list would do; the flag means these alone.
        inside.pop("sessionTraceIds", None)
    if period:
        inside["timeRange"] = {**as_map(inside, "timeRange"), **period}
    return {kind: {**source, "filterConfig": inside} if kind == "cloudWatchLogs" else inside}


def received_sessions(ctx: RunContext) -> list[LogGroup]:
    """Log groups and services of the sessions that were received, as sources of an evaluation."""
    build_sessions(ctx.store, ctx.now())
    return evaluations.log_groups(ctx.store.read)


def preview_sessions(
    ctx: RunContext, source: JsonMap, *, most_named: int
) -> tuple[SessionDiscovery, list[str]]:
    """The sessions that a source selects, and the names of the most recent ones."""
    request = EvaluationRequest.from_document({"batchEvaluationName": "preview", "dataSourceConfig": source})
    discovery = prepare.find_sessions(ctx.store, request, ctx.now())
    shown = prepare.select_sessions(ctx.store.read, discovery.ids[:most_named])
    return discovery, [each.external_id for each in shown]


def estimate(ctx: RunContext, request: PendingEvaluationRequest) -> EvaluationEstimate:
    """Count the sessions, calls and approximate cost of a request; writes nothing to the store."""
    return prepare.estimate(request, ctx)


def open_request(
    ctx: RunContext,
    request: PendingEvaluationRequest,
    *,
    is_detached: bool = False,
    from_cloudwatch: bool = False,
) -> EvaluationState:
    """Check a request, import its files, and write the evaluation to the store, to be executed.

    A known client token returns the one that it opened, which is not `is_new`. `from_cloudwatch`: fetch its
    log groups from CloudWatch Logs first.
    """
    prepared = prepare.prepare(request, ctx)
    if from_cloudwatch:
        prepare.import_cloudwatch(prepared.request, ctx)
    return prepare.open_prepared(prepared, ctx, is_detached=is_detached)


def extend_evaluation(
    ctx: RunContext, evaluation_id: str, flags: RequestFlags, plan: Path | None = None
) -> EvaluationState:
    """Change the request of a finished evaluation to that of a plan, or add what the flags name; what it has
    evaluated is kept when it is executed."""
    earlier = find_evaluation(ctx, evaluation_id)
    if plan is None:
        metadata = ctx.store.evaluations.metadata(earlier.id)
        before = {**earlier.document, "evaluationMetadata": {"sessionMetadata": metadata}}
        names = list(dict.fromkeys([*earlier.evaluators, *flags.evaluators]))
        flags = replace(flags, earlier=before, evaluators=names)
    request = replace(read_request(ctx, flags, plan), folder=_folder(ctx, earlier.id))
    return prepare.extend_evaluation(earlier, request, ctx)


def _folder(ctx: RunContext, evaluation_id: str) -> Path:
    return JOB.restore(ctx.store.read.batch(evaluation_id, ctx.now()), ctx).folder


def execute_evaluation(
    ctx: RunContext, evaluation_id: str, *, workers: int | None = None, observer: Observer = SILENT
) -> Coroutine[Any, Any, RunResult]:
    """Execute what is left of an opened evaluation in this process."""
    return lifecycle.resume(JOB, evaluation_id, ctx, workers=workers, observer=observer)


LOGS = "evaluations"
"""Folder below the home for the output of processes that `detach_evaluation` starts without a launcher."""


def detach_evaluation(
    ctx: RunContext, evaluation_id: str, *, launcher: Launcher | None = None, workers: int | None = None
) -> LaunchedProcess:
    """Execute an opened evaluation in a process that outlives this one, unless it is stopped before.

    `launcher`: that of a server; None: the process starts in the folder of the evaluation.
    """
    request = LaunchRequest(
        job=JOB.name, run_id=evaluation_id, workers=workers, engine=ctx.engine, only_unfinished=True
    )
    if launcher is not None:
        return launcher.launch(request, f"evaluate-{evaluation_id}")
    # The address of the store may hold a password: other users cannot read the environment.
    located = {"PROCTOR_STORE": ctx.settings.store_url, "PROCTOR_HOME": str(ctx.home)}
    launcher = Launcher(
        environment={**ctx.settings.user_environment, **located},
        folder=_folder(ctx, evaluation_id),
        logs=ctx.home / LOGS,
        is_encrypted=ctx.store.data_keys.is_encrypted,
    )
    return launcher.launch(request, evaluation_id)


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


def evaluation_jobs() -> list[str]:
    """The names of the jobs that evaluate sessions."""
    return [job.name for job in jobs() if job.evaluates_sessions]


def find_evaluation(ctx: RunContext, evaluation_id: str, *, with_deleted: bool = False) -> EvaluationState:
    """An evaluation by ID, ARN or unambiguous prefix. Raises `NotFound`."""
    evaluation = state.evaluation_of(ctx.store, evaluation_id, ctx.now(), with_deleted=with_deleted)
    if evaluation.state == FAILED and not evaluation.error_details:
        # It failed between the two reads; the reason is written before the state.
        evaluation = state.evaluation_of(ctx.store, evaluation.id, ctx.now(), with_deleted=with_deleted)
    return evaluation


def batch_evaluation(ctx: RunContext, evaluation_id: str) -> EvaluationState:
    """An evaluation by its whole ID. Raises `NotFound`, also for those of online configurations."""
    evaluation = find_evaluation(ctx, evaluation_id)
    if evaluation.id != evaluation_id or is_online(evaluation.document):
        raise NotFound(f"There is no batch evaluation {evaluation_id}.")
    return evaluation


def evaluation_arn(ctx: RunContext, evaluation_id: str) -> str:
    """The ARN of an evaluation, which may be of another region. Raises `NotFound`."""
    return ctx.store.evaluations.row(evaluation_id)["arn"]


def evaluations_page(
    ctx: RunContext,
    *,
    after: tuple[str, str] | None = None,
    limit: int = 100,
    with_online: bool = True,
    allow_locked: bool = False,
) -> list[EvaluationState]:
    """Evaluations, newest first, after a `page_mark`; `with_online`: also those of online configurations.

    `allow_locked`: those whose key is not available are listed, too; otherwise raises `KeyMissing`.
    """
    listed: list[EvaluationState] = []
    while len(listed) < limit:
        page = state.evaluations_page(
            ctx.store, ctx.now(), after=after, limit=limit, allow_locked=allow_locked
        )
        listed += [each for each in page if with_online or not is_online(each.document)]
        if len(page) < limit:
            break
        after = page_mark(page[-1])
    return listed[:limit]


def search_evaluations(
    ctx: RunContext, text: str = "", *, limit: int, offset: int
) -> tuple[list[EvaluationState], int, int]:
    """A page of the evaluations with a text in their ID, newest first; their number, and that of all."""
    ids, total = evaluations.jobs_page(ctx.store.read, text, limit=limit, offset=offset)
    count = evaluations.jobs_page(ctx.store.read, "", limit=1, offset=0)[1] if text else total
    return [find_evaluation(ctx, each) for each in ids], total, count


def stop_evaluation(ctx: RunContext, evaluation_id: str) -> EvaluationState:
    """Request a stop without waiting; results stay. Raises `Contradiction` if it has ended."""
    return state.stop_evaluation(ctx.store, evaluation_id, ctx.now)


def delete_evaluation(ctx: RunContext, evaluation_id: str) -> EvaluationState:
    """Remove a finished evaluation from lists; its results stay readable."""
    return state.delete_evaluation(ctx.store, evaluation_id, ctx.now())


def results_of(ctx: RunContext, of: EvaluationState) -> EvaluationResults:
    """Results of an evaluation so far; without its key, only counts and cost."""
    return results.results_of(ctx.store, of.id, has_key=not of.is_locked)


def results_so_far(ctx: RunContext, of: EvaluationState) -> EvaluationResults | None:
    """Results of an evaluation; None before its sessions are discovered, and if its key was deleted."""
    is_early = of.state == PENDING or not (of.sessions_found or of.is_finished)
    if is_early or not ctx.store.data_keys.can_open(of.run_id):
        return None
    return results_of(ctx, of)


def evaluation_report(
    ctx: RunContext,
    evaluation_id: str,
    *,
    known: EvaluationResults | None = None,
    with_targets: bool = True,
    with_deleted: bool = False,
) -> EvaluationReport:
    """An evaluation with its results and insights, for `report_document` and `evaluation_document`.

    `known`: its results, if they were loaded before; `with_targets`: with the worst and failed results.
    """
    evaluation = find_evaluation(ctx, evaluation_id, with_deleted=with_deleted)
    return results.load_report(ctx.store, evaluation, known, with_targets=with_targets)


def insights(ctx: RunContext, of: EvaluationResults) -> list[Insight]:
    """The findings of all insights of an evaluation, clustered."""
    return results.all_insights(ctx.store, of)


def pairwise_result(ctx: RunContext, of: EvaluationResults) -> PairwiseResult | None:
    """Who won, of an evaluation that compares pairs of sessions; None: another one, or no results yet."""
    return results.pairwise_of(ctx.store.read, of)


def insight_findings(ctx: RunContext, run_id: str, insight: str) -> list[InsightFinding]:
    """What an insight found in the sessions of an evaluation."""
    return results.insight_findings(ctx.store.read, run_id, insight)


def judged_sessions(
    ctx: RunContext,
    of: EvaluationState,
    *,
    evaluator: str = "",
    dimension: str = "",
    search: str = "",
    order: str = "lowest",
    descending: bool = False,
    limit: int,
    offset: int,
) -> tuple[list[tuple[scores.SessionLowest, list[scores.SessionScores]]], int]:
    """A page of the sessions of an evaluation, each with its scores by evaluator; and how many match."""
    read, by_name = ctx.store.read, dict[str, list[scores.SessionScores]]()
    selection = scores.JudgedFilter(
        evaluator=evaluator, dimension=dimension, search=search, reversed_=high_is_bad(of.document)
    )
    rows, total = scores.sessions_page(
        read, of.id, selection, order=order, descending=descending, limit=limit, offset=offset
    )
    for score in scores.scores_by_session(read, of.id, [row["prompt"] for row in rows]):
        by_name.setdefault(score["prompt"], []).append(score)
    return [(row, by_name.get(row["prompt"], [])) for row in rows], total


def scores_of_session(ctx: RunContext, of: EvaluationState, session_id: str) -> list[ScoreRow]:
    """The scores of one session in an evaluation."""
    return scores.verdicts_of(ctx.store.read, of.id, session_id)


def evaluation_records(ctx: RunContext, of: EvaluationState) -> Iterator[JsonObject]:
    """Every single result of an evaluation, as a `gen_ai.evaluation.result` event."""
    return results.records_of(ctx.store, of.id)


def write_results(ctx: RunContext, of: EvaluationResults, folder: Path) -> list[Path]:
    """Write the records and the summary of an evaluation below `folder`; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    records, summary = folder / "records.jsonl", folder / "summary.json"
    with records.open("w", encoding="utf-8") as file:
        for record in results.records_of(ctx.store, of.run_id):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    pairwise = results.pairwise_members(pairwise_result(ctx, of))
    document = {"batchEvaluationId": of.run_id, **results.summary_document(of), **pairwise}
    summary.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return [records, summary]


def drift_lines(ctx: RunContext, name: str = "") -> list[DriftLine]:
    """Scores of online evaluation over time: of all configurations, or of the one with this name or ID."""
    return drift.drift_lines(ctx.store, name)


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
        self._drift = drift.DriftWatch(ctx.store, settings.watches)
        self._alerts = drift.Alerts(ctx.store, settings.watches, settings.environment, settings.folders[0])

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
