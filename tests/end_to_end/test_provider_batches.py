"""`service: batch`: prompts and judge calls as batches of the provider, at half the price."""

import json
import os
import signal
from pathlib import Path

import pytest
from harbours import SCENARIO, write_config, write_harbour

from proctor.testing import eventually
from proctor.testing.model_server import failure, reply

TASKS = [f"task {number}" for number in range(6)]
# Of gpt-4o, $2.50 and $10 per million: 5 tokens read, 1,000 written.
ALONE, HALF = 0.0100125, 0.00500625
CLAUDE, GEMINI = "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro"


@pytest.fixture
def desk(proctor, model_server):
    for name in ("OPENAI", "ANTHROPIC", "GEMINI"):
        known = {f"{name}_BASE_URL": model_server.url, f"{name}_API_KEY": "sk-loopback-0123456789"}
        proctor.environment |= known
    model_server.prices = (2.5, 10.0)
    model_server.answers = answer_to
    return proctor


@pytest.fixture(params=["openai/gpt-4o", CLAUDE, GEMINI])
def model(request):
    """A model of each interface, at one price."""
    return request.param


def answer_to(body):
    task = body["messages"][-1]["content"]
    written = min(1000, body["max_tokens"])
    reason = "stop" if written == 1000 else "length"
    return reply(f"to {task}", input_tokens=5, output_tokens=written, finish_reason=reason)


def planned(desk, **settings):
    model = settings.pop("model", "openai/gpt-4o")
    entry = {"prompt": TASKS, "model": model, "settings": {"max_tokens": 1000}}
    prices = {name: {"input": 2.5, "output": 10.0} for name in (CLAUDE, GEMINI)}
    plan = {"runId": "night", "service": "batch", "prices": prices, "matrix": [entry]}
    plan |= settings
    (desk.folder / "plan.yaml").write_text(json.dumps(plan))
    return "batch", "plan.yaml"


def bill(server):
    return pytest.approx(sum(server.billed_usd.values()))


def test_prompts_are_one_batch_at_half_the_price(desk, model_server, model):
    done = desk(*planned(desk, model=model), "--json")

    assert done.returncode == 0, done.stderr
    assert len(model_server.batches) == 1
    assert json.loads(done.stdout)["costUsd"] == bill(model_server) == pytest.approx(6 * HALF)


