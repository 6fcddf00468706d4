"""The built-in agent: any model, a few tools, and a loop.

It calls the model, runs the requested tools and returns their results, until the model finishes or the steps
are used up. Invalid requests are answered with an error, not fatal.
"""

import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from proctor.agent import Agent, Assignment, Reach, WorkDone
from proctor.errors import WorkspaceError
from proctor.formatting import clipped
from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_text, maps_in, parse_json
from proctor.model import Answer, Model, Request, ToolRequest
from proctor.model_client import ModelClient
from proctor.processes import Confinement, CouldNotStart, run
from proctor.session import Message, Record, ToolCall

LARGEST_FILE_BYTES = 2 * 1024 * 1024
LINES_AT_ONCE = 400
FILES_AT_ONCE = 400
SEARCH_SECONDS = 30.0

# Maximum length of a result for the model: half from its beginning, half from its end.
SHOWN_CHARACTERS = 16_000


class ToolFailed(Exception):
    """A tool call failed; the message is for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """Folder, environment and limits of the tools."""

    folder: Path
    """Resolved before the first tool call: a command may put a link in its place."""
    environment: Mapping[str, str]
    attempt: str
    command_seconds: float
    confinement: Confinement | None = None

    def path(self, written: str, *, to_change: bool = False) -> Path:
        """The path that the model wrote; `ToolFailed` when it is outside the folder."""
        root = self.folder
        try:
            path = (root / written).resolve()
        except (OSError, ValueError, RuntimeError) as problem:
            raise ToolFailed(f"{written!r} is no path: {problem}") from problem
        if not path.is_relative_to(root):
            raise ToolFailed(f"{written} is outside the folder")
        if to_change and path.relative_to(root).parts[:1] in ((), (".git",)):
            raise ToolFailed(f"{written} may not be changed")
        return path


class Tool(NamedTuple):
    """A tool: its definition for the model, and its implementation."""

    description: str
    parameters: Mapping[str, str]
    """Name → description. All are texts; those in `optional` may be omitted."""
    work: Callable[[Workbench, Mapping[str, str]], Awaitable[str]]
    optional: tuple[str, ...] = ()


def described() -> list[JsonObject]:
    """The definitions of all tools for the model."""
    return [_described(name, tool) for name, tool in TOOLS.items()]


async def use(name: str, arguments: JsonMap, bench: Workbench) -> str:
    """Run a tool; `ToolFailed` when the request is invalid or the tool fails."""
    tool = TOOLS.get(name)
    if tool is None:
        raise ToolFailed(f"there is no tool `{name}`; there is: {', '.join(TOOLS)}")
    unknown = [key for key in arguments if key not in tool.parameters]
    missing = [key for key in tool.parameters if key not in arguments and key not in tool.optional]
    if unknown or missing:
        raise ToolFailed(f"`{name}` takes {', '.join(tool.parameters)}; missing {missing}, unknown {unknown}")
    texts = {key: value if isinstance(value, str) else str(value) for key, value in arguments.items()}
    try:
        result = clipped(await tool.work(bench, texts), SHOWN_CHARACTERS // 2)
    except (OSError, ValueError, CouldNotStart) as problem:
        raise ToolFailed(str(problem)) from problem
    # Invalid UTF-8 survives edits, but models and databases reject it.
    return result.encode("utf-8", "replace").decode()


def _described(name: str, tool: Tool) -> JsonObject:
    schema = {
        "type": "object",
        "properties": {key: {"type": "string", "description": says} for key, says in tool.parameters.items()},
        "required": [key for key in tool.parameters if key not in tool.optional],
    }
    function = {"name": name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": function}


async def _read_file(bench: Workbench, arguments: Mapping[str, str]) -> str:
    lines = _text_of(bench.path(arguments["path"])).splitlines()
    first = max(1, int(arguments.get("first_line", "1")))
    page = lines[first - 1 : first - 1 + LINES_AT_ONCE]
    rest = len(lines) - (first - 1 + len(page))
    numbered = "\n".join(f"{number:>5}  {line}" for number, line in enumerate(page, first))
    return numbered + (f"\n[{rest} more lines; go on with first_line]" if rest > 0 else "")


async def _list_files(bench: Workbench, arguments: Mapping[str, str]) -> str:
    files = sorted(_files(bench.path(arguments.get("path", ".")), bench.folder))
    more = "\n[more files; list a folder below]" if len(files) >= FILES_AT_ONCE else ""
    return "\n".join(files) + more or "[no files]"


_NOT_LISTED = (".git", "node_modules", "__pycache__")


def _files(top: Path, root: Path) -> Iterator[str]:
    if not top.is_dir():
        raise ToolFailed(f"{top.relative_to(root)} is no folder")
    count, waiting = 0, [os.fspath(top)]
    # Not `os.walk`, which calls itself for each level of folders that a command may have made.
    while waiting:
        try:
            with os.scandir(waiting.pop()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            # Too deep, or not readable.
            continue
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        waiting += [entry.path for entry in reversed(folders) if entry.name not in _NOT_LISTED]
        for entry in entries:
            if not entry.is_dir():
                yield os.path.relpath(entry.path, root)
                count += 1
                if count >= FILES_AT_ONCE:
                    return


async def _search(bench: Workbench, arguments: Mapping[str, str]) -> str:
    # A separate process with a time limit: a model's regular expression may backtrack endlessly.
    where = bench.path(arguments.get("path", ".")).relative_to(bench.folder)
    result = await run(
        ["grep", "-rnIE", "--exclude-dir=.git", "-e", arguments["pattern"], "--", str(where)],
        folder=bench.folder,
        environment=bench.environment,
        attempt=bench.attempt,
        time_limit=SEARCH_SECONDS,
        keep=SHOWN_CHARACTERS,
        confinement=bench.confinement,
    )
    if result.timed_out:
        raise ToolFailed(f"the search took longer than {SEARCH_SECONDS:.0f} s")
    if result.exit_code > 1:
        raise ToolFailed(result.output.strip())
    return re.sub(r"^\./", "", result.output.strip(), flags=re.MULTILINE) or "[nothing found]"


async def _edit_file(bench: Workbench, arguments: Mapping[str, str]) -> str:
    path = bench.path(arguments["path"], to_change=True)
    text, sought = _text_of(path), arguments["find"]
    times = text.count(sought) if sought else 0
    if times != 1:
        raise ToolFailed(
            f"`find` occurs {times} times in {arguments['path']}; it must be exact and occur exactly once"
        )
    _put(path, text.replace(sought, arguments["replace"]))
    return f"changed {arguments['path']}"


async def _write_file(bench: Workbench, arguments: Mapping[str, str]) -> str:
    path = bench.path(arguments["path"], to_change=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    _put(path, arguments["content"])
    return f"wrote {arguments['path']}"


async def _run(bench: Workbench, arguments: Mapping[str, str]) -> str:
    finished = await run(
        arguments["command"],
        folder=bench.folder,
        environment=bench.environment,
        attempt=bench.attempt,
        time_limit=bench.command_seconds,
        keep=SHOWN_CHARACTERS // 2,
        confinement=bench.confinement,
    )
    if finished.timed_out:
        raise ToolFailed(f"ended after {bench.command_seconds:.0f} s\n{finished.output}")
    if finished.exit_code != 0:
        raise ToolFailed(f"exit code {finished.exit_code}\n{finished.output}")
    return finished.output or "[no output]"


async def _finish(bench: Workbench, arguments: Mapping[str, str]) -> str:  # noqa: ARG001 (needs no place)
    return arguments["summary"]


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise ToolFailed(f"there is no file {path.name}")
    if path.stat().st_size > LARGEST_FILE_BYTES:
        raise ToolFailed(f"{path.name} is larger than {LARGEST_FILE_BYTES >> 20} MiB; use run and search")
    data = path.read_bytes()
    if b"\0" in data:
        raise ToolFailed(f"{path.name} is no text")
    return data.decode("utf-8", "surrogateescape")


def _put(path: Path, text: str) -> None:
    """Write a file, keeping line ends and invalid bytes."""
    if path.exists() and not path.is_file():
        # Opening a pipe would wait for its other end.
        raise ToolFailed(f"{path.name} is no file")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


PATH = "a path relative to the folder"
TOOLS: Mapping[str, Tool] = {
    "read_file": Tool(
        "Show a text file with line numbers.",
        {"path": PATH, "first_line": "where to begin, counted from 1"},
        _read_file,
        ("first_line",),
    ),
    "list_files": Tool("List the files below a folder.", {"path": PATH}, _list_files, ("path",)),
    "search": Tool(
        "Search all files for an extended regular expression, as grep -E does.",
        {"pattern": "the expression", "path": PATH},
        _search,
        ("path",),
    ),
    "edit_file": Tool(
        "Replace a piece of text that occurs exactly once in a file.",
        {"path": PATH, "find": "the text, exactly", "replace": "what stands there instead"},
        _edit_file,
    ),
    "write_file": Tool("Write a whole file.", {"path": PATH, "content": "all of it"}, _write_file),
    "run": Tool("Run a shell command in the folder and show what it prints.", {"command": "it"}, _run),
    "finish": Tool("Say that the work is over.", {"summary": "what was done, or why not"}, _finish),
}
SYSTEM_PROMPT = Path(__file__).with_name("builtin_system.txt")

# Enough of an old result to remember what it was about.
REMEMBERED_CHARACTERS = 200
CUT_OFF = "Your last answer was cut off at its length limit. Go on in smaller steps."


@dataclass(frozen=True, kw_only=True)
class BuiltinAgent(Agent):
    """A tool-using loop over any model."""

    max_steps: int = 50
    """Maximum number of model calls."""
    max_context_chars: int = 200_000
    """Beyond this the oldest tool results are shortened; about a quarter of it is tokens."""
    command_seconds: float = 120.0
    """How long one command may run."""
    parameters: JsonObject = field(default_factory=dict)
    """For the model: temperature, max_tokens and the like."""

    reach: ClassVar[Reach] = "in_process"
    needs_model: ClassVar[bool] = True
    takes_messages: ClassVar[bool] = True

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Work until the model has finished."""
        if assignment.models is None or not assignment.model:
            raise WorkspaceError("the builtin agent needs a model; set `model` in the plan")
        bench = Workbench(
            folder=assignment.folder.resolve(),
            environment=assignment.environment,
            attempt=assignment.attempt,
            command_seconds=self.command_seconds,
            confinement=assignment.confinement,
        )
        talk = _MessageHistory(self, assignment, assignment.models, record)
        for _ in range(self.max_steps):
            answer = await talk.ask()
            for request in answer.tool_requests:
                talk.add_result(request, await _run_tool(request, bench, record))
            summary = _finished(answer)
            if not assignment.messages.empty():
                talk.add_message(assignment.messages.get_nowait())
            elif summary is not None:
                return WorkDone(output=summary)
        return WorkDone(output=talk.last_text, failure=f"it had not finished after {self.max_steps} steps")


