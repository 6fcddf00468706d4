"""What callers keep beside runs: evaluators under keys of their own, configurations, log streams."""

from datetime import UTC, datetime, timedelta

import pytest

from proctor.errors import Contradiction, KeyMissing, NotFound
from proctor.store import Store
from proctor.store.definitions import Token
from proctor.store.intake import LogEvent
from proctor.store.keys import Keys, LocalKey

DATABASES = ["sqlite"]
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
STAMP = "2026-11-15T12:00:00.000Z"
JUDGE = {"llmAsAJudge": {"instructions": "x" * 10_000}}


def once(token="", **asked):
    return Token(operation="Create", token=token, request=asked)


def config(store, name="watch", *, enabled=True, evaluators=("mine-0123456789",), percentage=100):
    document = {
        "rule": {"samplingConfig": {"samplingPercentage": percentage}},
        "dataSourceConfig": {
            "cloudWatchLogs": {"logGroupNamePrefixes": ["/runtimes/"], "serviceNames": ["calc"]}
        },
        "evaluators": [{"evaluatorId": each} for each in evaluators],
        "outputConfig": {"cloudWatchConfig": {"logGroupName": "/results"}},
    }
    row = {"id": f"{name}-0123456789", "name": name, "enabled": int(enabled), "enabledAt": STAMP}
    times = {"createdAt": STAMP, "updatedAt": STAMP}
    return store.definitions.create_config(row | times, document, once(name=name))


def test_a_configuration_is_encrypted_again_when_its_evaluator_gets_another_key(tmp_path):
    arns = ["arn:aws:kms:us-east-1:1:key/1", "arn:aws:kms:us-east-1:1:key/2"]
    keys = Keys(named={arn: LocalKey(secret=arn[-32:].rjust(32).encode(), name=arn) for arn in arns})
    with Store(str(tmp_path / "a.db"), keys) as store:
        for name in ("mine", "yours"):
            row = {"id": name, "name": name, "level": "TRACE", "kind": "k", "kmsKeyArn": arns[0]}
            times = {"createdAt": STAMP, "updatedAt": STAMP}
            store.definitions.create_evaluator(row | times, {"say": "under-the-stairs"}, once(name=name))
        store.definitions.update_evaluator("mine", {"kmsKeyArn": arns[1], "updatedAt": STAMP}, None, once())
        masters = {row["scope"]: row["masterKeyId"] for row in store.data_keys.rows}
        assert masters == {"mine": arns[1], "yours": arns[0]}
        store.definitions.update_evaluator("yours", {"updatedAt": STAMP}, {"say": "in-the-cellar"}, once())
        for name, text in (("mine", "under-the-stairs"), ("yours", "in-the-cellar")):
            assert store.definitions.document(name)["evaluatorConfig"] == {"say": text}
        store.purge()
    content = (tmp_path / "a.db").read_bytes()
    assert [text in content for text in (b"under-the-stairs", b"in-the-cellar")] == [False, False]


def test_a_configuration_is_changed_and_deleted_with_what_was_decided(store):
    for name in ("watch", "other"):
        config(store, name)
    watch, other = "watch-0123456789", "other-0123456789"
    values = {"enabled": 0, "updatedAt": "2026-11-16T12:00:00.000Z"}
    changed = store.definitions.update_config(watch, values, {"evaluators": []}, once())
    assert (changed["enabled"], changed["document"]) == (0, {"evaluators": []})
    listed = store.definitions.configs
    assert [row["id"] for row in listed()] == [other, watch]
    assert [row["id"] for row in listed(enabled_only=True)] == [other]
    assert [row["id"] for row in listed(after=other)] == [watch]
    assert [row["id"] for row in listed(limit=1)] == [other]

    for each in (watch, other):
        store.definitions.record_decisions(each, {"s1": "judge", "s2": "judge", "s3": "not_sampled"}, NOW)
        store.definitions.record_decisions(each, {"s1": "not_sampled"}, NOW)
    store.definitions.assign_sessions(watch, ["s1"], "run")
    assert store.definitions.sessions_of(watch, "job run") == ["s1"]
    assert store.definitions.sessions_of(watch, "judge") == ["s2"]
    assert store.definitions.sessions_of(other, "judge") == ["s1", "s2"]
    store.definitions.unassign_sessions(watch, "run")
    assert store.definitions.sessions_of(watch, "judge") == ["s1", "s2"]

    store.definitions.delete_config(watch)
    assert store.definitions.sessions_of(watch, "judge") == []
    assert store.definitions.sessions_of(other, "judge") == ["s1", "s2"]
    with pytest.raises(NotFound, match=f"there is no online evaluation configuration {watch}"):
        store.definitions.config(watch)
    with pytest.raises(NotFound):
        store.definitions.update_config(watch, values, {}, once())
    assert store.definitions.watch_config(watch, "me", NOW) is False


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_log_streams_keep_long_and_strange_lines_in_the_order_of_their_times(store):
    logs = store.logs
    for stream in ("", "s", "t"):
        logs.create("/g", stream, NOW)
    texts = ["second \0 \ud800", "x" * 10_000, "first"]
    events = [LogEvent(timestamp_ms=at, message=text) for at, text in zip((2, 3, 1), texts, strict=True)]
    logs.put("/g", "s", events, NOW)
    logs.put("/g", "s", [LogEvent(timestamp_ms=1, message="later")], NOW + timedelta(seconds=1))

    kept = [(row["position"], row["timestamp"], row["message"]) for row in logs.events("/g", "s")]
    assert kept == [(2, 1, "first"), (3, 1, "later"), (0, 2, "second \ufffd ?"), (1, 3, "x" * 10_000)]
    ingested = int(NOW.timestamp() * 1000) + 1000
    times = [(row["logStream"], row["first"], row["last"], row["ingested"]) for row in logs.streams()]
    assert times == [("", None, None, None), ("s", 1, 3, ingested), ("t", None, None, None)]
    for stream, name in (("", "group"), ("s", "stream")):
        with pytest.raises(Contradiction, match=f"the log {name} already exists"):
            logs.create("/g", stream, NOW)
    with pytest.raises(NotFound, match=r"The specified log stream does not exist\."):
        logs.put("/g", "none", events, NOW)


@pytest.mark.parametrize("document", [JUDGE, {"short": 1}])
def test_what_is_under_a_key_of_its_own_stays_so_when_the_rest_is_encrypted_anew(tmp_path, document):
    arn, own = "arn:aws:kms:us-east-1:1:key/1", LocalKey(secret=bytes(range(32)))
    url = str(tmp_path / "a.db")
    with Store(url, Keys(own=own, named={arn: LocalKey(secret=b"k" * 32, name=arn)})) as store:
        row = {"id": "mine", "name": "mine", "level": "TRACE", "kind": "k", "kmsKeyArn": arn}
        times = {"createdAt": STAMP, "updatedAt": STAMP, "description": "under the key of the store"}
        store.definitions.create_evaluator(row | times, document, once())
        store.reencrypt()
        assert store.definitions.document("mine")["evaluatorConfig"] == document
    with Store(url, Keys(own=own)) as store:
        with pytest.raises(KeyMissing, match=arn):
            store.definitions.document("mine")
        described = store.definitions.evaluator("mine", with_config=False)
        assert described["description"] == "under the key of the store"
