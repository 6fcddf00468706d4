"""Python functions in place of names: as agent, model, evaluator or task generator.

A function is named `module:qualname`, so that item ids stay the same from run to run; the digest of its
source is the version of an evaluator. One that cannot be imported by that name works in this process only.
"""

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from proctor.agents._function import AgentContext as AgentContext
from proctor.errors import UsageError
from proctor.evaluator import Evaluator, Evidence
from proctor.evaluators.code import failed, scored
from proctor.item import Item
from proctor.model import Answer, Request
from proctor.score import Level, Score

AgentFunction = Callable[..., object]
"""`function(prompt)` or `function(prompt, context)`, synchronous or not; returns the answer."""
ModelFunction = Callable[[Request], str | Answer | Awaitable[str | Answer]]
"""`function(request)`, synchronous or not; returns the text of the answer or an `Answer`."""
EvaluatorFunction = Callable[..., object]
"""`function(evidence)`: returns a bool, a number, a label or a mapping with value, label, explanation."""
Items = Iterable[Item] | Callable[[], Iterable[Item]]
"""Items, or a function that generates them."""
MODEL_PREFIX = "python/"
"""Provider of models that are functions."""


def name_of(function: Callable[..., object]) -> str:
    """`module:qualname` of a function or another callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", "") or "__main__"
    return f"{module}:{getattr(named, '__qualname__', named.__class__.__name__)}"


def digest_of_source(function: Callable[..., object]) -> str:
    """Digest of a function's source; of its name where there is no source."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = name_of(function)
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def agent_name(agent: "str | AgentFunction | None", callables: dict[str, AgentFunction]) -> str:
    """The name of an agent; a function is added to `callables`."""
    if agent is None or isinstance(agent, str):
        return agent or ""
    name = name_of(agent)
    callables[name] = agent
    return name


def model_name(model: "str | ModelFunction | None", callables: dict[str, ModelFunction]) -> str:
    """The name of a model; a function is added to `callables`."""
    if model is None or isinstance(model, str):
        return model or ""
    name = MODEL_PREFIX + name_of(model)
    callables[name] = model
    return name


def evaluator_names(
    evaluators: "Sequence[str | EvaluatorFunction]",
    objects: dict[str, Evaluator],
    full_name: Callable[[str], str],
) -> list[str]:
    """The names of evaluators, completed by `full_name`; functions are added to `objects`."""
    names = []
    for evaluator in evaluators:
        if isinstance(evaluator, str):
            names.append(full_name(evaluator))
        elif callable(evaluator):
            name = name_of(evaluator)
            if name in names:
                raise UsageError(f"two evaluators are called {name}\nGive each function its own name.")
            names.append(name)
            objects[name] = CallableEvaluator(name, evaluator)
        else:
            raise UsageError(f"{evaluator!r} is not a valid evaluator\nGive a name or a function.")
    return names


@dataclass(frozen=True)
class CallableEvaluator:
    """A function that scores a session, in this process."""

    name: str
    function: EvaluatorFunction
    level: Level = "session"

    @property
    def digest(self) -> str:
        """Digest of the function's source."""
        return digest_of_source(self.function)

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """Call the function; an exception is a score with an error."""
        about = Score(evaluator=self.name, evaluator_digest=self.digest, level=self.level)
        try:
            if inspect.iscoroutinefunction(self.function):
                result: object = await self.function(evidence)
            else:
                result = await asyncio.to_thread(self.function, evidence)
            if inspect.isawaitable(result):
                result = await result
        except (Exception, SystemExit) as error:
            return [failed(about, f"{type(error).__name__}: {error}", "evaluator_failed")]
        return [scored(about, result)]
