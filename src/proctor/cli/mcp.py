"""`proctor mcp`: the tools of a Model Context Protocol server on standard input and output.

Each tool returns the JSON document that the command of its name prints with `--json`. A call that takes too
long, or that the assistant cancels, ends with the process it has started; only `start` leaves one behind.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
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
from proctor.json_values import JsonMap, as_text
from proctor.metric import METRICS_HELP
from proctor.web.plans import PlanRequest, TypedPlan, check_in_process
from proctor.web.state import AppState

mcp_app = typer.Typer(add_completion=False)
apps = {"mcp": mcp_app}
INSTRUCTIONS = """\
Proctor runs AI agents and models in batches, records every step, scores the results, and says whether a
difference is real. Write a plan as a YAML file, `check` it (nothing runs or is paid), `start` it, `watch` it
until it has ended, `show` items that failed, and `compare` models or runs. Figures have intervals: call a
difference real only when the comparison does."""
MOST_SECONDS = 600
"""How long one call may wait for a run, or take."""
DEFAULT_SECONDS = 120.0
MOST_ITEMS = 200
POLL_SECONDS = 0.5

Run = Annotated[str, Field(description="Run ID, or an unambiguous prefix.")]
Plan = Annotated[str, Field(description="Path of a plan file: YAML of any job.")]
Timeout = Annotated[float, Field(gt=0, le=MOST_SECONDS, description="Time limit in seconds.")]


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
            # Also for arguments that no command can have: with NUL, or longer than the system allows.
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

    async def runs(
        self,
        limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 20,
        timeout_seconds: Timeout = DEFAULT_SECONDS,
    ) -> str:
        """List runs, newest first: status, items by status, tokens, cost. As `proctor runs --json`."""
        return await self._command("runs", [f"--limit={limit}"], timeout_seconds=timeout_seconds)

    async def check(self, plan: Plan, timeout_seconds: Timeout = DEFAULT_SECONDS) -> str:
        """Check a plan and everything it names, and estimate its cost and time. Nothing runs or is paid."""
        with terminal_context(self._options, [_folder(plan), Path.cwd()]) as ctx:
            site = AppState(context=ctx, command=_program())
            request = await asyncio.to_thread(self._request, plan, {})
            document = await check_in_process(
                site, asyncio.Semaphore(), request, seconds=timeout_seconds, is_validation=True
            )
            return _document(document)

    async def start(
        self,
        plan: Plan,
        run_id: Annotated[str, Field(description="Name of the run; empty: the plan's, or a new one.")] = "",
        budget_usd: Annotated[float | None, Field(ge=0, description="Most to spend, in US dollars.")] = None,
        timeout_seconds: Timeout = DEFAULT_SECONDS,
    ) -> str:
        """Start a plan in a process of its own, which outlives this server; returns its run ID at once."""
        overrides = {"runId": run_id or None, "budget": budget_usd}
        with terminal_context(self._options, [_folder(plan), Path.cwd()]) as ctx:
            site = AppState(context=ctx, command=_program())
            async with _limited("start", timeout_seconds):
                request = await asyncio.to_thread(self._request, plan, overrides)
                typed = await asyncio.to_thread(TypedPlan, site, request)
                await asyncio.to_thread(typed.read)
                return _document({"runId": await typed.start(), "status": RUNNING})

    async def watch(
        self,
        run: Run,
        seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, description="Maximum seconds to wait.")] = 60,
    ) -> str:
        """Wait until a run has ended or the time is over; returns its summary, as `proctor watch --json`.
        A `status` of `running` means that it has not ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            # Also a run that ends with the last second is seen.
            remaining = max(deadline - loop.time(), DEFAULT_SECONDS)
            document = parse_document(
                await self._command("show", ["--limit=1"], run, timeout_seconds=remaining)
            )
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
        timeout_seconds: Timeout = DEFAULT_SECONDS,
    ) -> str:
        """Show a run with its items, an item with its attempts, or a session with its transcript, check
        output, and scores. As `proctor show --json`."""
        options = [f"--limit={limit}"]
        options += [f"--status={status}"] if status else []
        options += [f"--search={text}"] if text else []
        return await self._command("show", options, id, timeout_seconds=timeout_seconds)

    async def compare(
        self,
        runs: Annotated[list[str], Field(min_length=1, description="Runs; the first is the baseline.")],
        by: Annotated[str, Field(description="With one run: factor whose levels are compared.")] = "",
        metric: Annotated[str, Field(description=f"{METRICS_HELP}.")] = "success",
        gate: Annotated[list[str] | None, Field(description='Required: "success>=-0.02".')] = None,
        timeout_seconds: Timeout = DEFAULT_SECONDS,
    ) -> str:
        """Compare runs with a baseline, or the levels of a factor of one run, paired by task, with intervals
        and corrected p-values. As `proctor compare --json`."""
        options = [f"--by={by}"] if by else []
        options += [f"--metric={metric}", *(f"--gate={each}" for each in gate or ())]
        return await self._command("compare", options, *runs, timeout_seconds=timeout_seconds)

    async def search(
        self,
        text: Annotated[str, Field(min_length=1, description="Words to find in transcripts.")],
        limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 20,
        timeout_seconds: Timeout = DEFAULT_SECONDS,
    ) -> str:
        """Search the transcripts of all sessions. As `proctor search --json`."""
        return await self._command("search", [f"--limit={limit}"], text, timeout_seconds=timeout_seconds)

    async def abort(self, run: Run, timeout_seconds: Timeout = DEFAULT_SECONDS) -> str:
        """Stop a run. Finished items are saved, and the run can be resumed. As `proctor abort-run --json`."""
        return await self._command("abort-run", [], run, timeout_seconds=timeout_seconds)

    # Implementation

    def _request(self, plan: str, overrides: Mapping[str, object]) -> PlanRequest:
        try:
            text = Path(plan).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read the plan {plan}: {error}\nGive the path of a YAML file.") from None
        return PlanRequest.model_validate({"text": text, "overrides": overrides})

    async def _command(
        self, name: str, options: Sequence[str], *arguments: str, timeout_seconds: float
    ) -> str:
        """The document that a command prints. It is killed when the time is over or the call is cancelled."""
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
            start_new_session=True,
        )
        try:
            async with _limited(name, timeout_seconds):
                printed, messages = await process.communicate()
        finally:
            # Not awaited: a cancelled call would be cancelled here again. The event loop reaps the process.
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        text = printed.decode("utf-8", "replace")
        document = parse_document(text)
        if "error" in document:
            raise UsageError(as_text(document["error"]))
        if not text.strip():
            raise UsageError(messages.decode("utf-8", "replace").strip() or f"{name} printed nothing")
        return text


@asynccontextmanager
async def _limited(name: str, seconds: float) -> AsyncIterator[None]:
    """Cancel the block after this many seconds, and raise a `UsageError`."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise UsageError(
            f"`{name}` did not end within {seconds:g} s\nGive a longer `timeout_seconds`, or ask for less."
        ) from None


def _program() -> tuple[str, ...]:
    return sys.executable, "-m", "proctor"


def _folder(plan: str) -> Path:
    return Path(plan).resolve().parent


def _document(document: JsonMap) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2, default=str)
