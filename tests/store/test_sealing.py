"""A store with a key: nothing readable on the disk, everything readable with it."""

import signal
import sqlite3
import subprocess
import sys
import zlib

import pytest
from whole_store import ITEM, LONG, fill
from whole_store import TEXT as SECRET

from databases import query
from proctor.errors import KeyMissing, StoreError
from proctor.session import Message
from proctor.store import ItemFilter, Store, item_lists
from proctor.store.annotations import Annotation, annotations
from proctor.store.keys import Keys, LocalKey, new_key_text
from proctor.store.sealer import DETERMINISTIC, ENCRYPTED
from proctor.store.tables import COLUMNS
from stocked import NOW, add_batch, session

DATABASES = ["sqlite"]
KEYS = Keys(own=LocalKey(secret=bytes(range(32))))
OTHER = Keys(own=LocalKey(secret=b"another key of thirty-two bytes!"))


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


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_what_anybody_said_is_nowhere_on_the_disk_and_reads_back_with_the_key(url, tmp_path, sealed):
    fill(sealed)

    assert SECRET.encode() not in raw_bytes(url, tmp_path)
    other = str(tmp_path / "plain" / "p.db")
    with Store(other) as plain:
        fill(plain)
        assert everything(plain) == everything(sealed)
        assert SECRET.encode() in raw_bytes(other, tmp_path / "plain")


