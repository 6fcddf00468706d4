"""Commands in forks do what commands started by a shell do."""

import subprocess

import pytest

from proctor.testing import eventually

PLAN = "runId: {name}\nmatrix: [{{prompt: hello, model: scripted/{model}, runs: {runs}}}]\n"


def write(proctor, name, model="echo", runs=1):
    (proctor.folder / f"{name}.yaml").write_text(PLAN.format(name=name, model=model, runs=runs))
    return f"{name}.yaml"


def result(done):
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["bacth"], ["batch", "plan.yaml", "--dry-run", "--json"]])
def test_code_and_output_are_those_of_a_process_of_its_own(proctor, words):
    write(proctor, "plan")

    assert result(proctor(*words)) == result(proctor.process(*words))


def test_nothing_is_left_in_the_server_for_the_next_command(proctor):
    plan = write(proctor, "again")
    assert proctor("batch", plan).returncode == 0
    (proctor.folder / plan).write_text("matrix: [{prompt: hello}]\n")

    refused = proctor("batch", plan)

    assert refused.returncode == 2
    assert "again.yaml" in refused.stderr


def test_who_kills_a_program_that_forwards_kills_the_command(proctor):
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 60, rules: [{reply: late}]}")
    words = [*proctor.program, "batch", write(proctor, "long", "slow")]
    process = subprocess.Popen(words, cwd=proctor.folder, env=proctor.environment, stderr=subprocess.DEVNULL)
    eventually(lambda: [run["status"] for run in proctor.json("runs")["runs"]] == ["running"])

    process.kill()
    process.wait()

    eventually(lambda: [run["status"] for run in proctor.json("runs")["runs"]] == ["interrupted"])
