"""Life cycle of an evaluation: open, read, stop, delete, and find those whose process died.

An evaluation is a batch whose items are (session, evaluator) pairs. It is opened without items; executing
it discovers the sessions first. Its state is not stored: it is computed from the rows of its batch.

    batch                                                     state
    not started                                               PENDING
    running                                                   IN_PROGRESS
    its process died, and it was not resumed yet              PENDING
    running, and a stop was requested                         STOPPING
    completed                                                 COMPLETED
    completed, with items in error                            COMPLETED_WITH_ERRORS
    aborted because it could not be executed at all           FAILED
    aborted, halted at its budget, or stopped with Ctrl-C     STOPPED
"""

import json
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from random import SystemRandom

from proctor.errors import Contradiction, KeyMissing, NotFound
from proctor.item import RUNNING, SUCCESS
from proctor.jobs.evaluation.request import JOB_NAME, EvaluationRequest, named
from proctor.json_values import JsonMap, JsonObject, as_map, as_text
from proctor.store import Store, batches, evaluations, timestamp
from proctor.store.batches import moment
from proctor.store.evaluations import EvaluationRecord, ListedEvaluation
from proctor.store.scores import failed_sessions
from proctor.store.session_selection import LogGroupSessions
from proctor.store.tables import BatchRow

