"""Record the model traffic of a batch to a file, and replay it offline.

One JSON line per exchange, written when it has ended: the request, and the response in its original bytes and
chunks. Exchanges belong to a *take*: one attempt at one item, numbered by start; within a take, exchanges are
numbered by start as well. The caller removes keys before handing exchanges over.
"""

import base64
import binascii
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, NotRequired, TypedDict

from proctor.errors import ModelError, NotFound, UsageError
from proctor.item import digest_of

VOLATILE_KEYS = frozenset(
    {"model", "user", "metadata", "prompt_cache_key", "safety_identifier", "client_metadata"}
)
"""Keys of a request that do not affect the answer: user, session, name of the model."""
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_VOLATILE_TEXT = re.compile(
    "|".join(
        (
            r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})",
            r"(?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?Z|[+-]\d\d:?\d\d)?)?"
            rf"|(?:{_DAY},? )?{_MONTH} \d{{1,2}},? \d{{4}}|\d{{1,2}}/\d{{1,2}}/\d{{4}})",
            # Time in the name of a branch, which agents include in prompts.
            r"(?P<moment>\b\d{8}-\d{6}\b)",
            r"(?P<time>\d{1,2}:\d\d:\d\d(?: ?[AP]M)?)",
            r"(?P<path>(?:/private)?/(?:tmp|var/folders|var/tmp|dev/shm)/[^\s\"'`<>:;,()\[\]]*)",
            r"(?P<port>(?:127\.0\.0\.1|localhost|\[::1\]):\d+)",
            r"(?P<duration>(?<!\d)\d+\.\d+ ?(?:ms|seconds|secs?|s)\b)",
            r"(?P<id>\b(?:call|toolu|msg|resp|rs|fc|item|chatcmpl)[_-][A-Za-z0-9_-]{8,})",
            r"(?P<hex>(?<![0-9A-Za-z])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}(?![0-9A-Za-z]))",
        )
    )
)

# Maximum length of a text shown when two requests differ.
SHOWN_CHARACTERS = 80


def canonical_request(body: object, volatile: Iterable[str] = ()) -> object:
    """`body` without volatile parts; `volatile` are the folders and ids of this session."""
    own = sorted(filter(None, volatile), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, own))) if own else None
    if isinstance(body, Mapping):
        body = {key: value for key, value in body.items() if key not in VOLATILE_KEYS}
    return _mask(body, pattern)


def request_digest(wire: str, operation: str, canonical_body: object) -> str:
    """Fingerprint of a request: equal for equal requests to the same operation."""
    return digest_of([wire, operation, canonical_body])


def first_difference(recorded: object, now: object, where: str = "") -> str:
    """Where two canonical requests first differ, for people; empty when they are equal."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in sorted({*recorded, *now}, key=str):
            below = f"{where}.{key}" if where else str(key)
            if key not in recorded:
                return f"{below} is new: {_excerpt(now[key])}"
            if key not in now:
                return f"{below} is gone: it was {_excerpt(recorded[key])}"
            if difference := first_difference(recorded[key], now[key], below):
                return difference
        return ""
    if isinstance(recorded, list) and isinstance(now, list):
        for number, (before, after) in enumerate(zip(recorded, now, strict=False)):
            if difference := first_difference(before, after, f"{where}[{number}]"):
                return difference
        if len(recorded) != len(now):
            return f"{where} has {len(now)} entries where {len(recorded)} were recorded"
        return ""
    if recorded == now:
        return ""
    if isinstance(recorded, str) and isinstance(now, str):
        return f"{where}: {_around(recorded, now)}"
    return f"{where}: recorded {_excerpt(recorded)}, now {_excerpt(now)}"


def _mask(value: object, own: re.Pattern[str] | None) -> object:
    if isinstance(value, str):
        if own is not None:
            value = own.sub("<own>", value)
        return _VOLATILE_TEXT.sub(_placeholder, value)
    if isinstance(value, Mapping):
        return {key: _mask(each, own) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_mask(each, own) for each in value]
    return value


def _placeholder(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind == "path":
        # The file name matters; its folder does not.
        parts = match[0].rstrip("/").split("/")
        return "<path>/" + parts[-1] if len(parts) > 3 else "<path>"
    return f"<{kind}>"


def _around(recorded: str, now: str) -> str:
    """The first position where two long texts differ."""
    position = next(
        (index for index, (a, b) in enumerate(zip(recorded, now, strict=False)) if a != b),
        min(len(recorded), len(now)),
    )
    start = max(0, position - SHOWN_CHARACTERS // 4)
    before, after = _excerpt(recorded[start:]), _excerpt(now[start:])
    return f"recorded {before}, now {after} (from character {position + 1} on)"


def _excerpt(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


VERSION = 1
Channel = Literal["gateway", "process"]
"""How the calls of an attempt arrive: over HTTP, or in this process. Each is numbered separately."""
IN_PROCESS = "proctor"
"""Wire format of calls within this process: `Request` and `Answer` as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its response, as sent."""

    wire: str
    """Its format: `chat`, `responses`, `messages`, `gemini`, or `proctor`."""
    operation: str
    """The path without the name of the model."""
    model: str
    request: object
    """The body, parsed."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those the client needs to read the response."""
    chunks: Sequence[bytes] = ()
    hidden: Sequence[bytes] = ()
    """Chunks the client did not get: token counts of a stream that it had not requested."""
    whole: bool = True
    """False: the response broke off after these chunks."""
    served: Mapping[str, str] = field(default_factory=dict)
    """`model`, `fingerprint` and `request_id` of who answered, where the response does not say."""


