"""Regular expressions and JSON schemas of others: of plans, tasks, roles, queries and imported files.

`re` may take years for an expression of 20 characters and a text of 40. Where the steps of an expression on a
text are bounded, it runs here; otherwise in a process of its own that ends after `TIME_LIMIT_SECONDS`. Both
use `re`, so an expression means the same; another engine would read some differently.
"""

import json
import math
import os
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from proctor.errors import AttemptError
from proctor.formatting import clipped

if TYPE_CHECKING:
    from subprocess import Popen

TIME_LIMIT_SECONDS = 1.0
"""For one expression on one text, or one schema on one value."""
MOST_STEPS = 2_000_000
"""`re` takes 10 to 50 ms for as many; 0.3 s if they match nothing."""
_UNBOUNDED = math.inf
_LONG = frozenset(
    {
        "pattern",
        "patternProperties",
        "uniqueItems",
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "unevaluatedProperties",
        "unevaluatedItems",
    }
)
_MOST_POWERS = 8
_SHOWN_CHARACTERS = 60
_QUICKLY_COMPILED_CHARACTERS = 300
"""`re` takes up to 0.4 s to compile an expression of this length: large sets that ignore case."""


class PatternTimeout(AttemptError):
    """A regular expression or schema takes too long on a text."""

    reason = "pattern_timeout"

    def __init__(self, pattern: str, seconds: float = TIME_LIMIT_SECONDS) -> None:
        named = clipped(repr(pattern), _SHOWN_CHARACTERS)
        super().__init__(
            f"the pattern {named} takes longer than {seconds:g} s on this text\n"
            "Do not repeat a repetition, as in (a+)+, and write [^x]* instead of .* before x."
        )


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """A match of an expression."""

    texts: Sequence[str | None]
    """The whole match, then its groups; None: a group that took no part."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Numbers of the named groups."""

    def __getitem__(self, number: int) -> str:
        return self.texts[number] or ""

    def groups(self) -> tuple[str | None, ...]:
        """The groups."""
        return tuple(self.texts[1:])

    def groupdict(self) -> dict[str, str | None]:
        """The named groups."""
        return {name: self.texts[number] for name, number in self.numbers.items()}


@dataclass(frozen=True, eq=False)
class Pattern:
    """A regular expression of others."""

    text: str
    flags: int
    total_seconds: float
    """For all calls together."""
    _spent: list[float] = field(default_factory=list)

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.text, self.flags)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return self._compiled.groups

    @property
    def names(self) -> list[str]:
        """Names of the named groups."""
        return list(self._compiled.groupindex)

    def search(self, text: str) -> PatternMatch | None:
        """The first match in a text. Raises `PatternTimeout`."""
        if self._is_bounded(text):
            match = self._compiled.search(text)
            return self._match((match[0], *match.groups())) if match else None
        matches = self._elsewhere(text, is_first=True)
        return matches[0] if matches else None

    def findall(self, text: str) -> list[PatternMatch]:
        """All matches in a text. Raises `PatternTimeout`."""
        if self._is_bounded(text):
            return [self._match((match[0], *match.groups())) for match in self._compiled.finditer(text)]
        return self._elsewhere(text, is_first=False)

    def _match(self, texts: Sequence[str | None]) -> PatternMatch:
        return PatternMatch(texts, self._compiled.groupindex)

    def _is_bounded(self, text: str) -> bool:
        # The size to the next power of two: few texts have the same length.
        return steps(self.text, self.flags, 1 << len(text).bit_length()) <= MOST_STEPS

    def _elsewhere(self, text: str, *, is_first: bool) -> list[PatternMatch]:
        if sum(self._spent) > self.total_seconds:
            raise PatternTimeout(self.text, self.total_seconds)
        started = time.monotonic()
        try:
            listed = bounded_call(
                "proctor.patterns:find", self.text, self.flags, text, is_first, about=self.text
            )
        finally:
            self._spent.append(time.monotonic() - started)
        return [self._match(texts) for texts in listed]


def compile_pattern(text: str, flags: int = 0, *, total_seconds: float | None = None) -> Pattern:
    """A regular expression of others, which may take `total_seconds` in all calls of its object.

    Raises `re.error` as `re.compile` does, which it replaces, also for one that is nested too deeply or takes
    too long to compile.
    """
    return _cached(text, flags) if total_seconds is None else _new(text, flags, total_seconds)


def _new(text: str, flags: int, total_seconds: float = math.inf) -> Pattern:
    pattern = Pattern(text, flags, total_seconds)
    try:
        if len(text) > _QUICKLY_COMPILED_CHARACTERS:
            bounded_call("proctor.patterns:problem_of", text, flags, about=text)
        _ = pattern.groups
    except PatternTimeout:
        raise re.error(f"it takes longer than {TIME_LIMIT_SECONDS:g} s to compile") from None
    except RecursionError:
        raise re.error("it is nested too deeply") from None
    except OverflowError as error:
        raise re.error(str(error)) from None
    return pattern


_cached = lru_cache(maxsize=1024)(_new)


def problem_of(pattern: str, flags: int) -> str:
    """Why an expression cannot be compiled, without a limit of time; empty: it can."""
    try:
        re.compile(pattern, flags)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error) or type(error).__name__
    return ""


def find(pattern: str, flags: int, text: str, is_first: bool) -> list[list[str | None]]:
    """The texts of matches, without a limit of time; called in the process that has one."""
    compiled = re.compile(pattern, flags)
    if is_first:
        match = compiled.search(text)
        return [[match[0], *match.groups()]] if match else []
    return [[match[0], *match.groups()] for match in compiled.finditer(text)]


