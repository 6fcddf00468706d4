"""Folders that programs of others have written are removed whatever is in them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from proctor.testing import eventually
from proctor.workspace.folders import copy_folder, remove_abandoned, remove_folder

# Permissions mean nothing to root, unless it gives up its powers.
POWERLESS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def deep(folder: Path) -> None:
    """5,000 levels: a path of 55,000 characters."""
    here = Path.cwd()
    os.chdir(folder)
    for _ in range(5000):
        Path("ten-letter").mkdir()
        os.chdir("ten-letter")
    Path("file").touch()
    os.chdir(here)


def unreadable(folder: Path) -> None:
    inner = folder / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (inner / "file").touch(mode=0)
    for each in (inner, inner.parent, inner.parent.parent, folder):
        each.chmod(0)


def names(folder: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b"*", b"\\", b"removed-1", b"x" * 255):
        (folder / os.fsdecode(name)).mkdir()
        (folder / os.fsdecode(name) / os.fsdecode(name)).touch()


def special(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
    with (folder / "sparse").open("w") as file:
        file.truncate(1 << 40)


def links(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "here").symlink_to(".")
    (folder / "inside").mkdir()
    (folder / "inside" / "out").symlink_to(folder.parent / "kept")


def many(folder: Path) -> None:
    for number in range(3000):
        (folder / f"{number}").touch()
        (folder / f"folder-{number % 50}" / f"{number}").mkdir(parents=True)


def link_in_place(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to(folder.parent / "kept")


def file_in_place(folder: Path) -> None:
    folder.rmdir()
    folder.touch()


CASES = [deep, unreadable, names, special, links, many, link_in_place, file_in_place, Path.rmdir]
REMOVE = """
import pathlib, sys
from proctor.workspace.folders import remove_folder
print([problem for folder in sys.argv[1:] if (problem := remove_folder(pathlib.Path(folder)))])
"""


def test_folders_are_removed_whatever_is_in_them(tmp_path: Path) -> None:
    trees = [tmp_path / case.__name__ / "tree" for case in CASES]
    for tree, fill in zip(trees, CASES, strict=True):
        tree.mkdir(parents=True)
        (tree.parent / "kept" / "inner").mkdir(parents=True)
        fill(tree)

    words = [*POWERLESS, sys.executable, "-c", REMOVE, *map(str, trees)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)

    assert ended.stdout == "[]\n"
    left = [path.relative_to(tmp_path).parts[1:] for path in tmp_path.rglob("*/*")]
    assert sorted(left) == sorted([("kept",), ("kept", "inner")] * len(CASES))


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "locked" / "tree"
    folder.mkdir(parents=True)
    (tmp_path / "locked").chmod(0o500)
    words = [*POWERLESS, sys.executable, "-c", REMOVE, str(folder)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "Permission denied" in ended.stdout and str(folder) in ended.stdout
    assert remove_folder(tmp_path / "locked") == ""


def test_folders_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    """A killed process leaves a temporary folder with its lock, or one that is marked as removed."""
    script = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from proctor.workspace.folders import temporary_folder\n"
        "async def main():\n"
        "    async with temporary_folder(Path(sys.argv[1]), 'merging-1') as folder:\n"
        "        (folder / 'inner').mkdir(parents=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    trees = tmp_path / "worktrees"
    (trees / "removed-1" / "shop").mkdir(parents=True)
    (trees / "session" / "shop").mkdir(parents=True)
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)])
    try:
        eventually((trees / "merging-1" / "inner").is_dir)
        assert remove_abandoned(tmp_path) == []
        assert sorted(path.name for path in trees.iterdir()) == ["merging-1", "merging-1.lock", "session"]
    finally:
        owner.kill()
        owner.wait()

    assert remove_abandoned(tmp_path) == []

    assert [path.name for path in trees.iterdir()] == ["session"]


def test_a_copied_folder_keeps_links_modes_and_times(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "tool").touch(mode=0o750)
    os.utime(source / "bin" / "tool", (1, 1))
    os.link(source / "bin" / "tool", source / "same")
    (source / "link").symlink_to("/nowhere")

    copy_folder(source, tmp_path / "copy")

    copied = (tmp_path / "copy" / "bin" / "tool").stat()
    assert (copied.st_mode & 0o777, copied.st_mtime, copied.st_nlink) == (0o750, 1, 2)
    assert (tmp_path / "copy" / "link").readlink() == Path("/nowhere")
    assert copied.st_ino != (source / "same").stat().st_ino