PLAIN = {
    "an id, used in references and queries": """
        batches: runId; batch_items: runId id sessionId; sessions: id runId itemId thread externalId
        continues;
        iterations: sessionId traceId; messages: sessionId; tool_calls: sessionId callId; model_calls:
        sessionId callId requestId; metrics: sessionId; scores: sessionId target
        scoredSessionId; labels: sessionId target; merge_history: sessionId; ledger: sessionId runId itemId;
        questions: runId id itemId
        sessionId; pools: runId; evaluations: id arn clientToken; evaluator_definitions: id kmsKeyArn;
        online_configs: id runId; online_sessions: configId sessionId; resource_tags: arn; drift_scores:
        configId sessionId; drift_points: configId; drift_crossings: configId; datasets: id kmsKeyArn;
        dataset_versions: datasetId; dataset_examples: datasetId exampleId; recommendations: id kmsKeyArn;
        defined_resources: id;
        client_tokens: operation token resourceId; arrivals: traceId spanId part parentId sessionKey
        sessionId; data_keys: id scope masterKeyId; run_resources: runId; signatures: runId itemId keyId;
        annotations: sessionId id
        """,
    "a time": """
        batches: createdAt finishedAt heartbeatAt abortRequestedAt; batch_items: startedAt finishedAt;
        sessions: startedAt finishedAt; iterations: startTime endTime; messages: timestamp; tool_calls:
        timestamp; model_calls: timestamp; scores: timestamp; labels: at; calibrations: at; merge_history:
        startedAt finishedAt; ledger: timestamp; questions: askedAt answeredAt; pools: heldUntil cutAt
        heartbeatAt; evaluations: createdAt discoveredAt deletedAt; evaluator_definitions: createdAt
        updatedAt; online_configs: enabledAt createdAt updatedAt watchedAt; online_sessions: at;
        client_tokens: at; arrivals: arrivedAt; datasets: createdAt updatedAt; dataset_versions:
        createdAt; recommendations: createdAt updatedAt watchedAt; log_streams: createdAt; data_keys:
        createdAt retiredAt emptiedAt; annotations: createdAt; session_filters: createdAt;
        drift_scores: at; drift_points: at; drift_crossings: at nextAt; defined_resources: createdAt updatedAt
        """,
    "one of a few words of Proctor": """
        batches: job status reason proctorVersion; batch_items: runner status reason merge; sessions: job
        status baseline endReason source; iterations: testResult; messages: role; model_calls: status
        priceSource; scores: level errorCode ignored; labels: level; merge_history: mode result; ledger:
        kind; evaluator_definitions: level kind; online_sessions: decision; annotations: kind;
        drift_crossings: direction alert problem; run_resources: kind; datasets: schemaType;
        recommendations: type status; defined_resources: kind
        """,
    "a name that tables are grouped, filtered or sorted by": """
        batch_items: agent model; sessions: agent agentVersion promptName model service logGroup sandbox
        answeredModel servedModels validity; session_filters: name author; iterations: model; messages:
        name; tool_calls: toolName; model_calls: provider model price speaker purpose
        servedModel fingerprint finishReason notSent; metrics: name; scores: evaluator
        dimension; labels: evaluator dimension who; questions: actor; pools: name; calibrations:
        evaluator dimension; evaluations: name outputGroup outputStream; evaluator_definitions: name;
        online_configs: name; resource_tags: key value; arrivals: service logGroup; log_streams:
        logGroup logStream; log_events: logGroup logStream; run_resources: name; annotations: author;
        datasets: name; recommendations: name; drift_scores: evaluator dimension; drift_points:
        evaluator dimension; drift_crossings: evaluator dimension; defined_resources: name
        """,
    "a path, branch or process, visible on this machine anyway": """
        batches: planPath owner; batch_items: repo; sessions: repo branch baseBranch worktree;
        merge_history: baseBranch conflictFiles; ledger: holder; online_configs: watchedBy; pools: owner;
        recommendations: watchedBy
        """,
    "a digest: it can confirm a known text, but not reveal one": """
        batches: planDigest; batch_items: digest iterSha; sessions: baseSha; iterations: commitSha;
        scores: evaluatorDigest; merge_history: beforeSha afterSha; evaluations: requestDigest;
        client_tokens: digest; run_resources: digest; calibrations: evaluatorDigest; signatures: digest
        mac
        """,
    "a keyed digest: it reveals nothing about the text": """
        blobs: digest; sessions: toolsJsonBlob; iterations: testOutputBlob outputBlob setupOutputBlob;
        messages: contentBlob; tool_calls: argsJsonBlob resultBlob; model_calls: requestBlob responseBlob;
        scores: explanationBlob; labels: noteBlob; evaluations: metadataJsonBlob; evaluator_definitions:
        configJsonBlob; log_events: messageBlob; dataset_examples: contentJsonBlob; recommendations:
        requestJsonBlob resultJsonBlob; defined_resources: documentJsonBlob
        """,
    "needed to decrypt the rest": """
        data_keys: contextJson wrapped
        """,
}
"""Columns that hold text and stay readable, by the reason: tables with their columns."""


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
    plain = [
        f"{table.strip()}.{column}"
        for text in PLAIN.values()
        for table, _, columns in (part.partition(":") for part in text.split(";"))
        for column in columns.split()
    ]

    assert sorted(texts) == sorted(sealed + plain)
    assert set(sealed) >= DETERMINISTIC


def test_without_the_key_lists_and_states_are_told_and_texts_are_not(url, sealed):
    fill(sealed)

    with Store(url) as locked:
        assert locked.read.batch("run", NOW)["job"] == "scenario"
        assert [row["runId"] for row in locked.read.batches(NOW)] == ["job-1", "run"]
        assert locked.read.totals("run")["items"] == 5
        (row, *_) = locked.read.items("run")
        assert (row["id"], row["status"]) == (ITEM.id, "success")
        for column in ("prompt", "factors"):
            with pytest.raises(KeyMissing, match=f"with the key {KEYS.own.id}.*not available\n.*key_file"):
                row[column]
        for spill in (dict, lambda row: {**row}, lambda row: [*row.values()], lambda row: row.get("prompt")):
            with pytest.raises(KeyMissing):
                spill(row)
        with pytest.raises(KeyMissing):
            locked.read.of_session("messages", "s1")[0]["content"]
        with pytest.raises(KeyMissing):
            add_batch(locked, "another", planText="more words")


