"""Results are signed when they are written: what somebody else writes, changes or removes is noticed."""

import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.errors import ModelError
from proctor.runner import Outcome
from proctor.score import Score
from proctor.session import ModelCall, Usage
from proctor.store import Store, batches, signatures
from proctor.store.evaluations import EvaluationRecord
from proctor.store.keys import Keys, LocalKey, SigningKeyFile
from proctor.store.signatures import SignatureCheck

DATABASES = ["sqlite"]
PLAN = (
    "matrix: [{prompt: [one, two, three], model: scripted/echo, expect: {contains: one}}]\nconcurrency: 1\n"
)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Keys:
    is_encrypted = getattr(request, "param", "") == "encrypted"
    own = LocalKey(secret=bytes(32)) if is_encrypted else None
    return Keys(own=own, signing=SigningKeyFile(tmp_path / "home" / "signing.key"))


@pytest.fixture
def store(url: str, keys: Keys) -> Iterator[Store]:
    with Store(url, keys) as opened:
        yield opened


def change(store: Store, sql: str, *parameters: object) -> None:
    """Write to the database as somebody who has no key."""
    with closing(store._plain.connect()) as connection:
        assert connection.run(sql, parameters)


def check(store: Store) -> SignatureCheck:
    return store.check_signatures("run", now())


class Recording:
    """A runner of items with several calls and scores, whose numbers are whole, fractions or missing."""

    async def run(self, item, services):
        for cost in (0, 1, None, 0.25):
            services.record(
                ModelCall(model="m", usage=Usage(input_tokens=True, output_tokens=2), cost_usd=cost)
            )
        for value in (1, None, 0.5):
            services.score(Score(evaluator="tidy", value=value, label="ünder"))
        if services.attempt == 1 and item.prompt == "two":
            raise ModelError("once more")
        return Outcome()


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("keys", ["plain", "encrypted"], indirect=True)
async def test_numbers_are_signed_as_the_store_returns_them(workshop):
    plan = PLAN.replace("expect: {contains: one}", "retries: 2")

    await workshop.run(plan, find_runner=lambda name: Recording())

    result = check(workshop.store)
    assert (result.items, result.is_signed, result.notes()) == (3, True, [])


