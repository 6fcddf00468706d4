"""What is made of what each real agent printed: a good run, a failing tool, a failing model, a stop."""

import asyncio
from pathlib import Path

import pytest
from recordings import ACCESS

from proctor.agents import find_agent
from proctor.errors import ModelError, RateLimited
from proctor.session import Message, ModelCall, ToolCall, Workspace
from proctor.testing import eventually_async

DONE = "Done: one line was added to hello.txt."
EDIT = "printf 'edited by scripted answer\\n' >> hello.txt"
AIDER_LOG, MINI_FILE = "--analytics-log", "-o"

FILES = {
    "aider.txt": {AIDER_LOG: "aider.jsonl"},
    "aider.http401.txt": {AIDER_LOG: "aider.http401.jsonl"},
    "aider.http500.txt": {AIDER_LOG: "aider.http401.jsonl"},
    "mini.txt": {MINI_FILE: "mini.json"},
    "mini.http401.json": {MINI_FILE: "mini.http401.json"},
}


@pytest.fixture
def run(stage, place):
    """Play a recording as an agent of this name and let the adapter work on it."""

    async def run_recording(name, recording, settings=None, **played):
        played.setdefault("files", FILES.get(recording))
        stage.play(name, recording, **played)
        agent = find_agent(name, settings or {})
        return await place.work(agent, "Add a line.", model="openai/gpt-x", access=ACCESS)

    return run_recording


def told(place):
    """What was recorded of tools and of the assistant's words."""
    tools = [(tool.name, tool.args, tool.success) for tool in place.recorded(ToolCall)]
    return tools, [message.content for message in place.recorded(Message)]


@pytest.mark.parametrize(
    ("name", "recording", "tools", "said", "thread"),
    [
        ("claude", "claude.jsonl", [("Bash", {"command": EDIT}, True)], [DONE], "2962410c"),
        (
            "codex",
            "codex.jsonl",
            [("shell", {"command": f'/bin/bash -lc "{EDIT}"'.replace("\\n", "\\\\n")}, True)],
            [DONE],
            "01a1de0c",
        ),
        ("opencode", "opencode.jsonl", [("bash", {"command": EDIT}, True)], [DONE], "ses_e21f"),
        ("gemini", "gemini.jsonl", [("run_shell_command", {"command": EDIT}, None)], [DONE], "957526b5"),
        ("qwen", "qwen.jsonl", [("run_shell_command", {"command": EDIT}, True)], [DONE], "7af501f3"),
        ("pi", "pi.jsonl", [("bash", {"command": EDIT}, True)], [DONE], "01a1de0c"),
        (
            "copilot",
            "copilot.jsonl",
            [("bash", {"command": EDIT, "description": "scripted step"}, True)],
            [DONE],
            "ede9f36a",
        ),
        ("cline", "cline.jsonl", [("run_commands", {"commands": [EDIT]}, True)], [DONE], "conv_1794"),
        (
            "openhands",
            "openhands.jsonl",
            [("terminal", {"command": EDIT, "is_input": False, "timeout": None, "reset": False}, True)],
            ["Done: one line was added."],
            "b87c5a03",
        ),
        # These show no calls, or none that could be read; the gateway's traffic tells them.
        ("continue", "continue.jsonl", [], [], ""),
        ("mini-swe-agent", "mini.txt", [], [], ""),
        ("aider", "aider.txt", [("edit", {"path": "hello.txt"}, True)], [], ""),
    ],
)
async def test_a_good_run_is_told_once_and_counts_no_tokens(place, run, name, recording, tools, said, thread):
    done = await run(name, recording)

    assert (done.exit_code, done.failure) == (0, "")
    assert told(place) == (tools, said)
    threads = [each.thread for each in place.recorded(Workspace)]
    assert len(threads) == bool(thread) and all(each.startswith(thread) for each in threads)
    assert place.recorded(ModelCall) == []
    assert place.left_running() == []


@pytest.mark.parametrize(
    ("name", "recording", "success"),
    [
        ("claude", "claude.failtool.jsonl", False),
        ("codex", "codex.failtool.jsonl", False),
        ("opencode", "opencode.failtool.jsonl", False),
        # These two call it a success; that is not believed.
        ("gemini", "gemini.failtool.jsonl", None),
        ("qwen", "qwen.failtool.jsonl", None),
        ("pi", "pi.failtool.jsonl", False),
        ("copilot", "copilot.failtool.jsonl", False),
        ("cline", "cline.failtool.jsonl", False),
        ("openhands", "openhands.failtool.jsonl", False),
    ],
)
async def test_a_command_that_failed_is_not_told_as_a_success(place, run, name, recording, success):
    done = await run(name, recording)

    assert done.failure == ""
    (tool,) = place.recorded(ToolCall)
    assert tool.success is success
    if name == "openhands":
        assert tool.result.startswith("The terminal session was reset"), "its shell ended with the command"
    else:
        assert {"to-stdout", "to-stderr"} <= set(tool.result.splitlines())
    assert tool.duration_ms is not None


