"""`proctor import KIND PATH… --run NAME`: sessions of other tools as the items of a run."""

import json
from datetime import UTC, datetime

from records_by_hand import (
    SESSION,
    claude_lines,
    inspect_sample,
    sessions,
    swe_agent,
    tau2,
    tau_run,
    write_eval,
    write_every_kind,
    write_json,
    write_lines,
)

from proctor.records import kind_names
from proctor.session import Session
from proctor.store import Store

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def rows(proctor, run):
    with proctor.open_store() as store:
        return store.read.items(run, limit=1000)


def write_experiment(folder, resolved=("t-1",)):
    """Two instances of SWE-agent, of which one was resolved."""
    for name in ("t-1", "t-2"):
        write_json(folder / name / f"{name}.traj", swe_agent())
    write_json(folder / "results.json", {"resolved_ids": list(resolved)})
    return folder


def test_the_report_counts_what_the_records_say_and_the_run_cannot_be_resumed(proctor, tmp_path):
    write_experiment(tmp_path / "exp")
    alone = proctor.json("import", "swe-agent", "exp")

    # Sessions that were imported before join the run.
    joined = proctor.json("import", "swe-agent", "exp", "--run", "swe")
    assert joined["sessions"] == alone["sessions"]
    assert (joined["runId"], joined["added"]) == ("swe", 2)
    assert len(proctor.json("sessions", "list")["sessions"]) == 2

    report = proctor("report", "--run", "swe").stdout
    assert "50% success rate (1 of 2 evaluated items" in report
    assert "| fail | checks_failed | swe-agent | gpt-4o |" in report
    assert "Unchecked" not in report
    # An unknown duration is not zero.
    items = rows(proctor, "swe")
    assert [(row["startedAt"], row["finishedAt"]) for row in items] == [(None, None)] * 2
    with proctor.open_store() as store:
        assert [store.read.session(row["sessionId"])["workSeconds"] for row in items] == [None, None]
    for words in (("resume", "swe"), ("resume", "swe", "--retry-failed")):
        refused = proctor(*words)
        assert refused.returncode == 2
        assert "an imported run cannot be resumed; import again" in refused.stderr


def test_a_run_of_ours_is_not_imported_into_and_nothing_makes_no_run(proctor, tmp_path):
    write_experiment(tmp_path / "exp")
    (tmp_path / "broken.traj").write_text("{")
    with proctor.open_store() as store:
        store.create_batch({"runId": "mine", "createdAt": "2026", "job": "coding", "status": "completed"}, [])

    done = proctor("import", "swe-agent", "exp", "--run", "mine")

    assert (done.returncode, "the run mine exists and was not imported" in done.stderr) == (2, True)
    assert proctor.json("sessions", "list")["sessions"] == []
    assert proctor("import", "swe-agent", "broken.traj", "--run", "none").returncode == 2
    assert [run["runId"] for run in proctor.json("runs")["runs"]] == ["mine"]


def test_sessions_of_no_run_are_counted_by_what_they_say_too(proctor, tmp_path):
    write_experiment(tmp_path / "exp")
    write_lines(tmp_path / f"{SESSION}.jsonl", claude_lines())

    proctor("import", "auto", "exp", f"{SESSION}.jsonl")

    report = proctor("report", "--start-date", "2020-01-01").stdout
    assert "67% success rate (2 of 3 evaluated items" in report
    assert "1 success of 2 is an imported session without a recorded score" in report
    assert "| swe-agent | 2 (1 to 2) | 50% | needs more tasks |" in report
    assert "| fail | checks_failed | swe-agent | gpt-4o |" in report


def test_items_have_task_model_agent_and_repeat_of_their_records(proctor, tmp_path):
    tau = write_json(
        tmp_path / "tool-calling-gpt-4o-0.0_range_0--1_user.json",
        [tau_run(3), {**tau_run(3, 0.0), "trial": 1}],
    )
    write_json(tmp_path / "tau2.json", tau2())
    write_eval(tmp_path / "sums.eval", inspect_sample())
    proctor("import", "auto", "sums.eval", "tau2.json", tau.name, "--run", "r")

    told = {(row["prompt"], row["repeat"]): row for row in rows(proctor, "r")}

    assert set(told) == {("3", 1), ("3", 2), ("roaming", 1), ("sums/1", 1)}
    assert [told["3", n]["status"] for n in (1, 2)] == ["success", "fail"]
    assert json.loads(told["3", 1]["factors"]) == {"task": "3", "agent": "tool-calling", "model": "gpt-4o"}
    assert json.loads(told["roaming", 1]["factors"])["domain"] == "telecom"
    assert (told["roaming", 1]["status"], told["roaming", 1]["costUsd"]) == ("fail", 0.005)


