"""`proctor import KIND` and `proctor import auto`, as typed."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from records_by_hand import (
    SESSION,
    atif,
    claude_lines,
    only,
    sessions,
    tau2,
    write_every_kind,
    write_json,
    write_lines,
)

from proctor.batch.ingest import import_paths
from proctor.records import kind_names
from proctor.store import Store
from recorded_files import check

RECORDED = Path(__file__).parent / "recorded"


def known(value):
    """A session as JSON, without members that have no value."""
    if isinstance(value, dict):
        return {name: known(each) for name, each in value.items() if each not in (None, "", [], {}, ())}
    if isinstance(value, list | tuple):
        return [known(each) for each in value]
    return str(value) if isinstance(value, datetime) else value


@pytest.mark.parametrize("kind", kind_names())
def test_a_record_is_read_as_recorded(kind, tmp_path):
    """All members of a session and of its events, in order."""
    read = sessions(kind, write_every_kind(tmp_path, kind)[kind])
    if kind == "tau-bench":
        read.append(only(kind, write_json(tmp_path / "results.json", tau2())))
    check(RECORDED / f"{kind}.txt", [known(asdict(session)) for session in read])


def test_a_folder_of_everything_is_recognized_and_imported(proctor, tmp_path):
    write_every_kind(tmp_path / "all")
    (tmp_path / "all" / "notes.txt").write_text("mine")

    done = proctor("import", "auto", "all", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["unreadable"]) == (0, 0)
    with proctor.open_store() as store:
        sources = {store.read.session(each)["source"] for each in told["sessions"]}
    assert sorted(sources) == kind_names()
    described = proctor("import", "--help").stdout
    assert [kind for kind in kind_names() if kind not in described] == []


def test_a_session_file_that_grew_replaces_what_was_imported_of_it(proctor, tmp_path):
    path = tmp_path / f"{SESSION}.jsonl"
    write_lines(path, claude_lines()[:3])
    before = proctor.json("import", "claude-code", path.name)
    write_lines(path, claude_lines())

    after = proctor.json("import", "auto", path.name)

    assert before["sessions"] == after["sessions"]
    with proctor.open_store() as store:
        row = store.read.session(after["sessions"][0])
        assert (row["toolCalls"], row["modelCalls"], row["totalTokens"]) == (1, 2, 527)


def test_what_cannot_be_read_is_named_and_counted_and_the_rest_is_imported(proctor, tmp_path):
    write_every_kind(tmp_path / "all")
    for name, text in (("broken.traj", "{"), ("broken.eval", "half of a lo"), ("notes.txt", "mine")):
        (tmp_path / "all" / name).write_text(text)
    write_json(tmp_path / "all" / "empty.traj.json", {"messages": []})

    done = proctor("import", "auto", "all")

    assert done.returncode == 1
    assert "broken.traj: it is not JSON" in done.stderr
    assert "empty.traj.json: it is not a trajectory" in done.stderr
    assert "broken.eval: nothing here knows what this is" in done.stderr
    assert "skipped 1 other file: notes.txt" in done.stderr
    assert "10 sessions imported" in done.stderr
    # One kind takes only its own, and knows a broken file by its name.
    one = proctor("import", "inspect", "all", "--json")
    assert (one.returncode, len(json.loads(one.stdout)["sessions"])) == (1, 1)
    assert "broken.eval: it is not JSON" in one.stderr


def test_pipes_and_links_that_lead_back_up_are_neither_waited_for_nor_followed(proctor, tmp_path):
    write_every_kind(tmp_path / "all")
    os.mkfifo(tmp_path / "all" / "pipe.jsonl")
    (tmp_path / "all" / "up").symlink_to(tmp_path / "all", target_is_directory=True)

    done = proctor("import", "auto", "all", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["unreadable"]) == (1, 1)
    assert "pipe.jsonl: nothing here knows what this is" in done.stderr
    assert len(told["sessions"]) == len(set(told["sessions"])) == len(kind_names())


def test_imported_sessions_are_shown_and_deleted_by_the_name_their_source_has_for_them(proctor, tmp_path):
    write_lines(tmp_path / f"{SESSION}.jsonl", claude_lines())
    proctor("import", "claude-code", f"{SESSION}.jsonl")
    unasked = proctor("sessions", "delete", SESSION)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert SESSION in proctor("sessions", "list").stdout
    shown = proctor("show", SESSION)
    assert (shown.returncode, "They pass." in shown.stdout) == (0, True)

    done = proctor("sessions", "delete", SESSION, "--yes")

    assert (done.returncode, done.stderr) == (0, "deleted 1 imported session\n")
    assert proctor.json("sessions", "list")["sessions"] == []
    assert proctor("sessions", "delete", SESSION, "--yes").returncode == 2


def test_a_session_of_a_run_is_deleted_with_its_run_alone(proctor, tmp_path):
    (tmp_path / "plan.yaml").write_text("runId: mine\nmatrix:\n  - {prompt: Say OK, model: scripted/ok}\n")
    proctor("batch", "plan.yaml")
    (session,) = proctor.json("sessions", "list")["sessions"]

    done = proctor("sessions", "delete", session["id"], "--yes")

    assert done.returncode == 2
    assert "proctor delete mine" in done.stderr


def test_records_in_folders_of_folders_get_the_service_and_the_log_group_they_do_not_name(tmp_path):
    write_every_kind(tmp_path / "outer" / "inner")

    with Store(str(tmp_path / "proctor.db")) as store:
        done = import_paths(
            store,
            [tmp_path / "outer"],
            "auto",
            datetime(2026, 5, 1, tzinfo=UTC),
            service="travel",
            log_group="/agents/travel",
        )
        rows = [store.read.session(session_id) for session_id in done.session_ids]

    assert len(rows) == len(kind_names())
    assert {(row["service"], row["logGroup"]) for row in rows} == {("travel", "/agents/travel")}


def test_trajectories_of_one_session_id_in_several_files_stay_apart(proctor, tmp_path):
    folder = tmp_path / "trial"
    for name in ("trajectory.json", "trajectory.cont-1.json"):
        write_json(folder / name, atif())

    first = json.loads(proctor("import", "atif", "trial", "--json").stdout)["sessions"]
    again = json.loads(proctor("import", "atif", "trial", "--json").stdout)["sessions"]

    in_one_file = len(sessions("atif", folder / "trajectory.json"))
    assert len(set(first)) == 2 * in_one_file
    assert again == first
