"""Tables as files: the documented names and columns, and exactly the rows asked for."""

import csv
import json
import re
import sys
from importlib.resources import files

import pytest

from filled import HOSTILE, NOW, add_batch, carry_out, items, new_store
from proctor.errors import UsageError
from proctor.export import TABLES, export_tables
from proctor.export.tables import columns, parquet_type, write_parquet
from proctor.store import Scope
from proctor.store.annotations import RATING, Annotation, Label

RUN = Scope(run_id="compare")


def export(store, tmp_path, form, tables=None, scope=RUN, label="compare"):
    return export_tables(store.read, scope, out=tmp_path / "out", format=form, tables=tables, label=label)


@pytest.fixture
def document(store, tmp_path):
    """The tables as one document of JSON, with a tag and a label of the first session."""
    session_id = store.read.sessions(RUN)[0]["id"]
    store.annotate(Annotation(session_ids=[session_id], kind="tag", text="odd", author="ada"), NOW)
    store.save_label(Label(session_id=session_id, evaluator=RATING, who="ada", value=4.0), NOW)
    (path,) = export(store, tmp_path, "json")
    assert path.name == "batch-compare.json"
    return json.loads(path.read_text())


def test_json_is_one_file_with_every_table(store, document):
    counts = {"sessions": 42, "iterations": 24, "tool_calls": 84, "merge_history": 18, "batches": 1}
    counts |= {"batch_items": 36, "messages": 42, "model_calls": 42, "metrics": 0, "scores": 18}
    assert {table: len(rows) for table, rows in document.items()} == counts | {"labels": 1, "annotations": 1}
    assert list(document) == list(TABLES)
    (tag,) = document["annotations"]
    session_id = store.read.sessions(RUN)[0]["id"]
    assert (tag["sessionId"], tag["kind"], tag["text"], tag["author"]) == (session_id, "tag", "odd", "ada")


def test_documented_columns_come_first_and_values_have_their_types_and_whole_texts(document):
    assert list(document["batches"][0])[:3] == ["runId", "createdAt", "defaultsJson"]
    assert " ".join(list(document["batch_items"][0])[:13]) == (
        "id runId sessionId repo prompt status error startedAt finishedAt model iterSha tokensTotal toolCalls"
    )
    assert not {"owner", "heartbeatAt"} & set(document["batches"][0])
    assert {row["success"] for row in document["tool_calls"]} == {True, False, None}
    assert document["batch_items"][0]["factors"]["model"] == "gpt-5"
    assert document["batches"][0]["defaultsJson"] == '{"baseBranch":"main"}'
    assert isinstance(document["tool_calls"][0]["argsJson"], str)
    assert ["wrote outside its tree", "permission: may I?"] in [row["notes"] for row in document["sessions"]]
    edits = [row for row in document["tool_calls"] if row["toolName"] == "edit"]
    assert all(json.loads(row["argsJson"]) == {"text": "x" * 5000} for row in edits)
    assert not [name for name in edits[0] if name.endswith("Blob")]


def test_rows_carry_ids_that_join(document):
    iterations = {row["id"] for row in document["iterations"]}
    sessions = {row["id"] for row in document["sessions"]}

    assert len(iterations) == 24
    assert {row["sessionId"] for row in document["tool_calls"]} == sessions
    assert iterations <= {row["iterationId"] for row in document["tool_calls"]}
    assert all(next(iter(row)) == "id" for row in document["tool_calls"])
    assert len({row["id"] for row in document["tool_calls"]}) == 84


def test_ndjson_is_one_file_a_table_with_one_object_a_line(store, tmp_path):
    paths = export(store, tmp_path, "ndjson", ["sessions", "iterations"])

    assert [path.name for path in paths] == ["sessions-compare.ndjson", "iterations-compare.ndjson"]
    lines = paths[0].read_text().split("\n")
    assert len(lines) == 43 and lines[-1] == ""
    assert {json.loads(line)["runId"] for line in lines[:-1]} == {"compare"}


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, strict=True))


def test_csv_holds_iterations_and_tool_calls_unless_told_otherwise_and_can_be_read_back(store, tmp_path):
    names = [path.name for path in export(store, tmp_path, "csv")]
    assert names == ["iterations-compare.csv", "tool_calls-compare.csv"]
    (path,) = export(store, tmp_path, "csv", ["tool_calls"])
    rows = read_csv(path)

    assert path.name == "tool_calls-compare.csv"
    assert tuple(rows[0]) == columns("tool_calls")
    assert len(rows) == 84
    assert {row["success"] for row in rows} == {"true", "false", ""}
    assert b"\r\n" in path.read_bytes()


def test_csv_is_safe_to_open_in_a_spreadsheet(tmp_path):
    prompts = ["=cmd()", "+1+1", "-2*3", "@SUM(A1)", "\tx", "\rx", "-5", 'fine, "really"\nyes', "bell\x07"]
    asked = [type(items()[0])(runner="prompt", prompt=prompt) for prompt in prompts]
    with new_store(tmp_path, "sheet", asked) as store:
        (path,) = export(store, tmp_path, "csv", ["batch_items"], Scope(run_id="sheet"), "sheet")

    assert [row["prompt"] for row in read_csv(path)] == [
        "'=cmd()",
        "'+1+1",
        "'-2*3",
        "'@SUM(A1)",
        "'\tx",
        "'\rx",
        "-5",
        'fine, "really"\nyes',
        "bell",
    ]
    assert [row["position"] for row in read_csv(path)] == [str(index) for index in range(9)]


