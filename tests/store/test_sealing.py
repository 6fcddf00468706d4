"""A store with a key: nothing readable on the disk, everything readable with it."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from stocked import NOW, add_batch, owned, session

from databases import query
from proctor.errors import KeyMissing, KeyUnusable, StoreError
from proctor.item import Item
from proctor.score import Score
from proctor.session import (
    Iteration,
    Merge,
    Message,
    Metric,
    ModelCall,
    Note,
    Session,
    Step,
    TimedEvent,
    ToolCall,
)
from proctor.store import ItemFilter, Resource, Store, item_lists
from proctor.store.annotations import Annotation, Label
from proctor.store.definitions import Token
from proctor.store.evaluations import EvaluationRecord
from proctor.store.intake import LogEvent
from proctor.store.keys import Keys, LocalKey, key_in, new_key_text, read_keys
from proctor.store.sealer import DETERMINISTIC, ENCRYPTED
from proctor.store.tables import COLUMNS
from proctor.telemetry.documents import SessionMark

KEYS = Keys(own=LocalKey(secret=bytes(range(32))))
OTHER = Keys(own=LocalKey(secret=b"another key of thirty-two bytes!"))
SECRET = "the-cat-is-under-the-stairs"
LONG = SECRET * 400


def fill(store):
    """Put the secret into every field that somebody's words can come to."""
    item = Item(
        runner="prompt",
        prompt=f"prompt {SECRET}",
        model="m",
        details={"said": SECRET},
        settings={"say": SECRET},
        factors={"task": SECRET, "model": "m"},
    )
    row = {"runId": "run", "createdAt": "2026-03-01T12:00:00.000Z", "job": "coding", "status": "running"}
    texts = {"planText": LONG, "defaultsJson": f'"{SECRET}"', "optionsJson": f'"{SECRET}"'}
    store.create_batch(row | texts | {"owner": "me"}, [item])
    writer = store.writer(owned("run", "me"))
    recorder = session(writer, "s1", item_id=item.id, name=f"name {SECRET}")
    for event in (
        Message(role="user", content=SECRET),
        Message(role="assistant", content=LONG),
        ToolCall(name="look", args={"at": SECRET}, result=LONG),
        ModelCall(model="m", request=LONG, response=SECRET, error=SECRET),
        Metric(name="mood", value=SECRET),
        Note(text=SECRET),
        Merge(base_branch="main", mode="squash", result="failed", message=SECRET, error=SECRET),
        Iteration(output=SECRET, test_output=LONG),
    ):
        recorder.record(event)
    recorder.record_tools([{"name": SECRET}])
    recorder.score(Score(evaluator="e", label=SECRET, explanation=LONG, error=SECRET, votes=(SECRET,)))
    recorder.end("error", "x", SECRET, work_seconds=1, waiting_seconds=0)
    writer.change("batch_items", ("run", item.id), {"error": SECRET, "sessionId": "s1"})
    writer.close()
    store.save_imported(
        Session(
            external_id="ext",
            source="otlp",
            name=SECRET,
            attributes={"said": SECRET},
            notes=[SECRET],
            steps=[Step(trace_id="t", events=[TimedEvent(event=Message(role="user", content=LONG))])],
        ),
        NOW,
    )
    store.save_label(Label(session_id="s1", evaluator="e", who="me", label=SECRET, note=LONG), NOW)
    for kind in ("note", "tag"):
        store.annotate(Annotation(session_ids=["s1"], kind=kind, text=f"{kind} {SECRET}", author="me"), NOW)
    store.ask_question("run", item.id, "mayor", f"question {SECRET}", NOW)
    store.add_resources("run", [Resource("role", "client", "d1", LONG)])
    store.logs.create("g", "", NOW)
    store.logs.create("g", "s", NOW)
    store.logs.put("g", "s", [LogEvent(timestamp_ms=1, message=text) for text in (SECRET, LONG)], NOW)
    evaluator = {"id": "ev-1", "name": "ev", "level": "SESSION", "kind": "llmAsAJudge", "description": SECRET}
    times = {"createdAt": "2026-03-01T12:00:00.000Z", "updatedAt": "2026-03-01T12:00:00.000Z"}
    token = Token(operation="o", token="", request={})
    store.definitions.create_evaluator(evaluator | times, {"instructions": LONG}, token)
    config = {"id": "oc-1", "name": "oc", "description": SECRET} | times
    store.definitions.create_config(config, {"evaluators": [{"evaluatorId": SECRET}]}, token)
    store.definitions.update_config_state("oc-1", failure=SECRET)
    store.arrivals.save([(mark(), {"attributes": {"said": SECRET}})], NOW)
    job = EvaluationRecord(
        id="job-1",
        arn="arn:x/job-1",
        name="job",
        request={"description": SECRET},
        request_digest="d",
        metadata=[{"assertion": LONG}],
        definitions={"mine": {"instructions": SECRET}},
    )
    store.evaluations.create(job, {**row, "runId": "job-1"}, NOW)
    store.evaluations.record_failure("job-1", SECRET)
    return item


