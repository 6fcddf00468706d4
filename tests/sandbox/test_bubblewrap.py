"""What a program sees and may do in each kind of sandbox."""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import AgentError, SandboxFailed
from proctor.processes import ProgramResult, end_attempt, run, started
from proctor.sandbox import Sandbox, problem_of
from waiting import TIME_LIMIT_SECONDS

KINDS = ("bubblewrap", "landlock")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if problem := problem_of(request.param):
        pytest.skip(problem)
    return str(request.param)


@pytest.fixture
def bubblewrap() -> str:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    return "bubblewrap"


class Room:
    """A session's folder, as coding items have it."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.place = folder / "proctor" / "worktrees" / "one"
        self.tree, self.home = self.place / "tree", self.place / "home"
        for path in (self.user, self.tree, self.home / "tmp"):
            path.mkdir(parents=True)
        self.sandbox = Sandbox(hidden=(folder / "proctor", self.user), user_home=self.user)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home / "tmp"),
        }

    async def run(
        self, command: object, settings: object, phase: object = "check", **more: object
    ) -> ProgramResult:
        return await run(
            command,
            folder=self.tree,
            environment=self.environment,
            attempt="test",
            confinement=self.sandbox.confine(phase, settings, folders=[self.place], home=self.home, **more),
        )


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


async def test_a_program_changes_its_tree_and_reports_its_exit_code_and_what_it_left_running(room, kind):
    ended = await room.run("echo done > file; cat file; sleep 987 & sleep 986 & exit 7", kind)

    assert (ended.exit_code, ended.output) == (7, "done\n")
    assert ended.leftovers == ("sleep 986", "sleep 987")
    assert (room.tree / "file").read_text() == "done\n"


async def test_a_confined_program_ends_at_its_time_limit_with_its_grace(room: Room, kind: str) -> None:
    confinement = room.sandbox.confine("check", kind, folders=[room.place], home=room.home)
    script = "trap 'echo cleaned up; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    async with started(
        script, folder=room.tree, environment=room.environment, attempt="test", confinement=confinement
    ) as program:
        lines = program.lines()
        assert await anext(lines) == "ready"
        await program.end()
        assert await anext(lines) == "cleaned up"
        assert await program.ended() == 3


async def test_confined_processes_of_a_dead_run_are_found_by_their_marker(room: Room, kind: str) -> None:
    confinement = room.sandbox.confine("check", kind, folders=[room.place], home=room.home)
    async with started(
        "echo ready; exec sleep 654",
        folder=room.tree,
        environment=room.environment,
        attempt="attempt-of-the-dead",
        confinement=confinement,
    ) as program:
        assert await anext(program.lines()) == "ready"
        names = await asyncio.to_thread(end_attempt, "attempt-of-the-dead")
        assert any("sleep 654" in name for name in names)
        with pytest.raises(SandboxFailed):
            await program.ended()


async def test_resource_limits_hold(room: Room, kind: str) -> None:
    settings = {"kind": kind, "limits": {"file_size": "1M", "open_files": 50}}
    ended = await room.run("ulimit -n; head -c 3000000 /dev/zero > big; echo $?", settings)

    assert ended.output.splitlines()[0] == "50"
    assert (room.tree / "big").stat().st_size == 1 << 20


FORKS = """
import os, sys, time
end = time.monotonic() + 3600

def fork(depth):
    for _ in range(3):
        if depth and os.fork() == 0:
            if sys.argv[1] == "sessions":
                os.setsid()
            fork(depth - 1)
            break
fork(4)
while time.monotonic() < end:
    time.sleep(0.1)
"""
"""At most 121 processes, for an hour."""


@pytest.mark.parametrize("way", ["one session", "sessions"])
async def test_a_program_with_too_many_processes_is_ended(room: Room, kind: str, way: str) -> None:
    settings = {"kind": kind, "limits": {"processes": 60}}
    began = time.monotonic()

    ended = await room.run([sys.executable, "-c", FORKS, way], settings)

    # The kernel refuses the fork of an ordinary user in bubblewrap; the others are counted and killed.
    is_refused = kind == "bubblewrap" and os.geteuid() != 0
    assert ended.exit_code == (1 if is_refused else 137)
    if not is_refused:
        assert "more than 60 processes (limits.processes): all were killed" in ended.output
    assert time.monotonic() - began < TIME_LIMIT_SECONDS
    assert not ended.leftovers


SOCKETS = """
import json, socket
kinds = {"tcp": (2, 1), "udp": (2, 2), "udp6": (10, 2), "raw": (2, 3), "unix": (1, 1), "netlink": (16, 3),
         "host of a virtual machine": (40, 1), "kernel crypto": (38, 5), "bluetooth": (31, 3)}
