"""Keep the traffic of a batch in a file, exchange by exchange, so that it can be had again offline.

One line of JSON an exchange, written when it has ended: what was asked, and the answer in the very
bytes and pieces it came in. Exchanges belong to a *take*: one attempt at one item, numbered in the
order in which attempts began, and within it they are numbered in the order in which they began.

Knows nothing of providers; the keys it must not write are taken out by whoever hands exchanges over.
"""

import base64
import binascii
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from proctor.errors import ModelError, NotFound, UsageError
from proctor.item import digest_of

# What two requests have in common once everything that is only of the moment is taken out.


ONLY_OF_THE_MOMENT = frozenset(
    {"model", "user", "metadata", "prompt_cache_key", "safety_identifier", "client_metadata"}
)
"""Keys of a request that do not change what is asked: who asks, in which session, under which name."""


_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"


_PASSING = re.compile(
    "|".join(
        (
            r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})",
            r"(?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?Z|[+-]\d\d:?\d\d)?)?"
            rf"|(?:{_DAY},? )?{_MONTH} \d{{1,2}},? \d{{4}}|\d{{1,2}}/\d{{1,2}}/\d{{4}})",
            # The moment in the name of a session's branch; agents tell their model which branch they are on.
            r"(?P<moment>\b\d{8}-\d{6}\b)",
            r"(?P<time>\d{1,2}:\d\d:\d\d(?: ?[AP]M)?)",
            r"(?P<path>(?:/private)?/(?:tmp|var/folders|var/tmp|dev/shm)/[^\s\"'`<>:;,()\[\]]*)",
            r"(?P<port>(?:127\.0\.0\.1|localhost|\[::1\]):\d+)",
            r"(?P<duration>\d+\.\d+ ?(?:ms|seconds|secs?|s)\b)",
            r"(?P<id>\b(?:call|toolu|msg|resp|rs|fc|item|chatcmpl)[_-][A-Za-z0-9_-]{8,})",
            r"(?P<hex>(?<![0-9A-Za-z])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}(?![0-9A-Za-z]))",
        )
    )
)


# More of a text than this is not shown when two requests differ.
SHOWN_CHARACTERS = 80


def canonical(body: Any, volatile: Iterable[str] = ()) -> Any:
    """`body` without what is only of the moment; `volatile` texts are this session's own folders and ids."""
    own = sorted(filter(None, volatile), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, own))) if own else None
    if isinstance(body, Mapping):
        body = {key: value for key, value in body.items() if key not in ONLY_OF_THE_MOMENT}
    return _masked(body, pattern)


def request_digest(wire: str, operation: str, canonical_body: Any) -> str:
    """The same for requests that ask the same of the same operation."""
    return digest_of([wire, operation, canonical_body])


def first_difference(recorded: Any, now: Any, where: str = "") -> str:
    """Where two canonical requests first differ, for people; empty when they do not."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in sorted({*recorded, *now}, key=str):
            below = f"{where}.{key}" if where else str(key)
            if key not in recorded:
                return f"{below} is new: {_shown(now[key])}"
            if key not in now:
                return f"{below} is gone: it was {_shown(recorded[key])}"
            if found := first_difference(recorded[key], now[key], below):
                return found
        return ""
    if isinstance(recorded, list) and isinstance(now, list):
        for number, (before, after) in enumerate(zip(recorded, now, strict=False)):
            if found := first_difference(before, after, f"{where}[{number}]"):
                return found
        if len(recorded) != len(now):
            return f"{where} has {len(now)} entries where {len(recorded)} were recorded"
        return ""
    if recorded == now:
        return ""
    if isinstance(recorded, str) and isinstance(now, str):
        return f"{where}: {_around(recorded, now)}"
    return f"{where}: recorded {_shown(recorded)}, now {_shown(now)}"


def _masked(value: Any, own: re.Pattern[str] | None) -> Any:
    if isinstance(value, str):
        if own is not None:
            value = own.sub("<own>", value)
        return _PASSING.sub(_name_of, value)
    if isinstance(value, Mapping):
        return {key: _masked(each, own) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_masked(each, own) for each in value]
    return value


def _name_of(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind == "path":
        # Which file it is still counts; where its folder lies does not.
        parts = found[0].rstrip("/").split("/")
        return "<path>/" + parts[-1] if len(parts) > 3 else "<path>"
    return f"<{kind}>"


def _around(recorded: str, now: str) -> str:
    """The place in two long texts from which on they differ."""
    same = next(
        (place for place, (a, b) in enumerate(zip(recorded, now, strict=False)) if a != b),
        min(len(recorded), len(now)),
    )
    start = max(0, same - SHOWN_CHARACTERS // 4)
    return f"recorded {_shown(recorded[start:])}, now {_shown(now[start:])} (from character {same + 1} on)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


VERSION = 1


Channel = Literal["gateway", "process"]
"""How the calls of an attempt came: over HTTP, or from our own code. Each has an order of its own."""


IN_PROCESS = "proctor"
"""The wire of calls that never left this process: our own request and answer as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer, as they went over the wire."""

    wire: str
    """In which format it was asked: `chat`, `responses`, `messages`, `gemini`, or `proctor`."""
    operation: str
    """What was asked for: the path without the model's name."""
    model: str
    request: Any
    """The body, parsed."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those the client needs to read the answer."""
    chunks: Sequence[bytes] = ()
    hidden: Sequence[bytes] = ()
    """What was said to us alone: the tokens of a stream, for which the client had not asked."""
    whole: bool = True
    """False: it was broken off after these chunks."""


