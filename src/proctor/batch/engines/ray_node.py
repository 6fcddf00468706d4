"""The actor of a run on one node of a Ray cluster: starts a worker process there and relays its messages.

The worker is a process of its own, as with `--workers`: it has an event loop without Ray's threads, and
everything that its attempts have started ends with it, however the actor or the node's Ray process dies.
"""

import asyncio
import fcntl
import os
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor import __version__
from proctor.batch.engines.processes import WorkerLauncher
from proctor.batch.engines.worker_process import READ_BYTES
from proctor.secrets import machine_part, private_folder
from proctor.workspace.transfer import FileCopy, place_files
from proctor.workspace.worktree import remove_home

COLLECT_SECONDS = 5.0
"""A call for messages returns without any after this time, so that both sides know of each other."""
DRIVER_SECONDS = 60.0
"""A driver that has not called for this long has died, or cannot be reached: its run is resumed elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the driver needs to know of a node."""

    version: str
    """Of Proctor."""
    home: Path
    """Folder of the run's files on the node."""
    leftovers: tuple[Path, ...]
    """Such folders of actors that have died."""
    environment: Mapping[str, str] = field(repr=False)
    """Variables that depend on the machine."""


class NodeActor:
    """Relays messages between the driver and a worker process. An asynchronous Ray actor."""

    def __init__(self, run_id: str, driver_seconds: float = DRIVER_SECONDS) -> None:
        """The actor ends when the driver has not called for `driver_seconds`."""
        self._driver_seconds = driver_seconds
        self._run_id = run_id
        self._home = (
            Path(tempfile.gettempdir()) / f"proctor-{os.getuid()}" / f"{run_id}-{uuid.uuid4().hex[:12]}"
        )
        self._locks = list[int]()
        self._launcher: WorkerLauncher | None = None
        self._incoming = bytearray()
        self._has_ended = False
        self._arrived = asyncio.Event()
        self._called_at = time.monotonic()
        self._tasks = set[asyncio.Task[None]]()

    async def start(self) -> NodeFacts:
        """Start the worker process."""
        private_folder(self._home.parent)
        leftovers = [
            folder for folder in self._home.parent.glob(f"{self._run_id}-{'?' * 12}") if self._take(folder)
        ]
        private_folder(self._home)
        self._take(self._home)
        # Ray adds the folders of the driver to the path of the actor; those are on another machine.
        self._launcher = WorkerLauncher(path=())
        end = self._launcher.start_worker()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=end, limit=READ_BYTES)
        self._tasks |= {asyncio.create_task(self._read()), asyncio.create_task(self._watch_driver())}
        return NodeFacts(
            version=__version__,
            home=self._home,
            leftovers=tuple(leftovers),
            environment=machine_part(os.environ),
        )

    def _take(self, folder: Path) -> bool:
        """Lock a folder for the life of this process; False: another actor has it."""
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._locks.append(lock)
        return True

    async def deliver(self, frames: bytes) -> None:
        """Pass messages on to the worker."""
        self._called_at = time.monotonic()
        # That the worker has died, `collect` says.
        with suppress(ConnectionError):
            self._writer.write(frames)
            await self._writer.drain()

    async def collect(self) -> tuple[bytes, bool]:
        """The messages of the worker since the last call, and whether they were its last ones."""
        self._called_at = time.monotonic()
        if not self._incoming and not self._has_ended:
            self._arrived.clear()
            try:
                async with asyncio.timeout(COLLECT_SECONDS):
                    await self._arrived.wait()
            except TimeoutError:
                pass
        frames, self._incoming = bytes(self._incoming), bytearray()
        return frames, self._has_ended and not self._incoming

    async def store(self, digest: str, content: bytes) -> Path:
        """Write content to a file for the worker; where it is."""
        path = private_folder(self._home / "received") / digest
        await asyncio.to_thread(path.write_bytes, content)
        return path

    async def place(self, copy: FileCopy, content: bytes) -> Path:
        """Write copied files; where they are."""
        copy = replace(copy, content=content)
        return await asyncio.to_thread(place_files, copy, private_folder(self._home / "files"))

    async def close(self) -> None:
        """End the worker process. Remove the files of the run, unless worktrees were kept."""
        if self._launcher:
            await asyncio.to_thread(self._launcher.close)
        await asyncio.to_thread(remove_home, self._home)

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(READ_BYTES):
                self._incoming += data
                self._arrived.set()
        except OSError:
            pass
        self._has_ended = True
        self._arrived.set()

    async def _watch_driver(self) -> None:
        while time.monotonic() - self._called_at < self._driver_seconds:
            await asyncio.sleep(self._driver_seconds / 10)
        # The launcher notices, and ends the worker with everything that it had started.
        os._exit(1)
