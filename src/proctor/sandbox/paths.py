"""Which files a confined program needs to read: the system, installed programs, and what the plan names.

The arguments of a program do not count: the prompt is among them, and a model writes the commands of its
tools. A program opens itself and the parts of an installation whose layout is known (`LAYOUTS`), never the
folder that happens to contain it. Folders of the user are never visible as a whole: a path is skipped if a
hidden folder is inside it. Files with credentials stay hidden in installations, and so do files of the system
that only root may read.
"""

import json
import os
import shlex
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.sandbox.scripts import Script, code_of, is_file, is_program, read_script
from proctor.secrets import TOOLCHAINS

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
_PROVIDED_PREFIXES = tuple(f"{root}/" for root in _PROVIDED)
_MEMORY = "/dev/shm/"
"""Where users keep files in memory; a sandbox has its own, empty one."""
_PROGRAM_FOLDERS = ("bin", "sbin", ".bin", "shims", "condabin")
"""Names of folders that contain programs and nothing else."""
_PACKAGES = "node_modules"
_PNPM = ".pnpm"
"""Packages of pnpm, by version. Links in `node_modules` lead to them, also from one to another."""
_PROGRAMS_OF_A_PREFIX = ("bin", "sbin", "libexec")
_OF_A_PROJECT = (".git", ".env")
"""A folder with one of them is no prefix: its `lib` and `share` may be somebody's data."""
_PREFIX_PARTS = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "include")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationLayout:
    """A folder structure by which an installation is recognized, and what of it can be read."""

    name: str
    marks: tuple[str, ...] = ()
    """Files and folders that it has, all of them."""
    folder_names: tuple[str, ...] = ()
    """Names that the folder itself may have; empty: any."""
    parts: tuple[str, ...] = ()
    """What of it can be read; empty: all."""

    def matches(self, folder: Path, program: Path) -> bool:
        """Whether a folder is an installation of this kind, and a program below it one of it."""
        if self.folder_names and folder.name not in self.folder_names:
            return False
        # Not anywhere in a folder that has `bin`.
        programs = program.parent
        if self.parts and (programs.name not in _PROGRAMS_OF_A_PREFIX or programs.parent != folder):
            return False
        if self.parts and any(map(os.path.lexists, (folder / name for name in _OF_A_PROJECT))):
            return False
        return all(os.path.exists(folder / mark) for mark in self.marks)  # noqa: PTH110 (see `_existing`)

    def visible(self, folder: Path) -> list[Path]:
        """What can be read of an installation."""
        return [folder / part for part in self.parts if (folder / part).exists()] if self.parts else [folder]


