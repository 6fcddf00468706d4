"""`proctor bench` within a budget, recorded and replayed."""

import json
import shutil
from pathlib import Path

import pytest
from bench_servers import Server, serving

EXAMPLES = Path(__file__).parents[2] / "examples" / "benchmark"
TASK = ("--task", "benchmark/tasks/smoke/add_comment.md")
PRICED = """
models:
  - name: solver-large
    provider: openai
    api_key: ${{SOME_KEY}}
    base_url: {url}/v1
    settings: {{max_tokens: 1000}}
    price: {{input: 0, output: 1000}}
"""


@pytest.fixture
def desk(proctor):
    """The command beside the shipped tasks, with a model whose runs cost four cents."""
    shutil.copytree(EXAMPLES, proctor.folder / "benchmark")
    proctor.environment["SOME_KEY"] = "k" * 20
    with serving("solver-large") as server:
        proctor.server = server
        configure(proctor, server, PRICED)
        yield proctor


def configure(proctor, server: Server, text: str) -> None:
    (proctor.folder / "benchmark" / "models_config.yaml").write_text(text.format(url=server.url))


def test_a_benchmark_stops_at_its_budget_and_goes_on_with_more(desk):
    words = ("--models", "solver-large", "--runs", "4", "--output", "out")

    ran = desk("bench", *TASK, *words, "--budget", "0.32", "--json")

    document = json.loads(ran.stdout)
    assert (ran.returncode, document["status"], document["reason"]) == (3, "halted", "budget")
    # Each call could cost a dollar and costs two cents: answers are limited to the rest, down to 256 tokens.
    assert [body["max_tokens"] for body in desk.server.asked] == [320, 300, 280, 260]
    assert (document["successCount"], document["costUsd"]) == (2, pytest.approx(0.08))

    ran = desk("resume", document["runId"], "--budget", "5", "--json")

    assert (ran.returncode, json.loads(ran.stdout)["successCount"]) == (0, 4), ran.stderr


def test_a_budget_needs_a_price(desk):
    configure(desk, desk.server, PRICED.replace("    price: {{input: 0, output: 1000}}\n", ""))

    ran = desk("bench", *TASK, "--models", "solver-large", "--budget", "1")

    assert ran.returncode == 2
    assert "no price is known for solver-large, so the budget cannot be enforced" in ran.stderr
    assert desk.server.asked == []


def test_a_recorded_benchmark_is_replayed_without_its_models(desk):
    words = ("--models", "solver-large", "--json")
    first = desk("bench", *TASK, *words, "--record", "traffic.jsonl", "--output", "first")
    asked = len(desk.server.asked)

    again = desk("bench", *TASK, *words, "--replay", "traffic.jsonl", "--output", "again")

    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert len(desk.server.asked) == asked == 2
    before, after = (json.loads(ran.stdout)["comparison"]["results"][0] for ran in (first, again))
    assert (before["success"], after["success"]) == (True, True)
    assert (before["prompts_sent"], before["total_tokens"]) == (after["prompts_sent"], after["total_tokens"])
    assert (before["stand_in"], after["stand_in"]) == (False, False)

    refused = desk("bench", *TASK, *words, "--record", "a", "--replay", "b")
    assert refused.returncode == 2 and "exclude each other" in refused.stderr
