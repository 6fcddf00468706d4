"""The steps a scripted agent can take, and how each is taken.

    say: text                                  an assistant's message
    write: {path, content}   append: {path, content}   edit: {path, find, replace}   delete: path
    run: command                               really run, in the tree; its exit code is its success
    tool: {name, args, success, duration_ms, result}            a tool call that is only claimed
    usage: {model, input, cached, output, cost}                 a model call that is only claimed
    commit: message                            everything, with the agent's own commit
    sleep: seconds           ask: question nobody answers
    fail: text               exit: code        raise: model | rate_limit | workspace
    chance: {p: 0.3, steps: […]}               decided by seed and prompt, so always the same way

Texts may hold {prompt}, {model} and {seed}. A path that leaves the tree is refused unless the step
also says `outside: true`, which rehearses an agent that misbehaves.

Knows nothing of rules or plans.
"""

import asyncio
import difflib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proctor.agent import Assignment, WorkDone
from proctor.agents import _step_checks as checks
from proctor.errors import AttemptError, ModelError, RateLimited, UsageError, WorkspaceError
from proctor.item import digest_of
from proctor.processes import run
from proctor.session import Intervention, Message, ModelCall, Record, ToolCall, Usage

RAISED: Mapping[str, type[AttemptError]] = {
    "model": ModelError,
    "rate_limit": RateLimited,
    "workspace": WorkspaceError,
}


class Step(NamedTuple):
    """One step of a script, checked."""

    kind: str
    value: Any
    outside: bool = False
    """Whether its path may leave the tree."""


class Ended(Exception):
    """A step ended the agent's run."""

    def __init__(self, how: WorkDone) -> None:
        super().__init__(how.failure)
        self.how = how


class Stage:
    """One run of a script: who it is for, and what has been said."""

    def __init__(self, assignment: Assignment, record: Record) -> None:
        self.assignment = assignment
        self.record = record
        self.said = ""
        self.random = random.Random(digest_of([assignment.seed, assignment.prompt]))

    def filled(self, text: str) -> str:
        """The text with the assignment's values put in; other braces stay as they are."""
        holes = {"prompt": self.assignment.prompt, "model": self.assignment.model}
        holes["seed"] = str(self.assignment.seed or 0)
        # The prompt last: what it holds is not looked at again.
        for name in ("seed", "model", "prompt"):
            text = text.replace(f"{{{name}}}", holes[name])
        return text

    def path(self, written: str, step: Step) -> Path:
        """Where a step's path leads."""
        found = (self.assignment.folder / self.filled(written)).resolve()
        if not step.outside and not found.is_relative_to(self.assignment.folder.resolve()):
            raise Ended(WorkDone(exit_code=1, failure=f"{written} is outside the tree"))
        return found


async def perform(steps: Sequence[Step], stage: Stage) -> None:
    """Take the steps in order; `Ended` when one of them ends the run."""
    for step in steps:
        await KINDS[step.kind].take(step, stage)


def parsed_steps(steps: Any, where: str) -> tuple[Step, ...]:
    """Check the steps of a script; a `UsageError` names the first that is none."""
    if not isinstance(steps, list):
        raise UsageError(f"{where}: `steps` is a list")
    return tuple(_parsed(step, f"{where}: step {number}") for number, step in enumerate(steps, 1))


