"""Batch evaluations: start, look at, list, stop and delete them.

Starting writes the job down, has a process of its own carry it out, and answers at once. Everything else is a
question to the store, so jobs that were started from a command line are seen as well.

Knows nothing of how sessions are found or judged.
"""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from proctor import __version__
from proctor.batch.evaluation import (
    FAILED,
    Evaluation,
    delete_evaluation,
    evaluation_of,
    evaluations_page,
    open_evaluation,
    page_mark,
    stop_evaluation,
)
from proctor.batch.online import copies_of, is_online, online_source
from proctor.errors import NotFound
from proctor.item import RUNNING
from proctor.plan.evaluation import EvaluationRequest, named
from proctor.web.agentcore import paging
from proctor.web.agentcore.common_shapes import PAGING
from proctor.web.agentcore.data_shapes import ONE_JOB, START
from proctor.web.agentcore.errors import (
    ResourceNotFoundException,
    ServiceQuotaExceededException,
    told,
)
from proctor.web.agentcore.insights import insight_flaws
from proctor.web.agentcore.names import EVALUATOR_ID
from proctor.web.agentcore.operation import Members, Operation
from proctor.web.agentcore.results import results_members
from proctor.web.agentcore.rules import (
    collected,
    known_evaluators,
    output_flaws,
    something_to_judge,
    source_flaws,
)
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.shapes import Flaw

MOST_SESSIONS = 500
"""Sessions of one job; of more, the most recent ones are judged."""
ASKED = ("evaluators", "insights", "description", "kmsKeyArn")
"""Members that are told as they were given, wherever a job is told of."""
WIRE_SOURCES = ("cloudWatchLogs", "onlineEvaluationConfigSource")
_counting = threading.Lock()


def start(service: Service, asked: Members) -> Mapping[str, Any]:
    """Start a job; with a token that is known, tell of the one it started."""
    flaws = collected(
        something_to_judge(asked, with_insights=True),
        insight_flaws(asked),
        known_evaluators(service, asked),
        source_flaws(asked),
        _online_flaws(service, asked),
        output_flaws(asked),
    )
    if flaws:
        raise told(flaws)
    tags = asked.get("tags", {})
    request = EvaluationRequest.from_document(
        {**asked, **service.judging, "maxSessions": MOST_SESSIONS},
        online_source=online_source(service.store),
    )
    names = named(asked, "evaluators")
    # Counted and opened in one go: of two that come at once, the second must count the first.
    with _counting:
        _check_quotas(service, request.client_token)
        job = open_evaluation(
            service.store,
            request,
            now=service.now,
            version=__version__,
            region=service.names.region,
            account=service.names.account,
            definitions=copies_of(service.store, names),
            is_detached=True,
        )
    if job.is_new:
        if tags:
            service.store.definitions.tag(job.arn, tags)
        service.start(job.id)
    return {
        **_identity(job),
        "batchEvaluationName": job.name,
        "status": job.state,
        "createdAt": moment_text(job.created_at),
        **_as_asked(job),
        "outputConfig": _output(job),
        **({"tags": tags} if tags else {}),
    }


def get(service: Service, asked: Members) -> Mapping[str, Any]:
    """A job as it stands, with what it came to so far."""
    job = _job(service, asked)
    source = job.document.get("dataSourceConfig") or {}
    return {
        **_summary(job),
        # A job of our own may have another source, which the client's union does not know.
        **({"dataSourceConfig": source} if set(source) <= set(WIRE_SOURCES) else {}),
        "outputConfig": _output(job),
        **results_members(service, job, moment_text(job.updated_at)),
    }


def list_all(service: Service, asked: Members) -> Mapping[str, Any]:
    """A page of the jobs, newest first; what each came to is told of one at a time, by Get."""
    limit = asked.get("maxResults", paging.PAGE)
    key = paging.key_of("jobs", asked.get("nextToken"), str, str)
    found = _listed(service, (key[0], key[1]) if key else None, limit + 1)
    answer: dict[str, Any] = {"batchEvaluations": [_summary(job) for job in found[:limit]]}
    if len(found) > limit:
        answer["nextToken"] = paging.token_of("jobs", page_mark(found[limit - 1]))
    return answer


def stop(service: Service, asked: Members) -> Mapping[str, Any]:
    """Ask a job to stop. What is judged already stays."""
    job = stop_evaluation(service.store, _job(service, asked).id, service.site.now)
    return {
        **_identity(job),
        "status": job.state,
        **({"description": job.document["description"]} if job.document.get("description") else {}),
    }


def delete(service: Service, asked: Members) -> Mapping[str, Any]:
    """Take a finished job off the list. Its results stay readable."""
    job = delete_evaluation(service.store, _job(service, asked).id, service.now)
    return {**_identity(job), "status": job.state}


