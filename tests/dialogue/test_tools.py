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
from http_servers import answering

from proctor.dialogue.task import check_problems, check_task, execute_solution
from proctor.dialogue.tools import (
    LONGEST_RESULT,
    DialogueWorld,
    SideTools,
    ToolSpec,
    WorldError,
    changes,
    load_function,
    path_of,
    send,
    tool_problems,
    with_signature,
)
from proctor.errors import UsageError
from proctor.model import ToolRequest
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
    differences = {"orders.W1.status": "cancelled", "log": ["none"]}
    assert dict(changes(bench.world.initial, bench.world.state)) == differences
    assert [(call.name, call.success) for call in bench.calls] == [("cancel", True)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"order_id": "W9"}, "Error: there is no order W9"),
        ({"order_id": "W2"}, "Error: not allowed"),
        ({}, "'order_id' is a required property"),
        ("{order_id:", "no JSON object"),
        ({"order_id": 7}, "7 is not of type 'string'"),
        ({"order_id": "W1", "force": True}, "'force' was unexpected"),
    ],
)
async def test_a_call_that_is_not_valid_is_the_callers_and_changes_nothing(tmp_path, arguments, message):
    bench = Bench(tmp_path, CANCEL)

    assert message in await bench.tools.call("cancel", arguments)
    assert bench.world.state == STATE
    assert not bench.world.actions[0].success


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


def leave(state):
    raise SystemExit(0)
