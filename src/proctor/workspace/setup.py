"""Set up the worktree, HOME, environment and port of a coding session, and clean up afterward.

The environment starts from the variables that agents may see and replaces those that lead to the user's own
files; prompt and model are passed as variables too. Changes of the user's repository during the session are
noted in its record.
"""

import asyncio
import os
import re
import socket
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from proctor import secrets
from proctor.errors import ProctorError, WorkspaceError
from proctor.formatting import clipped
from proctor.git import GitError, is_address
from proctor.item import Item
from proctor.processes import undisturbed
from proctor.runner import Services
from proctor.session import Note, Workspace
from proctor.workspace import beneath
from proctor.workspace.agent_repository import disarm
from proctor.workspace.base_objects import BaseObjects
from proctor.workspace.folders import remove_folder
from proctor.workspace.homes import SessionHomes, home_variables
from proctor.workspace.merge_queue import was_merged
from proctor.workspace.nested_repositories import patch_of
from proctor.workspace.source_repository import (
    SESSION_REFS,
    SourceRepository,
    differences,
    fingerprint,
    open_repository,
    open_source,
    own_references,
)
from proctor.workspace.worktree import (
    OWN_NAMES,
    WORK,
    Submodules,
    Worktree,
    fill_all,
    make_home,
    make_tree,
    session_folder,
    visible_references,
)

if TYPE_CHECKING:
    from proctor.processes import Confinement, Serve
    from proctor.sandbox import Network, Phase

SLUG_LENGTH = 30
ID_LENGTH = 8

# Linux limits a variable to 128 KiB. Agents also get the prompt in other ways.
PROMPT_LIMIT_BYTES = 100_000

SHARED_CACHES = {
    "npm_config_cache": "npm",
    "npm_config_store_dir": "pnpm",
    "YARN_CACHE_FOLDER": "yarn",
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
    "POETRY_CACHE_DIR": "poetry",
    "COMPOSER_CACHE_DIR": "composer",
}
"""Variables that name caches of downloads, by the folder of each below the shared one."""
# A file that is linked from the cache could be changed there through the worktree.
COPY_FROM_CACHE = {"UV_LINK_MODE": "copy", "npm_config_package_import_method": "copy"}
ENVIRONMENT = "PROCTOR_ENVIRONMENT"
"""Variable with the folder of what `setupOnce` has installed."""
COMMAND_SECONDS = 900.0
"""Of setup and of a check, unless the agent's time limit is longer."""

# Below the ephemeral ports, above those of known services.
FIRST_PORT, PORT_COUNT = 20_000, 10_000
_BESIDE: "Mapping[Phase, tuple[str, ...]]" = {
    "setup": ("logs",),
    "agent": ("logs", "solution"),
    "check": ("logs", "check_files"),
}
"""Folders beside the worktree that programs of a phase may change; they see no others."""
_HIDDEN_PREFIXES = ("GIT_", "SSH_", "PROCTOR_", "XDG_")
_ports_in_use: set[int] = set()


def slug_of(prompt: str) -> str:
    """The start of the prompt as part of a branch name; `session` if no character is usable."""
    slug_text = re.sub(r"[^a-z0-9]+", "-", prompt[:1000].lower()).strip("-")
    slug = slug_text[:SLUG_LENGTH].strip("-")
    # git reserves this suffix for its locks.
    slug = slug.removesuffix(".lock")
    return slug or "session"


def session_name(prompt: str, at: datetime, item_id: str, number: int, used: Collection[str] = ()) -> str:
    """Branch name of attempt `number` at an item; a longer part of the id if a name is in `used`."""
    stamp = at.astimezone(UTC).strftime("%Y%m%d-%H%M%S")
    suffix = f"-{number}" if number > 1 else ""
    start = f"batch/{slug_of(prompt)}/{stamp}/"
    lengths = range(ID_LENGTH, max(len(item_id), ID_LENGTH) + 1)
    names = (f"{start}{item_id[:length]}{suffix}" for length in lengths)
    further = (f"{start}{item_id}{suffix}.{number}" for number in count(1))
    return next(name for name in chain(names, further) if name not in used)


