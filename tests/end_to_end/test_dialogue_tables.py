"""Dialogues as tables and in Python: the documented exports and snippets run as printed."""

import json
import re
from pathlib import Path

import pytest
from conversations import EXAMPLES, ROOT, config, read, rows

from proctor import BatchConfig, aggregate_results, load_sessions, run_batch, turns_to_dataframe


def test_the_documented_python_runs_as_printed(talking_desk) -> None:
    config = BatchConfig(
        clients=["patientPsi", "consistentMI"],
        therapists=["CBT"],
        num_runs=5,
        max_turns=20,
        max_workers=4,
        seed=42,
        model_name="scripted/talking",
    )
    config.max_turns = 3

    results = run_batch(config)
    summary = aggregate_results(results, config.output_dir)

    assert f"Completed: {summary['successful']}/{summary['total_runs']}" == "Completed: 10/10"
    assert read(Path(config.output_dir) / "batch_summary.json") == summary


def test_the_documented_pandas_and_matplotlib_run_as_printed(talking_desk) -> None:
    run_batch(config(output_dir="out", num_runs=4))
    text = (ROOT / "docs" / "dialogues.md").read_text()
    (snippet,) = [part for part in text.split("```") if part.startswith("python\nimport pandas")]
    program = snippet.removeprefix("python\n")
    assert "df.groupby('patient_name').mean()" in program

    exec(
        "import matplotlib\nmatplotlib.use('Agg')\n"
        + program.replace("outputs/batch/2026-01-19_14-30-00", "out"),
        {},
    )

    assert (talking_desk / "turns_comparison.png").stat().st_size > 1000


def test_the_documented_exports_have_the_documented_columns_first(proctor, talking_desk) -> None:
    run_batch(config(output_dir="out", clients=["patientPsi"], num_runs=2, max_turns=2))

    by_session = proctor("export", "--input_dir", "out", "--output", "results.csv", "--stats")
    by_turn = proctor("export", "--input_dir", "out", "--output", "messages.csv", "--level", "turn")

    sessions, turns = rows("results.csv"), rows("messages.csv")
    assert by_session.returncode == by_turn.returncode == 0, by_session.stderr + by_turn.stderr
    assert list(sessions[0])[:6] == [
        "source_file", "patient_name", "num_turns", "total_messages", "therapist_words", "client_words",
    ]  # fmt: skip
    assert list(turns[0]) == ["session_file", "turn_idx", "role", "content", "word_count"]
    assert [row["patient_name"] for row in sessions] == ["Jonah", "Marta"]
    assert [row["turn_idx"] for row in turns[:4]] == ["0", "0", "1", "1"]
    assert sum(int(row["word_count"]) for row in turns if row["role"] == "client") == (
        sum(int(row["client_words"]) for row in sessions)
    )
    assert "num_turns" in by_session.stdout and "MEAN" in by_session.stdout


def test_the_analysis_says_where_the_variance_comes_from(proctor, talking_desk) -> None:
    for name in ("rehearsal", "as-client", "as-therapist"):
        (talking_desk / f"{name}.yaml").write_text((EXAMPLES / f"{name}.yaml").read_text())
    proctor("simulate", "--config", "rehearsal.yaml", "--output-dir", "out")

    document = proctor.json("analyze", "out", "--report")

    words = next(each for each in document["measures"] if each["measure"] == "therapist_words")
    shares = {each["source"]: each["share"] for each in words["components"]}
    assert (document["sessions"], document["left_out"]) == (36, 0)
    assert read(talking_desk / "out" / "analysis" / "variance.json")["sessions"] == 36
    assert len(words["cells"]) == 12
    # Three dialogues of a combination carry no interval, and that is said.
    assert all(cell["mean"]["low"] is None and cell["mean"]["note"] for cell in words["cells"])
    assert words["overall"]["low"] <= words["overall"]["value"] <= words["overall"]["high"]
    assert document["rule"] in (talking_desk / "out" / "analysis" / "analysis-report.md").read_text()
    # Each therapist has lines of its own there, and the clients change nothing in them.
    assert shares["therapist"] > 0.5 > shares["client"]
    assert sum(share for share in shares.values() if share is not None) == pytest.approx(1)
    (therapist,) = [each for each in words["components"] if each["source"] == "therapist"]
    assert therapist["low"] <= therapist["variance"] <= therapist["high"]
    assert "levels only" in therapist["note"]
    page = (talking_desk / "out" / "analysis" / "analysis-report.html").read_text()
    assert "scripted or replayed models" in page and "<script" not in page
    report = (talking_desk / "out" / "analysis" / "analysis-report.md").read_text()
    shown = re.findall(r"!\[[^\]]+\]\((plots/[^)]+\.svg)\)", report)
    assert set(shown) == {f"plots/{each.name}" for each in (talking_desk / "out/analysis/plots").iterdir()}
    assert any("therapist-words-share-of-the-variance" in name for name in shown)
    assert "![" not in proctor("analyze", "out").stdout, "a terminal shows no plots"


