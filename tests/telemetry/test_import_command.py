"""`proctor import` and `proctor export --format otlp`, as typed."""

import json
from datetime import UTC, datetime

import pytest
from spans_by_hand import agent, span

from proctor.batch.ingest import import_paths
from proctor.store import Store
from proctor.telemetry.otlp import encode_spans

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def line(session="s-1", **more):
    told = agent(session=session, trace=session, asked="two and two?", answered="four", **more)
    return json.dumps(encode_spans([told]))


def test_sessions_in_files_and_folders_come_into_the_store(proctor, tmp_path):
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.jsonl").write_text(line("s-1") + "\n" + line("s-2"))
    (tmp_path / "b.json").write_text(line("s-3"))

    done = proctor("import", "otlp", "spans", "b.json", "--log-group", "/mine", "--json")

    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert (len(told["sessions"]), told["unreadable"]) == (3, 0)
    with proctor.open_store() as store:
        rows = [store.read.session(session_id) for session_id in told["sessions"]]
    assert [row["externalId"] for row in rows] == ["s-1", "s-2", "s-3"]
    assert {(row["service"], row["logGroup"]) for row in rows} == {("Calc.DEFAULT", "/mine")}
    again = proctor.json("import", "otlp", "spans", "b.json", "--log-group", "/mine")
    assert again["sessions"] == told["sessions"]


@pytest.mark.parametrize("kind", ["auto", "otlp"])
def test_spans_get_the_service_and_the_log_group_that_they_do_not_name(tmp_path, kind):
    (tmp_path / "spans").mkdir()
    (tmp_path / "spans" / "a.json").write_text(line(service=""))

    with Store(str(tmp_path / "proctor.db")) as store:
        done = import_paths(
            store, [tmp_path / "spans"], kind, NOW, service="travel", log_group="/agents/travel"
        )
        rows = [store.read.session(session_id) for session_id in done.session_ids]

    assert [(row["service"], row["logGroup"]) for row in rows] == [("travel", "/agents/travel")]


def test_what_cannot_be_read_is_named_the_rest_is_imported_and_nothing_is_bad_usage(proctor, tmp_path):
    (tmp_path / "a.jsonl").write_text(line() + "\n{broken\n")
    (tmp_path / "b.jsonl").write_text("{broken")

    done = proctor("import", "otlp", "a.jsonl")

    assert done.returncode == 1
    assert "skipped a.jsonl:2: it is not JSON" in done.stderr
    assert "1 session imported" in done.stderr
    assert proctor("import", "otlp", "b.jsonl").returncode == 2
    missing = proctor("import", "otlp", "nowhere.jsonl")
    assert missing.returncode == 2 and "there is no file or folder nowhere.jsonl" in missing.stderr


def test_auto_finds_out_what_a_file_is(proctor, tmp_path):
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.jsonl").write_text(line())
    (tmp_path / "mixed" / "notes.json").write_text('{"hello": "world"}')
    (tmp_path / "mixed" / "readme.md").write_text("# not a record")

    done = proctor("import", "auto", "mixed", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, len(told["sessions"])) == (1, 1)
    assert [problem["path"] for problem in told["problems"]] == ["mixed/notes.json"]


def test_what_is_exported_as_otlp_comes_back_as_it_was(proctor, tmp_path):
    (tmp_path / "a.jsonl").write_text(line("s-1") + "\n" + line("s-2"))
    (session_id, _) = proctor.json("import", "otlp", "a.jsonl")["sessions"]

    everything = proctor.json("export", "--all", "--format", "otlp", "--out", "out")
    one = proctor.json("export", "--sessions", session_id, "--format", "otlp", "--out", "one")
    elsewhere = proctor.json("import", "otlp", "out", "--home", "elsewhere")

    (file,) = everything["files"]
    assert len((tmp_path / file).read_text().splitlines()) == 2
    assert len((tmp_path / one["files"][0]).read_text().splitlines()) == 1
    assert elsewhere["sessions"]
    with proctor.open_store() as store:
        before = store.read.evidence(session_id)
    with Store(str(tmp_path / "elsewhere" / "proctor.db")) as store:
        after = store.read.evidence(session_id)
    assert [(trace.id, trace.prompt, trace.answer) for trace in after.traces] == [
        (trace.id, trace.prompt, trace.answer) for trace in before.traces
    ]


def test_a_session_of_our_own_can_be_exported_for_other_tools(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text("defaults: {model: scripted/echo}\nmatrix: [{prompt: hello there}]\n")
    done = proctor("batch", "plan.yaml", "--json")
    assert done.returncode == 0, done.stderr + done.stdout

    told = proctor.json("export", "--all", "--format", "otlp", "--out", "out")

    (message,) = map(json.loads, (tmp_path / told["files"][0]).read_text().splitlines())
    spans = message["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert spans[0]["name"].startswith("invoke_agent")
    assert "hello there" in json.dumps(spans[0]["events"])


def test_a_file_of_which_no_session_comes_says_what_was_in_it(proctor, tmp_path):
    spans = [span(f"GET /{path}", scope="opentelemetry.instrumentation.httpx", session=None) for path in "ab"]
    (tmp_path / "http.json").write_text(json.dumps(spans))

    done = proctor("import", "otlp", "http.json", "--json")

    assert done.returncode == 2
    assert json.loads(done.stdout)["problems"][0]["problem"] == (
        "no session: none of its 2 spans of opentelemetry.instrumentation.httpx is of an agent, a model or a "
        "tool: GET /a, GET /b"
    )
