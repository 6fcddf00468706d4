"""Dialogues as a user meets them: the documented commands and files, on scripted models."""

import json
import time
from pathlib import Path

from conversations import EXAMPLES, config, read, said, split

from databases import query
from proctor import run_batch


def test_the_documented_command_writes_the_documented_files(proctor, talking_desk) -> None:
    words = "simulate --clients patientPsi,consistentMI --therapists CBT --num_runs 2 --max_turns 2"
    done = proctor(*words.split(), "--model", "scripted/talking", "--output_dir", "out")

    summary = json.loads((talking_desk / "out" / "batch_summary.json").read_text())
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (talking_desk / "out").iterdir()) == [
        "batch_summary.json",
        "consistentMI_CBT_run0.json",
        "consistentMI_CBT_run1.json",
        "patientPsi_CBT_run0.json",
        "patientPsi_CBT_run1.json",
    ]
    assert list(summary)[:4] == ["total_runs", "successful", "failed", "by_combination"]
    assert (summary["total_runs"], summary["successful"], summary["failed"]) == (4, 4, 0)
    assert (
        summary["by_combination"]["patientPsi_CBT"] | {"num_runs": 2, "avg_turns": 2.0, "std_turns": 0.0}
        == (summary["by_combination"]["patientPsi_CBT"])
    )
    assert summary["stand_ins"] == ["scripted/talking"]


def test_without_a_folder_the_files_are_in_one_named_for_the_moment(proctor, talking_desk) -> None:
    document = proctor.json("simulate", "--num-runs", "1", "--max-turns", "1", "--model", "scripted/talking")

    folder = Path(document["outputDir"])
    assert folder.parent == talking_desk / "outputs" / "batch"
    assert time.strptime(folder.name, "%Y-%m-%d_%H-%M-%S")
    assert (folder / "patientPsi_CBT_run0.json").exists()


def test_a_session_file_holds_what_the_original_held_and_what_it_lacked(talking_desk) -> None:
    run_batch(config(output_dir="out", num_runs=1))

    session = json.loads((talking_desk / "out" / "patientPsi_CBT_run0.json").read_text())
    assert list(session)[:4] == ["profile", "messages", "num_turns", "usage"]
    assert session["profile"]["name"] == "Jonah"
    assert session["num_turns"] == 3
    assert [set(message) for message in session["messages"]] == [{"role", "content"}] * 6
    assert [message["role"] for message in session["messages"][:2]] == ["therapist", "client"]
    for side in ("client", "therapist"):
        assert session["usage"][side]["total_tokens"] > 0
        assert session["roles"][side]["model"] == "scripted/talking"
    assert session["usage"]["total_cost"] == 0
    assert (session["end_reason"], session["status"], session["stand_in"]) == ("max_turns", "success", True)
    assert session["record"]["model_calls"] == 6
    assert session["record"]["work_seconds"] >= 0


def test_one_seed_gives_the_same_words_byte_for_byte_and_another_gives_others(talking_desk) -> None:
    clients = ["patientPsi", "consistentMI"]
    for folder, seed in (("one", 42), ("two", 42), ("three", 43)):
        run_batch(
            config(output_dir=folder, seed=seed, clients=clients, therapists=["CBT", "eliza"], max_workers=3)
        )

    one, two, three = (said(talking_desk / name, seeds=True) for name in ("one", "two", "three"))
    assert json.dumps(one) == json.dumps(two)
    assert one["patientPsi_CBT_run0.json"]["messages"] != three["patientPsi_CBT_run0.json"]["messages"]
    assert one["patientPsi_CBT_run0.json"]["messages"] != one["patientPsi_CBT_run1.json"]["messages"]


def test_what_was_recorded_can_be_replayed_to_the_byte(talking_desk) -> None:
    run_batch(config(output_dir="one", record="tape.jsonl", temperature=0.0))
    run_batch(config(output_dir="two", replay="tape.jsonl", temperature=0.0))

    assert said(talking_desk / "one") == said(talking_desk / "two")


def test_a_run_that_fails_is_recorded_and_the_batch_goes_on(proctor, talking_desk) -> None:
    done = proctor(
        "simulate", "--num-runs", "4", "--max-turns", "2", "--max-workers", "1",
        "--model", "scripted/failing", "--output-dir", "out", "--therapists", "eliza",
    )  # fmt: skip

    summary = json.loads((talking_desk / "out" / "batch_summary.json").read_text())
    failed = [
        each for each in map(read, (talking_desk / "out").glob("*_run*.json")) if each["status"] == "error"
    ]
    assert done.returncode == 1
    assert summary["successful"] + summary["failed"] == 4
    assert summary["failed"] == len(failed) == len(summary["errors"]) > 0
    assert list(failed[0])[:5] == ["status", "client", "therapist", "run_id", "error"]
    assert "answered 500" in failed[0]["error"]
    assert failed[0]["caused_by"] == "infrastructure"


