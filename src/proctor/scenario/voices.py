"""Ask models on behalf of actors, narrator and judges, and record every word of it.

Each question has a seed of its own, drawn from the run's, the turn, who is asked and what for: whoever
asks in another order still gets the same answers from a deterministic model.

Knows nothing of what the questions are about.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from proctor.errors import AttemptError, ModelError
from proctor.model import Model, Request
from proctor.scenario.state import Call
from proctor.session import Message, ModelCall, Record
from proctor.thinking import spoken

T = TypeVar("T")
HUMAN = "human/"
"""`human/SHORT_NAME` is a person, asked by whoever sits at the terminal's or the page's other side."""


class Voices:
    """Everyone who is asked in one run."""

    def __init__(
        self,
        models: Model,
        record: Record,
        *,
        seed: int,
        parameters: dict[str, Any] | None = None,
        at_once: int = 16,
        log: Callable[[str], None] | None = None,
    ) -> None:
        """`at_once` is 1 where money is limited: calls side by side could pass a limit together."""
        self._models = models
        self._record = record
        self._seed = seed
        self._parameters = parameters or {}
        self._places = asyncio.Semaphore(at_once)
        self._log = log or _nobody
        self.calls: list[Call] = []
        """Of the turn under way; whoever ends the turn takes them away."""

    async def ask(
        self, who: str, purpose: str, *, model: str, prompt: str, turn: int, system: str = "", about: str = ""
    ) -> str:
        """The answer to one question. `about` keeps apart what one asks twice in a turn."""
        seed = seed_of(self._seed, turn, who, purpose, about)
        async with self._places:
            return await self._asked(who, purpose, model, system, prompt, turn, seed)

    async def _asked(
        self, who: str, purpose: str, model: str, system: str, prompt: str, turn: int, seed: int
    ) -> str:
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        request = Request(model=model, messages=messages, parameters=self._parameters, seed=seed)
        try:
            answer = await self._models.answer(request)
        except AttemptError as error:
            self._note(who, purpose, turn, ModelCall(model=model, status=error.reason, error=str(error)))
            raise
        except asyncio.CancelledError:
            self._note(who, purpose, turn, ModelCall(model=model, status="cancelled"))
            raise
        for message in messages:
            self._record(Message(role=message["role"], content=message["content"], name=f"{who}: {purpose}"))  # type: ignore[arg-type]
        self._record(Message(role="assistant", content=answer.text, name=who))
        self._note(who, purpose, turn, answer.call)
        said = spoken(answer.text)
        if not said.strip():
            raise ModelError(f"{model} said nothing when asked for the {purpose} of {who}")
        return said

    def _note(self, who: str, purpose: str, turn: int, call: ModelCall) -> None:
        usage = call.usage
        self.calls.append(
            Call(
                who=who,
                purpose=purpose,
                model=call.model,
                turn=turn,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=call.cost_usd,
            )
        )
        ended = call.status if call.status != "ok" else f"{usage.total_tokens} tokens"
        self._log(f"turn {turn}: {who}, {purpose}: {call.model}: {ended}")
        # Last, since it may end this attempt: there is no money for more.
        self._record(call)


async def together(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results of all, in their order; when one fails, the others are stopped and its error raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run(one)) for one in work]
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error
    return [task.result() for task in tasks]


def seed_of(*parts: object) -> int:
    """A number drawn from these words, the same on every machine; one that any provider takes."""
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:4]) >> 1


def run_seed(details: Mapping[str, Any], repeat: int) -> int:
    """The seed of one run: that of the experiment and the run's number, the same in every variation.

    A branch has the seed of the run it goes on from, unless it was given another.
    """
    branch = details.get("branch") or {}
    return int(branch["seed"]) if "seed" in branch else seed_of(details["seed"], repeat)


async def _run(work: Awaitable[T]) -> T:
    return await work


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _nobody(_: str) -> None:
    return None
