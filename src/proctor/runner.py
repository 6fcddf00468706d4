"""The contract of runners: one item in, one session out. `runners/` holds the implementations.

A runner gets nothing from the batch but its item and these services, so it can run on another machine.
"""

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from proctor.errors import NotFound
from proctor.frozen import fast_init
from proctor.item import SUCCESS, Item
from proctor.json_values import JsonMap, JsonObject, require_number
from proctor.model import Model
from proctor.sandbox import NOT_CONFINED, Sandbox
from proctor.session import Record

if TYPE_CHECKING:
    from proctor.agent import Access, Agent
    from proctor.evaluator import Evaluator, Evidence
    from proctor.processes import ProgramResult
    from proctor.score import Score
    from proctor.session import Merge


class LoadSession(Protocol):
    """Loads a recorded session for evaluators."""

    async def __call__(self, session_id: str, traces: Sequence[str] = (), scenario: str = "") -> "Evidence":
        """The session with its ground truth; with `traces`, only these are evaluated."""


async def no_sessions(
    session_id: str,
    traces: Sequence[str] = (),  # noqa: ARG001
    scenario: str = "",  # noqa: ARG001
) -> "Evidence":
    """Raise: recorded sessions are not available here."""
    raise NotFound(f"there is no session {session_id} to look at here")


def no_evaluator(name: str, settings: JsonMap) -> "Evaluator":  # noqa: ARG001
    """Raise: evaluators are not available here."""
    raise NotFound(f"there is no evaluator {name} here")


async def no_resource(digest: str) -> str:
    """Raise: resources are not available here."""
    raise NotFound(f"there is no resource {digest} here")


async def no_person(actor: str, prompt: str) -> str:  # noqa: ARG001
    """No person can be asked: return an empty answer."""
    return ""


SessionPhase = Literal["checkout", "setup", "agent", "check"]
"""Parts of a session whose time is measured."""


def unmeasured(phase: SessionPhase) -> AbstractContextManager[None]:  # noqa: ARG001
    """Measure nothing."""
    return nullcontext()


async def no_merge(request: "MergeRequest") -> "MergeResult":
    """Raise: nothing can be merged here."""
    raise NotFound(f"there is no merge queue for {request.repo} here")


async def no_commit() -> None:
    """Nothing is recorded here."""


def no_calls() -> int:
    """No call is recorded here."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """One session to merge to its base branch."""

    repo: Path
    """The user's repository."""
    branch: str
    """The session's, in the user's repository."""
    base_branch: str
    message: str
    check: str = ""
    """The command that must pass again if the base branch has moved; empty: none."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the check; `HOME` and `PWD` are set anew."""
    attempt: str = ""
    """Label of the processes that the check starts."""
    time_limit: float | None = None
    """Of the check, in seconds; None: no limit."""
    sandbox: object = None
    """`sandbox` of the item, for the check."""
    read: Sequence[Path] = ()
    """Further folders that the check can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The result of merging one session."""

    merges: "tuple[Merge, ...]"
    """Every attempt; the last one is the result."""
    recheck: "ProgramResult | None" = None
    """The failed check on the moved base, if any."""
    notes: tuple[str, ...] = ()
    """How the merge differs from one by hand."""

    @property
    def result(self) -> "Merge":
        """The last attempt."""
        return self.merges[-1]


