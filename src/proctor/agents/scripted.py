"""A mock agent that follows a script, for tests and demos without a model.

    script:
      rules:
        - {match: "fix .*", steps: [{edit: {path: a.py, find: "- 1", replace: "+ 1"}}, {say: Done.}]}
      steps:
        - say: I do not understand {prompt}.

The first rule whose `match` is found in the prompt decides, else `steps`; a bare list is `steps`.
The same assignment always gives the same events. Reported usage comes from the script.
"""

import asyncio
import difflib
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from proctor.agent import Agent, Assignment, WorkDone
from proctor.errors import AttemptError, ModelError, RateLimited, UsageError, WorkspaceError
from proctor.item import digest_of
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_integer,
    as_map,
    as_number,
    as_text,
    require_map,
    require_text,
)
from proctor.patterns import Pattern, compile_pattern
from proctor.processes import run
from proctor.session import Intervention, Message, ModelCall, Record, ToolCall, Usage


def text(value: object) -> str:
    """For steps that are one text."""
    return "" if isinstance(value, str) else "takes a text"


def seconds(value: object) -> str:
    """For a pause."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    return "" if is_number else "takes a number of seconds"


def exit_code(value: object) -> str:
    """For an exit code."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 256
    return "" if fits else "takes an exit code from 0 to 255"


def chance(value: object) -> str:
    """For a step that runs with a probability; its own steps are validated like any others."""
    probability = as_number(value, "p")
    fits = set(as_map(value)) == {"p", "steps"} and probability is not None and 0 <= probability <= 1
    return "" if fits else "takes `p`, from 0 to 1, and `steps`"


def members(required: str, optional: str = "") -> Callable[[object], str]:
    """A check that a step is a map with these members; the required ones are texts."""
    must, may = required.split(), optional.split()

    def problem(value: object) -> str:
        if not isinstance(value, Mapping) or set(value) - {*must, *may}:
            return f"takes a map of: {', '.join([*must, *may])}"
        missing = [name for name in must if not isinstance(value.get(name), str)]
        return f"needs {' and '.join(f'`{name}`' for name in missing)} as text" if missing else ""

    return problem


def usage(value: object) -> str:
    """For a reported model call."""
    if problem := members("", "model input cached output cost")(value):
        return problem
    numbers = [count for name, count in as_map(value).items() if name not in ("model", "cost")]
    return "" if all(isinstance(count, int) and count >= 0 for count in numbers) else "counts tokens"


RAISED: Mapping[str, type[AttemptError]] = {
    "model": ModelError,
    "rate_limit": RateLimited,
    "workspace": WorkspaceError,
}


class ScriptStep(NamedTuple):
    """One validated step."""

    kind: str
    value: object
    outside: bool = False
    """Whether its path may leave the tree."""
    steps: "tuple[ScriptStep, ...]" = ()
    """Steps of `chance`."""

    @property
    def text(self) -> str:
        return require_text(self.value)

    @property
    def members(self) -> JsonMap:
        return require_map(self.value)

    def member(self, name: str) -> str:
        """A member that must be text. Raises if it is not."""
        return require_text(self.members[name])


class ScriptEnd(Exception):
    """A step that ends the run."""

    def __init__(self, how: WorkDone) -> None:
        super().__init__(how.failure)
        self.how = how


class Stage:
    """State of one run of a script."""

    def __init__(self, assignment: Assignment, record: Record) -> None:
        self.assignment = assignment
        # Before the first command: a later one may put a link in place of the folder.
        self._root = assignment.folder.resolve()
        self.record = record
        self.last_message = ""
        self.random = random.Random(digest_of([assignment.seed, assignment.prompt]))

    def filled(self, text: str) -> str:
        """The text with its placeholders replaced; other braces stay as they are."""
        holes = {"prompt": self.assignment.prompt, "model": self.assignment.model}
        holes["seed"] = str(self.assignment.seed or 0)
        # The prompt last: placeholders in it are not replaced.
        for name in ("seed", "model", "prompt"):
            text = text.replace(f"{{{name}}}", holes[name])
        return text

    def path(self, written: str, step: ScriptStep) -> Path:
        """Where a step's path leads."""
        path = (self.assignment.folder / self.filled(written)).resolve()
        if not step.outside and not path.is_relative_to(self._root):
            raise ScriptEnd(WorkDone(exit_code=1, failure=f"{written} is outside the tree"))
        return path


