"""Ask the person at the terminal in an actor's place.

The question goes to standard error, the answer comes from standard input; a line with a single dot, or
the end of the input, ends it. One question at a time, whoever else is at work.
"""

import asyncio
import sys

from proctor.cli.words import printable, say
from proctor.errors import ModelError
from proctor.model import Answer, Model, Request
from proctor.session import ModelCall

HUMAN = "human/"


class WithHuman:
    """Models, with a person among them."""

    one_at_a_time = asyncio.Lock()

    def __init__(self, models: Model) -> None:
        self._models = models

    async def answer(self, request: Request) -> Answer:
        """The person's answer, where one is asked; else the model's."""
        if not request.model.startswith(HUMAN):
            return await self._models.answer(request)
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
