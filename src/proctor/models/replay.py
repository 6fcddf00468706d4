"""Answer from a recording instead of asking anyone: the same bytes, in the same order, offline.

Each attempt at an item gets the exchanges of its take one after the other, as long as it asks what
was asked then. Where it departs, that is said, and the answer to an equal request is looked for
elsewhere in the recording; a request nobody has ever made is not answered.

Knows nothing of wires or providers. Reads a file that may be far larger than memory.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proctor.errors import ModelError, NotFound
from proctor.models.canonical import canonical, first_difference, request_digest
from proctor.models.recording import Channel, Exchange, exchange_of, lines_of

PREFIX = "replay/"
"""`replay/FILE` is the model that answers from FILE, whichever item asks."""


class NotRecorded(ModelError):
    """The recording has no answer to this request."""

    reason = "not_recorded"


class Found(NamedTuple):
    """An exchange that answers a request, and what was odd about finding it."""

    exchange: Exchange
    departure: str
    """Where the attempt departed from the recording; empty when it did not."""


class _Line(NamedTuple):
    """Where an exchange stands in the file."""

    item: str
    channel: str
    take: int
    number: int
    beside: tuple[int, ...]
    """The exchanges that were under way when this one began."""
    digest: str
    model: str
    offset: int
    size: int


class Replay:
    """A recording that is being played."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._takes: dict[tuple[str, str, int], list[_Line]] = defaultdict(list)
        self._equal: dict[str, list[_Line]] = defaultdict(list)
        self._begun: Counter[tuple[str, str]] = Counter()
        for found in lines_of(file):
            line = _Line(
                found["item"],
                found["channel"],
                found["take"],
                found["n"],
                tuple(found["beside"]),
                found["digest"],
                found["model"],
                found["offset"],
                found["size"],
            )
            self._takes[line.item, line.channel, line.take].append(line)
            self._equal[line.digest].append(line)
        for lines in self._takes.values():
            # Written in the order in which they ended; asked in the order in which they began.
            lines.sort(key=lambda line: line.number)
        self._known = {(item, channel) for item, channel, _ in self._takes}
        self._file = file.open("rb")

    def take(self, item_id: str, channel: Channel, volatile: Sequence[str] = ()) -> "ReplayedTake":
        """Begin an attempt at an item; an item the recording does not know is answered by equal requests."""
        return ReplayedTake(self, item_id, channel, tuple(volatile))

    def _begin(self, item_id: str, channel: Channel) -> list[_Line] | None:
        """The exchanges of the attempt that begins now; None when nothing is known of the item."""
        if (item_id, channel) not in self._known:
            return None
        self._begun[item_id, channel] += 1
        return self._takes.get((item_id, channel, self._begun[item_id, channel]), [])

    def close(self) -> None:
        """Be done with the file."""
        self._file.close()

    def _line(self, line: _Line) -> dict[str, Any]:
        self._file.seek(line.offset)
        read: dict[str, Any] = json.loads(self._file.read(line.size))
        return read


class ReplayedTake:
    """The exchanges of one attempt, being played."""

    def __init__(self, replay: Replay, item_id: str, channel: Channel, volatile: tuple[str, ...]) -> None:
        self._replay = replay
        self._item_id = item_id
        self._channel = channel
        self._volatile = volatile
        self._asked = 0
        self._lines: list[_Line] | None = None
        self._left: list[_Line] = []
        self._given: Counter[str] = Counter()

    def find(self, wire: str, operation: str, model: str, request: Any) -> Found:
        """The answer to a request, or `NotRecorded`, which says where it departs."""
        if not self._asked:
            self._lines = self._replay._begin(self._item_id, self._channel)
            self._left = list(self._lines or ())
        self._asked += 1
        body = canonical(request, self._volatile)
        digest = request_digest(wire, operation, body)
        if (due := self._due(digest)) is not None:
            return self._give(due, "")
        departure = self._departure(body)
        if (equal := self._equal(digest, model)) is None:
            raise NotRecorded(
                f"not in the recording {self._replay.file.name}: {departure or 'nobody asked this'}"
            )
        return self._give(equal, departure)

    def _due(self, digest: str) -> _Line | None:
        """The next exchange, or one that was under way beside all that are due before it."""
        before = set[int]()
        for line in self._left:
            if not before.issubset(line.beside):
                return None
            if line.digest == digest:
                return line
            before.add(line.number)
        return None

    def _give(self, line: _Line, departure: str) -> Found:
        if line in self._left:
            self._left.remove(line)
        self._given[line.digest] += 1
        return Found(exchange_of(self._replay._line(line)), departure)

    def _equal(self, digest: str, model: str) -> _Line | None:
        """An exchange with an equal request: of this attempt, of this item, of this model, or of anyone."""
        mine = [line for line in self._left if line.digest == digest]
        if mine:
            return mine[0]
        anyone = self._replay._equal.get(digest, [])
        candidates = (
            [line for line in anyone if line.item == self._item_id]
            or [line for line in anyone if line.model == model]
            or anyone
        )
        if not candidates:
            return None
        # The n-th time the same is asked, the n-th answer; after the last one, that one again.
        return candidates[min(self._given[digest], len(candidates) - 1)]

    def _departure(self, body: Any) -> str:
        if self._lines is None:
            return ""
        where = f"call {self._asked} departed from the recording"
        if not self._left:
            return f"{where}: there it had {len(self._lines)}"
        recorded = self._replay._line(self._left[0])
        difference = first_difference(canonical(recorded["request"], recorded["volatile"]), body)
        return f"{where} at {difference or 'what it asks for: another operation'}"


def find_recording(model: str, folders: Iterable[Path]) -> Replay:
    """The recording `replay/FILE` means: a file in one of the folders."""
    name = model.removeprefix(PREFIX)
    searched = list(folders)
    for folder in searched:
        for candidate in (folder / name, folder / f"{name}.ndjson"):
            # A plan may come from someone else; its recordings stay beside it.
            if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
                return Replay(candidate)
    places = ", ".join(map(str, searched)) or "no folder"
    raise NotFound(f"there is no recording `{name}` in {places}")
