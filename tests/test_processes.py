"""Whatever a program starts has ended when we say so. Real processes; /proc is the witness."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
import uvloop

from proctor.errors import SandboxFailed
from proctor.processes import CouldNotStart, end_attempt, run, started, undisturbed, warden
from proctor.processes.streams import LineSplitter, StreamReader
from proctor.testing import eventually_async
from waiting import TIME_LIMIT_SECONDS

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture
def attempt():
    """An id of its own for each test; whatever a failing test leaves is ended."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    end_attempt(name, grace_seconds=0)


@pytest.fixture
def here(tmp_path, attempt):
    """Where the programs of a test run, with which environment, and for which attempt."""
    return {"folder": tmp_path, "environment": ENVIRONMENT, "attempt": attempt}


def running(words):
    """The processes whose command line holds these words, whatever became of their environment."""
    found = []
    for pid in warden.every_process():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words in command and warden.is_alive(pid):
            found.append(pid)
    return found


def unlike_any_other():
    """A number of seconds to sleep by which a sleeper can be told from all others."""
    return f"{1000 + uuid.uuid4().int % 1_000_000}.{uuid.uuid4().int % 1_000_000}"


# What a program says


async def test_output_of_both_kinds_comes_in_the_order_it_was_printed(here):
    finished = await run("echo one; echo two >&2; echo three; exit 7", **here)
    assert finished.output == "one\ntwo\nthree\n"
    assert finished.exit_code == 7
    assert finished.signal is None
    assert not finished.timed_out


async def test_lines_come_while_the_program_runs(here, tmp_path):
    gate = tmp_path / "gate"
    command = f"echo first; while [ ! -e {gate} ]; do sleep 0.01; done; printf 'second\\r\\nlast'"
    async with started(command, **here) as program:
        lines = program.lines()
        assert await anext(lines) == "first"
        gate.touch()
        assert [line async for line in lines] == ["second", "last"]
        assert await program.ended() == 0


async def test_a_hundred_megabytes_of_output_are_kept_as_head_and_tail(here):
    command = "echo begin; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo end"
    finished = await run(command, **here, keep=1000)
    assert finished.output.startswith("begin\nxxx")
    assert finished.output.endswith("xxx\nend\n")
    assert f"[… {100_000_011 - 2000} characters left out …]" in finished.output
    assert len(finished.output) < 2100


class Pipe:
    """The end of a pipe that, when it is closed, opens something else first, as another thread may."""

    def __init__(self, descriptor):
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self.fileno = self._file.fileno

    def close(self):
        self.opened = os.open(os.devnull, os.O_RDONLY)
        self._file.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_pipe_is_closed_once_whatever_other_threads_open_meanwhile(new_loop):
    async def read():
        reading, writing = os.pipe()
        pipe, reader = Pipe(reading), StreamReader()
        reader.connect(pipe)
        os.write(writing, b"all")
        os.close(writing)
        assert await reader.chunk() == b"all"
        assert await reader.chunk() == b""
        reader.close()
        return pipe.opened

    with asyncio.Runner(loop_factory=new_loop) as runner:
        opened = runner.run(read())
    os.fstat(opened)
    os.close(opened)


# What a program is given


async def test_what_is_typed_arrives_and_then_standard_input_ends(here):
    text = "prompt ä\n" * 100_000
    finished = await run(["wc", "-c"], **here, typed=text)
    assert finished.output.split() == [str(len(text.encode()))]


async def test_the_environment_is_what_was_given_and_the_markers(tmp_path, attempt, monkeypatch):
    monkeypatch.setenv("OF_OUR_OWN", "secret")
    given = {**ENVIRONMENT, "WITH_LINES": "a\nb"}
    finished = await run(["env", "-0"], folder=tmp_path, environment=given, attempt=attempt)
    seen = dict(pair.split("=", 1) for pair in finished.output.split("\ufffd") if pair)
    assert seen.pop("PROCTOR_ATTEMPT") == attempt
    assert seen.pop("PROCTOR_PROGRAM")
    assert seen == given