def _parsed(step: Any, where: str) -> Step:
    if not isinstance(step, Mapping):
        raise UsageError(f"{where} is no map such as `say: text`")
    kinds = [key for key in step if key != "outside"]
    if len(kinds) != 1:
        raise UsageError(f"{where} has {len(kinds)} kinds; one step does one thing")
    kind = kinds[0]
    if kind not in KINDS:
        near = difflib.get_close_matches(str(kind), KINDS, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        raise UsageError(f"{where}: there is no step `{kind}`.{hint} There is: {', '.join(KINDS)}.")
    problem = KINDS[kind].problem(step[kind])
    if problem:
        raise UsageError(f"{where}: `{kind}` {problem}")
    if kind == "chance":
        value = {"p": float(step[kind]["p"]), "steps": parsed_steps(step[kind]["steps"], f"{where}: chance")}
        return Step(kind, value)
    return Step(kind, step[kind], step.get("outside") is True)


async def _say(step: Step, stage: Stage) -> None:
    stage.said = stage.filled(step.value)
    stage.record(Message(role="assistant", content=stage.said))


async def _write(step: Step, stage: Stage) -> None:
    _put(step, stage, "w")


async def _append(step: Step, stage: Stage) -> None:
    _put(step, stage, "a")


def _put(step: Step, stage: Stage, mode: str) -> None:
    path = stage.path(step.value["path"], step)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.write(stage.filled(step.value["content"]))
    _did(step, stage, success=True)


async def _edit(step: Step, stage: Stage) -> None:
    path = stage.path(step.value["path"], step)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    sought = stage.filled(step.value["find"])
    if sought not in text:
        # As with a real agent's tool: it failed, and the agent goes on.
        _did(step, stage, success=False, result=f"{step.value['path']} does not hold the text to replace")
        return
    path.write_text(text.replace(sought, stage.filled(step.value["replace"]), 1), encoding="utf-8")
    _did(step, stage, success=True)


async def _delete(step: Step, stage: Stage) -> None:
    path = stage.path(step.value, step)
    there = path.is_file()
    path.unlink(missing_ok=True)
    _did(step, stage, success=there, result="" if there else "there is no such file")


def _did(step: Step, stage: Stage, *, success: bool, result: str = "") -> None:
    args = dict(step.value) if isinstance(step.value, Mapping) else {"path": step.value}
    stage.record(ToolCall(name=step.kind, args=args, success=success, result=result, duration_ms=0.0))


async def _run(step: Step, stage: Stage) -> None:
    command = stage.filled(step.value)
    await _really_run(command, {"command": command}, "run", stage)


async def _commit(step: Step, stage: Stage) -> None:
    message = stage.filled(step.value)
    identity = "-c user.name='Scripted agent' -c user.email=scripted@localhost"
    script = f'git add -A && git {identity} commit --quiet --allow-empty -m "$1"'
    await _really_run(["/bin/sh", "-c", script, "sh", message], {"message": message}, "commit", stage)


async def _really_run(command: Any, args: Mapping[str, Any], name: str, stage: Stage) -> None:
    assignment = stage.assignment
    finished = await run(
        command,
        folder=assignment.folder,
        environment=assignment.environment,
        attempt=assignment.attempt,
    )
    stage.record(
        ToolCall(
            name=name,
            args=args,
            success=finished.exit_code == 0,
            result=finished.output,
            duration_ms=finished.duration_ms,
        )
    )


async def _tool(step: Step, stage: Stage) -> None:
    claimed = step.value
    stage.record(
        ToolCall(
            name=claimed["name"],
            args=claimed.get("args", {}),
            success=claimed.get("success", True),
            result=stage.filled(str(claimed.get("result", ""))),
            duration_ms=claimed.get("duration_ms"),
        )
    )


async def _usage(step: Step, stage: Stage) -> None:
    claimed = step.value
    cost = claimed.get("cost")
    stage.record(
        ModelCall(
            model=claimed.get("model") or stage.assignment.model or "scripted",
            usage=Usage(
                input_tokens=claimed.get("input", 0),
                cached_tokens=claimed.get("cached", 0),
                output_tokens=claimed.get("output", 0),
            ),
            cost_usd=cost,
            price_source="" if cost is None else "agent",
        )
    )


async def _sleep(step: Step, stage: Stage) -> None:  # noqa: ARG001 (one shape for all steps)
    await asyncio.sleep(step.value)


async def _ask(step: Step, stage: Stage) -> None:
    stage.record(Intervention(kind="question", text=stage.filled(step.value)))


async def _fail(step: Step, stage: Stage) -> None:
    raise Ended(WorkDone(exit_code=1, output=stage.said, failure=stage.filled(step.value)))


async def _exit(step: Step, stage: Stage) -> None:
    failure = f"it exited with {step.value}" if step.value else ""
    raise Ended(WorkDone(exit_code=step.value, output=stage.said, failure=failure))


async def _raise(step: Step, stage: Stage) -> None:  # noqa: ARG001 (one shape for all steps)
    raise RAISED[step.value]("the script says so")


async def _chance(step: Step, stage: Stage) -> None:
    if stage.random.random() < step.value["p"]:
        await perform(step.value["steps"], stage)


def _one_of_raised(value: Any) -> str:
    return "" if value in RAISED else f"takes one of: {', '.join(RAISED)}"


class _Kind(NamedTuple):
    take: Callable[[Step, Stage], Awaitable[None]]
    problem: Callable[[Any], str]
    """What is wrong with a value; empty when nothing is."""


KINDS: Mapping[str, _Kind] = {
    "say": _Kind(_say, checks.text),
    "edit": _Kind(_edit, checks.members("path find replace")),
    "write": _Kind(_write, checks.members("path content")),
    "append": _Kind(_append, checks.members("path content")),
    "delete": _Kind(_delete, checks.text),
    "run": _Kind(_run, checks.text),
    "tool": _Kind(_tool, checks.members("name", "args success duration_ms result")),
    "usage": _Kind(_usage, checks.usage),
    "sleep": _Kind(_sleep, checks.seconds),
    "commit": _Kind(_commit, checks.text),
    "ask": _Kind(_ask, checks.text),
    "fail": _Kind(_fail, checks.text),
    "exit": _Kind(_exit, checks.exit_code),
    "raise": _Kind(_raise, _one_of_raised),
    "chance": _Kind(_chance, checks.chance),
}
