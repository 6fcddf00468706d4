"""Start a run in a detached process, which outlives its parent; check a plan in one that can be killed.

The request is passed as JSON on standard input, never in arguments: a plan may hold secrets, and every user
of the machine can read arguments. Ownership and progress of the run are in the store.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Self

from proctor.api import runs
from proctor.api.review import Feedback, read_feedback
from proctor.batch.executor import SILENT, Observer, RunResult, run_summary
from proctor.context import EngineOptions, RunContext, Settings
from proctor.errors import Place, PlanError, Problem, UsageError
from proctor.item import RUNNING
from proctor.job import BatchChanges, BatchEnd, PlanText
from proctor.jobs import find_job
from proctor.json_values import JsonMap, JsonObject, as_text, as_whole_number, maps_in
from proctor.secrets import open_private, private_folder
from proctor.store import RetrySelection
from proctor.store.runs import batch_of_plan_file
from proctor.store.tables import BatchRow

COMMAND = "launched"
"""The internal command that reads a request from standard input and executes it."""
CHECK_COMMAND = "check-plan"
"""The internal command that checks the plan on standard input."""
BUILD_COMMAND = "build-sessions"
"""The internal command that builds the sessions of received spans for each line on standard input."""
BUILT = b"built\n"
"""Its answer to each, if nothing went wrong."""
SERVER_SECRETS = ("PROCTOR_TOKEN", "PROCTOR_ACCESS_KEYS")
"""Variables that only a server needs."""
START_SECONDS = 30
"""How long a started process may take until its run is in the store."""
RESUME_SECONDS = 20
"""Longer than the slowest start measured on a busy machine."""
POLL_SECONDS = 0.05
BAD_USAGE = 2
"""Exit code of a command that started nothing."""
MOST_LOG_BYTES = 1_000_000
"""How much of the end of a log is read to explain why a run did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A run to start, or, without a plan, to resume."""

    job: str = ""
    """Of a new run; empty: that of the run to resume."""
    run_id: str = ""
    """The run to resume, or the name of the new run; empty: the plan or the job names it."""
    plan_text: str | None = None
    """The plan of a new run; None: resume `run_id` from the store."""
    plan_path: str = ""
    """Where the plan is kept as a file; empty: nowhere."""
    folder: str = ""
    """Base folder of the plan's relative paths."""
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Overrides of the job by name, as `make_overrides` reads them."""
    retry: RetrySelection = field(default_factory=RetrySelection)
    """Finished items that a resumed run executes again."""
    changes: BatchChanges = field(default_factory=BatchChanges)
    """Settings of a resumed run that change."""
    workers: int | None = None
    """Processes that share the work; None: as the plan says, or as many as are worth it."""
    engine: EngineOptions = field(default_factory=EngineOptions)
    """Where items are executed."""
    feedback: Feedback | None = None
    """Comments on a session, which its agent gets in a new run, called `run_id`."""
    only_unfinished: bool = False
    """Leave a run alone that has ended or was stopped before the process is ready to resume it."""

    def to_json(self) -> str:
        """The request as one JSON document."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote."""
        members = json.loads(text)
        return cls(
            **{
                **members,
                "retry": RetrySelection(
                    **{**members["retry"], "item_ids": tuple(members["retry"].get("item_ids", ()))}
                ),
                "changes": BatchChanges(**members["changes"]),
                "engine": EngineOptions(**members["engine"]),
                "feedback": members["feedback"] and Feedback.from_dict(members["feedback"]),
            }
        )


async def execute(request: LaunchRequest, ctx: RunContext, observer: Observer = SILENT) -> RunResult:
    """Start or resume the run of a request in this process, and execute it to its end."""
    ctx.engine = request.engine
    if request.feedback:
        read = read_feedback(ctx, request.feedback, run_id=request.run_id)
        return await runs.start(ctx, read, observer=observer)
    if request.plan_text is None:
        batch = ctx.store.read.batch(request.run_id, ctx.now())
        if request.only_unfinished and _has_ended(batch):
            end = BatchEnd(status=batch["status"], reason=batch["reason"])
            summary = run_summary(ctx.store, batch, ctx.now())
            return RunResult(run_id=batch["runId"], end=end, summary=summary, executed=False)
        return await runs.resume(
            ctx,
            request.run_id,
            changes=request.changes,
            retry=request.retry,
            workers=request.workers,
            observer=observer,
        )
    path = Path(request.plan_path) if request.plan_path else None
    source = PlanText(text=request.plan_text, path=path, folder=Path(request.folder))
    read = runs.read_plan(ctx, source, job=request.job, overrides=request.overrides, run_id=request.run_id)
    return await runs.start(ctx, read, workers=request.workers, observer=observer)