EncodedChunk = str | dict[str, str]
"""Text, or other bytes (half a character, say) as `{"base64": …}`."""


class RecordedLine(TypedDict):
    """One line of a recording: an exchange and its place."""

    v: int
    item: str
    channel: str
    take: int
    n: int
    beside: list[int]
    """Exchanges that were running when this one started."""
    wire: str
    operation: str
    model: str
    digest: str
    volatile: Sequence[str]
    request: object
    status: int
    headers: Mapping[str, str]
    chunks: list[EncodedChunk]
    hidden: NotRequired[list[EncodedChunk]]
    whole: bool
    served: NotRequired[Mapping[str, str]]


class Recording:
    """A file that exchanges are appended to. Close it at the end."""

    replays: Literal[False] = False

    def __init__(self, file: Path, redact: Callable[[str], str] = str) -> None:
        """Appends to an existing file; `redact` removes secrets from what is written."""
        self.file = file
        self._redact = redact
        self._takes: Counter[tuple[str, str]] = Counter()
        if file.exists():
            for line, _, _ in lines_of(file):
                key = line["item"], line["channel"]
                self._takes[key] = max(self._takes[key], line["take"])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._out = file.open("ab")
        except OSError as error:
            raise UsageError(f"cannot record to {file}: {error.strerror}") from error
        if _ends_mid_line(file):
            # A process was killed while writing; terminate its incomplete line.
            self._out.write(b"\n")

    def take(self, item_id: str, channel: Channel, volatile: Sequence[str] = ()) -> "RecordedTake":
        """Start an attempt at an item; `volatile` are its folders and ids."""
        return RecordedTake(self, item_id, channel, tuple(volatile))

    def _number(self, item_id: str, channel: Channel) -> int:
        self._takes[item_id, channel] += 1
        return self._takes[item_id, channel]

    def close(self) -> None:
        self._out.close()

    def _write(self, line: RecordedLine) -> None:
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
        self._out.write(self._redact(text).encode("utf-8", "replace") + b"\n")
        # Flushed: a reported exchange must be in the file if this process dies.
        self._out.flush()