LAYOUTS = (
    InstallationLayout(name="pnpm store", folder_names=("links",), marks=("../files",)),
    InstallationLayout(name="Node packages", folder_names=(_PACKAGES, _PNPM)),
    InstallationLayout(name="Python environment (venv, pipx, uv tool)", marks=("pyvenv.cfg",)),
    InstallationLayout(name="Conda", marks=("conda-meta",)),
    InstallationLayout(name="Java", marks=("release", "bin/java", "lib")),
    InstallationLayout(name="Go", marks=("VERSION", "bin/go", "src", "pkg")),
    InstallationLayout(name="Flutter", marks=("bin/flutter", "packages")),
    InstallationLayout(name="Homebrew", marks=("bin/brew", "Library")),
    InstallationLayout(name="mise", marks=("shims", "installs")),
    InstallationLayout(
        name="version manager",
        folder_names=(
            ".asdf",
            ".bun",
            ".cargo",
            ".deno",
            ".dotnet",
            ".fnm",
            ".ghcup",
            ".goenv",
            ".jenv",
            ".juliaup",
            ".nodenv",
            ".npm-global",
            ".nvm",
            ".opam",
            ".pixi",
            ".proto",
            ".pyenv",
            ".rbenv",
            ".rustup",
            ".rye",
            ".sdkman",
            ".volta",
        ),
    ),
    *(
        InstallationLayout(name="prefix", marks=("bin", mark), parts=_PREFIX_PARTS)
        for mark in ("lib", "lib64", "libexec", "share")
    ),
)
"""Installations, the most specific first; the nearest to a program counts. Of a prefix only the usual
folders."""
_OF_PACKAGES = LAYOUTS[:2]
_HIGHEST = 8
"""How many folders above a program its installation is looked for, unless that is a folder of packages."""
_NOT_A_PREFIX = (".local",)
"""Holds the data of all programs, and of Proctor, besides `bin`."""
_PLACES = (
    *TOOLCHAINS,
    "CONDA_PREFIX",
    "GEM_HOME",
    "GEM_PATH",
    "LD_LIBRARY_PATH",
    "NODE_PATH",
    "NVM_DIR",
    "PERL5LIB",
    "PNPM_HOME",
    "PYTHONPATH",
    "SDKMAN_DIR",
    "VIRTUAL_ENV",
    "BUN_INSTALL",
    "DENO_INSTALL",
    "DOTNET_ROOT",
    "GOROOT",
    "GRADLE_HOME",
    "JAVA_HOME",
    "JULIA_DEPOT_PATH",
    "CARGO_HOME",
    "M2_HOME",
    "MAVEN_HOME",
    "ANDROID_HOME",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables of the user that name installed programs, their modules and public certificates. Others may name
keys: `KUBECONFIG`, `GOOGLE_APPLICATION_CREDENTIALS`."""
_CREDENTIALS = (
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".npmrc",
    ".pypirc",
    ".netrc",
    ".yarnrc.yml",
    ".dotnet/corefx",
)
"""Files below the user's HOME that installations contain."""
_MOST_PROGRAMS = 20
"""Programs that are followed from one: wrappers, shims of version managers, interpreters."""
_MOST_LINKS_OF_A_FILE = 10
_LONGEST = 4096
_MOST_LINKS = 500
_MOST_FILES = 100
"""Single files that are opened of one folder. Each is a mount for bubblewrap, whose time grows with the
square: 100 take 80 ms, 600 almost 2 s."""


def readable(program: Sequence[str], environment: Mapping[str, str], policy: "Policy") -> list[Path]:
    """Files and folders outside the system that a program with this environment needs to read."""
    private = (*policy.hidden, policy.user_home)
    # What an earlier program could write is visible anyway, and its links and first lines are not followed.
    own = tuple(_prefix(folder) for folder in policy.write)
    parts = environment.get("PATH", os.defpath).split(os.pathsep)
    search = os.pathsep.join(part for part in parts if not f"{part}/".startswith(own))
    places = list(_installations(search, private))
    for name in _PLACES:
        places += _existing(environment.get(name, "").split(os.pathsep))
    named = list(_named_paths([*policy.named, *program]))
    places += [place for place in named if not _prefix(place).startswith(own)]
    files = [str(place) for place in named if not place.is_dir()]
    places += _of_programs([*files, *program], search, private, own)
    places = [place for place in places if not _prefix(place).startswith(own)]
    hidden = [*(policy.user_home / name for name in _CREDENTIALS), *policy.concealed]
    chosen = _without_private(places, private)
    return [part for place in chosen for part in around(place, hidden)]


def listed(policy: "Policy") -> list[Path]:
    """Folders of named scripts: the names in them can be listed, as interpreters do to find modules."""
    private = (*policy.hidden, policy.user_home)
    own = tuple(_prefix(folder) for folder in policy.write)
    named = (place for place in _named_paths(policy.named) if not _prefix(place).startswith(own))
    scripts = [place for place in named if place.is_file()]
    code = (each.file for file in scripts if (script := read_script(file)) for each in code_of(script))
    return _without_private([place.parent for place in (*scripts, *code)], private)


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
    for path in sorted(dict.fromkeys(places), key=lambda path: len(path.parts)):
        text = _prefix(path)
        is_given = is_system(path) or (text.startswith(_PROVIDED_PREFIXES) and not text.startswith(_MEMORY))
        if is_given or str(path) in _SHARED:
            continue
        if not any(folder.startswith(text) for folder in private_texts) and not text.startswith(
            tuple(chosen)
        ):
            chosen[text] = path
    return list(chosen.values())


def is_system(path: Path) -> bool:
    """Whether a path is visible as part of the system."""
    text = _prefix(path)
    return text.startswith(_SYSTEM_PREFIXES) and not text.startswith(_closed_prefixes())


def _prefix(path: Path) -> str:
    """A path as text with a trailing slash: the prefix of all paths inside.

    Hundreds are compared for each program; comparing texts takes a tenth of the time.
    """
    text = str(path)
    return text if text.endswith("/") else f"{text}/"


def _existing(texts: Iterable[str]) -> Iterator[Path]:
    for text in texts:
        if text.startswith("/") and len(text) < _LONGEST and os.path.exists(text):  # noqa: PTH110 (not an error without permission)
            yield Path(os.path.normpath(text))


def _named_paths(command: Sequence[str]) -> Iterator[Path]:
    for argument in command:
        yield from _existing(_paths_in(argument))


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
            places += _on_the_path(folder, private)
    return tuple(dict.fromkeys(places))


def _on_the_path(folder: Path, private: tuple[Path, ...]) -> Iterator[Path]:
    """A folder of programs with its installation, and those of the programs that it links to."""
    if folder.name in _PROGRAM_FOLDERS:
        yield folder
    yield from installation_of(folder / "any", private)
    files = list[Path]()
    for entry in _entries(str(folder))[:_MOST_LINKS]:
        with suppress(OSError):
            if entry.is_symlink():
                real = Path(os.path.realpath(entry.path))
                if real.is_file() and os.access(real, os.X_OK) and not is_system(real):
                    installation = installation_of(real, private)
                    yield from installation
                    files += [Path(entry.path)] if installation else [Path(entry.path), real]
            elif entry.is_file() and entry.stat().st_mode & 0o111:
                files.append(Path(entry.path))
    # Those in a folder of programs are visible with it.
    single = [file for file in files if folder.name not in _PROGRAM_FOLDERS or file.parent != folder]
    yield from single[:_MOST_FILES]


def installation_of(program: Path, private: tuple[Path, ...] = ()) -> list[Path]:
    """What can be read of the installation that a program belongs to; empty: it belongs to none, or the
    system's."""
    if is_system(program):
        return []
    above = [
        folder
        for folder in program.parents
        if str(folder) not in _SHARED and folder not in private and folder.name not in _NOT_A_PREFIX
    ]
    # The outermost folder of packages contains what the inner ones need.
    packages = [folder for folder in above if any(each.matches(folder, program) for each in _OF_PACKAGES)]
    for folder in (*packages[-1:], *above[:_HIGHEST]):
        for layout in LAYOUTS:
            if layout.matches(folder, program):
                return [*layout.visible(folder), *_base_of(folder, private)]
    return []


def _base_of(folder: Path, private: tuple[Path, ...]) -> list[Path]:
    """The installation of Python that an environment is based on."""
    with suppress(OSError, UnicodeDecodeError):
        for line in (folder / "pyvenv.cfg").read_text(encoding="utf-8")[:_LONGEST].splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home" and value.strip().startswith("/"):
                # Tools name it by a link for each minor version.
                chain = [place for place in links_to(Path(value.strip()) / "python3") if not is_system(place)]
                return [*chain, *(part for place in chain for part in installation_of(place, private))]
    return []


def _of_programs(
    programs: Iterable[str], path: str, private: tuple[Path, ...], own: tuple[str, ...]
) -> Iterator[Path]:
    """What programs need to start: their installations or the code that they load from their folder, their
    interpreters, and the same for the programs that scripts start in their place."""
    pending, seen = list(programs), set[Path]()
    while pending and len(seen) < _MOST_PROGRAMS:
        location = shutil.which(pending[0], path=path) or pending[0]
        file = Path(location)
        del pending[0]
        if file in seen or not location.startswith("/") or location.startswith(own) or not is_file(file):
            continue
        seen.add(file)
        chain = links_to(file)
        yield from chain
        installations = [part for each in chain for part in installation_of(each, private)]
        yield from installations
        script = read_script(chain[-1])
        if script is None:
            continue
        code = [] if installations or is_system(chain[-1]) else list(islice(code_of(script), _MOST_FILES))
        yield from (each.file for each in code)
        yield from _packages_above(script, private)
        pending += script.interpreter
        for source in (script, *code):
            for target in source.named(file.parent if source is script else source.file.parent):
                if is_program(target):
                    pending.append(str(target))
                else:
                    # `activate` of an environment.
                    yield from installation_of(target, private)


def links_to(file: Path) -> list[Path]:
    """A file, the links on the way to it, and the file that they lead to."""
    chain = [file]
    while chain[-1].is_symlink() and len(chain) < _MOST_LINKS_OF_A_FILE:
        step = Path(os.path.normpath(chain[-1].parent / chain[-1].readlink()))
        if not is_file(step):
            break
        chain.append(step)
    real = Path(os.path.realpath(file))
    return [*chain, real] if chain[-1] != real else chain


def _packages_above(script: Script, private: tuple[Path, ...]) -> Iterator[Path]:
    """Where Node looks for the packages of a script, up to the folder of its repository or package."""
    if script.is_node and _PACKAGES not in script.file.parts:
        for folder in script.file.parents[:_HIGHEST]:
            if not _without_private([folder], private):
                return
            yield from _existing(str(folder / name) for name in (_PACKAGES, "package.json"))


def around(path: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """A file or folder without hidden parts: the whole, or everything around them."""
    if path in hidden or not path.exists():
        return
    if path.is_symlink() and any(path.resolve().is_relative_to(other) for other in hidden):
        return
    text = _prefix(path)
    if not any(_prefix(other).startswith(text) for other in hidden):
        yield path
        return
    for part in path.iterdir():
        yield from around(part, hidden)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


_ALWAYS_READABLE = ("/nix/store", "/gnu/store")
"""Package stores that make all files in them world-readable, and have millions."""
_MOST_ENTRIES = 1_000_000
"""Files that are looked at. Folders beyond are hidden: a system with all its programs has a third of it."""
_SEARCH_SECONDS = 600
"""How long a search of the system holds: it takes half a second, and each command would need one."""
_SEARCH_FILE = Path("/run/proctor-unreadable.json")
_CHECKED_DEPTH = 2
"""Folders down to this depth must not have changed since the last search: new programs are there."""
Unreadable = tuple[tuple[Path, ...], tuple[Path, ...]]
"""Files, and folders."""


@cache
def unreadable_system() -> Unreadable:
    """Files and folders of the system that only their owner may read: keys and passwords. Empty unless this
    process is root's: the kernel decides for others."""
    if os.geteuid() != 0:
        return (), ()
    if (stored := _stored_search()) is not None:
        return stored
    roots = [root for root in ("/etc", *SYSTEM) if not Path(root).is_symlink()]
    changes = _last_changes(roots)
    found = unreadable_in(*roots)
    _store_search(found, changes)
    return found


def _last_changes(roots: Sequence[str]) -> dict[str, int]:
    """When the upper folders last changed, in nanoseconds."""
    folders, level = dict[str, int](), list(roots)
    for _ in range(_CHECKED_DEPTH + 1):
        for folder in level:
            with suppress(OSError):
                folders[folder] = Path(folder).stat().st_mtime_ns
        level = [
            entry.path
            for folder in level
            for entry in _entries(folder)
            if entry.is_dir(follow_symlinks=False)
        ]
    return folders


def _stored_search() -> Unreadable | None:
    """The last search of the system, if it is recent and root's own."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        with _SEARCH_FILE.open("rb") as file:
            state = os.fstat(file.fileno())
            is_own = state.st_uid == 0 and not state.st_mode & 0o077
            if not is_own or not 0 <= time.time() - state.st_mtime < _SEARCH_SECONDS:
                return None
            content = json.load(file)
        if any(Path(folder).stat().st_mtime_ns != changed for folder, changed in content["changes"].items()):
            return None
        return tuple(map(Path, content["files"])), tuple(map(Path, content["folders"]))
    return None


def _store_search(found: Unreadable, changes: Mapping[str, int]) -> None:
    files, folders = ([str(place) for place in places] for places in found)
    new = _SEARCH_FILE.with_name(f"{_SEARCH_FILE.name}.{os.getpid()}")
    with suppress(OSError):
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"files": files, "folders": folders, "changes": changes}, file)
        new.replace(_SEARCH_FILE)


@cache
def _closed_prefixes() -> tuple[str, ...]:
    """Parts of the system that are not visible, as prefixes of their paths."""
    return tuple(_prefix(place) for places in unreadable_system() for place in places)


def unreadable_in(*folders: str) -> Unreadable:
    """Files and folders in folders that are not world-readable, without the content of such folders."""
    files, closed, count = list[Path](), list[Path](), 0
    pending = list(folders)
    for folder in pending:
        if count > _MOST_ENTRIES:
            closed.append(Path(folder))
            continue
        for entry in _entries(folder):
            count += 1
            try:
                mode = 0o777 if entry.is_symlink() else entry.stat().st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode):
                if mode & 0o005 != 0o005:
                    closed.append(Path(entry.path))
                elif entry.path not in _ALWAYS_READABLE:
                    pending.append(entry.path)
            elif not mode & 0o004:
                files.append(Path(entry.path))
    return tuple(files), tuple(closed)