def _has_ended(batch: BatchRow) -> bool:
    """Whether a run has ended or was stopped; one whose process died did neither."""
    is_stopped = batch["reason"] == "interrupted" or bool(batch["abortRequestedAt"])
    return batch["status"] in ("completed", "aborted", "halted") or (
        batch["status"] == "interrupted" and is_stopped
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedProcess:
    """A detached process and its output."""

    process: "subprocess.Popen[bytes]"
    log: Path
    """File of its messages. In an encrypted store the messages are in a file without a name instead."""
    stderr: IO[bytes]
    stdout: IO[bytes]

    @property
    def messages(self) -> str:
        """The end of the messages so far."""
        return _tail(self.stderr)

    @property
    def document(self) -> JsonObject:
        """The JSON document it printed; empty when there is none."""
        return parse_document(_tail(self.stdout))

    @property
    def error(self) -> UsageError:
        """Why it ended before its run started."""
        problems = [
            Problem(
                at=Place(
                    as_text(problem["file"]),
                    as_whole_number(problem["line"]),
                    as_whole_number(problem["column"]),
                ),
                problem=as_text(problem["problem"]),
                remedy=as_text(problem["remedy"]),
            )
            for problem in maps_in(self.document.get("problems"))
        ]
        return PlanError(problems) if problems else UsageError(error_message(self.document, self.messages))


class SessionBuilder:
    """A process that builds sessions of received spans."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def is_running(self) -> bool:
        """Whether it can be asked."""
        return self._process.returncode is None

    async def build(self) -> bool:
        """Have it build the sessions of what has arrived; False: try again later."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin and stdout
        # Killed by somebody: the answer is empty.
        with suppress(ConnectionError):
            stdin.write(b"\n")
            await stdin.drain()
        return await stdout.readline() == BUILT

    async def close(self) -> None:
        """End it, also amid its work: what is not committed is built when sessions are next read."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Starts detached `proctor` processes on one store."""

    command: Sequence[str] = (sys.executable, "-m", "proctor")
    """The program and its global options."""
    environment: Mapping[str, str] = field(repr=False)
    """Its environment; names the store, whose address may hold a password."""
    folder: Path
    """Its working folder."""
    logs: Path
    """Folder of the log files."""
    is_encrypted: bool = False
    """Whether the store is: output may quote transcripts, so it goes to files without a name."""

    def launch(self, request: LaunchRequest, name: str) -> LaunchedProcess:
        """Start or resume a run; the output goes to files called `name`."""
        private_folder(self.logs)
        log = self.logs / f"{name}.log"
        if self.is_encrypted:
            stderr: IO[bytes] = tempfile.TemporaryFile(dir=self.logs)  # noqa: SIM115  lives with the result
            stdout: IO[bytes] = tempfile.TemporaryFile(dir=self.logs)  # noqa: SIM115
        else:
            stderr, stdout = (
                open(path, "a+b", opener=open_private)  # noqa: SIM115
                for path in (log, log.with_suffix(".json"))
            )
        process = subprocess.Popen(
            [*self.command, COMMAND, "--json"],
            cwd=self.folder,
            env=self._child_environment(),
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        # Before this returns: the caller may end at once.
        _send(process, request.to_json().encode())
        # Without a thread that reaps it, it would stay a zombie until this process ends.
        threading.Thread(target=process.wait, daemon=True).start()
        return LaunchedProcess(process=process, log=log, stderr=stderr, stdout=stdout)

    async def check_plan(self, request: JsonMap, *, seconds: float) -> tuple[int, JsonObject, str]:
        """Check a plan in a process; its exit code, its JSON document and its messages.

        A process, since reading a plan takes any time, and only a process can be ended: after `seconds` it
        is killed, with all that it has started, and a `TimeoutError` raised.
        """
        process = await asyncio.create_subprocess_exec(
            *self.command,
            CHECK_COMMAND,
            cwd=self.folder,
            env=self._child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            text = json.dumps(request).encode()
            stdout, stderr = await asyncio.wait_for(process.communicate(text), seconds)
        except BaseException:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            raise
        return process.returncode or 0, parse_document(stdout), stderr.decode("utf-8", "replace")

    async def start_builder(self) -> "SessionBuilder":
        """Start a process that builds sessions on request. It ends when this one does."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            BUILD_COMMAND,
            cwd=self.folder,
            env=self._child_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is for the server.
            process_group=0,
        )
        return SessionBuilder(process)

    def _child_environment(self) -> dict[str, str]:
        return without_server_secrets(self.environment)


async def start_plan(ctx: RunContext, launcher: Launcher, request: LaunchRequest, plans: Path) -> str:
    """Start the plan of a request in a process of its own; the ID of its run, as soon as it is in the store.

    The text is kept as a file in `plans`, so that the run can be resumed like any other.
    """
    name = f"{ctx.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
    starters = find_job(request.job).starters
    path = plans / f"{name}{Path(starters[0].file).suffix if starters else '.yaml'}"
    await asyncio.to_thread(_write, path, request.plan_text or "")
    launched = await asyncio.to_thread(launcher.launch, replace(request, plan_path=str(path)), name)
    run_id = await _wait_for_run(ctx, path, launched)
    if launcher.is_encrypted:
        # The store has the text, encrypted.
        path.unlink(missing_ok=True)
    return run_id


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="replace")


async def send_back(
    ctx: RunContext, launcher: Launcher, feedback: Feedback, settings: Settings | None = None
) -> str:
    """Start the next iteration of a session in a process of its own; the ID of its run, as soon as it is in
    the store."""
    read = await asyncio.to_thread(read_feedback, ctx, feedback, settings=settings)
    request = LaunchRequest(run_id=read.run_id, feedback=feedback)
    launched = await asyncio.to_thread(
        launcher.launch, request, f"review-{read.run_id}-{secrets.token_hex(3)}"
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        has_ended = launched.process.poll() is not None
        if await asyncio.to_thread(runs.is_known, ctx, read.run_id):
            return read.run_id
        if has_ended:
            raise launched.error
        await asyncio.sleep(POLL_SECONDS)
    raise _not_started(launched)


def _not_started(launched: LaunchedProcess) -> UsageError:
    return UsageError(
        f"the run has not started within {START_SECONDS} s\n"
        f"It may still start: see the list of runs, and {launched.log}."
    )


async def _wait_for_run(ctx: RunContext, path: Path, launched: LaunchedProcess) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        has_ended = launched.process.poll() is not None
        if run_id := await asyncio.to_thread(batch_of_plan_file, ctx.store.read, str(path)):
            return run_id
        if has_ended:
            raise launched.error
        await asyncio.sleep(POLL_SECONDS)
    raise _not_started(launched)


async def resume_run(
    ctx: RunContext,
    launcher: Launcher,
    run_id: str,
    *,
    retry: RetrySelection | None = None,
    changes: BatchChanges | None = None,
) -> None:
    """Resume a run in a process of its own; returns when the process owns the run, or has ended."""
    request = LaunchRequest(run_id=run_id, retry=retry or RetrySelection(), changes=changes or BatchChanges())
    name = f"resume-{run_id}-{secrets.token_hex(3)}"
    launched = await asyncio.to_thread(launcher.launch, request, name)
    process, deadline = launched.process, time.monotonic() + RESUME_SECONDS

    def is_owner() -> bool:
        batch = ctx.store.read.batch(run_id, ctx.now())
        return batch["status"] == RUNNING and f":{process.pid}:" in batch["owner"]

    while time.monotonic() < deadline:
        if process.poll() == BAD_USAGE:
            raise UsageError(error_message(launched.document, launched.messages))
        if process.poll() is not None or await asyncio.to_thread(is_owner):
            break
        await asyncio.sleep(POLL_SECONDS)


def error_message(document: Mapping[str, object], messages: str) -> str:
    """Why a command failed: the error in its document, or the last one among its messages."""
    if error := document.get("error"):
        return str(error)
    _, marker, message = messages.rpartition("proctor: ")
    return (message if marker else messages).strip()[:2000] or "the command failed without a message"


def without_server_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for agents, checks and runs, which must not reach the server as its owner."""
    return {name: value for name, value in environment.items() if name not in SERVER_SECRETS}


def _send(process: "subprocess.Popen[bytes]", stdin: bytes) -> None:
    assert process.stdin is not None
    # A process that ended before it read the request reports why on standard error.
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(stdin)


def parse_document(text: str | bytes) -> JsonObject:
    """The JSON object in the output of a command; empty when there is none."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _tail(file: IO[bytes]) -> str:
    # `pread`, since seeking would move the position at which the process writes.
    size = os.fstat(file.fileno()).st_size
    data = os.pread(file.fileno(), MOST_LOG_BYTES, max(0, size - MOST_LOG_BYTES))
    return data.decode("utf-8", "replace")