opened = []
for name, (family, kind) in kinds.items():
    try:
        socket.socket(family, kind).close()
        opened.append(name)
    except OSError:
        pass
print(json.dumps(opened))
"""


async def test_only_the_usual_kinds_of_sockets_can_be_opened(room: Room, kind: str) -> None:
    command = [sys.executable, "-c", SOCKETS]
    confined = await room.run(command, {"kind": kind, "network": "none"})
    full = await room.run(command, {"kind": kind, "network": "full"})

    usual = {"tcp", "unix", "netlink"}
    # In a network of its own, datagrams reach nothing.
    assert {*json.loads(confined.output)} == usual | ({"udp", "udp6"} if kind == "bubblewrap" else set())
    assert {*json.loads(full.output)} == usual | {"udp", "udp6"}


async def test_threads_and_debuggers_work(room: Room, bubblewrap: str) -> None:
    """Leak checkers of compilers trace their own process."""
    script = """
import ctypes, os, signal, threading
threading.Thread(target=print, args=["thread"]).start()
child = os.fork()
if child == 0:
    signal.pause()
print("traced", ctypes.CDLL(None).ptrace(16, child, 0, 0))
os.kill(child, 9)
"""
    ended = await room.run([sys.executable, "-c", script], bubblewrap)
    assert ended.output.split() == ["thread", "traced", "0"], ended.output


async def test_a_folder_of_the_plan_can_be_read_and_not_changed(room: Room, kind: str) -> None:
    data = room.user / "data"
    data.mkdir()
    (data / "words").write_text("one")
    ended = await room.run(f"cat {data}/words; echo x > {data}/words", {"kind": kind, "read": [str(data)]})

    assert ended.output.startswith("one")
    assert ended.exit_code != 0
    assert (data / "words").read_text() == "one"


@pytest.mark.parametrize(("way", "code"), [("read", 1), ("copy", 0)])
async def test_a_cache_appears_below_the_home_of_the_program_which_changes_a_copy_at_most(
    room: Room, bubblewrap: str, way: str, code: int
) -> None:
    (room.user / ".npm").mkdir()
    (room.user / ".npm" / "package").write_text("cached")
    settings = {"kind": bubblewrap, "cache": {"~/.npm": way}}

    ended = await room.run("cat ~/.npm/package; touch ~/.npm/x; echo changed > ~/.npm/package", settings)
    again = await room.run("cat ~/.npm/package; ls -A ~/.npm", settings)

    assert ended.output.startswith("cached")
    assert ended.exit_code == (2 if code else 0)
    assert again.output == ("cachedpackage\n" if code else "changed\npackage\nx\n")
    assert (room.user / ".npm" / "package").read_text() == "cached"
    assert [path.name for path in (room.user / ".npm").iterdir()] == ["package"]


async def test_landlock_shows_a_cache_at_its_place(room: Room, tmp_path: Path) -> None:
    if problem := problem_of("landlock"):
        pytest.skip(problem)
    (room.user / ".npm").mkdir()
    (room.user / ".npm" / "package").write_text("cached")
    settings = {"kind": "landlock", "cache": ["~/.npm"]}
    assert (await room.run(f"cat {room.user}/.npm/package", settings)).output == "cached"


async def test_a_folder_that_a_program_replaced_by_a_link_is_not_mounted(room: Room, bubblewrap: str) -> None:
    (room.user / "key").write_text("secret")
    moved = await room.run(
        f"cd ..; mv tree aside && ln -s {room.user} tree", bubblewrap, mounts={"/app": room.tree}
    )
    assert moved.exit_code == 0, moved.output

    with pytest.raises(AgentError, match="was replaced by a link"):
        await room.run("cat /app/key", bubblewrap, mounts={"/app": room.tree})


@asynccontextmanager
async def answering(listener: socket.socket) -> AsyncIterator[None]:
    """Answers each connection with one line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Closing with an unread request would reset the connection. Not everybody sends one.
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(4096)
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nserved from outside\n")
        await writer.drain()
        writer.close()

    listener.setblocking(False)
    server = await asyncio.start_server(answer, sock=listener)
    try:
        yield
    finally:
        server.close()