async def perform(steps: Sequence[ScriptStep], stage: Stage) -> None:
    """Run the steps in order; `ScriptEnd` when one ends the run."""
    for step in steps:
        await KINDS[step.kind].take(step, stage)


def parsed_steps(steps: object, where: str) -> tuple[ScriptStep, ...]:
    """Validate the steps of a script; a `UsageError` names the first invalid one."""
    if not isinstance(steps, list):
        raise UsageError(f"{where}: `steps` is a list")
    return tuple(_parsed(step, f"{where}: step {number}") for number, step in enumerate(steps, 1))


def _parsed(step: object, where: str) -> ScriptStep:
    if not isinstance(step, Mapping):
        raise UsageError(f"{where} is not a map such as `say: text`")
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
        return ScriptStep(kind, step[kind]["p"], steps=parsed_steps(step[kind]["steps"], f"{where}: chance"))
    return ScriptStep(kind, step[kind], step.get("outside") is True)


async def _say(step: ScriptStep, stage: Stage) -> None:
    stage.last_message = stage.filled(step.text)
    stage.record(Message(role="assistant", content=stage.last_message))


async def _write(step: ScriptStep, stage: Stage) -> None:
    _put(step, stage, "w")


async def _append(step: ScriptStep, stage: Stage) -> None:
    _put(step, stage, "a")


def _put(step: ScriptStep, stage: Stage, mode: str) -> None:
    path = stage.path(step.member("path"), step)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        file.write(stage.filled(step.member("content")))
    _did(step, stage, success=True)


async def _edit(step: ScriptStep, stage: Stage) -> None:
    path = stage.path(step.member("path"), step)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    sought = stage.filled(step.member("find"))
    if sought not in text:
        # As with a real agent: a failed tool does not end the run.
        _did(step, stage, success=False, result=f"{step.member('path')} does not hold the text to replace")
        return
    path.write_text(text.replace(sought, stage.filled(step.member("replace")), 1), encoding="utf-8")
    _did(step, stage, success=True)


async def _delete(step: ScriptStep, stage: Stage) -> None:
    path = stage.path(step.text, step)
    there = path.is_file()
    path.unlink(missing_ok=True)
    _did(step, stage, success=there, result="" if there else "there is no such file")


def _did(step: ScriptStep, stage: Stage, *, success: bool, result: str = "") -> None:
    args = dict(step.value) if isinstance(step.value, Mapping) else {"path": step.value}
    stage.record(ToolCall(name=step.kind, args=args, success=success, result=result, duration_ms=0.0))


async def _run(step: ScriptStep, stage: Stage) -> None:
    command = stage.filled(step.text)
    await _really_run(command, {"command": command}, "run", stage)


async def _commit(step: ScriptStep, stage: Stage) -> None:
    message = stage.filled(step.text)
    identity = "-c user.name='Scripted agent' -c user.email=scripted@localhost"
    script = f'git add -A && git {identity} commit --quiet --allow-empty -m "$1"'
    await _really_run(["/bin/sh", "-c", script, "sh", message], {"message": message}, "commit", stage)