OPERATIONS = (
    Operation(
        name="StartBatchEvaluation",
        method="POST",
        path="/evaluations/batch-evaluate",
        status=202,
        shape=START,
        answer=start,
    ),
    Operation(
        name="GetBatchEvaluation",
        method="GET",
        path="/evaluations/batch-evaluate/{batchEvaluationId}",
        shape=ONE_JOB,
        answer=get,
    ),
    Operation(
        name="ListBatchEvaluations",
        method="GET",
        path="/evaluations/batch-evaluate",
        shape=PAGING,
        query=("maxResults", "nextToken"),
        answer=list_all,
    ),
    Operation(
        name="StopBatchEvaluation",
        method="POST",
        path="/evaluations/batch-evaluate/{batchEvaluationId}/stop",
        status=202,
        shape=ONE_JOB,
        answer=stop,
    ),
    Operation(
        name="DeleteBatchEvaluation",
        method="DELETE",
        path="/evaluations/batch-evaluate/{batchEvaluationId}",
        status=202,
        shape=ONE_JOB,
        answer=delete,
    ),
)


def moment_text(at: datetime) -> str:
    """A time as the data plane tells it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _job(service: Service, asked: Members) -> Evaluation:
    job = evaluation_of(service.store, asked["batchEvaluationId"], service.now)
    if job.state == FAILED and not job.error_details:
        # It failed between two looks at it; the reason was written down before the failure.
        job = evaluation_of(service.store, job.id, service.now)
    # The command line takes the beginning of an id; here it is the whole or nothing.
    if job.id != asked["batchEvaluationId"] or is_online(job.document):
        raise ResourceNotFoundException(f"There is no batch evaluation {asked['batchEvaluationId']}.")
    return job


def _listed(service: Service, after: tuple[str, str] | None, limit: int) -> list[Evaluation]:
    """Jobs that callers started: what online configurations judge is told of elsewhere."""
    found: list[Evaluation] = []
    while len(found) < limit:
        page = evaluations_page(service.store, service.now, after=after, limit=limit)
        found += [job for job in page if not is_online(job.document)]
        if len(page) < limit:
            break
        after = page_mark(page[-1])
    return found[:limit]


def _online_flaws(service: Service, asked: Members) -> Iterator[Flaw]:
    source = asked["dataSourceConfig"].get("onlineEvaluationConfigSource")
    if source is not None:
        arn = source["onlineEvaluationConfigArn"]
        try:
            online_source(service.store)(arn)
        except NotFound:
            yield Flaw(
                "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn",
                "Member must be the ARN of an online evaluation configuration that is there",
            )


def _check_quotas(service: Service, client_token: str) -> None:
    read, limits = service.store.read, service.limits
    if client_token and read.query('SELECT 1 FROM "evaluations" WHERE "clientToken" = ?', (client_token,)):
        return
    of_jobs = 'FROM "evaluations" e JOIN "batches" b ON b."runId" = e."id" WHERE e."deletedAt" IS NULL'
    running = read.query(f'SELECT e."requestJson" {of_jobs} AND b."status" = ?', (RUNNING,))
    active = sum(not is_online(json.loads(row["requestJson"])) for row in running)
    if active >= limits.active_jobs:
        raise ServiceQuotaExceededException(
            f"There may be {limits.active_jobs} active batch evaluations; wait for one to end, or stop one."
        )
    (there,) = read.query(f'SELECT COUNT(*) AS "n" {of_jobs}')
    if there["n"] >= limits.jobs:
        raise ServiceQuotaExceededException(f"There may be {limits.jobs} batch evaluations; delete some.")


def _identity(job: Evaluation) -> dict[str, Any]:
    return {"batchEvaluationId": job.id, "batchEvaluationArn": job.arn}


def _summary(job: Evaluation) -> dict[str, Any]:
    return {
        **_identity(job),
        "batchEvaluationName": job.name,
        "status": job.state,
        "createdAt": moment_text(job.created_at),
        "updatedAt": moment_text(job.updated_at),
        **_as_asked(job),
        **({"errorDetails": [job.error_details[0][:1000]]} if job.error_details else {}),
    }


def _as_asked(job: Evaluation) -> dict[str, Any]:
    asked = {name: job.document[name] for name in ASKED if job.document.get(name)}
    if asked.get("evaluators"):
        # The command line takes files and functions as well, which no member of this interface can name.
        asked["evaluators"] = [
            {"evaluatorId": name} for name in job.evaluators if re.fullmatch(EVALUATOR_ID, name)
        ]
    return asked


def _output(job: Evaluation) -> dict[str, Any]:
    given = (job.document.get("outputConfig") or {}).get("cloudWatchConfig") or {}
    place = {"logGroupName": job.output_group, "logStreamName": job.output_stream}
    return {"cloudWatchConfig": {**given, **place}}
