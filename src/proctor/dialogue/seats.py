"""How one side of a dialogue reaches its model, with a record of each call and a sum of what it used.

Knows nothing of roles or of what is asked.
"""

import json
from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from proctor.dialogue.party import Question
from proctor.errors import AttemptError
from proctor.model import Answer, Request
from proctor.runner import Services
from proctor.session import Message, ModelCall, Note, Usage
from proctor.thinking import spoken

_COUNTED = tuple(each.name for each in fields(Usage))


class Asking:
    """Asks one model on someone's behalf, and adds up what that used."""

    def __init__(self, services: Services, seed: int) -> None:
        self._services = services
        self._seed = seed
        self._usage = Usage()
        self._cost: float | None = None
        self.calls = 0

    async def put(
        self,
        model: str,
        messages: Sequence[Mapping[str, str]],
        parameters: Mapping[str, Any],
        *,
        keep: bool,
    ) -> Answer:
        """Ask, record the call, count it. `keep` keeps question and answer with the call."""
        record = self._services.record
        request = Request(model=model, messages=messages, parameters=parameters, seed=self._seed)
        try:
            answer = await self._services.models.answer(request)
        except AttemptError as error:
            record(ModelCall(model=model, status=error.reason, error=str(error)))
            raise
        except CancelledError:
            record(ModelCall(model=model, status="cancelled"))
            raise
        self._count(answer.call)
        said = spoken(answer.text)
        # Thoughts are in no conversation; the record has them with the call.
        keep = keep or said != answer.text
        record(_with_words(answer.call, messages, answer.text) if keep else answer.call)
        if answer.finish_reason == "length":
            record(Note(text=f"an answer of {model} was cut off at its length limit"))
        return replace(answer, text=said)

    def usage(self) -> dict[str, float | None]:
        """What it has used so far. A cost nobody knows is None, not 0."""
        return {
            "prompt_tokens": float(self._usage.input_tokens),
            "completion_tokens": float(self._usage.output_tokens),
            "total_tokens": float(self._usage.total_tokens),
            "total_cost": self._cost,
        }

    def kept(self) -> dict[str, Any]:
        """What it has used so far, for one who takes its place."""
        # By hand: `asdict` copies deeply, and this is done after every turn of every dialogue.
        usage = {name: getattr(self._usage, name) for name in _COUNTED}
        return {"usage": usage, "cost": self._cost, "calls": self.calls}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on counting from what another has used."""
        self._usage, self._cost = Usage(**kept["usage"]), kept["cost"]
        self.calls = kept["calls"]

    def _count(self, call: ModelCall) -> None:
        self.calls += 1
        self._usage += call.usage
        if call.cost_usd is not None:
            self._cost = (self._cost or 0.0) + call.cost_usd


class Seat(Asking):
    """The way of one side of a dialogue to its model."""

    def __init__(
        self, side: str, model: str, parameters: Mapping[str, Any], services: Services, seed: int
    ) -> None:
        super().__init__(services, seed)
        self._side, self._model, self._parameters = side, model, parameters
        self._instructed = ""

    async def ask(self, question: Question) -> str:
        """What its model says."""
        if not question.is_inner:
            self._tell_instructions(question.messages)
        parameters = {**self._parameters, **question.parameters}
        answer = await self.put(self._model, question.messages, parameters, keep=question.is_inner)
        return answer.text

    def was_told(self, instructions: str) -> None:
        """What its model was last told to be is in the record already."""
        self._instructed = instructions

    @property
    def label(self) -> str:
        """The name its instructions have in the record."""
        return f"instructions of the {self._side}"

    def _tell_instructions(self, messages: Sequence[Mapping[str, str]]) -> None:
        """What a role is told to be is part of the record, once, and again when it changes."""
        told = next((message["content"] for message in messages if message["role"] == "system"), "")
        if told and told != self._instructed:
            self._instructed = told
            self._services.record(Message(role="system", content=told, name=self.label))


def _with_words(call: ModelCall, messages: Sequence[Mapping[str, str]], text: str) -> ModelCall:
    if call.request:
        return call
    return replace(call, request=json.dumps(list(messages), ensure_ascii=False), response=text)
