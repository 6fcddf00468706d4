"""Which models a router has, what it knows of them, functions as models, and what is loaded for them."""

import subprocess
import sys

import pytest

from proctor.errors import ModelError, UsageError
from proctor.model import Answer, Request
from proctor.models import ModelRouter
from proctor.models.rate_limits import RatePools
from proctor.models.routes import CallableRoute, imported_function
from proctor.session import ModelCall

REQUEST = Request(model="python/x:y", messages=[{"role": "user", "content": "hi"}])
NEAR, FAR = {"NEAR_BASE_URL": "http://127.0.0.1:1"}, {"FAR_BASE_URL": "http://far.test"}


@pytest.mark.parametrize(
    ("models", "here"),
    [
        ([], False),
        (["scripted/ok"], True),
        (["scripted/ok", "near/a"], True),
        (["scripted/ok", "far/a"], False),
        (["python/json:dumps"], False),
    ],
)
def test_whether_all_models_answer_on_this_machine(models, here):
    router = ModelRouter(NEAR | FAR)
    for model in models:
        router.route(model)
    assert router.are_on_this_machine is here


def test_the_lowest_limit_is_of_the_models_that_were_checked():
    pools = RatePools(most={"near": 9, "far/a": 4, "other": 1})
    router = ModelRouter(NEAR | FAR | {"FREE_BASE_URL": "http://127.0.0.1:2"}, pools=pools)
    limits = [router.lowest_limit]
    for model in ("scripted/ok", "free/a", "near/a", "far/a"):
        router.route(model)
        limits.append(router.lowest_limit)
    assert limits == [None, None, None, 9, 4]


def test_a_store_with_a_budget_refuses_a_model_without_a_price():
    with pytest.raises(UsageError, match="the price of near/x is unknown"):
        ModelRouter(NEAR, needs_prices=True).check("near/x")
    ModelRouter(NEAR).check("near/x")
    ModelRouter(NEAR, needs_prices=True, prices={"near/x": {"input": 1, "output": 2}}).check("near/x")


async def later(request: Request) -> str:
    return f"later {request.messages[0]['content']}"


async def asked(function) -> Answer:
    return await CallableRoute(function).answer(REQUEST, None)


async def test_a_function_answers_whether_it_waits_or_not():
    assert (await asked(later)).text == (await asked(lambda request: later(request))).text == "later hi"
    answer = await asked(lambda request: 7)
    assert (answer.text, answer.call.model, answer.call.provider) == ("7", "python/x:y", "python")
    assert (answer.call.cost_usd, answer.call.waiting_ms) == (0.0, 0.0)
    assert 0 <= answer.call.latency_ms < 60_000
    whole = Answer(text="own", call=ModelCall(model="z"))
    assert await asked(lambda request: whole) is whole


def breaks(request):
    raise KeyError("lost")


def refuses(request):
    raise ModelError("as it is", reason="refused")


@pytest.mark.parametrize(
    ("function", "message", "reason"),
    [
        (breaks, "python/x:y: KeyError: 'lost'", "model_failed"),
        (lambda request: sys.exit(0), "python/x:y: SystemExit: 0", "model_failed"),
        (refuses, "^as it is$", "refused"),
        (lambda request: None, "the function returned None", "model_failed"),
    ],
)
async def test_a_function_that_fails_is_a_failure_of_the_model(function, message, reason):
    with pytest.raises(ModelError, match=message) as raised:
        await asked(function)
    assert raised.value.reason == reason


def test_a_function_is_found_by_module_and_path():
    assert imported_function("python/os:path.join")("a", "b") == "a/b"
    for name, message in (
        ("no_such:f", "there is no model"),
        ("json:absent", "there is no model"),
        ("json", "there is no model"),
        ("os:sep", "is not a function"),
    ):
        with pytest.raises(UsageError, match=message):
            imported_function(f"python/{name}")


def test_what_is_not_used_is_not_loaded():
    program = """
import asyncio, sys
from datetime import UTC, datetime
from proctor.agents import agent_names, find_agent
from proctor.evaluators.expect import check_answer, problems_of
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.prices import price_of

agent_names(), find_agent("scripted", {"script": [{"say": "hi"}]})
problems_of({"regex": "a", "contains": "a"}), check_answer({"regex": "a"}, "a")
asyncio.run(ModelRouter({}).answer(Request(model="scripted/ok", messages=[{"role": "user", "content": "x"}])))
unused = "aiohttp", "genai_prices", "pydantic", "yaml", "jsonschema", "proctor.agents.amp"
print([name for name in unused if name in sys.modules])
assert price_of("openai/gpt-4o-mini", {}, at=datetime(2026, 11, 15, tzinfo=UTC))
assert "genai_prices.data" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
