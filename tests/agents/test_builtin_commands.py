"""Commands of the built-in agent: how they end is told to its model."""

from typing import Any, cast

from proctor.agents import builtin


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


def test_the_limits_of_the_agent() -> None:
    agent = builtin.BuiltinAgent()
    assert (agent.max_steps, agent.max_context_chars, agent.command_seconds) == (50, 200_000, 120.0)
    assert not agent.stand_in and agent.needs_model and agent.availability({}).ready
