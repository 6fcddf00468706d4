"""Actors played by people in another process, such as the web app: they are asked through the store."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from proctor.store import Store

POLL_SECONDS = 0.25
"""A quarter of a second goes unnoticed after the answer of a person."""


class StoreQuestions:
    """Stores questions of a run and waits for their answers."""

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
