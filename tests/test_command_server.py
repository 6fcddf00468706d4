"""Commands in forks do what commands started by a shell do."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

PLAN = "runId: {name}\nmatrix: [{{prompt: hello, model: scripted/{model}, runs: {runs}}}]\n"


def write(proctor, name, model="echo", runs=1):
    (proctor.folder / f"{name}.yaml").write_text(PLAN.format(name=name, model=model, runs=runs))
    return f"{name}.yaml"


def result(done):
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["bacth"],
        ["batch", "plan.yaml", "--dry-run", "--json"],
    ],
)
def test_code_and_output_are_those_of_a_process_of_its_own(proctor, words):
    write(proctor, "plan")

    assert result(proctor(*words)) == result(proctor.process(*words))


def test_folder_and_environment_are_the_callers(proctor):
    home = proctor.folder / "elsewhere"

    assert proctor("batch", write(proctor, "here"), environment={"PROCTOR_HOME": str(home)}).returncode == 0

    assert (home / "proctor.db").exists()
    assert not (proctor.folder / "proctor-home").exists()
    assert os.environ.get("PROCTOR_HOME") != str(home)


def test_nothing_is_left_in_the_server_for_the_next_command(proctor):
    plan = write(proctor, "again")
    assert proctor("batch", plan).returncode == 0
    (proctor.folder / plan).write_text("matrix: [{prompt: hello}]\n")

    refused = proctor("batch", plan)

    assert refused.returncode == 2
    assert "again.yaml" in refused.stderr


def test_several_commands_run_at_the_same_time(proctor):
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 60, rules: [{reply: late}]}")
    plan = write(proctor, "long", "slow")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(proctor, "batch", plan)
        eventually(lambda: [run["runId"] for run in proctor.json("runs")["runs"]] == ["long"])
        assert proctor("abort-run", "long").returncode == 0

    assert running.result().returncode == 3


def test_who_kills_a_program_that_forwards_kills_the_command(proctor):
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 60, rules: [{reply: late}]}")
    words = [*proctor.program, "batch", write(proctor, "long", "slow")]
    process = subprocess.Popen(words, cwd=proctor.folder, env=proctor.environment, stderr=subprocess.DEVNULL)
    eventually(lambda: [run["status"] for run in proctor.json("runs")["runs"]] == ["running"])

    process.kill()
    process.wait()

    eventually(lambda: [run["status"] for run in proctor.json("runs")["runs"]] == ["interrupted"])


def test_a_started_command_is_a_process_that_can_be_waited_for_and_killed(proctor):
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 60, rules: [{reply: late}]}")
    done = proctor.start("batch", write(proctor, "short"))
    output, _ = done.communicate(timeout=TIME_LIMIT_SECONDS)
    assert (done.returncode, done.poll()) == (0, 0) and "short completed" in output

    with proctor.start("batch", write(proctor, "long", "slow")) as running:
        eventually(lambda: "running" in [run["status"] for run in proctor.json("runs")["runs"]])
        assert running.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            running.communicate(0.01)
        running.kill()
        assert running.wait(TIME_LIMIT_SECONDS) == -9
