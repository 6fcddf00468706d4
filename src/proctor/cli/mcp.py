"""`proctor mcp`: the tools of a Model Context Protocol server on standard input and output.

Each tool returns the JSON document that the command of its name prints with `--json`.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field, ValidationError

from proctor import __version__
from proctor.api.launch import parse_document
from proctor.cli import output
from proctor.cli.run import terminal_context
from proctor.errors import ProctorError, UsageError
from proctor.item import RUNNING
from proctor.json_values import JsonObject, as_text
from proctor.web.plans import PlanRequest, TypedPlan
from proctor.web.state import AppState

mcp_app = typer.Typer(add_completion=False)
apps = {"mcp": mcp_app}
INSTRUCTIONS = """\
Proctor runs AI agents and models in batches, records every step, scores the results, and says whether a
difference is real. Write a plan as a YAML file, `check` it (nothing runs or is paid), `start` it, `watch` it
until it has ended, `show` items that failed, and `compare` models or runs. Figures have intervals: call a
difference real only when the comparison does."""
MOST_SECONDS = 600
"""How long one call may wait for a run."""
MOST_ITEMS = 200
POLL_SECONDS = 0.5

Run = Annotated[str, Field(description="Run ID, or an unambiguous prefix.")]
Plan = Annotated[str, Field(description="Path of a plan file: YAML of any job.")]


@mcp_app.command()
def mcp(context: typer.Context) -> int:
    """Serve tools for AI assistants on standard input and output; requires the extra `mcp`.

    Example:  proctor mcp
    """
    server = make_server(context.obj or {})
    server.run("stdio")
    return output.SUCCEEDED


def make_server(options: Mapping[str, str]) -> Any:
    """The server with its tools, on the store that the global options name."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise UsageError(
            "the server for assistants needs the extra `mcp`\nInstall it:  pip install 'proctor[mcp]'"
        ) from None
    server: Any = MCPServer("proctor", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in Tools(options).all():
        server.tool(name=tool.__name__, structured_output=False)(_with_messages(tool, ToolError))
    return server


def _with_messages(
    tool: Callable[..., Awaitable[str]], tool_error: type[Exception]
) -> Callable[..., Awaitable[str]]:
    """A tool whose errors reach the assistant; others are faults, which the library hides from it."""

    @wraps(tool)
    async def called(**arguments: Any) -> str:
        try:
            return await tool(**arguments)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise tool_error(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except (ProctorError, OSError, ValueError) as error:
            # Also arguments that are no text of a command: with NUL, or longer than the system takes.
            raise tool_error(str(error)) from None

    return called


class Tools:
    """What an assistant can do here."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def all(self) -> list[Callable[..., Awaitable[str]]]:
        """The functions that are offered."""
        return [
            self.runs, self.check, self.start, self.watch, self.show, self.compare, self.search, self.abort,
        ]  # fmt: skip

    async def runs(self, limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 20) -> str:
        """List runs, newest first: status, items by status, tokens, cost. As `proctor runs --json`."""
        return await self._command("runs", [f"--limit={limit}"])

    async def check(self, plan: Plan) -> str:
        """Check a plan and everything it names, and estimate its cost and time. Nothing runs or is paid."""
        return await asyncio.to_thread(self._check, plan)

    async def start(
        self,
        plan: Plan,
        run_id: Annotated[str, Field(description="Name of the run; empty: the plan's, or a new one.")] = "",
        budget_usd: Annotated[float | None, Field(ge=0, description="Most to spend, in US dollars.")] = None,
    ) -> str:
        """Start a plan in a process of its own, which outlives this server; returns its run ID at once."""
        overrides = {"runId": run_id or None, "budget": budget_usd}
        with terminal_context(self._options, [_folder(plan), Path.cwd()]) as ctx:
            typed = await asyncio.to_thread(
                self._typed, plan, AppState(context=ctx, command=_program()), overrides
            )
            await asyncio.to_thread(typed.read)
            return _document({"runId": await typed.start(), "status": RUNNING})

    async def watch(
        self,
        run: Run,
        seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, description="Wait at most so long.")] = 60,
    ) -> str:
        """Wait until a run has ended or the time is over; returns its summary, as `proctor watch --json`.
        A `status` of `running` means that it goes on."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            document = parse_document(await self._command("show", ["--limit=1"], run))
            document.pop("items", None)
            if document.get("status") != RUNNING or loop.time() >= deadline:
                return _document(document)
            await asyncio.sleep(min(POLL_SECONDS, max(0.0, deadline - loop.time())))

    async def show(
        self,
        id: Annotated[str, Field(description="Run, item, or session ID, or a prefix.")],  # noqa: A002
        status: Annotated[
            str, Field(description="Items of a run with these statuses: fail,timeout,error.")
        ] = "",
        text: Annotated[str, Field(description="Items of a run that contain this text.")] = "",
        limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 20,
    ) -> str:
        """Show a run with its items, an item with its attempts, or a session with its transcript, check
        output, and scores. As `proctor show --json`."""
        options = [f"--limit={limit}"]
        options += [f"--status={status}"] if status else []
        options += [f"--search={text}"] if text else []
        return await self._command("show", options, id)

    async def compare(
        self,
        runs: Annotated[list[str], Field(min_length=1, description="Runs; the first is the baseline.")],
        by: Annotated[str, Field(description="With one run: factor whose levels are compared.")] = "",
        metric: Annotated[
            str, Field(description="success, cost, time, tokens, score:EVALUATOR, or metric:NAME.")
        ] = "success",
        gate: Annotated[list[str] | None, Field(description='Required: "success>=-0.02".')] = None,
    ) -> str:
        """Compare runs with a baseline, or the levels of a factor of one run, paired by task, with intervals
        and corrected p-values. As `proctor compare --json`."""
        options = [f"--by={by}"] if by else []
        options += [f"--metric={metric}", *(f"--gate={each}" for each in gate or ())]
        return await self._command("compare", options, *runs)

    async def search(
        self,
        text: Annotated[str, Field(min_length=1, description="Words to find in transcripts.")],
        limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 20,
    ) -> str:
        """Search the transcripts of all sessions. As `proctor search --json`."""
        return await self._command("search", [f"--limit={limit}"], text)

    async def abort(self, run: Run) -> str:
        """Stop a run. Finished items are saved, and the run can be resumed. As `proctor abort-run --json`."""
        return await self._command("abort-run", [], run)

    # Implementation

    def _typed(self, plan: str, site: AppState, overrides: Mapping[str, object]) -> TypedPlan:
        try:
            text = Path(plan).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the plan {plan}: {error}\nGive the path of a YAML file.") from None
        request = PlanRequest.model_validate({"text": text, "overrides": overrides})
        return TypedPlan(site, request)

    def _check(self, plan: str) -> str:
        with terminal_context(self._options, [_folder(plan), Path.cwd()]) as ctx:
            typed = self._typed(plan, AppState(context=ctx, command=()), {})
            return typed.validate().model_dump_json(by_alias=True, indent=2)

    async def _command(self, name: str, options: Sequence[str], *arguments: str) -> str:
        """The document that a command prints."""
        if any("\0" in word for word in (*arguments, *options)):
            raise UsageError("a name or text has a NUL character\nRemove it.")
        process = await asyncio.create_subprocess_exec(
            *_program(),
            *(f"--{option}={value}" for option, value in self._options.items()),
            name,
            "--json",
            *options,
            # What the assistant wrote is never an option: some options write files.
            "--",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, messages = await process.communicate()
        text = printed.decode("utf-8", "replace")
        document = parse_document(text)
        if "error" in document:
            raise UsageError(as_text(document["error"]))
        if not text.strip():
            raise UsageError(messages.decode("utf-8", "replace").strip() or f"{name} printed nothing")
        return text


def _program() -> tuple[str, ...]:
    return sys.executable, "-m", "proctor"


def _folder(plan: str) -> Path:
    return Path(plan).resolve().parent


def _document(document: JsonObject) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2, default=str)
