"""Whom the actors of a scenario are asked through: models, and the person at the terminal.

What a model says goes into files as well as into the store; whatever it says, the user's keys are
blotted out of it here.

For an actor whom a person plays, the question goes to standard error and the answer comes from standard
input; a line with a single dot, or the end of the input, ends it. One question at a time, whoever else
is at work.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace

from proctor.cli.words import printable, say
from proctor.errors import ModelError
from proctor.model import Answer, Model, Request
from proctor.session import ModelCall

HUMAN = "human/"


class WithHuman:
    """Models, with a person among them."""

    one_at_a_time = asyncio.Lock()

    def __init__(self, models: Model, blot: Callable[[str], str]) -> None:
        self._models = models
        self._blot = blot

    async def answer(self, request: Request) -> Answer:
        """The person's answer, where one is asked; else the model's."""
        if not request.model.startswith(HUMAN):
            answer = await self._models.answer(request)
            return replace(answer, text=self._blot(answer.text))
        async with self.one_at_a_time:
            text = await asyncio.to_thread(_ask, request)
        if not text:
            raise ModelError(f"nobody answered for {request.model.removeprefix(HUMAN)}")
        return Answer(text=text, call=ModelCall(model=request.model, cost_usd=0.0, price_source="free"))


def _ask(request: Request) -> str:
    say(f"\n── you are {printable(request.model.removeprefix(HUMAN))} " + "─" * 40)
    say(printable(request.messages[-1]["content"], lines=True))
    say("── your answer; end it with a line that holds a single dot")
    lines: list[str] = []
    for line in sys.stdin:
        if line.strip() == ".":
            break
        lines.append(line)
    return "".join(lines).strip()
