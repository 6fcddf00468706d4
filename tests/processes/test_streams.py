"""What a program prints is read line by line, without limits on its amount and with limits on memory."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from proctor.processes import Launch, warden
from proctor.processes import program as programs
from proctor.processes.program import Program
from proctor.processes.streams import HELD_BYTES, LINE_LIMIT, ClippedStreamReader, LineSplitter, StreamReader


def launch(command=("tool", "x"), **more):
    usual = {
        "folder": Path("/work"),
        "environment": {"PATH": "/bin"},
        "attempt": "a1",
        "typed": None,
        "grace_seconds": 2.5,
        "together": False,
    }
    return Launch(command=command, **{**usual, **more})


class Warden:
    """A supervisor that says these lines and exits with this code."""

    stdout = stderr = None

    def __init__(self, *lines, code=0):
        self.link, self.far = socket.socketpair()
        self.link.setblocking(False)
        self.far.sendall("".join(f"{line}\n" for line in lines).encode())
        self.far.shutdown(socket.SHUT_WR)
        self.returncode = code

    def wait(self):
        return self.returncode


# --- Starting the supervisor ---


@pytest.fixture
def started(monkeypatch):
    """The options of the process that would have been started, with its standard input."""
    calls = []

    def popen(command, **options):
        content = options["stdin"].read()
        calls.append(SimpleNamespace(command=command, content=content, **options))

    monkeypatch.setattr(subprocess, "Popen", popen)
    return calls


def test_where_a_program_is_found(tmp_path):
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert launch(environment={"PATH": str(tool.parent)}).find_program() == tool
    assert launch(["bin/tool"], folder=tmp_path).find_program() == tool
    assert launch([str(tool)]).find_program() == tool
    assert launch(["sh"], environment={}).find_program().name == "sh"
    for command in (["tool"], ["./tool"]):
        with pytest.raises(FileNotFoundError) as raised:
            launch(command, folder=tmp_path, environment={"PATH": "/none"}).find_program()
        assert (raised.value.errno, raised.value.filename) == (2, command[0])
    with pytest.raises(ValueError, match="the command is empty"):
        _ = launch([]).arguments
    assert launch("a b").arguments == ["/bin/sh", "-c", "a b"]


# --- Running to the end ---


async def test_work_is_waited_for_so_long():
    done = []

    async def work(seconds):
        await asyncio.sleep(seconds)
        done.append(seconds)

    await programs.at_most(60, work(0))
    await programs.at_most(0.001, work(60))
    assert done == [0]


# --- Ending by a marker ---


def test_marked_processes_and_their_descendants_are_ended_except_those_this_one_comes_from(monkeypatch):
    born = {5: b"1", 6: b"1", 7: b"1", 8: b"1"}
    marked = [[5, 8, os.getpid()], [], []]
    rounds = []

    def end_all(find, grace, wait):
        rounds.append((find(), grace))
        born[6] = b"2"
        rounds.append((find(), grace))

    monkeypatch.setattr(warden, "ancestors_of", lambda pid: {8} if pid == os.getpid() else set())
    monkeypatch.setattr(warden, "marked_with", lambda marker: marked.pop(0))
    monkeypatch.setattr(warden, "descendants_of", lambda pid: {5: [6, 7, 8], 6: [7]}.get(pid, []))
    monkeypatch.setattr(warden, "birth_of", lambda pid: born[pid])
    monkeypatch.setattr(warden, "is_alive", lambda pid: pid != 5 or len(rounds) == 0)
    monkeypatch.setattr(warden, "name_of", lambda pid: {5: "b", 6: "a", 7: "c"}[pid])
    monkeypatch.setattr(warden, "end_all", end_all)
    assert programs.end_marked("M=1", 2) == ["a", "b", "c"]
    # Later, without the marker: what is known by its id and its start, and lives.
    assert rounds == [([5, 6, 7], 2.5), ([7], 2.5)]


# --- Streams ---


class Recorded(StreamReader):
    """A reader that says when it stops and goes on reading."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def _pause(self):
        self.calls.append("pause")

    def _resume(self):
        self.calls.append("resume")


