"""Confinement by a container of Podman or Docker: the programs of the image, with the session's folders.

Variables are passed by name, so that no value is on the command line. Without network, a relay inside (which
needs `python3` in the image) forwards the gateway's port to a Unix socket that Proctor serves.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache as cached
from pathlib import Path

from proctor.errors import WorkspaceError
from proctor.processes import Confinement, Launch
from proctor.processes.program import ATTEMPT_MARKER, PROGRAM_MARKER
from proctor.sandbox import Policy
from proctor.sandbox.paths import is_system

ENGINES = ("podman", "docker")
TRIAL_SECONDS = 20
IMAGE_SECONDS = 1800
"""For building or pulling an image."""
INSIDE = "/proctor"
"""Folder of the relay and its sockets in the container."""
_HOST_ONLY = frozenset({"PATH", "SHELL", "USER", "LOGNAME", "LD_LIBRARY_PATH"})
_PLACES = ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
"""Variables that the engine's own program needs with the user's values."""


@cached
def engine() -> str:
    """Path of the first engine that runs; empty: none does."""
    for name in ENGINES:
        path = shutil.which(name)
        if path and not _problem_of(path):
            return path
    return ""


def _problem_of(path: str) -> str:
    try:
        ended = subprocess.run(
            [path, "info"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if ended.returncode == 0 else ended.stderr.strip()[-300:] or f"exit code {ended.returncode}"


def problem() -> str:
    """Why no container can be started on this machine; empty: they can."""
    if engine():
        return ""
    installed = [path for name in ENGINES if (path := shutil.which(name))]
    reasons = [f"{Path(path).name}: {_problem_of(path)}" for path in installed]
    return "; ".join(reasons) or "neither `podman` nor `docker` is on the PATH"


async def make_image(name: str, context: Path | None) -> None:
    """Build an image of a folder with a Dockerfile, or pull it, unless the engine has it already.

    Raises `WorkspaceError`.
    """
    if not await _call("image", "inspect", name, may_fail=True):
        build = ("build", "--tag", name, str(context)) if context else ("pull", name)
        await _call(*build)


async def copy_from_image(name: str, folder: str, target: Path) -> None:
    """Copy the contents of a folder of an image. Raises `WorkspaceError`."""
    container = (await _call("create", name, "true")).split()[-1]
    try:
        await _call("cp", f"{container}:{folder}/.", str(target))
    finally:
        await _call("rm", "--force", container, may_fail=True)


async def _call(*arguments: str, may_fail: bool = False) -> str:
    """The output of a call of the engine; empty: it failed, and may."""
    process = await asyncio.create_subprocess_exec(
        engine(), *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(IMAGE_SECONDS):
            printed, problem = await process.communicate()
    except TimeoutError:
        raise WorkspaceError(
            f"`{' '.join(arguments[:2])}` was still running after {IMAGE_SECONDS} s"
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return printed.decode("utf-8", "replace") or " "
    if may_fail:
        return ""
    text = problem.decode("utf-8", "replace").strip()[-1000:]
    raise WorkspaceError(f"`{Path(engine()).name} {' '.join(arguments)}` failed: {text}")


def confine(policy: Policy) -> Confinement:
    """The confinement of a program under a policy."""
    name = f"proctor-{uuid.uuid4().hex[:16]}"
    sockets = Path(tempfile.mkdtemp(prefix="proctor-")) if policy.serve else None

    def wrap(arguments: Sequence[str], launch: Launch, descriptors: Mapping[str, int]) -> list[str]:  # noqa: ARG001
        command = list(arguments)
        if command[0].startswith("/") and not _is_inside(Path(command[0]), policy):
            # A program of this machine: the image has its own.
            command[0] = Path(command[0]).name if not is_system(Path(command[0])) else command[0]
        if sockets:
            pairs = ",".join(f"{port}={INSIDE}/{port}" for port in policy.serve)
            command = ["python3", f"{INSIDE}/relay.py", pairs, *command]
        return [engine(), "run", *_arguments(policy, launch, name, sockets), policy.image, *command]

    async def release() -> None:
        # A killed client leaves its container running.
        removal = await asyncio.create_subprocess_exec(
            engine(),
            "rm",
            "--force",
            name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        await removal.wait()
        if sockets:
            shutil.rmtree(sockets, ignore_errors=True)

    return Confinement(
        wrap=wrap,
        stays=True,
        sockets={sockets / str(port): serve for port, serve in policy.serve.items()} if sockets else {},
        # The engine's program stores images in the user's HOME.
        variables={**policy.variables, "HOME": str(policy.user_home)},
        release=release,
    )


def _is_inside(path: Path, policy: Policy) -> bool:
    return any(path.is_relative_to(folder) for folder in (*policy.write, *policy.read))


def _arguments(policy: Policy, launch: Launch, name: str, sockets: Path | None) -> Iterator[str]:
    yield from ("--rm", "--interactive", "--init", "--name", name, "--label", f"proctor={launch.attempt}")
    yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    yield from ("--user", f"{os.getuid()}:{os.getgid()}")
    if policy.network != "full":
        yield from ("--network", "none")
    yield from _limits(policy)
    for folder in policy.write:
        yield from ("--volume", f"{folder}:{folder}")
    for path in policy.read:
        yield from ("--volume", f"{path}:{path}:ro")
    for inside, folder in policy.mounts.items():
        yield from ("--volume", f"{folder}:{inside}")
    for cache, mode in policy.cache.items():
        yield from ("--volume", f"{cache}:{policy.inside(Path(cache))}:{'ro' if mode == 'read' else 'O'}")
    if sockets:
        yield from ("--volume", f"{sockets}:{INSIDE}")
        yield from ("--volume", f"{Path(__file__).with_name('relay.py')}:{INSIDE}/relay.py:ro")
    yield from ("--workdir", str(launch.folder))
    for variable, value in launch.environment.items():
        if variable in _PLACES:
            yield from ("--env", f"{variable}={value}")
        elif variable not in _HOST_ONLY and not _is_of_this_machine(value, policy):
            yield from ("--env", variable)
    for variable in (*policy.variables, ATTEMPT_MARKER, PROGRAM_MARKER):
        yield from ("--env", variable)


def _limits(policy: Policy) -> Iterator[str]:
    limits = policy.limits
    if "NPROC" in limits:
        yield from ("--pids-limit", str(limits["NPROC"]))
    if "DATA" in limits:
        yield from ("--memory", str(limits["DATA"]))
    for name, option in (("FSIZE", "fsize"), ("NOFILE", "nofile"), ("CORE", "core")):
        if name in limits:
            yield from ("--ulimit", f"{option}={limits[name]}:{limits[name]}")


def _is_of_this_machine(value: str, policy: Policy) -> bool:
    """Whether a variable names a file that the container does not have."""
    return value.startswith("/") and not _is_inside(Path(value), policy) and Path(value).exists()
