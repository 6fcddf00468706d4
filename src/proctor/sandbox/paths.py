"""Which files a confined program needs to read: the system, installed programs, and what the plan names.

The arguments of a program do not count: the prompt is among them, and a model writes the commands of its
tools. Folders of the user are never visible as a whole: a path is skipped if a hidden folder is inside it.
Files with credentials stay hidden in installations.
"""

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.sandbox import Policy

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix", "/gnu", "/snap")
SYSTEM_FILES = ("/sys/devices/system/cpu",)
"""Programs that look for the number of cores read these."""
_SHARED = ("/", "/tmp", "/var/tmp", "/home", "/root", "/var", "/mnt", "/media", "/srv", "/dev/shm")
"""Folders of several owners; never visible as a whole because a program or variable names them."""
_PROVIDED = ("/proc", "/dev", "/sys", "/run", "/var/run", "/etc")
"""Folders that a sandbox provides itself."""
_SYSTEM_PREFIXES = tuple(f"{root}/" for root in SYSTEM)
_GIVEN_PREFIXES = (*_SYSTEM_PREFIXES, *(f"{root}/" for root in _PROVIDED))
_MEMORY = "/dev/shm/"
"""Where users keep files in memory; a sandbox has its own, empty one."""
_PROGRAM_FOLDERS = ("bin", "sbin", "shims", "condabin")
_PLACES = (
    *(
        "CONDA_PREFIX",
        "GEM_HOME",
        "GEM_PATH",
        "LD_LIBRARY_PATH",
        "NODE_PATH",
        "NVM_DIR",
        "PERL5LIB",
        "PNPM_HOME",
    ),
    *("PYENV_ROOT", "PYTHONPATH", "RBENV_ROOT", "SDKMAN_DIR", "VIRTUAL_ENV", "VOLTA_HOME"),
    *("BUN_INSTALL", "DENO_INSTALL", "DOTNET_ROOT", "GOROOT", "GRADLE_HOME", "JAVA_HOME", "JULIA_DEPOT_PATH"),
    *("CARGO_HOME", "RUSTUP_HOME", "M2_HOME", "MAVEN_HOME", "ANDROID_HOME"),
    *("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
    *("SSL_CERT_DIR", "SSL_CERT_FILE"),
)
"""Variables of the user that name installed programs, their modules and public certificates. Others may name
keys: `KUBECONFIG`, `GOOGLE_APPLICATION_CREDENTIALS`."""
_CREDENTIALS = (
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml"),
    *(".gradle/gradle.properties", ".npmrc", ".pypirc", ".netrc", ".yarnrc.yml"),
)
"""Files below the user's HOME that installations contain."""
_LONGEST = 4096
_MOST_LINKS = 500


def readable(program: Sequence[str], environment: Mapping[str, str], policy: "Policy") -> list[Path]:
    """Files and folders outside the system that a program with this environment needs to read."""
    private = (*policy.hidden, policy.user_home)
    places = [*_installations(environment.get("PATH", os.defpath), private)]
    for name in _PLACES:
        places += _existing(environment.get(name, "").split(os.pathsep))
    places += _named([*policy.named, *program])
    for each in program:
        places += _interpreter(each, environment.get("PATH", os.defpath))
    hidden = [*(policy.user_home / name for name in _CREDENTIALS), *policy.concealed]
    chosen = _without_private(places, private)
    return [part for place in chosen for part in around(place, hidden)]


def python_installation() -> list[Path]:
    """Files that Proctor's Python needs, for the launcher."""
    return [Path(sys.base_prefix), Path(__file__).with_name("launcher.py")]


def interpreter() -> str:
    """The Python that runs the launcher: not a link in a virtual environment."""
    return os.path.realpath(sys.executable)


def _without_private(places: Iterable[Path], private: Sequence[Path]) -> list[Path]:
    """The places without those that contain a private folder, are shared, or are in another one."""
    chosen: dict[str, Path] = {}
    private_texts = [_prefix(folder) for folder in private]
    for place in sorted(dict.fromkeys(places), key=lambda path: len(path.parts)):
        text = _prefix(place)
        is_given = text.startswith(_GIVEN_PREFIXES) and not text.startswith(_MEMORY)
        if is_given or str(place) in _SHARED:
            continue
        if not any(folder.startswith(text) for folder in private_texts) and not text.startswith((*chosen,)):
            chosen[text] = place
    return list(chosen.values())


def is_system(place: Path) -> bool:
    """Whether a path is visible as part of the system."""
    return _prefix(place).startswith(_SYSTEM_PREFIXES)


def _prefix(place: Path) -> str:
    """A path as text with a trailing slash: the prefix of all paths inside.

    Hundreds are compared for each program; comparing texts takes a tenth of the time.
    """
    text = str(place)
    return text if text.endswith("/") else f"{text}/"


def _existing(texts: Iterable[str]) -> Iterator[Path]:
    for text in texts:
        if text.startswith("/") and len(text) < _LONGEST and Path(text).exists():
            yield Path(os.path.normpath(text))


def _named(command: Sequence[str]) -> Iterator[Path]:
    """The files and folders that a command names, with the folders of the files: their modules are there."""
    for argument in command:
        for place in _existing(_paths_in(argument)):
            yield place
            if not place.is_dir():
                yield from _home_of(place)
                yield from _home_of(Path(os.path.realpath(place)))


def _paths_in(argument: str) -> list[str]:
    if len(argument) > _LONGEST:
        return []
    if not any(mark in argument for mark in " \n;='\""):
        return [argument]
    try:
        return [part for word in shlex.split(argument) for part in (word, word.partition("=")[2])]
    except ValueError:
        return argument.split()


@lru_cache(maxsize=64)
def _installations(path: str, private: tuple[Path, ...]) -> tuple[Path, ...]:
    """The installations whose programs are on the PATH."""
    places: list[Path] = []
    for folder in _existing(path.split(os.pathsep)):
        if not is_system(folder):
            places += _installation(folder, private)
    return tuple(dict.fromkeys(places))


def _installation(folder: Path, private: tuple[Path, ...]) -> Iterator[Path]:
    parent = folder.parent
    yield folder
    # `~/.local` holds the data of all programs, and of Proctor, besides `bin`.
    if folder.name in _PROGRAM_FOLDERS and parent.name != ".local" and parent not in private:
        yield parent
    with os.scandir(folder) as entries:
        for _, entry in zip(range(_MOST_LINKS), entries, strict=False):
            if entry.is_symlink():
                yield from _home_of(Path(os.path.realpath(entry.path)))


def _home_of(program: Path) -> Iterator[Path]:
    """The installation of a program: the folder of its `bin`, or its own folder."""
    if not is_system(program):
        yield program.parent.parent if program.parent.name in _PROGRAM_FOLDERS else program.parent


def _interpreter(program: str, path: str) -> Iterator[Path]:
    """The installation of the interpreter in the first line of a script, and of the script."""
    for _ in range(3):
        location = shutil.which(program, path=path)
        if location is None:
            return
        real = Path(os.path.realpath(location))
        yield real
        yield from _home_of(Path(location))
        yield from _home_of(real)
        try:
            with real.open("rb") as file:
                first = file.readline(500)
        except OSError:
            return
        line = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
        if not line:
            return
        is_env = line[0].endswith("/env") and len(line) > 1
        program = line[-1] if is_env and not line[-1].startswith("-") else line[0]


def around(place: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """A file or folder without hidden parts: the whole, or everything around them."""
    if place in hidden or not place.exists():
        return
    if place.is_symlink() and any(place.resolve().is_relative_to(other) for other in hidden):
        return
    text = _prefix(place)
    if not any(_prefix(other).startswith(text) for other in hidden):
        yield place
        return
    for part in place.iterdir():
        yield from around(part, hidden)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


@cache
def unreadable_settings() -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files and folders in /etc that only their owner may read: keys and passwords."""
    return unreadable_in("/etc")


def unreadable_in(folder: str) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Files and folders in a folder that are not world-readable, without the content of such folders."""
    files, folders, pending = list[Path](), list[Path](), [folder]
    while pending:
        for entry in _entries(pending.pop()):
            try:
                mode = 0o777 if entry.is_symlink() else entry.stat().st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode):
                if mode & 0o005 == 0o005:
                    pending.append(entry.path)
                else:
                    folders.append(Path(entry.path))
            elif not mode & 0o004:
                files.append(Path(entry.path))
    return tuple(files), tuple(folders)
