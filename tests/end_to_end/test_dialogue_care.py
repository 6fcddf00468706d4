"""Dialogues: files that cannot be read, thoughts that nobody hears, and what is foreseen."""

import json

import pytest
from conversations import config, read, rows

import proctor as proctor_package
from proctor import load_sessions, run_batch
from proctor.errors import PlanError, UsageError

SESSION = {
    "profile": {"name": "Ann"},
    "messages": [{"role": "therapist", "content": "How are you?"}, {"role": "client", "content": "Tired."}],
    "num_turns": 1,
}


@pytest.fixture
def mixed(talking_desk):
    """A folder with one good session, and files that are none."""
    folder = talking_desk / "mixed"
    folder.mkdir()
    (folder / "good_run0.json").write_text(json.dumps(SESSION))
    (folder / "cut_run1.json").write_text(json.dumps(SESSION)[:40])
    (folder / "odd_run2.json").write_text(json.dumps({**SESSION, "roles": [1]}))
    (folder / "odd_run3.json").write_text(
        json.dumps({**SESSION, "scores": [{"evaluator": "x", "value": "y"}]})
    )
    return folder


@pytest.mark.parametrize("level", ["session", "turn"])
def test_a_file_that_cannot_be_read_is_named_and_counted_and_the_others_are_exported(proctor, mixed, level):
    words = ("export", "--input_dir", "mixed", "--output", "t.csv", "--level", level, "--stats")

    done, told = proctor(*words), json.loads(proctor(*words, "--json").stdout)

    assert done.returncode == 0
    assert "cut_run1.json: it is not JSON" in done.stderr and "`roles` is no mapping" in done.stderr
    assert "3 files in the folder could not be read" in done.stderr
    assert len(rows("t.csv")) == (1 if level == "session" else 2) == told["rows"]
    assert len(told["skipped"]) == 3
    analysis = proctor.json("analyze", "mixed")
    assert (analysis["sessions"], len(analysis["unreadable"])) == (1, 3)
    assert "cut_run1.json: it is not JSON" in proctor("analyze", "mixed").stderr


def test_python_is_warned_of_what_it_does_not_get(mixed):
    with pytest.warns(UserWarning, match="left out") as warned:
        assert len(load_sessions(mixed)) == 1

    assert any("cut_run1.json: it is not JSON" in str(each.message) for each in warned)


def test_a_folder_of_nothing_that_can_be_read_is_refused_with_the_reason(proctor, mixed):
    (mixed / "good_run0.json").unlink()

    done = proctor("export", "--input_dir", "mixed", "--output", "t.csv")

    assert done.returncode == 2
    assert "that can be read" in done.stderr and "it is not JSON" in done.stderr


def test_half_a_character_does_not_cost_the_table(proctor, mixed):
    broken = {**SESSION, "messages": [{"role": "client", "content": "tired \ud83d"}]}
    (mixed / "half_run4.json").write_text(json.dumps(broken))

    assert proctor("export", "--input_dir", "mixed", "--output", "t.csv", "--level", "turn").returncode == 0
    assert [row["content"] for row in rows("t.csv")][-1] == "tired ?"


def test_a_session_has_the_word_that_most_of_its_messages_got(proctor, mixed):
    scores = [
        {"evaluator": "tone", "label": word, "target": "client.turn_0"} for word in ("warm", "warm", "cold")
    ]
    (mixed / "good_run0.json").write_text(json.dumps({**SESSION, "scores": scores}))

    proctor("export", "--input_dir", "mixed", "--output", "t.csv")

    assert rows("t.csv")[0]["score.tone"] == "warm"


def test_statistics_have_the_digits_that_matter(proctor, mixed):
    for number in range(3):
        held = {**SESSION, "record": {"cost_usd": 0.0012 + number / 1e4, "tokens": 123456}}
        (mixed / f"good_run{number}.json").write_text(json.dumps(held))

    lines = proctor("export", "--input_dir", "mixed", "--output", "t.csv", "--stats").stdout.splitlines()

    costs = next(line.split() for line in lines if line.startswith("cost_usd "))
    assert (costs[1:3], costs[4:6]) == (["3", "0.0013"], ["0.0012", "0.0014"])
    assert any("123,456" in line for line in lines)


