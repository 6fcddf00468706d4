"""What a program prints is read line by line, without limits on its amount and with limits on memory."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from proctor.processes import Launch
from proctor.processes import program as programs
from proctor.processes.streams import (
    HELD_BYTES,
    LINE_LIMIT,
    READ_BYTES,
    ClippedStreamReader,
    LineSplitter,
    StreamReader,
)


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


async def test_work_is_waited_for_so_long():
    done = []

    async def work(seconds):
        await asyncio.sleep(seconds)
        done.append(seconds)

    await programs.at_most(60, work(0))
    await programs.at_most(0.001, work(60))
    assert done == [0]


# --- Streams ---


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


async def test_a_program_waits_for_a_slow_reader():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    reader = StreamReader()
    reader.connect(os.fdopen(reading, "rb", buffering=0))
    written = 0

    async def fill():
        nonlocal written
        for _ in range(100):
            with suppress(BlockingIOError):
                written += os.write(writing, b"x" * READ_BYTES)
            await asyncio.sleep(0)

    await fill()
    assert HELD_BYTES < written < HELD_BYTES + 4 * READ_BYTES
    held = written
    while held > HELD_BYTES // 2:
        held -= len(await reader.chunk())
    await fill()
    assert written > HELD_BYTES + 8 * READ_BYTES
    os.close(writing)
    reader.close()


async def test_the_supervisor_has_none_of_the_programs_variables_but_where_libraries_are(tmp_path):
    environment = {"PATH": os.environ["PATH"], "KEY": "secret", "LD_LIBRARY_PATH": "/no/such"}
    ended = await programs.run(
        "tr '\\0' '\\n' < /proc/$PPID/environ", folder=tmp_path, environment=environment, attempt="a1"
    )
    names = {line.partition("=")[0] for line in ended.output.splitlines()}
    assert "LD_LIBRARY_PATH" in names and "KEY" not in names


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