async def _really_run(command: Sequence[str] | str, args: JsonMap, name: str, stage: Stage) -> None:
    assignment = stage.assignment
    finished = await run(
        command,
        folder=assignment.folder,
        environment=assignment.environment,
        attempt=assignment.attempt,
        confinement=assignment.confinement,
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


async def _tool(step: ScriptStep, stage: Stage) -> None:
    reported = step.members
    success = reported.get("success", True)
    stage.record(
        ToolCall(
            name=step.member("name"),
            args=as_map(reported, "args"),
            success=None if success is None else bool(success),
            result=stage.filled(str(reported.get("result", ""))),
            duration_ms=as_number(reported, "duration_ms"),
        )
    )


async def _usage(step: ScriptStep, stage: Stage) -> None:
    reported = step.members
    cost = as_number(reported, "cost")
    stage.record(
        ModelCall(
            model=as_text(reported, "model") or stage.assignment.model or "scripted",
            usage=Usage(
                input_tokens=as_integer(reported, "input") or 0,
                cached_tokens=as_integer(reported, "cached") or 0,
                output_tokens=as_integer(reported, "output") or 0,
            ),
            cost_usd=cost,
            price_source="" if cost is None else "agent",
        )
    )


async def _sleep(step: ScriptStep, stage: Stage) -> None:  # noqa: ARG001 (one shape for all steps)
    await asyncio.sleep(as_number(step.value) or 0)


async def _ask(step: ScriptStep, stage: Stage) -> None:
    stage.record(Intervention(kind="question", text=stage.filled(step.text)))


async def _fail(step: ScriptStep, stage: Stage) -> None:
    raise ScriptEnd(WorkDone(exit_code=1, output=stage.last_message, failure=stage.filled(step.text)))


async def _exit(step: ScriptStep, stage: Stage) -> None:
    failure = f"it exited with {step.value}" if step.value else ""
    raise ScriptEnd(WorkDone(exit_code=as_integer(step.value), output=stage.last_message, failure=failure))


async def _raise(step: ScriptStep, stage: Stage) -> None:  # noqa: ARG001 (one shape for all steps)
    raise RAISED[step.text]("the script says so")


async def _chance(step: ScriptStep, stage: Stage) -> None:
    if stage.random.random() < (as_number(step.value) or 0):
        await perform(step.steps, stage)


def _one_of_raised(value: object) -> str:
    return "" if value in RAISED else f"takes one of: {', '.join(RAISED)}"


class _StepKind(NamedTuple):
    take: Callable[[ScriptStep, Stage], Awaitable[None]]
    problem: Callable[[object], str]
    """The problem of a value; empty: none."""


KINDS: Mapping[str, _StepKind] = {
    "say": _StepKind(_say, text),
    "edit": _StepKind(_edit, members("path find replace")),
    "write": _StepKind(_write, members("path content")),
    "append": _StepKind(_append, members("path content")),
    "delete": _StepKind(_delete, text),
    "run": _StepKind(_run, text),
    "tool": _StepKind(_tool, members("name", "args success duration_ms result")),
    "usage": _StepKind(_usage, usage),
    "sleep": _StepKind(_sleep, seconds),
    "commit": _StepKind(_commit, text),
    "ask": _StepKind(_ask, text),
    "fail": _StepKind(_fail, text),
    "exit": _StepKind(_exit, exit_code),
    "raise": _StepKind(_raise, _one_of_raised),
    "chance": _StepKind(_chance, chance),
}


@dataclass(frozen=True, slots=True)
class _AgentRule:
    match: Pattern
    steps: tuple[ScriptStep, ...]


@dataclass(frozen=True, kw_only=True)
class ScriptedAgent(Agent):
    """Follows its script. A mock: reports mark its results."""

    script: list[object] | JsonObject
    """A list of steps, or a map with `steps` and `rules`."""

    is_mock: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A mistake in the script is found here, before anything starts.
        _ = self._rules, self._steps

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Perform the steps that the prompt calls for."""
        stage = Stage(assignment, record)
        try:
            await perform(self._chosen(assignment.prompt), stage)
        except ScriptEnd as ended:
            return ended.how
        return WorkDone(exit_code=0, output=stage.last_message)

    def _chosen(self, prompt: str) -> tuple[ScriptStep, ...]:
        matching = (rule.steps for rule in self._rules if rule.match.search(prompt))
        return next(matching, self._steps)

    @cached_property
    def _steps(self) -> tuple[ScriptStep, ...]:
        steps = self.script if isinstance(self.script, list) else self.script.get("steps", [])
        return parsed_steps(steps, "script")

    @cached_property
    def _rules(self) -> tuple[_AgentRule, ...]:
        if isinstance(self.script, list):
            return ()
        for key in self.script:
            if key not in ("steps", "rules"):
                raise UsageError(f"script: there is no `{key}`; a script has `steps` and `rules`")
        if not self.script:
            raise UsageError("script: it is empty; a script has `steps` or `rules`")
        rules = self.script.get("rules", [])
        if not isinstance(rules, list):
            raise UsageError("script: `rules` is a list")
        return tuple(_rule(rule, f"script: rule {number}") for number, rule in enumerate(rules, 1))


def _rule(rule: object, where: str) -> _AgentRule:
    if not isinstance(rule, Mapping) or set(rule) != {"match", "steps"}:
        raise UsageError(f"{where}: a rule has `match` and `steps`")
    try:
        match = compile_pattern(rule["match"])
    except (re.error, TypeError) as cause:
        raise UsageError(f"{where}: `match` is not a valid regular expression: {cause}") from cause
    return _AgentRule(match, parsed_steps(rule["steps"], where))
