"""Actors played by people: questions to people take the place of requests to a model.

While a person thinks, the attempt waits: that time does not count as work. Answers of people and of models
go into files as well as into the store, so the user's keys are redacted here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from proctor.context import AttemptContext, People
from proctor.errors import ModelError
from proctor.model import Answer, Model, Request
from proctor.scenario.prompts import HUMAN
from proctor.secrets import redactor
from proctor.session import ModelCall
from proctor.store import Store

POLL_SECONDS = 0.25
"""A quarter of a second goes unnoticed after the answer of a person."""


def with_people(attempts: AttemptContext, people: People) -> AttemptContext:
    """The same dependencies, with models that put the questions to `human/ACTOR` to people."""
    make_models, redact = attempts.models, redactor(attempts.environment)

    def models(waited: Callable[[float], None], *, item_id: str, **options: Any) -> Model:
        model = make_models(waited, item_id=item_id, **options)
        return ModelWithPeople(model, people, item_id=item_id, waited=waited, redact=redact)

    return replace(attempts, models=models)


class StoreQuestions:
    """People in another process, such as the web app: questions and answers go through the store."""

    def __init__(self, store: Store, run_id: str, now: Callable[[], datetime]) -> None:
        self._store, self._run_id, self._now = store, run_id, now

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """Store the question and poll for its answer."""
        store, run_id = self._store, self._run_id
        question = await asyncio.to_thread(store.ask_question, run_id, item_id, actor, prompt, self._now())
        try:
            while (answer := await asyncio.to_thread(store.answer_of, run_id, question)) is None:
                await asyncio.sleep(POLL_SECONDS)
        except BaseException:
            # Nobody waits for the answer any more, whatever the reason.
            store.withdraw_question(run_id, question)
            raise
        return answer


class ModelWithPeople:
    """The models of one attempt, with people behind the names `human/ACTOR`."""

    def __init__(
        self,
        models: Model,
        people: People,
        *,
        item_id: str,
        waited: Callable[[float], None],
        redact: Callable[[str], str],
    ) -> None:
        """`waited` receives the seconds of each pause before it starts."""
        self._models, self._people, self._item_id = models, people, item_id
        self._waited, self._redact = waited, redact

    async def answer(self, request: Request) -> Answer:
        """The answer of the person or of the model that the request names."""
        if not request.model.startswith(HUMAN):
            answer = await self._models.answer(request)
            return replace(answer, text=self._redact(answer.text))
        actor = request.model.removeprefix(HUMAN)
        text = await self._ask(actor, str(request.messages[-1]["content"]))
        if not text:
            raise ModelError(f"nobody answered for {actor}")
        call = ModelCall(model=request.model, cost_usd=0.0, price_source="free")
        return Answer(text=self._redact(text), call=call)

    async def _ask(self, actor: str, prompt: str) -> str:
        asking = asyncio.create_task(self._people.ask(self._item_id, actor, prompt))
        clock = asyncio.get_running_loop().time
        try:
            while not asking.done():
                started = clock()
                self._waited(POLL_SECONDS)
                await asyncio.wait([asking], timeout=POLL_SECONDS)
                # On a busy machine the pause is longer than announced.
                self._waited(max(0.0, clock() - started - POLL_SECONDS))
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        return asking.result()