def test_a_wrong_key_is_told_before_anything_starts(url, sealed):
    with pytest.raises(KeyMissing, match=f"{KEYS.own.id}; the configured key is {OTHER.own.id}"):
        Store(url, OTHER)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_everything_is_sealed_anew_and_nothing_of_before_is_left(url, tmp_path):
    with Store(url) as plain:
        fill(plain)
        before = everything(plain)

    with Store(url, KEYS) as sealed:
        assert everything(sealed) == before, "what was there before the key stays readable"
        counts = sealed.count_encrypted()["messages"]
        assert (counts.plain, counts.current) == (3, 0)
        told = []
        changed = sealed.reencrypt(lambda table, rows: told.append((table, rows)))

        assert changed == told[-1][1] > 10
        assert everything(sealed) == before
        assert all(found.plain == found.retired == 0 for found in sealed.count_encrypted().values())
        # While it is open: the log is not written back and deleted yet.
        assert all(SECRET.encode() not in each.read_bytes() for each in tmp_path.glob("proctor.db*"))
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


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_items_are_filtered_and_listed_by_what_is_sealed(sealed):
    fill(sealed)

    def positions(**members):
        return list(item_lists.listing(sealed.read, "run", item_lists.ItemQuery(**members)).positions)

    assert positions(factors=[("task", "fix"), ("model", "m")], tags=[SECRET]) == [0]
    assert positions(factors=[("task", SECRET)]) == [1]
    assert positions(factors=[("task", "another")]) == positions(tags=["another"]) == []
    assert item_lists.factor_levels(sealed.read, "run", "task") == [
        {"value": "fix", "items": 1},
        {"value": SECRET, "items": 1},
    ]
    # Search passes over what is sealed, and never finds ciphertext.
    counts = [sealed.read.count_items("run", ItemFilter(search=text)) for text in ("sealed", "stairs", "m")]
    assert counts == [0, 0, 5]
    outcome = item_lists.outcomes(sealed.read, ["s1"], characters=len(SECRET))["s1"]
    assert (outcome.answer, sorted(outcome.tags)) == (SECRET, ["odd", SECRET])
    failures = item_lists.failure_texts(sealed.read, "run", characters=7)
    assert {row["error"] for row in failures} == {SECRET[:7]}


def test_a_value_that_was_moved_or_changed_does_not_open(tmp_path):
    url = str(tmp_path / "a.db")
    with Store(url, KEYS) as store:
        fill(store)
    raw = sqlite3.connect(url)
    moved = '(SELECT "content" FROM "messages" WHERE "content" <> \'\' LIMIT 1)'
    raw.execute(f'UPDATE "tool_calls" SET "resultBlob" = NULL, "result" = {moved}')
    changed = 'SUBSTR("testOutput", 1, LENGTH("testOutput") - 8) || \'AAAAAAA=\''
    raw.execute(f'UPDATE "iterations" SET "testOutput" = {changed}')
    raw.commit()

    with Store(url, KEYS) as store:
        with pytest.raises(StoreError, match="result: it was changed, or moved"):
            store.read.of_session("tool_calls", "s1")
        with pytest.raises(StoreError, match="testOutput: it was changed, or moved"):
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


def test_equal_texts_are_kept_once_and_their_digest_says_nothing(url, sealed):
    import hashlib

    writer = sealed.writer()
    for name in ("s1", "s2"):
        session(writer, name).record(Message(role="user", content=LONG))
    writer.close()

    (row,) = query(sealed, 'SELECT "digest" FROM "blobs"')
    assert hashlib.sha256(LONG.encode()).hexdigest() not in row["digest"]


def test_what_another_process_has_sealed_anew_is_read(url, sealed):
    fill(sealed)
    with Store(url, KEYS) as other:
        other.reencrypt()
        other.annotate(Annotation(session_ids=["s2"], kind="note", text=SECRET), NOW)

    assert [row["prompt"] for row in sealed.read.items("run")][1] == SECRET
    assert annotations(sealed.read, ["s2"])[0]["text"] == SECRET


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


def test_without_a_key_nothing_of_sealing_is_loaded(tmp_path):
    program = (
        "import sys; from proctor.store import Store; Store(sys.argv[1]); "
        "assert not {'cryptography', 'boto3', 'botocore'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.db")], check=False)
    assert done.returncode == 0