def mark():
    return SessionMark(
        trace_id="t" * 32,
        span_id="s" * 16,
        part="span",
        parent_id="",
        session_key="ext",
        service="svc",
        log_group="g",
        has_log_group=True,
        started=1,
    )


def everything(store):
    """Every row of every table, as one who has the key reads it; digests of long texts as the texts."""
    found = {}
    for table in COLUMNS:
        # A store without keys signs nothing.
        if table in ("blobs", "data_keys", "signatures"):
            continue
        rows = store.read.with_long_texts(query(store, f'SELECT * FROM "{table}"'))
        # Ids of annotations are random.
        differing = {"heartbeatAt": ""} | ({"id": ""} if table == "annotations" else {})
        found[table] = sorted(repr(sorted((row | differing).items())) for row in rows)
    return found


def raw_bytes(url, tmp_path):
    """All that lies on the disk, unpacked as far as anybody could."""
    if url.startswith("postgresql"):
        import psycopg

        with psycopg.connect(url) as connection:
            values = [
                value
                for table in COLUMNS
                for row in connection.execute(f'SELECT * FROM "{table}"').fetchall()
                for value in row
            ]
        pieces = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    else:
        files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
        connection = sqlite3.connect(url)
        packed = [
            row[0] for t in ("blobs", "arrivals") for row in connection.execute(f'SELECT "data" FROM "{t}"')
        ]
        connection.close()
        pieces = files + packed
    return b"\n".join([*pieces, *map(unpacked, pieces)])


def unpacked(data):
    try:
        return zlib.decompress(data)
    except zlib.error:
        return b""


@pytest.fixture
def sealed(url):
    with Store(url, KEYS) as opened:
        yield opened


def test_what_anybody_said_is_nowhere_on_the_disk_and_reads_back_with_the_key(url, tmp_path, sealed):
    fill(sealed)

    assert SECRET.encode() not in raw_bytes(url, tmp_path)
    other = str(tmp_path / "plain" / "p.db")
    with Store(other) as plain:
        fill(plain)
        assert everything(plain) == everything(sealed)
        assert SECRET.encode() in raw_bytes(other, tmp_path / "plain")


