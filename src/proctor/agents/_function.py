"""A Python function as an agent."""

import asyncio
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from proctor.agent import Agent, Assignment, Reach, WorkDone
from proctor.errors import AgentError, UsageError
from proctor.json_values import JsonMap
from proctor.model import Answer, Request
from proctor.model_client import ModelClient
from proctor.session import Message, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """What an agent function may use in addition to its prompt."""

    prompt: str
    model: str
    """The model of the item; empty: none was set."""
    folder: Path
    """The folder to work in: the worktree, or an empty folder for items without a repository."""
    record: Record
    """Adds an event to the session: a `Message`, `ToolCall` or `Note`."""
    _assignment: Assignment

    async def ask(self, prompt: str | list[JsonMap], *, model: str = "", **parameters: object) -> Answer:
        """Call a model through Proctor: recorded, priced, rate limited and within the budget.

        `prompt` is a text or a list of chat messages; `model` defaults to the item's.
        """
        if self._assignment.models is None:
            raise UsageError("this run has no models to call")
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        request = Request(
            model=model or self.model, messages=messages, parameters=parameters, seed=self._assignment.seed
        )
        return await ModelClient(self._assignment.models, self.record, keep="call").ask(request)


@dataclass(frozen=True)
class FunctionAgent(Agent):
    """Calls `function(prompt)` or `function(prompt, context)`; what it returns is the answer."""

    function: Callable[..., object]
    reach: ClassVar[Reach] = "in_process"

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Call the function; a synchronous one runs in a thread."""
        context = AgentContext(
            prompt=assignment.prompt,
            model=assignment.model,
            folder=assignment.folder,
            record=record,
            _assignment=assignment,
        )
        arguments: tuple[object, ...] = (assignment.prompt, context)[: _positional(self.function)]
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(*arguments)
            else:
                result = await asyncio.to_thread(self.function, *arguments)
            if inspect.isawaitable(result):
                result = await result
        except SystemExit as ended:
            # A function that exits ends its attempt, not the batch.
            raise AgentError(f"the function exited: {ended}") from ended
        text = as_answer(result)
        if text:
            record(Message(role="assistant", content=text))
        return WorkDone(output=text)


def as_answer(result: object) -> str:
    """What a function returned, as text: a text as it is, None as nothing, anything else as JSON."""
    if result is None:
        return ""
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)


def _positional(function: Callable[..., object]) -> int:
    """How many of (prompt, context) a function takes."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters):
        return 2
    return min(2, sum(each.kind in kinds for each in parameters))
