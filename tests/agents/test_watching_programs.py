"""How programs of agents are called and watched, with the program itself replaced."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from proctor.agent import Access, WorkDone
from proctor.agents import _program, amp
from proctor.agents._program import GatewayProgram, Installable, ProgramCall, ProgramRun
from proctor.agents.amp import Amp, Switches
from proctor.errors import RateLimited, WorkspaceError
from proctor.processes.streams import Unfinished
from proctor.session import Note


class Reader:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.got = list[Any]()
        self.failure, self.awaiting, self.model_error = "", False, None

    def feed(self, line: str) -> bool:
        self.got.append(("event", line))
        return "event" in line

    def feed_text(self, block: str) -> None:
        self.got.append(("text", block))

    def feed_partial(self, text: str) -> None:
        self.got.append(("partial", text))

    def read_stderr(self, stderr: str) -> None:
        self.got.append(("stderr", stderr))

    def finish(self) -> None:
        self.got.append("end")


class Program:
    """Prints blocks, then ends; None: it prints nothing more."""

    def __init__(
        self, *blocks: Any, exit_code: int = 0, stderr: str = "", leftovers: tuple[str, ...] = ()
    ) -> None:
        self.printed, self.stderr = blocks, stderr
        self.end_, self.is_ended = SimpleNamespace(exit_code=exit_code, leftovers=leftovers), False

    async def blocks(self, *, rest_seconds: float) -> Any:
        self.rest_seconds = rest_seconds
        for block in self.printed:
            if block is None:
                await asyncio.Event().wait()
            if isinstance(block, Exception):
                raise block
            yield block

    async def end(self) -> None:
        self.is_ended = True

    async def ending(self) -> Any:
        return self.end_


@pytest.fixture
def watched(place: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Watches a program; the calls of `started` are kept."""
    calls = list[Any]()

    async def watch(program: Program, reader: Reader | None = None, **more: Any) -> WorkDone:
        @asynccontextmanager
        async def started(*command: Any, **options: Any) -> Any:
            calls.append((command, options))
            yield program

        monkeypatch.setattr(_program, "started", started)
        keep = more.pop("keep_events", True)
        watch.assignment = place.assignment(keep_events=keep)
        return await _program.watch(
            ["agent", "-x"], watch.assignment, reader or Reader(), place.events.append, **more
        )

    watch.calls = calls
    return watch


async def test_output_is_read_without_secrets(watched: Any, place: Any) -> None:
    reader = Reader()
    program = Program(
        '{"event": "k1"}\n', "text k2\n", Unfinished("Sure? k1"), stderr="err k1", leftovers=("sh",)
    )
    done = await watched(program, reader, typed="prompt", secrets=["k1", "k2"])
    assert reader.got == [
        ("event", '{"event": "[key]"}'),
        ("text", "text [key]\n"),
        ("partial", "Sure? [key]"),
        "end",
        ("stderr", "err [key]"),
    ]
    assert done == WorkDone(exit_code=0, output='{"event": "[key]"}\ntext [key]\nerr [key]')
    assert place.recorded(Note) == [Note(text="left running by the agent, and ended: sh")]
    ((command, options),) = watched.calls
    assert command == (["agent", "-x"],) and options["typed"] == "prompt"
    assert (options["folder"], options["environment"]) == (place.folder, place.environment)
    assert (options["attempt"], options["confinement"]) == (place.attempt, None)
    assert program.rest_seconds == _program.REST_SECONDS


async def test_events_are_kept_only_if_wanted(watched: Any) -> None:
    blocks = ('{"event": 1}\nplain\n{"other": 1}\n',)
    assert (await watched(Program(*blocks))).output == blocks[0]
    assert (await watched(Program(*blocks), keep_events=False)).output == 'plain\n{"other": 1}\n'


async def test_an_agent_that_waits_for_a_human_is_ended(watched: Any) -> None:
    reader = Reader()
    reader.awaiting = True
    program = Program("Sure?\n", None)
    done = await watched(program, reader, unanswered_seconds=0.01)
    assert program.is_ended and program.rest_seconds == 0.01
    assert done.failure == "it waited for an answer from a human, and none is available"
    reader.failure = "its own reason"
    assert (await watched(Program(None), reader, unanswered_seconds=0.01)).failure == "its own reason"


