"""A program whose supervisor or sandbox is killed from outside is an error of the machine, never a failure.

And a program cannot make its own failure look like that.
"""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import SandboxFailed
from proctor.processes import Confinement, ProgramResult, run, warden
from proctor.sandbox import Sandbox, problem_of
from proctor.testing import eventually_async

CONFINING = ("bubblewrap", "landlock")
KINDS = (*CONFINING, "none")
VICTIMS = ("warden", "sandbox", "first process")
"""The processes around a program in bubblewrap, from the outermost; the other kinds have the first."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param != "none" and (problem := problem_of(request.param)):
        pytest.skip(problem)
    return str(request.param)


def unlike_any_other() -> str:
    """Seconds that no other `sleep` on this machine sleeps."""
    return f"{random.SystemRandom().randrange(100_000, 900_000)}.25"


def chain_of(seconds: str) -> list[int]:
    """The processes from the warden, a child of this one, to the program that sleeps so long; empty: none."""
    for pid in warden.every_process():
        if warden.name_of(pid) == f"sleep {seconds}":
            chain = [pid]
            while (parent := warden.state_and_parent(chain[0])[1]) not in (os.getpid(), 0):
                chain.insert(0, parent)
            return chain if parent == os.getpid() else []
    return []


async def kill(seconds: str, victim: str, number: int = signal.SIGKILL) -> None:
    """Kill a process around the program that sleeps so long, once it does."""
    await eventually_async(lambda: chain_of(seconds))
    chain = chain_of(seconds)
    index = -1 if victim == "program" else VICTIMS.index(victim)
    os.kill(chain[index], number)


@pytest.fixture
def confined(tmp_path: Path, kind: str) -> Callable[..., Any]:
    """Runs a command in a sandbox of the kind."""
    place = tmp_path / "proctor" / "worktrees" / "one"
    (place / "tree").mkdir(parents=True)
    user = tmp_path / "user"
    user.mkdir()
    sandbox = Sandbox(hidden=(tmp_path / "proctor", user), user_home=user)

    async def run_confined(command: object, **settings: object) -> ProgramResult:
        own = {"kind": kind, "network": "none", **settings}
        return await run(
            command,  # type: ignore[arg-type]
            folder=place / "tree",
            environment={"PATH": os.environ["PATH"], "HOME": str(place)},
            attempt="test",
            grace_seconds=1,
            time_limit=60,
            confinement=sandbox.confine("check", own, folders=[place], home=place),
        )

    return run_confined


@pytest.mark.parametrize(
    ("kind", "victim", "number"),
    [
        ("bubblewrap", "warden", signal.SIGTERM),
        ("bubblewrap", "sandbox", signal.SIGTERM),
        ("bubblewrap", "sandbox", signal.SIGKILL),
        # The kernel does not deliver it another signal.
        ("bubblewrap", "first process", signal.SIGKILL),
        ("landlock", "warden", signal.SIGKILL),
        ("none", "warden", signal.SIGKILL),
    ],
    indirect=["kind"],
)
async def test_a_killed_supervisor_or_sandbox_is_no_end_of_the_program(confined, kind, victim, number):
    seconds = unlike_any_other()

    killing = asyncio.create_task(kill(seconds, victim, number))
    with pytest.raises(SandboxFailed, match=r"the program did not end by itself: its (supervisor|sandbox) "):
        await confined(f"sleep {seconds}")
    await killing
    assert not chain_of(seconds)


async def test_a_killed_program_has_failed(confined: Any) -> None:
    seconds = unlike_any_other()
    killing = asyncio.create_task(kill(seconds, "program"))
    assert (await confined(f"exec sleep {seconds}")).exit_code == 137
    await killing


LAUNCHER = """
import os, socket, sys
with socket.create_server(("127.0.0.1", 0)) as port, socket.socket(fileno=int(sys.argv[1])) as channel:
    socket.send_fds(channel, [b"l"], [port.fileno()])
    channel.send(sys.argv[2].encode())
