"""Filters of the user's settings that change files as git reads and writes them, besides large files.

Such a filter may be a program in the tree, or one that loads modules from it. Outside of a sandbox it runs
once: while the tree is filled, before any confined program. What it wrote then is kept, so that files which
nobody changed are committed as they were and can be restored. Files that an agent changed are cleaned by the
filter inside a sandbox; where that fails, they are committed as they are, or not at all if it is required.
"""

import hashlib
import json
import shlex
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from proctor.sandbox import available_kind
from proctor.workspace import beneath
from proctor.workspace.agent_repository import run_confined

if TYPE_CHECKING:
    from proctor.workspace.worktree import Worktree

LARGEST_FILE = 64 << 20
"""Bytes; larger files are not filtered."""
MOST_FILES = 1000
_RECORD = "filtered.json"


def _commands(tree: "Worktree") -> dict[str, dict[str, str]]:
    """The settings of each filter, by its name."""
    commands = dict[str, dict[str, str]]()
    for setting, value in tree.file_settings.filters:
        name, _, key = setting.removeprefix("filter.").rpartition(".")
        if name != "lfs":
            commands.setdefault(name, {})[key] = value
    return commands


def _filters_of(tree: "Worktree", paths: Sequence[str]) -> dict[str, str]:
    """The filter that the attributes of each path name, if the user's settings have it."""
    commands = _commands(tree)
    if not commands or not paths:
        return {}
    listed = tree.git("check-attr", "--stdin", "-z", "filter", stdin="".join(f"{path}\0" for path in paths))
    fields = listed.split("\0")
    return {path: name for path, name in zip(fields[::3], fields[2::3], strict=False) if name in commands}


def keep_filtered(tree: "Worktree") -> None:
    """Keep what the filters made of the files of the base commit."""
    entries = dict(_staged(tree)) if _commands(tree) else {}
    record = dict[str, list[str]]()
    for path in _filters_of(tree, list(entries)):
        content = _content(tree, path)
        if content is not None:
            (tree.control / "smudged").mkdir(exist_ok=True)
            (tree.control / "smudged" / entries[path][1]).write_bytes(content)
            record[path] = [*entries[path], hashlib.sha256(content).hexdigest()]
    if record:
        (tree.control / _RECORD).write_text(json.dumps(record))


def _content(tree: "Worktree", path: str) -> bytes | None:
    content = beneath.read(tree.place, PurePosixPath(tree.folder.name) / path, LARGEST_FILE + 1)
    return content if content is not None and len(content) <= LARGEST_FILE else None


def _kept(tree: "Worktree") -> Mapping[str, Sequence[str]]:
    file = tree.control / _RECORD
    return json.loads(file.read_text()) if file.is_file() else {}


def restore_filtered(tree: "Worktree") -> None:
    """Write files of the base commit as the filters made them, after git has written them without filters."""
    if not (kept := _kept(tree)):
        return
    staged = dict(_staged(tree))
    for path, (mode, blob, _) in kept.items():
        if staged.get(path) == (mode, blob):
            target = PurePosixPath(tree.folder.name) / path
            beneath.write(
                tree.place, target, (tree.control / "smudged" / blob).read_bytes(), int(mode[-3:], 8)
            )


def _staged(tree: "Worktree") -> Iterable[tuple[str, tuple[str, str]]]:
    for entry in tree.git("ls-files", "--stage", "-z").split("\0"):
        about, _, path = entry.partition("\t")
        if path:
            mode, blob, _ = about.split()
            yield path, (mode, blob)


def clean_staged(tree: "Worktree", head: str) -> list[str]:
    """Replace files in the index by what their filters make of them; notes on those that could not be."""
    if not _commands(tree):
        return []
    listed = tree.git("diff-index", "--cached", "--name-only", "--diff-filter=AM", "--no-renames", "-z", head)
    filters = _filters_of(tree, [path for path in listed.split("\0") if path][:MOST_FILES])
    kept, staged = _kept(tree), dict(_staged(tree))
    lines, changed = list[str](), dict[str, str]()
    for path, name in filters.items():
        content = _content(tree, path)
        mode, blob, digest = kept.get(path, ("", "", ""))
        if content is not None and hashlib.sha256(content).hexdigest() == digest:
            lines.append(f"{mode} {blob}\t{path}\0")
        elif content is not None:
            changed[path] = name
    notes = list[str]()
    if changed:
        cleaned = _clean(tree, changed)
        for path, name in changed.items():
            mode, _ = staged[path]
            if path in cleaned:
                blob = tree.git("hash-object", "-w", "--stdin", "--no-filters", stdin=cleaned[path]).strip()
                lines.append(f"{mode} {blob}\t{path}\0")
            elif _commands(tree)[name].get("required") == "true":
                before = tree.git("ls-tree", "-z", head, "--", path, GIT_LITERAL_PATHSPECS="1").strip("\0")
                about, _, _ = before.partition("\t")
                lines.append(f"{before}\0" if about else f"0 {'0' * len(head)}\t{path}\0")
                notes.append(
                    f"{path} is not committed as the agent left it: filter `{name}` failed in the sandbox"
                )
            else:
                notes.append(f"{path} is committed without filter `{name}`, which failed in the sandbox")
    if lines:
        tree.git("update-index", "-z", "--index-info", stdin="".join(lines))
    return notes


def _clean(tree: "Worktree", filters: Mapping[str, str]) -> dict[str, bytes]:
    """What filters make of files, inside a sandbox; those that fail are missing."""
    if available_kind("auto") == "none":
        # Whatever confined the agent, nothing here would confine the filter.
        return {}
    commands, names = _commands(tree), {path: f"clean-{uuid.uuid4().hex}" for path in filters}
    script = list[str]()
    for path, name in filters.items():
        if command := commands[name].get("clean"):
            command = command.replace("%f", shlex.quote(path))
            target, source = (
                shlex.quote(str(tree.place / part)) for part in (names[path], f"{tree.folder.name}/{path}")
            )
            script.append(f"( {command}\n) < {source} > {target} || rm -f {target}")
    try:
        run_confined(tree, "\n".join(script), folder=tree.folder)
        contents = {path: beneath.read(tree.place, name, LARGEST_FILE) for path, name in names.items()}
        return {path: content for path, content in contents.items() if content is not None}
    finally:
        for name in names.values():
            beneath.remove(tree.place, name)
