"""The stand-in agent."""

import asyncio
import subprocess

import pytest

from proctor.agents.scripted import ScriptedAgent
from proctor.errors import ModelError, RateLimited, UsageError, WorkspaceError
from proctor.session import Intervention, Message, ModelCall, ToolCall


async def test_it_edits_writes_appends_and_deletes_and_each_is_a_tool_call(place):
    (place.folder / "a.py").write_text("x = 1 - 1\n")
    (place.folder / "old.txt").write_text("")
    script = [
        {"edit": {"path": "a.py", "find": "- 1", "replace": "+ 1"}},
        {"write": {"path": "new/b.txt", "content": "for {prompt} by {model} ({seed})"}},
        {"append": {"path": "new/b.txt", "content": "!"}},
        {"delete": "old.txt"},
        {"delete": "never-there.txt"},
        {"edit": {"path": "a.py", "find": "not in it", "replace": ""}},
        {"say": "Done with {prompt}"},
    ]

    done = await place.work(ScriptedAgent(script=script), "it", model="m", seed=4)

    assert (done.exit_code, done.failure, done.output) == (0, "", "Done with it")
    assert (place.folder / "a.py").read_text() == "x = 1 + 1\n"
    assert (place.folder / "new/b.txt").read_text() == "for it by m (4)!"
    assert not (place.folder / "old.txt").exists()
    assert [(call.name, call.success) for call in place.recorded(ToolCall)] == [
        ("edit", True),
        ("write", True),
        ("append", True),
        ("delete", True),
        ("delete", False),
        ("edit", False),
    ]
    assert place.recorded(Message)[-1].content == "Done with it"


async def test_a_command_is_really_run_and_its_exit_code_is_its_success(place):
    await place.work(ScriptedAgent(script=[{"run": "echo made > made.txt"}, {"run": "echo no; exit 4"}]))
    first, second = place.recorded(ToolCall)
    assert (first.success, (place.folder / "made.txt").read_text()) == (True, "made\n")
    assert (second.success, second.result) == (False, "no\n")


