"""Ask a model and record the request and its response.

Every call ends up in the record, also one that failed or was cancelled. Price, rate limit and budget are
properties of the `Model` the client is given.
"""

import json
from asyncio import CancelledError, Semaphore, TaskGroup
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import fields, replace
from typing import Literal, TypedDict, TypeVar

from proctor.errors import AttemptError, ModelError, TimeLimit, first_error
from proctor.model import FILTERED, REFUSAL, TRUNCATED, Answer, Model, Request, strip_reasoning
from proctor.session import Invalid, Message, ModelCall, Note, Record, Usage

Keep = Literal["messages", "call", "bodies"]
"""What is recorded of an exchange:

`messages`: the call, and the prompt and the answer as messages of the session;
`call`: the call only; its bodies too where the answer contains reasoning, which is not shown elsewhere;
`bodies`: the call with the prompt and the answer in it.
"""
_NO_USAGE = Usage()
_TOKEN_COUNTS = tuple(each.name for each in fields(Usage))
_UNLIMITED: AbstractAsyncContextManager[None] = nullcontext()


class ClientTotals(TypedDict):
    """Sums of a client, as a checkpoint stores them."""

    usage: dict[str, int]
    cost: float | None
    calls: int


class ModelClient:
    """Calls models and records each exchange. It is a `Model` itself, for code that takes one."""

    def __init__(
        self,
        model: Model,
        record: Record,
        *,
        keep: Keep = "messages",
        at_once: int | None = None,
        call_limit: Callable[[], AbstractAsyncContextManager[None]] = lambda: _UNLIMITED,
    ) -> None:
        """`at_once` limits concurrent calls: 1 where parallel calls could exceed a budget together.

        `call_limit` makes the time limit of each call of `answer`; one that exceeds it is a `ModelError`.
        """
        self._call_limit = call_limit
        self._model = model
        self._record = record
        self._keep: Keep = keep
        self._slots = Semaphore(at_once) if at_once else None
        self.usage = _NO_USAGE
        self.cost_usd: float | None = None
        """None: no price is known, which is not the same as free."""
        self.calls = 0
        """Number of calls that were answered."""

    async def answer(self, request: Request) -> Answer:
        """Ask with the client's own `keep`."""
        try:
            return await self.ask(request, time_limit=self._call_limit())
        except TimeLimit as limit:
            raise ModelError(str(limit), reason="timeout") from limit

    async def ask(
        self,
        request: Request,
        *,
        keep: Keep | None = None,
        speaker: str = "",
        purpose: str = "",
        on_call: Callable[[ModelCall], None] | None = None,
        time_limit: AbstractAsyncContextManager[None] = _UNLIMITED,
    ) -> Answer:
        """Return the model's answer; pass on an `AttemptError` or a cancellation once it is recorded.

        With a `speaker`, messages and the call carry its name and `purpose`, and only answered messages are
        recorded.
        `on_call` sees the call just before it is recorded.
        """
        keep = keep or self._keep
        if self._slots:
            await self._slots.acquire()
        try:
            if keep == "messages" and not speaker:
                self._record_prompt(request)
            try:
                # The limit is inside, so that a call that takes too long is recorded as such.
                async with time_limit:
                    answer = await self._model.answer(request)
            except AttemptError as error:
                failed = ModelCall(model=request.model, status=error.reason, error=str(error))
                self._record_call(replace(failed, speaker=speaker, purpose=purpose), on_call)
                raise
            except CancelledError:
                cancelled = ModelCall(model=request.model, status="cancelled")
                self._record_call(replace(cancelled, speaker=speaker, purpose=purpose), on_call)
                raise
            self.count(answer.call)
            if keep == "messages":
                self._record_messages(request, answer, speaker, purpose, on_call)
            else:
                self._record_bodies(request, answer, keep, on_call)
            return answer
        finally:
            if self._slots:
                self._slots.release()

    def count(self, call: ModelCall) -> None:
        """Add a call to the totals."""
        self.calls += 1
        self.usage = call.usage if self.usage is _NO_USAGE else self.usage + call.usage
        if call.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + call.cost_usd

    def totals(self) -> ClientTotals:
        """The totals so far, for a client that resumes from here."""
        # Not `asdict`: it copies deeply, and this is called after every turn of every dialogue.
        usage = {name: getattr(self.usage, name) for name in _TOKEN_COUNTS}
        return {"usage": usage, "cost": self.cost_usd, "calls": self.calls}

    def restore(self, totals: ClientTotals) -> None:
        """Continue counting from the totals of an earlier client."""
        self.usage = Usage(**totals["usage"])
        self.cost_usd, self.calls = totals["cost"], totals["calls"]

    def _record_prompt(self, request: Request, name: str = "") -> None:
        for message in request.messages:
            self._record(Message(role=message["role"], content=str(message["content"]), name=name))

    def _record_messages(
        self,
        request: Request,
        answer: Answer,
        speaker: str,
        purpose: str,
        on_call: Callable[[ModelCall], None] | None,
    ) -> None:
        if not speaker:
            self._record_call(answer.call, on_call)
            self._record(Message(role="assistant", content=answer.text))
            return
        self._record_prompt(request, f"{speaker}: {purpose}")
        self._record(Message(role="assistant", content=answer.text, name=speaker))
        # Last, because recording the cost may end the attempt.
        self._record_call(replace(answer.call, speaker=speaker, purpose=purpose), on_call)

    def _record_bodies(
        self, request: Request, answer: Answer, keep: Keep, on_call: Callable[[ModelCall], None] | None
    ) -> None:
        call = answer.call
        if keep == "bodies" or strip_reasoning(answer.text) != answer.text:
            call = _with_bodies(call, request, answer.text)
        self._record_call(call, on_call)
        if answer.finish_reason == "length":
            self._record(Note(text=f"an answer of {request.model} was cut off at its length limit"))

    def _record_call(self, call: ModelCall, on_call: Callable[[ModelCall], None] | None) -> None:
        if on_call is not None:
            on_call(call)
        self._record(call)


