"""`--dry-run` of every job predicts cost and time from the like sessions in the store."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from harbours import VARIED, write_config

EXAMPLES = Path(__file__).parents[2] / "examples"
COST = r"^cost: (about )?\$[\d.]+( \([\d.]+ to [\d.]+\))?, from {} like sessions?$"
TIME = r"^time: about [\d.]+ (ms|s|min|h)[^(]*\([^)]+ to [^)]+\), from {} like sessions?$"
PLAN = """
runId: asked
prices: {scripted/word: {input: 1, output: 1}}
matrix:
  - {prompt: PROMPTS, model: scripted/word}
"""


def predicted(text, sessions):
    """Whether a dry run has both lines, with the interval of the time."""
    return all(re.search(line.format(sessions), text, re.MULTILINE) for line in (COST, TIME))


def write_plan(folder, prompts):
    (folder / "word.yaml").write_text("rules: [{reply: word}]\n")
    (folder / "plan.yaml").write_text(PLAN.replace("PROMPTS", f"[{', '.join(prompts)}]"))


def test_a_batch_is_predicted_and_of_a_resume_only_what_is_left(proctor):
    prompts = [f"{'word ' * number}{number}" for number in range(1, 9)]
    write_plan(proctor.folder, prompts)
    nothing = proctor("batch", "plan.yaml", "--dry-run")
    assert "cost: unknown, no like sessions in the store (scripted/word)" in nothing.stderr
    assert proctor("batch", "plan.yaml").returncode == 0

    whole = proctor("batch", "plan.yaml", "--dry-run")
    assert predicted(whole.stderr, 8), whole.stderr
    assert re.search(r"^cost: about \$[\d.]+ \([\d.]+ to [\d.]+\), from 8", whole.stderr, re.MULTILINE)

    done = proctor("batch", "plan.yaml", "--dry-run", "--resume")
    assert "left to run: 0 items\n" in done.stderr and "cost: about" not in done.stderr
    write_plan(proctor.folder, [*prompts, "nine", "ten"])
    rest = proctor("batch", "plan.yaml", "--dry-run", "--resume")
    assert "--resume would add 2 new items" in rest.stderr and "left to run: 2 items\n" in rest.stderr
    assert predicted(rest.stderr, 8), rest.stderr
    document = proctor.json("batch", "plan.yaml", "--dry-run", "--resume")
    assert (document["itemCount"], document["estimate"]["items"]) == (10, 2)
    every = proctor.json("batch", "plan.yaml", "--dry-run")
    assert document["estimate"]["costUsd"]["value"] < every["estimate"]["costUsd"]["value"] / 3


def test_failed_items_that_a_resume_would_retry_are_predicted(proctor):
    (proctor.folder / "word.yaml").write_text("rules: [{match: bad, reply: wrong}, {reply: word}]\n")
    plan = "runId: asked\nmatrix: [{prompt: [good, bad], model: scripted/word, expect: {contains: word}}]\n"
    (proctor.folder / "plan.yaml").write_text(plan)
    assert proctor("batch", "plan.yaml").returncode == 1

    words = ("batch", "plan.yaml", "--dry-run", "--resume")
    assert proctor.json(*words)["estimate"]["items"] == 0
    assert proctor.json(*words, "--retry-failed")["estimate"]["items"] == 1


async def test_an_experiment_is_predicted(harbour):
    config = write_config(harbour.folder, runs=3, parallel=2, more=VARIED)
    await harbour.run("experiment", config)
    (harbour.output / "batch-state.json").rename(harbour.folder / "moved.json")

    again = harbour.proctor("experiment", config, "--dry-run")
    (harbour.folder / "moved.json").rename(harbour.output / "batch-state.json")
    rest = harbour.proctor("experiment", config, "--dry-run", "--resume")

    assert "from 6 like sessions" in again.stderr and re.search(r"^time: about .* to ", again.stderr, re.M)
    assert "left to run: 0 items" in rest.stderr


def test_a_simulation_is_predicted(proctor):
    for name in ("as-client.yaml", "as-therapist.yaml"):
        shutil.copy(EXAMPLES / "dialogues" / name, proctor.folder / name)
    (proctor.folder / "talks.yaml").write_text(
        "clients: [patientPsi, eeyore]\ntherapists: [CBT]\nnum_runs: 3\nmax_turns: 1\n"
        "client_model: scripted/as-client\ntherapist_model: scripted/as-therapist\n"
    )
    words = ("simulate", "--config", "talks.yaml", "--output", "out")
    assert proctor(*words).returncode == 0

    assert predicted(proctor(*words, "--dry-run").stderr, 6)
    assert "left to run: 0 items" in proctor(*words, "--dry-run", "--resume").stderr


def test_a_benchmark_is_predicted(proctor):
    shutil.copytree(EXAMPLES / "benchmark", proctor.folder / "benchmark")
    words = ("bench", "--task", "benchmark/tasks/smoke/add_comment.md", "--oracle", "--runs", "3")
    proctor.json(*words)

    assert predicted(proctor(*words, "--dry-run").stderr, 3)


def test_an_evaluation_is_predicted(proctor):
    write_plan(proctor.folder, [f"number {number}" for number in range(4)])
    assert proctor("batch", "plan.yaml").returncode == 0
    shutil.copy(EXAMPLES / "evaluation" / "judge.yaml", proctor.folder)
    words = ("evaluate", "start", "--run", "asked", "--judge", "scripted/judge")
    words += ("--evaluator", "Builtin.Helpfulness")
    done = proctor(*words, "--name", "judged")

    again = proctor(*words, "--name", "again", "--dry-run")
    assert predicted(again.stderr, 4), (done.stderr, again.stderr)


# What would fail later is refused


def install(proctor, *names):
    folder = proctor.folder / "programs"
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho 1.0\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "OPENAI_API_KEY": "sk-test-0123456789abcdef"}


def test_an_agent_without_its_model_and_a_prompt_too_long_for_its_program_are_refused(proctor, repository):
    environment = install(proctor, "claude", "pi")
    (proctor.folder / "plan.yaml").write_text(
        f"matrix:\n- {{repo: {repository}, prompt: Go., agent: claude}}\n"
        f"- {{repo: {repository}, prompt: '{'word ' * 30_000}', agent: [claude, pi], model: openai/gpt-4o}}\n"
    )

    done = proctor("batch", "plan.yaml", "--dry-run", environment=environment)

    assert done.returncode == 2
    assert "plan.yaml:2:3: the agent claude has no `model`" in done.stderr
    assert "the prompt is too long for the agent pi" in done.stderr
    assert "too long for the agent claude" not in done.stderr


def test_a_repository_to_which_no_session_branch_can_be_added_is_refused(proctor, repository):
    subprocess.run(["git", "branch", "batch"], cwd=repository, check=True)
    (proctor.folder / "plan.yaml").write_text(f"matrix: [{{repo: {repository}, prompt: Go., command: ls}}]\n")

    done = proctor("batch", "plan.yaml", "--dry-run")

    assert done.returncode == 2 and "has a branch `batch`" in done.stderr


def test_without_a_base_branch_the_repositorys_own_is_used(proctor, repository):
    subprocess.run(["git", "branch", "-m", "main", "trunk"], cwd=repository, check=True)
    plan = proctor.folder / "plan.yaml"
    plan.write_text(f"runId: own\nmatrix: [{{repo: {repository}, prompt: Go., command: touch x}}]\n")

    assert proctor("batch", "plan.yaml").returncode == 0
    (session,) = proctor.json("sessions", "list", "--run", "own")["sessions"]
    assert session["baseBranch"] == "trunk"

    plan.write_text(plan.read_text().replace("command:", "baseBranch: main, command:"))
    assert "has no branch, tag or commit `main`" in proctor("batch", "plan.yaml", "--dry-run").stderr


def test_a_dry_run_of_a_resume_counts_what_is_done_new_dropped_and_kept(proctor):
    write_plan(proctor.folder, ["one", "two", "three"])
    assert proctor("batch", "plan.yaml").returncode == 0
    write_plan(proctor.folder, ["one", "four"])

    document = proctor.json("batch", "plan.yaml", "--dry-run", "--resume")["resume"]

    assert (document["done"], len(document["new"]), document["dropped"], document["kept"]) == (1, 1, 0, 2)
    assert "done already: 1 item" in proctor("batch", "plan.yaml", "--dry-run", "--resume").stderr