@pytest.mark.parametrize("is_id_known", [True, False])
def test_after_a_kill_the_answers_are_fetched_and_not_paid_for_again(desk, model_server, model, is_id_known):
    model_server.batch_seconds = 3600
    running = desk.start(*planned(desk, model=model, budget=50.0))
    kept = Path(desk.environment["PROCTOR_HOME"]) / "provider-batches" / "night"
    eventually(lambda: [each for each in kept.glob("*.json") if json.loads(each.read_text())["batch"]])
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    if not is_id_known:
        # As if it had been killed before the provider's id was written.
        (file,) = kept.glob("*.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "batch": ""}))
    model_server.batches[0]["ends"] = model_server.batch_seconds = 0

    resumed = desk("resume", "night", "--json")

    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["successCount"] == 6
    assert len(model_server.requests) == 6
    assert bill(model_server) == 6 * HALF
    assert not kept.exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_aborted_run_cancels_its_batch(desk, model_server, model, is_killed):
    model_server.batch_seconds = 3600
    running = desk.start(*planned(desk, model=model))
    kept = Path(desk.environment["PROCTOR_HOME"]) / "provider-batches" / "night"
    eventually(lambda: [each for each in kept.glob("*.json") if json.loads(each.read_text())["batch"]])
    if is_killed:
        os.kill(running.pid, signal.SIGKILL)
        running.wait()

    assert desk("abort-run", "night").returncode == 0

    running.wait()
    assert model_server.batches[0]["status"] == "cancelled"
    assert not kept.exists()


def test_a_low_concurrency_is_noted_with_the_number_that_would_do(desk, model_server):
    done = desk(*planned(desk, concurrency=4))

    assert "with `concurrency: 6` they have 6" in done.stderr
    assert len(model_server.batches) == 2


def test_a_dry_run_expects_the_price_of_the_batch(desk):
    assert desk(*planned(desk)).returncode == 0

    shown = desk.json(*planned(desk, runId="again"), "--dry-run")

    assert shown["estimate"]["costUsd"]["value"] == pytest.approx(6 * HALF)


def test_what_a_batch_does_not_answer_goes_alone_at_the_full_price(desk, model_server, model):
    model_server.batch_answers = 2

    done = desk(*planned(desk, model=model), "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["costUsd"] == bill(model_server) == pytest.approx(2 * HALF + 4 * ALONE)


def test_a_request_that_fails_in_a_batch_goes_alone_and_one_that_is_wrong_is_an_error(
    desk, model_server, model
):
    failed = {"task 1": failure(500), "task 2": failure(400, "too odd")}
    model_server.answers = lambda body: failed.pop(body["messages"][-1]["content"], None) or answer_to(body)

    done = desk(*planned(desk), "--json")

    document = json.loads(done.stdout)
    assert (done.returncode, document["successCount"], document["errorCount"]) == (1, 5, 1)
    assert document["costUsd"] == bill(model_server) == pytest.approx(4 * HALF + ALONE)


@pytest.mark.parametrize(("answered", "budget", "successes"), [(None, 0.034, 6), (0, 0.045, 4)])
def test_a_budget_is_reserved_at_the_price_of_the_batch_and_of_what_goes_alone(
    desk, model_server, answered, budget, successes
):
    model_server.batch_answers = answered

    done = desk(*planned(desk, budget=budget), "--json")

    document = json.loads(done.stdout)
    assert document["successCount"] == successes
    assert sum(model_server.billed_usd.values()) <= budget
    assert document["costUsd"] == bill(model_server)


def test_judges_are_one_batch_too(desk, model_server):
    assert desk(*planned(desk)).returncode == 0
    verdict = json.dumps({"reasoning": "fine", "score": "Yes"})
    model_server.answers = [reply(verdict, input_tokens=5, output_tokens=1000)]
    plan = {
        "batchEvaluationName": "judged",
        "dataSourceConfig": {"store": {"runIds": ["night"]}},
        "evaluators": ["Builtin.GoalSuccessRate"],
        "judge": "openai/gpt-4o",
        "service": "batch",
    }
    (desk.folder / "judge.yaml").write_text(json.dumps(plan))

    expected = desk.json("evaluate", "start", "judge.yaml", "--dry-run")["costUsd"]
    (desk.folder / "alone.yaml").write_text(json.dumps({**plan, "service": None}))
    assert expected == desk.json("evaluate", "start", "alone.yaml", "--dry-run")["costUsd"] / 2
    done = desk("evaluate", "start", "judge.yaml", "--json")

    assert done.returncode == 0, done.stderr
    assert len(model_server.batches) == 2
    assert json.loads(done.stdout)["evaluationResults"]["costUsd"] == pytest.approx(6 * HALF)


def test_a_provider_without_batches_is_refused_before_anything_starts(desk):
    refused = desk(*planned(desk, model="xai/grok-4"))

    assert refused.returncode == 2
    assert "`service: batch`: xai has no batches that Proctor can send" in refused.stderr


def test_each_turn_of_all_dialogues_is_a_batch(desk, model_server):
    model_server.answers = [reply("Hello.")]
    config = {"num_runs": 3, "max_turns": 1, "max_workers": 3, "service": "batch", "model_name": "gpt-4o"}
    (desk.folder / "config.yaml").write_text(json.dumps(config))

    done = desk("simulate", "--config", "config.yaml", "--output-dir", "out", "--json")

    assert done.returncode == 0, done.stderr
    assert (len(model_server.requests), len(model_server.batches)) == (6, 2)


async def test_the_calls_of_an_experiment_are_batches(harbour):
    write_harbour(harbour.folder, scenario=SCENARIO.replace("turns: 3", "turns: 1"))
    config = write_config(harbour.folder, runs=2, parallel=2, more="variations: []\nservice: batch")

    told = await harbour.run("experiment", config)

    # Three calls of one cent each.
    assert told["costUsd"] == pytest.approx(2 * 3 * 0.01 / 2)
    assert len(harbour.server.batches) == 3


def test_what_gemini_takes_in_no_batch_goes_alone(desk, model_server):
    entry = {"prompt": TASKS, "model": GEMINI, "settings": {"max_tokens": 1000, "reasoning_effort": "low"}}

    done = desk(*planned(desk, matrix=[entry]), "--json")

    assert json.loads(done.stdout)["costUsd"] == bill(model_server) == pytest.approx(6 * ALONE)
