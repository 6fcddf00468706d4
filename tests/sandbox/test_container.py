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

from proctor.errors import UsageError
from proctor.processes import run
from proctor.sandbox import Sandbox, available_kind, container, problem_of


def place_of(folder: Path) -> Path:
    place = folder / "place"
    (place / "tree").mkdir(parents=True)
    (place / "home").mkdir()
    return place


async def test_the_command_line_of_a_container(engine_calls: Path, tmp_path: Path) -> None:
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
    [info, ran, removed] = [json.loads(line) for line in engine_calls.read_text().splitlines()]
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


async def test_a_container_without_network_reaches_the_gateway(engine_calls: Path, tmp_path: Path) -> None:
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
    line = json.loads(engine_calls.read_text().splitlines()[1])[0]
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