@pytest.mark.parametrize(
    ("blocks", "stderr", "own", "failure"),
    [
        (("out\nlast\n",), "", "", "it exited with 3: last"),
        (("out\n",), "err\nworst\n\n", "", "it exited with 3: worst"),
        ((), "", "", "it exited with 3"),
        ((), "x" * 400, "", "it exited with 3: " + "x" * 300),
        ((), "x", "its own reason", "its own reason"),
        (
            ('{"event": 1}\n',),
            "error: unknown option '--x'",
            "",
            "it exited with 3: error: unknown option '--x'",
        ),
    ],
)
async def test_why_a_program_failed(watched: Any, blocks: Any, stderr: str, own: str, failure: str) -> None:
    reader = Reader()
    reader.failure = own
    done = await watched(Program(*blocks, exit_code=3, stderr=stderr), reader)
    assert (done.exit_code, done.failure) == (3, failure)


async def test_a_program_that_rejects_its_call_is_an_error_unless_the_user_wrote_it(watched: Any) -> None:
    def program(exit_code: int = 2) -> Program:
        return Program(exit_code=exit_code, stderr="usage\nerror: unknown option '--x'\nmore")

    message = "^the agent's program rejects how it is called: error: unknown option '--x'$"
    with pytest.raises(WorkspaceError, match=message):
        await watched(program())
    assert (await watched(program(), is_users=True)).failure == "it exited with 2: more"
    assert (await watched(program(0))).failure == ""


async def test_an_error_while_a_program_is_read_leaves_what_it_printed(watched: Any) -> None:
    with pytest.raises(ValueError, match="broken"):
        await watched(Program("out\n", ValueError("broken"), stderr="err k"), secrets=["k"])
    assert watched.assignment.output.text == "out\nerr [key]"


@dataclass(frozen=True, kw_only=True)
class Some(GatewayProgram):
    login: str = ""
    login_files: ClassVar[tuple[str, ...]] = (".some/login",)
    installable: ClassVar[Installable] = Installable("some", "some", "install it")
    read: ClassVar[Reader]

    def call(self, run: ProgramRun) -> ProgramCall:
        variables = {
            "URL": run.url,
            "OPENAI": run.openai_url,
            "TOKEN": run.token,
            "MODEL": run.model,
            "A": "2",
        }
        return ProgramCall(arguments=[run.prompt], variables=variables, typed="typed")

    def reader(self, run: ProgramRun) -> Any:
        return self.read


async def test_a_program_gets_the_gateway_in_its_environment(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = list[Any]()

    async def watch(command: Any, assignment: Any, reader: Any, record: Any, **options: Any) -> WorkDone:
        calls.append((command, assignment.environment, options))
        return WorkDone(output="done")

    monkeypatch.setattr(_program, "watch", watch)
    program, Some.read = place.program("some", "#!/bin/sh\n"), Reader()
    place.environment["A"] = "1"
    access = Access(url="http://here", token="t0ken")
    assert (await place.work(Some(), access=access, model="openai/gpt-4o")).output == "done"
    ((command, environment, options),) = calls
    assert command == [str(program), "Fix it."]
    direct = {"NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    own = {"URL": "http://here", "OPENAI": "http://here/v1", "TOKEN": "t0ken", "MODEL": "gpt-4o", "A": "2"}
    assert environment == {**place.environment, **direct, **own}
    assert (options["typed"], options["secrets"]) == ("typed", ["t0ken"])
    assert options["unanswered_seconds"] == _program.UNANSWERED_SECONDS

    with pytest.raises(WorkspaceError, match=r"^some needs the gateway to reach its model and was given no"):
        await place.work(Some())
    await place.work(Some(login="mine"), model="")
    assert calls[1][1]["MODEL"] == "default" and calls[1][2]["secrets"] == []
    Some.read.model_error = RateLimited("busy")
    with pytest.raises(RateLimited, match="busy"):
        await place.work(Some(), access=access)
    (place.home / "bin/some").unlink()
    with pytest.raises(WorkspaceError, match="`some` is not on the PATH; install it with: install it"):
        await place.work(Some(), access=access)


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("", Switches()),
        ("  -m, --mode <value>\n   one of (smart, Rush, 9x)\n", Switches(("smart", "rush"), has_modes=True)),
        ("  --try-gpt5  x\n", Switches(has_gpt5=True)),
    ],
)
def test_what_the_help_of_amp_says(text: str, switches: Switches) -> None:
    assert amp.switches_in(text) == switches


@pytest.mark.parametrize(
    ("installed", "key", "login", "ready"),
    [(True, "k", "", True), (True, "", "mine", True), (True, "", "", False), (False, "k", "", False)],
)
def test_whether_amp_can_be_used(place: Any, installed: bool, key: str, login: str, ready: bool) -> None:
    if installed:
        place.program("amp", "#!/bin/sh\necho 1.2\n")
    environment = {"PATH": f"{place.home}/bin", "AMP_API_KEY": key}
    found = Amp(login=login).availability(environment)
    assert found.ready is ready
    assert (found.problem == "AMP_API_KEY is not set") is (installed and not ready)