async def test_a_missing_program_or_folder_is_said_at_once(here, tmp_path, attempt):
    with pytest.raises(CouldNotStart, match="no-such-program"):
        await run(["no-such-program"], **here)
    with pytest.raises(CouldNotStart, match="nowhere"):
        await run(["true"], folder=tmp_path / "nowhere", environment=ENVIRONMENT, attempt=attempt)
    with pytest.raises(CouldNotStart, match="empty"):
        await run([], **here)


async def test_a_signal_that_ended_the_program_is_told_from_an_exit_code(here):
    killed = await run("kill -SEGV $$", **here)
    exited = await run("exit 139", **here)
    assert (killed.exit_code, killed.signal) == (139, signal.SIGSEGV)
    assert (exited.exit_code, exited.signal) == (139, None)


# What a program leaves behind


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep {n} & exit 0", id="in the background"),
        pytest.param("setsid sleep {n} & exit 0", id="in a session of its own"),
        pytest.param("(setsid sh -c 'sleep {n} & sleep {n}' &) ; exit 0", id="forked twice"),
        pytest.param("env -i setsid sleep {n} & exit 0", id="with its environment scrubbed"),
        pytest.param("nohup setsid sleep {n} >/dev/null 2>&1 </dev/null & exit 0", id="a daemon"),
        pytest.param("(trap '' TERM HUP; exec setsid sleep {n}) & exit 0", id="deaf to TERM"),
        pytest.param("setsid sh -c 'sleep 0.02; exec sleep {n}' & exit 0", id="starting after the end"),
        pytest.param("sleep {n} & kill -STOP $!; exit 0", id="stopped"),
    ],
)
async def test_nothing_outlives_a_program_that_has_exited(here, command):
    mark = unlike_any_other()
    finished = await run(command.format(n=mark), **here, grace_seconds=0.3)
    assert running(mark) == []
    assert finished.exit_code == 0
    assert any("sleep" in name for name in finished.leftovers)


async def test_a_program_that_cleans_up_after_itself_is_not_said_to_have_left_anything(here):
    command = "sleep 0.05 & sleep 0.05 & wait; seq 1000 | head -n 1"
    finished = await run(command, **here)
    assert finished.leftovers == ()


async def test_a_time_limit_ends_everything_and_keeps_the_output(here):
    mark = unlike_any_other()
    command = f"echo before; setsid sleep {mark} & env -i setsid sleep {mark} & sleep {mark}; echo after"
    finished = await run(command, **here, time_limit=0.3)
    assert finished.timed_out
    assert finished.output == "before\n"
    assert finished.signal == signal.SIGTERM
    assert running(mark) == []