PLAIN: dict[str, tuple[str, ...]] = {
    "an id, used in references and queries": (
        *("batches.runId", "batch_items.runId", "batch_items.id", "batch_items.sessionId", "sessions.id"),
        *("sessions.runId", "sessions.itemId", "sessions.thread", "sessions.externalId"),
        *("iterations.sessionId", "iterations.traceId", "messages.sessionId", "tool_calls.sessionId"),
        *("tool_calls.callId", "model_calls.sessionId", "model_calls.callId", "metrics.sessionId"),
        *("scores.sessionId", "scores.target", "scores.judgedSessionId", "labels.sessionId"),
        *("labels.target", "merge_history.sessionId", "ledger.sessionId", "ledger.runId", "ledger.itemId"),
        *("questions.runId", "questions.id", "questions.itemId", "questions.sessionId", "pools.runId"),
        *("evaluations.id", "evaluations.arn", "evaluations.clientToken", "evaluator_definitions.id"),
        *("evaluator_definitions.kmsKeyArn", "online_configs.id", "online_configs.runId"),
        *("online_sessions.configId", "online_sessions.sessionId", "resource_tags.arn"),
        *("drift_scores.configId", "drift_scores.sessionId", "drift_points.configId"),
        "drift_crossings.configId",
        *("datasets.id", "datasets.kmsKeyArn", "dataset_versions.datasetId", "dataset_examples.datasetId"),
        *("dataset_examples.exampleId", "recommendations.id", "recommendations.kmsKeyArn"),
        *("client_tokens.operation", "client_tokens.token", "client_tokens.resourceId", "arrivals.traceId"),
        *("arrivals.spanId", "arrivals.part", "arrivals.parentId", "arrivals.sessionKey"),
        *("arrivals.sessionId", "data_keys.id", "data_keys.scope", "data_keys.masterKeyId"),
        *("run_resources.runId", "signatures.runId", "signatures.itemId", "signatures.keyId"),
        *("annotations.sessionId", "annotations.id"),
    ),
    "a time": (
        *("batches.createdAt", "batches.finishedAt", "batches.heartbeatAt", "batches.abortRequestedAt"),
        *("batch_items.startedAt", "batch_items.finishedAt", "sessions.startedAt", "sessions.finishedAt"),
        *("iterations.startTime", "iterations.endTime", "messages.timestamp", "tool_calls.timestamp"),
        *(
            "model_calls.timestamp",
            "scores.timestamp",
            "labels.at",
            "calibrations.at",
            "merge_history.startedAt",
        ),
        *("merge_history.finishedAt", "ledger.timestamp", "questions.askedAt", "questions.answeredAt"),
        *("pools.heldUntil", "pools.cutAt", "pools.heartbeatAt", "evaluations.createdAt"),
        *("evaluations.discoveredAt", "evaluations.deletedAt", "evaluator_definitions.createdAt"),
        *("evaluator_definitions.updatedAt", "online_configs.enabledAt", "online_configs.createdAt"),
        *(
            "online_configs.updatedAt",
            "online_configs.watchedAt",
            "online_sessions.at",
            "client_tokens.at",
            "arrivals.arrivedAt",
        ),
        *("datasets.createdAt", "datasets.updatedAt", "dataset_versions.createdAt"),
        *("recommendations.createdAt", "recommendations.updatedAt", "recommendations.watchedAt"),
        *("log_streams.createdAt", "data_keys.createdAt", "data_keys.retiredAt"),
        *("data_keys.emptiedAt", "annotations.createdAt", "drift_scores.at", "drift_points.at"),
        *("drift_crossings.at", "drift_crossings.nextAt"),
    ),
    "one of a few words of Proctor": (
        *("batches.job", "batches.status", "batches.reason", "batches.proctorVersion", "batch_items.runner"),
        *("batch_items.status", "batch_items.reason", "batch_items.merge", "sessions.job", "sessions.status"),
        "sessions.baseline",
        *("sessions.endReason", "sessions.source", "iterations.testResult", "messages.role"),
        *("model_calls.status", "model_calls.priceSource", "scores.level", "scores.errorCode"),
        *("scores.ignored", "labels.level", "merge_history.mode", "merge_history.result", "ledger.kind"),
        *("evaluator_definitions.level", "evaluator_definitions.kind", "online_sessions.decision"),
        *("annotations.kind", "drift_crossings.direction", "drift_crossings.alert"),
        "drift_crossings.problem",
        *("run_resources.kind", "datasets.schemaType", "recommendations.type", "recommendations.status"),
    ),
    "a name that tables are grouped, filtered or sorted by": (
        *("batch_items.agent", "batch_items.model", "sessions.agent"),
        *(
            "sessions.agentVersion",
            "sessions.model",
            "sessions.service",
            "sessions.logGroup",
            "sessions.sandbox",
            "sessions.answeredModel",
        ),
        *("iterations.model", "messages.name", "tool_calls.toolName", "model_calls.provider"),
        *("model_calls.model", "model_calls.price", "model_calls.speaker", "model_calls.purpose"),
        *("metrics.name", "scores.evaluator", "scores.dimension"),
        *("labels.evaluator", "labels.dimension", "labels.who", "questions.actor", "pools.name"),
        *("calibrations.evaluator", "calibrations.dimension"),
        *("evaluations.name", "evaluations.outputGroup", "evaluations.outputStream"),
        *("evaluator_definitions.name", "online_configs.name", "resource_tags.key", "resource_tags.value"),
        *("arrivals.service", "arrivals.logGroup", "log_streams.logGroup", "log_streams.logStream"),
        *("log_events.logGroup", "log_events.logStream", "run_resources.name"),
        "annotations.author",
        *("datasets.name", "recommendations.name", "drift_scores.evaluator", "drift_scores.dimension"),
        *("drift_points.evaluator", "drift_points.dimension"),
        *("drift_crossings.evaluator", "drift_crossings.dimension"),
    ),
    "a path, branch or process, visible on this machine anyway": (
        *("batches.planPath", "batches.owner", "batch_items.repo", "sessions.repo", "sessions.branch"),
        *("sessions.baseBranch", "sessions.worktree", "merge_history.baseBranch"),
        *("merge_history.conflictFiles", "ledger.holder", "online_configs.watchedBy", "pools.owner"),
        "recommendations.watchedBy",
    ),
    "a digest: it can confirm a known text, but not reveal one": (
        *("batches.planDigest", "batch_items.digest", "batch_items.iterSha", "sessions.baseSha"),
        *("iterations.commitSha", "scores.evaluatorDigest", "merge_history.beforeSha"),
        *("merge_history.afterSha", "evaluations.requestDigest", "client_tokens.digest"),
        *("run_resources.digest", "calibrations.evaluatorDigest", "signatures.digest", "signatures.mac"),
    ),
    "a keyed digest: it reveals nothing about the text": (
        *("blobs.digest", "sessions.toolsJsonBlob", "iterations.testOutputBlob", "iterations.outputBlob"),
        *("messages.contentBlob", "tool_calls.argsJsonBlob", "tool_calls.resultBlob"),
        *("model_calls.requestBlob", "model_calls.responseBlob", "scores.explanationBlob"),
        *("labels.noteBlob", "evaluations.metadataJsonBlob", "evaluator_definitions.configJsonBlob"),
        *("log_events.messageBlob", "dataset_examples.contentJsonBlob", "recommendations.requestJsonBlob"),
        "recommendations.resultJsonBlob",
    ),
    "needed to decrypt the rest": ("data_keys.contextJson", "data_keys.wrapped"),
}
"""Columns that hold text and stay readable, by the reason."""