def test_the_analysis_of_a_column_there_is_none_of_names_those_there_are(proctor, talking_desk) -> None:
    run_batch(config(output_dir="out", num_runs=1, max_turns=1))

    done = proctor("analyze", "out", "--metric", "mood")

    assert done.returncode == 2
    assert "num_turns" in done.stderr


def test_dialogues_that_were_broken_off_count_nowhere(proctor, talking_desk) -> None:
    """One rule in summary, table and analysis: what came to its end, also if it failed or ended in a loop."""
    run_batch(config(output_dir="out", num_runs=6, max_turns=2))
    changes = {
        0: {"status": "error", "reason": "model_failed"},
        1: {"status": "timeout", "reason": "timeout"},
        2: {"status": "fail", "reason": "empty_reply"},
        3: {"status": "fail", "reason": "checks_failed"},
        4: {"status": "fail", "reason": "loop"},
    }
    results = []
    for run in range(6):
        path = talking_desk / "out" / f"patientPsi_CBT_run{run}.json"
        document = {**read(path), **changes.get(run, {}), "num_turns": 100 if run < 3 else run}
        path.write_text(json.dumps(document))
        results.append(document)

    proctor("export", "--input_dir", "out", "--output", "t.csv")
    summary = aggregate_results(results, "elsewhere")["by_combination"]["patientPsi_CBT"]
    document = proctor.json("analyze", "out", "--metric", "num_turns")

    assert [row["run_id"] for row in rows("t.csv")] == ["3", "4", "5"]
    assert (summary["counted"], summary["avg_turns"]) == (3, 4)
    (turns,) = document["measures"]
    assert (document["sessions"], document["left_out"]) == (3, 3)
    assert (turns["overall"]["n"], turns["overall"]["value"]) == (3, 4)


def test_a_varied_temperature_is_a_column_and_a_factor(proctor, talking_desk) -> None:
    run_batch(config(output_dir="out", num_runs=6, max_turns=2, temperature=[0.0, 1.0]))

    proctor("export", "--input_dir", "out", "--output", "t.csv")
    document = proctor.json("analyze", "out", "--metric", "client_words", "--by", "temperature")

    assert {row["temperature"] for row in rows("t.csv")} == {"0", "1"}
    (words,) = document["measures"]
    assert [(cell["settings"], cell["mean"]["n"]) for cell in words["cells"]] == [
        ({"temperature": "0"}, 6),
        ({"temperature": "1"}, 6),
    ]
    assert (words["by"], [each["contrast"] for each in words["effects"]]) == ("temperature", ["1 - 0"])
    refused = proctor("analyze", "out", "--by", "weather")
    assert refused.returncode == 2 and "no factor `weather`" in refused.stderr


def test_states_and_scores_of_each_message_are_in_the_table_of_turns(proctor, talking_desk) -> None:
    (talking_desk / "moody.yaml").write_text(
        "rules:\n  - {match: Where does the patient stand, reply: "
        '\'{"control": 2, "efficacy": 3, "awareness": 4, "reward": 5, "reasoning": "so"}\'}\n'
        "  - {match: '\"score\":', reply: '{\"score\": 3}'}\n  - {reply: [One., Two., Three.]}\n"
    )
    evaluator = {"name": "warmth", "instructions": "How warm?", "level": "turn", "target": "therapist"}
    run_batch(
        config(clients=["simPatient"], num_runs=1, max_turns=2, model_name="scripted/moody",
               evaluators=[evaluator], output_dir="out", loop_turns=0)
    )  # fmt: skip

    proctor("export", "--input_dir", "out", "--output", "turns.csv", "--level", "turn")

    table = rows("turns.csv")
    assert [row["state.control"] for row in table if row["role"] == "client"] == ["2.0", "2.0"]
    assert [row["state.control"] for row in table if row["role"] == "therapist"] == ["", ""]
    assert [row["score.warmth"] for row in table if row["role"] == "therapist"] == ["3.0", "3.0"]
    pytest.importorskip("pandas")
    frame = turns_to_dataframe(load_sessions("out"))
    assert list(frame[frame.role == "client"]["state.control"]) == [2, 2]
    assert set(frame.client) == {"simPatient"}