class RecordedTake:
    """Records the exchanges of one attempt."""

    replays: Literal[False] = False

    def __init__(
        self, recording: Recording, item_id: str, channel: Channel, volatile: tuple[str, ...]
    ) -> None:
        self._recording = recording
        self._item_id = item_id
        self._channel = channel
        self._volatile = volatile
        self._number = 0
        self._started = 0
        self._open: set[int] = set()
        self._concurrent: dict[int, list[int]] = {}

    def begin(self) -> int:
        """The number of an exchange that starts now."""
        if not self._number:
            # Only now, so that an attempt without requests is not counted.
            self._number = self._recording._number(self._item_id, self._channel)
        self._started += 1
        # Concurrent calls have no order worth preserving.
        self._concurrent[self._started] = sorted(self._open)
        self._open.add(self._started)
        return self._started

    def write(self, number: int, exchange: Exchange) -> None:
        self._open.discard(number)
        body = canonical_request(exchange.request, self._volatile)
        line: RecordedLine = {
            "v": VERSION,
            "item": self._item_id,
            "channel": self._channel,
            "take": self._number,
            "n": number,
            "beside": self._concurrent.pop(number, []),
            "wire": exchange.wire,
            "operation": exchange.operation,
            "model": exchange.model,
            "digest": request_digest(exchange.wire, exchange.operation, body),
            "volatile": self._volatile,
            "request": exchange.request,
            "status": exchange.status,
            "headers": dict(exchange.headers),
            "chunks": list(map(_encode_chunk, exchange.chunks)),
            "whole": exchange.whole,
        }
        if exchange.hidden:
            line["hidden"] = list(map(_encode_chunk, exchange.hidden))
        if served := {name: value for name, value in exchange.served.items() if value}:
            line["served"] = served
        self._recording._write(line)


def lines_of(file: Path) -> Iterator[tuple[RecordedLine, int, int]]:
    """The lines of a recording with their offset and size; an incomplete one is skipped."""
    offset = 0
    try:
        with file.open("rb") as lines:
            for raw in lines:
                line = _parsed(raw)
                if line is not None:
                    yield line, offset, len(raw)
                elif offset == 0 and raw.endswith(b"\n"):
                    raise UsageError(f"{file} is not a recording: its first line is not an exchange")
                offset += len(raw)
    except OSError as error:
        raise UsageError(f"cannot read the recording {file}: {error.strerror}") from error


def exchange_of(line: RecordedLine) -> Exchange:
    """The exchange of a line."""
    return Exchange(
        wire=line["wire"],
        operation=line["operation"],
        model=line["model"],
        request=line["request"],
        status=line["status"],
        headers=line["headers"],
        chunks=tuple(map(_decode_chunk, line["chunks"])),
        hidden=tuple(map(_decode_chunk, line.get("hidden", ()))),
        whole=line["whole"],
        served=line.get("served", {}),
    )


def _parsed(raw: bytes) -> RecordedLine | None:
    try:
        line: RecordedLine | None = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and line.get("v") == VERSION else None


def _encode_chunk(chunk: bytes) -> EncodedChunk:
    try:
        return chunk.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(chunk).decode()}


def _decode_chunk(chunk: EncodedChunk) -> bytes:
    try:
        return chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"])
    except (binascii.Error, KeyError) as cause:
        raise UsageError("the recording contains a chunk that is neither text nor base64") from cause


def _ends_mid_line(file: Path) -> bool:
    with file.open("rb") as written:
        if not written.seek(0, 2):
            return False
        written.seek(-1, 2)
        return written.read(1) != b"\n"


PREFIX = "replay/"
"""`replay/FILE` is a model that answers from FILE, for any item."""


class NotRecorded(ModelError):
    """The recording has no answer to this request."""

    reason = "not_recorded"


class MatchedExchange(NamedTuple):
    """The exchange that answers a request."""

    exchange: Exchange
    mismatch: str
    """Where the attempt differs from the recording; empty when it does not."""


class _Line(NamedTuple):
    """Position of an exchange in the file."""

    item: str
    channel: str
    take: int
    number: int
    beside: tuple[int, ...]
    """Exchanges that were running when this one started."""
    digest: str
    model: str
    offset: int
    size: int