'''


async def test_a_function_that_breaks_is_the_worlds_fault_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FUNCTIONS)
    bench = Bench(
        tmp_path,
        {"name": "crash", "python": "shop.py:crash"},
        {"name": "leave", "python": "shop.py:leave"},
        {"name": "refund", "python": "shop.py:refund", "parameters": {"order_id": "string"}},
    )

    with pytest.raises(WorldError, match="raised RuntimeError: out of paper"):
        await bench.call("crash")
    with pytest.raises(WorldError, match="raised SystemExit: 0"):
        await bench.call("leave")
    # What it refuses by a ValueError is the caller's mistake.
    assert await bench.call("refund", order_id="W9") == "Error: no W9"
    assert bench.world.state == STATE
    assert bench.calls[0].success is False


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

    async with answering(answer) as url:
        yield url


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


async def test_a_model_or_a_server_cannot_send_a_tool_s_key_elsewhere(tmp_path: Path) -> None:
    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": f"{other}/stolen"})

    requests = list[dict[str, Any]]()
    async with shop_server(requests) as other, answering(elsewhere) as url:
        bench = Bench(
            tmp_path,
            {"name": "moved", "http": {"url": url, "headers": {"X-Token": "$TOKEN"}}},
            {"name": "get", "parameters": {"id": "string"}, "http": {"url": f"{other}/{{{{ id }}}}"}},
        )
        with pytest.raises(WorldError, match="answered 307"):
            await bench.call("moved")
        assert await bench.call("get", id="..") == "Error: `id` cannot be `..`"
        assert requests == []


async def test_calls_of_an_answer_are_executed_in_order_and_kept_by_turn(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CANCEL)
    cancel = ToolRequest(id="c1", name="cancel", arguments='{"order_id": "W1"}')
    other = ToolRequest(id="c2", name="nothing", arguments="{}")

    messages = await bench.tools.exchange("one moment", [cancel, other], 4)
    again = await bench.tools.exchange("", [other], 4)

    assert messages[0] == {
        "role": "assistant",
        "content": "one moment",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "cancel", "arguments": '{"order_id": "W1"}'},
            },
            {"id": "c2", "type": "function", "function": {"name": "nothing", "arguments": "{}"}},
        ],
    }
    assert [(each["role"], each["tool_call_id"]) for each in messages[1:]] == [("tool", "c1"), ("tool", "c2")]
    assert "cancelled" in str(messages[1]["content"])
    assert messages[2]["content"] == "Error: there is no tool nothing. There are: cancel"
    assert bench.tools.exchanges == {4: [*messages, *again]}


async def test_a_world_comes_back_from_its_checkpoint_with_its_calls(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CANCEL)
    await bench.call("cancel", order_id="W1")
    await bench.call("cancel", order_id="W9")
    saved = bench.world.to_json()

    fresh = Bench(tmp_path, CANCEL)
    fresh.world.restore(saved)
    saved["state"]["log"].append("later")  # type: ignore[attr-defined]
    assert fresh.world.state["log"] == ["none"]
    assert fresh.world.actions == bench.world.actions
    fresh.tools.record_again()
    calls = [(call.name, call.success, call.duration_ms) for call in fresh.calls]
    assert calls == [("cancel", True, None), ("cancel", False, None)]
    SideTools([CANCEL], "client", fresh.world, fresh.services, folder=tmp_path).record_again()
    assert len(fresh.calls) == 2


async def test_a_long_result_is_cut_for_the_caller_and_in_the_record(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"name": "much", "returns": "'x' * n", "parameters": {"n": "integer"}})
    for size in (LONGEST_RESULT, LONGEST_RESULT + 1):
        assert len(await bench.call("much", n=size)) == LONGEST_RESULT
        assert len(bench.calls[-1].result or "") == LONGEST_RESULT


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"set": {"log[0]": "1"}}, "Error: log[0]: there is no `0`"),
        ({"set": {"log": "log + [1]", "orders.W7.status": "1"}}, "Error: orders.W7.status: there is no `W7`"),
        ({"set": {"orders.W1.status.deep": "1"}}, "Error: orders.W1.status.deep is no place in the state"),
        ({"delete": ["orders.W7"]}, "Error: orders.W7: there is no `W7`"),
        ({"returns": "missing"}, "Error: `returns` of it: `missing`: 'missing' is undefined"),
        ({"require": [{"that": "log"}]}, "Error: not allowed: log does not hold"),
    ],
)
async def test_a_place_that_is_not_in_the_state_is_refused(tmp_path: Path, spec: Any, refusal: str) -> None:
    bench = Bench(tmp_path, {"name": "it", **spec})
    assert await bench.call("it") == refusal
    assert bench.world.state == STATE


async def test_places_in_lists_and_new_members_can_be_set(tmp_path: Path) -> None:
    places = {"orders.W1['items'][0]": "'rope'", "orders.W1.note": "'new'", "extra": "[1]"}
    bench = Bench(tmp_path, {"name": "it", "set": places, "delete": ["orders['W2']"]})
    assert await bench.call("it") == "done"
    differences = {"orders.W1.items": ["rope"], "orders.W1.note": "new", "orders.W2": None, "extra": [1]}
    assert dict(changes(bench.world.initial, bench.world.state)) == differences


@pytest.mark.parametrize("path", ["", "1a", "a b", "a..b", "a.", "a[b", "a[b[c]"])
def test_other_texts_are_no_path(path: str) -> None:
    with pytest.raises(UsageError, match=r"no path such as|not closed"):
        path_of(path)


def test_what_differs_between_two_states() -> None:
    before = {"a": 1, "b": {"c": [1]}, "d": 2}
    after = {"b": {"c": [1, 2]}, "d": 2, "e": {"f": 1}}
    assert list(changes(before, after)) == [("a", None), ("b.c", [1, 2]), ("e", {"f": 1})]


PROGRAMS = {
    "prints no JSON": ("print('hello')", "did not print JSON: hello"),
    "fails": ("import sys; print('broken'); sys.exit(3)", "exited with 3: broken"),
    "returns a state that is none": ("print('{\"state\": 1}')", "returned a state that is not a mapping"),
    "takes too long": ("import time; time.sleep(60)", "took longer than 0.5 s"),
}


@pytest.mark.parametrize("case", PROGRAMS)
async def test_a_program_that_goes_wrong_is_the_worlds_fault(tmp_path: Path, case: str) -> None:
    code, message = PROGRAMS[case]
    limit = 0.5 if "long" in case else 60.0
    spec: ToolSpec = {"name": "it", "command": [sys.executable, "-c", code], "timeout_sec": limit}
    bench = Bench(tmp_path, spec)
    with pytest.raises(WorldError, match=message):
        await bench.call("it")
    assert [(call.success, message in (call.result or "")) for call in bench.calls] == [(False, True)]
    assert bench.world.state == STATE


TYPED_FUNCTIONS = '''
async def later(state, count: int, names: list[str] | None = None, *rest, rate: float = 0.5, **more):
    """Count later."""
    state["count"] = count
    return [count, names, rate]