async def test_a_program_that_ends_politely_is_given_the_time_and_no_more_is_taken(here):
    command = (
        "trap 'echo ending; sleep 0.2; echo saved; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    )
    began = time.monotonic()
    finished = await run(command, **here, time_limit=0.3, grace_seconds=3600)
    assert finished.output.endswith("ending\nsaved\n")
    assert finished.exit_code == 9
    assert time.monotonic() - began < TIME_LIMIT_SECONDS


async def test_a_program_that_ignores_term_is_killed_after_the_grace_period(here):
    mark = unlike_any_other()
    command = f"trap '' TERM INT HUP; setsid sleep {mark} & sleep {mark}; sleep {mark}"
    finished = await run(command, **here, time_limit=0.2, grace_seconds=0.4)
    assert finished.signal == signal.SIGKILL
    assert finished.duration_ms >= 600
    assert running(mark) == []


async def test_cancelling_ends_everything_before_the_cancellation_passes(here):
    mark = unlike_any_other()
    command = f"trap '' TERM; setsid sleep {mark} & sleep {mark}"
    task = asyncio.ensure_future(run(command, **here, grace_seconds=0.3))
    await eventually_async(lambda: len(running(f"sleep {mark}")) >= 3)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # an impatient caller changes nothing
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(mark) == []


@pytest.mark.parametrize("after_seconds", [0, 0.001, 0.01, 0.02, 0.03, 0.05])
async def test_cancelling_at_any_moment_of_the_start_leaves_nothing(here, after_seconds):
    mark = unlike_any_other()
    task = asyncio.ensure_future(run(["sleep", mark], **here))
    await asyncio.sleep(after_seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert running(mark) == []


async def test_what_must_not_be_disturbed_is_finished_and_then_the_cancellation_passes():
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work():
        begun.set()
        await may_end.wait()
        ended.set()

    task = asyncio.create_task(undisturbed(work()))
    await begun.wait()
    task.cancel()
    may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_standard_error_that_someone_else_keeps_open_is_not_waited_for(here, tmp_path):
    gate = tmp_path / "gate"
    command = f"echo $$; echo problem >&2; while [ ! -e {gate} ]; do sleep 0.01; done; exit 3"
    async with started(command, **here) as program:
        pid = await anext(program.lines())
        with Path(f"/proc/{pid}/fd/2").open("wb"):
            gate.touch()
            assert await asyncio.wait_for(program.ended(), TIME_LIMIT_SECONDS) == 3
            assert program.stderr == "problem\n"


async def test_only_the_program_itself_keeps_its_streams_open(here):
    command = "echo $PPID; cat >/dev/null; exec sleep 1000"
    async with started(command, **here, typed="hello") as program:
        above = await anext(program.lines())
        streams = [Path(f"/proc/{above}/fd/{stream}").readlink() for stream in (0, 1, 2)]
    assert streams == [Path(os.devnull)] * 3


async def test_ending_one_program_leaves_another_of_the_same_attempt_alone(here):
    mark = unlike_any_other()
    async with started(["sleep", mark], **here) as other:
        await run(["true"], **here)
        assert running(mark) != []
        await other.end()
        assert await other.ended() == 128 + signal.SIGTERM
    assert running(mark) == []


async def test_killing_the_warden_does_not_save_what_it_watched(here):
    mark = unlike_any_other()
    command = f"setsid sleep {mark} & kill -KILL $PPID; sleep {mark}"
    with pytest.raises(SandboxFailed, match="its supervisor was killed"):
        await run(command, **here, grace_seconds=0.5)
    assert running(mark) == []


# When this process is no longer there


def someone_who_runs(command, attempt, folder):
    """Another Proctor, running a program under this attempt."""
    code = (
        "import asyncio, sys; from pathlib import Path; from proctor.processes import run\n"
        "asyncio.run(run(sys.argv[1], folder=Path(sys.argv[2]), environment={'PATH': sys.argv[3]},"
        " attempt=sys.argv[4], grace_seconds=0.3))"
    )
    words = [sys.executable, "-c", code, command, str(folder), ENVIRONMENT["PATH"], attempt]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


async def test_when_proctor_is_killed_its_programs_end_by_themselves(tmp_path, attempt):
    mark = unlike_any_other()
    proctor = someone_who_runs(f"env -i setsid sleep {mark} & sleep {mark}", attempt, tmp_path)
    await eventually_async(lambda: len(running(f"sleep {mark}")) >= 3)
    proctor.kill()
    proctor.wait()
    await eventually_async(lambda: running(mark) == [])


async def test_what_an_attempt_left_can_be_found_and_ended_later(tmp_path, attempt):
    mark = unlike_any_other()
    marked = {**ENVIRONMENT, "PROCTOR_ATTEMPT": attempt}
    # The parent ends when it is asked to; the child, of which nothing tells whose it is, does not.
    orphan = subprocess.Popen(
        ["sh", "-c", f"(trap '' TERM; exec env -i setsid sleep {mark}) & sleep {mark}"],
        env=marked,
        start_new_session=True,
    )
    await eventually_async(lambda: len(running(f"sleep {mark}")) >= 3)
    ended = await asyncio.to_thread(end_attempt, attempt, grace_seconds=0.2)
    orphan.wait()
    assert running(mark) == []
    assert any("sleep" in name for name in ended)
    assert end_attempt(attempt) == []


async def test_ending_an_attempt_spares_this_process_and_those_it_came_from(tmp_path, attempt):
    mark = unlike_any_other()
    code = (
        "import subprocess, sys; from proctor.processes import end_attempt\n"
        "subprocess.Popen(['sleep', sys.argv[2]])\n"
        "print(end_attempt(sys.argv[1], grace_seconds=0.2))"
    )
    marked = {**ENVIRONMENT, "PROCTOR_ATTEMPT": attempt}
    words = ["sh", "-c", '"$0" -c "$1" "$2" "$3"; echo still here', sys.executable, code, attempt, mark]
    found = await asyncio.to_thread(subprocess.run, words, env=marked, capture_output=True, text=True)
    assert found.stdout == f"['sleep {mark}']\nstill here\n"


# Many at once


async def test_forty_programs_run_at_once_without_a_thread_for_each(here, attempt):
    async def one(number):
        finished = await run(f"echo {number}; exit {number}", **here)
        return finished.exit_code, finished.output

    before = threading.active_count()
    ends = await asyncio.gather(*map(one, range(40)))
    assert threading.active_count() == before
    assert ends == [(number, f"{number}\n") for number in range(40)]
    assert warden.marked_with(f"PROCTOR_ATTEMPT={attempt}") == []


def test_no_file_stays_open_and_no_zombie_stays_behind(here):
    async def some():
        for _ in range(3):
            await run("echo x; exit 1", **here, typed="y")
            async with started("yes", **here):
                pass
            with pytest.raises(CouldNotStart):
                await run(["nope"], **here)

    # Another test of this process may have something running, such as a database.
    before, children = open_files(), warden.children_of(os.getpid())
    asyncio.run(some())
    assert open_files() == before
    assert warden.children_of(os.getpid()) == children


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


# Head and tail


@pytest.mark.parametrize("seed", range(20))
def test_blocks_have_the_same_lines_however_they_arrive(seed):
    chance = random.Random(seed)
    raw = "".join(chance.choices("ab\n\r\0é ", k=60)).encode() + b"\xe2\n"
    lines, blocks = LineSplitter(20), LineSplitter(20)
    expected = [*lines.feed(raw), *lines.rest()]
    printed = ""
    while raw:
        size = chance.randint(1, 30)
        printed += blocks.block(raw[:size])
        raw = raw[size:]
    assert printed + "".join(f"{line}\n" for line in blocks.rest()) == "".join(
        f"{line}\n" for line in expected
    )


# Systems without /proc, such as macOS


@pytest.fixture
def without_proc(tmp_path, monkeypatch):
    """Wardens that see neither /proc nor the call by which they adopt orphans."""
    script = tmp_path / "warden_elsewhere.py"
    script.write_text(
        f"import runpy, sys\n"
        f"names = runpy.run_path({warden.__file__!r}, run_name='warden')\n"
        "module = names['main'].__globals__\n"
        "module['every_process'] = list\n"
        "module['_stat'] = lambda pid: []\n"
        "module['children_of'] = lambda pid: []\n"
        "module['become_subreaper'] = lambda: None\n"
        "module['main'](sys.argv[1:])\n"
    )
    monkeypatch.setattr(warden, "__file__", str(script))


@pytest.mark.parametrize("command", ["sleep {0} & sleep {0}", "trap '' TERM; sleep {0}; sleep {0}"])
async def test_without_proc_a_time_limit_ends_the_process_group(here, without_proc, command):
    seconds = unlike_any_other()
    finished = await run(command.format(seconds), **here, time_limit=0.5, grace_seconds=0.3)

    assert finished.timed_out
    await eventually_async(lambda: not running(f"sleep {seconds}"))


async def test_without_proc_what_a_program_leaves_in_its_group_is_ended(here, without_proc):
    seconds = unlike_any_other()
    finished = await run(f"sleep {seconds} & echo done", **here)

    assert (finished.exit_code, finished.output) == (0, "done\n")
    await eventually_async(lambda: not running(f"sleep {seconds}"))
