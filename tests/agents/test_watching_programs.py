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