@lru_cache(maxsize=4096)
def steps(pattern: str, flags: int, length: int) -> float:
    """Upper bound of the steps that `re` takes to look for an expression in a text of this length."""
    try:
        # The parser of `re` itself; its opcodes are named as in the module's documentation of flags.
        parsed = import_module("re._parser").parse(pattern, flags)
        return max(1, length) * _work(parsed, max(1, length)).steps
    except (re.error, RecursionError, OverflowError, ImportError, AttributeError):
        return _UNBOUNDED


_SINGLE = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "RANGE", "CATEGORY", "FAILURE", "SUCCESS"}
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


class _MatchingWork(NamedTuple):
    """What an expression takes from one position, at most."""

    ways: float
    """In how many ways it can match; what follows it is tried after each."""
    steps: float
    """For all of them together."""


def _work(parsed: Any, length: int) -> _MatchingWork:
    ways, steps = 1.0, 0.0
    for operation, argument in parsed:
        part = _work_of(str(operation), argument, length)
        steps += ways * part.steps
        ways *= part.ways
    return _MatchingWork(ways, max(1.0, steps))


def _work_of(operation: str, argument: Any, length: int) -> _MatchingWork:
    if operation in _SINGLE:
        return _MatchingWork(1, 1)
    if operation == "SUBPATTERN":
        return _work(argument[-1], length)
    if operation == "BRANCH":
        return _either(argument[1], length)
    if operation in _REPEATS:
        least, most, inner = argument
        repeated = _repeated(least, most, inner, length)
        return _MatchingWork(1, repeated.steps) if operation == "POSSESSIVE_REPEAT" else repeated
    if operation in ("ASSERT", "ASSERT_NOT"):
        return _MatchingWork(1, _work(argument[1], length).steps)
    if operation == "ATOMIC_GROUP":
        return _MatchingWork(1, _work(argument, length).steps)
    if operation == "GROUPREF":
        return _MatchingWork(1, length)
    if operation == "GROUPREF_EXISTS":
        return _either([branch for branch in argument[1:] if branch is not None], length)
    return _MatchingWork(_UNBOUNDED, _UNBOUNDED)


def _either(branches: Sequence[Any], length: int) -> _MatchingWork:
    works = [_work(branch, length) for branch in branches]
    return _MatchingWork(sum(work.ways for work in works), sum(work.steps for work in works))


def _repeated(least: Any, most: Any, inner: Any, length: int) -> _MatchingWork:
    least, most, work = int(least), min(int(most), length), _work(inner, length)
    # What matches nothing is repeated as often as it must be, however short the text is.
    times = max(1, most if inner.getwidth()[0] else max(least, most))
    count = max(1, most - least + 1)
    if work.ways <= 1:
        return _MatchingWork(count, times * work.steps)
    # A repetition of something that can match in two ways has as many powers of them.
    if times > _MOST_POWERS:
        return _MatchingWork(_UNBOUNDED, _UNBOUNDED)
    return _MatchingWork(count * work.ways**times, times * work.ways**times * work.steps)


def may_take_long(schema: object) -> bool:
    """Whether the time of a JSON schema has no bound by its size and that of the value.

    Besides expressions: references and unevaluated members, which double at each level, and lists whose items
    are all compared.
    """
    if isinstance(schema, Mapping):
        own = not _LONG.isdisjoint(schema)
        return own or any(map(may_take_long, schema.values()))
    return isinstance(schema, list) and any(map(may_take_long, schema))


def bounded_call(function: str, *arguments: object, about: str) -> Any:
    """Call `module:function` with JSON values in a process that ends when it takes too long.

    `about` is the expression, for the error. Raises `PatternTimeout`.
    """
    return _process.call({"function": function, "arguments": arguments, "path": sys.path}, about)


class _BoundedProcess:
    """The process for calls that may take forever; started when needed, and again after it was ended."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the process: a fork may neither use its pipes nor find the lock of another thread held."""
        self._lock = threading.Lock()
        self._process: Popen[bytes] | None = None

    def call(self, request: object, about: str) -> Any:
        """Send a request and return its result. Raises `PatternTimeout`."""
        data = json.dumps(request).encode()
        with self._lock:
            # One more try: somebody else may have ended the process.
            for _ in range(2):
                process = self._started()
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    write_frame(process.stdin, data)
                    answer = read_frame(process.stdout)
                except OSError:
                    answer = None
                if answer is not None:
                    result, problem = json.loads(answer)
                    if problem:
                        raise RuntimeError(problem)
                    return result
                exit_code = self._end()
                if exit_code == -signal.SIGALRM:
                    break
        raise PatternTimeout(about)

    def _started(self) -> "Popen[bytes]":
        # Loaded here: most runs need no such process.
        from subprocess import DEVNULL, PIPE, Popen

        if self._process is None:
            worker = str(Path(__file__).with_name("pattern_worker.py"))
            self._process = Popen(
                [sys.executable, "-I", "-S", worker, str(TIME_LIMIT_SECONDS)],
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env={},
                # Ctrl-C is for the process that waits.
                start_new_session=True,
            )
        return self._process

    def _end(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        return process.wait()


_process = _BoundedProcess()
os.register_at_fork(after_in_child=_process.reset)


def write_frame(file: IO[bytes], data: bytes) -> None:
    """Write data with its length."""
    file.write(struct.pack(">Q", len(data)))
    file.write(data)
    file.flush()


def read_frame(file: IO[bytes]) -> bytes | None:
    """Read data with its length; None: the other side has ended."""
    head = file.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack(">Q", head)
    data = file.read(length)
    return data if len(data) == length else None
