"""A model on loopback that every agent can talk to, and that always does the same.

It speaks OpenAI chat completions and responses, Anthropic messages and Gemini, streaming or not. Its
first answer has the agent run one command with whatever tool for commands the agent offers; when the
command's result is there, it says that it is done. An agent without tools is answered with an edit in
the form it asks for. Every call counts the same, so that totals can be checked.

Knows no agent by name.
"""

import json
import re
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from proctor.model import Request, ToolRequest, WireAnswer
from proctor.models.gateway.call import DIALECTS
from proctor.models.gateway.dialect import Frame
from proctor.session import Usage

USAGE = Usage(input_tokens=1234, cached_tokens=200, output_tokens=56)
WIRES = {
    r"/chat/completions$": "chat",
    r"/responses$": "responses",
    r"/messages$": "messages",
    r":(streamGenerateContent|generateContent)$": "gemini",
}
"""By the end of the path."""

EDIT = "printf 'edited by the agent\\n' >> hello.txt"
DONE = "Done: one line was added to hello.txt."
SHELLS = re.compile(
    r"^(bash|shell|shell_command|exec_command|run_shell_command|terminal|run_commands)$", re.I
)
SEARCH_REPLACE = """I add one line.

hello.txt
```
<<<<<<< SEARCH
hello
=======
hello
edited by the agent
>>>>>>> REPLACE
```
"""


@dataclass
class LoopbackModel:
    """Answers by script; `requests` holds what it was asked."""

    command: str = EDIT
    status: int = 200
    """Anything else refuses every call with this HTTP status."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    """The API keys it was given, in whatever header."""
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> "LoopbackModel":
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @asynccontextmanager
    async def serve(self, listener: socket.socket) -> AsyncIterator[None]:
        """Also listen on this socket, which may be in the network of a sandbox; closes it at the end."""
        assert self._runner is not None
        listener.setblocking(False)
        site = web.SockSite(self._runner, listener)
        await site.start()
        try:
            yield
        finally:
            await site.stop()
            listener.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self._note_key(request)
        if request.method == "GET":
            return web.json_response({"object": "list", "data": [{"id": "edit", "object": "model"}]})
        if path.endswith(("count_tokens", ":countTokens")):
            return web.json_response({"input_tokens": 100, "totalTokens": 100})
        wire = next((wire for pattern, wire in WIRES.items() if re.search(pattern, path)), None)
        if wire is None:
            return web.json_response({"error": {"message": f"no such path: {path}"}}, status=404)
        body = await request.json()
        self.requests.append({"path": path, "body": body})
        if self.status != 200:
            problem = {"type": "error", "message": f"scripted failure {self.status}", "code": self.status}
            return web.json_response({"type": "error", "error": problem}, status=self.status)
        dialect = DIALECTS[wire]
        answer = self._answer(dialect.parse_request(body, "edit").request)
        frame = Frame(id="answer-1", model=body.get("model", "edit"), created=1, body=body)
        if not (body.get("stream") or "stream" in path):
            return web.json_response(dialect.answer(answer, frame))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in dialect.stream(answer, frame):
            await response.write(event)
        return response

    def _note_key(self, request: web.Request) -> None:
        for header in ("authorization", "x-api-key", "x-goog-api-key"):
            if value := request.headers.get(header):
                self.keys.add(value.removeprefix("Bearer "))

    def _answer(self, request: Request) -> WireAnswer:
        said = json.dumps(list(request.messages))
        tools = {tool["function"]["name"]: tool["function"] for tool in request.tools if "function" in tool}
        shell = next((tool for name, tool in tools.items() if SHELLS.match(name)), None)
        if shell is None:
            wants_edit = "SEARCH/REPLACE" in said and "edited by the agent" not in said
            return WireAnswer(SEARCH_REPLACE if wants_edit else DONE, USAGE)
        if not any(message["role"] == "tool" for message in request.messages):
            return _calling(shell["name"], _arguments(shell.get("parameters", {}), self.command))
        if "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" in said:
            ending = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
            return _calling(shell["name"], _arguments(shell.get("parameters", {}), ending))
        return _calling("finish", {"message": DONE}) if "finish" in tools else WireAnswer(DONE, USAGE)


def _calling(name: str, arguments: Mapping[str, Any]) -> WireAnswer:
    call = ToolRequest(id="call_1", name=name, arguments=json.dumps(arguments))
    return WireAnswer("", USAGE, (call,), "tool_calls")


def _arguments(schema: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The command in the shape this tool wants, and something for whatever else it insists on."""
    known: Mapping[str, Any] = schema.get("properties", {})
    given: dict[str, Any] = {}
    for name in ("command", "cmd", "commands"):
        if name in known:
            given[name] = _shaped(known[name], command)
            break
    for name in schema.get("required", ()):
        given.setdefault(name, _anything(known.get(name, {})))
    return given


def _shaped(schema: Mapping[str, Any], command: str) -> str | Sequence[str]:
    kinds = json.dumps(schema)
    if '"array"' not in kinds:
        return command
    return ["bash", "-lc", command] if "execvp" in kinds.lower() else [command]


def _anything(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    return {"boolean": False, "number": 1, "integer": 1, "array": []}.get(str(schema.get("type")), "a step")
