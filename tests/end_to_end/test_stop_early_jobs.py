"""`stop_when` in experiments, simulations, benchmarks, and from Python."""

from pathlib import Path

import pytest
from harbours import VARIED, write_config

import proctor as library
from proctor.errors import UsageError

EXAMPLES = Path(__file__).parents[2] / "examples"
RULE = "stop_when: {{by: {by}, metric: 'metric:cooperation_level', scale: [0, 10], decided: true}}"


async def test_an_experiment_stops_when_a_factor_is_decided_with_all_its_files(harbour):
    rule = RULE.format(by="port")
    # Many more than are needed: on a slow machine the decision comes late.
    config = write_config(harbour.folder, runs=80, parallel=2, more=f"{VARIED}\n{rule}")

    done = await harbour.run("experiment", config)

    state = done["stopWhen"]
    assert (done["reason"], state["unit"]) == ("decided", "repeat")
    assert done["unfinishedCount"] > 10
    assert [each["value"] for each in state["intervals"]] == [8, 2]
    assert [each["outcome"] for each in state["decisions"]] == ["worse"]
    # Variations keep their numbers, whatever the order of the runs.
    files = sorted(path.name for path in (harbour.output / "runs").iterdir())
    assert len(files) == 160 - done["unfinishedCount"]
    numbers = {name[:7] for name in files}
    assert numbers == {"var-001", "var-002"}
    assert harbour.file("batch-state.json")["variations"][1]["modifications"]["actor_models"] == {
        "port": "openai/rash"
    }
    again = await harbour.run("experiment", config, "--resume")
    assert (again["reason"], again["unfinishedCount"]) == ("decided", done["unfinishedCount"])


METRIC = "by: port, metric: 'metric:cooperation_level'"


async def test_an_experiment_races_by_a_number_of_which_less_is_better(harbour):
    rule = f"stop_when: {{{METRIC}, scale: [10, 0], pick: 0.2}}"

    done = await harbour.run("experiment", write_config(harbour.folder, runs=30, more=f"{VARIED}\n{rule}"))

    # Eight of ten at one port, two at the other.
    assert done["stopWhen"]["decisions"][0]["reason"].startswith("use openai/rash: ")


async def test_runs_of_an_experiment_are_checked_against_those_of_a_stored_one(harbour):
    config = write_config(harbour.folder, runs=24, parallel=2, more=f"{VARIED}\nseed: 1")
    base = await harbour.run("experiment", config)
    rule = f"stop_when: {{{METRIC}, scale: [0, 10], check: 0.3, baseline: {base['runId']}}}"
    write_config(harbour.folder, runs=24, parallel=2, more=f"{VARIED}\nseed: 1\n{rule}")
    again = harbour.folder / "again.yaml"
    again.write_text(Path(config).read_text().replace("experiments/fees", "experiments/again"))

    done = await harbour.run("experiment", str(again))

    assert [each["outcome"] for each in done["stopWhen"]["decisions"]] == ["pass", "pass"]


async def test_an_experiment_names_the_place_of_a_factor_that_it_does_not_vary(harbour):
    config = write_config(harbour.folder, more=f"{VARIED}\n{RULE.format(by='color')}")

    done = harbour.proctor("experiment", config)

    assert done.returncode == 2
    assert "batch-config.yaml:" in done.stderr and "no item has a factor color" in done.stderr
    assert "There are: port, variation" in done.stderr


def test_a_simulation_stops_early_and_writes_the_files_of_what_it_ran(proctor):
    for name in ("as-client.yaml", "as-therapist.yaml"):
        text = (EXAMPLES / "dialogues" / name).read_text()
        (proctor.folder / name).write_text(f"latency_seconds: 0.04\n{text}")
    (proctor.folder / "talks.yaml").write_text(
        "clients: [patientPsi, consistentMI, eeyore]\ntherapists: [CBT, MI]\nnum_runs: 20\n"
        "max_turns: 1\nmax_workers: 2\n"
        "client_model: scripted/as-client\ntherapist_model: scripted/as-therapist\n"
        "stop_when: {by: therapist, width: 0.8}\n"
    )

    done = proctor.json("simulate", "--config", "talks.yaml", "--output-dir", "out")

    state = done["stopWhen"]
    assert done["reason"] == "decided" and done["unfinishedCount"] > 0
    assert {each["name"] for each in state["intervals"]} == {"CBT", "MI"}
    files = list((proctor.folder / "out").glob("*_run*.json"))
    assert len(files) == 120 - done["unfinishedCount"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    return tmp_path


def test_items_in_python_stop_early(home):
    for name in ("right", "wrong"):
        (home / f"{name}.yaml").write_text(f"{{latency_seconds: 0.02, rules: [{{reply: {name}}}]}}")
    items = [
        library.Item(
            prompt=f"question {number}",
            model=f"scripted/{model}",
            details={"expect": {"contains": "right"}},
            factors={"model": model},
        )
        for number in range(80)
        for model in ("wrong", "right")
    ]

    run = library.run(items=items, stop_when={"by": "model", "decided": True}, concurrency=2, progress=False)

    state = run.summary()["stopWhen"]
    assert run.reason == "decided" and state["isDecided"]
    assert run.summary()["unfinishedCount"] > 50
    (success, *_) = library.compare(run, by="model").comparison.contrasts
    assert success.difference.is_anytime and success.is_significant
    with pytest.raises(UsageError, match="no item has a factor color"):
        library.run(items=items, stop_when={"by": "color", "width": 0.1}, progress=False)