def test_a_dialogue_is_held_in_the_language_that_is_wanted(proctor, talking_desk) -> None:
    command = (
        "simulate --clients customer --therapists support --num-runs 1 --max-turns 2 --model scripted/talking"
    )
    done = proctor(*split(command), "--lang", "de", "--output-dir", "de")

    assert done.returncode == 0, done.stderr
    with proctor.open_store() as store:
        rows = query(store, 'SELECT "role", "name", "content" FROM "messages" ORDER BY "position"')
    told = [row["content"] for row in rows if row["role"] == "system"]
    assert told[0] == "[Moderator] Sie können jetzt mit der Sitzung beginnen."
    assert any("In dieser Sitzung bleibt noch 1 Runde" in text for text in told)
    assert any("Sie schreiben Deutsch" in text for text in told)
    first = read(talking_desk / "de" / "customer_support_run0.json")["messages"][0]
    assert first["content"].startswith("Hallo, Sie haben im März")


def test_a_role_without_the_wanted_language_is_played_in_english_and_that_is_noted(proctor, talking_desk):
    command = (
        "simulate --clients patientPsi --therapists MI --num-runs 1 --max-turns 1 --model scripted/talking"
    )
    done = proctor(*split(command), "--lang", "de", "--output-dir", "de")

    assert done.returncode == 0, done.stderr
    assert "note: MI has no templates in `de`: it is played in `en`" in done.stderr
    notes = read(talking_desk / "de" / "patientPsi_MI_run0.json")["record"]["notes"]
    assert "MI has no templates in de and was played in en" in notes


def test_a_simulation_is_a_run_like_any_other(proctor, talking_desk) -> None:
    words = split("simulate --therapists CBT,eliza --num-runs 1 --max-turns 2 --model scripted/talking")
    document = proctor.json(*words)

    shown = proctor.json("show", document["runId"])
    session = proctor.json("show", shown["items"][0]["sessionId"])
    report = proctor("report", "--run", document["runId"])
    assert {item["status"] for item in shown["items"]} == {"success"}
    assert [m["name"] for m in session["messages"] if m["role"] != "system"] == ["therapist", "client"] * 2
    assert len(session["iterations"]) == 2
    assert "### By therapist" in report.stdout
    assert "scripted or replayed models" in report.stdout


def test_the_example_with_roles_of_another_field_ends_well(proctor, talking_desk) -> None:
    config = str(EXAMPLES / "other-fields.yaml")
    done = proctor("simulate", "--config", config, "--output-dir", "out", "--json")

    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert document["successCount"] == document["itemCount"] > 0


def test_what_a_role_does_after_the_session_is_in_its_states(talking_desk) -> None:
    answer = '\'{"helpfulness": 4, "alliance": 2, "mood_change": 1}\''
    (talking_desk / "asked.yaml").write_text(
        f"rules: [{{match: answer honestly|honestly, reply: {answer}}}, {{reply: [Fine., So so., Well.]}}]\n"
    )

    (result,) = run_batch(
        config(clients=["clientCast"], therapists=["eliza"], num_runs=1, model_name="scripted/asked",
               output_dir="out", max_turns=1)
    )  # fmt: skip

    assert result["states"][-1]["client.helpfulness"] == 4


def test_a_counselor_that_meets_a_client_without_a_goal_says_which_goal_it_takes(proctor, talking_desk):
    def notes(client: str) -> str:
        words = (
            f"simulate --clients {client} --therapists cami --num-runs 1 --model scripted/talking --dry-run"
        )
        done = proctor(*words.split())
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "takes `goal` and `behavior` from its own profile" in notes("patientPsi")
    assert "own profile" not in notes("consistentMI")


def test_a_profile_in_the_language_is_used(proctor, talking_desk) -> None:
    role = talking_desk / "roles" / "guest"
    (role / "templates" / "de").mkdir(parents=True)
    (role / "profiles" / "de").mkdir(parents=True)
    (role / "role.yaml").write_text(
        "description: d\nplays: [client]\nsteps: [{say: hello}]\nstand_in: true\n"
    )
    (role / "templates" / "de" / "hello.j2").write_text("{{ profile.text }}")
    (role / "profiles" / "a.yaml").write_text("text: Hello.")
    (role / "profiles" / "de" / "a.yaml").write_text("text: Guten Tag.")

    results = run_batch(
        config(clients=["guest"], therapists=["eliza"], num_runs=1, max_turns=1, lang="de", output_dir="out")
    )

    assert results[0]["messages"][1]["content"] == "Guten Tag."


def test_the_summary_is_written_while_the_study_runs(talking_desk, monkeypatch) -> None:
    monkeypatch.setattr("proctor.jobs.dialogue.job.SUMMARY_SECONDS", 0.0)
    (talking_desk / "watch.py").write_text(
        "import json, pathlib, time\n\n\ndef seen(event):\n"
        # Longer than the writer gathers rows for one commit.
        "    time.sleep(0.05)\n"
        "    path = pathlib.Path(__file__).parent / 'out' / 'batch_summary.json'\n"
        "    return {'label': str(json.loads(path.read_text())['successful']), 'value': 1}\n"
    )

    results = run_batch(
        config(therapists=["eliza"], num_runs=12, max_workers=1, max_turns=1, output_dir="out",
               evaluators=["watch:seen"])
    )  # fmt: skip

    known = [int(score["label"]) for result in results for score in result["scores"]]
    assert max(known) > 0, "dialogues that follow find those before in the summary"