FORGERIES = {
    "status": 'UPDATE "batch_items" SET "status" = \'success\', "reason" = \'completed\' WHERE "id" = ?',
    "cost": 'UPDATE "batch_items" SET "costUsd" = 0.5 WHERE "id" = ?',
    "tokens": 'UPDATE "batch_items" SET "tokensTotal" = 1 WHERE "id" = ?',
    "commit": 'UPDATE "batch_items" SET "iterSha" = \'abc\' WHERE "id" = ?',
    "session": 'UPDATE "batch_items" SET "sessionId" = \'other\' WHERE "id" = ?',
    "time": 'UPDATE "sessions" SET "workSeconds" = 0.001 WHERE "itemId" = ?',
    "mock": 'UPDATE "sessions" SET "isMock" = 0 WHERE "itemId" = ?',
    "status of the attempt": 'UPDATE "sessions" SET "status" = \'success\' WHERE "itemId" = ?',
    "cost of a call": 'UPDATE "model_calls" SET "costUsd" = 0.5 WHERE "sessionId" IN '
    '(SELECT "id" FROM "sessions" WHERE "itemId" = ?)',
    "a call less": 'DELETE FROM "model_calls" WHERE "sessionId" IN '
    '(SELECT "id" FROM "sessions" WHERE "itemId" = ?)',
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_result_that_somebody_changed_is_named(workshop, forgery):
    await workshop.run(PLAN)
    victim = workshop.items()[1]["id"]

    change(workshop.store, FORGERIES[forgery], victim)

    result = check(workshop.store)
    assert (result.is_forged, list(result.changed)) == (True, [victim])
    assert result.notes() == [
        f"1 result of run run was written or changed by someone else than Proctor: {victim}"
    ]


async def test_a_score_that_somebody_added_or_removed_is_noticed(workshop):
    await workshop.run(PLAN)
    victim = workshop.items()[1]
    score = 'INSERT INTO "scores" ("sessionId", "position", "evaluator", "value") VALUES (?, 99, \'x\', 1)'

    change(workshop.store, score, victim["sessionId"])
    assert check(workshop.store).changed == [victim["id"]]

    change(workshop.store, 'DELETE FROM "scores" WHERE "position" = 99')
    assert not check(workshop.store).is_forged


async def test_a_result_that_somebody_added_is_noticed(workshop):
    await workshop.run(PLAN)
    first = workshop.items()[0]
    columns = ", ".join({"id": "'forged'", "position": "99"}.get(name, f'"{name}"') for name in first)

    change(
        workshop.store,
        f'INSERT INTO "batch_items" SELECT {columns} FROM "batch_items" WHERE "id" = ?',
        first["id"],
    )

    assert check(workshop.store).foreign == ["forged"]


async def test_results_that_were_removed_with_their_signatures_are_noticed(workshop):
    await workshop.run(PLAN)
    first, _, last = [item["id"] for item in workshop.items()]

    for item in (first, last):
        for table, column in (("signatures", "itemId"), ("batch_items", "id")):
            change(workshop.store, f'DELETE FROM "{table}" WHERE "{column}" = ?', item)
    result = check(workshop.store)

    assert result.is_forged
    assert (result.broken > 0, result.is_end_missing) == (True, True)


async def test_signatures_cut_off_at_the_end_are_noticed(workshop):
    await workshop.run(PLAN)
    last = workshop.items()[2]["id"]
    change(workshop.store, 'DELETE FROM "signatures" WHERE "position" >= 3')
    change(workshop.store, 'UPDATE "batch_items" SET "status" = \'success\' WHERE "id" = ?', last)

    result = check(workshop.store)

    assert (result.foreign, result.is_end_missing) == ([last], True)


async def test_results_signed_with_a_key_that_is_elsewhere_cannot_be_checked_until_they_are_signed_anew(
    workshop, url, tmp_path
):
    await workshop.run(PLAN)
    victim = workshop.items()[1]["id"]

    with Store(url, Keys(signing=SigningKeyFile(tmp_path / "other" / "signing.key"))) as store:
        result = check(store)
        assert not result.is_forged
        assert "which is not available here" in result.notes()[0]

        workshop.store = store
        store.change(batches.requeue, "run", [victim])
        await workshop.resume()
        assert not check(store).is_forged
        change(store, FORGERIES["tokens"], victim)
        assert check(store).changed == [victim]


async def test_a_resumed_run_continues_its_signatures(workshop):
    owner = workshop.launch(PLAN)
    executor = workshop.executor(owner, watch=lambda _: executor.interrupt())
    await executor.run()

    await workshop.resume()

    result = check(workshop.store)
    assert (workshop.batch()["status"], result.items, result.is_forged) == ("completed", 3, False)
    assert result.notes() == []


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
async def test_an_aborted_run_and_a_changed_plan_are_signed(workshop):
    await workshop.run(PLAN)
    workshop.take_over()
    workshop.extend(PLAN.replace("two, three", "four, five"))
    workshop.store.extend_batch("run", {}, add=[], settle=[], drop=[workshop.items()[0]["id"]])
    workshop.store.end_batch("run", "aborted", "aborted", "the batch was aborted", now())

    result = check(workshop.store)

    assert {item["reason"] for item in workshop.items()} >= {"removed", "aborted"}
    assert (result.items, result.is_forged, result.notes()) == (5, False, [])


async def test_a_failed_item_that_is_tried_again_cannot_be_put_back(workshop):
    await workshop.run(PLAN)
    before = workshop.items()[1]
    workshop.store.change(batches.requeue, "run", [before["id"]])
    await workshop.resume()
    assert not check(workshop.store).is_forged

    change(
        workshop.store,
        'UPDATE "batch_items" SET "sessionId" = ?, "finishedAt" = ? WHERE "id" = ?',
        before["sessionId"],
        before["finishedAt"],
        before["id"],
    )

    assert check(workshop.store).changed == [before["id"]]


async def test_removing_all_signatures_of_a_run_is_noticed(workshop):
    await workshop.run(PLAN)
    change(workshop.store, 'DELETE FROM "signatures"')
    change(workshop.store, 'UPDATE "batch_items" SET "status" = \'success\'')

    result = check(workshop.store)

    assert (result.is_signed, result.is_forged, len(result.foreign)) == (True, True, 3)
    assert result.notes()[0].startswith("3 results of run run were written or changed by someone else")


async def test_signatures_of_earlier_versions_stay_valid(workshop):
    """They cover neither attempts nor calls. Nothing public writes them any more."""
    await workshop.run(PLAN)

    def sign_again(connection):
        for item in connection.tuples(signatures._ITEMS, ("run",)):
            scores = connection.tuples(f'{signatures._SCORES} WHERE c."sessionId" = ?', (item[4],))
            digest = signatures._digest(item, signatures._by_session(scores), None)
            signatures._append(connection, "run", [(str(item[0]), digest)])
        signatures.sign_end(connection, "run")

    workshop.store._transaction(sign_again)
    change(workshop.store, 'UPDATE "model_calls" SET "costUsd" = 0.5')
    assert not check(workshop.store).is_forged

    change(workshop.store, 'UPDATE "batch_items" SET "costUsd" = 0.5')
    assert len(check(workshop.store).changed) == 3


async def test_a_run_from_before_is_unsigned_and_not_forged(workshop, tmp_path):
    await workshop.run(PLAN)
    change(workshop.store, 'DELETE FROM "signatures"')
    (tmp_path / "home" / "signed-runs").unlink()

    result = check(workshop.store)

    assert (result.is_signed, result.is_forged, len(result.unsigned)) == (False, False, 3)
    assert result.notes()[0].startswith("the results of run run are not signed")
    assert result.notes(unsigned=False) == []

    workshop.store.change(batches.requeue, "run", [workshop.items()[0]["id"]])
    await workshop.resume()
    assert (len(check(workshop.store).unsigned), check(workshop.store).is_forged) == (2, False)


async def test_a_running_run_is_not_checked(workshop):
    workshop.launch(PLAN)

    assert check(workshop.store).is_running
    assert check(workshop.store).notes() == []


def test_the_key_is_private_and_made_once(tmp_path):
    path = tmp_path / "home" / "signing.key"
    old = os.umask(0)
    try:
        keys = {SigningKeyFile(path).key(create=True) for _ in range(3)}
    finally:
        os.umask(old)

    assert len(keys) == 1
    assert oct(path.stat().st_mode)[-3:] == "600"
    assert list(path.parent.iterdir()) == [path]
    assert SigningKeyFile(tmp_path / "none" / "signing.key").key() is None


@pytest.mark.parametrize(
    ("members", "notes"),
    [
        ({"changed": [f"i{n}" for n in range(22)]}, ["22 results of run r were written"]),
        ({"broken": 1}, ["1 signature of run r cannot be right"]),
        ({"broken": 2}, ["2 signatures of run r cannot be right"]),
        ({"is_end_missing": True}, ["the end of run r was written by someone else"]),
        ({"unknown_keys": ["k1", "k2"]}, ["results of run r are signed with k1, k2, which"]),
        ({"unsigned": ["a"]}, ["1 result of run r was written"]),
        ({"unsigned": ["a"], "is_signed": False}, ["1 result of run r are not signed"]),
        ({"unsigned": ["a", "b", "c"], "is_signed": False}, ["the results of run r are not signed"]),
        (
            {"unsigned": ["a"], "is_signed": False, "unknown_keys": ["k"]},
            ["results of run r are signed with k,"],
        ),
        (
            {"changed": ["a"], "unsigned": ["b"], "broken": 1, "is_end_missing": True, "unknown_keys": ["k"]},
            [
                "2 results of run r were",
                "1 signature",
                "the end of run r",
                "results of run r are signed with k,",
            ],
        ),
    ],
)
def test_every_problem_of_the_signatures_has_a_note(members, notes):
    result = SignatureCheck(**{"run_id": "r", "items": 3, "is_signed": True} | members)
    assert [note[: len(start)] for note, start in zip(result.notes(), notes, strict=True)] == notes
    if len(result.changed) > 20:
        assert result.notes()[0].endswith("i18, i19 and 2 more")


def test_a_run_whose_signatures_were_all_removed_is_known_to_have_had_some(tmp_path):
    keys = Keys(signing=SigningKeyFile(tmp_path / "home" / "signing.key"))
    new = EvaluationRecord(id="job", arn="arn:x/job", name="job", request={}, request_digest="d")
    batch = {"createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "completed"}
    with Store(str(tmp_path / "a.db")) as unsigned:
        unsigned.create_batch(batch | {"runId": "before"}, [])
    with Store(str(tmp_path / "a.db"), keys) as store:
        store.create_batch(batch | {"runId": "run"}, [])
        store.evaluations.create(new, batch | {"runId": "job"}, now())
        connection = store._plain.connect()
        connection.run('DELETE FROM "signatures"')
        connection.close()
        checks = {run_id: store.check_signatures(run_id, now()) for run_id in ("before", "run", "job")}
    signed = {run_id: check.is_signed for run_id, check in checks.items()}
    assert signed == {"before": False, "run": True, "job": True}
    assert checks["run"].is_end_missing and not checks["before"].is_forged