def test_every_text_column_is_sealed_or_says_why_not(tmp_path):
    with Store(str(tmp_path / "a.db")):
        pass
    raw = sqlite3.connect(tmp_path / "a.db")
    texts = {
        f"{table}.{row[1]}"
        for table in COLUMNS
        for row in raw.execute(f'PRAGMA table_info("{table}")')
        if row[2] in ("TEXT", "BYTEA")
    }
    sealed = [f"{table}.{column}" for table, columns in ENCRYPTED.items() for column in columns]
    plain = [place for places in PLAIN.values() for place in places]

    assert sorted(texts) == sorted(sealed + plain)
    assert set(sealed) >= DETERMINISTIC


def test_without_the_key_lists_and_states_are_told_and_texts_are_not(url, sealed):
    item = fill(sealed)

    with Store(url) as locked:
        assert locked.read.batch("run", NOW)["job"] == "coding"
        assert [row["runId"] for row in locked.read.batches(NOW)] == ["job-1", "run"]
        assert locked.read.totals("run")["items"] == 1
        (row,) = locked.read.items("run")
        assert (row["id"], row["status"]) == (item.id, "queued")
        with pytest.raises(KeyMissing, match=f"with the key {KEYS.own.id}.*not available\n.*key_file"):
            row["prompt"]
        for spill in (
            dict,
            lambda row: {**row},
            lambda row: list(row.values()),
            lambda row: row.get("prompt"),
        ):
            with pytest.raises(KeyMissing):
                spill(row)
        with pytest.raises(KeyMissing):
            locked.read.of_session("messages", "s1")[0]["content"]
        with pytest.raises(KeyMissing):
            add_batch(locked, "another", planText="more words")


def test_a_wrong_key_is_told_before_anything_starts(url, sealed):
    with pytest.raises(KeyMissing, match=f"{KEYS.own.id}; the configured key is {OTHER.own.id}"):
        Store(url, OTHER)


