"""Whatever happens in an attempt becomes a status and a reason, and the other items go on."""

import asyncio

import pytest
from stand_ins import call, doing, echo

from proctor.errors import AgentError, EvaluatorError, ModelError, RateLimited, WorkspaceError
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.routes import CallableRoute
from proctor.runner import Outcome
from proctor.session import Message, ToolCall

QUESTION = "matrix: [{prompt: hello, model: scripted/echo}]\n"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (AgentError("it gave up"), "fail", "agent_failed"),
        (WorkspaceError("no tree"), "error", "setup_failed"),
        (ModelError("it broke off"), "error", "model_failed"),
        (ModelError("bad key", reason="auth"), "error", "auth"),
        (RateLimited("wait"), "error", "rate_limit"),
        (EvaluatorError("no judge"), "error", "evaluator_failed"),
        (ZeroDivisionError("division by zero"), "error", "internal_error"),
        (KeyError("model"), "error", "internal_error"),
    ],
)
async def test_each_error_has_its_status_and_reason(workshop, error, status, reason):
    async def fail(item, services):
        raise error

    ending = await workshop.run(QUESTION, find_runner=doing(fail))

    (item,) = workshop.items()
    (session,) = workshop.rows("sessions")
    assert ending.status == "completed"
    assert (item["status"], item["reason"]) == (status, reason)
    assert (session["status"], session["endReason"], session["error"]) == (status, reason, item["error"])
    assert str(error) in item["error"]
    assert item["finishedAt"] is not None


@pytest.mark.parametrize(
    ("said", "recorded"),
    [
        ("nul \0 inside", "nul \ufffd inside"),
        ("half \ud800 a pair", "half ? a pair"),
        ("x" * 1_000_000, "x" * 4096 + "\n[… 991808 characters left out …]\n" + "x" * 4096),
    ],
    ids=["nul", "surrogate", "long"],
)
async def test_an_error_in_hostile_words_ends_one_item_and_not_the_batch(workshop, said, recorded):
    async def fail(item, services):
        if item.repeat == 1:
            raise AgentError(said)

    await workshop.run(echo(3), find_runner=doing(fail))

    assert workshop.outcomes() == [("fail", "agent_failed"), *[("success", "completed")] * 2]
    assert workshop.items()[0]["error"] == recorded


async def test_an_item_that_times_out_keeps_its_transcript_so_far(workshop):
    async def slow(item, services):
        services.record(Message(role="assistant", content="I begin."))
        services.record(ToolCall(name="think"))
        async with services.time_limit(item.settings["timeoutSec"], "the agent"):
            await asyncio.sleep(60)

    await workshop.run(
        "matrix: [{prompt: hello, model: scripted/echo, timeoutSec: 0.05}]", find_runner=doing(slow)
    )

    (item,) = workshop.items()
    assert (item["status"], item["reason"], item["toolCalls"]) == ("timeout", "timeout", 1)
    assert item["error"] == "the agent did not finish within 0.05 s"
    assert [row["content"] for row in workshop.rows("messages")] == ["I begin."]


async def test_waiting_for_a_rate_limit_is_not_work(workshop):
    class RateLimited(CallableRoute):
        async def answer(self, request, waited):
            waited(1000.0)
            await asyncio.sleep(0.3)
            return await super().answer(request, waited)

    models = ModelRouter({})
    models.add_route("scripted/echo", RateLimited(lambda request: "hello"))

    await workshop.run("matrix: [{prompt: hello, model: scripted/echo, timeoutSec: 0.2}]", models=models)

    (session,) = workshop.rows("sessions")
    assert workshop.outcomes() == [("success", "completed")]
    assert session["waitingSeconds"] == 1000
    assert session["workSeconds"] < 0.3


async def test_an_attempt_that_spends_more_than_its_own_limit_is_cut_off_in_mid_run(workshop):
    reached = []

    async def spend(item, services):
        for number in range(10):
            services.record(call(0.04))
            await asyncio.sleep(0)
            reached.append(number)

    await workshop.run(
        "matrix: [{prompt: hello, model: scripted/echo, budget: 0.1, retries: 3}]", find_runner=doing(spend)
    )

    (item,) = workshop.items()
    assert (item["status"], item["reason"], item["costUsd"]) == ("fail", "cost_limit", pytest.approx(0.12))
    assert reached == [0, 1]
    assert len(workshop.rows("sessions")) == 1, "more money is not to be had by trying again"


