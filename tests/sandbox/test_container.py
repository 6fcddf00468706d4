"""Containers: the command line, checked against an engine that stands in for Podman."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from proctor.errors import WorkspaceError
from proctor.processes import Launch, run
from proctor.sandbox import Network, Policy, Sandbox, container
from proctor.testing import eventually_async


def place_of(folder: Path) -> Path:
    place = folder / "place"
    (place / "tree").mkdir(parents=True)
    (place / "home").mkdir()
    return place


@asynccontextmanager
async def answering(listener: socket.socket) -> AsyncIterator[None]:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from the gateway")
        writer.write_eof()
        await writer.drain()
        writer.close()

    listener.setblocking(False)
    server = await asyncio.start_unix_server(answer, sock=listener)
    try:
        yield
    finally:
        server.close()


ASK = "import os, socket; print(os.environ['SECRET'], os.environ['HOME'], os.getcwd());"
ASK += " print(socket.create_connection(('127.0.0.1', 34567)).makefile().read()); os._exit(4)"


async def test_a_program_in_a_container_reaches_the_gateway_without_network(engine_calls, tmp_path):
    place = place_of(tmp_path)
    settings = {"container": "image:1", "limits": {"memory": "2G"}}
    confinement = Sandbox(user_home=tmp_path).confine(
        "agent", settings, folders=[place], home=place / "home", serve={34567: answering}
    )
    ended = await run(
        ["python3", "-uc", ASK],
        folder=place / "tree",
        environment={"PATH": os.environ["PATH"], "HOME": str(place / "home"), "SECRET": "two\nlines"},
        attempt="the-attempt",
        confinement=confinement,
    )

    assert ended.exit_code == 4, ended.output
    expected = ["two", "lines", str(place / "home"), str(place / "tree"), "from", "the", "gateway"]
    assert ended.output.split() == expected
    [info, ran, removed] = [json.loads(line) for line in engine_calls.read_text().splitlines()]
    line = ran[0]
    assert info[0] == ["info"]
    assert {("--network", "none"), ("--memory", str(2 << 30)), ("--env", "SECRET")} <= {*pairwise(line)}
    assert not any("two\nlines" in word for word in line)
    assert "PATH" not in line
    assert removed[0] == ["rm", "--force", line[line.index("--name") + 1]]


def launch_in(folder: Path, **environment: str) -> Launch:
    return Launch(
        command=["tool"],
        folder=folder,
        environment=environment,
        attempt="a1",
        typed=None,
        grace_seconds=1,
        together=True,
    )


@pytest.mark.parametrize("network", ["none", "full"])
def test_each_option_of_a_container(engine_calls: Path, tmp_path: Path, network: Network) -> None:
    place, shared, cache, copied = (tmp_path / name for name in ("place", "shared", "cache", "copied"))
    policy = Policy(
        write=[place],
        home=place / "home",
        read=[shared],
        network=network,
        variables={"MORE": "1"},
        limits={"NPROC": 7, "DATA": 8, "FSIZE": 9, "NOFILE": 10, "CORE": 0},
        cache={str(cache): "read", str(copied): "copy"},
        user_home=tmp_path,
        image="image:1",
        mounts={"/data": tmp_path / "data"},
    )
    environment = {
        "PATH": "/bin",
        "HOME": "/h",
        "KEY": "secret",
        "HERE": f"{place}/x",
        "HOST_FILE": str(engine_calls.parent),
        "ABSENT": "/no/such",
    }
    confinement = container.confine(policy)
    line = confinement.wrap(["/elsewhere/tool", "x"], launch_in(place, **environment), {})
    name = line[line.index("--name") + 1]
    options = (
        f"--rm --interactive --init --name {name} --label proctor=a1 --cap-drop ALL "
        f"--security-opt no-new-privileges --user {os.getuid()}:{os.getgid()} "
        f"{'--network none ' if network == 'none' else ''}--pids-limit 7 --memory 8 --ulimit fsize=9:9 "
        f"--ulimit nofile=10:10 --ulimit core=0:0 --volume {place}:{place} --volume {shared}:{shared}:ro "
        f"--volume {tmp_path}/data:/data --volume {cache}:{place}/home/cache:ro "
        f"--volume {copied}:{place}/home/copied:O --workdir {place} --env HOME=/h --env KEY --env HERE "
        "--env ABSENT --env MORE --env PROCTOR_ATTEMPT --env PROCTOR_PROGRAM image:1 tool x"
    )
    assert line == [container.engine(), "run", *options.split()]
    assert name.startswith("proctor-") and len(name) == 24
    assert confinement.stays and not confinement.sockets and not confinement.limits
    assert confinement.variables == {"MORE": "1", "HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("command", "inside"),
    [
        (["sh", "/own/x"], ["sh", "/own/x"]),
        (["/usr/bin/env", "x"], ["/usr/bin/env", "x"]),
        (["/home/of/user/bin/tool", "/work/x"], ["tool", "/work/x"]),
        (["/work/bin/tool"], ["/work/bin/tool"]),
        (["/shared/bin/tool"], ["/shared/bin/tool"]),
    ],
)
def test_a_program_of_this_machine_is_the_one_of_the_image(engine_calls, command, inside):
    policy = Policy(write=[Path("/work")], read=[Path("/shared")], home=Path("/work"), image="image:1")
    line = container.confine(policy).wrap(command, launch_in(Path("/work")), {})
    assert line[line.index("image:1") + 1 :] == inside
    assert "--pids-limit" not in line and "--memory" not in line and "--ulimit" not in line


async def test_ports_are_forwarded_by_a_relay_whose_sockets_are_removed(engine_calls: Path) -> None:
    policy = Policy(write=[], home=Path("/"), image="image:1", serve={81: answering, 82: answering})
    confinement = container.confine(policy)
    line = confinement.wrap(["tool"], launch_in(Path("/")), {})
    assert line[-4:] == ["python3", "/proctor/relay.py", "81=/proctor/81,82=/proctor/82", "tool"]
    [folder] = {path.parent for path in confinement.sockets}
    assert [path.name for path in confinement.sockets] == ["81", "82"] and folder.is_dir()
    relay = Path(container.__file__).with_name("relay.py")
    volumes = [value for option, value in pairwise(line) if option == "--volume"]
    assert volumes == [f"{folder}:/proctor", f"{relay}:/proctor/relay.py:ro"]
    assert confinement.release is not None
    await confinement.release()
    assert not folder.exists()
    assert json.loads(engine_calls.read_text().splitlines()[-1])[0][:2] == ["rm", "--force"]


async def test_an_image_is_built_or_pulled_unless_it_exists(engine_calls: Path, tmp_path: Path) -> None:
    (tmp_path / "image" / "app").mkdir(parents=True)
    (tmp_path / "image" / "app" / "file").write_text("of the image")
    for context in (tmp_path, tmp_path, None):
        await container.make_image("own" if context else "other:1", context)
    await container.copy_from_image("own", "/app", tmp_path / "target")
    assert (tmp_path / "target" / "file").read_text() == "of the image"
    calls = [" ".join(json.loads(line)[0]) for line in engine_calls.read_text().splitlines()]
    assert calls[1:] == [
        "image inspect own",
        f"build --tag own {tmp_path}",
        "image inspect own",
        "image inspect other:1",
        "pull other:1",
        "create own true",
        f"cp container-of-own:/app/. {tmp_path}/target",
        "rm --force container-of-own",
    ]


def programs_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    (folder / "programs").mkdir()
    for name, script in scripts.items():
        (folder / "programs" / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / "programs" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "programs"))
    container.engine.cache_clear()


async def test_a_failed_call_of_the_engine_is_reported_with_its_error(engine_calls, tmp_path, monkeypatch):
    script = '[ "$1" = info ] && exit 0; printf "%01200d" 7 >&2; echo broken >&2; exit 3'
    programs_on_path(tmp_path, monkeypatch, podman=script)
    with pytest.raises(WorkspaceError) as raised:
        await container.make_image("x:1", None)
    assert str(raised.value) == f"`podman pull x:1` failed: {'0' * 993}7broken"


async def test_an_engine_that_does_not_end_is_stopped(engine_calls, tmp_path, monkeypatch):
    started = tmp_path / "started"
    hang = f"echo $$ > {started}~; mv {started}~ {started}; exec /bin/sleep 100"
    script = f'case "$1" in info) exit 0;; image) exit 1;; *) {hang};; esac'
    programs_on_path(tmp_path, monkeypatch, podman=script)
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/bin")
    assert container.engine()
    cancelled = asyncio.create_task(container.make_image("x:1", None))
    await eventually_async(started.exists)
    pid = int(started.read_text())
    cancelled.cancel()
    # The exception has the frames of the call: nothing of it is ended by the garbage collector.
    with pytest.raises(asyncio.CancelledError) as raised:
        await cancelled
    assert raised.value.__traceback__ and not Path(f"/proc/{pid}").exists()
    # The real limit is half an hour.
    monkeypatch.setattr(container, "IMAGE_SECONDS", 0.05)
    with pytest.raises(WorkspaceError, match=r"was still running after 0.05 s$"):
        await container.make_image("x:1", None)


@pytest.mark.parametrize(
    ("scripts", "name", "problem"),
    [
        ({"podman": "exit 0", "docker": "exit 0"}, "podman", ""),
        ({"podman": "echo no >&2; exit 1", "docker": "exit 0"}, "docker", ""),
        ({"podman": "echo no >&2; exit 1", "docker": "exit 3"}, "", "podman: no; docker: exit code 3"),
        ({"docker": 'printf "%0400d" 7 >&2; exit 1'}, "", f"docker: {'0' * 299}7"),
        ({}, "", "neither `podman` nor `docker` is on the PATH"),
    ],
)
def test_the_first_engine_that_runs_is_used(engine_calls, tmp_path, monkeypatch, scripts, name, problem):
    programs_on_path(tmp_path, monkeypatch, **scripts)
    assert Path(container.engine()).name == name
    assert container.problem() == problem