async def test_a_commit_is_the_agents_own(repository):
    script = [{"write": {"path": "a", "content": "1"}}, {"commit": "It's done: {prompt}"}]
    await repository.work(ScriptedAgent(script=script), "x")
    log = subprocess.run(
        ["git", "-C", str(repository.folder), "log", "--format=%an %s", "--name-only"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert log.stdout.split("\n\n") == ["Scripted agent It's done: x", "a\n"]


async def test_what_it_only_claims_is_recorded_as_told(place):
    usage = {"model": "m", "input": 900, "cached": 100, "output": 40, "cost": 0.25}
    tool = {"name": "Bash", "args": {"command": "ls"}, "success": False, "duration_ms": 5, "result": "no"}
    await place.work(ScriptedAgent(script=[{"tool": tool}, {"usage": usage}, {"ask": "May I?"}]))
    assert place.recorded(ToolCall) == [
        ToolCall(name="Bash", args={"command": "ls"}, success=False, duration_ms=5, result="no")
    ]
    (call,) = place.recorded(ModelCall)
    assert (call.model, call.usage.cached_tokens, call.cost_usd, call.price_source) == (
        "m",
        100,
        0.25,
        "agent",
    )
    assert place.recorded(Intervention) == [Intervention(kind="question", text="May I?")]
    for model in ("its-own", ""):
        await place.work(ScriptedAgent(script=[{"usage": {"input": 1}}]), model=model)
    assert [call.model for call in place.recorded(ModelCall)[1:]] == ["its-own", "scripted"]


async def test_it_can_fail_exit_or_break_in_the_ways_agents_do(place):
    failed = await place.work(ScriptedAgent(script=[{"fail": "cannot {prompt}"}, {"say": "never"}]), "fly")
    assert (failed.exit_code, failed.failure) == (1, "cannot fly")
    left = await place.work(ScriptedAgent(script=[{"exit": 3}]))
    assert (left.exit_code, left.failure) == (3, "it exited with 3")
    assert (await place.work(ScriptedAgent(script=[{"exit": 0}]))).failure == ""
    for kind, error in {"model": ModelError, "rate_limit": RateLimited, "workspace": WorkspaceError}.items():
        with pytest.raises(error):
            await place.work(ScriptedAgent(script=[{"raise": kind}]))
    assert place.recorded(Message) == []


async def test_the_first_rule_that_fits_the_prompt_decides(place):
    script = {
        "rules": [
            {"match": "^fix", "steps": [{"say": "fixing"}]},
            {"match": "x", "steps": [{"say": "second"}]},
        ],
        "steps": [{"say": "otherwise"}],
    }
    agent = ScriptedAgent(script=script)
    for prompt in ("fix x", "an x", "hello"):
        await place.work(agent, prompt)
    assert [message.content for message in place.recorded(Message)] == ["fixing", "second", "otherwise"]


async def test_chance_is_decided_by_seed_and_prompt_and_always_the_same_way(place):
    agent = ScriptedAgent(script=[{"chance": {"p": 0.3, "steps": [{"fail": "unlucky"}]}}])
    first = [bool((await place.work(agent, seed=seed)).failure) for seed in range(200)]
    second = [bool((await place.work(agent, seed=seed)).failure) for seed in range(200)]
    assert first == second
    assert sum(first) == 59
    other = [bool((await place.work(agent, "else", seed=seed)).failure) for seed in range(200)]
    assert other != first
    for chance in (0, 1):
        sure = ScriptedAgent(script=[{"chance": {"p": chance, "steps": [{"fail": "unlucky"}]}}])
        assert {bool((await place.work(sure, seed=seed)).failure) for seed in range(9)} == {bool(chance)}


async def test_a_path_outside_the_tree_is_refused_unless_a_bad_agent_is_rehearsed(place):
    outside = {"path": "../outside.txt", "content": "x"}
    (place.folder / "link").symlink_to(place.home)
    for step in ({"write": outside}, {"delete": "/etc/hostname"}, {"write": {**outside, "path": "link/a"}}):
        assert "outside the tree" in (await place.work(ScriptedAgent(script=[step]))).failure
    assert list(place.home.iterdir()) == []
    assert not (place.folder.parent / "outside.txt").exists()
    await place.work(ScriptedAgent(script=[{"write": outside, "outside": True}]))
    assert (place.folder.parent / "outside.txt").read_text() == "x"


async def test_a_sleep_ends_when_cancelled(place):
    working = asyncio.create_task(place.work(ScriptedAgent(script=[{"sleep": 60}])))
    await asyncio.sleep(0.01)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ([{"sya": "hi"}], "step 1: there is no step `sya`. Did you mean `say`"),
        ([{"say": "a"}, {"say": 3}], "step 2: `say` takes a text"),
        ([{"say": "a", "run": "b"}], "2 kinds"),
        (["say"], "is not a map"),
        ([{"edit": {"path": "a"}}], "needs `find` and `replace`"),
        ([{"write": {"path": "a", "contents": "x"}}], "takes a map of: path, content"),
        ([{"exit": 300}], "exit code"),
        ([{"sleep": -1}], "seconds"),
        ([{"raise": "hell"}], "one of: model"),
        ([{"usage": {"input": "many"}}], "counts tokens"),
        ([{"chance": {"p": 2, "steps": []}}], "from 0 to 1"),
        ([{"chance": {"p": 0.5, "steps": [{"x": 1}]}}], "chance: step 1: there is no step `x`"),
        ({"step": []}, "no `step`"),
        ({}, "empty"),
        ({"steps": "say"}, "`steps` is a list"),
        ({"rules": [{"match": "(", "steps": []}]}, "rule 1: `match` is not a valid regular expression"),
        ({"rules": [{"match": "a"}]}, "rule 1: a rule has"),
    ],
)
def test_a_mistake_in_a_script_is_found_before_it_is_played(script, words):
    with pytest.raises(UsageError) as raised:
        ScriptedAgent(script=script)
    assert words in str(raised.value)
