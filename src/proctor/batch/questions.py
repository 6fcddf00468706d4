"""Questions to people who play a part in a run, asked and answered through the store."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from proctor.store import Store

POLL_SECONDS = 0.25
"""A quarter of a second goes unnoticed after the answer of a person."""


class StoreQuestions:
    """Stores questions of a run and waits for their answers."""

    def __init__(
        self, store: Store, run_id: str, now: Callable[[], datetime], announce: Callable[[str], None]
    ) -> None:
        """`announce` is called with a message when the run begins to wait for a person."""
        self._store, self._run_id, self._now, self._announce = store, run_id, now, announce

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """Store the question and poll for its answer."""
        store, run_id = self._store, self._run_id
        question = await asyncio.to_thread(store.ask_question, run_id, item_id, actor, prompt, self._now())
        answer = await asyncio.to_thread(store.answer_of, run_id, question)
        if answer is None:
            self._announce(f"waiting for {actor} to answer {question} (in the page of the run)")
        try:
            while answer is None:
                await asyncio.sleep(POLL_SECONDS)
                answer = await asyncio.to_thread(store.answer_of, run_id, question)
        except BaseException:
            # Nobody waits for the answer any more, whatever the reason.
            store.withdraw_question(run_id, question)
            raise
        return answer
