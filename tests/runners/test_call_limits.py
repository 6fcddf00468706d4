"""A judge that does not answer in time costs one verdict, not the run."""

import asyncio
import time

import pytest

from proctor.batch.attempt import WorkClock
from proctor.errors import ModelError
from proctor.model import Answer, Request
from proctor.model_client import ModelClient
from proctor.session import Event


class Silent:
    """A model that never answers."""

    async def answer(self, request: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError(request)


async def test_a_call_that_exceeds_its_limit_is_an_error_of_the_model_and_recorded() -> None:
    recorded = list[Event]()
    clock = WorkClock(time.monotonic)
    client = ModelClient(
        Silent(), recorded.append, call_limit=lambda: clock.time_limit(0.01, "a call of the judge")
    )

    with pytest.raises(ModelError, match="a call of the judge did not finish within") as caught:
        await client.answer(Request(model="openai/judge", messages=[{"role": "user", "content": "Is it?"}]))

    assert caught.value.reason == "timeout"
    assert getattr(recorded[-1], "status", "") == "timeout"
