"""Evaluators written by users: Python functions and programs.

Starting Python and importing a module takes longer than most functions, so a function's process serves many
sessions. One that hangs, dies or exceeds its memory is ended with everything it started; only its current
target is lost. Idle processes end by themselves, and all end with their event loop.

The event passed to them has the shape that Lambda functions of the evaluation service get, so that they run
here unchanged; in addition it contains the `session` turn by turn.
"""

import asyncio
import json
import math
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import cast, get_args
from weakref import WeakKeyDictionary

from proctor.errors import EvaluatorError, SandboxFailed, UsageError, blame
from proctor.evaluator import Evidence, Reference, Trace
from proctor.evaluators import function_worker
from proctor.evaluators.rendering import EvaluationTarget, events_of, targets_of, turns_of
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_map, as_text, parse_json
from proctor.processes import Confinement, CouldNotStart, Program, listening_socket, started
from proctor.processes.scratch import scratch_folder
from proctor.sandbox import NOT_CONFINED, Sandbox
from proctor.score import Level, Score
from proctor.session import Message, Role, ToolCall
from proctor.telemetry.span_writer import spans_of

SCHEMA_VERSION = "1.0"
LEVEL_WORDS = {"session": "SESSION", "trace": "TRACE", "tool_call": "TOOL_CALL"}