async def test_an_item_that_passes_its_own_limit_with_its_last_call_has_still_passed_it(workshop):
    async def spend(item, services):
        if item.repeat > 1:
            # The cut must not reach the item that comes after.
            await asyncio.sleep(0.01)
        services.record(call(0.2 if item.repeat == 1 else 0.05))

    plan = "concurrency: 1\nmatrix: [{prompt: hello, model: scripted/echo, budget: 0.1, runs: 3}]"
    await workshop.run(plan, find_runner=doing(spend))

    assert workshop.outcomes() == [("fail", "cost_limit"), *[("success", "completed")] * 2]


async def test_a_runner_that_ends_normally_after_its_cut_off_does_not_stop_the_items_that_follow(workshop):
    async def spend(item, services):
        services.record(call(0.2))
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            if item.repeat != 1:
                raise

    plan = "concurrency: 1\nmatrix: [{prompt: hello, model: scripted/echo, budget: 0.1, runs: 3}]"
    ending = await workshop.run(plan, find_runner=doing(spend))

    assert ending.status == "completed"
    assert workshop.outcomes() == [("fail", "cost_limit")] * 3


async def test_a_model_is_not_asked_once_another_call_would_pass_the_limit(workshop):
    (workshop.folder / "dear.yaml").write_text(
        "[{reply: ok, usage: {input_tokens: 1000000, output_tokens: 0}}]"
    )
    plan = """
        prices: {scripted/dear: {input: 0.04, output: 0}}
        matrix: [{prompt: hello, model: scripted/dear, budget: 0.1}]
    """
    asked = []

    async def spend(item, services):
        request = Request(model=item.model, messages=[{"role": "user", "content": "x"}])
        while True:
            answer = await services.models.answer(request)
            asked.append(answer.call.cost_usd)
            services.record(answer.call)

    await workshop.run(plan, find_runner=doing(spend))

    assert workshop.outcomes() == [("fail", "cost_limit")]
    assert asked == [0.04, 0.04]


async def test_what_a_runner_says_of_its_result_is_in_the_items_row(workshop):
    async def result(item, services):
        services.record(call(0.25))
        services.record(ToolCall(name="edit"))
        return Outcome(result={"iterSha": "abc123"})

    await workshop.run(QUESTION, find_runner=doing(result))

    (item,) = workshop.items()
    assert (item["iterSha"], item["tokensTotal"], item["toolCalls"]) == ("abc123", 2, 1)
    assert item["costUsd"] == 0.25


async def test_stand_ins_are_marked_on_their_sessions(workshop, repository):
    plan = f"""
        matrix:
          - {{prompt: hello, model: scripted/echo}}
          - {{repo: {repository}, prompt: fix, agent: scripted, script: [{{say: done}}]}}
          - {{repo: {repository}, prompt: fix, agent: command, command: "true"}}
    """
    await workshop.run(plan)

    marked = {(row["agent"], row["isMock"]) for row in workshop.rows("sessions")}
    assert marked == {("", 1), ("scripted", 1), ("command", 0)}


async def test_a_coding_batch_says_who_failed(workshop, repository):
    entries = [
        "prompt: fix, script: [{write: {path: shop.py, content: fixed}}]",
        "prompt: break, script: [{write: {path: shop.py, content: broken}}]",
        "prompt: give up, script: [{fail: I cannot}]",
        "prompt: sleep, script: [{sleep: 60}], timeoutSec: 0.2",
        "prompt: no tools, script: [{say: hi}], setup: 'echo no compiler; exit 3'",
        "prompt: no model, script: [{raise: model}]",
    ]
    matrix = "\n".join(f"  - {{repo: {repository}, {entry}}}" for entry in entries)
    plan = f"defaults: {{scriptCommand: grep -q fixed shop.py}}\nmatrix:\n{matrix}"
    await workshop.run(plan)

    found = {item["prompt"]: (item["status"], item["reason"]) for item in workshop.items()}
    assert found == {
        "fix": ("success", "completed"),
        "break": ("fail", "checks_failed"),
        "give up": ("fail", "agent_failed"),
        "sleep": ("timeout", "timeout"),
        "no tools": ("error", "setup_failed"),
        "no model": ("error", "model_failed"),
    }
