"""Containers: the command line, checked against an engine that stands in for Podman."""

import asyncio
import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from proctor.errors import UsageError
from proctor.processes import run
from proctor.sandbox import Sandbox, available_kind, container, problem_of

ENGINE = """#!{python}
import json, os, re, sys
arguments = sys.argv[1:]
log = open({log!r}, "a")
print(json.dumps([arguments, sorted(os.environ)]), file=log, flush=True)
if arguments[0] != "run":
    sys.exit(0)
VALUED = {{"--name", "--label", "--cap-drop", "--security-opt", "--user", "--network", "--pids-limit",
          "--memory", "--ulimit", "--volume", "--workdir", "--env"}}
FLAGS = {{"--rm", "--interactive", "--init"}}
volumes, folder, environment, position = {{}}, "/", {{}}, 1
while arguments[position].startswith("--"):
    option = arguments[position]
    if option in FLAGS:
        position += 1
        continue
    if option not in VALUED:
        sys.exit(f"unknown flag: {{option}}")
    value = arguments[position + 1]
    if option == "--volume":
        source, target = value.split(":")[:2]
        volumes[target] = source
    elif option == "--workdir":
        folder = value
    elif option == "--env":
        name, equals, given = value.partition("=")
        environment[name] = given if equals else os.environ[name]
    position += 2
image, *command = arguments[position:]
if image != "image:1":
    sys.exit(f"no such image: {{image}}")
targets = re.compile("|".join(map(re.escape, sorted(volumes, reverse=True))))
command = [targets.sub(lambda match: volumes[match[0]], word) for word in command]
os.chdir(volumes.get(folder, folder))
os.execvpe(command[0], command, {{"PATH": os.environ["PATH"], **environment}})
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file with the calls of an engine on the PATH."""
    engine, log = tmp_path / "bin" / "podman", tmp_path / "calls"
    engine.parent.mkdir()
    engine.write_text(ENGINE.format(python=sys.executable, log=str(log)))
    engine.chmod(engine.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{engine.parent}:{os.environ['PATH']}")
    caches = (available_kind, problem_of, container.engine)
    for each in caches:
        each.cache_clear()
    yield log
    for each in caches:
        each.cache_clear()


def place_of(folder: Path) -> Path:
    place = folder / "place"
    (place / "tree").mkdir(parents=True)
    (place / "home").mkdir()
    return place


async def test_the_command_line_of_a_container(calls: Path, tmp_path: Path) -> None:
    place, user = place_of(tmp_path), tmp_path / "user"
    (user / ".npm").mkdir(parents=True)
    sandbox = Sandbox(user_home=user)
    settings = {
        "container": "image:1",
        "limits": {"processes": 100, "memory": "2G", "open_files": 64},
        "cache": ["~/.npm"],
    }
    confinement = sandbox.confine(
        "check", settings, folders=[place], home=place / "home", read=[tmp_path / "objects"]
    )
    ended = await run(
        ["sh", "-c", "echo $SECRET $HOME; pwd; exit 4"],
        folder=place / "tree",
        environment={"PATH": os.environ["PATH"], "HOME": str(place / "home"), "SECRET": "two\nlines"},
        attempt="the-attempt",
        confinement=confinement,
    )

    assert ended.exit_code == 4
    assert ended.output.split() == ["two", "lines", str(place / "home"), str(place / "tree")]
    [info, ran, removed] = [json.loads(line) for line in calls.read_text().splitlines()]
    assert info[0] == ["info"]
    line = ran[0]
    pairs = list(pairwise(line))
    name = line[line.index("--name") + 1]
    for pair in (
        ("--network", "none"),
        ("--cap-drop", "ALL"),
        ("--security-opt", "no-new-privileges"),
        ("--user", f"{os.getuid()}:{os.getgid()}"),
        ("--pids-limit", "100"),
        ("--memory", str(2 << 30)),
        ("--ulimit", "nofile=64:64"),
        ("--volume", f"{place}:{place}"),
        ("--volume", f"{tmp_path}/objects:{tmp_path}/objects:ro"),
        ("--volume", f"{user}/.npm:{place}/home/.npm:ro"),
        ("--workdir", str(place / "tree")),
        ("--env", "SECRET"),
        ("--env", "PROCTOR_ATTEMPT"),
        ("--label", "proctor=the-attempt"),
    ):
        assert pair in pairs
    assert not any("two\nlines" in word for word in line)
    assert "PATH" not in line
    assert removed[0] == ["rm", "--force", name]


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


async def test_a_container_without_network_reaches_the_gateway(calls: Path, tmp_path: Path) -> None:
    place = place_of(tmp_path)
    confinement = Sandbox(user_home=tmp_path).confine(
        "agent",
        {"container": "image:1"},
        folders=[place],
        home=place / "home",
        serve={34567: answering},
    )
    script = "import socket; print(socket.create_connection(('127.0.0.1', 34567)).makefile().read())"
    ended = await run(
        ["python3", "-c", script],
        folder=place / "tree",
        environment={"PATH": os.environ["PATH"]},
        attempt="one",
        confinement=confinement,
    )

    assert ended.output == "from the gateway\n", ended.output
    line = json.loads(calls.read_text().splitlines()[1])[0]
    assert ("--network", "none") in list(pairwise(line))


def test_without_an_engine_a_container_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for each in (available_kind, problem_of, container.engine):
        each.cache_clear()
    try:
        with pytest.raises(UsageError, match="neither `podman` nor `docker` is on the PATH"):
            available_kind("container")
    finally:
        for each in (available_kind, problem_of, container.engine):
            each.cache_clear()
