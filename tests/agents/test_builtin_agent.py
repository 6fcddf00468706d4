"""Our own agent, over scripted models."""

import asyncio
import json

import pytest

from proctor.agents.builtin import BuiltinAgent
from proctor.errors import WorkspaceError
from proctor.model import Answer, ToolRequest
from proctor.session import Message, ModelCall, ToolCall
from proctor.testing import eventually_async


class Said:
    """A model that answers with these, one after the other, and keeps what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    async def answer(self, request):
        self.requests.append([dict(message) for message in request.messages])
        self.tools = request.tools
        said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        text, tools = (said, []) if isinstance(said, str) else ("", said)
        wanted = tuple(
            ToolRequest(
                id=f"c{number}", name=name, arguments=given if isinstance(given, str) else json.dumps(given)
            )
            for number, (name, given) in enumerate(tools)
        )
        return Answer(text=text, call=ModelCall(model=request.model), tool_requests=wanted)


def call(name, **given):
    return [(name, given)]


FINISH = call("finish", summary="Done.")


async def tried(place, *answers, agent=None):
    model = Said(*answers)
    done = await place.work(agent or BuiltinAgent(), models=model, model="m")
    return done, model


async def test_it_looks_edits_checks_and_finishes(place):
    (place.folder / "a.py").write_text("def one():\n    return 2\n")
    done, model = await tried(
        place,
        call("list_files"),
        call("search", pattern="return [0-9]"),
        call("search", pattern="nowhere"),
        call("read_file", path="a.py"),
        call("edit_file", path="a.py", find="return 2", replace="return 1"),
        call("write_file", path="tests/t.py", content="import a\nassert a.one() == 1\n"),
        call("run", command="PYTHONPATH=. python3 tests/t.py && echo passed"),
        FINISH,
    )
    assert (done.failure, done.output) == ("", "Done.")
    assert (place.folder / "a.py").read_text() == "def one():\n    return 1\n"
    calls = place.recorded(ToolCall)
    names = "list_files search search read_file edit_file write_file run finish"
    assert [each.name for each in calls] == names.split()
    assert all(each.success and each.duration_ms >= 0 for each in calls)
    assert calls[0].result == "a.py"
    assert calls[1].result == "a.py:2:    return 2"
    assert calls[2].result == "[nothing found]"
    assert calls[3].result == "    1  def one():\n    2      return 2"
    assert calls[6].result == "passed\n"
    assert len(place.recorded(ModelCall)) == 8
    assert model.requests[1][-1] == {"role": "tool", "tool_call_id": "c0", "content": "a.py"}


async def test_a_model_is_told_what_each_tool_requires(place):
    _, model = await tried(place, FINISH)
    functions = {tool["function"]["name"]: tool["function"] for tool in model.tools}
    assert {name: each["parameters"]["required"] for name, each in functions.items()} == {
        "read_file": ["path"],
        "list_files": [],
        "search": ["pattern"],
        "edit_file": ["path", "find", "replace"],
        "write_file": ["path", "content"],
        "run": ["command"],
        "finish": ["summary"],
    }
    assert functions["list_files"]["description"] == "List the files below a folder."
    assert functions["list_files"]["parameters"]["properties"] == {
        "path": {"type": "string", "description": "a path relative to the folder"}
    }


async def test_an_answer_without_tools_is_the_last_one(place):
    done, _ = await tried(place, "There is nothing to do.")
    assert (done.failure, done.output) == ("", "There is nothing to do.")
    assert place.recorded(Message)[-1].content == "There is nothing to do."


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("run", '{"command": ', "no JSON"),
        ("run", "[1]", "no JSON object"),
        ("run", {}, "missing ['command']"),
        ("run", {"command": "true", "cwd": "/"}, "unknown ['cwd']"),
        ("fly", {}, "no tool `fly`"),
        ("run", {"command": "echo no; exit 3"}, "exit code 3\nno"),
        ("read_file", {"path": "none.py"}, "no file none.py"),
        ("read_file", {"path": "a.py", "first_line": "x"}, "invalid literal"),
        ("read_file", {"path": "bin"}, "no text"),
        ("read_file", {"path": "huge"}, "huge is larger than 2 MiB"),
        ("read_file", {"path": "a\0b"}, "no path"),
        ("read_file", {"path": "../home/secret"}, "outside the folder"),
        ("read_file", {"path": "/etc/passwd"}, "outside the folder"),
        ("read_file", {"path": "link/secret"}, "outside the folder"),
        ("write_file", {"path": "link/new", "content": "x"}, "outside the folder"),
        ("write_file", {"path": "loop", "content": "x"}, ""),
        ("write_file", {"path": ".git/hooks/x", "content": "x"}, "may not be changed"),
        ("write_file", {"path": ".", "content": "x"}, "may not be changed"),
        ("list_files", {"path": ".."}, "outside the folder"),
        ("list_files", {"path": "a.py"}, "no folder"),
        ("search", {"pattern": "x", "path": "/"}, "outside the folder"),
        ("search", {"pattern": "("}, "grep"),
        ("edit_file", {"path": "a.py", "find": "x", "replace": "y"}, "occurs 2 times"),
        ("edit_file", {"path": "a.py", "find": "zz", "replace": "y"}, "occurs 0 times"),
        ("edit_file", {"path": "a.py", "find": "", "replace": "y"}, "occurs 0 times"),
    ],
)
async def test_what_a_model_asks_for_wrongly_is_answered_and_harms_nothing(place, name, given, words):
    (place.folder / "a.py").write_text("x x")
    (place.folder / "bin").write_bytes(b"a\0b")
    (place.folder / "huge").write_text("x" * (2 * 1024 * 1024 + 1))
    (place.home / "secret").write_text("secret")
    (place.folder / "link").symlink_to(place.home)
    (place.folder / "loop").symlink_to("loop")
    done, model = await tried(place, [(name, given)], FINISH)
    assert done.failure == ""
    tool = place.recorded(ToolCall)[0]
    assert tool.success is False and words in tool.result
    assert model.requests[1][-1]["content"] == tool.result
    assert (place.folder / "a.py").read_text() == "x x"
    assert sorted(path.name for path in place.home.iterdir()) == ["secret"]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("read_file", {"path": "secret"}),
        ("edit_file", {"path": "secret", "find": "secret", "replace": "x"}),
        ("write_file", {"path": "secret", "content": "x"}),
        ("list_files", {}),
    ],
)
async def test_a_link_in_place_of_the_folder_leads_nowhere(place, name, given):
    (place.home / "secret").write_text("secret")
    swap = f"mv {place.folder} {place.folder}-old; ln -s {place.home} {place.folder}"
    await tried(place, call("run", command=swap), [(name, given)], FINISH)
    tool = place.recorded(ToolCall)[1]
    assert tool.success is False and "outside the folder" in tool.result
    assert (place.home / "secret").read_text() == "secret"


async def test_a_pipe_is_not_written_to(place):
    await tried(
        place, call("run", command="mkfifo pipe"), call("write_file", path="pipe", content="x"), FINISH
    )
    assert "pipe is no file" in place.recorded(ToolCall)[1].result


async def test_a_command_has_a_time_limit_and_leaves_nothing_behind(place):
    await tried(
        place, call("run", command="echo begun; sleep 63"), FINISH, agent=BuiltinAgent(command_seconds=0.3)
    )
    result = place.recorded(ToolCall)[0]
    assert result.success is False and "begun" in result.result
    assert place.left_running() == []


async def test_a_long_result_is_shown_head_and_tail(place):
    await tried(place, call("run", command="seq 1 100000"), FINISH)
    shown = place.recorded(ToolCall)[0].result
    assert len(shown) < 20_000 and shown.startswith("1\n") and shown.endswith("100000\n")


async def test_400_files_are_listed_at_once(place):
    for number in range(401):
        (place.folder / f"{number:03}").touch()
    await tried(place, call("list_files"), FINISH)
    listed = place.recorded(ToolCall)[0].result.splitlines()
    assert listed[:400] == [f"{number:03}" for number in range(400)] and "400" not in listed


async def test_bytes_that_are_no_text_survive_an_edit_and_reach_no_model(place):
    (place.folder / "latin.txt").write_bytes(b"caf\xe9\r\nold\r\n")
    await tried(
        place,
        call("read_file", path="latin.txt"),
        call("edit_file", path="latin.txt", find="old", replace="new"),
        FINISH,
    )
    assert (place.folder / "latin.txt").read_bytes() == b"caf\xe9\r\nnew\r\n"
    place.recorded(ToolCall)[0].result.encode("utf-8")


async def test_it_stops_after_its_steps(place):
    done, model = await tried(place, call("list_files"), agent=BuiltinAgent(max_steps=4))
    assert done.failure == "it had not finished after 4 steps"
    assert len(model.requests) == 4


async def test_the_conversation_stays_within_its_bound_and_the_newest_results_whole(place):
    (place.folder / "big.txt").write_text("word " * 1500)
    _, model = await tried(
        place, call("read_file", path="big.txt"), agent=BuiltinAgent(max_steps=12, max_context_chars=30_000)
    )
    sizes = [sum(len(message["content"]) for message in request) for request in model.requests]
    assert max(sizes) <= 30_000
    last = model.requests[-1]
    assert "characters left out" in last[3]["content"]
    assert len(last[-1]["content"]) > 7000
    assert last[1]["content"] == "Fix it."


async def test_a_result_is_shortened_when_it_has_twice_the_characters_that_are_kept(place):
    results = [call("run", command=f"printf %0{size}d 7") for size in (400, 401)]
    _, model = await tried(place, *results, "Done.", agent=BuiltinAgent(max_context_chars=1))
    short, long = (message["content"] for message in model.requests[-1] if message["role"] == "tool")
    assert (len(short), long) == (400, "0" * 200 + "\n[… 201 characters left out]")


async def test_an_answer_cut_off_at_its_length_is_not_taken_for_the_last(place):
    class CutOff(Said):
        async def answer(self, request):
            answer = await super().answer(request)
            return Answer(text=answer.text, call=answer.call, finish_reason="length")

    done = await place.work(BuiltinAgent(max_steps=3), models=CutOff("I will now"), model="m")
    assert "not finished after 3 steps" in done.failure


async def test_without_a_model_it_says_what_to_do(place):
    with pytest.raises(WorkspaceError, match="set `model` in the plan"):
        await place.work(BuiltinAgent(), model="")


async def test_a_cancelled_run_leaves_no_command_behind(place):
    model = Said(call("run", command="setsid sleep 64"))
    working = asyncio.create_task(place.work(BuiltinAgent(), models=model, model="m"))
    await eventually_async(lambda: place.left_running())
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert place.left_running() == []
