"""Tools of roles read and write one world: rules written as data, Python functions, servers and programs."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from proctor.dialogue.task import check_problems, check_task, execute_solution
from proctor.dialogue.tools import (
    DialogueWorld,
    SideTools,
    ToolSpec,
    WorldError,
    changes,
    merged,
    path_of,
    tool_problems,
    with_signature,
)
from proctor.errors import UsageError
from proctor.runner import Services
from proctor.session import ToolCall

STATE = {"orders": {"W1": {"status": "pending", "items": ["tent"]}, "W2": {"status": "shipped"}}, "log": []}
CANCEL: ToolSpec = {
    "name": "cancel",
    "description": "Cancel an order.",
    "parameters": {"order_id": "string", "reason": {"type": "string", "default": "none"}},
    "require": [
        {"that": "order_id in orders", "else": "there is no order {{ order_id }}"},
        {"that": "orders[order_id].status == 'pending'"},
    ],
    "set": {"orders[order_id].status": "'cancelled'", "log": "log + [reason]"},
    "returns": "orders[order_id]",
}


class Bench:
    """Tools of one side, with what they recorded."""

    def __init__(self, folder: Path, *specs: ToolSpec, state: dict[str, Any] | None = None) -> None:
        self.world, self.calls = DialogueWorld(state or STATE), list[ToolCall]()
        self.services = Services(
            session_id="s1",
            attempt=1,
            record=lambda event: self.calls.append(event) if isinstance(event, ToolCall) else None,
            score=lambda _: None,
            models=None,  # type: ignore[arg-type]
            access=None,  # type: ignore[arg-type]
            agent=None,  # type: ignore[arg-type]
            home=folder,
            environment={"PATH": "/usr/bin:/bin", "TOKEN": "t0"},
            now=lambda: datetime.now(UTC),
            time_limit=lambda _, __: nullcontext(),  # type: ignore[arg-type,return-value]
        )
        self.tools = SideTools(specs, "therapist", self.world, self.services, folder=folder)

    async def call(self, name: str, **arguments: Any) -> str:
        return await self.tools.call(name, json.dumps(arguments))


async def test_a_rule_changes_the_state_and_the_initial_state_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CANCEL)

    result = await bench.call("cancel", order_id="W1")

    assert json.loads(result)["status"] == "cancelled"
    assert bench.world.state["log"] == ["none"]
    assert bench.world.initial["orders"]["W1"]["status"] == "pending"
    assert dict(changes(bench.world.initial, bench.world.state)) == {
        "orders.W1.status": "cancelled",
        "log": ["none"],
    }
    assert [(call.name, call.success) for call in bench.calls] == [("cancel", True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order_id": "W9"}, "Error: there is no order W9"),
        ({"order_id": "W2"}, "Error: not allowed"),
        ({}, "'order_id' is a required property"),
        ({"order_id": 7}, "7 is not of type 'string'"),
        ({"order_id": "W1", "force": True}, "'force' was unexpected"),
    ],
)
async def test_a_call_that_is_not_valid_is_the_callers_and_changes_nothing(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    bench = Bench(tmp_path, CANCEL)

    assert message in await bench.call("cancel", **arguments)
    assert bench.world.state == STATE
    assert not bench.world.actions[0].success


async def test_arguments_that_are_no_json_and_tools_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CANCEL)

    assert "no JSON object" in await bench.tools.call("cancel", "{order_id:")
    assert "There are: cancel" in await bench.call("refund")


async def test_a_rule_that_fails_half_way_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    broken: ToolSpec = {"name": "broken", "set": {"log": "log + [1]", "orders.W9.status": "'x'"}}
    bench = Bench(tmp_path, broken)

    assert "there is no `W9`" in await bench.call("broken")
    assert bench.world.state == STATE


async def test_a_member_can_be_deleted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"name": "forget", "parameters": {"key": "string"}, "delete": ["orders[key]"]})

    assert await bench.call("forget", key="W1") == "done"
    assert list(bench.world.state["orders"]) == ["W2"]
    assert "there is no `W1`" in await bench.call("forget", key="W1")


FUNCTIONS = '''
def refund(state: dict, order_id: str, amount: float = 1.5) -> dict:
    """Refund an order."""
    if order_id not in state["orders"]:
        raise ValueError(f"no {order_id}")
    state["orders"][order_id]["refunded"] = amount
    return {"refunded": amount}


async def wait(state):
    state["log"].append("waited")


def crash(state):
    state["log"].append("half")
    raise RuntimeError("out of paper")
'''


async def test_a_python_function_gets_the_state_and_its_signature_is_the_definition(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    specs = [with_signature({"name": n, "python": f"shop.py:{n}"}, tmp_path) for n in ("refund", "wait")]
    bench = Bench(tmp_path, *specs)

    assert json.loads(await bench.call("refund", order_id="W1")) == {"refunded": 1.5}
    assert await bench.call("refund", order_id="W9") == "Error: no W9"
    await bench.call("wait")

    function = bench.tools.definitions()[0]["function"]
    assert function["description"] == "Refund an order."
    assert function["parameters"]["properties"] == {
        "order_id": {"type": "string"},
        "amount": {"type": "number", "default": 1.5},
    }
    assert bench.world.state["orders"]["W1"]["refunded"] == 1.5
    assert bench.world.state["log"] == ["waited"]


async def test_a_function_that_breaks_is_the_worlds_fault_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    bench = Bench(tmp_path, {"name": "crash", "python": "shop.py:crash"})

    with pytest.raises(WorldError, match="raised RuntimeError: out of paper"):
        await bench.call("crash")
    assert bench.world.state == STATE
    assert bench.calls[0].success is False


async def test_a_changed_file_changes_the_digest_of_its_tool(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    before = with_signature({"name": "wait", "python": "shop.py:wait"}, tmp_path)
    (tmp_path / "shop.py").write_text(FUNCTIONS + "\n# changed\n")

    assert with_signature({"name": "wait", "python": "shop.py:wait"}, tmp_path)["digest"] != before["digest"]


async def test_a_program_reads_the_call_and_returns_result_and_state(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import json, sys\ncall = json.load(sys.stdin)\nstate = call['state']\n"
        "if call['arguments'].get('n') == 0: print(json.dumps({'error': 'n is 0'})); sys.exit()\n"
        "if call['arguments'].get('n') == 9: sys.exit('no more')\n"
        "state['log'].append(call['arguments']['n'])\n"
        "print(json.dumps({'result': len(state['log']), 'state': state}))\n"
    )
    spec: ToolSpec = {"name": "note", "parameters": {"n": "integer"}, "command": [sys.executable, "tool.py"]}
    bench = Bench(tmp_path, spec)

    assert await bench.call("note", n=4) == "1"
    assert bench.world.state["log"] == [4]
    assert await bench.call("note", n=0) == "Error: n is 0"
    with pytest.raises(WorldError, match="exited with 1: no more"):
        await bench.call("note", n=9)


@asynccontextmanager
async def shop_server(requests: list[dict[str, Any]]) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else {}
        requests.append({"path": request.path, "method": request.method, "body": body,
                         "token": request.headers.get("X-Token")})  # fmt: skip
        if request.path.endswith("W9"):
            return web.Response(status=404, text="no such order")
        if request.path.endswith("W0"):
            return web.Response(status=500, text="down")
        if "state" in body:
            return web.json_response({"result": "kept", "state": {**body["state"], "log": ["by server"]}})
        return web.json_response({"id": request.path})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_a_server_is_called_with_the_arguments_and_may_share_the_state(tmp_path: Path) -> None:
    requests = list[dict[str, Any]]()
    async with shop_server(requests) as url:
        bench = Bench(
            tmp_path,
            {"name": "get", "parameters": {"id": "string"},
             "http": {"url": f"{url}/orders/{{{{ id }}}}", "method": "GET",
                      "headers": {"X-Token": "$TOKEN"}}},
            {"name": "keep", "http": {"url": f"{url}/keep", "shares_state": True}},
            {"name": "gone", "http": {"url": "http://127.0.0.1:9/"}},
        )  # fmt: skip
        assert json.loads(await bench.call("get", id="W1 /x")) == {"id": "/orders/W1 /x"}
        assert await bench.call("get", id="W9") == "Error: no such order"
        with pytest.raises(WorldError, match="answered 500"):
            await bench.call("get", id="W0")
        assert await bench.call("keep") == "kept"
        with pytest.raises(WorldError, match="no answer of"):
            await bench.call("gone")

    assert bench.world.state["log"] == ["by server"]
    assert (requests[0]["method"], requests[0]["token"]) == ("GET", "t0")


async def test_checks_are_about_the_state_the_actions_and_what_was_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CANCEL)
    await bench.call("cancel", order_id="W1", reason="rain")
    lines = [("client", "Cancel it."), ("therapist", "It is Cancelled, W1.")]

    async def failed(checks: dict[str, Any]) -> dict[str, list[str]]:
        solved = await execute_solution(checks, bench.world.initial, [CANCEL], bench.services, tmp_path)
        results = check_task(checks, bench.world, lines, "therapist", solved)
        return {result.kind: list(result.failures) for result in results if result.failures}

    assert (
        await failed(
            {
                "state": ["orders.W1.status == 'cancelled'", "orders.W2 == initial.orders.W2"],
                "solution": [{"cancel": {"order_id": "W1", "reason": "rain"}}],
                "actions": [{"cancel": {"order_id": "W1"}}],
                "no_actions": [{"cancel": {"order_id": "W2"}}],
                "says": ["cancelled", {"regex": r"W\d"}],
                "never_says": ["refund"],
                "user": {"says": ["cancel it"]},
            }
        )
        == {}
    )
    wrong = await failed(
        {
            "state": ["orders.W2.status == 'cancelled'"],
            "solution": [{"cancel": {"order_id": "W1", "reason": "snow"}}],
            "actions": [{"cancel": {"order_id": "W2"}}],
            "no_actions": ["cancel"],
            "says": ["sorry"],
            "never_says": ["CANCELLED"],
            "user": {"says": ["please"]},
        }
    )
    assert wrong["solution"] == ["the final state differs: log is ['rain']"]
    assert wrong["actions"] == ["cancel(order_id='W2') was not called"]
    assert set(wrong) == {"state", "solution", "actions", "no_actions", "says", "never_says", "user.says"}


def test_what_is_wrong_with_tools_and_checks_is_known_before_the_first_call() -> None:
    bad: ToolSpec = {
        "name": "bad",
        "parameters": {"id": "string"},
        "require": [{"that": "ordrs[id]"}],
        "set": {"orders[nr].x": "'y'"},
        "python": "a.py:b",
    }
    problems = " ".join(tool_problems(bad, list(STATE)))
    assert "exclude each other" in problems
    assert "`ordrs`" in problems
    assert "`nr`" in problems
    assert "does nothing" in next(tool_problems({"name": "idle"}, []))
    with pytest.raises(UsageError, match="not closed"):
        path_of("orders[x")

    checks = {
        "stat": [],
        "state": ["order.W1"],
        "actions": ["cancl"],
        "solution": [{"cancel": {"order_id": "W2"}}],
        "says": [{"regexp": "x"}],
        "user": {"solution": []},
    }
    found = " ".join(check_problems(checks, STATE, [CANCEL], []))
    for part in ("`stat`", "`order`", "`cancl`", "is refused", "`regexp`", "`user.solution`"):
        assert part in found


def test_a_task_changes_parts_of_the_state() -> None:
    assert merged(STATE, {"orders": {"W2": {"status": "lost"}}}) == {
        "orders": {"W1": {"status": "pending", "items": ["tent"]}, "W2": {"status": "lost"}},
        "log": [],
    }