os.kill(os.getpid(), 9)
"""
"""Opens the port, says whether it becomes the program, and is killed."""


@pytest.mark.parametrize("said", ["", "r"])
async def test_a_launcher_that_is_killed_is_no_end_of_the_program(tmp_path: Path, said: str) -> None:
    @asynccontextmanager
    async def serve(_: socket.socket) -> AsyncIterator[None]:
        yield

    confinement = Confinement(
        wrap=lambda _, __, given: [sys.executable, "-c", LAUNCHER, str(given["channel"]), said],
        ports={80: serve},
    )
    environment = {"PATH": os.environ["PATH"]}
    ending = run(["true"], folder=tmp_path, environment=environment, attempt="test", confinement=confinement)
    if said:
        assert (await ending).exit_code == 137
    else:
        with pytest.raises(SandboxFailed, match="its launcher was killed"):
            await ending


OWN_ENDS = {
    "exits as if killed": ("exit 137", 137),
    "kills itself": ("kill -9 $$", 137),
    "crashes": ("kill -SEGV $$", 139),
    "kills all that it can": ("kill -9 -1; kill -9 1 $PPID; exit 3", 3),
    "leaves a process behind and is killed": ("sleep 300 & kill -9 $$", 137),
    "cannot be executed": (["./damaged"], 127),
    "closes its descriptors": ("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exit 4", 4),
}


@pytest.mark.parametrize("kind", CONFINING, indirect=True)
async def test_a_program_cannot_present_its_own_end_as_one_of_its_sandbox(confined, kind, tmp_path):
    if kind == "landlock" and warden_can_be_signaled():
        pytest.skip("Landlock keeps signals inside from Linux 6.12")
    damaged = tmp_path / "proctor" / "worktrees" / "one" / "tree" / "damaged"
    damaged.write_text("#!/nonexistent/interpreter\n")
    damaged.chmod(0o755)

    ends = await asyncio.gather(*(confined(command) for command, _ in OWN_ENDS.values()))

    codes = {way: end.exit_code for way, end in zip(OWN_ENDS, ends, strict=True)}
    assert codes == {way: code for way, (_, code) in OWN_ENDS.items()}


def warden_can_be_signaled() -> bool:
    from proctor.sandbox.launcher import landlock_abi

    return landlock_abi() < 6


TRACE = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):
    if libc.ptrace(request, 1, 0, 0) == 0:
        os.waitpid(1, 0x40000000)
        libc.ptrace(7, 1, 0, signal.SIGKILL)
        signal.pause()
for name in ("/proc/1/mem", "/proc/1/fd/4"):
    try:
        with open(name, "r+b", buffering=0) as file:
            file.write(bytes(8))
    except OSError:
        pass
pidfd = libc.syscall(434, 1, 0)
for number in range(3, 20):
    taken = libc.syscall(438, pidfd, number, 0)
    if taken >= 0:
        os.write(taken, (1).to_bytes(8, "little"))
os._exit(5)
"""


@pytest.mark.parametrize("kind", CONFINING, indirect=True)
async def test_a_program_cannot_reach_the_first_process_of_its_namespace(confined: Any, kind: str) -> None:
    """It reports the exit code, and its death would be an error."""
    assert (await confined([sys.executable, "-c", TRACE])).exit_code == 5


@pytest.mark.parametrize("kind", ["bubblewrap"], indirect=True)
async def test_a_sandbox_that_cannot_be_made_is_not_a_failure(confined, kind, tmp_path):
    """Only this kind mounts folders."""
    place = tmp_path / "proctor" / "worktrees" / "one"
    gone = tmp_path / "gone"
    sandbox = Sandbox(hidden=(), user_home=tmp_path / "user")
    with pytest.raises(SandboxFailed, match=r"its sandbox failed with exit code 1 \(bwrap: .*gone"):
        await run(
            "true",
            folder=place,
            environment={"PATH": os.environ["PATH"]},
            attempt="test",
            confinement=sandbox.confine("check", kind, folders=[place, gone], home=place),
        )


@pytest.mark.parametrize(
    ("kind", "phase", "victims"),
    [
        ("bubblewrap", "setup", ["sandbox"]),
        ("bubblewrap", "agent", ["warden", "first process"]),
        ("landlock", "check", ["warden"]),
    ],
    indirect=["kind"],
)
async def test_an_item_whose_sandbox_is_killed_is_an_error_and_made_again(
    workshop: Any, repository: Path, kind: str, phase: str, victims: Sequence[str]
) -> None:
    """Each process around the program is killed in its turn; the last attempt is left alone."""
    seconds = unlike_any_other()
    # The folder of the item's HOME is another for each attempt; outside of it, nothing can be written.
    waiting = f"sleep {seconds}"
    commands = {"setup": "true", "agent": "echo x > new.txt", "check": "test -f new.txt"}
    attempts = repository.parent / "attempts"
    attempts.mkdir()
    commands[phase] = f"test -e {attempts}/enough || {waiting}; {commands[phase]}"
    item = {
        "repo": str(repository),
        "prompt": "Write.",
        "setup": commands["setup"],
        "command": ["sh", "-c", commands["agent"]],
        "scriptCommand": commands["check"],
        "sandbox": {"kind": kind, "network": "none", **({} if kind == "none" else {"read": [str(attempts)]})},
        "retries": len(victims),
    }

    async def kill_all() -> None:
        for victim in victims:
            await kill(seconds, victim)
            await eventually_async(lambda: not chain_of(seconds))
            if victim == victims[-1]:
                (attempts / "enough").touch()

    killing = asyncio.create_task(kill_all())
    await workshop.run(json.dumps({"matrix": [item]}))
    await killing

    assert workshop.outcomes() == [("success", "completed")]
    reasons = [row["endReason"] for row in workshop.rows("sessions")]
    assert reasons == ["sandbox_failed"] * len(victims) + ["completed"]


KILLED_BUBBLEWRAP = """#!/bin/sh
mkdir {mark} 2>/dev/null || exit 0
sleep {seconds} &
kill -9 $$
"""


def test_a_bubblewrap_that_is_killed_while_it_is_tried_out_is_tried_again_and_leaves_no_process(tmp_path):
    seconds = unlike_any_other()
    (tmp_path / "bwrap").write_text(KILLED_BUBBLEWRAP.format(mark=tmp_path / "mark", seconds=seconds))
    (tmp_path / "bwrap").chmod(0o755)

    # In a process of its own: the path of bubblewrap is found once.
    tried = subprocess.run(
        [sys.executable, "-c", "from proctor.sandbox import problem_of; print(problem_of('bubblewrap'))"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert tried.stdout == "\n"
    assert (tmp_path / "mark").exists()
    assert not [pid for pid in warden.every_process() if warden.name_of(pid) == f"sleep {seconds}"]
