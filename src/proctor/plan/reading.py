"""Read YAML text into a `Source`.

The parser's events are walked, not its composed nodes: a hundred kilobytes of `[` overflow the C
stack of libyaml's composer and end the process, and events come ten times as fast (100,000 of them
in 0.08 s).

Knows nothing of disks or of what the data means.
"""

import re
from typing import Any, NoReturn

import yaml

from proctor.plan.source import LINE_BREAK, Source, Span, Spot, is_secret_name, refuse
from proctor.plan.walk import Walk

MOST_BYTES = 16 * 1024 * 1024

# libyaml where PyYAML was built with it; the same events, ten times slower, where it was not.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REMEDIES = {
    "mapping values are not allowed": "Put text that holds a colon and a space in quotes.",
    "cannot start any token": "Indent with spaces, not tabs; put text that starts with @, ` or % in quotes.",
    "found unexpected end of stream": "A quote that was opened is not closed.",
    "did not find expected key": "Check that the lines of one mapping start in the same column.",
    "could not find expected ':'": "Write `name: value`, with a space after the colon.",
    "did not find expected '-' indicator": "Check that the entries of one list start in the same column.",
    "did not find expected ',' or": "A bracket or brace that was opened is not closed.",
}


def read_source(text: str | bytes, *, file: str, loader: Any = LOADER) -> Source:
    """The data of a YAML text with the place of each part.

    Raises `PlanError` when it is no YAML, or more of it than anyone means. What is wrong but could
    be read past is in the source's `problems`, to be reported with whatever else is found.
    """
    written = _printable(_decoded(text, file), file)
    walk = Walk(file, written)
    try:
        for event in yaml.parse(written, Loader=loader):
            walk.take(event)
    except yaml.MarkedYAMLError as error:
        _stop_at_syntax(walk, error)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The parser gives no place for these: a character or an escape it cannot take.
        walk.stop(1, 1, f"this cannot be read as YAML: {type(error).__name__}")
    return walk.source()


def _decoded(text: str | bytes, file: str) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    if size > MOST_BYTES:
        most = MOST_BYTES // 1024 // 1024
        remedy = f"At most {most} MiB are read. Use lists in a few entries instead of many entries."
        refuse([Source(file, "", None, Spot(1, 1)).problem((), f"the file has {size:,} bytes", remedy)])
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8-sig")
        line, column = _end_of(before)
        problem = f"the byte 0x{text[error.start]:02x} is no UTF-8"
        nowhere = Source(file, "", None, Spot(1, 1))
        refuse([nowhere.problem_at(line, column, problem, "Save the file as UTF-8 text.")])
        raise


def _printable(text: str, file: str) -> str:
    found = _UNPRINTABLE.search(text)
    if found:
        line, column = _end_of(text[: found.start()])
        problem = f"the character U+{ord(found[0]):04X} may not stand in YAML"
        remedy = 'Remove it, or write it as an escape in double quotes, such as "\\x1b".'
        refuse([Source(file, "", None, Spot(1, 1)).problem_at(line, column, problem, remedy)])
    return text


def _end_of(text: str) -> tuple[int, int]:
    lines = LINE_BREAK.split(text)
    return len(lines), len(lines[-1]) + 1


def _stop_at_syntax(walk: Walk, error: yaml.MarkedYAMLError) -> NoReturn:
    # A quote that is never closed is found at the end of the file, and mended where it was opened.
    opened = error.context_mark if "quoted" in str(error.context) else None
    mark = opened or error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = str(error.problem or error.context or "it breaks off")
    remedy = next((words for part, words in _REMEDIES.items() if part in said), "")
    # What stands there was not read, so nobody knows which part of the line is a secret.
    if walk.is_inside_secret() or _speaks_of_secrets(walk.text, line):
        walk.secrets.append(Span(line, 1, line + 1, 1))
    walk.stop(line, column, f"this is not YAML: {said}", remedy)


def _speaks_of_secrets(text: str, line: int) -> bool:
    words = re.findall(r"[\w-]+", "".join(LINE_BREAK.split(text)[line - 1 : line]))
    return any(map(is_secret_name, words))