def test_each_record_says_its_task(tmp_path):
    tasks = {kind: sessions(kind, path)[0].task for kind, path in write_every_kind(tmp_path).items()}

    assert tasks == {
        **dict.fromkeys(("atif", "claude-code", "codex", "copilot", "cursor", "patienthub"), ""),
        "inspect": "sums/1",
        "mini-swe-agent": "task-1",
        "swe-agent": "task-2",
        "tau-bench": "3",
    }


def test_importing_twice_makes_no_second_copies(proctor, tmp_path):
    write_every_kind(tmp_path / "all")
    first = proctor("import", "auto", "all", "--run", "r")
    before = rows(proctor, "r")

    again = proctor("import", "auto", "all", "--run", "r")

    assert f"imported into the run r ({len(kind_names())} new, 0 replaced)" in first.stderr
    assert f"imported into the run r (0 new, {len(kind_names())} replaced)" in again.stderr
    assert [(row["id"], row["position"], row["status"]) for row in rows(proctor, "r")] == [
        (row["id"], row["position"], row["status"]) for row in before
    ]


def test_a_record_that_changed_changes_its_item_with_or_without_the_run(proctor, tmp_path):
    write_experiment(tmp_path / "exp")
    proctor("import", "swe-agent", "exp", "--run", "swe")

    write_experiment(tmp_path / "exp", resolved=("t-1", "t-2"))
    proctor("import", "swe-agent", "exp")

    assert [row["status"] for row in rows(proctor, "swe")] == ["success", "success"]


def test_a_second_run_gets_copies_and_deleting_it_leaves_the_first(proctor, tmp_path):
    write_experiment(tmp_path / "exp")
    for run in ("one", "two", "two"):
        proctor("import", "swe-agent", "exp", "--run", run)
    proctor("delete", "two", "--yes")

    assert len(rows(proctor, "one")) == 2
    assert len(proctor.json("sessions", "list")["sessions"]) == 2
    assert proctor("import", "swe-agent", "exp", "--run", "two").returncode == 0
    assert len(rows(proctor, "two")) == 2


def test_the_same_task_of_two_experiments_is_repeated(proctor, tmp_path):
    for name in ("exp1", "exp2"):
        write_experiment(tmp_path / name)
        proctor("import", "swe-agent", name, "--run", "swe")

    repeats = sorted((row["prompt"], row["repeat"]) for row in rows(proctor, "swe"))
    assert repeats == [("t-1", 1), ("t-1", 2), ("t-2", 1), ("t-2", 2)]


def test_spans_that_arrive_later_change_the_item_of_their_session(proctor, tmp_path):
    write_lines(tmp_path / "one.jsonl", [_span("s1", "a", 1)])
    write_lines(tmp_path / "two.jsonl", [_span("s1", "b", 2, failed=True)])

    proctor("import", "otlp", "one.jsonl", "--run", "spans")
    before = rows(proctor, "spans")
    proctor("import", "otlp", "two.jsonl")

    (first,), (later,) = before, rows(proctor, "spans")
    assert (first["prompt"], first["status"], first["agent"]) == ("book-a-flight", "success", "travel")
    assert (later["id"], later["status"]) == (first["id"], "fail")
    proctor("delete", "spans", "--yes")
    proctor("import", "otlp", "one.jsonl")
    assert len(proctor.json("sessions", "list")["sessions"]) == 1


def _span(session, span, second, *, failed=False):
    began = 1_772_000_000_000_000_000 + second * 1_000_000_000
    return {
        "traceId": span * 32,
        "spanId": span * 16,
        "name": "invoke_agent travel",
        "startTimeUnixNano": began,
        "endTimeUnixNano": began + 500_000_000,
        "status": {"code": "ERROR" if failed else "OK"},
        "scope": {"name": "agents"},
        "resource": {"attributes": {"service.name": "travel"}},
        "attributes": {
            "session.id": session,
            "task.id": "book-a-flight",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "travel",
        },
    }


def test_an_interrupted_import_is_seen_and_importing_again_completes_it(tmp_path):
    with Store(str(tmp_path / "store.db")) as store:
        store.imported_runs.begin("r", NOW, "1")
        store.save_imported(Session(external_id="s", source="x", task="t", status="fail"), NOW, "r")
        assert store.read.batch("r", NOW)["status"] == "interrupted"

        assert store.imported_runs.finish("r", NOW) == 1
        assert store.read.batch("r", NOW)["status"] == "completed"