class _MessageHistory:
    """The conversation with the model, shortened to its maximum length."""

    def __init__(self, agent: BuiltinAgent, assignment: Assignment, models: Model, record: Record) -> None:
        system = SYSTEM_PROMPT.read_text(encoding="utf-8")
        self._agent, self._assignment, self._record = agent, assignment, record
        self._client = ModelClient(models, record, keep="call")
        self._messages: list[JsonObject] = [
            {"role": "system", "content": system},
            {"role": "user", "content": assignment.prompt},
        ]
        self._tools = described()
        self.last_text = ""
        record(Message(role="system", content=system))

    async def ask(self) -> Answer:
        """The model's next answer, recorded and added to the conversation."""
        _shorten(self._messages, self._agent.max_context_chars)
        request = Request(
            model=self._assignment.model,
            messages=self._messages,
            tools=self._tools,
            parameters=self._agent.parameters,
            seed=self._assignment.seed,
        )
        answer = await self._client.ask(request)
        if answer.text:
            self.last_text = answer.text
            self._record(Message(role="assistant", content=answer.text))
        self._messages.append(_as_message(answer))
        if _is_cut_off(answer):
            self._messages.append({"role": "user", "content": CUT_OFF})
        return answer

    def add_message(self, text: str) -> None:
        """Add a message of a person to the conversation."""
        self._messages.append({"role": "user", "content": text})

    def add_result(self, request: ToolRequest, result: str) -> None:
        """Add the result of a tool to the conversation."""
        self._messages.append({"role": "tool", "tool_call_id": request.id, "content": result})


