"""Our own small agent: any model, a few tools, and a loop.

It asks the model, does what the model wants done, and shows it the outcome, until the model says
that it has finished or its steps are used up. What a model asks for wrongly is answered, not fatal.

Knows nothing of providers: it calls whatever model the assignment brings.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from proctor.agent import Assignment, Availability, Reach, WorkDone
from proctor.agents._tools import ToolFailed, Workbench, described, use
from proctor.errors import ModelError, WorkspaceError
from proctor.model import Answer, Model, Request, ToolRequest
from proctor.session import Message, ModelCall, Record, ToolCall
from proctor.untrusted import parse_json

SYSTEM_PROMPT = Path(__file__).with_name("builtin_system.txt")
# Enough of an old result to remember what it was about.
REMEMBERED_CHARACTERS = 200
CUT_OFF = "Your last answer was cut off at its length limit. Go on in smaller steps."


@dataclass(frozen=True, kw_only=True)
class Builtin:
    """A tool-using loop over any model."""

    max_steps: int = 50
    """How often the model is asked at most."""
    max_context_chars: int = 200_000
    """Beyond this the oldest tool results are shortened; about a quarter of it is tokens."""
    command_seconds: float = 120.0
    """How long one command may run."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """For the model: temperature, max_tokens and the like."""

    stand_in: ClassVar[bool] = False
    reach: ClassVar[Reach] = "in_process"

    def availability(self, environment: Mapping[str, str]) -> Availability:  # noqa: ARG002 (needs nothing)
        """It is always there; whether its model is, is asked elsewhere."""
        return Availability(ready=True)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Work until the model has finished."""
        if assignment.models is None or not assignment.model:
            raise WorkspaceError("the builtin agent needs a model; set `model` in the plan")
        bench = Workbench(
            folder=assignment.folder,
            environment=assignment.environment,
            attempt=assignment.attempt,
            command_seconds=self.command_seconds,
        )
        talk = _Talk(self, assignment, assignment.models, record)
        for _ in range(self.max_steps):
            answer = await talk.ask()
            for wanted in answer.tool_requests:
                talk.hear(wanted, await _used(wanted, bench, record))
            if (summary := _finished(answer)) is not None:
                return WorkDone(output=summary)
        return WorkDone(output=talk.said, failure=f"it had not finished after {self.max_steps} steps")


class _Talk:
    """The conversation with the model, kept within its bound."""

    def __init__(self, agent: Builtin, assignment: Assignment, models: Model, record: Record) -> None:
        system = SYSTEM_PROMPT.read_text(encoding="utf-8")
        self._agent, self._assignment, self._models, self._record = agent, assignment, models, record
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": assignment.prompt},
        ]
        self._tools = described()
        self.said = ""
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
        try:
            answer = await self._models.answer(request)
        except ModelError as error:
            self._record(ModelCall(model=request.model, status=error.reason, error=str(error)))
            raise
        self._record(answer.call)
        if answer.text:
            self.said = answer.text
            self._record(Message(role="assistant", content=answer.text))
        self._messages.append(_as_message(answer))
        if _is_cut_off(answer):
            self._messages.append({"role": "user", "content": CUT_OFF})
        return answer

    def hear(self, wanted: ToolRequest, result: str) -> None:
        """Show the model what came of a tool."""
        self._messages.append({"role": "tool", "tool_call_id": wanted.id, "content": result})


def _as_message(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.tool_requests:
        message["tool_calls"] = [
            {
                "id": wanted.id,
                "type": "function",
                "function": {"name": wanted.name, "arguments": wanted.arguments},
            }
            for wanted in answer.tool_requests
        ]
    return message


def _is_cut_off(answer: Answer) -> bool:
    return answer.finish_reason == "length" and not answer.tool_requests


def _finished(answer: Answer) -> str | None:
    """The model's last words, when these were its last; None when it goes on."""
    for wanted in answer.tool_requests:
        if wanted.name == "finish" and "summary" in (given := _arguments(wanted.arguments)):
            return str(given["summary"])
    if answer.tool_requests or _is_cut_off(answer):
        return None
    return answer.text


async def _used(
    wanted: ToolRequest, bench: Workbench, record: Record, clock: Callable[[], float] = time.perf_counter
) -> str:
    """Use a tool, record it, and return what the model is told: the result, or what went wrong."""
    began = clock()
    arguments: Mapping[str, Any] = {}
    try:
        arguments = _strict_arguments(wanted.arguments)
        result, success = await use(wanted.name, arguments, bench), True
    except ToolFailed as failed:
        result, success = f"error: {failed}", False
    duration = (clock() - began) * 1000
    record(ToolCall(name=wanted.name, args=arguments, success=success, result=result, duration_ms=duration))
    return result


def _strict_arguments(written: str) -> Mapping[str, Any]:
    try:
        found = parse_json(written or "{}")
    except (ValueError, TypeError) as problem:
        raise ToolFailed(f"the arguments are no JSON: {problem}") from problem
    if not isinstance(found, dict):
        raise ToolFailed("the arguments are no JSON object")
    return found


def _arguments(written: str) -> Mapping[str, Any]:
    try:
        return _strict_arguments(written)
    except ToolFailed:
        return {}


def _shorten(messages: list[dict[str, Any]], most: int) -> None:
    """Cut the oldest results, then the oldest arguments, until the conversation fits."""
    over = sum(map(_size, messages)) - most
    for shorten in (_short_result, _short_arguments):
        for message in messages:
            if over <= 0:
                return
            before = _size(message)
            shorten(message)
            over -= before - _size(message)


def _size(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls", ())
    return len(message["content"]) + sum(len(call["function"]["arguments"]) for call in calls)


def _short_result(message: dict[str, Any]) -> None:
    content = message["content"]
    if message["role"] == "tool" and len(content) > 2 * REMEMBERED_CHARACTERS:
        gone = len(content) - REMEMBERED_CHARACTERS
        message["content"] = f"{content[:REMEMBERED_CHARACTERS]}\n[… {gone} characters left out]"


def _short_arguments(message: dict[str, Any]) -> None:
    for call in message.get("tool_calls", ()):
        if len(call["function"]["arguments"]) > 2 * REMEMBERED_CHARACTERS:
            call["function"]["arguments"] = '{"shortened": true}'
