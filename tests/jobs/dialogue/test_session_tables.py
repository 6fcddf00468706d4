"""Sessions of a folder as rows: which files are read, what is wrong with others, and the columns of a row."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.jobs.dialogue import tables
from proctor.jobs.dialogue.tables import (
    Skipped,
    analysis_document,
    each_session,
    load_sessions,
    misshapen,
    patient_name,
    session_row,
    turn_rows,
    write_session_csv,
    write_turn_csv,
)
from recorded_files import check

MESSAGES = [
    {"role": "therapist", "content": "How are you today?"},
    {"role": "client", "content": "Fine, thanks."},
    {"role": "therapist", "content": "Good."},
]
ROLES = {
    "client": {"model": "a/x", "profile": "zoe", "parameters": {"temperature": 0.2}},
    "therapist": {"model": "b/y", "profile": "plain", "parameters": {}},
}
WHOLE = {
    "messages": MESSAGES,
    "client": "eeyore",
    "therapist": "MI",
    "run_id": 3,
    "combination": "eeyore-MI",
    "num_turns": 7,
    "roles": ROLES,
    "usage": {"client": {"total_tokens": 10}, "therapist": {"total_tokens": 5}, "total_cost": 0.5},
    "record": {
        "notes": [
            "a/x was not sent `seed`",
            "a/x was not sent `top_p`: why",
            "b/y was not sent `seed`",
            "other",
        ]
    },
    "scores": [
        {"evaluator": "warm", "value": 1, "target": "therapist.turn_0"},
        {"evaluator": "warm", "value": 4, "target": "therapist.turn_1"},
        {"evaluator": "tone", "label": "cold", "target": "client.turn_0"},
        {"evaluator": "tone", "label": "kind"},
        {"evaluator": "tone", "label": "kind"},
    ],
    "states": [{"turn": 0, "client.mood": 2, "seed": 1}, {"turn": 1, "therapist.step": "x", "other.y": 1}],
    "seed": 9,
}


def test_the_rows_of_sessions_and_messages_are_as_recorded() -> None:
    whole = {**WHOLE, "source_file": "f.json"}
    row = session_row(whole)
    assert list(row)[: len(tables.SESSION_COLUMNS)] == list(tables.SESSION_COLUMNS)
    rows = {
        "session": row,
        "of another tool": session_row({"messages": MESSAGES}),
        "with the record of a run": session_row({**whole, "record": {"tokens": 99, "cost_usd": 0.25}}),
        "of a task": session_row({**whole, "task": "refund", "actions": [{}, {}]}),
        "messages": list(turn_rows(whole)),
    }
    check(Path(__file__).parent / "recorded" / "rows.txt", rows)


@pytest.mark.parametrize(
    ("client", "therapist", "text"),
    [(0.2, 0.2, "0.2"), (0.2, 1, "0.2 / 1"), (None, 1.0, "1"), (0, None, "0"), (None, None, None)],
)
def test_the_temperature_of_both_sides(client, therapist, text):
    sides = (("client", client), ("therapist", therapist))
    roles = {side: {"parameters": {} if value is None else {"temperature": value}} for side, value in sides}
    assert session_row({"messages": [], "roles": roles})["temperature"] == text


@pytest.mark.parametrize(
    ("profile", "name"),
    [
        ({"name": " Zoë "}, "Zoë"),
        ({"name": "N/A", "persona": {"name": "Abe"}}, "Abe"),
        ({"profile": {"demographics": {"name": "Eve"}}}, "Eve"),
        ({"name": "unknown"}, "file"),
        ("text", "file"),
    ],
)
def test_the_name_of_a_patient(profile: object, name: str) -> None:
    assert patient_name({"profile": profile, "roles": {"client": {"profile": "file"}}}) == name
    assert patient_name({"client": "eeyore"}) == "eeyore"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"roles": []}, ""),
        ({"roles": [1]}, "`roles` is no mapping"),
        ({"usage": "x"}, "`usage` is no mapping"),
        ({"roles": {"client": "x"}}, "`roles.client` is no mapping"),
        ({"usage": {"therapist": {"total_tokens": "1"}}}, "`usage.therapist.total_tokens` is no number"),
        ({"num_turns": "3"}, "`num_turns` is no number"),
        ({"num_turns": float("nan")}, "`num_turns` is no number"),
        ({"num_turns": 1e300}, "`num_turns` is no number"),
        ({"num_turns": None}, ""),
        ({"scores": {"a": 1}}, "`scores` is no list"),
        ({"scores": [{"evaluator": "a", "value": 1}, {"value": 1}]}, "`scores[1]` names no evaluator"),
        ({"scores": [{"evaluator": "a", "value": "1"}]}, "`scores[0].value` is no number"),
    ],
)
def test_what_is_wrong_with_a_session(changes: dict[str, Any], problem: str) -> None:
    assert misshapen({**WHOLE, **changes}) == problem


def folder_of(folder: Path, **files: object) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


# White box: a file of the real limit would be too large for a test.
def test_the_sessions_of_a_folder_in_their_order(tmp_path: Path, monkeypatch: Any) -> None:
    session = {"messages": MESSAGES}
    folder = folder_of(
        tmp_path,
        a_run10=session,
        a_run2=session,
        b=[session, {"messages": 3}, {**session, "status": "error"}],
        summary=session,
        c="{",
        d={"messages": [1]},
        e={**session, "num_turns": "x"},
        f={**session, "status": "fail"},
    )
    (folder / tables.SUMMARY).write_text(json.dumps(session))
    (folder / ".hidden.json").write_text(json.dumps(session))
    skipped = Skipped()
    names = [Path(str(each["source_file"])).stem for each in each_session(folder, skipped=skipped)]
    expected = ["a_run2", "a_run10", "b", "f", *(["summary"] if tables.SUMMARY != "summary.json" else [])]
    assert names == expected
    reasons = {Path(path).stem: why.partition(":")[0] for path, why in skipped.files.items()}
    assert reasons == {"c": "it is not JSON", "e": "it is no session as simulations write them"}
    assert len(list(each_session(folder, failed=True))) == len(expected) + 1
    with pytest.warns(UserWarning, match="left out"):
        assert len(load_sessions(folder)) == len(expected)
    size = (folder / "a_run2.json").stat().st_size
    monkeypatch.setattr(tables, "LARGEST_BYTES", size)
    assert "a_run2" in [Path(str(each["source_file"])).stem for each in each_session(folder)]
    monkeypatch.setattr(tables, "LARGEST_BYTES", size - 1)
    assert "a_run2" not in [Path(str(each["source_file"])).stem for each in each_session(folder)]


def test_a_folder_without_sessions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        list(each_session(tmp_path / "none"))
    with pytest.raises(UsageError, match="there is no session in"):
        write_session_csv(tmp_path, tmp_path / "out.csv")
    folder_of(tmp_path, a="{")
    with pytest.raises(UsageError, match=r"that can be read\n.*a\.json: it is not JSON"):
        write_turn_csv(tmp_path, tmp_path / "out.csv", Skipped())


def test_tables_are_written_with_all_columns_of_all_rows(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=WHOLE, b={"messages": MESSAGES[:1]})
    rows = write_session_csv(folder, tmp_path / "out" / "s.csv")
    assert len(rows) == 2
    with (tmp_path / "out" / "s.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [*written[0]] == [*tables.SESSION_COLUMNS, "score.tone", "score.warm"]
    assert (written[0]["score.warm"], written[1]["score.warm"], written[1]["num_turns"]) == ("2.5", "", "0")
    assert write_turn_csv(folder, tmp_path / "t.csv") == 4
    with (tmp_path / "t.csv").open(encoding="utf-8") as file:
        header, *lines = list(csv.reader(file))
    assert header[:5] == list(tables.TURN_COLUMNS) and len(lines) == 4


def test_the_analysis_counts_what_it_leaves_out_and_names_stand_ins() -> None:
    broken = {**WHOLE, "status": "error"}
    assert analysis_document([broken], "x") is None
    stand_in = {**WHOLE, "stand_in": True, "run_id": 4}
    skipped = Skipped({"b.json": "why", "a.json": "why"})
    document = analysis_document([WHOLE, broken, stand_in], "name", skipped=skipped)
    assert document is not None
    assert (document["name"], document["sessions"], document["left_out"]) == ("name", 2, 1)
    assert document["unreadable"] == ["a.json", "b.json"] and document["stand_ins"] == ["a/x", "b/y"]
    assert document["measures"]
