"""The server in a thread of the tests, which ends within milliseconds."""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any

import uvicorn
from websockets.exceptions import InvalidState

from proctor.cli.serve import TimedProtocol
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

GRACE_SECONDS = 1.0
"""For open connections, as of pages that watch a run."""


_free_ports: list[int] = []


def _listener(port: int) -> socket.socket:
    """A socket on this port; 0 for one that a server of this process had, whose scripts a browser keeps."""
    try:
        return socket.create_server(("127.0.0.1", port or (_free_ports.pop() if _free_ports else 0)))
    except OSError:
        # Somebody else has it now.
        if port:
            raise
        return socket.create_server(("127.0.0.1", 0))


class ThreadedServer(uvicorn.Server):
    """A server on loopback, up when it is made. Uvicorn itself takes 0.1 to 0.2 s to end."""

    def __init__(self, app: Any, *, port: int = 0, lifespan: Any = "auto") -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=TimedProtocol,
                log_level="error",
                lifespan=lifespan,
                proxy_headers=False,
            )
        )
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        listener = _listener(port)
        self.port: int = listener.getsockname()[1]
        self._thread = threading.Thread(target=self.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        eventually(lambda: self.started or not self._thread.is_alive())

    def stop(self) -> None:
        """End the server and wait for that."""
        self.should_exit = True
        if self._loop and self._thread.is_alive():
            with suppress(RuntimeError):  # It has ended by itself.
                self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(timeout=TIME_LIMIT_SECONDS)
        assert not self._thread.is_alive()
        _free_ports.append(self.port)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = self.server_state
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(state.connections):
            with suppress(InvalidState):  # Its client is closing it at this moment.
                connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while state.connections or state.tasks:
                    await asyncio.sleep(0.002)
        # What is left, as a connection whose handshake was under way, must not stay open: the other side
        # would never notice that the server has gone.
        for connection in list(state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()
        for task in state.tasks:
            task.cancel()
        await self.lifespan.shutdown()