async def test_a_check_reaches_its_own_server_only(room: Room, kind: str) -> None:
    room.environment |= {"PORT": "23457", "PROCTOR_PORT": "23458"}
    script = (
        "import os, socket\nfor name in ('PORT', 'PROCTOR_PORT'):\n port = int(os.environ[name]);"
        " server = socket.create_server(('127.0.0.1', port));"
        " socket.create_connection(('127.0.0.1', port), timeout=60); print('reached')"
    )
    ended = await room.run([sys.executable, "-c", script], kind)
    assert ended.output == "reached\n" * 2


PROXIED = """
import os, socket, sys
address = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
link = socket.create_connection((address[0], int(address[1])), timeout=60)
link.sendall(f"CONNECT {sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
print(link.makefile().read())
"""


async def test_only_the_hosts_of_the_plan_are_reached(room: Room, bubblewrap: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = {"kind": bubblewrap, "network": [f"127.0.0.1:{port}", "packages.example.com"]}
    async with answering(listener):
        allowed = await room.run([sys.executable, "-c", PROXIED, f"127.0.0.1:{port}"], settings)
        refused = await room.run([sys.executable, "-c", PROXIED, "127.0.0.2:80"], settings)

    assert "200" in allowed.output
    assert "served from outside" in allowed.output
    assert refused.output.startswith("HTTP/1.1 403")


async def test_an_agent_whose_command_names_its_repository_does_not_see_the_history(
    workshop: Any, repository: Path, kind: str
) -> None:
    command = f'cd {repository} && cat shop.py > "$OLDPWD/seen" && ! cat .git/HEAD'
    item = {"repo": str(repository), "prompt": "Look.", "command": command, "sandbox": kind}
    await workshop.run(json.dumps({"matrix": [item]}))

    assert workshop.outcomes() == [("success", "unchecked")]
    assert [row["sandbox"] for row in workshop.rows("sessions")] == [kind]


async def test_paths_in_commands_open_nothing_unless_the_plan_names_them(room, kind, tmp_path):
    """A prompt is an argument of its agent, and a model writes the commands of its tools."""
    outside = tmp_path / "elsewhere" / "secret.txt"
    outside.parent.mkdir()
    outside.write_text("hidden")
    command = f"cat {outside} || echo absent"

    assert "hidden" not in (await room.run(command, kind)).output
    assert "hidden" not in (await room.run(["cat", str(outside)], kind)).output
    assert (await room.run(command, kind, named=[command])).output == "hidden"


THIEF = """
import os, sys
import helper
from tools import edit
here = sys.argv[1]
for folder, _, files in os.walk(here):
    for name in files:
        try:
            print(os.path.relpath(open(os.path.join(folder, name)).name, here))
        except OSError:
            pass
"""


async def test_an_agents_script_reads_nothing_beside_it_but_the_code_that_it_loads(room, kind, tmp_path):
    agent = tmp_path / "agent"
    files = {
        "main.py": THIEF,
        "helper.py": "",
        "tools/__init__.py": "",
        "tools/edit.py": "",
        "tools/prompts.json": "{}",
        ".env": "KEY=sk",
        "customers.json": "[]",
        "solution.py": "answer = 42",
        "tasks/one/solution.py": "answer = 42",
        "bin/secret": "",
        "lib/secret": "",
    }
    for name, text in files.items():
        (agent / name).parent.mkdir(parents=True, exist_ok=True)
        (agent / name).write_text(text)
    command = f"{sys.executable} -B {agent}/main.py {{}}"
    # The folder itself is named by what the plan says, never by what the script is given.
    (room.tree / "run.sh").write_text(command.format(agent))
    named = [command.format("")]

    read = (await room.run("sh run.sh", kind, named=named)).output
    assert {*read.split()} == {"main.py", "helper.py", "tools/__init__.py", "tools/edit.py"}
    opened = {"kind": kind, "read": [str(agent / "tools")]}
    assert "tools/prompts.json" in (await room.run("sh run.sh", opened, named=named)).output


@pytest.mark.parametrize(
    "planted", ["ln -s /oldroot{outside} ~/.cache", "ln -s {outside} ~/.cache", "touch ~/.cache"]
)
async def test_a_cache_is_not_mounted_through_what_a_program_left(room, bubblewrap, tmp_path, planted):
    outside = tmp_path / "outside"
    outside.mkdir()
    (room.user / ".cache" / "uv").mkdir(parents=True)
    (room.user / ".cache" / "uv" / "package").write_text("cached")
    await room.run(f"rm -rf ~/.cache; {planted.format(outside=outside)}", {"kind": bubblewrap})
    ended = await room.run("cat ~/.cache/uv/package", {"kind": bubblewrap, "cache": ["~/.cache/uv"]})
    assert (ended.output, [*outside.iterdir()]) == ("cached", [])