def base_event(evidence: Evidence, *, name: str, identity: str, level: str) -> JsonObject:
    """The part of an event that all targets of a session share."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "evaluatorId": identity,
        "evaluatorName": name,
        "evaluationLevel": LEVEL_WORDS[level],
        "evaluationInput": {"sessionSpans": spans_of(evidence)},
        "session": session_document(evidence),
    }


def event_target(evidence: Evidence, target: EvaluationTarget) -> JsonObject:
    """The part of an event about one target, with its ground truth."""
    return {
        "evaluationTarget": _target(evidence, target),
        "evaluationReferenceInputs": _references(evidence, target),
    }


def session_document(evidence: Evidence) -> JsonObject:
    """A session as plain data; `evidence_of_document` reads it."""
    reference = evidence.reference
    return {
        "sessionId": evidence.session_id,
        "systemPrompt": evidence.system_prompt,
        "tools": [dict(tool) for tool in evidence.tools],
        "turns": [
            {
                "traceId": trace.id,
                "prompt": trace.prompt,
                "answer": trace.answer,
                "events": [_event(each) for each in events_of(trace)],
            }
            for trace in turns_of(evidence)
        ],
        "attributes": dict(evidence.attributes),
        "reference": None if reference is None else reference_document(reference),
    }


def reference_document(reference: Reference) -> JsonObject:
    """Ground truth in the inline shape of the API."""
    document: JsonObject = {}
    if reference.assertions:
        document["assertions"] = [{"text": text} for text in reference.assertions]
    if reference.trajectory is not None:
        document["expectedTrajectory"] = {"toolNames": list(reference.trajectory)}
    if reference.responses:
        last = max(reference.responses)
        document["turns"] = [
            {"expectedResponse": {"text": reference.responses[number]}}
            if number in reference.responses
            else {}
            for number in range(last + 1)
        ]
    return document


def _event(event: Message | ToolCall) -> JsonObject:
    if isinstance(event, Message):
        named = {"name": event.name} if event.name else {}
        return {"role": event.role, "content": event.content, **named}
    return {
        "tool": event.name,
        "args": dict(event.args),
        "result": event.result,
        "success": event.success,
        "durationMs": event.duration_ms,
        "spanId": event.call_id,
    }


def _target(evidence: Evidence, target: EvaluationTarget) -> JsonObject | None:
    if target.level == "session":
        return None
    ids: JsonObject = {"traceIds": [turns_of(evidence)[target.turn].id]}
    return ids | {"spanIds": [target.id]} if target.level == "tool_call" else ids


def _references(evidence: Evidence, target: EvaluationTarget) -> list[JsonObject]:
    """Ground truth of the session, and of the turn of the target."""
    reference = evidence.reference
    if reference is None:
        return []
    turns, session = turns_of(evidence), {"sessionId": evidence.session_id}
    session_truth = {key: value for key, value in reference_document(reference).items() if key != "turns"}
    entries = [{"context": {"spanContext": session}, **session_truth}] if session_truth else []
    for number, expected in sorted(reference.responses.items()):
        if number < len(turns) and (target.level == "session" or number == target.turn):
            context = {**session, "traceId": turns[number].id}
            entries.append({"context": {"spanContext": context}, "expectedResponse": {"text": expected}})
    return entries


def reference_of(document: object) -> Reference:
    """Ground truth in the inline shape of the API: `assertions`, `expectedTrajectory`, `turns`.

    Texts may also be plain, without `{text: …}`, and a trajectory a plain list of names or calls.
    """
    if not isinstance(document, Mapping):
        raise UsageError("ground truth is a map with assertions, expectedTrajectory and turns")
    known = ("assertions", "expectedTrajectory", "turns")
    if unknown := [name for name in document if name not in known]:
        raise UsageError(f"ground truth has no `{unknown[0]}`\nThere are: {', '.join(known)}.")
    trajectory = document.get("expectedTrajectory")
    if isinstance(trajectory, Mapping):
        trajectory = trajectory.get("toolNames") or []
    calls = [each if isinstance(each, Mapping) else {"name": each} for each in trajectory or ()]
    expected = [as_map(turn).get("expectedResponse") for turn in document.get("turns") or ()]
    return Reference(
        assertions=tuple(_text(each) for each in document.get("assertions") or ()),
        trajectory=None if trajectory is None else tuple(str(call.get("name")) for call in calls),
        responses={
            number: _text(response) for number, response in enumerate(expected) if response is not None
        },
        arguments={
            position: (as_text(call, "match") or "exact", as_map(call, "arguments"))
            for position, call in enumerate(calls)
            if call.get("arguments") is not None
        },
    )


def evidence_of_document(document: object, reference: Reference | None = None) -> Evidence:
    """The session of a `session_document`."""
    if not isinstance(document, Mapping) or not isinstance(document.get("turns"), list):
        raise UsageError("this is not a session: it has no list of `turns`")
    traces = [_trace(number, turn) for number, turn in enumerate(document["turns"], 1)]
    truth = document.get("reference")
    return Evidence(
        session_id=str(document.get("sessionId", "")),
        messages=[message for trace in traces for message in trace.messages],
        tool_calls=[call for trace in traces for call in trace.tool_calls],
        traces=traces,
        system_prompt=str(document.get("systemPrompt") or ""),
        tools=[tool for tool in document.get("tools") or () if isinstance(tool, Mapping)],
        reference=reference or (reference_of(truth) if truth else None),
        attributes=document.get("attributes") or {},
    )


def _trace(number: int, turn: object) -> Trace:
    if not isinstance(turn, Mapping):
        raise UsageError(f"turn {number} is not a map")
    events = [_event_from(each) for each in turn.get("events") or () if isinstance(each, Mapping)]
    messages: Sequence[Message] = [each for each in events if isinstance(each, Message)]
    contents = {
        role: [each.content for each in messages if each.role == role] for role in ("user", "assistant")
    }
    return Trace(
        id=str(turn.get("traceId") or f"turn-{number}"),
        prompt=str(turn.get("prompt") or next(iter(contents["user"]), "")),
        answer=str(turn.get("answer") or next(reversed(contents["assistant"]), "")),
        tool_calls=[each for each in events if isinstance(each, ToolCall)],
        messages=messages,
        events=events,
    )


def _event_from(event: JsonMap) -> Message | ToolCall:
    if "tool" in event:
        args, success = event.get("args"), event.get("success")
        return ToolCall(
            name=str(event["tool"]),
            args=args if isinstance(args, Mapping) else {},
            result=str(event.get("result") or ""),
            success=success if isinstance(success, bool) else None,
            call_id=str(event.get("spanId") or ""),
        )
    role = event.get("role")
    return Message(
        role=cast(Role, role) if role in get_args(Role) else "assistant",
        content=str(event.get("content") or ""),
        name=str(event.get("name") or ""),
    )


def _text(value: object) -> str:
    return str(value.get("text", "")) if isinstance(value, Mapping) else str(value)


LONGEST_LABEL, LONGEST_EXPLANATION = 1000, 20_000
INVALID = "InvalidResult"


def scored(about: Score, outcome: object) -> Score:
    """The score of a target from the result of its function."""
    if isinstance(outcome, bool):
        return replace(about, value=float(outcome), label="pass" if outcome else "fail")
    if isinstance(outcome, int | float):
        return _with_value(about, outcome, "", "")
    if isinstance(outcome, str):
        return (
            replace(about, label=outcome[:LONGEST_LABEL]) if outcome.strip() else _invalid(about, "no label")
        )
    if isinstance(outcome, Mapping):
        return _score_from_map(about, outcome)
    return _invalid(about, f"it is {'nothing' if outcome is None else type(outcome).__name__}")


def failed(about: Score, message: str, code: str) -> Score:
    """The score of a target that could not be evaluated."""
    return replace(about, error=message[:LONGEST_EXPLANATION], error_code=code[:LONGEST_LABEL])


def _score_from_map(about: Score, outcome: JsonMap) -> Score:
    code, message = outcome.get("errorCode"), outcome.get("errorMessage")
    if code or message:
        return failed(about, str(message or code), str(code or "EvaluatorError"))
    label, value = outcome.get("label"), outcome.get("value")
    if label is None and value is None:
        return _invalid(about, "it has neither label nor value")
    if label is not None and not isinstance(label, str | bool | int | float):
        return _invalid(about, "its label is not text")
    explanation = str(outcome.get("explanation") or "")
    label_text = "" if label is None else str(label)
    if value is None:
        return replace(about, label=label_text[:LONGEST_LABEL], explanation=explanation[:LONGEST_EXPLANATION])
    return _with_value(about, value, label_text, explanation)


def _with_value(about: Score, value: object, label: str, explanation: str) -> Score:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        return _invalid(about, f"its value is not a number: {str(value)[:80]}")
    return replace(
        about, value=number, label=label[:LONGEST_LABEL], explanation=explanation[:LONGEST_EXPLANATION]
    )


def _invalid(about: Score, why: str) -> Score:
    return failed(about, f"the result is not a valid score: {why}", INVALID)


TIMEOUT_SECONDS = 60.0
MOST_OUTPUT = 4 * 1024 * 1024
MOST_SAID = 500
"""Characters of standard error in an error message."""


@dataclass(frozen=True, kw_only=True)
class _CodeEvaluator:
    """What functions and programs have in common."""

    name: str
    level: Level
    folder: Path
    environment: Mapping[str, str]
    attempt: str
    identity: str = ""
    """Its name in the event; empty: its own name."""
    timeout_seconds: float = TIMEOUT_SECONDS
    sandbox: Sandbox = field(default=NOT_CONFINED, compare=False, repr=False)

    def _event(self, evidence: Evidence) -> JsonMap:
        return base_event(evidence, name=self.name, identity=self.identity or self.name, level=self.level)

    def _about(self, target: EvaluationTarget, digest: str) -> Score:
        return Score(evaluator=self.name, evaluator_digest=digest, level=target.level, target=target.id)


@dataclass(frozen=True, kw_only=True)
class CommandEvaluator(_CodeEvaluator):
    """A program that is started once per target; it reads the event as JSON and prints a score."""

    command: Sequence[str]

    @property
    def digest(self) -> str:
        """Changes with the command, and with the files of the working folder that it names."""
        files = [self.folder / word for word in self.command if (self.folder / word).is_file()]
        texts = [sha256(file.read_bytes()).hexdigest() for file in files if not _is_installed(file)]
        return digest_of([self.level, list(self.command), texts])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target, one after the other."""
        base, digest = self._event(evidence), self.digest
        return [
            await self._judged(evidence, base, target, self._about(target, digest))
            for target in targets_of(evidence, self.level)
        ]

    async def _judged(
        self, evidence: Evidence, base: JsonMap, target: EvaluationTarget, about: Score
    ) -> Score:
        stdin = json.dumps({**base, **event_target(evidence, target)}, default=str)
        try:
            with scratch_folder("evaluator") as own:
                async with (
                    asyncio.timeout(self.timeout_seconds),
                    started(
                        list(self.command),
                        folder=self.folder,
                        environment=self.environment,
                        attempt=self.attempt,
                        typed=stdin,
                        grace_seconds=0.5,
                        confinement=_confinement(self.sandbox, self.folder, own, self.command),
                    ) as program,
                ):
                    output = await _output(program)
                    code, complaints = await program.ended(), program.stderr
        except TimeoutError:
            return failed(about, f"it took longer than {self.timeout_seconds:g} s and was ended", "Timeout")
        except CouldNotStart as problem:
            return failed(about, f"starting {self.command[0]}: {problem}", "CouldNotStart")
        except SandboxFailed as problem:
            return failed(about, str(problem), "SandboxFailed")
        if code:
            message = complaints.strip()[-MOST_SAID:]
            return failed(about, f"exit code {code}" + (f": {message}" if message else ""), "ExitCode")
        return _read(about, output)


