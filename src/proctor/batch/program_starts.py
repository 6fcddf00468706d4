"""Tries programs before the first item: whether they start in the sandbox that the items give them.

A program with a known option for its version is run with it, others are only looked for: what a program of
the user does when it is started is not known. Nothing here calls a model. A program that starts outside and
not inside lacks something that is hidden; what that is, is found by opening it and trying again.
"""

import asyncio
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor import secrets
from proctor.errors import ProctorError, SandboxFailed
from proctor.item import Item
from proctor.processes import CouldNotStart, ProgramResult, run
from proctor.processes.error_lines import error_line
from proctor.processes.scratch import scratch_folder
from proctor.sandbox import Phase, Sandbox
from proctor.sandbox.paths import installation_of, is_system, links_to
from proctor.sandbox.scripts import is_file, read_script
from proctor.workspace.setup import session_environment

SECONDS = 20.0
"""The slowest agent takes four seconds to print its version on a busy machine."""
_IN_PARALLEL = 16
"""Programs in parallel. They mostly wait: twelve of 1.5 s take 2.8 s on two cores, and 6.1 s with four."""
_MOST_OPENED = 6
"""Hidden files and folders that are looked for."""
_FREE_PORT = 20_000
_LOOK = 'for each; do command -v -- "$each" >/dev/null || { echo "$each: not found"; exit 127; }; done'
"""Whether programs are there and can be executed; for the shell."""
_WITH_VERSION = """
    bun bundle cargo cmake composer ctest deno dotnet gradle jest make mix mocha mvn mypy node nox npm npx php
    pnpm poetry pypy py.test pytest python rake rspec ruby ruff rustc rustup swift tox tsc uv vitest yarn zig
"""
VERSION_OPTIONS = {
    **dict.fromkeys(_WITH_VERSION.split(), "--version"),
    "go": "version",
    "java": "-version",
    "javac": "-version",
}
"""Programs of checks that only print their version with this option, without digits at the end of a name."""
_PATHS = re.compile(r"/[^\s'\"`:;,()\[\]{}<>|]+")
_HOME = re.compile(r"""\bexec\b[^\n]*?["' ]((?:\$HOME|\$\{HOME\}|~)/[^\s"']+)""")
_OF_HOME = re.compile(r"""^\s*(?:export\s+)?(\w+)=["']?((?:\$HOME|\$\{HOME\}|~)[^\s"';]*)""", re.MULTILINE)
"""A variable that is set to a place below HOME."""
_NOT_STARTED = (126, 127)
"""Exit codes of shells, and of `env`, for a program that cannot be executed or found."""
_MANAGERS = ("asdf", "mise")
"""Version managers that find the versions to use in files below HOME."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A program that an item starts."""

    what: str
    """For messages: `the agent codex`."""
    item: Item
    phase: Phase
    program: str
    """Its name or path."""
    option: str = ""
    """With which it only prints its version. Empty: it is looked for and not run."""
    named: Sequence[object] = ()
    """Text of the plan whose files and folders it can read."""
    keys: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The same for starts that are alike: each is tried once."""
        own = (
            self.item.settings.get("sandbox"),
            self.item.details.get("env"),
            self.item.details.get("setup"),
        )
        return repr((self.phase, self.program, self.option, *own))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """Whether a program started."""

    version: str = ""
    problem: str = ""
    """Why it does not start. Empty: it does, or nobody knows."""
    remedy: str = ""


def version_option(program: str) -> str:
    """The option with which a program of a check only prints its version; empty: none is known."""
    return VERSION_OPTIONS.get(Path(program).name.rstrip("0123456789."), "")


def needs_trial(program: str, path: str) -> bool:
    """Whether anything of a program may be hidden: a program of the system is not."""
    location = shutil.which(program, path=path)
    if location is None:
        return True
    return not all(map(is_system, links_to(Path(location)))) or read_script(Path(location)) is not None


def try_starts(
    starts: Sequence[Start], sandbox: Sandbox, environment: Mapping[str, str], seconds: float = SECONDS
) -> list[StartResult]:
    """Start programs in parallel, each in a sandbox and an environment as its item has them."""
    if not starts:
        return []
    results = list[StartResult]()

    def work() -> None:
        results.extend(asyncio.run(_try_all(starts, sandbox, environment, seconds)))

    # The caller may be in an event loop, which must not wait for programs.
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results


async def _try_all(
    starts: Sequence[Start], sandbox: Sandbox, environment: Mapping[str, str], seconds: float
) -> list[StartResult]:
    slots = asyncio.Semaphore(_IN_PARALLEL)

    async def one(start: Start) -> StartResult:
        async with slots:
            with scratch_folder("start") as folder:
                try:
                    return await _Trial(start, sandbox, environment, folder.resolve(), seconds).result()
                except (ProctorError, OSError):
                    # A variable that is not set, a sandbox that was killed: reported elsewhere.
                    return StartResult()

    return await asyncio.gather(*map(one, starts))


class _Trial:
    """One program in a folder of its own."""

    def __init__(
        self, start: Start, sandbox: Sandbox, environment: Mapping[str, str], folder: Path, seconds: float
    ) -> None:
        self._start, self._sandbox, self._seconds = start, sandbox, seconds
        self._tree, self._home = folder / "tree", folder / "home"
        for place in (self._tree, self._home / "tmp"):
            place.mkdir(parents=True)
        self._user = environment
        values = map(str, (start.item.details.get("env") or {}).values())
        named = {"HOME", *secrets.referenced(values), *start.keys}
        visible = secrets.visible(environment, named=named)
        self._environment = session_environment(start.item, visible, self._home, self._tree, _FREE_PORT)
        self._own = start.item.settings.get("sandbox")
        self._kind = sandbox.kind_of(self._own)
        location = shutil.which(start.program, path=self._environment.get("PATH", os.defpath))
        self._chain = links_to(Path(location)) if location else []
        self._script = read_script(self._chain[-1]) if self._chain else None

    async def result(self) -> StartResult:
        """Start it; find what is hidden if it does not start."""
        ended = await self._run()
        if ended.timed_out:
            return StartResult()
        if ended.exit_code == 0 and not (not self._start.option and self._in_home()):
            return StartResult(version=_first_line(ended.output))
        what, where = self._start.what, f" in the sandbox `{self._kind}`" if self._kind != "none" else ""
        if self._start.option and not await self._starts_outside():
            if self._start.phase != "agent" and ended.exit_code not in _NOT_STARTED:
                # It has no such option.
                return StartResult()
            problem = f"{what} cannot start, also outside of the sandbox: {self._reason(ended)}"
            return StartResult(problem=problem, remedy="Install it again.")
        if self._kind == "none" and self._manager():
            # Nothing is hidden: it finds its versions in the folders above the session's.
            return StartResult()
        problem = f"{what} cannot start{where}: {self._reason(ended)}"
        if ended.exit_code and (opened := await self._missing(ended)):
            paths = ", ".join(self._shown(path) for path in opened)
            return StartResult(problem=problem, remedy=f"Open what it needs:  sandbox: {{read: [{paths}]}}")
        return StartResult(problem=problem, remedy=self._other_remedy())

    async def _run(self, opened: Sequence[Path] = ()) -> ProgramResult:
        start = self._start
        looks = not start.option
        found = str(self._chain[0]) if self._chain else start.program
        interpreter = self._script.interpreter if self._script else ()
        env = (start.item.details.get("env") or {}).values()
        confinement = self._sandbox.confine(
            start.phase,
            self._own,
            folders=[self._tree, self._home],
            home=self._home,
            read=opened,
            named=[*start.named, *map(str, env), *([found] if looks else [])],
            usual_network="none",
        )
        try:
            return await run(
                ["/bin/sh", "-c", _LOOK, "sh", found, *interpreter] if looks else [found, start.option],
                folder=self._tree,
                environment=self._environment,
                attempt="start",
                time_limit=self._seconds,
                grace_seconds=0.5,
                confinement=confinement,
            )
        except SandboxFailed:
            raise
        except CouldNotStart as problem:
            return ProgramResult(exit_code=127, output=str(problem), duration_ms=0)

    async def _starts_outside(self) -> bool:
        """Whether it starts as the user starts it."""
        try:
            ended = await run(
                [self._start.program, self._start.option],
                folder=self._tree,
                environment=secrets.visible(self._user, named={"HOME", *self._start.keys}),
                attempt="start",
                time_limit=self._seconds,
                grace_seconds=0.5,
            )
        except (ProctorError, OSError):
            return False
        return ended.exit_code == 0 and not ended.timed_out

    async def _missing(self, ended: ProgramResult) -> list[Path]:
        """The files and folders with which it starts; empty: they are not found."""
        opened, tried = list[Path](), list[Path]()
        while self._kind != "none" and len(tried) < _MOST_OPENED:
            place = next((path for path in self._candidates(ended.output) if path not in tried), None)
            if place is None:
                return []
            tried.append(place)
            try:
                ended = await self._run([*opened, place])
            except (ProctorError, OSError):
                # No sandbox can open it.
                continue
            opened.append(place)
            if ended.exit_code == 0:
                return await self._needed(opened)
        return []

    async def _needed(self, opened: list[Path]) -> list[Path]:
        """Those of the opened files and folders without which it does not start."""
        for place in list(opened):
            rest = [other for other in opened if other != place]
            if rest and (await self._run(rest)).exit_code == 0:
                opened = rest
        return opened

    def _candidates(self, output: str) -> Iterator[Path]:
        """What may be hidden: paths in its output, then the folders above the program."""
        private = (*self._sandbox.hidden, self._sandbox.user_home)
        for text in _PATHS.findall(output):
            path = Path(os.path.normpath(text.rstrip(".")))
            if is_file(path) and self._can_be_opened(path):
                yield from (installation_of(path, private) or [path])
        for file in self._chain:
            yield from (folder for folder in file.parents[:3] if self._can_be_opened(folder))

    def _can_be_opened(self, path: Path) -> bool:
        private = (*self._sandbox.hidden, self._sandbox.user_home, self._tree, self._home)
        is_private = any(folder == path or path in folder.parents for folder in private)
        is_own = path.is_relative_to(self._tree.parent)
        return not is_private and not is_own and not is_system(path) and len(path.parts) > 2

    def _reason(self, ended: ProgramResult) -> str:
        if not ended.exit_code:
            return f"it starts {self._in_home()}"
        output = ended.output.replace(str(self._home), "$HOME").replace(str(self._tree), ".")
        return error_line(output) or "it printed nothing"

    def _shown(self, path: Path) -> str:
        home = self._sandbox.user_home
        return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)

    def _other_remedy(self) -> str:
        """The fix where opening files does not help: a program that looks for files in the user's HOME."""
        name, chain = Path(self._start.program).name, self._chain
        if manager := self._manager():
            return (
                f"It is a shim of {manager}, which finds versions in your HOME; a session has its own. "
                f'Name its folder:  export PATH="$(dirname "$({manager} which {name})"):$PATH"'
            )
        if named := self._in_home():
            whole = self._sandbox.user_home / named.partition("/")[2]
            return f"A session has its own HOME. Write {whole} in {chain[-1]}."
        if not chain:
            return f"Install {self._start.program}, or name it by its whole path."
        return "Open the files that it needs with `sandbox: {read: […]}`, or write `sandbox: none`."

    def _manager(self) -> str:
        """The version manager whose shim it is, and that finds versions in HOME; empty: none."""
        text = self._script.text if self._script else ""
        names = {file.name for file in self._chain}
        return next((each for each in _MANAGERS if each in names or f"{each} exec" in text), "")

    def _in_home(self) -> str:
        """The program in the user's HOME that it, a shell script, names by HOME; empty: none."""
        script = self._script.text if self._script and self._script.language == "sh" else ""
        for name, place in _OF_HOME.findall(script):
            script = script.replace(f"${{{name}}}", place).replace(f"${name}/", f"{place}/")
        for text in _HOME.findall(script):
            if is_file(self._sandbox.user_home / text.partition("/")[2]):
                return str(text)
        return ""


def _first_line(output: str) -> str:
    return next((line.strip()[:80] for line in output.splitlines() if line.strip()), "")