def test_rows_from_before_there_was_a_key_stay_readable(url):
    with Store(url) as plain:
        fill(plain)
        before = everything(plain)

    with Store(url, KEYS) as sealed:
        assert everything(sealed) == before
        counts = sealed.count_encrypted()
        assert (counts["messages"].plain, counts["messages"].current) == (1, 0)


def test_everything_is_sealed_anew_and_nothing_of_before_is_left(url, tmp_path):
    with Store(url) as plain:
        fill(plain)
        before = everything(plain)

    with Store(url, KEYS) as sealed:
        told = []
        changed = sealed.reencrypt(lambda table, rows: told.append((table, rows)))

        assert changed == told[-1][1] > 10
        assert everything(sealed) == before
        assert all(found.plain == found.retired == 0 for found in sealed.count_encrypted().values())
        first, second = sealed.data_keys.rows
        assert first["retiredAt"] and first["emptiedAt"] and not second["retiredAt"]
        sealed.reencrypt()
        assert everything(sealed) == before
        assert len(sealed.data_keys.rows) == 3
    assert SECRET.encode() not in raw_bytes(url, tmp_path)


def test_sealing_anew_goes_on_after_it_was_killed(tmp_path):
    url = str(tmp_path / "a.db")
    with Store(url) as plain:
        add_batch(plain, count=3000, planText=SECRET)
    (tmp_path / "key").write_text(new_key_text(KEYS.own.secret))
    program = (
        "import sys, time; from pathlib import Path; from proctor.store.keys import Keys, key_in; "
        "from proctor.store import Store; store = Store(sys.argv[1], Keys(own=key_in(Path(sys.argv[2])))); "
        "store.reencrypt(lambda table, rows: print(table, rows, flush=True) or time.sleep(0.05))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, url, str(tmp_path / "key")], stdout=subprocess.PIPE, text=True
    )
    while not process.stdout.readline().startswith("batch_items"):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()

    with Store(url, KEYS) as store:
        assert store.data_keys.unfinished
        found = store.count_encrypted()["batch_items"]
        assert found.plain > 0 and found.current > 0
        rows = store.reencrypt()
        assert 0 < rows < 3000
        assert len(store.data_keys.rows) == 2 and not store.data_keys.unfinished
        assert [row["prompt"] for row in store.read.items("run", limit=5000)] == [
            f"question {number}" for number in range(3000)
        ]


def test_a_new_master_key_opens_everything_and_the_old_one_nothing(url, sealed):
    fill(sealed)
    before = everything(sealed)

    assert sealed.data_keys.rewrap(OTHER.own) == 1

    with Store(url, OTHER) as store:
        assert everything(store) == before
    with pytest.raises(KeyMissing):
        Store(url, KEYS)


def test_search_passes_over_what_is_sealed_and_never_finds_ciphertext(store, url):
    with Store(url, KEYS) as sealed:
        add_batch(sealed, count=5)
        assert sealed.read.count_items("run", ItemFilter(search="sealed")) == 0
        assert sealed.read.count_items("run", ItemFilter(search="question")) == 0
        assert sealed.read.count_items("run", ItemFilter(search="echo")) == 5


def test_items_are_filtered_and_listed_by_what_is_sealed(sealed):
    fill(sealed)
    sealed.annotate(Annotation(session_ids=["s1"], kind="tag", text=SECRET), NOW)

    def positions(**members):
        return list(item_lists.listing(sealed.read, "run", item_lists.ItemQuery(**members)).positions)

    assert positions(factors=[("task", SECRET), ("model", "m")], tags=[SECRET]) == [0]
    assert positions(factors=[("task", "another")]) == positions(tags=["another"]) == []
    assert item_lists.factor_levels(sealed.read, "run", "task") == [{"value": SECRET, "items": 1}]
    outcome = item_lists.outcomes(sealed.read, ["s1"], characters=len(SECRET))["s1"]
    assert (outcome.answer, sorted(outcome.tags)) == (SECRET, [f"tag {SECRET}", SECRET])
    writer = sealed.writer()
    writer.change("batch_items", ("run", sealed.read.items("run")[0]["id"]), {"status": "error"})
    writer.close()
    failures = item_lists.failure_texts(sealed.read, "run", characters=7)
    assert [row["error"] for row in failures] == [SECRET[:7]]


