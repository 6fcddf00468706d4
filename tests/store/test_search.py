"""Full-text search over transcripts, in both databases."""

import sqlite3

import pytest

from databases import query
from proctor.batch.deletion import delete_run, delete_sessions
from proctor.errors import UsageError
from proctor.session import Message, Session, Step, TimedEvent, ToolCall
from proctor.store import Store
from proctor.store.keys import Keys, LocalKey
from proctor.store.search import parse_query, snippet
from stocked import NOW, add_batch, owned, session

KEYS = Keys(own=LocalKey(secret=bytes(range(32))))
LONG = "filler words " * 600


def record(store, session_id, *events, run="run", status="success"):
    """A session with these events; a text is what the agent says."""
    writer = store.writer(owned(run, "me"))
    recorder = session(writer, session_id, run_id=run)
    for event in events:
        recorder.record(Message(role="assistant", content=event) if isinstance(event, str) else event)
    if status:
        recorder.end(status, "completed", "", work_seconds=1, waiting_seconds=0)
    writer.close()


def heard(text):
    """A session of another tool in which a user says this."""
    said = TimedEvent(event=Message(role="user", content=text))
    return Session(external_id="x", source="otlp", steps=[Step(trace_id="t", events=[said])])


def ids(store, text, **more):
    store.search_index.update()
    return [hit.session_id for hit in store.search_index.search(text, **more).hits]


def marked(parts):
    return "".join(f"[{part.text}]" if part.is_match else part.text for part in parts)


@pytest.fixture
def filled(store):
    for run in ("run", "other"):
        add_batch(store, run, owner="me")
    record(store, "a", "The cat sleeps under the stairs.", "Nothing more.")
    record(store, "b", ToolCall(name="edit", args={"path": "src/shop_total.py"}, result="the stairs, no cat"))
    record(store, "c", LONG + "Der Käse liegt unter der Treppe", run="other")
    record(store, "d", "小さな猫は階段の下で眠る", run="other")
    record(store, "e", "a cat that still runs", run="other", status="")
    return store


def test_words_phrases_and_beginnings_are_found(filled):
    expected = {
        "cat": ["a", "b"],
        "CAT stairs": ["a", "b"],
        '"the stairs"': ["a", "b"],
        '"under the stairs"': ["a"],
        '"stairs under"': [],
        "shop": ["b"],
        "src/shop_total.py": ["b"],
        "stai*": ["a", "b"],
        "stai": [],
        "kase treppe": ["c"],
        "Käse": ["c"],
        "猫": ["d"],
        "階段の下": ["d"],
        "cat dog": [],
        "": [],
        '"" ** --': [],
    }

    assert {text: sorted(ids(filled, text)) for text in expected} == expected


def test_no_text_is_an_error(filled):
    for text in (
        '"',
        "'; DROP TABLE sessions; --",
        "NEAR(a b)",
        "text: x",
        "a AND",
        "(",
        "^x",
        "a:*b & | !",
        "½ ﷽ \u0301",
        "½*",
        "x" * 9999,
        "cat " * 500,
    ):
        assert isinstance(ids(filled, text), list), text


def test_hits_say_where_they_are_and_mark_what_matched(filled):
    filled.search_index.update()
    (hit,) = filled.search_index.search('cat "no CAT"').hits
    assert (hit.session_id, hit.run_id, hit.position, hit.kind) == ("b", "run", 1, "tool_call")
    assert (hit.name, hit.part) == ("edit", "result")
    assert marked(hit.snippet) == "the stairs, [no cat]"
    (long,) = filled.search_index.search("treppe").hits
    assert marked(long.snippet).startswith("…")
    assert marked(long.snippet).endswith("liegt unter der [Treppe]")
    assert len(marked(long.snippet)) < 260


def test_results_are_paged_and_limited_to_a_run(filled):
    for number in range(5):
        record(filled, f"more-{number}", f"{'zebra ' * (number + 1)} and other words", run="other")
    filled.search_index.update()
    pages = [filled.search_index.search("zebra", offset=offset, limit=2) for offset in (0, 2, 4)]
    assert [page.has_more for page in pages] == [True, True, False]
    assert not filled.search_index.search("zebra", limit=5).has_more
    found = [hit.session_id for page in pages for hit in page.hits]
    assert sorted(found) == sorted(f"more-{number}" for number in range(5))
    assert found[0] == "more-4"
    assert ids(filled, "cat", run_id="other") == []
    assert sorted(ids(filled, "cat", run_id="run")) == ["a", "b"]


def test_deleted_and_pruned_texts_leave_the_index(filled):
    imported_id = filled.save_imported(heard("imported cat"), NOW)
    assert sorted(ids(filled, "cat")) == sorted(["a", "b", imported_id])

    filled.save_imported(Session(external_id="x", source="otlp"), NOW)
    assert sorted(ids(filled, "cat")) == ["a", "b"]
    filled.delete_texts("run")
    assert filled.search_index.state().indexed == 3
    assert ids(filled, "cat") == []
    filled.delete_batch("other")
    assert ids(filled, "treppe") == []
    assert query(filled, 'SELECT COUNT(*) AS "n" FROM "search_texts"') == [{"n": 0}]


