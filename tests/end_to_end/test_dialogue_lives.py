"""Simulations are stopped, killed, extended and paid for like any other batch."""

import json
import os
import signal

import pytest
from conversations import TALKING, read, said, split

from databases import query
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS


def test_after_a_kill_files_and_summary_are_made_again_from_the_store(proctor, talking_desk) -> None:
    (talking_desk / "slow.yaml").write_text("latency_seconds: 0.05\n" + TALKING)
    words = split("simulate --num-runs 8 --max-turns 2 --max-workers 2 --seed 1 --model scripted/slow")
    running = proctor.start(*words, "--output-dir", "out")
    eventually(lambda: len(list(talking_desk.glob("out/*_run*.json"))) >= 2)
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=TIME_LIMIT_SECONDS)
    next(iter(talking_desk.glob("out/*_run*.json"))).unlink()

    resumed = proctor(*words, "--output-dir", "out", "--resume")

    assert resumed.returncode == 0, resumed.stderr
    assert len(list(talking_desk.glob("out/*_run*.json"))) == 8
    assert read(talking_desk / "out" / "batch_summary.json")["successful"] == 8


CUT_OFF = """
clients: [consistentMI, patientPsi]
therapists: [eliza, CBT]
num_runs: 2
max_turns: 8
max_workers: 8
seed: 7
loop_turns: 0
model_name: scripted/slow
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_dialogue_that_was_cut_off_goes_on_behind_its_last_turn_and_ends_as_it_would_have(
    proctor, talking_desk, how
) -> None:
    (talking_desk / "cut-off.yaml").write_text(CUT_OFF)
    words = split("simulate --config cut-off.yaml")
    (talking_desk / "slow.yaml").write_text(TALKING)
    assert proctor(*words, "--output-dir", "whole").returncode == 0
    (talking_desk / "slow.yaml").write_text("latency_seconds: 0.05\n" + TALKING)
    running = proctor.start(*words, "--output-dir", "cut")
    # Every dialogue has a few turns behind it, and none is at its end.
    with proctor.open_store() as store:
        eventually(lambda: turns_of(store) >= 8 * 8 + 20)
    running.send_signal(how)
    running.communicate(timeout=TIME_LIMIT_SECONDS)
    (talking_desk / "slow.yaml").write_text(TALKING)
    unfinished = 8 - len(list(talking_desk.glob("cut/*_run*.json")))

    resumed = proctor(*words, "--output-dir", "cut", "--resume")

    assert resumed.returncode == 0, resumed.stderr
    assert unfinished and f"{unfinished} dialogue" in resumed.stderr
    assert "will resume after the last completed turn" in resumed.stderr
    assert said(talking_desk / "cut", seeds=True) == said(talking_desk / "whole", seeds=True)
    cut = [read(path) for path in talking_desk.glob("cut/*_run*.json")]
    went_on = [one for one in cut if any("resumed after turn" in note for note in one["record"]["notes"])]
    assert len(went_on) == unfinished
    assert all(one["num_turns"] == 8 for one in went_on)
    # What all attempts took, not what the last one did.
    run_id = went_on[0]["record"]["batch_id"]
    with proctor.open_store() as store:
        paid = query(store, f'SELECT SUM("totalTokens") AS "n" FROM "sessions" WHERE "runId" = \'{run_id}\'')
    assert sum(one["record"]["tokens"] for one in cut) == paid[0]["n"]
    assert not (talking_desk / "cut" / ".unfinished").exists()


def turns_of(store) -> int:
    """Turns of all dialogues that the store knows of."""
    return int(query(store, 'SELECT COUNT(*) AS "n" FROM "iterations"')[0]["n"])


def kill_after_turns(proctor, talking_desk, words) -> None:
    """Start a simulation with a slow model, and kill it when two turns are recorded."""
    (talking_desk / "slow.yaml").write_text("latency_seconds: 0.1\n" + TALKING)
    running = proctor.start(*words)
    eventually(lambda: (talking_desk / "proctor-home" / "proctor.db").exists())
    with proctor.open_store() as store:
        eventually(lambda: turns_of(store) >= 2)
    running.kill()
    running.communicate(timeout=TIME_LIMIT_SECONDS)


def test_without_a_seed_a_dialogue_that_was_cut_off_keeps_the_luck_it_had(proctor, talking_desk) -> None:
    words = split("simulate --num-runs 1 --max-turns 4 --model scripted/slow --output-dir out")
    kill_after_turns(proctor, talking_desk, words)
    with proctor.open_store() as store:
        (step, *_) = query(store, 'SELECT "output" FROM "iterations" ORDER BY "step" DESC LIMIT 1')

    resumed = proctor(*words, "--resume")

    assert resumed.returncode == 0, resumed.stderr
    (file,) = talking_desk.glob("out/*_run0.json")
    assert read(file)["seed"] == json.loads(step["output"])["seed"]


def test_a_run_whose_roles_are_files_of_an_earlier_version_goes_on_with_them(proctor, talking_desk) -> None:
    words = split("simulate --num-runs 1 --max-turns 4 --seed 3 --model scripted/slow --output-dir out")
    kill_after_turns(proctor, talking_desk, words)
    folder = talking_desk / "proctor-home" / "dialogue-roles"
    assert not folder.exists()
    with proctor.open_store() as store:
        (batch,) = query(store, 'SELECT "runId" FROM "batches"')
        roles = query(store, 'SELECT "digest", "content" FROM "run_resources"')
        store._transaction(lambda connection: connection.run('DELETE FROM "run_resources"'))
    assert len(roles) == 2

    without = proctor("resume", batch["runId"])

    assert without.returncode == 1
    assert "is not stored with the run" in without.stdout + without.stderr
    folder.mkdir()
    for role in roles:
        (folder / f"{role['digest']}.json").write_text(role["content"])

    assert proctor("resume", batch["runId"], "--retry-errors").returncode == 0

    (file,) = talking_desk.glob("out/*_run0.json")
    assert any("resumed after turn" in note for note in read(file)["record"]["notes"])


def test_more_runs_extend_a_finished_batch(proctor, talking_desk) -> None:
    words = split("simulate --max-turns 1 --seed 1 --model scripted/talking --output-dir out")
    proctor(*words, "--num-runs", "2")
    first = {path.name: path.stat().st_mtime_ns for path in talking_desk.glob("out/*_run*.json")}

    more = proctor(*words, "--num-runs", "3", "--resume")

    assert more.returncode == 0, more.stderr
    assert "1 new dialogue" in more.stderr
    assert len(list(talking_desk.glob("out/*_run*.json"))) == 3
    assert all((talking_desk / "out" / name).stat().st_mtime_ns == when for name, when in first.items())


def test_a_folder_that_holds_a_simulation_is_not_written_over(proctor, talking_desk) -> None:
    words = split("simulate --num-runs 1 --max-turns 1 --model scripted/talking --output-dir out")
    proctor(*words)
    again = proctor(*words)

    assert again.returncode == 2
    assert "already contains a simulation" in again.stderr


def test_a_budget_stops_a_simulation_and_more_money_lets_it_go_on(proctor, talking_desk) -> None:
    (talking_desk / "dear.yaml").write_text(
        "num_runs: 6\nmax_turns: 2\nmax_workers: 1\nmodel_name: scripted/talking\nbudget_limit: 0.002\n"
        "prices: {scripted/talking: {input: 1.0, output: 1.0}}\n"
    )
    halted = proctor("simulate", "--config", "dear.yaml", "--output-dir", "out", "--json")
    spent = read(talking_desk / "out" / "batch_summary.json")
    resumed = proctor("resume", json.loads(halted.stdout)["runId"], "--budget", "9")

    assert halted.returncode == 3, halted.stderr
    assert spent["batch_status"] == "halted"
    assert spent["cost_usd"] <= 0.002
    assert resumed.returncode == 0, resumed.stderr
    assert read(talking_desk / "out" / "batch_summary.json")["successful"] == 6


def test_a_role_of_the_users_own_plays_from_a_folder_beside_ours(proctor, talking_desk) -> None:
    made = proctor("roles", "new", "landlord")
    listed = {role["name"]: role for role in proctor.json("roles")["roles"]}
    done = proctor("simulate", "--clients", "landlord", "--therapists", "eliza", "--num-runs", "1",
                   "--max-turns", "2", "--model", "scripted/talking", "--output-dir", "out")  # fmt: skip

    assert made.returncode == done.returncode == 0, made.stderr + done.stderr
    assert listed["landlord"]["builtIn"] is False
    assert listed["patientPsi"]["options"] == {"patient_type": "plain"}
    assert read(talking_desk / "out" / "landlord_eliza_run0.json")["profile"]["name"] == "Robin"


def test_a_role_that_is_changed_after_the_start_is_played_as_it_was(proctor, talking_desk) -> None:
    proctor("roles", "new", "landlord")
    (talking_desk / "slow.yaml").write_text("latency_seconds: 0.05\n" + TALKING)
    words = split(
        "simulate --clients landlord --therapists eliza --num-runs 3 --max-workers 1 --max-turns 2 "
        "--model scripted/slow --output-dir out"
    )
    running = proctor.start(*words)
    eventually(lambda: len(list(talking_desk.glob("out/*_run*.json"))) >= 1)
    (talking_desk / "roles" / "landlord" / "templates" / "en" / "system.j2").write_text("Changed.")
    running.communicate(timeout=TIME_LIMIT_SECONDS)

    assert running.returncode == 0
    assert (
        len({read(path)["roles"]["client"]["digest"] for path in talking_desk.glob("out/*_run*.json")}) == 1
    )


def test_a_changed_config_overwrites_no_finished_dialogue(proctor, talking_desk) -> None:
    simulate = "simulate --num-runs 2 --model scripted/talking --seed 1 --output-dir out"
    proctor(*split(f"{simulate} --max-turns 3"))
    before = {path.name: path.read_bytes() for path in (talking_desk / "out").glob("*_run*.json")}

    changed = [proctor(*split(f"{simulate} --max-turns 1 --resume")) for _ in range(2)]
    after = {path.name: read(path) for path in (talking_desk / "out").glob("*_run*.json")}

    assert [each.returncode for each in changed] == [0, 0]
    assert {name: (talking_desk / "out" / name).read_bytes() for name in before} == before
    new = {f"patientPsi_CBT_run{n}.v2.json" for n in (0, 1)}
    assert set(after) == {*before, *new}
    assert {after[name]["num_turns"] for name in new} == {1}
    summary = read(talking_desk / "out" / "batch_summary.json")["by_combination"]
    assert {name: part["avg_turns"] for name, part in summary.items()} == {
        "patientPsi_CBT": 3,
        "patientPsi_CBT (version 2)": 1,
    }