class Recording:
    """A file that grows by an exchange at a time. Close it at the end."""

    def __init__(self, file: Path, blot: Callable[[str], str] = str) -> None:
        """Goes on with a file that is there; `blot` takes the user's secrets out of what is written."""
        self.file = file
        self._blot = blot
        self._takes: Counter[tuple[str, str]] = Counter()
        if file.exists():
            for line in lines_of(file):
                key = line["item"], line["channel"]
                self._takes[key] = max(self._takes[key], line["take"])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._out = file.open("ab")
        except OSError as error:
            raise UsageError(f"cannot record to {file}: {error.strerror}") from error
        if _is_torn(file):
            # A process was killed while it wrote; its half line must not spoil ours.
            self._out.write(b"\n")

    def take(self, item_id: str, channel: Channel, volatile: Sequence[str] = ()) -> "RecordedTake":
        """Begin an attempt at an item; `volatile` texts are its own folders and ids."""
        return RecordedTake(self, item_id, channel, tuple(volatile))

    def _number(self, item_id: str, channel: Channel) -> int:
        self._takes[item_id, channel] += 1
        return self._takes[item_id, channel]

    def close(self) -> None:
        """Be done with the file."""
        self._out.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        self._out.write(self._blot(text).encode("utf-8", "replace") + b"\n")
        # An exchange that was told of has to be there, whatever becomes of this process.
        self._out.flush()


class RecordedTake:
    """The exchanges of one attempt, being recorded."""

    def __init__(
        self, recording: Recording, item_id: str, channel: Channel, volatile: tuple[str, ...]
    ) -> None:
        self._recording = recording
        self._item_id = item_id
        self._channel = channel
        self._volatile = volatile
        self._number = 0
        self._begun = 0
        self._open: set[int] = set()
        self._beside: dict[int, list[int]] = {}

    def begin(self) -> int:
        """The number of an exchange that begins now."""
        if not self._number:
            # Only now: an attempt that asks nothing leaves no trace to be counted by.
            self._number = self._recording._number(self._item_id, self._channel)
        self._begun += 1
        # Calls that are made at the same time have no order worth keeping.
        self._beside[self._begun] = sorted(self._open)
        self._open.add(self._begun)
        return self._begun

    def keep(self, number: int, exchange: Exchange) -> None:
        """Write down how the exchange of that number went."""
        self._open.discard(number)
        body = canonical(exchange.request, self._volatile)
        self._recording._write(
            {
                "v": VERSION,
                "item": self._item_id,
                "channel": self._channel,
                "take": self._number,
                "n": number,
                "beside": self._beside.pop(number, []),
                "wire": exchange.wire,
                "operation": exchange.operation,
                "model": exchange.model,
                "digest": request_digest(exchange.wire, exchange.operation, body),
                "volatile": self._volatile,
                "request": exchange.request,
                "status": exchange.status,
                "headers": dict(exchange.headers),
                "chunks": list(map(_written, exchange.chunks)),
                **({"hidden": list(map(_written, exchange.hidden))} if exchange.hidden else {}),
                "whole": exchange.whole,
            }
        )


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a recording, each with its `offset` and `size`; one cut short by a kill is left out."""
    offset = 0
    try:
        with file.open("rb") as lines:
            for raw in lines:
                line = _parsed(raw)
                if line is not None:
                    yield {**line, "offset": offset, "size": len(raw)}
                elif offset == 0 and raw.endswith(b"\n"):
                    raise UsageError(f"{file} is no recording: its first line is not an exchange")
                offset += len(raw)
    except OSError as error:
        raise UsageError(f"cannot read the recording {file}: {error.strerror}") from error


def exchange_of(line: Mapping[str, Any]) -> Exchange:
    """A line of a recording as the exchange it tells of."""
    return Exchange(
        wire=line["wire"],
        operation=line["operation"],
        model=line["model"],
        request=line["request"],
        status=line["status"],
        headers=line["headers"],
        chunks=tuple(map(_read, line["chunks"])),
        hidden=tuple(map(_read, line.get("hidden", ()))),
        whole=line["whole"],
    )


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and line.get("v") == VERSION else None


def _written(chunk: bytes) -> str | dict[str, str]:
    """Text stays readable; what is none (half of a letter, say) is kept to the bit."""
    try:
        return chunk.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


def _read(chunk: str | Mapping[str, str]) -> bytes:
    try:
        return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])
    except (binascii.Error, KeyError) as cause:
        raise UsageError("the recording holds a chunk that is neither text nor base64") from cause


def _is_torn(file: Path) -> bool:
    with file.open("rb") as written:
        if not written.seek(0, 2):
            return False
        written.seek(-1, 2)
        return written.read(1) != b"\n"


# Answer from a recording instead of asking anyone: the same bytes, in the same order, offline.


PREFIX = "replay/"
"""`replay/FILE` is the model that answers from FILE, whichever item asks."""


class NotRecorded(ModelError):
    """The recording has no answer to this request."""

    reason = "not_recorded"


class MatchedExchange(NamedTuple):
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

    def find(self, wire: str, operation: str, model: str, request: Any) -> MatchedExchange:
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

    def _give(self, line: _Line, departure: str) -> MatchedExchange:
        if line in self._left:
            self._left.remove(line)
        self._given[line.digest] += 1
        return MatchedExchange(exchange_of(self._replay._line(line)), departure)

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