def test_nobody_hears_what_a_model_thinks_aloud(talking_desk):
    (talking_desk / "a.yaml").write_text('rules:\n  - reply: "<think>SLY</think>\\n\\nI am tired."\n')
    (talking_desk / "b.yaml").write_text('rules:\n  - reply: "SLY as well</think>Since when?"\n')

    (result,) = run_batch(
        config(output_dir="out", num_runs=1, client_model="scripted/a", therapist_model="scripted/b")
    )

    assert {message["content"] for message in result["messages"]} == {"I am tired.", "Since when?"}
    assert "SLY" not in json.dumps(read(talking_desk / "out" / "patientPsi_CBT_run0.json"))


def test_a_dry_run_of_a_resume_names_the_dialogues_that_would_be_new(proctor, talking_desk):
    run_batch(config(output_dir="out"))
    words = "simulate --model scripted/talking --max-turns 3 --seed 42 --output-dir out --num-runs 3"

    told = proctor.json(*words.split(), "--resume", "--dry-run")

    assert told["resume"]["new"] == ["patientPsi_CBT_run2.json"]
    assert not (talking_desk / "out" / "patientPsi_CBT_run2.json").exists()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"scale": "scalar", "range": [1, 5], "passes_at": 6}, "no session can pass the evaluator `warmth`"),
        ({"scale": "categorical", "labels": ["a", "b"], "passes_at": 1}, "has no number to compare with"),
        ({"paradigm": "extracton"}, "has no scale `extracton`"),
    ],
)
def test_a_pass_mark_that_cannot_be_met_is_refused_before_anyone_speaks(talking_desk, entry, said):
    evaluators = [{"name": "warmth", "instructions": "How warm?", **entry}]

    with pytest.raises((PlanError, UsageError), match=said):
        run_batch(config(output_dir="out", evaluators=evaluators))

    assert not (talking_desk / "out").exists()


def test_the_analysis_tells_apart_a_role_that_several_models_played(proctor, talking_desk):
    (talking_desk / "brief.yaml").write_text("rules:\n  - reply: [Yes., No., Why.]\n")
    run_batch(
        config(
            output_dir="out",
            client_model=["scripted/talking", "scripted/brief"],
            therapist_model="scripted/talking",
        )
    )

    document = json.loads(proctor("analyze", "out", "--metric", "client_words", "--json").stdout)

    (measure,) = document["measures"]
    clients = {cell["client"]: cell["mean"]["value"] for cell in measure["cells"]}
    assert clients["patientPsi (scripted/brief)"] == 3
    assert clients["patientPsi (scripted/talking)"] > 6
    assert {each["source"]: each["share"] for each in measure["components"]}["client"] > 0.5
    assert not (talking_desk / "out" / "analysis" / "variance.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clients": ["patientPsi", "nobody"]}, "BatchConfig.clients[1]: there is no role called `nobody`"),
        ({"num_runs": 0}, "BatchConfig.num_runs: "),
        ({"temperature": 5.0}, "BatchConfig.temperature"),
        ({"therapists": [{"role": "CBT", "modell": "x"}]}, "BatchConfig.therapists[0].modell: "),
        ({"evaluators": ["nothing"]}, "BatchConfig.evaluators[0]: there is no rubric called `nothing`"),
        ({"pairs": [["patientPsi", "MI"]]}, "BatchConfig.pairs[0]: there is no therapist `MI`"),
    ],
)
def test_errors_from_python_name_the_argument(talking_desk, given: dict, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        run_batch(config(output_dir="out", **given))

    assert message in str(refused.value)
    assert "command line" not in str(refused.value)
    assert ":1:1" not in str(refused.value)


def test_errors_of_overrides_of_run_name_them_and_those_of_the_file_its_lines(talking_desk) -> None:
    (talking_desk / "study.yaml").write_text("clients: [patientPsi]\ntherapists: [nobody]\n")

    with pytest.raises(UsageError) as refused:
        proctor_package.run("study.yaml", clients=["nobody"], home=str(talking_desk / "home"))

    assert "proctor.run.clients[0]: there is no role called `nobody`" in str(refused.value)
    assert "study.yaml:2:14: there is no role called `nobody`" in str(refused.value)
