"""A gateway that is started when the first agent needs it.

Most batches never do, and need not load an HTTP server.

Knows nothing of who asks.
"""

import asyncio
from typing import TYPE_CHECKING

from proctor.agent import Access
from proctor.models.gateway.access import Caller
from proctor.models.router import Models

if TYPE_CHECKING:
    from proctor.models.gateway.server import Gateway


class Door:
    """The gateway of one batch, behind a door. Use it on one event loop; close it at the end."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._gateway: Gateway | None = None
        self._starting = asyncio.Lock()

    async def open(self, caller: Caller) -> Access:
        """Give an attempt its way to models."""
        async with self._starting:
            if self._gateway is None:
                # Imported here because it takes a third of a second that few batches need to spend.
                from proctor.models.gateway.server import Gateway

                gateway = Gateway(self._models)
                await gateway.start()
                self._gateway = gateway
        return self._gateway.open(caller)

    def shut(self, token: str) -> None:
        """Take it away again. When this returns, all of the attempt's calls have been recorded."""
        if self._gateway is not None:
            self._gateway.shut(token)

    async def close(self) -> None:
        """Shut every access and stop listening."""
        if self._gateway is not None:
            await self._gateway.close()