def test_a_value_that_was_moved_or_changed_does_not_open(tmp_path):
    url = str(tmp_path / "a.db")
    with Store(url, KEYS) as store:
        fill(store)
    raw = sqlite3.connect(url)
    raw.execute(
        'UPDATE "tool_calls" SET "result" = (SELECT "content" FROM "messages" WHERE "content" <> \'\')'
    )
    raw.execute('UPDATE "tool_calls" SET "resultBlob" = NULL')
    raw.execute(
        'UPDATE "iterations" SET "output" = SUBSTR("output", 1, LENGTH("output") - 8) || \'AAAAAAA=\''
    )
    raw.commit()

    with Store(url, KEYS) as store:
        with pytest.raises(StoreError, match="result: it was changed, or moved"):
            store.read.of_session("tool_calls", "s1")
        with pytest.raises(StoreError, match="output: it was changed, or moved"):
            store.read.of_session("iterations", "s1")


@pytest.mark.parametrize(
    "text",
    [
        "sealed:1:",
        "sealed:1:0:messages.content:AAAA",
        "sealed:1:x:y:" + "A" * 5000,
        "keyed:0:11",
        '{"a":  "sealed:1:0:batch_items.factors:AAAA"}',
    ],
)
def test_a_text_that_looks_sealed_is_a_text_like_any_other(tmp_path, text):
    url = str(tmp_path / "a.db")
    for keys in (Keys(), KEYS):
        with Store(url, keys) as store:
            writer = store.writer()
            session(writer, f"s-{bool(keys.own)}").record(Message(role="user", name=text[:100], content=text))
            writer.close()
    with Store(url, KEYS) as store:
        for name in ("s-False", "s-True"):
            (row,) = store.read.of_session("messages", name)
            assert (row["content"], row["name"]) == (text, text[:100])


def test_a_span_that_comes_again_is_not_new(sealed):
    sealed.arrivals.save([(mark(), {"a": SECRET})], NOW)
    sealed.arrivals.build_sessions(lambda *_: None, NOW)

    sealed.arrivals.save([(mark(), {"a": SECRET})], NOW)
    assert not sealed.arrivals.has_new()
    sealed.arrivals.save([(mark(), {"a": "else"})], NOW)
    assert sealed.arrivals.has_new()


def test_equal_texts_are_kept_once_and_their_digest_says_nothing(url, sealed):
    import hashlib

    writer = sealed.writer()
    for name in ("s1", "s2"):
        session(writer, name).record(Message(role="user", content=LONG))
    writer.close()

    (row,) = query(sealed, 'SELECT "digest" FROM "blobs"')
    assert hashlib.sha256(LONG.encode()).hexdigest() not in row["digest"]


def test_a_statement_whose_text_could_not_be_sealed_is_refused(sealed):
    for statement in (
        'UPDATE "messages" SET "content" = \'words\' WHERE 1 = 0',
        'UPDATE "messages" SET "content" = COALESCE(?, "content") WHERE 1 = 0',
        'INSERT INTO "messages" SELECT * FROM "messages" WHERE 1 = 0',
    ):
        with pytest.raises(StoreError, match="cannot be encrypted"):
            sealed._transaction(lambda connection, sql=statement: connection.run(sql, ()))


def test_two_that_open_a_new_store_at_once_come_to_one_key(tmp_path):
    (tmp_path / "key").write_text(new_key_text(KEYS.own.secret))
    program = (
        "import sys; from pathlib import Path; from proctor.store.keys import Keys, key_in; "
        "from proctor.store import Store; Store(sys.argv[1], Keys(own=key_in(Path(sys.argv[2]))))"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "a.db"), str(tmp_path / "key")]
    for process in [subprocess.Popen(words) for _ in range(3)]:
        assert process.wait() == 0

    with Store(str(tmp_path / "a.db"), KEYS) as store:
        assert len(store.data_keys.rows) == 1


