"""Each real agent, confined by `sandbox: auto`, edits a file, is refused, has a tool fail, and is stopped."""

import asyncio

import pytest
from loopback_model import DONE, EDIT, LoopbackModel
from real_desk import TOKEN

from proctor.errors import ModelError, RateLimited
from proctor.session import Message, ModelCall, ToolCall, Workspace
from real_agents import ready_agent, ready_names

WITHOUT_TOOLS = ("aider",)
# Qwen and OpenHands cannot be told to retry less; they take two minutes over a refusal.
MOST_PATIENT_SECONDS = 300


@pytest.fixture(params=ready_names())
def name(request):
    return request.param


@pytest.fixture
def agent(name, desk):
    found = ready_agent(name)
    assert found.installable.find(desk.environment()), f"{name} is not installed: make test-agents"
    return found


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_it_edits_the_file_and_tells_what_it_did(desk, name, agent, kind):
    if kind == "landlock" and agent.needs_terminal:
        pytest.skip("Proctor refuses it there")
    async with LoopbackModel() as model:
        done = await asyncio.wait_for(desk.work(agent, model, "Add a line to hello.txt", kind=kind), 120)

    assert (done.exit_code, done.failure) == (0, ""), done.output
    assert (desk.folder / "hello.txt").read_text() == "hello\nedited by the agent\n"
    assert desk.git("status", "--porcelain") == ("" if name == "aider" else "M hello.txt")
    assert model.keys == {TOKEN}
    assert any("Add a line to hello.txt" in str(each["body"]) for each in model.requests)
    assert {each["body"].get("model", "edit") for each in model.requests} == {"edit"}
    assert TOKEN not in done.output and TOKEN not in repr(desk.events)
    assert desk.recorded(ModelCall) == []
    if agent.records_transcript:
        (tool,) = desk.recorded(ToolCall)
        assert "edited by the agent" in str(tool.args)
        assert tool.success in (True, None) and tool.duration_ms is not None
        assert desk.recorded(Message)[-1].content == DONE
        assert desk.recorded(Workspace)[0].thread
    assert desk.left_running() == []


async def test_it_reads_a_message_while_it_works(desk, name, agent):
    if not agent.takes_messages:
        pytest.skip(f"{name} reads no messages")
    async with LoopbackModel(command=f"sleep 2; {EDIT}") as model:
        work = desk.work(agent, model, "Add a line to hello.txt", message="Mind the spelling")
        done = await asyncio.wait_for(work, 120)

    assert (done.exit_code, done.failure) == (0, ""), done.output
    assert (desk.folder / "hello.txt").read_text() == "hello\nedited by the agent\n"
    assert "Mind the spelling" not in str(model.requests[0]["body"])
    assert "Mind the spelling" in str(model.requests[-1]["body"])
    assert desk.left_running() == []


@pytest.mark.parametrize(("status", "reason"), [(401, "auth"), (429, "rate_limit"), (500, "model_failed")])
async def test_a_failure_of_its_model_is_told_from_its_own(desk, name, agent, status, reason):
    async with LoopbackModel(status=status) as model:
        with pytest.raises(ModelError) as raised:
            await asyncio.wait_for(desk.work(agent, model, "Add a line to hello.txt"), MOST_PATIENT_SECONDS)

    assert raised.value.reason == reason
    assert isinstance(raised.value, RateLimited) is (status == 429)
    assert TOKEN not in str(raised.value)
    assert desk.git("status", "--porcelain") == ""
    assert desk.left_running() == []


@pytest.mark.parametrize("name", [name for name in ready_names() if ready_agent(name).records_transcript])
async def test_a_command_that_fails_is_never_told_as_a_success(desk, name, agent):
    async with LoopbackModel(command="sh -c 'echo oops; exit 3'") as model:
        await asyncio.wait_for(desk.work(agent, model, "Add a line to hello.txt"), 120)
    (tool,) = desk.recorded(ToolCall)
    assert tool.success is not True
    assert "oops" in tool.result


@pytest.mark.parametrize("name", [name for name in ready_names() if name not in WITHOUT_TOOLS])
async def test_stopping_it_in_the_middle_of_a_command_leaves_nothing_running(desk, name, agent):
    started = desk.folder / "started.txt"
    async with LoopbackModel(command="echo started > started.txt; sleep 300") as model:
        working = asyncio.create_task(desk.work(agent, model, "Add a line to hello.txt"))
        async with asyncio.timeout(120):
            while not started.exists() and not working.done():
                await asyncio.sleep(0.1)
        assert not working.done(), working.result()
        await asyncio.sleep(0.5)  # the command can be quicker than the line that announces it
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
    assert desk.left_running() == []
    if agent.records_transcript and name != "opencode":  # which tells a tool only when it has ended
        assert [tool.success for tool in desk.recorded(ToolCall)] == [None]
