"""Whom the actors of a scenario are asked through: models, and people.

What a model or a person says goes into files as well as into the store; whatever it says, the user's
keys are blotted out of it here. While a person thinks, the run waits: that time is not counted as work.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from proctor.cli.output import print_note, printable
from proctor.errors import ModelError
from proctor.model import Answer, Model, Request
from proctor.session import ModelCall
from proctor.store import Store

HUMAN = "human/"


LOOK_AGAIN_SECONDS = 0.25
"""Nobody notices a quarter of a second behind the answer of a person."""


class People(Protocol):
    """A way to ask people."""

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """What whoever plays an actor says; empty: nobody is there."""


class Terminal:
    """The person at this terminal: asked on standard error, answering on standard input.

    A line with a single dot, or the end of the input, ends an answer. One question at a time, whoever else
    is at work.
    """

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """Ask here."""
        del item_id
        async with self._one_at_a_time:
            return await asyncio.to_thread(_typed, actor, prompt)


class StoreQuestions:
    """People in another process, such as the web app: questions and answers go through the store."""

    def __init__(self, store: Store, run_id: str, now: Callable[[], datetime]) -> None:
        self._store, self._run_id, self._now = store, run_id, now

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """Put the question, and look for its answer until there is one."""
        store, run_id = self._store, self._run_id
        question = await asyncio.to_thread(store.ask_question, run_id, item_id, actor, prompt, self._now())
        try:
            while (answer := await asyncio.to_thread(store.answer_of, run_id, question)) is None:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
        except BaseException:
            # Nobody waits for it any more, whatever the reason.
            store.withdraw_question(run_id, question)
            raise
        return answer


class WithPeople:
    """The models of one attempt, with people among them."""

    def __init__(
        self,
        models: Model,
        people: People,
        *,
        item_id: str,
        waited: Callable[[float], None],
        blot: Callable[[str], str],
    ) -> None:
        """`waited` is told before each pause how long the attempt is held back."""
        self._models, self._people, self._item_id = models, people, item_id
        self._waited, self._blot = waited, blot

    async def answer(self, request: Request) -> Answer:
        """The person's answer, where one is asked; else the model's."""
        if not request.model.startswith(HUMAN):
            answer = await self._models.answer(request)
            return replace(answer, text=self._blot(answer.text))
        actor = request.model.removeprefix(HUMAN)
        text = await self._patiently(actor, str(request.messages[-1]["content"]))
        if not text:
            raise ModelError(f"nobody answered for {actor}")
        call = ModelCall(model=request.model, cost_usd=0.0, price_source="free")
        return Answer(text=self._blot(text), call=call)

    async def _patiently(self, actor: str, prompt: str) -> str:
        asking = asyncio.create_task(self._people.ask(self._item_id, actor, prompt))
        clock = asyncio.get_running_loop().time
        try:
            while not asking.done():
                began = clock()
                self._waited(LOOK_AGAIN_SECONDS)
                await asyncio.wait([asking], timeout=LOOK_AGAIN_SECONDS)
                # On a busy machine it took longer than was said.
                self._waited(max(0.0, clock() - began - LOOK_AGAIN_SECONDS))
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        return asking.result()


def _typed(actor: str, prompt: str) -> str:
    print_note(f"\n── you are {printable(actor)} " + "─" * 40)
    print_note(printable(prompt, lines=True))
    print_note("── your answer; end it with a line that holds a single dot")
    lines: list[str] = []
    for line in sys.stdin:
        if line.strip() == ".":
            break
        lines.append(line)
    return "".join(lines).strip()