def _confinement(sandbox: Sandbox, folder: Path, own: Path, command: Sequence[str]) -> Confinement | None:
    """The confinement of code that reads its folder and the Python path, and writes to the folder `own`."""
    folder = folder.resolve()
    # The user's HOME contains private files next to the evaluators.
    own_places = [folder] if folder not in sandbox.hidden else list(folder.glob("[!.]*"))
    places = (*own_places, *map(Path, filter(None, (sys.prefix, sys.base_prefix, *sys.path))))
    with blame(EvaluatorError, "confining the evaluator"):
        return sandbox.confine(
            "check",
            None,
            folders=[own.resolve()],
            home=own.resolve(),
            read=places,
            named=command,
            variables={"HOME": str(own), "TMPDIR": str(own)},
        )


async def _output(program: Program) -> str:
    lines, size = list[str](), 0
    async for line in program.lines():
        size += len(line)
        if size <= MOST_OUTPUT:
            lines.append(line)
    return "\n".join(lines)


def _read(about: Score, output: str) -> Score:
    """The score from the whole output as JSON, or from its last line of JSON."""
    for text in (output, *reversed(output.splitlines()[-20:])):
        if text.strip():
            try:
                return scored(about, parse_json(text))
            except ValueError:
                continue
    excerpt = output.strip()[:200]
    return failed(about, f"it did not print JSON: {excerpt}" if excerpt else "it printed nothing", INVALID)