def _with_bodies(call: ModelCall, request: Request, text: str) -> ModelCall:
    """The call with its prompt and answer, unless the provider's own bodies are there already."""
    if call.request:
        return call
    return replace(call, request=json.dumps(list(request.messages), ensure_ascii=False), response=text)


JUDGE_SECONDS = 300.0
"""Time limit of one call of a judge, without waits for rate limits."""
_UNUSABLE = {
    REFUSAL: ("refused", "refused to answer"),
    FILTERED: ("content_filter", "gave an answer that its content filter removed"),
    TRUNCATED: ("truncated", "gave an answer that was cut off at its length limit"),
}
"""By finish reason: the reason of the error, and what the model did."""


async def ask_for_answer(
    ask: Callable[[Request], Awaitable[Answer]], request: Request, record: Record, *, whole: bool = False
) -> Answer:
    """An answer that is neither refused nor filtered nor, where it has to be `whole`, cut off.

    One that is gets requested once more, with another seed; `ModelError` when that is no better: what a model
    says in place of an answer must not pass as one.
    """
    answer = await ask(request)
    if _is_usable(answer, whole=whole):
        return answer
    record(Invalid(kind="regenerated_answers"))
    answer = await ask(replace(request, seed=None if request.seed is None else request.seed + 1))
    if _is_usable(answer, whole=whole):
        return answer
    reason, what = _UNUSABLE[answer.finish_reason]
    raise ModelError(f"{request.model} {what}, twice", reason=reason)


def _is_usable(answer: Answer, *, whole: bool) -> bool:
    return answer.finish_reason not in _UNUSABLE or (answer.finish_reason == TRUNCATED and not whole)


T = TypeVar("T")


async def together(work: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """The results of all, in their order; on an error, the others are cancelled and it is raised."""
    try:
        async with TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in work]
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from group_error
    return [task.result() for task in tasks]