def title_of(prompt: str) -> str:
    """The first line of a prompt, short enough for the subject of a commit."""
    # git takes no NUL in a message.
    lines = (line.strip() for line in prompt.replace("\0", "").splitlines())
    first = next((line for line in lines if line), "Changes by the agent")
    return first if len(first) <= 72 else first[:71].rstrip() + "…"


T = TypeVar("T")
P = ParamSpec("P")
_fill_semaphores: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = (
    weakref.WeakKeyDictionary()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSession:
    """One attempt with its worktree and environment."""

    item: Item
    services: Services
    tree: Worktree
    home: Path
    environment: Mapping[str, str]
    port: int
    before: Mapping[str, str]
    """Fingerprint of the user's repository before the session."""
    submodules: Submodules = field(default_factory=Submodules)
    shared: Path | None = None
    """What `setupOnce` has installed, which programs of the session can only read; None: nothing."""
    makes_shared: bool = False
    """Whether they install it."""

    @property
    def base_branch(self) -> str:
        return str(self.item.details["baseBranch"])

    @property
    def check(self) -> str:
        return str(self.item.details.get("scriptCommand") or "")

    @property
    def time_limit(self) -> float | None:
        """Seconds the agent may take; None: no limit."""
        seconds = self.item.settings.get("timeoutSec")
        return float(seconds) if seconds else None

    def command_limit(self, phase: "Phase") -> float:
        """Seconds that setup or a check may take: its own setting, else enough for a cold build."""
        seconds = self.item.settings.get(f"{phase}TimeoutSec")
        return float(seconds) if seconds else max(COMMAND_SECONDS, self.time_limit or 0)

    @property
    def message(self) -> str:
        """Message of Proctor's commits."""
        return f"{title_of(self.item.prompt)}\n\n{self.tree.branch}\n"

    def confinement(
        self,
        phase: "Phase",
        *,
        named: Sequence[object] = (),
        serve: "Mapping[int, Serve] | None" = None,
        usual_network: "Network | None" = None,
        concealed: Sequence[Path] = (),
    ) -> "Confinement | None":
        """The confinement of the programs of a phase; None: they are not confined.

        `named` is text of the plan: the files and folders in it can be read, without what is `concealed`.
        """
        caches = [self.caches] if phase == "setup" and self.caches else []
        beside = [folder for name in _BESIDE[phase] if (folder := self.home.parent / name).is_dir()]
        shared = [self.shared] if self.shared else []
        made, read = (shared, []) if self.makes_shared else ([], shared)
        folders = [self.tree.folder, self.tree.repository, self.home, *beside, *caches, *made]
        return self.services.sandbox.confine(
            phase,
            self.item.settings.get("sandbox"),
            folders=folders,
            home=self.home,
            read=[*self.tree.base.folders, *read],
            named=[*named, *(self.item.details.get("env") or {}).values()],
            serve=serve,
            usual_network=usual_network,
            mounts={path: folder for path, folder in self.mounts.items() if folder in folders},
            concealed=concealed,
        )

    @property
    def caches(self) -> Path | None:
        """Folder of the package caches that setup shares with other sessions; None: it shares none.

        The agent and the check do not see it: what an agent puts there would be installed by others.
        """
        if self.item.settings.get("cache") != "shared":
            return None
        return self.services.home / "caches"

    @property
    def cache_variables(self) -> dict[str, str]:
        """Variables that make package managers use the shared caches; empty: there are none."""
        if self.caches is None:
            return {}
        for folder in SHARED_CACHES.values():
            (self.caches / folder).mkdir(parents=True, exist_ok=True)
        places = {name: str(self.caches / folder) for name, folder in SHARED_CACHES.items()}
        return {**places, **COPY_FROM_CACHE}

    @property
    def answers(self) -> list[Path]:
        """Where the user's files have hidden tests, solutions and later commits."""
        tasks = self.item.settings.get("taskPath")
        source = self.tree.source
        later = [source.root.resolve()] if self.item.details.get("sealed") else []
        return [*([Path(str(tasks)).resolve()] if tasks else []), *later, source.common.resolve()]

    @property
    def homes(self) -> SessionHomes:
        """The HOMEs of the setup, agent and checks; all are seen at `home`."""
        return SessionHomes(home=self.home, own=self.tree.place.parent)

    @property
    def logs(self) -> Path:
        """Folder for what checks report: outside the worktree."""
        return self.tree.place / "logs"

    @property
    def mounts(self) -> dict[str, Path]:
        """Folders by the absolute path that programs of the task use; empty: they use none."""
        folders = {"work": self.tree.folder, "logs": self.logs}
        folders |= {name: self.tree.place / name for name in ("check_files", "solution")}
        places = self.item.details.get("places") or {}
        chosen = {place: folders[name] for place, name in places.items()}
        # A link of the agent's would show a folder of the user's, to be written.
        return {place: folder for place, folder in chosen.items() if self._is_own(folder)}

    def _is_own(self, folder: Path) -> bool:
        return beneath.is_folder(self.tree.place, folder.relative_to(self.tree.place))

    def settle(self) -> None:
        """Make the folders of the next program again, if the last one left something else there."""
        beneath.make_folder(self.tree.place, self.tree.folder.name)
        if not self._is_own(self.home) or not self._is_own(self.home / "tmp"):
            beneath.make_folder(self.tree.place, self.home.name)
            beneath.make_folder(self.tree.place, f"{self.home.name}/tmp")
        # A sandbox does not start in a folder without permissions; that would be an error, not a failure.
        beneath.allow(self.tree.place, (*OWN_NAMES, self.tree.folder.name, f"{self.home.name}/tmp"), 0o700)

    def note(self, text: str) -> None:
        """Record a note with the session; a long one is clipped."""
        self.services.record(Note(text=clipped(text, 4000)))


async def prepare(item: Item, services: Services) -> WorkSession:
    """Create the worktree, HOME, environment and port of an attempt."""
    # Resolved: a sandbox shows it under this path only, and links in it are then those of an agent.
    folder = session_folder(services.home, services.session_id).resolve()
    place = folder / WORK
    port = reserve_port(services.session_id)
    claimed: _StartingPoint | None = None
    try:
        with services.phase("checkout"):
            source = await _open(item, services)
            start, _ = await asyncio.gather(
                in_thread(_find, item, services, source),
                # A folder without a session in the store would be removed by no command.
                services.commit(),
            )
            claimed = start
            tree = await in_thread(_make_tree, start, place)
        services.record(_workspace(start, tree, services.sandbox.kind_of(item.settings.get("sandbox"))))
        environment = session_environment(item, services.environment, place / "home", tree.folder, port)
        async with _fill_slots():
            with services.phase("checkout"):
                submodules, before = await asyncio.gather(
                    in_thread(fill_all, tree), in_thread(_fingerprint, start.source, start.references)
                )
    except BaseException:
        release_port(port)
        await in_thread(remove_folder, folder)
        if claimed:
            await in_thread(claimed.source.remove_branch, claimed.name, claimed.base_sha)
        raise
    session = WorkSession(
        item=item,
        services=services,
        tree=tree,
        home=place / "home",
        environment=environment,
        port=port,
        before=before,
        submodules=submodules,
    )
    _note_limitations(session)
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartingPoint:
    """The repository, base and name of a session, before anything is created."""

    source: SourceRepository
    name: str
    base: str
    base_sha: str
    references: Mapping[str, str]
    base_tip: str = ""
    """What the session sees of its base branch, if that is not `base_sha`."""
    continues: str = ""
    """The session whose last commit is `base_sha`; empty: none."""


async def _open(item: Item, services: Services) -> SourceRepository:
    """The repository of an item; on another machine than the driver's, a copy of it."""
    repo = str(item.settings["repo"])
    if services.driver_files is None:
        return await open_repository(repo, services.environment, services.home)
    if is_address(repo):
        raise WorkspaceError(
            f"{repo}: clone it for workers on other machines, and give the path of the clone"
        )
    copy = await services.driver_files.repository(Path(repo), str(item.details["baseBranch"]))
    return await in_thread(open_source, copy, services.environment)


def _find(item: Item, services: Services, source: SourceRepository) -> _StartingPoint:
    base = str(item.details["baseBranch"])
    try:
        references = source.all_references()
        base_sha = references.get(f"refs/heads/{base}") or source.base_commit(base)
        base_tip = ""
        if earlier := str(item.details.get("startCommit") or ""):
            if not source.git.commit_of(earlier):
                raise WorkspaceError(f"{source.root} no longer has commit {earlier} of the earlier session")
            base_tip = source.git.line("merge-base", base_sha, earlier)
            base_sha = earlier
        return _StartingPoint(
            source=source,
            name=_claimed_name(item, services, source, base_sha, references),
            base=base,
            base_sha=base_sha,
            references=own_references(references),
            base_tip=base_tip,
            continues=str(item.details.get("continues") or ""),
        )
    except (GitError, OSError) as error:
        raise WorkspaceError(f"reading the repository {source.root}: {error}") from error


def _fingerprint(source: SourceRepository, references: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return fingerprint(source, references)
    except (GitError, OSError) as error:
        raise WorkspaceError(f"reading the repository {source.root}: {error}") from error


def _make_tree(start: _StartingPoint, path: Path, base: BaseObjects | None = None) -> Worktree:
    """Create the worktree without its files; they take time and are written by one session per core."""
    try:
        visible = visible_references(start.references, start.base, start.base_tip or start.base_sha)
        tree = make_tree(path, start.source, start.name, start.base_sha, visible, base=base)
        make_home(path / "home")
    except (GitError, OSError) as error:
        raise WorkspaceError(f"making a work tree of {start.source.root}: {error}") from error
    return tree


def _workspace(start: _StartingPoint, tree: Worktree, sandbox: str) -> Workspace:
    return Workspace(
        name=start.name,
        branch=start.name,
        worktree=str(tree.folder),
        repo=str(start.source.root),
        base_branch=start.base,
        base_sha=start.base_sha,
        sandbox=sandbox,
        continues=start.continues,
    )


def _claimed_name(
    item: Item, services: Services, source: SourceRepository, base_sha: str, references: Mapping[str, str]
) -> str:
    """Create the session's branch at its base, and return its name.

    Other runs of the same plan may begin the same item in the same second: git gives a name to one of them.
    """
    source.check_names(references)
    used = {name.removeprefix("refs/heads/") for name in references if name.startswith(SESSION_REFS)}
    if services.driver_files:
        # In this copy of the repository nobody else sees the branch.
        item_id = f"{item.id[:ID_LENGTH]}-{services.session_id[-ID_LENGTH:]}"
        return session_name(item.prompt, services.now(), item_id, services.attempt, used)
    name = session_name(item.prompt, services.now(), item.id, services.attempt, used)
    while not source.create_branch(name, base_sha):
        used.add(name)
        name = session_name(item.prompt, services.now(), item.id, services.attempt, used)
    return name


def _note_limitations(session: WorkSession) -> None:
    source, repo = session.tree.source, str(session.item.settings["repo"])
    root, named = source.root, Path(repo)
    if source.copy:
        is_inside = source.copy.is_inside
    else:
        is_inside = not is_address(repo) and named.resolve() not in (root.resolve(), source.common.resolve())
    if is_inside:
        session.note(f"{named} is inside the repository {root}; the session works in all of it")
    if session.submodules.empty:
        names = ", ".join(session.submodules.empty[:20])
        session.note(f"submodules whose files your checkout does not have are empty: {names}")


def _fill_slots() -> asyncio.Semaphore:
    """One slot per core: filling more worktrees at once is slower overall."""
    loop = asyncio.get_running_loop()
    return _fill_semaphores.setdefault(loop, asyncio.Semaphore(os.cpu_count() or 1))


async def fresh_session(session: WorkSession) -> WorkSession:
    """The same attempt with another tree of its base commit and another HOME, in which nothing has run.

    It is in the folder of the attempt, where nothing of the attempt sees it; `remove_fresh` removes it.
    """
    place, tree = _fresh_folder(session) / WORK, session.tree
    start = _StartingPoint(
        source=tree.source,
        name=tree.branch,
        base=session.base_branch,
        base_sha=tree.base_sha,
        references={},
    )
    fresh = await in_thread(_make_tree, start, place, tree.base)
    async with _fill_slots():
        await in_thread(fill_all, fresh)
    home = place / "home"
    environment = session_environment(
        session.item, session.services.environment, home, fresh.folder, session.port
    )
    if session.shared:
        environment[ENVIRONMENT] = str(session.shared)
    return replace(session, tree=fresh, home=home, environment=environment)


async def remove_fresh(session: WorkSession) -> None:
    """Remove the other tree of an attempt, with the tests in it."""
    await in_thread(remove_folder, _fresh_folder(session))


def _fresh_folder(session: WorkSession) -> Path:
    return session.tree.place.with_name("judged")


async def clean_up(session: WorkSession, succeeded: bool) -> None:
    """Note changes of the user's repository, and remove the worktree unless `keep` applies."""
    release_port(session.port)
    if changed := await in_thread(_repository_changes, session):
        session.note(changed)
    keep = session.item.settings.get("keep") or "on_failure"
    if keep == "always" or (keep == "on_failure" and not succeeded):
        try:
            for text in await in_thread(disarm, session.tree):
                session.note(text)
        except (ProctorError, OSError) as error:
            session.note(f"do not run git in the kept worktree: its settings could not be restored: {error}")
        await in_thread(session.homes.discard)
        return
    if problem := await in_thread(_remove_session, session.tree):
        session.note(f"the work tree could not be removed: {problem}")


def _remove_session(tree: Worktree) -> str:
    """Remove the folder of a session but for the patch of its submodules, if there is one."""
    folder, patch = tree.place.parent, patch_of(tree)
    if not patch.exists():
        return remove_folder(folder)
    return "; ".join(filter(None, (remove_folder(path) for path in folder.iterdir() if path != patch)))


def _repository_changes(session: WorkSession) -> str:
    """Changes of the user's repository during the session, by anyone; empty: none."""
    source = session.tree.source
    try:
        after = fingerprint(source, source.references())
    except (ProctorError, OSError) as error:
        return f"the repository at {source.root} can no longer be read: {error}"
    before = dict(session.before)
    base = f"refs/heads/{session.base_branch}"
    moved = before.get(base) != after.get(base)
    if moved and was_merged(session.services.home, source, after.get(base, "")):
        # A session was merged meanwhile: that moves the branch and its checkout.
        for facts in (before, after):
            facts.pop(base, None)
            facts.pop("its index", None)
    changed = "; ".join(differences(before, after)[:30])
    return f"while this ran, the repository at {source.root} changed: {changed}" if changed else ""


async def in_thread(work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a blocking function in a thread; on cancellation, it completes first."""
    return await undisturbed(asyncio.to_thread(work, *arguments, **named))


def session_environment(
    item: Item, visible: Mapping[str, str], home: Path, folder: Path, port: int
) -> dict[str, str]:
    """All environment variables of the setup, agent and check of one attempt."""
    hidden = (*_HIDDEN_PREFIXES, *secrets.installed_by(str(item.details.get("setup") or ""), visible))
    inherited = {name: value for name, value in visible.items() if not name.startswith(hidden)}
    own = {
        **home_variables(home),
        "PWD": str(folder),
        "PORT": str(port),
        "PROCTOR_PORT": str(port),
        "PROCTOR_PROMPT": _shortened(item.prompt),
        "PROCTOR_MODEL": item.model,
    }
    overrides = item.details.get("env") or {}
    overrides = {name: _resolved(name, str(value), visible) for name, value in overrides.items()}
    return inherited | own | overrides


def reserve_port(session: str) -> int:
    """Reserve a free port for a session of this process; `release_port` releases it."""
    start = sum(session.encode()) * 7919
    for step in range(PORT_COUNT):
        port = FIRST_PORT + (start + step) % PORT_COUNT
        if port not in _ports_in_use and _is_free(port):
            _ports_in_use.add(port)
            return port
    raise WorkspaceError(f"no port between {FIRST_PORT} and {FIRST_PORT + PORT_COUNT} is free")


def release_port(port: int) -> None:
    """Release a reserved port."""
    _ports_in_use.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _shortened(prompt: str) -> str:
    return prompt.replace("\0", "").encode("utf-8", "replace")[:PROMPT_LIMIT_BYTES].decode("utf-8", "ignore")


def _resolved(name: str, value: str, visible: Mapping[str, str]) -> str:
    """The value of a variable, with each `${NAME}` replaced."""

    def replacement(reference: re.Match[str]) -> str:
        if reference[1] not in visible:
            raise WorkspaceError(
                f"env.{name} refers to ${{{reference[1]}}}, which is not set or not visible to agents"
            )
        return visible[reference[1]]

    return re.sub(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", replacement, value)