def _as_message(answer: Answer) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": answer.text}
    if answer.tool_requests:
        message["tool_calls"] = [
            {
                "id": request.id,
                "type": "function",
                "function": {"name": request.name, "arguments": request.arguments},
            }
            for request in answer.tool_requests
        ]
    return message


def _is_cut_off(answer: Answer) -> bool:
    return answer.finish_reason == "length" and not answer.tool_requests


def _finished(answer: Answer) -> str | None:
    """The final answer; None when the model continues."""
    for request in answer.tool_requests:
        if request.name == "finish" and "summary" in (arguments := _arguments(request.arguments)):
            return str(arguments["summary"])
    if answer.tool_requests or _is_cut_off(answer):
        return None
    return answer.text


async def _run_tool(request: ToolRequest, bench: Workbench, record: Record) -> str:
    """Run a tool, record the call, and return the text for the model: the result, or the error."""
    began = time.perf_counter()
    arguments: JsonMap = {}
    try:
        arguments = _strict_arguments(request.arguments)
        result, success = await use(request.name, arguments, bench), True
    except ToolFailed as failed:
        result, success = f"error: {failed}", False
    duration = (time.perf_counter() - began) * 1000
    record(ToolCall(name=request.name, args=arguments, success=success, result=result, duration_ms=duration))
    return result