def test_parquet_has_the_same_rows_with_types(store, tmp_path):
    paths = export(store, tmp_path, "parquet")

    assert [path.name for path in paths] == [f"{table}-compare.parquet" for table in TABLES]
    by_table = dict(zip(TABLES, map(str, paths), strict=True))
    duckdb = pytest.importorskip("duckdb")
    calls = duckdb.read_parquet(by_table["tool_calls"])
    assert dict(zip(calls.columns, map(str, calls.types), strict=True))["success"] == "BOOLEAN"
    assert calls.aggregate("count(*), sum(durationMs), count(success)").fetchall() == [
        (84, sum(range(36)) * 100.0 + sum(range(5, 36, 6)) * 100.0, 42)
    ]
    assert duckdb.read_parquet(by_table["metrics"]).fetchall() == []
    prompts = duckdb.read_parquet(by_table["batch_items"]).project("prompt").fetchall()
    assert (HOSTILE,) in prompts
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in paths)


def test_parquet_knows_the_type_of_every_column():
    migrations = sorted(files("proctor.store").joinpath("migrations").iterdir(), key=lambda path: path.name)
    sql = "\n".join(path.read_text() for path in migrations)
    stored = {"TEXT": "VARCHAR", "BIGINT": "BIGINT", "DOUBLE PRECISION": "DOUBLE"}
    for table in TABLES:
        (body,) = re.findall(rf'CREATE TABLE "{table}" \((.*?)\n\)', sql, re.DOTALL)
        types = dict(re.findall(r'^  "(\w+)" (TEXT|BIGINT|DOUBLE PRECISION)', body, re.MULTILINE))
        types |= dict(re.findall(rf'"{table}" ADD COLUMN "(\w+)" (TEXT|BIGINT|DOUBLE PRECISION)', sql))
        for name in columns(table):
            if name not in ("success", "isMock", "standIn", "iterationId") and name in types:
                assert (table, name, parquet_type(name)) == (table, name, stored[types[name]])


def test_exactly_the_rows_asked_for_are_written(store, tmp_path):
    add_batch(store, "other", items())
    carry_out(store, "other", finished=3)
    chosen = [row["id"] for row in store.read.sessions(RUN)][:2]

    (path,) = export(store, tmp_path, "json", scope=Scope(session_ids=chosen), label="export")

    document = json.loads(path.read_text())
    assert path.name == "export.json"
    assert {row["id"] for row in document["sessions"]} == set(chosen)
    assert {row["sessionId"] for row in document["messages"]} == set(chosen)
    # The two newest sessions are the two attempts of the last item.
    assert len(document["batch_items"]) == 1
    assert [row["runId"] for row in document["batches"]] == ["compare"]


@pytest.mark.parametrize(
    ("form", "tables", "message"),
    [
        ("jsno", None, "no format jsno\nDid you mean json"),
        ("csv", ["iteration"], "no table iteration\nDid you mean iterations"),
        ("json", ["ledger"], "no table ledger"),
    ],
)
def test_a_wrong_word_is_refused_with_the_right_one(store, tmp_path, form, tables, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        export(store, tmp_path, form, tables)
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(store, tmp_path):
    (tmp_path / "out").write_text("mine")

    with pytest.raises(UsageError, match="is a file"):
        export(store, tmp_path, "json")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_runs_name_cannot_lead_out_of_the_folder(tmp_path):
    with new_store(tmp_path, "../../evil", []) as store:
        (path,) = export(store, tmp_path, "json", scope=Scope(run_id="../../evil"), label="../../evil")

    assert path.parent == tmp_path / "out"


def test_an_export_that_breaks_leaves_nothing_behind(store, tmp_path):
    before = export(store, tmp_path, "ndjson", ["sessions"])[0].read_bytes()
    writer = store.writer()
    (row,) = store.read.items("compare", limit=1, offset=20)
    writer.change("batch_items", ("compare", row["id"]), {"factors": "not json"})
    writer.close()

    with pytest.raises(ValueError):
        export(store, tmp_path, "ndjson", ["sessions", "batch_items"])
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sessions-compare.ndjson"]
    assert (tmp_path / "out" / "sessions-compare.ndjson").read_bytes() == before


def test_parquet_without_duckdb_is_refused_with_what_to_install(tmp_path, monkeypatch):
    # None in the table of modules makes an import fail as if nothing were installed.
    monkeypatch.setitem(sys.modules, "duckdb", None)

    with pytest.raises(UsageError, match=r"Parquet needs duckdb\n.*proctor\[parquet\].*json, ndjson, csv"):
        write_parquet(tmp_path / "sessions.parquet", ["id"], [{"id": "a"}])
    assert list(tmp_path.iterdir()) == []


def test_parquet_takes_a_row_of_more_than_16_megabytes(tmp_path):
    # The reader's buffer is twice its limit of 16 MiB: shorter rows would pass without a higher one.
    long = "x" * 34_000_000

    write_parquet(tmp_path / "t.parquet", ["id", "prompt"], [{"id": "a", "prompt": long}])

    duckdb = pytest.importorskip("duckdb")
    rows = duckdb.read_parquet(str(tmp_path / "t.parquet")).project("id, length(prompt)").fetchall()
    assert rows == [("a", len(long))]