@pytest.mark.parametrize(
    ("name", "recording", "exit_code", "reason"),
    [
        ("claude", "claude.http401.jsonl", 1, "auth"),
        ("claude", "claude.http429.jsonl", 1, "rate_limit"),
        ("claude", "claude.overflow.jsonl", 1, "context_overflow"),
        ("codex", "codex.http401.jsonl", 1, "auth"),
        ("codex", "codex.http429.jsonl", 1, "rate_limit"),
        ("codex", "codex.http500.jsonl", 1, "model_failed"),
        ("codex", "codex.drop.jsonl", 1, "model_failed"),
        ("codex", "codex.overflow.jsonl", 1, "context_overflow"),
        ("opencode", "opencode.http401.jsonl", 1, "auth"),
        ("opencode", "opencode.http429.jsonl", 1, "rate_limit"),
        ("opencode", "opencode.overflow.jsonl", 1, "context_overflow"),
        ("gemini", "gemini.http401.jsonl", 145, "auth"),
        ("gemini", "gemini.drop.jsonl", 1, "model_failed"),
        ("qwen", "qwen.http401.jsonl", 0, "auth"),
        ("qwen", "qwen.drop.jsonl", 0, "model_failed"),
        ("pi", "pi.http401.jsonl", 0, "auth"),
        ("pi", "pi.http500.jsonl", 0, "model_failed"),
        ("pi", "pi.drop.jsonl", 0, "model_failed"),
        ("copilot", "copilot.http401.jsonl", 1, "auth"),
        ("copilot", "copilot.http500.jsonl", 1, "model_failed"),
        ("cline", "cline.http401.jsonl", 1, "auth"),
        ("aider", "aider.http401.txt", 0, "auth"),
        ("aider", "aider.http500.txt", 0, "model_failed"),
        ("openhands", "openhands.http401.jsonl", 0, "auth"),
    ],
)
async def test_a_failure_of_its_model_is_told_from_its_own(place, run, name, recording, exit_code, reason):
    with pytest.raises(ModelError) as raised:
        await run(name, recording, exit_code=exit_code)

    assert raised.value.reason == reason
    assert isinstance(raised.value, RateLimited) is (reason == "rate_limit")
    # An agent's own words in place of its model's are no answer.
    assert not [each for each in place.recorded(Message) if each.content.startswith("[API")]


async def test_a_continue_that_fails_says_so_on_standard_error(run):
    with pytest.raises(ModelError, match="401 scripted failure") as raised:
        await run("continue", "", stderr="continue.http401.stderr.jsonl", exit_code=1)
    assert raised.value.reason == "auth"


async def test_how_mini_swe_agent_ended_is_in_its_trajectory(run):
    with pytest.raises(ModelError) as raised:
        await run("mini-swe-agent", "mini.txt", files={"-o": "mini.http401.json"}, exit_code=1)
    assert raised.value.reason == "auth"

    limited = '{"info": {"exit_status": "LimitsExceeded"}, "messages": [{"role": "exit", "content": ""}]}'
    done = await run("mini-swe-agent", "mini.txt", files={"-o": limited})
    assert (done.exit_code, done.failure) == (0, "LimitsExceeded")


async def test_a_limit_it_ran_into_is_the_agents_own_failure(run):
    done = await run("claude", "claude.loop.jsonl", exit_code=1)
    assert (done.exit_code, done.failure) == (1, "Reached maximum budget ($0.05)")


async def test_a_stream_that_broke_and_was_taken_up_again_is_no_failure(run):
    done = await run("claude", "claude.drop.jsonl")
    assert done.failure == ""


async def test_a_model_that_merely_says_that_it_failed_has_not(place, run):
    said = (
        '{"type":"assistant","message":{"content":[{"type":"text","text":"[API Error: 401]"}],'
        '"usage":{"output_tokens":9}}}\n{"type":"result","result":"[API Error: 401]","is_error":false}\n'
    )
    done = await run("qwen", "", printed=said)
    assert (done.failure, told(place)[1]) == ("", ["[API Error: 401]"])

    sly = {"--analytics-log": "aider.jsonl"}
    done = await run("aider", "", printed="litellm.AuthenticationError: I am only a text\n", files=sly)
    assert done.failure == ""


SLEEPING = [
    "claude.hang.jsonl",
    "codex.sleeptool.jsonl",
    "gemini.sleeptool.jsonl",
    "qwen.sleeptool.jsonl",
    "pi.sleeptool.jsonl",
    "copilot.sleeptool.jsonl",
    "cline.sleeptool.jsonl",
]


@pytest.mark.parametrize("recording", SLEEPING)
async def test_one_that_is_stopped_leaves_nothing_running_and_keeps_its_transcript(
    place, run, stage, recording
):
    name = recording.partition(".")[0]
    forks = "import subprocess; subprocess.Popen(['setsid', 'sleep', '60']); time.sleep(60)"
    working = asyncio.create_task(run(name, recording, then=forks))

    def is_under_way() -> bool:
        # Its output may be read only after it has started the other program.
        has_begun = name == "copilot" or bool(place.recorded(Workspace))
        return has_begun and any(command.startswith("sleep") for command in commands(place))

    await eventually_async(lambda: working.done() or is_under_way())
    assert not working.done()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert place.left_running() == []
    expected = [] if "hang" in recording else [None]
    assert [tool.success for tool in place.recorded(ToolCall)] == expected
    assert bool(place.recorded(Workspace)) is (name != "copilot")


def commands(place):
    found = []
    for pid in place.left_running():
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            pass
    return found
