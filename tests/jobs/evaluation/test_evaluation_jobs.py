"""Evaluation jobs in the store: opened once, stopped, deleted, listed, found again by a server."""

import json
from datetime import UTC, datetime

import pytest
from recorded_sessions import keep, recorded

from proctor.errors import Contradiction, NotFound
from proctor.evaluators.registry import EvaluationSettings, EvaluatorRegistry
from proctor.jobs.evaluation.prepare import fill, find_evaluators, find_sessions
from proctor.jobs.evaluation.request import EvaluationRequest, GroundTruthIndex
from proctor.jobs.evaluation.state import (
    delete_evaluation,
    evaluation_of,
    evaluations_page,
    interrupted_evaluations,
    open_evaluation,
    page_mark,
    stop_evaluation,
)
from proctor.store import RetrySelection, batches
from proctor.store.writer import this_process

TOKEN = "0123456789-0123456789-0123456789-0123"
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def now():
    return datetime.now(UTC)


def asked(*evaluators, **more):
    source = {"cloudWatchLogs": {"logGroupNames": ["/agents/travel"], "serviceNames": ["travel"]}}
    document = {"batchEvaluationName": "nightly", "evaluators": list(evaluators), "dataSourceConfig": source}
    return EvaluationRequest.from_document({**document, "judge": "scripted/judge", **more})


def opened(store, request=None, **more):
    return open_evaluation(store, request or asked("Builtin.Refusal"), now=now(), version="0", **more)


def test_the_same_token_starts_the_same_job_once_and_another_one_never(either_store):
    first = opened(either_store, asked("Builtin.Refusal", clientToken=TOKEN))

    again = opened(either_store, asked("Builtin.Refusal", clientToken=TOKEN))

    assert (again.id, again.is_new) == (first.id, False)
    with pytest.raises(Contradiction, match="the client token was already used"):
        opened(either_store, asked("Builtin.Coherence", clientToken=TOKEN))
    assert len(either_store.read.batches(now())) == 1


def test_jobs_are_listed_newest_first_page_by_page(either_store):
    ids = [opened(either_store).id for _ in range(5)]

    first = evaluations_page(either_store, now(), limit=3)
    rest = evaluations_page(either_store, now(), after=page_mark(first[-1]), limit=3)

    assert len(first) == 3
    assert {each.id for each in (*first, *rest)} == set(ids)


def test_a_job_that_nobody_has_begun_stops_at_once_and_cannot_be_stopped_again(store):
    job = opened(store)

    assert stop_evaluation(store, job.id, now).state == "STOPPED"
    with pytest.raises(Contradiction, match="already STOPPED"):
        stop_evaluation(store, job.id, now)


def test_a_job_under_way_is_asked_to_stop_and_says_so(store):
    job = opened(store)
    store.resume_batch(job.id, this_process(), RetrySelection(), now())

    assert evaluation_of(store, job.id, now()).state == "IN_PROGRESS"
    assert stop_evaluation(store, job.id, now).state == "STOPPING"
    with pytest.raises(Contradiction, match="Stop it first"):
        delete_evaluation(store, job.id, now())


def test_jobs_whose_process_died_or_never_came_are_found_by_a_server_that_starts(either_store):
    waiting, dead, alive, stopped = (opened(either_store).id for _ in range(4))
    either_store.resume_batch(dead, "elsewhere:1:1:aa", RetrySelection(), LONG_AGO)
    either_store.resume_batch(alive, this_process(), RetrySelection(), now())
    stop_evaluation(either_store, stopped, now)

    asked_to = opened(either_store).id
    either_store.resume_batch(asked_to, "elsewhere:1:1:ab", RetrySelection(), LONG_AGO)
    either_store.change(batches.request_abort, asked_to, now())

    assert set(interrupted_evaluations(either_store, now())) == {waiting, dead}
    assert evaluation_of(either_store, asked_to, now()).state == "STOPPED"
    assert evaluation_of(either_store, dead, now()).state == "PENDING"
    detached = opened(either_store, is_detached=True).id
    either_store.resume_batch(detached, "elsewhere:1:1:ac", RetrySelection(), LONG_AGO)
    # A server that lives takes up only what nobody sits before.
    assert list(interrupted_evaluations(either_store, now(), only_detached=True)) == [detached]


def test_ground_truth_that_is_long_survives_when_another_run_is_deleted(either_store):
    truth = {"sessionMetadata": [{"sessionId": "s", "metadata": {"long": "x" * 10_000}}]}
    job = opened(either_store, asked("Builtin.Refusal", evaluationMetadata=truth))
    other = opened(either_store, asked("Builtin.Coherence"))

    either_store.delete_batch(other.id)

    assert either_store.evaluations.metadata(job.id) == truth["sessionMetadata"]
    with pytest.raises(NotFound):
        evaluation_of(either_store, other.id, now())


async def test_a_function_that_changes_under_way_is_told_and_mixes_with_nothing(workshop):
    keep(workshop.store, recorded("good"))
    path = workshop.folder / "checks.py"
    path.write_text("def short(event):\n    return {'label': 'PASS', 'value': 1.0}\n")
    request = asked("checks:short")
    bench = EvaluatorRegistry(
        EvaluationSettings(folder=workshop.folder, environment={"PATH": "/usr/bin:/bin"})
    )
    job = opened(workshop.store, request)
    owner = this_process()
    workshop.store.resume_batch(job.id, owner, RetrySelection(), now())
    find = bench.finder({})
    evaluators = find_evaluators(request, find, workshop.models)
    ids = find_sessions(workshop.store, request, now()).ids
    fill(workshop.store, job.id, request, ids, evaluators, GroundTruthIndex(()))
    path.write_text("def short(event):\n    return {'label': 'FAIL', 'value': 0.0}\n")

    await workshop.executor(owner, job.id, find_evaluator=find).run()

    (item,) = workshop.items(job.id)
    assert (item["status"], item["reason"]) == ("error", "evaluator_failed")
    assert "no longer what it was when the job began" in item["error"]


def test_the_definition_that_is_copied_into_a_job_is_the_one_of_that_name(tmp_path):
    labels = {"Bad": 0, "Good": 1}
    scale = {"numerical": [{"value": at, "label": label, "definition": "d"} for label, at in labels.items()]}
    for name in ("brevity", "politeness", "warmth"):
        config = {
            "instructions": f"How much {name} is there? {{assistant_turn}}",
            "ratingScale": scale,
            "modelConfig": {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}},
        }
        document = {"evaluatorName": name, "level": "TRACE", "evaluatorConfig": {"llmAsAJudge": config}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    bench = EvaluatorRegistry(EvaluationSettings(folder=tmp_path, folders=[tmp_path]))

    copies = bench.copies(["politeness", "warmth", "missing"])

    names = {name: copy["evaluatorName"] for name, copy in copies.items()}
    assert names == {"politeness": "politeness", "warmth": "warmth"}