PENDING, IN_PROGRESS, STOPPING = "PENDING", "IN_PROGRESS", "STOPPING"
COMPLETED, COMPLETED_WITH_ERRORS = "COMPLETED", "COMPLETED_WITH_ERRORS"
FAILED, STOPPED, DELETING = "FAILED", "STOPPED", "DELETING"
TERMINAL = (COMPLETED, COMPLETED_WITH_ERRORS, FAILED, STOPPED)
RESULTS_GROUP = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"
"""Default log group of results."""
DETACHED = "isDetached"
"""Batch option: the evaluation runs without a terminal."""
REGION, ACCOUNT = "us-east-1", "000000000000"
NO_SESSIONS = "no_sessions"
"""Reason of a batch without sessions."""
SOURCE_FAILED = "source_failed"
"""Reason of a batch whose sessions could not be discovered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationState:
    """An evaluation and its current state."""

    id: str
    arn: str
    name: str
    state: str
    created_at: datetime
    updated_at: datetime
    document: JsonMap
    """The request, as `StartBatchEvaluation` takes it, with our own members; without ground truth."""
    output_group: str
    output_stream: str
    error_details: tuple[str, ...] = ()
    """Why it failed or stopped, or how many sessions could not be evaluated; at most one entry."""
    sessions_found: int = 0
    is_locked: bool = False
    """Whether its request is encrypted with a key that is not available; the document is then empty."""
    is_new: bool = False
    """Set by `open_evaluation`: whether this call created it."""

    @property
    def run_id(self) -> str:
        """Run ID of its batch: the same as its ID."""
        return self.id

    @property
    def evaluators(self) -> tuple[str, ...]:
        return tuple(named(self.document, "evaluators"))

    @property
    def is_finished(self) -> bool:
        """Whether it has ended; it can still be resumed."""
        return self.state in TERMINAL


def open_evaluation(
    store: Store,
    request: EvaluationRequest,
    *,
    now: datetime,
    version: str,
    region: str = REGION,
    account: str = ACCOUNT,
    definitions: JsonMap | None = None,
    folder: str = "",
    plan_path: str = "",
    plan_text: str = "",
    is_detached: bool = False,
) -> EvaluationState:
    """Write a new PENDING evaluation; `proctor evaluate run ID` executes it.

    A known client token returns the evaluation it was used for, if the request is the same; otherwise
    raises `Contradiction`. `definitions` are copies of the evaluators' current definitions
    (`EvaluatorRegistry.copies`), which the evaluation keeps using. `folder` contains the user's own code.
    With `is_detached`, a server may resume it when its process dies.
    """
    evaluation_id = f"{request.name}-{_ten_letters()}"
    group, stream = _output(request, evaluation_id)
    new = EvaluationRecord(
        id=evaluation_id,
        arn=f"arn:aws:bedrock-agentcore:{region}:{account}:batch-evaluate/{evaluation_id}",
        name=request.name,
        request=request.document,
        request_digest=request.digest,
        metadata=request.metadata,
        definitions=definitions or {},
        client_token=request.client_token,
        kms_key_arn=as_text(request.document.get("kmsKeyArn")),
        output_group=group,
        output_stream=stream,
    )
    batch = {
        "runId": evaluation_id,
        "createdAt": timestamp(now),
        "job": JOB_NAME,
        "status": RUNNING,
        # Without an owner: the process that executes it claims it.
        "owner": "",
        "heartbeatAt": None,
        "proctorVersion": version,
        "planPath": plan_path,
        "planText": plan_text,
        "planDigest": request.digest,
        "optionsJson": json.dumps(
            {"prices": request.document.get("prices"), "folder": folder, DETACHED: is_detached}
        ),
        "concurrency": request.concurrency,
        "budgetUsd": request.budget_usd,
    }
    row, is_new = store.evaluations.create(new, batch, now)
    return replace(_as_it_stands(store, row, now), is_new=is_new)


def evaluation_of(
    store: Store, evaluation: str, now: datetime, *, with_deleted: bool = False
) -> EvaluationState:
    """An evaluation by ID, ARN or unambiguous prefix; raises `NotFound`, also for a deleted one."""
    return _as_it_stands(store, store.evaluations.row(evaluation, with_deleted=with_deleted), now)


def evaluations_page(
    store: Store,
    now: datetime,
    *,
    after: tuple[str, str] | None = None,
    limit: int = 100,
    allow_locked: bool = False,
) -> list[EvaluationState]:
    """Evaluations, newest first; `after` is the `page_mark` of the last one of the previous page.

    With `allow_locked`, those whose key is not available are listed with what needs none; otherwise raises
    `KeyMissing`.
    """
    return [
        _as_it_stands(store, row, now, allow_locked=allow_locked)
        for row in store.evaluations.page(after=after, limit=limit)
    ]


def page_mark(evaluation: EvaluationState) -> tuple[str, str]:
    """Start of the next page of a list."""
    return timestamp(evaluation.created_at), evaluation.id


def stop_evaluation(store: Store, evaluation: str, now: Callable[[], datetime]) -> EvaluationState:
    """Request a stop without waiting; results stay. Raises `Contradiction` if it has ended."""
    row = evaluation_of(store, evaluation, now())
    if row.is_finished:
        raise Contradiction(f"{row.id} is already {row.state}\nThere is nothing left to stop.")
    store.change(batches.request_abort, row.id, now())
    batch = store.read.batch(row.id, now())
    if not batch["owner"] or batch["status"] != RUNNING:
        # No process would see the request.
        store.end_batch(row.id, "aborted", "aborted", "the evaluation was stopped", now())
    return evaluation_of(store, row.id, now())


def delete_evaluation(store: Store, evaluation: str, now: datetime) -> EvaluationState:
    """Remove a finished evaluation and its tags from lists; its results stay readable. Raises
    `Contradiction` while it runs."""
    row = evaluation_of(store, evaluation, now)
    if not row.is_finished:
        raise Contradiction(f"{row.id} is {row.state}\nStop it first:  proctor evaluate stop {row.id}")
    store.evaluations.delete(row.id, now)
    store.definitions.untag(row.arn)
    return replace(row, state=DELETING)


def interrupted_evaluations(store: Store, now: datetime, *, only_detached: bool = False) -> Iterator[str]:
    """Unfinished evaluations without a live owner, for a server to resume.

    Their process died or never started. Those stopped with Ctrl-C are left to the user; with
    `only_detached`, so are all evaluations started from a terminal.
    """
    for row in evaluations.unfinished_evaluations(store.read):
        if only_detached and not json.loads(row["optionsJson"]).get(DETACHED):
            continue
        batch = store.read.batch(row["id"], now)
        is_left_alone = not batch["owner"] or batch["status"] != RUNNING
        if is_left_alone and not batch["abortRequestedAt"]:
            yield row["id"]


def fail_evaluation(store: Store, evaluation_id: str, reason: str, message: str, now: datetime) -> None:
    """End an evaluation that cannot be executed: its state becomes FAILED, with `message` as the detail."""
    store.evaluations.record_failure(evaluation_id, message)
    store.end_batch(evaluation_id, "aborted", reason, message, now)


def _as_it_stands(
    store: Store, row: ListedEvaluation, now: datetime, *, allow_locked: bool = False
) -> EvaluationState:
    """The state of an evaluation. Raises `KeyMissing` without its key, unless `allow_locked`."""
    try:
        batch = store.read.batch(row["id"], now)
    except NotFound:
        batch = None
    state = _state(store, row, batch) if batch else FAILED
    created = moment(row["createdAt"]) or now
    updated = (batch and (moment(batch["finishedAt"]) or moment(batch["heartbeatAt"]))) or created
    document, is_locked = JsonObject(), False
    details: tuple[str, ...] = (LOCKED,)
    try:
        document = json.loads(row["requestJson"])
        details = _details(store, row, batch["status"] if batch else "", state)
    except KeyMissing:
        if not allow_locked:
            raise
        is_locked = True
    return EvaluationState(
        id=row["id"],
        arn=row["arn"],
        name=row["name"],
        state=state,
        created_at=created,
        updated_at=max(created, updated),
        document=document,
        output_group=row["outputGroup"],
        output_stream=row["outputStream"],
        error_details=details,
        is_locked=is_locked,
        sessions_found=row["sessionsFound"],
    )


LOCKED = "Its request and its texts are encrypted, and the key is not available."


def _state(store: Store, row: ListedEvaluation, batch: BatchRow) -> str:
    if batch["status"] == "completed":
        counts = store.read.totals(row["id"])
        return COMPLETED if counts["counts"][SUCCESS] == counts["items"] else COMPLETED_WITH_ERRORS
    if batch["status"] == "aborted":
        return STOPPED if batch["reason"] == "aborted" else FAILED
    if batch["status"] == "halted" or _was_left(batch):
        return STOPPED
    if batch["status"] == "interrupted" and batch["owner"]:
        # Its process died. Nobody resumes what was asked to stop.
        return STOPPED if batch["abortRequestedAt"] else PENDING
    if not batch["owner"]:
        return PENDING
    return STOPPING if batch["abortRequestedAt"] else IN_PROGRESS


def _was_left(batch: BatchRow) -> bool:
    """Whether it was stopped with Ctrl-C. If its process died, there is no reason."""
    return batch["status"] == "interrupted" and batch["reason"] == "interrupted"


def _details(store: Store, row: ListedEvaluation, batch_status: str, state: str) -> tuple[str, ...]:
    if row["failure"]:
        return (row["failure"],)
    if state == COMPLETED_WITH_ERRORS:
        failed, total = failed_sessions(store.read, row["id"])
        return (f"{failed} of {total} sessions failed during batch evaluation.",)
    if state == STOPPED and batch_status == "halted":
        return ("The budget is spent. Go on with more: proctor resume RUN --budget USD.",)
    if state == STOPPED and batch_status == "interrupted":
        return ("It was interrupted. Go on with it: proctor resume RUN.",)
    return ()


def _output(request: EvaluationRequest, evaluation_id: str) -> tuple[str, str]:
    """Log group and stream of the results."""
    config = as_map(request.document, "outputConfig", "cloudWatchConfig")
    group = as_text(config.get("logGroupName")) or RESULTS_GROUP
    sessions = request.sessions
    if config.get("resultDestination") == "SOURCE_LOG_GROUP" and isinstance(sessions, LogGroupSessions):
        group = next(iter((*sessions.names, *sessions.prefixes)), RESULTS_GROUP)
    return group, as_text(config.get("logStreamName")) or f"run-{evaluation_id}"


def _ten_letters() -> str:
    rng = SystemRandom()
    return "".join(rng.choice(string.ascii_letters + string.digits) for _ in range(10))
