"""Each real agent through the real gateway: every call is recorded, and no key comes near the agent."""

import asyncio

import pytest
from loopback_model import DONE, USAGE, LoopbackModel

from proctor.models.gateway.access import Caller
from proctor.models.gateway.server import Gateway
from proctor.models.router import ModelRouter
from proctor.session import Message, ModelCall, ToolCall
from real_agents import ready_agent, ready_names

KEY = "the-providers-own-key-0123456789"


@pytest.mark.parametrize("name", ready_names())
async def test_its_calls_are_counted_exactly_and_what_it_did_is_told_once(desk, name):
    agent = ready_agent(name)
    async with LoopbackModel() as model:
        models = ModelRouter({"OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": KEY})
        gateway = Gateway(models)
        await gateway.start()
        try:
            caller = Caller(
                record=desk.events.append, model="openai/edit", reads_traffic=not agent.records_transcript
            )
            access = gateway.open(caller)
            work = desk.work(agent, gateway, "Add a line to hello.txt", token=access.token)
            done = await asyncio.wait_for(work, 180)
            gateway.shut(access.token)
        finally:
            await gateway.close()
            await models.close()

    assert (done.exit_code, done.failure) == (0, ""), done.output
    assert (desk.folder / "hello.txt").read_text() == "hello\nedited by the agent\n"
    calls = desk.recorded(ModelCall)
    assert len(calls) == len(model.requests) >= 1
    assert {call.usage for call in calls} == {USAGE}
    edits = [tool for tool in desk.recorded(ToolCall) if "hello.txt" in str(tool.args)]
    assert len(edits) == 1
    said = [message.content for message in desk.recorded(Message) if message.role == "assistant"]
    # mini-swe-agent ends with a command of its own; aider makes a commit's message of it.
    assert said.count(DONE) == (0 if name == "mini-swe-agent" else 1)
    assert model.keys == {KEY}
    for secret in (KEY, access.token):
        assert secret not in repr(desk.events) and secret not in done.output
    assert desk.left_running() == []
