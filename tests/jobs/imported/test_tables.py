"""Tables of results: what columns and cells mean, and what is wrong with them."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from proctor.errors import UsageError
from proctor.jobs.imported.table import (
    TableError,
    _ColumnMapping,
    _TableFile,
    as_figure,
    import_table,
    resolve,
)
from proctor.results.summary import summarize
from proctor.store import ItemFilter, Scope, Store
from proctor.store.keys import Keys, LocalKey

NOW = datetime(2026, 3, 1, tzinfo=UTC)


KEYS = Keys(own=LocalKey(secret=bytes(range(32))))


def write(folder, text, name="results.csv", encoding="utf-8"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def imported(store, *paths, run="r", now=NOW, **options):
    return import_table(store, list(paths), run, now, **options)


def items(store, run="r"):
    return store.read.items(run, limit=1000)


def told(store, *names, run="r"):
    return [tuple(row[name] for name in names) for row in items(store, run)]


def counted(done):
    return done.added, done.replaced, done.unchanged, done.removed


def refused(store, *paths, **options):
    with pytest.raises(UsageError) as caught:
        imported(store, *paths, **options)
    assert store.read.batches(NOW) == []
    return str(caught.value)


def test_a_row_is_an_item_with_its_task_factors_repeat_outcome_cost_and_time(store, tmp_path):
    imported(
        store,
        write(
            tmp_path,
            "task,model,effort,repeat,success,score,cost,seconds,tokens\n"
            "a,m1,high,1,true,0.9,0.25,12.5,700\na,m1,low,2,false,0.1,,,\n",
        ),
    )

    first, second = items(store)
    assert (first["prompt"], first["model"], first["repeat"], first["status"]) == ("a", "m1", 1, "success")
    assert json.loads(first["factors"]) == {"task": "a", "model": "m1", "effort": "high"}
    assert (first["costUsd"], first["tokensTotal"], first["reason"]) == (0.25, 700, "completed")
    assert (second["repeat"], second["status"], second["reason"]) == (2, "fail", "checks_failed")
    assert (second["costUsd"], second["startedAt"], second["tokensTotal"]) == (None, None, 0)
    session = store.read.session(first["sessionId"])
    assert (session["runId"], session["workSeconds"], session["costUsd"]) == ("r", 12.5, 0.25)
    (score,) = store.read.of_session("scores", first["sessionId"])
    assert (score["evaluator"], score["value"]) == ("score", 0.9)
    took = datetime.fromisoformat(first["finishedAt"]) - datetime.fromisoformat(first["startedAt"])
    assert took == timedelta(seconds=12.5)
    assert store.read.batch("r", NOW)["status"] == "completed"


def test_success_is_read_from_the_usual_words(store, tmp_path):
    yes = ("true", "True", "1", "1.0", "yes", "y", "pass", "PASSED", "resolved", " correct ")
    no = ("false", "FALSE", "0", "0.0", "No", "n", "fail", "failed", "unresolved", "incorrect")
    imported(store, write(tmp_path, "task,success\n" + "".join(f"{each},{each}\n" for each in yes + no)))

    expected = [("success", each.strip()) for each in yes] + [("fail", each) for each in no]
    assert told(store, "status", "prompt") == expected


@pytest.mark.parametrize(
    ("text", "columns", "names", "expected"),
    [
        (
            "task,status\na,success\nb,fail\nc,error\nd,timeout\ne,Timed out\n",
            {},
            ("status", "reason"),
            [
                ("success", "completed"),
                ("fail", "checks_failed"),
                ("error", "internal_error"),
                ("timeout", "timeout"),
                ("timeout", "timeout"),
            ],
        ),
        # Repeats that nobody numbered are counted per task and factors, and others from one on.
        (
            "task,model,success\na,x,1\na,x,0\na,y,1\nb,x,1\na,x,1\n",
            {},
            ("prompt", "model", "repeat"),
            [("a", "x", 1), ("a", "x", 2), ("a", "y", 1), ("b", "x", 1), ("a", "x", 3)],
        ),
        ("task,repeat,success\na,1,1\na,0,1\n", {}, ("repeat",), [(2,), (1,)]),
        # Columns are mapped, to factors of any name too, and names match in any case.
        (
            "instance_id,Model,resolved,secs\nx-1,m,yes,3\n",
            {"task": "instance_id", "success": "resolved", "seconds": "secs"},
            ("prompt", "model", "status"),
            [("x-1", "m", "success")],
        ),
        (
            "task,repeat,success\na,red,1\na,blue,1\n",
            {"color": "repeat"},
            ("repeat", "factors"),
            [(1, '{"task":"a","color":"red"}'), (1, '{"task":"a","color":"blue"}')],
        ),
        (
            "task,status,success,effort\na,done,1,x\n",
            {"status": "", "effort": ""},
            ("status", "factors"),
            [("success", '{"task":"a"}')],
        ),
        # The index that pandas writes is no factor.
        (",task,success\n0,a,1\n1,b,1\n2,c,0\n", {}, ("factors",), [(f'{{"task":"{x}"}}',) for x in "abc"]),
        # Missing values are unknown.
        (
            "task,success,cost,seconds\na,1,NaN,N/A\nb,1,null,\n",
            {},
            ("costUsd", "startedAt"),
            [(None, None), (None, None)],
        ),
    ],
)
def test_what_the_columns_of_a_table_mean(store, tmp_path, text, columns, names, expected):
    imported(store, write(tmp_path, text), columns=columns)

    assert told(store, *names) == expected


def test_without_success_a_score_decides_and_the_import_says_from_where_on(store, tmp_path):
    path = write(tmp_path, "task,score\na,1\nb,0.99\n")

    whole = imported(store, path)
    lower = imported(store, path, run="lower", pass_score=0.5)

    assert told(store, "status") == [("success",), ("fail",)]
    assert told(store, "status", run="lower") == [("success",), ("success",)]
    assert whole.notes == ["a score of 1 or more counts as success (change it: --pass-score)"]
    assert lower.notes == ["a score of 0.5 or more counts as success (change it: --pass-score)"]


def test_scores_on_another_scale_need_a_pass_score(store, tmp_path):
    message = refused(store, write(tmp_path, "task,score\na,0.5\nb,87\n"))

    assert "results.csv:3: the score 87 is not between 0 and 1" in message
    assert "--pass-score SCORE" in message


def test_further_scores_are_named(store, tmp_path):
    imported(
        store, write(tmp_path, "task,success,score:style\na,1,4\n"), columns={"score:tone": "score:style"}
    )

    (row,) = items(store)
    scores = store.read.of_session("scores", row["sessionId"])
    assert [(each["evaluator"], each["value"]) for each in scores] == [("tone", 4.0)]


def test_columns_that_identify_rows_are_not_factors_unless_they_are_mapped(store, tmp_path):
    lines = "".join(f"t{n},m{n % 2},2026-01-{n + 1:02},{n % 2}\n" for n in range(20))
    path = write(tmp_path, f"task,model,date,success\n{lines}")

    done = imported(store, path)
    imported(store, path, run="dated", columns={"date": "date"})

    assert "not used as factors" in done.notes[0]
    assert "date" in done.notes[0]
    assert {tuple(json.loads(row["factors"])) for row in items(store)} == {("task", "model")}
    assert all("date" in json.loads(row["factors"]) for row in items(store, "dated"))


def test_a_folder_of_one_file_for_each_model_names_the_model_by_the_file(store, tmp_path):
    for name in ("gpt", "qwen"):
        write(tmp_path, "task,success\na,1\nb,0\n", f"board/{name}.csv")
    write(tmp_path, "not a table", "board/notes.txt")

    done = imported(store, tmp_path / "board", columns={"model": "@file"})

    assert (done.files, done.rows) == (2, 4)
    assert told(store, "model", "prompt", "status") == [
        ("gpt", "a", "success"),
        ("gpt", "b", "fail"),
        ("qwen", "a", "success"),
        ("qwen", "b", "fail"),
    ]


def test_json_lines_json_and_semicolons_are_read_too(store, tmp_path):
    rows = [{"task": "a", "model": "m", "success": True}, {"task": 7, "success": False, "cost": 0.5}]
    write(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "t/lines.jsonl")
    write(tmp_path, json.dumps(rows[:1]), "t/list.json")
    write(tmp_path, "task;success\nb;0\n", "t/excel.csv")
    write(tmp_path, "task\tsuccess\nc\t1\n", "t/tabs.tsv")

    imported(store, tmp_path / "t")

    assert sorted(told(store, "prompt", "status", "repeat")) == [
        ("7", "fail", 1),
        ("a", "success", 1),
        ("a", "success", 2),
        ("b", "fail", 1),
        ("c", "success", 1),
    ]


def test_parquet_is_read_with_duckdb(store, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "t.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT * FROM (VALUES ('a', 'm', true, 0.5), ('b', 'm', false, 'NaN'::DOUBLE)) "
            f"AS t(task, model, success, cost)) TO '{path}' (FORMAT parquet)"
        )

    imported(store, path)

    assert told(store, "prompt", "status", "costUsd") == [("a", "success", 0.5), ("b", "fail", None)]


def test_a_broken_parquet_file_is_a_problem_of_that_file(store, tmp_path):
    pytest.importorskip("duckdb")

    assert "t.parquet: it is not a readable Parquet file" in refused(
        store, write(tmp_path, "no", "t.parquet")
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marks_of_encodings_and_windows_lines_are_no_part_of_the_table(store, tmp_path, encoding):
    imported(store, write(tmp_path, "task,success\r\nзадача,1\r\n\r\nb,0\r\n", encoding=encoding))
    assert told(store, "prompt") == [("задача",), ("b",)]

    imported(store, write(tmp_path, '{"task": "a", "success": 1}\n', "t.jsonl", "utf-8-sig"), run="lines")
    assert told(store, "prompt", run="lines") == [("a",)]


def test_quoted_line_breaks_stay_in_their_cell_and_lines_are_still_counted(store, tmp_path):
    text = 'task,success\n"two\nlines",1\n"plain, with comma",1\nc,maybe\n'

    assert 'results.csv:5: column `success`: "maybe" is neither success nor failure' in refused(
        store, write(tmp_path, text)
    )
    imported(store, write(tmp_path, text.replace("maybe", "0")))
    assert told(store, "prompt")[:2] == [("two\nlines",), ("plain, with comma",)]


def test_hostile_cells_stay_text(store, tmp_path):
    cells = ["=cmd|'/C calc'!A0", "'; DROP TABLE sessions; --", "<script>alert(1)</script>", "a\x00b\x1b[31m"]
    path = write(
        tmp_path, "".join(json.dumps({"task": each, "success": 1}) + "\n" for each in cells), "t.jsonl"
    )

    imported(store, path)

    assert told(store, "prompt") == [(each.replace("\x00", "\ufffd"),) for each in cells]


def test_numbers_that_are_infinite_negative_or_too_large_are_refused(store, tmp_path):
    with pytest.raises(TableError) as caught:
        imported(store, write(tmp_path, "task,success,cost,seconds\na,1,inf,-3\n", "bad.csv"), run="bad")
    assert [each.column for each in caught.value.problems] == ["cost", "seconds"]
    assert 'bad.csv:2: column `cost`: "inf" is not a finite number' in str(caught.value)
    assert "-3 is negative" in str(caught.value)
    with pytest.raises(TableError, match='"1e308" is too large\nWrite a number up to'):
        imported(store, write(tmp_path, "task,success,score\na,1,1e308\n", "large.csv"), run="large")


def test_every_problem_is_reported_with_its_place_and_nothing_is_stored(store, tmp_path):
    text = "task,repeat,success,cost\n,1,1,1\na,x,1,1\nb,1,perhaps,1\nc,1,1,cheap\nd,1,,1\ne,1,1\n"

    message = refused(store, write(tmp_path, text))

    for place in (
        "results.csv:2: column `task`: it is empty",
        'results.csv:3: column `repeat`: "x" is not a whole number',
        'results.csv:4: column `success`: "perhaps" is neither success nor failure',
        'results.csv:5: column `cost`: "cheap" is not a finite number',
        "results.csv:6: column `success`: the row has no result",
        "results.csv:7: the row has 3 cells, the header 4",
    ):
        assert place in message


def test_many_problems_are_counted_and_some_are_listed(store, tmp_path):
    message = refused(store, write(tmp_path, "task,success\n" + "a,maybe\n" * 1000))

    assert message.count("is neither success nor failure") == 20
    assert "… and 980 more problems" in message


def test_a_missing_column_is_named_with_the_nearest_one(store, tmp_path):
    message = refused(store, write(tmp_path, "instance_id,model,resolved\nx,m,1\n"))

    assert "there is no column `task`\nName it: --column task=instance_id." in message
    assert (
        "there is no column `success`, `score` or `status`\nName one: --column success=resolved." in message
    )
    assert "There are: instance_id, model, resolved." in message
    message = refused(store, write(tmp_path, "instance_id,success\nx,1\n"), columns={"task": "instance_idd"})
    assert "there is no column `instance_idd`\nDid you mean `instance_id`?" in message


@pytest.mark.parametrize(
    ("names", "task", "success"),
    [
        ("ID,instance_id,reward,Resolved", "instance_id", "Resolved"),
        ("tasks,succes", "tasks", "succes"),
        ("x,y", "COLUMN", "COLUMN"),
    ],
)
def test_the_column_that_is_most_likely_meant_is_offered(store, tmp_path, names, task, success):
    message = refused(store, write(tmp_path, f"{names}\n{names}\n"))

    assert f"Name it: --column task={task}." in message
    assert f"Name one: --column success={success}." in message


@pytest.mark.parametrize(
    ("levels", "rows", "is_factor"),
    [
        (3, 3, True),
        (2, 4, True),
        (3, 4, False),
        (3, 6, True),
        (4, 6, False),
        (50, 100, True),
        (51, 200, False),
    ],
)
def test_a_column_is_a_factor_if_its_values_group_the_rows(store, tmp_path, levels, rows, is_factor):
    lines = "".join(f"t{n},level {n % levels},1\n" for n in range(rows))

    imported(store, write(tmp_path, f"task,effort,success\n{lines}"))

    assert ("effort" in json.loads(items(store)[0]["factors"])) is is_factor


@pytest.mark.parametrize(("letters", "is_factor"), [(200, True), (201, False)])
def test_long_texts_are_no_levels_of_a_factor(store, tmp_path, letters, is_factor):
    imported(store, write(tmp_path, "task,effort,success\n" + f"a,{'x' * letters},1\nb,low,1\n" * 2))

    assert ("effort" in json.loads(items(store)[0]["factors"])) is is_factor


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "task,model,model,success\na,x,y,1\n", "a.csv:1: the header names a column twice: model"),
        ("a.csv", "task,success\n", "a.csv: it has no rows"),
        ("a.csv", "", "a.csv: it has no rows"),
        ("a.csv", "task,status\na,finished\n", '"finished" is not a status'),
        ("a.csv", "task,status,success\na,fail,1\n", "it is fail, but success is true"),
        ("a.csv", "task,repeat,success\na,1,1\na,1,0\n", "a.csv:3: the same task, factors and repeat as in"),
        ("a.json", "{}", "a.json: it is not a list of rows\nWrite a JSON list of objects, or JSON lines."),
        ("a.json", '[{"task": "a", "success": true}, 3]', "a.json:2: it is not a JSON object"),
        ("a.jsonl", '{"task":\n', "a.jsonl:1: it is not JSON"),
        ("a.jsonl", "[1]\n", "a.jsonl:1: it is not a JSON object\nWrite one JSON object per line."),
        ("a.jsonl", '{"success": true}\n{"task": "a"}\n', "a.jsonl:1: the row has no task"),
        ("a.jsonl", '{"task": "a"}\n{"task": "a", "success": true}\n', "a.jsonl:1: the row has no result"),
    ],
)
def test_what_is_no_table_or_contradicts_itself_is_refused_in_words(store, tmp_path, name, text, expected):
    assert expected in refused(store, write(tmp_path, text, name)).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("end", "line", "length"),
    # The last rows are longer than what is decoded at once.
    [("\n", 2, 0), ("\r\n", 3, 9), ("\r", 40, 9), *((end, 40, 30_000) for end in ("\n", "\r\n", "\r"))],
)
def test_the_line_that_is_no_text_is_named_though_the_file_is_decoded_ahead(
    store, tmp_path, end, line, length
):
    rows = ["task,success", *[f"{'x' * length} {n},1" for n in range(line - 2)], "café,1", "last,0"]

    message = refused(store, write(tmp_path, end.join(rows), encoding="latin-1"))

    assert (
        f"results.csv:{line}: it is not UTF-8, from this line on\nSave the file as CSV in UTF-8." in message
    )


def test_importing_the_same_file_again_changes_nothing(store, tmp_path):
    path = write(tmp_path, "task,model,success\na,x,1\na,x,0\nb,x,1\n")
    first = imported(store, path)
    before = items(store)

    again = imported(store, path, now=NOW + timedelta(days=1))
    copy = imported(store, write(tmp_path, path.read_text(), "copy.csv"))

    assert counted(first) == (3, 0, 0, 0)
    assert counted(again) == counted(copy) == (0, 0, 3, 0)
    assert items(store) == before


def test_a_file_that_changed_replaces_its_rows(store, tmp_path):
    imported(store, write(tmp_path, "task,success,cost\na,1,1\nb,0,1\nc,1,1\n"))
    before = {row["prompt"]: row["id"] for row in items(store)}

    done = imported(store, write(tmp_path, "task,success,cost\na,1,1\nb,1,2\nd,1,1\n"))

    assert counted(done) == (1, 1, 1, 1)
    rows = [("a", "success", 1.0), ("b", "success", 2.0), ("d", "success", 1.0)]
    assert told(store, "prompt", "status", "costUsd") == rows
    assert {row["prompt"]: row["id"] for row in items(store)}["b"] == before["b"]
    assert len(store.read.sessions(Scope(run_id="r"))) == 3


def test_more_files_add_to_the_run_and_further_repeats_are_counted_on(store, tmp_path):
    one = write(tmp_path, "task,model,success\na,x,1\nb,x,1\n", "one.csv")
    imported(store, one)

    more = imported(store, write(tmp_path, "task,model,success\na,x,0\nc,x,1\n", "two.csv"))
    again = imported(store, one)

    assert counted(more) == (2, 0, 0, 0)
    assert counted(again) == (0, 0, 2, 0)
    rows = [("a", 1, "success"), ("b", 1, "success"), ("a", 2, "fail"), ("c", 1, "success")]
    assert told(store, "prompt", "repeat", "status") == rows


def test_a_numbered_repeat_of_another_file_replaces_the_one_there_is(store, tmp_path):
    imported(store, write(tmp_path, "task,repeat,success\na,1,0\n", "one.csv"))

    done = imported(store, write(tmp_path, "task,repeat,success\na,1,1\n", "corrected.csv"))

    assert counted(done) == (0, 1, 0, 0)
    assert told(store, "repeat", "status") == [(1, "success")]
    assert len(store.read.sessions(Scope(run_id="r"))) == 1


def test_two_files_with_equal_rows_and_the_model_in_their_names_are_two_models(store, tmp_path):
    text = "task,success\na,0\n"
    imported(store, write(tmp_path, text, "x.csv"), columns={"model": "@file"})

    done = imported(store, write(tmp_path, text, "y.csv"), columns={"model": "@file"})

    assert counted(done) == (1, 0, 0, 0)
    assert told(store, "model") == [("x",), ("y",)]


def test_the_name_of_a_run_that_was_not_imported_is_refused(store, tmp_path):
    store.create_batch({"runId": "mine", "createdAt": "2026", "job": "coding", "status": "completed"}, [])

    with pytest.raises(UsageError, match="the run mine exists and was not imported"):
        imported(store, write(tmp_path, "task,success\na,1\n"), run="mine")
    with pytest.raises(UsageError, match="is not a valid run ID"):
        imported(store, write(tmp_path, "task,success\na,1\n"), run="no/slash")


def test_no_file_a_missing_one_an_empty_folder_and_another_suffix_are_refused(store, tmp_path):
    assert refused(store) == "there are no tables to import\nGive a file or a folder."
    (tmp_path / "empty").mkdir()

    assert "there is no file or folder" in refused(store, tmp_path / "gone.csv")
    assert "has no tables" in refused(store, tmp_path / "empty")
    assert "is not a table" in refused(store, write(tmp_path, "x", "t.xlsx"))


def test_rows_are_streamed_so_that_memory_does_not_grow_with_the_file(store, tmp_path):
    import tracemalloc

    path = tmp_path / "big.jsonl"
    with path.open("w") as file:
        for n in range(600):
            row = {"task": f"t{n % 400}", "model": f"m{n % 5}", "success": n % 3 == 0, "log": "x" * 20_000}
            file.write(json.dumps(row) + "\n")
    tracemalloc.start()
    try:
        done = imported(store, path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (done.rows, done.added) == (600, 600)
    # The file has 12 MB.
    assert peak < 5_000_000
    assert store.read.count_items("r", ItemFilter(statuses=("success",))) == 200


def test_every_database_takes_a_table_once(either_store, tmp_path):
    path = write(tmp_path, "task,model,success,cost\na,x,1,0.5\na,x,0,0.5\nb,y,1,\n")
    imported(either_store, path)

    again = imported(either_store, path)
    summary = summarize(either_store.read, Scope(run_id="r"), NOW)

    assert counted(again) == (0, 0, 3, 0)
    assert (summary.figures.overall.counts["success"], summary.cost.known_usd) == (2, 1.0)
    either_store.delete_batch("r")
    assert either_store.read.sessions(Scope()) == []


def test_an_encrypted_store_holds_no_readable_cell(tmp_path):
    path = write(tmp_path, "task,model,success,error\nthe-secret-task,x,0,the-secret-error\n")
    with Store(str(tmp_path / "sealed.db"), KEYS) as store:
        imported(store, path)
        assert counted(imported(store, path)) == (0, 0, 1, 0)
        assert told(store, "prompt", "error") == [("the-secret-task", "the-secret-error")]

    files = [each.read_bytes() for each in tmp_path.glob("sealed.db*")]
    assert not any(b"the-secret" in each for each in files)


def test_columns_of_scores_that_nobody_mapped_are_scores():
    names = ["Task", "success", "score:tone", "score:help", "other"]
    assert resolve({}, names) == {
        "task": "Task",
        "success": "success",
        "score:tone": "score:tone",
        "score:help": "score:help",
    }
    mapping = {"task": "other", "score:tone": "other", "score:help": "score:help"}
    assert resolve({"task": "other", "success": "", "score:tone": "other"}, names) == mapping


@pytest.mark.parametrize(
    ("value", "figure"),
    [
        (3, 3.0),
        ("$ 0.42", 0.42),
        ("-1e3", -1000.0),
        ("1_000", None),
        ("\u0663", None),
        ("x", None),
        (None, None),
        ([1], None),
        (10**400, None),
    ],
)
def test_numbers_of_cells(value, figure):
    assert as_figure(value) == figure


# White box: the file must change between the two passes of one call.
def test_a_file_that_changes_during_the_import_is_refused(tmp_path):
    path = write(tmp_path, "task,success\na,true\nb\n")
    table = _TableFile(path)
    mapping = _ColumnMapping({path: {"task": "task", "success": "success"}}, [], None, frozenset())
    with pytest.raises(UsageError) as error:
        list(mapping.outcomes(table, "file"))
    assert str(error.value) == f"{path}:3: the file changed during the import\nImport it again."
    path.write_text("task,success\na,maybe\n")
    with pytest.raises(UsageError) as error:
        list(mapping.outcomes(table, "file"))
    assert str(error.value).endswith("\nThe file changed during the import; import it again.")
