"""Files below a folder that a confined program may have changed, without ever following one of its links.

Every function takes a folder that only Proctor can replace (`root`) and a path below it. Each part of that
path is opened relative to its parent and without following links, so a link that a program left in place of a
file or folder leads nowhere: it is replaced, removed, or reported as absent.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from proctor.workspace.folders import remove_at

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_LONGEST_PATH = 4096
"""Characters of a path that are kept: Linux opens no longer one."""

Relative = str | PurePosixPath | Path


@contextmanager
def opened(root: Path, relative: Relative = "", *, make: bool = False) -> Iterator[int]:
    """Descriptor of the folder `relative` below `root`.

    With `make`, what is in its way is removed and the folder created; otherwise raises `OSError` if a part of
    the path is missing, a link or not a folder.
    """
    # `root` itself belongs to us; the parts below it do not.
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in _parts(relative):
            inner = _open_part(descriptor, part, make=make)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _parts(relative: Relative) -> tuple[str, ...]:
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{relative} is not a path below a folder")
    return path.parts


def _open_part(parent: int, part: str, *, make: bool) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=parent)
    except PermissionError:
        # A program may take away its own permissions; the folder is ours all the same.
        if not stat.S_ISDIR(os.lstat(part, dir_fd=parent).st_mode):
            raise
        _allow(parent, part, 0o700)
        return os.open(part, _FOLDER, dir_fd=parent)
    except OSError:
        if not make:
            raise
        clear(parent, part)
        os.mkdir(part, dir_fd=parent)
        return os.open(part, _FOLDER, dir_fd=parent)


def _allow(parent: int, name: str, bits: int) -> None:
    """Add permissions to a file or folder, but not to what a link points to."""
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IMODE(mode) | bits)
    finally:
        os.close(descriptor)


def allow(root: Path, folders: Iterable[Relative], bits: int) -> None:
    """Add permissions to folders below `root`, as far as they are there, and no link."""
    for relative in folders:
        path = PurePosixPath(relative)
        with suppress(FileNotFoundError, NotADirectoryError), opened(root, path.parent) as parent:
            _allow(parent, path.name, bits)


def clear(parent: int, name: str) -> None:
    """Remove a file, link or folder with everything in it; nothing happens if there is none."""
    with suppress(FileNotFoundError):
        remove_at(parent, name)


def _parent_of(descriptor: int, identity: tuple[int, int]) -> int:
    """Descriptor of the folder above, which has this identity, in place of `descriptor`."""
    outer = os.open("..", _FOLDER, dir_fd=descriptor)
    if _identity(outer) != identity:
        os.close(outer)
        raise OSError("a folder was moved while it was read")
    os.close(descriptor)
    return outer


def names(folder: int) -> list[str]:
    """The names in a folder that is open."""
    with os.scandir(folder) as found:
        return [entry.name for entry in found]


def is_folder(root: Path, relative: Relative) -> bool:
    """Whether a path below `root` is a folder, and no part of it a link."""
    try:
        with opened(root, relative):
            return True
    except OSError:
        return False


def make_folder(root: Path, relative: Relative) -> bool:
    """Create a folder below `root`, in place of anything else; whether it was missing or something else."""
    if is_folder(root, relative):
        return False
    with opened(root, relative, make=True):
        return True


def exists(root: Path, relative: Relative) -> bool:
    """Whether there is anything at a path below `root`, a broken link included."""
    path = PurePosixPath(relative)
    try:
        with opened(root, path.parent) as folder:
            os.lstat(path.name, dir_fd=folder)
            return True
    except OSError:
        return False


def open_file(root: Path, relative: Relative) -> IO[bytes] | None:
    """A regular file, opened to be read; None if there is none."""
    path = PurePosixPath(relative)
    try:
        with opened(root, path.parent) as folder:
            descriptor = os.open(path.name, _FILE, dir_fd=folder)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


def read(root: Path, relative: Relative, limit: int) -> bytes | None:
    """The first `limit` bytes of a regular file; None if there is none."""
    file = open_file(root, relative)
    if file is None:
        return None
    with file:
        return file.read(limit)


def read_text(root: Path, relative: Relative, limit: int) -> str:
    """The first `limit` bytes of a regular file as text; empty if there is none."""
    return (read(root, relative, limit) or b"").decode("utf-8", "replace")


def write(root: Path, relative: Relative, data: bytes, mode: int = 0o644) -> None:
    """Write a file in place of what is there."""
    path = PurePosixPath(relative)
    with opened(root, path.parent, make=True) as folder:
        clear(folder, path.name)
        with os.fdopen(os.open(path.name, _NEW_FILE, mode, dir_fd=folder), "wb") as file:
            file.write(data)


def write_text(root: Path, relative: Relative, text: str) -> None:
    """Write a file of text in place of what is there."""
    write(root, relative, text.encode("utf-8", "surrogateescape"))


def write_private(root: Path, relative: Relative, text: str) -> Path:
    """Write a file that only its owner can read, such as one with a token, in place of what is there."""
    write(root, relative, text.encode("utf-8"), 0o600)
    return root / relative


def copy_in(source: Path, root: Path, relative: Relative) -> None:
    """Copy a file or link of ours to a path below `root`, in place of what is there."""
    path = PurePosixPath(relative)
    with opened(root, path.parent, make=True) as folder:
        clear(folder, path.name)
        if source.is_symlink():
            os.symlink(source.readlink(), path.name, dir_fd=folder)
            return
        with source.open("rb") as content:
            about = os.fstat(content.fileno())
            target = os.open(path.name, _NEW_FILE, 0o600, dir_fd=folder)
            with os.fdopen(target, "wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
                file.flush()
                os.fchmod(target, stat.S_IMODE(about.st_mode))
                os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def remove(root: Path, relative: Relative) -> None:
    """Remove a file, link or folder below `root`; nothing happens if there is none."""
    path = PurePosixPath(relative)
    try:
        with opened(root, path.parent) as folder:
            clear(folder, path.name)
    except OSError as error:
        if not isinstance(error, FileNotFoundError | NotADirectoryError) and exists(root, relative):
            raise


def move(root: Path, relative: Relative, target: Path) -> None:
    """Move a file, link or folder below `root` to a path of ours."""
    path = PurePosixPath(relative)
    with opened(root, path.parent) as folder, opened(target.parent) as outside:
        os.rename(path.name, target.name, src_dir_fd=folder, dst_dir_fd=outside)


def move_back(source: Path, root: Path, relative: Relative) -> None:
    """Move a file or folder of ours to a path below `root` at which nothing is."""
    path = PurePosixPath(relative)
    with opened(source.parent) as outside, opened(root, path.parent) as folder:
        os.rename(source.name, path.name, src_dir_fd=outside, dst_dir_fd=folder)


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A file, folder, link or anything else below a folder."""

    path: str
    """Relative to the folder that is listed; the end of it if it is too long to be opened."""
    folder: int
    """Descriptor of the folder that contains it, until the next entry."""
    name: str
    mode: int
    """Its type; 0 if it is a pipe, socket or device."""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    def remove(self) -> None:
        """Remove it."""
        clear(self.folder, self.name)

    def allow(self, bits: int) -> None:
        """Add permissions."""
        _allow(self.folder, self.name, bits)