def plain(state, anything, flag: bool, table: dict, values: list):
    return {1, 2}


NUMBER = 5
'''


async def test_a_signature_becomes_the_schema_of_the_arguments(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(TYPED_FUNCTIONS)
    later = with_signature({"name": "later", "python": "f.py:later"}, tmp_path)
    assert later["description"] == "Count later." and len(later["digest"]) == 16
    assert later["parameters"] == {
        "count": {"type": "integer"},
        "names": {
            "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
            "default": None,
        },
        "rate": {"type": "number", "default": 0.5},
    }
    plain = with_signature({"name": "plain", "python": "f:plain", "description": "mine"}, tmp_path)
    assert plain["description"] == "mine"
    assert plain["parameters"] == {
        "anything": {},
        "flag": {"type": "boolean"},
        "table": {"type": "object"},
        "values": {"type": "array"},
    }
    assert with_signature(CANCEL, tmp_path) is CANCEL

    bench = Bench(tmp_path, later, plain)
    assert await bench.call("later", count=3) == "[3, null, 0.5]"
    assert bench.world.state["count"] == 3
    with pytest.raises(WorldError, match="the tool plain raised TypeError"):
        await bench.call("plain", anything=1, flag=True, table={}, values=[])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f.py:NUMBER", "`f.py:NUMBER` is not a function"),
        ("f.py:absent", "cannot load the tool `f.py:absent`: AttributeError"),
        ("no_such_module:f", "cannot load the tool `no_such_module:f`: ModuleNotFoundError"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "f.py").write_text(TYPED_FUNCTIONS)
    with pytest.raises(UsageError, match=message):
        load_function(name, tmp_path)
    assert load_function("json:dumps", tmp_path) is json.dumps


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"returns": "log +"}, "has `returns: log +`, which is no expression"),
        ({"returns": "lost"}, "speaks of `lost`, neither parameter nor state"),
        ({"returns": "1", "require": [{"that": "1", "else": "{{ x"}]}, "has an `else` that cannot be read"),
        ({"returns": "1", "parameters": {"type": "object", "properties": 3}}, "that are no JSON Schema"),
        ({"http": {"url": "x"}, "python": "a:b"}, "exclude each other"),
        ({"command": ["x"], "returns": "1"}, "exclude each other"),
        ({}, "does nothing"),
        ({"set": {"orders[nr].x": "'y'"}}, "`nr`"),
        ({"set": {"lost": "1"}}, "speaks of `lost`"),
        ({"delete": ["lost.x"]}, "speaks of `lost`"),
    ],
)
def test_each_fault_of_a_tool_is_described(spec: Any, problem: str) -> None:
    (found,) = tool_problems({"name": "it", **spec}, list(STATE))
    assert problem in found


@pytest.mark.parametrize(
    "spec",
    [
        {"returns": "n + 1", "parameters": {"n": "integer"}},
        {
            "set": {"log[0]": "state.log", "orders[arguments.id]": 7},
            "require": [{"that": "log"}],
            "returns": "1",
        },
        {"python": "a.py:b"},
        {"delete": ["orders.W1"]},
    ],
)
def test_a_tool_without_fault_has_none(spec: Any) -> None:
    assert list(tool_problems({"name": "it", **spec}, list(STATE))) == []


@pytest.mark.parametrize("size", [0, 1])
async def test_an_answer_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    requests = list[dict[str, Any]]()
    async with shop_server(requests) as url:
        # White-box: an answer of the real limit would be too large for a test.
        monkeypatch.setattr("proctor.dialogue.tools.LARGEST_ANSWER_BYTES", len('{"id": "/x"}') - size)
        if size:
            with pytest.raises(WorldError, match=r"larger than 0 MiB"):
                await send(f"{url}/x", {}, method="GET", what="it")
        else:
            assert await send(f"{url}/x", {"a": 1}, what="it") == (200, '{"id": "/x"}')
            assert requests[-1]["body"] == {"a": 1}
            for method in ("get", "DELETE"):
                await send(f"{url}/x", {"a": 1}, method=method, what="it")
                assert requests[-1]["body"] == {}


async def test_the_checks_of_a_task_and_their_words(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CANCEL)
    bench.world.state = {**bench.world.state, **{f"k{n}": n for n in range(7)}}
    await bench.call("cancel", order_id="W9")

    async def failures(checks: dict[str, Any], side: str = "therapist") -> list[str]:
        solved = await execute_solution(checks, bench.world.initial, [CANCEL], bench.services, tmp_path)
        lines = [("client", "yes"), ("therapist", "no")]
        results = check_task(checks, bench.world, lines, side, solved)
        return [failure for result in results for failure in result.failures]

    assert await failures({"state": ["lost"]}) == ["the check: `lost`: 'lost' is undefined"]
    assert await failures({"state": ["k0"]}) == ["k0 does not hold"]
    (refused,) = await failures({"solution": [{"cancel": {"order_id": "W9"}}]})
    assert refused == "the solution cannot be executed: cancel(order_id='W9'): Error: there is no order W9"
    (differs,) = await failures({"solution": []})
    assert differs == ("the final state differs: k0 is 0; k1 is 1; k2 is 2; k3 is 3; k4 is 4 and 2 more")
    # A refused call is no action.
    assert await failures({"actions": ["cancel"]}) == ["cancel() was not called"]
    assert await failures({"no_actions": ["cancel"], "user": {"no_actions": ["cancel"]}}) == []
    assert await failures({"says": [{"regex": "yes"}]}) == ["regex: 'yes' was not said"]
    assert await failures({"says": ["yes"]}, side="client") == []
    assert await failures({"never_says": ["NO"], "user": {"never_says": ["no"]}}) == ["'NO' was said"]
    results = check_task({"says": [], "user": {"says": []}}, bench.world, [], "client", None)
    assert [(each.kind, each.is_of_user) for each in results] == [("says", False), ("user.says", True)]


@pytest.mark.parametrize(
    ("checks", "problem"),
    [
        ({"state": ["orders +"]}, "`state`: `orders +` is no expression"),
        ({"solution": [{"cancel": {"id": 1}}]}, "`solution`: "),
        ({"user": {"actions": ["cancel"]}}, "`user.actions`: there is no tool `cancel`. There are: none"),
        ({"user": {"user": {}}}, "there is no check `user.user`"),
        ({"stat": []}, "there is no check `stat`"),
        ({"says": [{"regexp": "x"}]}, "`says`: "),
    ],
)
def test_each_fault_of_a_check_is_described(checks: Any, problem: str) -> None:
    assert next(check_problems(checks, STATE, [CANCEL], [])).startswith(problem)


def test_checks_without_fault_have_none() -> None:
    code: ToolSpec = {"name": "code", "python": "a.py:b"}
    checks = {"state": ["orders and initial and state"], "solution": ["code", {"cancel": {"order_id": "W2"}}],
              "actions": ["cancel"], "says": ["x"], "user": {"actions": ["code"]}}  # fmt: skip
    assert list(check_problems(checks, STATE, [CANCEL, code], [code])) == []