class Replay:
    """A recording that is being replayed."""

    replays: Literal[True] = True

    def __init__(self, file: Path) -> None:
        self.file = file
        self._takes: dict[tuple[str, str, int], list[_Line]] = defaultdict(list)
        self._equal: dict[str, list[_Line]] = defaultdict(list)
        self._started: Counter[tuple[str, str]] = Counter()
        for document, offset, size in lines_of(file):
            line = _Line(
                document["item"],
                document["channel"],
                document["take"],
                document["n"],
                tuple(document["beside"]),
                document["digest"],
                document["model"],
                offset,
                size,
            )
            self._takes[line.item, line.channel, line.take].append(line)
            self._equal[line.digest].append(line)
        for lines in self._takes.values():
            # Written in order of their end, replayed in order of their start.
            lines.sort(key=lambda line: line.number)
        self.models = {line.model for lines in self._takes.values() for line in lines}
        """The models that answered when it was recorded."""
        self._known = {(item, channel) for item, channel, _ in self._takes}
        self._file = file.open("rb")

    def take(self, item_id: str, channel: Channel, volatile: Sequence[str] = ()) -> "ReplayedTake":
        """Start an attempt at an item; an item that is not in the recording is answered by equal requests."""
        return ReplayedTake(self, item_id, channel, tuple(volatile))

    def _begin(self, item_id: str, channel: Channel) -> list[_Line] | None:
        """The exchanges of the attempt that starts now; None when the item is not in the recording."""
        if (item_id, channel) not in self._known:
            return None
        self._started[item_id, channel] += 1
        return self._takes.get((item_id, channel, self._started[item_id, channel]), [])

    def close(self) -> None:
        self._file.close()

    def _line(self, line: _Line) -> RecordedLine:
        self._file.seek(line.offset)
        read: RecordedLine = json.loads(self._file.read(line.size))
        return read


class ReplayedTake:
    """Replays the exchanges of one attempt."""

    replays: Literal[True] = True

    def __init__(self, replay: Replay, item_id: str, channel: Channel, volatile: tuple[str, ...]) -> None:
        self._replay = replay
        self._item_id = item_id
        self._channel = channel
        self._volatile = volatile
        self._requests = 0
        self._lines: list[_Line] | None = None
        self._remaining: list[_Line] = []
        self._returned: Counter[str] = Counter()

    def find(self, wire: str, operation: str, model: str, request: object) -> MatchedExchange:
        """The answer to a request, or `NotRecorded` with the first difference."""
        if not self._requests:
            self._lines = self._replay._begin(self._item_id, self._channel)
            self._remaining = list(self._lines or ())
        self._requests += 1
        body = canonical_request(request, self._volatile)
        digest = request_digest(wire, operation, body)
        if (due := self._next(digest)) is not None:
            return self._return(due, "")
        mismatch = self._mismatch(body)
        if (equal := self._equal(digest, model)) is None:
            raise NotRecorded(
                f"not in the recording {self._replay.file.name}: {mismatch or 'no such request'}"
            )
        return self._return(equal, mismatch)

    def _next(self, digest: str) -> _Line | None:
        """The next exchange, or one that was concurrent with all before it."""
        before = set[int]()
        for line in self._remaining:
            if not before.issubset(line.beside):
                return None
            if line.digest == digest:
                return line
            before.add(line.number)
        return None

    def _return(self, line: _Line, mismatch: str) -> MatchedExchange:
        if line in self._remaining:
            self._remaining.remove(line)
        self._returned[line.digest] += 1
        return MatchedExchange(exchange_of(self._replay._line(line)), mismatch)

    def _equal(self, digest: str, model: str) -> _Line | None:
        """An exchange with an equal request: of this attempt, this item, this model, or any."""
        mine = [line for line in self._remaining if line.digest == digest]
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
        # The n-th equal request gets the n-th answer; after the last one, that one again.
        return candidates[min(self._returned[digest], len(candidates) - 1)]

    def _mismatch(self, body: object) -> str:
        if self._lines is None:
            return ""
        where = f"call {self._requests} differs from the recording"
        if not self._remaining:
            return f"{where}, which has only {len(self._lines)}"
        recorded = self._replay._line(self._remaining[0])
        difference = first_difference(canonical_request(recorded["request"], recorded["volatile"]), body)
        return f"{where}: {difference or 'another operation'}"


def find_recording(model: str, folders: Iterable[Path]) -> Replay:
    """The recording of `replay/FILE`: a file in one of the folders."""
    name = model.removeprefix(PREFIX)
    searched = list(folders)
    for folder in searched:
        for candidate in (folder / name, folder / f"{name}.ndjson"):
            # Plans may be untrusted: recordings must be in the folder of the plan.
            if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
                return Replay(candidate)
    places = ", ".join(map(str, searched)) or "no folder"
    raise NotFound(f"there is no recording `{name}` in {places}")


RecordingOrReplay = Recording | Replay
"""A file that traffic is recorded to or replayed from."""