class DriverFiles(Protocol):
    """Files and repositories of the driver's machine, for attempts on another one."""

    async def fetch(self, path: Path) -> Path:
        """A copy of a file or folder of the driver, on this machine."""

    async def repository(self, path: Path, base: str) -> Path:
        """A copy of a repository of the driver on this machine, up to date with the branch `base`."""

    async def starting_repository(self, files: Path | Mapping[str, str] | None, digest: str) -> Path:
        """The repository of a task's starting files, on the driver's machine."""

    async def publish(self, repository: Path, branch: str, sha: str, bundle: bytes) -> None:
        """Fetch a session's branch into a repository of the driver; empty `bundle`: it adds no commit."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a runner may use in one attempt."""

    session_id: str
    attempt: int
    """1 for the first attempt at this item."""
    record: Record
    score: "Callable[[Score], None]"
    """Record a score of this session."""
    models: Model
    access: "Callable[[Agent], Awaitable[Access | None]]"
    """Gateway access of an agent for the duration of the attempt; None: it needs none."""
    agent: "Callable[[str, JsonMap], Agent]"
    """Find an agent by name and give it its settings."""
    home: Path
    """Folder of the worker: worktrees, copies of repositories and agents' homes are below it."""
    environment: Mapping[str, str]
    """The part of the user's environment that agents may see: no keys, no tokens."""
    now: Callable[[], datetime]
    time_limit: Callable[[float | None, str], AbstractAsyncContextManager[None]]
    """`async with time_limit(seconds, "the agent")`: raises a `TimeLimit` when the body takes longer.
    Time spent waiting for a rate limit does not count. None: no limit."""
    evaluator: "Callable[[str, JsonMap], Evaluator]" = no_evaluator
    """Find an evaluator by name, with its `judge`, `votes` and `parameters`. Its model calls are recorded and
    charged as part of this attempt."""
    sessions: LoadSession = no_sessions
    """Load a recorded session."""
    resource: Callable[[str], Awaitable[str]] = no_resource
    """The text of a resource of the run, by its digest. Raises `NotFound`."""
    ask_person: Callable[[str, str], Awaitable[str]] = no_person
    """The answer of the person who plays an actor to a prompt; empty: nobody is there. The time this takes is
    no work time."""
    merge: Callable[[MergeRequest], Awaitable[MergeResult]] = no_merge
    """Merge a session after all earlier requests, wherever they come from."""
    commit: Callable[[], Awaitable[None]] = no_commit
    """Wait until what the attempt has recorded is in the store. Before files are made that only the store's
    session tells from those of other runs: a killed process would leave them for ever."""
    redact: Callable[[str], str] = str
    """Remove the user's secrets from a text."""
    sandbox: Sandbox = NOT_CONFINED
    """Confines the programs of the attempt."""
    driver_files: DriverFiles | None = None
    """None: this is the driver's machine, and paths of the item can be used as they are."""
    model_calls: Callable[[], int] = no_calls
    """How many model calls the attempt has made so far, including failed ones."""
    phase: Callable[[SessionPhase], AbstractContextManager[None]] = unmeasured
    """`with phase("agent")`: the time of the body, without waiting, is that of a part of the session."""
    checkpoint: object | None = None
    """Where an interrupted attempt continues, as the job's `checkpoint` reads it from the store; None: start
    over."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an attempt."""

    status: str = SUCCESS
    reason: str = "completed"
    error: str = ""
    """Message for the user: what did not pass. Empty on success."""
    result: JsonMap = field(default_factory=dict)
    """Further columns of the item's row: `iterSha`."""
    is_answer_checked: bool = False
    """Whether the runner has compared the answer with `expect`; if not, that is done after it."""


class Runner(Protocol):
    """Runs items of one kind."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Make one attempt. Raise the `AttemptError` whose class describes the failure.

        When cancelled, stop and clean up everything the attempt has started, then pass the cancellation on.
        """


def seed_of(item: Item) -> int | None:
    """The seed of an item, or None. Each repeat has its own, which stays the same when it runs again."""
    seed = item.details.get("seed")
    return None if seed is None else int(require_number(seed)) + item.repeat - 1


PROGRAM_FOLDER = "programFolder"
"""Setting of an item: the folder from which the program of its agent was named."""


def agent_settings(item: Item) -> JsonObject:
    """The configuration of an item's agent: its settings, and its command or script."""
    program = {name: item.details[name] for name in ("command", "script") if name in item.details}
    settings = {**(item.details.get("settings") or {}), **program}
    if (folder := item.settings.get(PROGRAM_FOLDER)) and "command" in settings:
        settings["command"] = _from_folder(settings["command"], Path(folder))
    return settings


def _from_folder(command: object, folder: Path) -> object:
    """A command that begins with a relative path of a program that is in a folder, with its whole path."""
    text = command if isinstance(command, str) else command[0] if isinstance(command, list) else ""
    word = next(iter(text.split()), "")
    place = os.path.normpath(folder / word)
    if "/" not in word or not os.path.isfile(place):  # noqa: PTH113 (not an error without permission)
        return command
    if isinstance(command, list):
        return [place, *command[1:]]
    return text.replace(word, shlex.quote(place), 1)