def test_keys_are_read_from_a_file_or_the_environment_in_any_usual_form(tmp_path):
    secret = os.urandom(32)
    for number, data in enumerate([secret, secret.hex().encode(), new_key_text(secret).encode()]):
        (tmp_path / f"{number}").write_bytes(data)
        assert key_in(tmp_path / f"{number}").secret == secret
    assert read_keys({}, {"PROCTOR_ENCRYPTION_KEY": secret.hex()}).own == LocalKey(secret=secret)
    assert read_keys({"key_env": "MINE"}, {"MINE": secret.hex()}).own == LocalKey(secret=secret)
    assert read_keys({}, {}).own is None
    assert secret.hex() not in repr(LocalKey(secret=secret))


def test_an_empty_file_is_no_key(tmp_path):
    (tmp_path / "key").write_text("")
    with pytest.raises(KeyUnusable, match="does not contain a key"):
        key_in(tmp_path / "key")


@pytest.mark.parametrize("text", ["short", "é" * 20, "ab" * 31])
def test_what_is_no_key_is_told_and_not_shown(tmp_path, text):
    (tmp_path / "key").write_text(text)
    with pytest.raises(KeyUnusable, match="does not contain a key") as told:
        key_in(tmp_path / "key")
    assert text not in str(told.value)
    with pytest.raises(KeyUnusable, match=r"cannot be read.*\n.*no other key can decrypt it"):
        key_in(tmp_path / "none")


def test_no_query_looks_into_a_sealed_column_in_a_way_that_is_not_known():
    """Statements are rewritten by their text; one that is written in another way would go wrong unseen."""
    names = "|".join(sorted({column for columns in ENCRYPTED.values() for column in columns}))
    cut = re.compile(rf'(?i)substr\((?:\w+\.)?\\?"({names})\\?"(?!, 1, [^)]*\) AS)')
    like = re.compile(rf'(?i)(?<![\w(.\\])(?!LOWER\()[\w(.\\]*"({names})\\?"\)? (NOT )?LIKE')
    source = Path(sys.modules["proctor"].__file__).parent
    found = [
        f"{file.name}: {each[0]}"
        for file in source.rglob("*.py")
        if file.name not in ("key_rotation.py", "sealed_database.py")
        for pattern in (cut, like)
        for each in pattern.finditer(file.read_text())
    ]

    # Levels of factors that are names are not sealed, and may be looked for.
    assert [each for each in found if each != 'session_selection.py: i.\\"factors\\" LIKE'] == []


def test_without_a_key_nothing_of_sealing_is_loaded(tmp_path):
    program = (
        "import sys; from proctor.store import Store; Store(sys.argv[1]); "
        "assert not {'cryptography', 'boto3', 'botocore'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.db")], check=False)
    assert done.returncode == 0


def test_without_the_key_an_object_with_a_sealed_text_names_the_key_it_needs(url, sealed):
    fill(sealed)

    with Store(url) as locked:
        (row,) = locked.read.items("run")
        with pytest.raises(KeyMissing, match=f"encrypted with the key {KEYS.own.id}, which is not available"):
            row["factors"]


def test_a_connection_with_a_key_runs_scripts_and_removes_deleted_text(tmp_path):
    file = tmp_path / "a.db"
    with Store(str(file), KEYS) as store:
        connection = store.database.connect()
        connection.script('CREATE TABLE "one" ("a" TEXT); CREATE TABLE "two" ("a" TEXT);')
        assert connection.run('UPDATE "sessions" SET "name" = ?', (SECRET,)) == 0
        connection.run('INSERT INTO "two" VALUES (?)', (LONG,))
        connection.run('DELETE FROM "two"')
        assert connection.tuples('SELECT * FROM "one"') == connection.tuples('SELECT * FROM "two"') == []
        connection.purge()
        connection.close()
    assert SECRET.encode() not in file.read_bytes()


def test_after_reencryption_the_texts_from_before_are_gone_from_the_disk(tmp_path):
    file = tmp_path / "a.db"
    with Store(str(file)) as store:
        fill(store)
    assert SECRET.encode() in file.read_bytes()
    with Store(str(file), KEYS) as store:
        assert store.reencrypt() > 0
        # While it is open: the log is not written back and deleted yet.
        assert all(SECRET.encode() not in each.read_bytes() for each in tmp_path.glob("a.db*"))
