"""Large files of git-lfs: pointers and their objects, and a filter that git starts in a session's worktree.

As a program: `large_files.py STORE [STORE...]` serves git's filter protocol (version 2). It replaces content
by a pointer, whose object it keeps in the first store, and a pointer by the content that one of the stores
has. Proctor's git uses it in place of git-lfs once a confined program has run in a tree: git-lfs would read
settings of that tree. Standard library only: it runs without site packages.
"""

import hashlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

LONGEST_POINTER = 1024
"""Bytes; git-lfs takes no longer file for a pointer."""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-[^\n]+\n)*oid sha256:([0-9a-f]{64})\nsize \d+\n"
)
_LARGEST_PACKET = 65_516
"""Bytes of content in one packet of the protocol."""


def object_path(digest: str) -> Path:
    """Where a store has the object of this digest."""
    return Path(digest[:2], digest[2:4], digest)


def pointer_digest(content: bytes) -> str:
    """The digest that a pointer names; empty if the content is no pointer."""
    match = _POINTER.fullmatch(content) if len(content) <= LONGEST_POINTER else None
    return match[1].decode() if match else ""


def keep_object(content: IO[bytes], store: Path, digest: str = "") -> str:
    """Copy content to a store under its digest, which is returned.

    With `digest`, only if it is the content's; returns an empty text if it is not.
    """
    store.mkdir(parents=True, exist_ok=True)
    whole = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=store, prefix="making-", delete=False) as partial:
        try:
            while chunk := content.read(1 << 20):
                whole.update(chunk)
                partial.write(chunk)
            partial.close()
            actual = whole.hexdigest()
            if digest and actual != digest:
                return ""
            target = store / object_path(actual)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                Path(partial.name).chmod(0o644)
                Path(partial.name).rename(target)
            return actual
        finally:
            Path(partial.name).unlink(missing_ok=True)


def _packets(stream: IO[bytes]) -> Iterator[bytes]:
    """The packets up to the next flush packet."""
    while True:
        head = stream.read(4)
        if len(head) < 4:
            raise EOFError
        size = int(head, 16)
        if size < 4:
            return
        yield stream.read(size - 4)


def _send(stream: IO[bytes], *lines: str) -> None:
    """Send a list of lines, which a flush packet ends."""
    for line in lines:
        stream.write(b"%04x%s\n" % (len(line) + 5, line.encode()))
    stream.write(b"0000")
    stream.flush()


def _send_content(stream: IO[bytes], content: IO[bytes]) -> None:
    _send(stream, "status=success")
    while chunk := content.read(_LARGEST_PACKET):
        stream.write(b"%04x%s" % (len(chunk) + 4, chunk))
    stream.write(b"0000")
    # An empty list: the status stays.
    stream.write(b"0000")
    stream.flush()


def serve(stores: list[Path], source: IO[bytes], target: IO[bytes]) -> None:
    """Answer git's requests until it closes the pipe."""
    try:
        list(_packets(source))
        _send(target, "git-filter-server", "version=2")
        list(_packets(source))
        _send(target, "capability=clean", "capability=smudge")
        while True:
            request = dict(line.rstrip(b"\n").split(b"=", 1) for line in _packets(source))
            with tempfile.SpooledTemporaryFile(max_size=1 << 20) as content:
                for packet in _packets(source):
                    content.write(packet)
                size = content.tell()
                content.seek(0)
                head = content.read(LONGEST_POINTER + 1)
                content.seek(0)
                _answer(request.get(b"command", b""), head, size, content, stores, target)
    except EOFError:
        return


def _answer(
    command: bytes, head: bytes, size: int, content: IO[bytes], stores: list[Path], target: IO[bytes]
) -> None:
    digest = pointer_digest(head)
    if command == b"clean" and size and not digest:
        oid = keep_object(content, stores[0])
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"
        _send_content(target, io.BytesIO(text.encode()))
        return
    files = (store / object_path(digest) for store in stores) if digest and command == b"smudge" else ()
    for file in files:
        if file.is_file():
            with file.open("rb") as opened:
                _send_content(target, opened)
            return
    _send_content(target, content)


if __name__ == "__main__":
    serve([Path(folder) for folder in sys.argv[1:]], sys.stdin.buffer, sys.stdout.buffer)