def entries(root: Path, relative: Relative = "") -> Iterator[TreeEntry]:
    """Everything below a folder, a folder before its contents; nothing if it is missing or a link.

    Takes one descriptor however deep the folders are. Folders that cannot be read are passed over.
    """
    try:
        with opened(root, relative) as top:
            yield from _below(os.dup(top))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        if is_folder(root, relative):
            raise


def _below(descriptor: int) -> Iterator[TreeEntry]:
    above: list[tuple[str, tuple[int, int], list[TreeEntry]]] = []
    path, waiting = "", _listed(descriptor, "")
    try:
        while True:
            if waiting:
                entry = waiting.pop()
                yield TreeEntry(entry.path, descriptor, entry.name, entry.mode)
                if not entry.is_folder:
                    continue
                try:
                    inner = os.open(entry.name, _FOLDER, dir_fd=descriptor)
                except OSError:
                    # Removed by the caller, or not readable.
                    continue
                above.append((path, _identity(descriptor), waiting))
                os.close(descriptor)
                # No file of that path could be opened anyway.
                descriptor, path = inner, f"{entry.path}/"[-_LONGEST_PATH:]
                waiting = _listed(descriptor, path)
            elif above:
                path, identity, waiting = above.pop()
                descriptor = _parent_of(descriptor, identity)
            else:
                return
    finally:
        os.close(descriptor)


def _identity(descriptor: int) -> tuple[int, int]:
    about = os.fstat(descriptor)
    return about.st_dev, about.st_ino


def _kind(entry: os.DirEntry[str]) -> int:
    """The type of an entry, which the folder names: no further call of the system is needed for it."""
    if entry.is_symlink():
        return stat.S_IFLNK
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return stat.S_IFREG if entry.is_file(follow_symlinks=False) else 0


def _listed(descriptor: int, path: str) -> list[TreeEntry]:
    listed = list[TreeEntry]()
    with os.scandir(descriptor) as found:
        for entry in found:
            listed.append(TreeEntry(f"{path}{entry.name}", -1, entry.name, _kind(entry)))
    # The last is taken first.
    return sorted(listed, key=lambda entry: entry.name, reverse=True)