def _strict_arguments(written: str) -> JsonMap:
    try:
        arguments = parse_json(written or "{}")
    except (ValueError, TypeError) as problem:
        raise ToolFailed(f"the arguments are no JSON: {problem}") from problem
    if not isinstance(arguments, dict):
        raise ToolFailed("the arguments are no JSON object")
    return arguments


def _arguments(written: str) -> JsonMap:
    try:
        return _strict_arguments(written)
    except ToolFailed:
        return {}


def _shorten(messages: list[JsonObject], most: int) -> None:
    """Cut the oldest results, then the oldest arguments, until the conversation fits."""
    over = sum(map(_size, messages)) - most
    for shorten in (_short_result, _short_arguments):
        for message in messages:
            if over <= 0:
                return
            before = _size(message)
            shorten(message)
            over -= before - _size(message)


def _size(message: JsonMap) -> int:
    arguments = (as_map(call, "function").get("arguments") for call in as_list(message, "tool_calls"))
    return len(as_text(message["content"])) + sum(len(as_text(each)) for each in arguments)


def _short_result(message: JsonObject) -> None:
    content = as_text(message["content"])
    if message["role"] == "tool" and len(content) > 2 * REMEMBERED_CHARACTERS:
        gone = len(content) - REMEMBERED_CHARACTERS
        message["content"] = f"{content[:REMEMBERED_CHARACTERS]}\n[… {gone} characters left out]"


def _short_arguments(message: JsonObject) -> None:
    calls = list[JsonMap]()
    for call in maps_in(message, "tool_calls"):
        function = as_map(call, "function")
        if len(as_text(function, "arguments")) > 2 * REMEMBERED_CHARACTERS:
            function = {**function, "arguments": '{"shortened": true}'}
        calls.append({**call, "function": function})
    if calls:
        message["tool_calls"] = calls
