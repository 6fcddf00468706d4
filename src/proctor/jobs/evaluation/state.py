"""The life of an evaluation: opened, read, stopped, deleted, found again when its process died.

An evaluation is a batch whose items are (session, evaluator) pairs. It is opened without items; executing
it discovers the sessions first. Its state is not stored: it is computed from the rows of its batch.

    batch                                                     state
    nobody has begun it                                       PENDING
    running, or its process died and nobody took it up yet    IN_PROGRESS
    running, and someone asked for it to stop                 STOPPING
    completed                                                 COMPLETED
    completed, with items in error                            COMPLETED_WITH_ERRORS
    aborted because the whole job could not be done           FAILED
    aborted, halted at its budget, or stopped with Ctrl-C     STOPPED
"""

import json
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from random import SystemRandom
from typing import Any

from proctor.errors import Contradiction, NotFound
from proctor.item import RUNNING, SUCCESS
from proctor.jobs.evaluation.request import EvaluationRequest
from proctor.store import Store, evaluations, timestamp
from proctor.store.batches import moment
from proctor.store.evaluations import EvaluationRecord, LogGroupSessions

JOB = "evaluation"
PENDING, IN_PROGRESS, STOPPING = "PENDING", "IN_PROGRESS", "STOPPING"
COMPLETED, COMPLETED_WITH_ERRORS = "COMPLETED", "COMPLETED_WITH_ERRORS"
FAILED, STOPPED, DELETING = "FAILED", "STOPPED", "DELETING"
TERMINAL = (COMPLETED, COMPLETED_WITH_ERRORS, FAILED, STOPPED)
RESULTS_GROUP = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"
"""Where results are read from when a request names no log group."""
DETACHED = "isDetached"
"""The option of a batch that says so."""
REGION, ACCOUNT = "us-east-1", "000000000000"
NO_SESSIONS = "no_sessions"
"""The reason of a batch that found nothing to judge."""
SOURCE_FAILED = "source_failed"
"""The reason of a batch whose sessions could not be looked for at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationState:
    """A job as it stands."""

    id: str
    arn: str
    name: str
    state: str
    created_at: datetime
    updated_at: datetime
    document: Mapping[str, Any]
    """What was asked, as `StartBatchEvaluation` takes it, with our own members; without ground truth."""
    output_group: str
    output_stream: str
    error_details: tuple[str, ...] = ()
    """Why it failed or stopped, or how many sessions could not be judged. At most one sentence."""
    sessions_found: int = 0
    is_new: bool = False
    """True only from `open_evaluation`: this call has made it."""

    @property
    def run_id(self) -> str:
        """Of its batch: the same as its id."""
        return self.id

    @property
    def evaluators(self) -> tuple[str, ...]:
        """As they were asked for."""
        evaluators = self.document.get("evaluators") or ()
        return tuple(entry if isinstance(entry, str) else entry["evaluatorId"] for entry in evaluators)

    @property
    def is_finished(self) -> bool:
        """Whether it is at an end: nothing more happens unless someone resumes it."""
        return self.state in TERMINAL


def open_evaluation(
    store: Store,
    request: EvaluationRequest,
    *,
    now: datetime,
    version: str,
    region: str = REGION,
    account: str = ACCOUNT,
    definitions: Mapping[str, Any] | None = None,
    folder: str = "",
    plan_path: str = "",
    plan_text: str = "",
    is_detached: bool = False,
    new_letters: Callable[[], str] | None = None,
) -> EvaluationState:
    """Write a new job, PENDING, and nothing else: `proctor evaluate run ID` carries it out.

    With a client token that is known, the job it was used for, if it asked for the same; else raises
    `Contradiction`. `definitions` are the evaluators' definitions as they are now (`Bench.copies`): a job
    judges as it was begun, whatever becomes of them. `folder` is where the user's own code is found.
    `is_detached` says that nobody sits before it, so that a server may take it up when its process dies.
    """
    evaluation_id = f"{request.name}-{(new_letters or _ten_letters)()}"
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
        kms_key_arn=request.document.get("kmsKeyArn") or "",
        output_group=group,
        output_stream=stream,
    )
    batch = {
        "runId": evaluation_id,
        "createdAt": timestamp(now),
        "job": JOB,
        "status": RUNNING,
        # Nobody's yet, and nobody was ever heard of: whoever carries it out claims it.
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
    row, is_new = store.evaluations.open(new, batch, now)
    return replace(_as_it_stands(store, row, now), is_new=is_new)


def evaluation_of(
    store: Store, evaluation: str, now: datetime, *, with_deleted: bool = False
) -> EvaluationState:
    """A job as it stands, by its id, its ARN, or an unambiguous beginning; `NotFound` once deleted."""
    return _as_it_stands(store, store.evaluations.row(evaluation, with_deleted=with_deleted), now)


def evaluations_page(
    store: Store, now: datetime, *, after: tuple[str, str] | None = None, limit: int = 100
) -> list[EvaluationState]:
    """Jobs as they stand, newest first; `after` is `page_mark` of the last one already seen."""
    return [_as_it_stands(store, row, now) for row in store.evaluations.page(after=after, limit=limit)]


def page_mark(evaluation: EvaluationState) -> tuple[str, str]:
    """Where the next page of a list begins."""
    return timestamp(evaluation.created_at), evaluation.id


def stop_evaluation(store: Store, evaluation: str, now: Callable[[], datetime]) -> EvaluationState:
    """Ask a job to stop, and do not wait; what is judged stays. `Contradiction` when it is at its end."""
    row = evaluation_of(store, evaluation, now())
    if row.is_finished:
        raise Contradiction(f"{row.id} is already {row.state}\nThere is nothing left to stop.")
    store.request_abort(row.id, now())
    batch = store.read.batch(row.id, now())
    if not batch["owner"] or batch["status"] != RUNNING:
        # Nobody is there to hear it.
        store.end_batch(row.id, "aborted", "aborted", "the evaluation was stopped", now())
    return evaluation_of(store, row.id, now())


def delete_evaluation(store: Store, evaluation: str, now: datetime) -> EvaluationState:
    """Take a finished job off the list, and its tags with it; its results stay readable. `Contradiction`
    while it runs."""
    row = evaluation_of(store, evaluation, now)
    if not row.is_finished:
        raise Contradiction(f"{row.id} is {row.state}\nStop it first:  proctor evaluate stop {row.id}")
    store.evaluations.forget(row.id, now)
    store.definitions.untag(row.arn)
    return replace(row, state=DELETING)


def interrupted_evaluations(store: Store, now: datetime, *, only_detached: bool = False) -> Iterator[str]:
    """Unfinished evaluations without a live owner, for a server to resume.

    Their process died, or never came. One that was stopped with Ctrl-C is left to whoever did that; with
    `only_detached`, so is every job that somebody sits before.
    """
    for row in evaluations.unfinished_evaluations(store.read):
        if only_detached and not json.loads(row["optionsJson"]).get(DETACHED):
            continue
        batch = store.read.batch(row["id"], now)
        is_left_alone = not batch["owner"] or batch["status"] != RUNNING
        if is_left_alone and not batch["abortRequestedAt"]:
            yield row["id"]


def fail_evaluation(store: Store, evaluation_id: str, reason: str, message: str, now: datetime) -> None:
    """End a job that could not be done as a whole: its state becomes FAILED, with `words` as the detail."""
    store.evaluations.tell_failure(evaluation_id, message)
    store.end_batch(evaluation_id, "aborted", reason, message, now)


def _as_it_stands(store: Store, row: Mapping[str, Any], now: datetime) -> EvaluationState:
    batch: Mapping[str, Any]
    try:
        batch = store.read.batch(row["id"], now)
    except NotFound:
        batch = {"status": "aborted", "reason": "deleted", "owner": "", "heartbeatAt": None}
    state = _state(store, row, batch)
    created = moment(row["createdAt"]) or now
    updated = moment(batch.get("finishedAt")) or moment(batch["heartbeatAt"]) or created
    return EvaluationState(
        id=row["id"],
        arn=row["arn"],
        name=row["name"],
        state=state,
        created_at=created,
        updated_at=max(created, updated),
        document=json.loads(row["requestJson"]),
        output_group=row["outputGroup"],
        output_stream=row["outputStream"],
        error_details=_details(store, row, batch, state),
        sessions_found=row["sessionsFound"],
    )


def _state(store: Store, row: Mapping[str, Any], batch: Mapping[str, Any]) -> str:
    if batch["status"] == "completed":
        counts = store.read.totals(row["id"])
        return COMPLETED if counts["counts"][SUCCESS] == counts["items"] else COMPLETED_WITH_ERRORS
    if batch["status"] == "aborted":
        return STOPPED if batch["reason"] == "aborted" else FAILED
    if batch["status"] == "halted" or _was_left(batch):
        return STOPPED
    if batch["status"] == "interrupted" and batch["abortRequestedAt"]:
        # It was asked to stop, and its process ended before it could say so.
        return STOPPED
    if not batch["owner"]:
        return PENDING
    return STOPPING if batch["abortRequestedAt"] else IN_PROGRESS


def _was_left(batch: Mapping[str, Any]) -> bool:
    """Whether someone stopped it with Ctrl-C. One whose process died has no reason of its own."""
    return bool(batch["status"] == "interrupted" and batch["reason"] == "interrupted")


def _details(store: Store, row: Mapping[str, Any], batch: Mapping[str, Any], state: str) -> tuple[str, ...]:
    if row["failure"]:
        return (row["failure"],)
    if state == COMPLETED_WITH_ERRORS:
        failed, total = evaluations.failed_sessions(store.read, row["id"])
        return (f"{failed} of {total} sessions failed during batch evaluation.",)
    if state == STOPPED and batch["status"] == "halted":
        return ("The budget is spent. Go on with more: proctor resume RUN --budget USD.",)
    if state == STOPPED and batch["status"] == "interrupted":
        return ("It was interrupted. Go on with it: proctor resume RUN.",)
    return ()


def _output(request: EvaluationRequest, evaluation_id: str) -> tuple[str, str]:
    """The log group and stream that the results are read from."""
    config = (request.document.get("outputConfig") or {}).get("cloudWatchConfig") or {}
    group = config.get("logGroupName") or RESULTS_GROUP
    sessions = request.sessions
    if config.get("resultDestination") == "SOURCE_LOG_GROUP" and isinstance(sessions, LogGroupSessions):
        group = next(iter((*sessions.names, *sessions.prefixes)), RESULTS_GROUP)
    return group, config.get("logStreamName") or f"run-{evaluation_id}"


def _ten_letters() -> str:
    chance = SystemRandom()
    return "".join(chance.choice(string.ascii_letters + string.digits) for _ in range(10))
