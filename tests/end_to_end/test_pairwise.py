"""`proctor evaluators pairwise`: sessions of the same tasks against each other, judged in both orders."""

import json
from time import time_ns

import pytest

from proctor.testing.model_server import reply

TASKS = [f"task {number}" for number in range(12)]
MODELS = {"gold": "GOLD", "lead": "lead", "tin": "lead"}
JUDGE = """rules:
  - {match: "(?s)GOLD.*lead", reply: '{"reasoning": "gold", "score": "First"}'}
  - {match: "(?s)lead.*GOLD", reply: '{"reasoning": "gold", "score": "Second"}'}
  - reply: '{"reasoning": "the first looks better", "score": "First"}'
"""
OF_METALS = ("evaluators", "pairwise", "--run", "metals", "--by", "model")
PAIRWISE = (*OF_METALS, "--judge", "scripted/judge")


@pytest.fixture
def desk(proctor):
    for name, answer in MODELS.items():
        (proctor.folder / f"{name}.yaml").write_text(f"rules: [{{reply: {answer}}}]\n")
    (proctor.folder / "judge.yaml").write_text(JUDGE)
    models = [f"scripted/{name}" for name in MODELS]
    plan = {"runId": "metals", "matrix": [{"prompt": TASKS, "model": models}]}
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))
    done = proctor("batch", "plan.yaml")
    assert done.returncode == 0, done.stderr
    return proctor


def test_who_wins_in_both_orders_is_ranked_first_and_what_the_place_decides_is_a_tie_and_counted(desk):
    counted = desk(*PAIRWISE, "--dry-run")
    document = desk.json(*PAIRWISE)
    evaluation = document["batchEvaluationId"]
    again = desk.json("evaluate", "get", evaluation)
    shown = desk("evaluate", "results", evaluation)

    assert "36 results, 72 calls" in counted.stdout
    result = document["pairwiseResults"]
    assert again["pairwiseResults"] == result
    counts = ("tasks", "pairs", "decided", "firstPlace", "secondPlace", "failed")
    assert [result[name] for name in counts] == [12, 36, 24, 12, 0, 0]
    (summary,) = document["evaluationResults"]["evaluatorSummaries"]
    assert summary["labels"] == {"First": 24, "First place": 12}
    ranking = {each["name"]: each for each in result["ranking"]}
    gold, lead, tin = (ranking[f"scripted/{name}"] for name in MODELS)
    assert (gold["wins"], gold["ties"], gold["losses"], gold["rank"], gold["rankHigh"]) == (24, 0, 0, 1, 1)
    assert gold["low"] > 0
    for each in (lead, tin):
        assert (each["wins"], each["ties"], each["losses"], each["rank"]) == (0, 12, 12, 2)
        assert (each["rankLow"], each["rankHigh"]) == (2, 3)
    assert "The place decided 12 (first 12, second 0)" in " ".join(shown.stdout.split())
    assert "scripted/judge is a mock model" in shown.stderr


def test_runs_of_several_models_are_compared_model_by_model(desk):
    plan = (desk.folder / "plan.yaml").read_text().replace("metals", "again")
    (desk.folder / "plan.yaml").write_text(plan)
    assert desk("batch", "plan.yaml").returncode == 0

    runs = ("--run", "metals", "--run", "again")
    result = desk.json("evaluators", "pairwise", *runs, "--judge", "scripted/judge")["pairwiseResults"]

    # Each session against the one with the same answer: the place decides all.
    assert (result["pairs"], result["decided"], result["firstPlace"]) == (36, 0, 36)
    assert {(each["name"], each["ties"], each["strength"]) for each in result["ranking"]} == {
        ("again", 36, 0.0),
        ("metals", 36, 0.0),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "city"), "no task has sessions of two levels of `city`"),
        (("--question", "Is {this} better?"), "the question has a placeholder in braces"),
        (("--judge", "nobody/x"), "nobody"),
        (("--judge", "nobody/x", "--dry-run"), "nobody"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_call(desk, options, message):
    refused = desk(*PAIRWISE, *options)

    assert refused.returncode == 2
    assert message in refused.stderr


def message(role, text):
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def received(service, question, answer, session):
    """A session as OpenTelemetry sends it."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": message("user", question),
        "gen_ai.output.messages": message("assistant", answer),
        "session.id": session,
    }
    named = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    mark, now = session.encode().hex(), time_ns()
    span = {"traceId": mark.zfill(32), "spanId": mark.zfill(16), "name": "chat", "attributes": named}
    span |= {"startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 10**9)}
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    scope = {"scope": {"name": "tests"}, "spans": [span]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def test_received_sessions_are_paired_by_their_question(desk):
    lines = [
        json.dumps(received(service, question, answer, f"{service}-{number}"))
        for number, question in enumerate(["How high is K2?", "How deep is Baikal?"])
        for service, answer in (("new", "GOLD"), ("old", "lead"))
    ]
    (desk.folder / "spans.jsonl").write_text("\n".join(lines))

    options = ("--files", "spans.jsonl", "--by", "service", "--judge", "scripted/judge")
    result = desk.json("evaluators", "pairwise", *options)["pairwiseResults"]

    assert (result["tasks"], result["pairs"], result["decided"]) == (2, 2, 2)
    assert {each["name"]: each["wins"] for each in result["ranking"]} == {"new": 2, "old": 0}


def test_a_budget_holds_and_what_was_judged_is_not_paid_for_again(desk, model_server):
    verdict = json.dumps({"reasoning": "-", "score": "Tie"})
    model_server.answers = [reply(verdict, input_tokens=1000, output_tokens=1000)]
    desk.environment |= {"OPENAI_BASE_URL": model_server.url, "OPENAI_API_KEY": "sk-loopback-0123456789"}

    halted = desk(*OF_METALS, "--judge", "openai/gpt-4o", "--budget", "0.3", "--json")
    spent = json.loads(halted.stdout)
    before = len(model_server.requests)
    resumed = desk("resume", spent["batchEvaluationId"], "--budget", "10", "--json")

    assert halted.returncode == 3
    # 2,000 tokens cost $0.0125: 24 calls fit.
    assert 0 < spent["evaluationResults"]["costUsd"] <= 0.3
    assert resumed.returncode == 0
    assert json.loads(resumed.stdout)["pairwiseResults"]["pairs"] == 36
    # Where the budget ended between the two orders of a pair, both are judged again.
    cut = before - 2 * spent["pairwiseResults"]["pairs"]
    assert len(model_server.requests) == 72 + cut