def test_words_of_deleted_sessions_are_removed_from_the_index(tmp_path):
    with Store(str(tmp_path / "s.db")) as store:
        for run, word in (("run", "confidential"), ("other", "public")):
            add_batch(store, run, owner="me")
            record(store, run, f"a {word} cat", run=run)
            assert ids(store, word) == [run]
        imported_id = store.save_imported(heard("an unlisted cat"), NOW)
        assert ids(store, "unlisted") == [imported_id]

        delete_run(store, "run", tmp_path, {}, branches=False)
        delete_sessions(store, [imported_id])
        store.purge()
        assert b"onfidential" not in (tmp_path / "s.db").read_bytes()

        index = b"".join(
            bytes(row["block"]) for row in query(store, 'SELECT "block" FROM "search_texts_data"')
        )
        # Words are stored without what they have in common with the one before.
        assert b"ublic" in index
        assert b"onfidential" not in index and b"nlisted" not in index
        assert ids(store, "public") == ["other"]


def test_an_encrypted_store_is_not_searchable_and_its_index_is_deleted(url):
    with Store(url) as store:
        add_batch(store, "run", owner="me")
        record(store, "a", "a cat", LONG)
        assert ids(store, "cat") == ["a"]
    with Store(url, KEYS) as store:
        with pytest.raises(UsageError, match="encrypted: its transcripts are not searchable"):
            store.search_index.search("cat")
        with pytest.raises(UsageError, match="encrypted"):
            store.search_index.update()
        store.reencrypt()
        assert query(store, 'SELECT COUNT(*) AS "n" FROM "search_sessions"') == [{"n": 0}]
    with Store(url) as store, pytest.raises(UsageError, match="encrypted"):
        store.search_index.update()


def test_snippets_of_hostile_texts_take_little_time():
    for text in ("a" + " " * 300_000, "a " * 100_000, "_" * 300_000 + "cat", "\u202e\x1b[31mcat\x00"):
        assert "".join(part.text for part in snippet(text, parse_query('"a b" cat'))).strip("…") in text


def test_sqlite_finds_its_index_damaged_never(tmp_path):
    with Store(str(tmp_path / "a.db")) as store:
        add_batch(store, "run", owner="me")
        for number in range(30):
            record(store, f"s{number}", f"cat {number}", LONG)
        ids(store, "cat")
        store.delete_imported(["none"])
        store.delete_batch("run")
    raw = sqlite3.connect(tmp_path / "a.db")
    raw.execute("INSERT INTO search_texts(search_texts) VALUES ('integrity-check')")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('two words "a phrase" begin*', [("two",), ("words",), ("a", "phrase"), ("begin", "*")]),
        ('"quoted*" a-b', [("quoted",), ("a", "b")]),
        ("- * _", []),
        ("x" * 300, [("x" * 200,)]),
        ("word " * 21, [("word",)] * 20),
        ("下で", [("下", "で")]),
    ],
)
def test_the_terms_of_a_query(text, expected):
    assert [(*term.words, *("*" if term.is_prefix else "")) for term in parse_query(text)] == expected


def test_a_snippet_begins_shortly_before_the_first_match_and_ends_with_what_is_left_out():
    terms = parse_query("cat")
    assert marked(snippet("a cat and a CAT", terms)) == "a [cat] and a [CAT]"
    assert marked(snippet("cats", terms)) == "cats"
    assert marked(snippet("cats and kittens", parse_query("cat* kit"))) == "[cats] and kittens"
    assert marked(snippet("no_cat_here", terms)) == "no_[cat]_here"
    assert marked(snippet("x" * 240, terms)) == "x" * 240
    assert marked(snippet("x" * 241, terms)) == "x" * 240 + "…"
    assert marked(snippet("-" * 70 + "cat", terms)) == "-" * 70 + "[cat]"
    assert marked(snippet("-" * 71 + "cat", terms)) == "…" + "-" * 70 + "[cat]"
    long = marked(snippet("-" * 100 + "cat" + "-" * 300, terms))
    assert long == "…" + "-" * 70 + "[cat]" + "-" * (240 - 73) + "…"
    assert marked(snippet("b, a", parse_query('"a b"'))) == "b, a"
    assert marked(snippet("a - b", parse_query('"a b"'))) == "[a - b]"


def test_sessions_are_named_by_the_beginning_of_their_id_their_name_or_their_branch(store):
    add_batch(store, owner="me")
    writer = store.writer(owned("run", "me"))
    for number, (session_id, more) in enumerate(
        [("ab-1", {}), ("ab-2", {"name": "nightly"}), ("a_", {"branch": "fix/it"}), ("b", {"name": "ab-1"})]
    ):
        session(writer, session_id, startedAt=f"2026-03-01T12:00:0{number}.000Z", **more)
    writer.close()

    def found(text, limit=9):
        return [row["id"] for row in store.search_index.named_sessions(text, limit=limit)]

    assert (found("ab"), found("ab", limit=1)) == (["ab-2", "ab-1"], ["ab-2"])
    assert found(" ab-1 ") == ["b", "ab-1"]
    assert (found("nightly"), found("fix/it"), found("night")) == (["ab-2"], ["a_"], [])
    assert (found("a_"), found("%"), found(""), found("  ")) == (["a_"], [], [], [])
