"""Confinement of the programs that agents, checks and evaluators start: settings, choice and policy.

A sandbox is chosen once for a machine: `bubblewrap`, `landlock`, `container` or `none`. Its `confine` turns a
policy (folders, network, limits) into the confinement of one program. Implementations are in the modules of
the same names.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from proctor.errors import AgentError, UsageError
from proctor.json_values import as_map

if TYPE_CHECKING:
    from proctor.processes import Confinement, Serve

INSTALL = "apt install bubblewrap, or dnf install bubblewrap"
KINDS = ("auto", "bubblewrap", "landlock", "container", "none")
AUTOMATIC = ("bubblewrap", "landlock")
"""What `auto` tries, the strongest first."""
MOUNTING = ("bubblewrap", "container")
"""The kinds that can show a folder at another path."""
NETWORKS = ("gateway", "none", "full")
Phase = Literal["setup", "agent", "check"]
PHASES: tuple[Phase, ...] = ("setup", "agent", "check")
LIMITS = {"processes": "NPROC", "memory": "DATA", "file_size": "FSIZE", "open_files": "NOFILE"}
"""Limits of a plan, and their names as limits of the system."""
SETTINGS = ("kind", "container", "network", "limits", "read", "cache")
CACHE_MODES = ("read", "copy")
Network = str | tuple[str, ...]
"""`gateway`, `none`, `full`, or the hosts that may be reached."""
USUAL_NETWORK: Mapping[Phase, Network] = {"setup": "full", "agent": "gateway", "check": "none"}
"""Setup installs packages; an agent needs its model; a check must not depend on other machines."""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """`sandbox:` of a plan, an item or `proctor.toml`."""

    kind: str = "auto"
    container: str = ""
    """Image of `container`."""
    network: Mapping[str, Network] = field(default_factory=dict)
    """By phase; unset phases are missing."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """By name, in bytes or as a count; of each process."""
    read: tuple[str, ...] = ()
    """Further files and folders that can be read."""
    cache: Mapping[str, str] = field(default_factory=dict)
    """Folders of package caches, by how they are seen: `read` or `copy`."""


def read_settings(value: object) -> SandboxSettings:
    """Check the value of `sandbox`. Raises `ValueError` with what is wrong, for a message about `sandbox`."""
    if value is None:
        return SandboxSettings()
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        raise ValueError(f"should be one of {', '.join(KINDS)}, or settings: {', '.join(SETTINGS)}")
    if unknown := [str(name) for name in value if name not in SETTINGS]:
        raise ValueError(f"has no setting `{unknown[0]}`; it may have: {', '.join(SETTINGS)}")
    members = {name: part for name, part in value.items() if part is not None}
    image = _text(members, "container")
    kind = _text(members, "kind") or ("container" if image else "auto")
    if kind not in KINDS:
        raise ValueError(f"`kind` should be one of {', '.join(KINDS)}, not `{kind}`")
    if (kind == "container") != bool(image):
        raise ValueError("`container` should name an image, and `kind` be `container` or left out")
    return SandboxSettings(
        kind=kind,
        container=image,
        network=_read_network(members.get("network")),
        limits=_read_limits(members.get("limits", {})),
        read=tuple(_texts(members.get("read", []), "read")),
        cache=_read_cache(members.get("cache", [])),
    )


def merge_settings(*values: object) -> object:
    """The value of `sandbox` that results from several places, the most important last."""
    merged: dict[str, object] = {}
    for value in values:
        own = {"kind": value} if isinstance(value, str) else as_map(value)
        own = {name: part for name, part in own.items() if part is not None}
        if "kind" in own or "container" in own:
            merged.pop("kind", None)
            merged.pop("container", None)
        for name in ("network", "limits"):
            inner = merged.get(name)
            if isinstance(inner, Mapping) and isinstance(own.get(name), Mapping):
                own[name] = {**inner, **as_map(own, name)}
        merged.update(own)
    return merged or None


def _text(value: Mapping[str, object], name: str) -> str:
    text = value.get(name, "")
    if not isinstance(text, str):
        raise ValueError(f"`{name}` should be text")
    return text


def _texts(value: object, name: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(_is_path(text) for text in texts):
        raise ValueError(f"`{name}` should be a list of paths that begin with / or ~")
    return texts


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("/", "~/"))


def _read_limits(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise ValueError(f"`limits` should have settings: {', '.join(LIMITS)}")
    if unknown := [str(key) for key in value if key not in LIMITS]:
        raise ValueError(f"`limits` has no setting `{unknown[0]}`; it may have: {', '.join(LIMITS)}")
    return {name: _read_limit(name, size) for name, size in value.items()}


def _read_network(value: object) -> dict[str, Network]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return dict.fromkeys(PHASES, _network_of(value))
    if unknown := [str(phase) for phase in value if phase not in PHASES]:
        raise ValueError(f"`network` has no phase `{unknown[0]}`; it may have: {', '.join(PHASES)}")
    return {phase: _network_of(part) for phase, part in value.items() if part is not None}


def _network_of(value: object) -> Network:
    if isinstance(value, str) and value in NETWORKS:
        return value
    if isinstance(value, list) and value:
        for host in value:
            if not isinstance(host, str) or not _HOST.fullmatch(host):
                raise ValueError(f"`network` has `{host}`, which is not a host name like `example.com`")
        return tuple(value)
    raise ValueError(f"`network` should be one of {', '.join(NETWORKS)}, or a list of hosts")


def _read_limit(name: str, value: object) -> int:
    size = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+) ?([KMGT]?)i?B?", value.strip())):
        size = int(match[1]) * _UNITS[match[2]]
    if size is None or not 0 < size < 2**62:
        raise ValueError(f"`limits.{name}` should be a number above 0, or a size like 512M")
    return size


def _read_cache(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(_texts(value, "cache"), "read")
    for folder, mode in value.items():
        if not _is_path(folder) or mode not in CACHE_MODES:
            raise ValueError("`cache` should be a list of folders, or give each folder `read` or `copy`")
    return dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Permissions of one program."""

    write: Sequence[Path]
    """Folders it may change; their paths are the same inside."""
    home: Path
    """Its HOME: caches of the user appear there."""
    read: Sequence[Path] = ()
    """Files and folders it may read, besides the system and installed programs."""
    named: Sequence[str] = ()
    """Words of the plan: the files and folders among them may be read."""
    hidden: Sequence[Path] = ()
    """Folders it never sees as a whole: the user's HOME and Proctor's."""
    concealed: Sequence[Path] = ()
    """Files and folders that it does not see although a folder that it may read contains them."""
    network: Network = "none"
    serve: "Mapping[int, Serve]" = field(default_factory=dict)
    """Served ports on its loopback interface, with `network` `gateway` or hosts."""
    variables: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    cache: Mapping[str, str] = field(default_factory=dict)
    user_home: Path = Path("/")
    """The user's HOME, from which `~` in `read` and `cache` is resolved."""
    image: str = ""
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Folders it may change, by the absolute path at which it sees them too. Landlock cannot."""

    def inside(self, cache: Path) -> Path:
        """Where a cache of the user is seen: at the same place below the program's HOME."""
        if cache.is_relative_to(self.user_home):
            return self.home / cache.relative_to(self.user_home)
        return cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The sandboxes of one machine, with the settings that hold for all plans."""

    settings: object = None
    """`[sandbox]` of `proctor.toml`."""
    hidden: tuple[Path, ...] = ()
    user_home: Path = Path("/")

    def for_evaluators(self, own: object = None) -> "Sandbox":
        """The same for the functions and programs of evaluators of a plan with this `sandbox`."""
        merged = merge_settings(self.settings, own)
        if self.settings_of(own).kind == "container":
            # The image of an agent has neither Proctor's Python nor the evaluators.
            merged = merge_settings(merged, "auto")
        return replace(self, settings=merged)

    def settings_of(self, own: object) -> SandboxSettings:
        """The settings of an item with this `sandbox`."""
        try:
            return read_settings(merge_settings(self.settings, own))
        except ValueError as error:
            raise UsageError(f"`sandbox` {error}") from error

    def kind_of(self, own: object) -> str:
        """The kind of sandbox that confines an item with this `sandbox`.

        Raises `UsageError` if it does not work here, or cannot do what the settings say.
        """
        settings = self.settings_of(own)
        kind = available_kind(settings.kind)
        if kind == "landlock":
            if any(isinstance(network, tuple) for network in settings.network.values()):
                raise UsageError(
                    "the sandbox `landlock` cannot restrict the network to hosts\n"
                    "Install bubblewrap, or write `network: full` or `none`."
                )
            if "copy" in settings.cache.values():
                raise UsageError(
                    "the sandbox `landlock` has no copies of caches\nInstall bubblewrap, or write `read`."
                )
        return kind

    def summary(self, own: object, usual_network: Network | None = None) -> str:
        """How the programs of an item with this `sandbox` are confined, as a sentence.

        `usual_network` is the agent's where none is set. Raises `UsageError` if its sandbox does not work.
        """
        settings, kind = self.settings_of(own), self.kind_of(own)
        if kind == "none":
            if settings.kind == "none":
                return "`sandbox: none`: agents and checks are not confined"
            reasons = "; ".join(f"{name}: {problem_of(name)}" for name in AUTOMATIC)
            return f"agents and checks are NOT confined, because no sandbox works here ({reasons})"
        networks: dict[str, Network] = {phase: USUAL_NETWORK[phase] for phase in PHASES}
        if usual_network:
            networks["agent"] = usual_network
        networks.update(settings.network)
        parts = ", ".join(f"{phase} {_network_text(networks[phase])}" for phase in PHASES)
        return f"agents and checks are confined by {kind}; network: {parts}{_stronger(settings, kind)}"

    def evaluator_summary(self) -> str:
        """How the functions and programs of evaluators are confined, as a sentence.

        Raises `UsageError` if the sandbox does not work.
        """
        kind = self.kind_of(None)
        if kind == "none":
            return "functions and programs of evaluators are NOT confined"
        settings = self.settings_of(None)
        network = _network_text(settings.network.get("check") or USUAL_NETWORK["check"])
        better = _stronger(settings, kind)
        return f"functions and programs of evaluators are confined by {kind}; network: {network}{better}"

    def confine(
        self,
        phase: Phase,
        own: object,
        *,
        folders: Sequence[Path],
        home: Path,
        read: Sequence[Path] = (),
        named: Sequence[object] = (),
        serve: "Mapping[int, Serve] | None" = None,
        usual_network: Network | None = None,
        variables: Mapping[str, str] | None = None,
        mounts: Mapping[str, Path] | None = None,
        concealed: Sequence[Path] = (),
    ) -> "Confinement | None":
        """The confinement of the programs of one phase; None: they are not confined.

        `own` is the item's `sandbox`. The files and folders in `named`, which is text of the plan, can be
        read. `serve` is the gateway's port with what serves it. `usual_network` holds where neither sets one;
        `variables` are added to the environment; `mounts` are folders by the path at which the programs see
        them too; `concealed` are not visible in folders of named programs. Raises `UsageError` if the sandbox
        does not work here, and `AgentError` if a program has replaced one of `mounts` by a link.
        """
        settings, kind = self.settings_of(own), self.kind_of(own)
        if mounts and kind not in MOUNTING:
            raise UsageError(f"the sandbox `{kind}` cannot show a folder at {next(iter(mounts))}")
        if kind == "none":
            return None
        for folder in (mounts or {}).values():
            _refuse_links(folder, folders)
        network = settings.network.get(phase) or usual_network or USUAL_NETWORK[phase]
        served, more = dict(serve or {}) if network == "gateway" else {}, dict(variables or {})
        if isinstance(network, tuple):
            from proctor.sandbox.proxy import PORT, VARIABLES, proxy_to

            served, more = {**(serve or {}), PORT: proxy_to(network)}, {**more, **VARIABLES}
        policy = Policy(
            write=folders,
            home=home,
            read=[*read, *(_expanded(path, self.user_home) for path in settings.read)],
            named=list(_flat_texts(named)),
            hidden=self.hidden,
            concealed=concealed,
            network=network,
            serve=served,
            variables=more,
            limits={"CORE": 0, **{LIMITS[name]: size for name, size in settings.limits.items()}},
            cache={str(_expanded(path, self.user_home)): mode for path, mode in settings.cache.items()},
            user_home=self.user_home,
            image=settings.container,
            mounts=dict(mounts or {}),
        )
        return _module(kind).confine(policy)


def _refuse_links(folder: Path, writable: Sequence[Path]) -> None:
    """Refuse a folder that a program has replaced by a link: what it leads to would be mounted.

    Raises `AgentError`.
    """
    for path in writable:
        if folder.is_relative_to(path) and folder.resolve() != path.resolve() / folder.relative_to(path):
            raise AgentError(f"{folder} was replaced by a link")


def _flat_texts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | tuple):
            yield from _flat_texts(value)


def _stronger(settings: SandboxSettings, kind: str) -> str:
    """How to get the strongest sandbox, where another one is used in its place; for the end of a sentence."""
    if settings.kind != "auto" or kind == AUTOMATIC[0]:
        return ""
    return f"; {AUTOMATIC[0]} is stronger: {problem_of(AUTOMATIC[0])}"


def _network_text(network: Network) -> str:
    return network if isinstance(network, str) else ", ".join(network)


NOT_CONFINED = Sandbox(settings="none")
"""Confines nothing unless an item says otherwise."""


def _expanded(path: str, user_home: Path) -> Path:
    if path == "~" or path.startswith("~/"):
        return user_home / path[2:]
    return Path(path)


@cache
def available_kind(kind: str) -> str:
    """The kind of sandbox to use for a setting. Raises `UsageError` if it does not work on this machine."""
    if kind == "none":
        return kind
    problems = {}
    for candidate in AUTOMATIC if kind == "auto" else (kind,):
        if not (problem := problem_of(candidate)):
            return candidate
        problems[candidate] = problem
    if kind == "auto":
        return "none"
    raise UsageError(
        f"the sandbox `{kind}` does not work here: {problems[kind]}\n"
        "Install it, or write `sandbox: auto` for the strongest that works."
    )


@cache
def problem_of(kind: str) -> str:
    """Why a kind of sandbox does not work on this machine; empty: it works."""
    return _module(kind).problem()


class _Implementation(Protocol):
    """The module of a kind of sandbox."""

    def problem(self) -> str:
        """Why it does not work on this machine; empty: it works."""

    def confine(self, policy: Policy) -> "Confinement":
        """The confinement of a program under a policy."""


def _module(kind: str) -> _Implementation:
    # Loaded by runs that start programs only.
    return cast(_Implementation, import_module(f"proctor.sandbox.{kind}"))


def is_root() -> bool:
    """Whether this process may read everything."""
    return os.geteuid() == 0
