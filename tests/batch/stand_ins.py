"""Runners that do what a test says, and plans to try them on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from proctor.item import Item
from proctor.runner import Outcome, Runner, Services
from proctor.session import ModelCall, Usage

ECHO = "matrix: [{{prompt: hello, model: scripted/echo, runs: {runs}}}]\nconcurrency: {concurrency}\n"


def echo(runs: int, concurrency: int = 4) -> str:
    """A plan of so many questions, all answered at once."""
    return ECHO.format(runs=runs, concurrency=concurrency)


class Doing:
    """A runner that calls a function."""

    def __init__(self, what: Callable[[Item, Services], Awaitable[Outcome | None]]) -> None:
        self._what = what

    async def run(self, item: Item, services: Services) -> Outcome:
        return await self._what(item, services) or Outcome()


def doing(what: Callable[[Item, Services], Awaitable[Outcome | None]]) -> Callable[[str], Runner]:
    """Finds this runner by any name."""
    return lambda name: Doing(what)


async def forever(item: Item, services: Services) -> None:
    """Work that ends only when it is stopped."""
    await asyncio.sleep(3600)


def call(cost_usd: float | None, **more: Any) -> ModelCall:
    return ModelCall(model="m", usage=Usage(input_tokens=1, output_tokens=1), cost_usd=cost_usd, **more)
