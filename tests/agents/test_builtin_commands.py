"""Commands of the built-in agent: how they end is told to its model."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from proctor.agents import builtin
from proctor.agents.builtin import ToolFailed, Workbench
from proctor.model import Answer, ToolRequest
from proctor.session import ModelCall, ToolCall


@pytest.mark.parametrize(
    ("timed_out", "exit_code", "output", "told"),
    [
        (False, 0, "fine", "fine"),
        (False, 0, "", "[no output]"),
        (False, 2, "bad", ToolFailed("exit code 2\nbad")),
        (True, -9, "slow", ToolFailed("ended after 30 s\nslow")),
        (True, 0, "slow", ToolFailed("ended after 30 s\nslow")),
    ],
)
async def test_how_a_command_ended_is_told(
    timed_out: bool, exit_code: int, output: str, told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = list[Any]()

    async def run(command: str, **settings: Any) -> SimpleNamespace:
        started.append((command, settings))
        return SimpleNamespace(timed_out=timed_out, exit_code=exit_code, output=output)

    monkeypatch.setattr(builtin, "run", run)
    bench: Any = SimpleNamespace(
        folder="folder", environment={"A": "1"}, attempt="a1", command_seconds=30.0, confinement="confined"
    )
    if isinstance(told, ToolFailed):
        with pytest.raises(ToolFailed) as raised:
            await builtin._run(bench, {"command": "make"})
        assert str(raised.value) == str(told)
    else:
        assert await builtin._run(bench, {"command": "make"}) == told
    ((command, settings),) = started
    assert command == "make" and settings.pop("keep") > 1000
    assert settings == {
        "folder": "folder",
        "environment": {"A": "1"},
        "attempt": "a1",
        "time_limit": 30.0,
        "confinement": "confined",
    }


def bench_in(folder: Path) -> Workbench:
    return Workbench(folder=folder, environment={}, attempt="a1", command_seconds=1)


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ({}, "    1  line 1", "[450 more lines; go on with first_line]"),
        ({"first_line": "1"}, "    1  line 1", "[450 more lines; go on with first_line]"),
        ({"first_line": "0"}, "    1  line 1", "[450 more lines; go on with first_line]"),
        ({"first_line": "2"}, "    2  line 2", "[449 more lines; go on with first_line]"),
        ({"first_line": "450"}, "  450  line 450", "[1 more lines; go on with first_line]"),
        ({"first_line": "451"}, "  451  line 451", "  850  line 850"),
        ({"first_line": "850"}, "  850  line 850", "  850  line 850"),
        ({"first_line": "851"}, "", ""),
    ],
)
async def test_a_file_is_shown_in_pages_of_400_lines(
    tmp_path: Path, arguments: dict[str, str], first: str, last: str
) -> None:
    (tmp_path / "long").write_text("".join(f"line {number}\n" for number in range(1, 851)))
    shown = (await builtin._read_file(bench_in(tmp_path), {"path": "long", **arguments})).split("\n")
    assert (shown[0], shown[-1]) == (first, last)
    assert len(shown) == min(400, 851 - max(1, int(arguments.get("first_line", "1")))) + (
        "more" in last
    ) or shown == [""]


@pytest.mark.parametrize(("count", "has_more"), [(399, False), (400, True), (402, True)])
async def test_up_to_400_files_are_listed(tmp_path: Path, count: int, has_more: bool) -> None:
    (tmp_path / "d").mkdir()
    for number in range(count):
        (tmp_path / "d" / f"{number:03}").touch()
    shown = (await builtin._list_files(bench_in(tmp_path), {"path": "d"})).split("\n")
    assert shown[: min(count, 400)] == [f"d/{number:03}" for number in range(min(count, 400))]
    assert shown[min(count, 400) :] == (["[more files; list a folder below]"] if has_more else [])


async def test_files_are_listed_without_those_of_git_and_packages(tmp_path: Path) -> None:
    assert await builtin._list_files(bench_in(tmp_path), {}) == "[no files]"
    for name in (".git/x", "node_modules/x", "a/__pycache__/x", "b/x", "a/x", "y"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert await builtin._list_files(bench_in(tmp_path), {}) == "a/x\nb/x\ny"


@pytest.mark.parametrize(
    ("timed_out", "exit_code", "output", "told"),
    [
        (False, 0, "./a:1:x\n./b:2:./x\n", "a:1:x\nb:2:./x"),
        (False, 1, "", "[nothing found]"),
        (False, 2, "grep: bad\n", ToolFailed("grep: bad")),
        (True, 0, "", ToolFailed("the search took longer than 30 s")),
    ],
)
async def test_how_a_search_ended_is_told(
    tmp_path: Path,
    timed_out: bool,
    exit_code: int,
    output: str,
    told: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = list[Any]()

    async def run(command: list[str], **settings: Any) -> SimpleNamespace:
        commands.append((command, settings["time_limit"], settings["keep"]))
        return SimpleNamespace(timed_out=timed_out, exit_code=exit_code, output=output)

    monkeypatch.setattr(builtin, "run", run)
    arguments = {"pattern": "x+", "path": "sub"}
    if isinstance(told, ToolFailed):
        with pytest.raises(ToolFailed) as raised:
            await builtin._search(bench_in(tmp_path), arguments)
        assert str(raised.value) == str(told)
    else:
        assert await builtin._search(bench_in(tmp_path), arguments) == told
    command = ["grep", "-rnIE", "--exclude-dir=.git", "-e", "x+", "--", "sub"]
    assert commands == [(command, 30.0, 16_000)]


async def test_a_call_of_a_tool_is_recorded_with_its_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((10.0, 10.25, 20.0, 20.5))
    monkeypatch.setattr(builtin.time, "perf_counter", lambda: next(times))
    recorded = list[Any]()
    bench = bench_in(tmp_path)
    for name, arguments, result in (
        ("finish", '{"summary": "all"}', "all"),
        ("finish", "[1]", "error: the arguments are no JSON object"),
    ):
        request = ToolRequest(id="c", name=name, arguments=arguments)
        assert await builtin._run_tool(request, bench, recorded.append) == result
    assert recorded == [
        ToolCall(name="finish", args={"summary": "all"}, success=True, result="all", duration_ms=250.0),
        ToolCall(
            name="finish",
            args={},
            success=False,
            result="error: the arguments are no JSON object",
            duration_ms=500.0,
        ),
    ]


def test_each_tool_is_described_with_what_it_requires() -> None:
    described = {each["function"]["name"]: each for each in cast(Any, builtin.described())}
    required = {
        name: (list(each["function"]["parameters"]["properties"]), each["function"]["parameters"]["required"])
        for name, each in described.items()
    }
    assert required == {
        "read_file": (["path", "first_line"], ["path"]),
        "list_files": (["path"], []),
        "search": (["pattern", "path"], ["pattern"]),
        "edit_file": (["path", "find", "replace"], ["path", "find", "replace"]),
        "write_file": (["path", "content"], ["path", "content"]),
        "run": (["command"], ["command"]),
        "finish": (["summary"], ["summary"]),
    }
    assert described["list_files"] == {
        "type": "function",
        "function": {
            "name": "list_files",
            "description": "List the files below a folder.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string", "description": "a path relative to the folder"}},
                "required": [],
            },
        },
    }


def asked(size: int) -> dict[str, Any]:
    function = {"name": "run", "arguments": "a" * size}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        # Nothing; the first result; both that are long; then the first arguments; all.
        (2201, [400, 401, 400, 500, 500]),
        (2200, [400, 228, 400, 500, 500]),
        (2028, [400, 228, 400, 500, 500]),
        (2027, [400, 228, 400, 500, 228]),
        (1756, [400, 228, 400, 500, 228]),
        (1755, [400, 228, 400, 19, 228]),
        (1, [400, 228, 400, 19, 228]),
    ],
)
def test_the_oldest_results_are_shortened_first_and_then_arguments(most: int, sizes: list[int]) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "u" * 400},
        {"role": "tool", "content": "r" * 401},
        {"role": "tool", "content": "r" * 400},
        asked(500),
        {"role": "tool", "content": "r" * 500},
    ]
    builtin._shorten(messages, most)
    assert [builtin._size(message) for message in messages] == sizes
    assert messages[1]["content"] in ("r" * 401, "r" * 200 + "\n[… 201 characters left out]")


@pytest.mark.parametrize(("size", "kept"), [(400, 400), (401, len('{"shortened": true}'))])
def test_arguments_of_more_than_400_characters_are_shortened(size: int, kept: int) -> None:
    message = asked(size)
    builtin._short_arguments(message)
    assert builtin._size(message) == kept and message["tool_calls"][0]["id"] == "c"


@pytest.mark.parametrize(
    ("text", "tools", "reason", "end"),
    [
        ("all", [], "stop", "all"),
        ("all", [], "length", None),
        ("x", [("run", "{}")], "stop", None),
        ("x", [("run", "{}")], "length", None),
        ("x", [("run", "{}"), ("finish", '{"summary": 7}')], "stop", "7"),
        ("x", [("run", '{"summary": 7}')], "stop", None),
        ("x", [("finish", "{}")], "stop", None),
        ("x", [("finish", "{")], "stop", None),
    ],
)
def test_when_the_work_is_over(text: str, tools: list[tuple[str, str]], reason: str, end: str | None) -> None:
    requests = tuple(ToolRequest(id="c", name=name, arguments=given) for name, given in tools)
    answer = Answer(text=text, call=ModelCall(model="m"), tool_requests=requests, finish_reason=reason)
    assert builtin._finished(answer) == end


@pytest.mark.parametrize(("size", "is_read"), [(2 << 20, True), ((2 << 20) + 1, False)])
def test_a_file_of_two_megabytes_is_read(tmp_path: Path, size: int, is_read: bool) -> None:
    (tmp_path / "big").write_bytes(b"x" * size)
    if is_read:
        assert len(builtin._text_of(tmp_path / "big")) == size
    else:
        with pytest.raises(ToolFailed, match=r"^big is larger than 2 MiB; use run and search$"):
            builtin._text_of(tmp_path / "big")


def test_the_limits_of_the_agent() -> None:
    agent = builtin.BuiltinAgent()
    assert (agent.max_steps, agent.max_context_chars, agent.command_seconds) == (50, 200_000, 120.0)
    assert not agent.stand_in and agent.needs_model and agent.availability({}).ready