def _is_installed(file: Path) -> bool:
    """Whether a word of a command is a system program, whose content is not part of the digest."""
    return shutil.which(str(file)) == str(file) and str(file).startswith(("/usr/", "/bin/"))


MOST_AT_ONCE = 4
"""Processes per function. More would only compete for cores."""
IDLE_SECONDS = 30.0
START_SECONDS = 30.0
"""For a process to connect; importing the function's module counts as the function's time."""
LONGEST_ANSWER = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionJob:
    """A function, with its folder, environment and memory limit."""

    function: str
    """`module:function`."""
    folder: Path
    environment: tuple[tuple[str, str], ...]
    """Complete and sorted: part of the key of a process pool."""
    attempt: str
    megabytes: int
    version: str = ""
    """Digest of its source: a running process does not see later changes."""
    sandbox: Sandbox = field(default=NOT_CONFINED, compare=False, repr=False)


class ProcessDied(EvaluatorError):
    """The process of the function exited before it answered."""


class FunctionProcess:
    """One process of one function."""

    def __init__(self, job: FunctionJob) -> None:
        self._job = job
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run_process())
        self.retiring: asyncio.TimerHandle | None = None

    @property
    def is_alive(self) -> bool:
        return not self._task.done() and not self._ended.is_set()

    async def connect(self) -> None:
        """Wait until the process has started."""
        if self._writer is None:
            await asyncio.wait_for(asyncio.shield(self._ready()), START_SECONDS)

    async def send(self, target: JsonMap, base: JsonMap | None = None) -> None:
        """Send a target to score; `base` applies to it and to later targets, until another is sent."""
        assert self._writer is not None
        shared, body = b"" if base is None else _json_bytes(base), _json_bytes(target)
        try:
            self._writer.write(b"%d %d\n" % (len(shared), len(body)) + shared + body)
            await self._writer.drain()
        except OSError as gone:
            raise ProcessDied("the function's process ended") from gone

    async def answer(self) -> object:
        assert self._reader is not None
        try:
            size = int(await self._reader.readline() or b"-1")
            if not 0 <= size <= LONGEST_ANSWER:
                raise ProcessDied("the function's process ended without an answer")
            return parse_json(await self._reader.readexactly(size))
        except (OSError, ValueError, asyncio.IncompleteReadError) as broken:
            raise ProcessDied("the function's process ended without an answer") from broken

    async def end(self) -> None:
        """End the process and everything it has started."""
        self._ended.set()
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _ready(self) -> None:
        await asyncio.wait({self._connected, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not self._connected.done():
            self._task.result()
            raise ProcessDied("the function's process ended before it had begun")

    async def _run_process(self) -> None:
        """Own the process for the lifetime of this task: cancelling it ends the process."""
        job = self._job
        with scratch_folder("function") as folder:
            address = Path(folder) / "link"
            link = listening_socket(address)
            server = await asyncio.start_unix_server(self._on_connect, sock=link, limit=LONGEST_ANSWER)
            # Without -B, a compiled file would hide a change within the same second.
            command = [sys.executable, "-P", "-B", function_worker.__file__, str(address), job.function]
            command += [str(job.folder.resolve()), str(job.megabytes)]
            confinement = _confinement(job.sandbox, job.folder, folder, command)
            async with server, _running(command, job, confinement) as program:
                # Whoever waits for an answer learns that the process has ended.
                with suppress(SandboxFailed):
                    await program.ended()
        self._ended.set()

    def _on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        if not self._connected.done():
            self._connected.set_result(None)


def _json_bytes(value: JsonMap) -> bytes:
    return json.dumps(value, default=str).encode("utf-8", "replace")


@asynccontextmanager
async def _running(
    command: Sequence[str], job: FunctionJob, confinement: Confinement | None
) -> AsyncIterator[Program]:
    try:
        async with started(
            command,
            folder=job.folder,
            environment=dict(job.environment),
            attempt=job.attempt,
            # It has nothing to clean up.
            grace_seconds=0.5,
            confinement=confinement,
        ) as program:
            yield program
    except CouldNotStart as problem:
        raise EvaluatorError(f"starting {job.function}: {problem}") from problem


class FunctionPool:
    """The processes of one function."""

    def __init__(self, job: FunctionJob) -> None:
        self._job = job
        self._idle: list[FunctionProcess] = []
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[FunctionProcess]:
        """A process for the duration of the block; it is not reused after an error."""
        async with self._places:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                await worker.end()
                raise
            self._put_back(worker)

    def _take(self) -> FunctionProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.retiring:
                worker.retiring.cancel()
            if worker.is_alive:
                return worker
        return FunctionProcess(self._job)

    def _put_back(self, worker: FunctionProcess) -> None:
        self._idle.append(worker)
        loop = asyncio.get_running_loop()
        worker.retiring = loop.call_later(IDLE_SECONDS, self._retire, worker)

    def _retire(self, worker: FunctionProcess) -> None:
        if worker in self._idle:
            self._idle.remove(worker)
            # Keep a reference: the loop only holds a weak one.
            _ending.add(task := asyncio.ensure_future(worker.end()))
            task.add_done_callback(_ending.discard)


# Evaluators are created per item; the processes outlive them, and belong to their event loop.
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[FunctionJob, FunctionPool]] = WeakKeyDictionary()
_ending: set[asyncio.Future[None]] = set()


def pool_of(job: FunctionJob) -> FunctionPool:
    """The process pool of this job on the running event loop."""
    pools = _pools.setdefault(asyncio.get_running_loop(), {})
    if job not in pools:
        pools[job] = FunctionPool(job)
    return pools[job]


MEGABYTES = 4096
"""Of address space, of which libraries reserve far more than they use."""


@dataclass(frozen=True, kw_only=True)
class FunctionEvaluator(_CodeEvaluator):
    """A function that is called once per target, in a separate process."""

    function: str
    """`module:function`."""
    source: Path
    """File of the module."""
    megabytes: int = MEGABYTES

    @property
    def digest(self) -> str:
        """Changes with the file of the module. Its imports are not followed."""
        return _function_digest(self.level, self.function, self._version)

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target, one after the other."""
        version = self._version
        digest = _function_digest(self.level, self.function, version)
        pool, base, scores = pool_of(self._job(version)), self._event(evidence), list[Score]()
        remaining = [(target, self._about(target, digest)) for target in targets_of(evidence, self.level)]
        while remaining:
            # A failed process is not reused; the rest continues in another.
            done = await self._score_batch(pool, evidence, base, remaining)
            scores += done
            remaining = remaining[len(done) :]
        return scores

    async def _score_batch(
        self,
        pool: FunctionPool,
        evidence: Evidence,
        base: JsonMap,
        targets: Sequence[tuple[EvaluationTarget, Score]],
    ) -> list[Score]:
        """Scores of the targets up to the first that ends the process, or all."""
        scores: list[Score] = []
        try:
            async with pool.worker() as worker:
                await worker.connect()
                for number, (target, about) in enumerate(targets):
                    event = event_target(evidence, target)
                    scores.append(await self._score_target(worker, event, about, None if number else base))
        except TimeoutError:
            message = f"the function took longer than {self.timeout_seconds:g} s and was ended"
            scores.append(failed(targets[len(scores)][1], message, "Timeout"))
        except ProcessDied as error:
            scores.append(failed(targets[len(scores)][1], str(error), "ProcessEnded"))
        return scores

    async def _score_target(
        self, worker: FunctionProcess, event: JsonMap, about: Score, base: JsonMap | None
    ) -> Score:
        """`base` is the part of the event that the process gets with the first target only."""
        async with asyncio.timeout(self.timeout_seconds):
            await worker.send(event, base)
            answer = await worker.answer()
        if not isinstance(answer, Mapping) or "outcome" not in answer:
            raised = answer if isinstance(answer, Mapping) else {}
            kind = str(raised.get("raised") or "Died")
            return failed(about, f"{kind}: {raised.get('message', '')}", kind)
        return scored(about, answer["outcome"])

    @property
    def _version(self) -> str:
        with blame(EvaluatorError, f"reading {self.source}"):
            status = self.source.stat()
        return _file_digest(self.source, status.st_mtime_ns, status.st_ctime_ns, status.st_size)

    @cached_property
    def _sorted_environment(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.environment.items()))

    def _job(self, version: str) -> FunctionJob:
        return FunctionJob(
            function=self.function,
            folder=self.folder,
            environment=self._sorted_environment,
            attempt=self.attempt,
            megabytes=self.megabytes,
            version=version,
            sandbox=self.sandbox,
        )


@lru_cache(maxsize=64)
def _function_digest(level: Level, function: str, version: str) -> str:
    return digest_of([level, function, version])[:16]


@lru_cache(maxsize=64)
def _file_digest(file: Path, *_: int) -> str:
    """The digest of a file, read again when its times or its size have changed."""
    return sha256(file.read_bytes()).hexdigest()


def source_of(function: str, folder: Path) -> Path | None:
    """File of a function's module, without importing it; None when there is none."""
    places: Sequence[str] | None = [str(folder), *sys.path]
    spec: ModuleSpec | None = None
    module = function.partition(":")[0]
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None