async def test_a_program_waits_while_more_than_a_megabyte_is_not_read():
    reader = Recorded()
    assert HELD_BYTES == 1 << 20
    reader._receive(b"x" * HELD_BYTES)
    assert reader.calls == []
    reader._receive(b"y")
    reader._receive(b"z")
    assert reader.calls == ["pause", "pause"]
    assert len(await reader.chunk()) == HELD_BYTES
    assert reader.calls[2:] == ["resume"]
    assert (await reader.chunk(), await reader.chunk(), await reader.chunk()) == (b"y", b"z", b"")
    assert reader.calls[2:] == ["resume"]


async def test_a_pipe_is_read_to_its_end_and_closed():
    reading, writing = os.pipe()
    pipe = os.fdopen(reading, "rb", buffering=0)
    reader = ClippedStreamReader()
    await asyncio.wait_for(reader.closed(), 30)
    reader.connect(pipe)
    assert not os.get_blocking(pipe.fileno())
    os.write(writing, "aé\0".encode())
    os.close(writing)
    await asyncio.wait_for(reader.closed(), 30)
    assert reader.clip.text == "aé\ufffd" and pipe.closed
    reader.close()


@pytest.mark.parametrize(
    ("chunks", "limit", "lines"),
    [
        ([b"abc\n"], 4, ["abc"]),
        ([b"abcd\n"], 4, ["abcd"]),
        ([b"abcde\n"], 4, ["abcd[… 1 bytes left out …]"]),
        ([b"ab", b"cde", b"f\n"], 4, ["abcd[… 2 bytes left out …]"]),
        ([b"ab", b"cd", b"\n"], 4, ["abcd"]),
        ([b"a\r\n\0\r", b"\n", b"\r"], 9, ["a", "\ufffd", ""]),
        ([b"", b"x"], 4, ["x"]),
        ([b"\n"], 4, [""]),
        ([], 4, []),
    ],
)
def test_lines_and_blocks_of_chunks(chunks, limit, lines):
    single, joined = LineSplitter(limit), LineSplitter(limit)
    found = [line for chunk in chunks for line in single.feed(chunk)]
    assert [*found, *single.rest()] == lines
    text = "".join(joined.block(chunk) for chunk in chunks) + "".join(f"{line}\n" for line in joined.rest())
    assert text == "".join(f"{line}\n" for line in lines)
    assert list(single.rest()) == []


def test_the_beginning_of_a_line():
    assert LINE_LIMIT == 8 << 20
    lines = LineSplitter(4)
    assert not lines.has_begun and lines.begun == ""
    assert list(lines.feed(b"a\nb\0\xff")) == ["a"]
    assert lines.has_begun and lines.begun == "b\ufffd\ufffd"
    list(lines.feed(b"cdef"))
    assert lines.begun == "b\ufffd\ufffdc"
    list(lines.feed(b"\n"))
    assert not lines.has_begun


# --- What a program prints ---


class Printing:
    """A program whose supervisor runs, with pipes for its output."""

    def __init__(self):
        self.warden = Warden()
        self.warden.far.close()
        self.warden.link.close()
        self.warden.link, self.far = socket.socketpair()
        self.warden.link.setblocking(False)
        self.pipes = [os.pipe(), os.pipe()]
        self.warden.stdout, self.warden.stderr = (
            os.fdopen(near, "rb", buffering=0) for near, _ in self.pipes
        )
        self.program = Program(self.warden.link, self.warden, "M=1", 0.0)

    async def begin(self):
        self.far.sendall(b"started 5\n")
        await self.program.begin({})

    def write(self, text, stream=0):
        os.write(self.pipes[stream][1], text)

    def end_output(self, stream=0):
        os.close(self.pipes[stream][1])

    def end(self):
        self.far.sendall(b"status 0\ndone\n")
        self.far.close()


async def test_a_standard_error_that_stays_open_is_waited_for_a_second(monkeypatch):
    waits = []

    async def at_most(seconds, work):
        waits.append(seconds)
        work.close()

    monkeypatch.setattr(programs, "at_most", at_most)
    run = Printing()
    await run.begin()
    run.end_output()
    run.end()
    await run.program.ended()
    assert waits == [1]
    run.program.close()
    assert run.warden.stderr.closed
    run.end_output(1)
