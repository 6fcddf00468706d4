"""Finds the line of a program's output that says why the program failed."""

import re

from proctor.formatting import one_line

LONGEST_LINE = 1000
"""Characters of a line that are read."""
SEARCHED_LINES = 5000
"""Lines that are read, from the end: a test suite can print millions."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TRACEBACK = "Traceback (most recent call last):"
_PANIC = re.compile(r"panicked at (\S+?):?$")
_TEST = re.compile(r"(?:FAILED|ERROR) \S+::\S+|(?:FAILED|ERROR) \S+\.py - ")
_COMPILER = re.compile(r"error\[\w+\]: |\S+?(?::\d+:(?:\d+:)?|\(\d+,\d+\):) (?:fatal )?error\b.*: ")
_EXCEPTION = re.compile(
    r"(?:Uncaught |Unhandled |Exception in thread \S+ )?"
    r"(?:[\w$]+[.:]+)*[\w$]*(?:Error|Exception)(?: \[\w+\])?(?::|$)"
)
_NAME = re.compile(r"[\w.]+")
_FRAME = re.compile(r"\s+at \S")
_OTHER_TEST = re.compile(r"--- FAIL: |not ok \d")
_FATAL = re.compile(r"(?:fatal|panic): ", re.IGNORECASE)
_ERROR = re.compile(r"\b(?:[A-Za-z]*[Ee]rror|ERROR)(?: [A-Z]+\d+)?: |^mise ERROR ")
_MISSING = re.compile(r"(?:not found|Permission denied|No such file or directory|No module named \S+)$")
_NOISE = re.compile(
    r"\{|Node\.js v\d|\s+at |npm (?:ERR!|error) (?:A complete log|Lifecycle)|note: |"
    r"mise ERROR (?:Run with|Version:)|For more information|(?:ERROR|error): test failed, to rerun|"
    r"exit status \d+$|[\W_]*$"
)
_LINES_OF_FRAME = 3
_LINES_TO_FRAME = 8
"""Between an exception of Node.js and its stack may be more lines of its message."""


def error_line(*outputs: str, most: int = 300) -> str:
    """The line that tells most about a failure, with at most `most` characters; empty: there is none.

    The exception rather than the end of its stack, the first error of a compiler, the first failed test.
    Of several outputs that tell as much, the first counts.
    """
    _, line = max(map(_ranked_line, outputs), key=lambda ranked: ranked[0])
    return one_line(line, most)


def _ranked_line(output: str) -> tuple[int, str]:
    lines = [line[:LONGEST_LINE].rstrip() for line in output.splitlines()[-SEARCHED_LINES:]]
    if any("\x1b" in line for line in lines):
        lines = [_ESCAPES.sub("", line) for line in lines]
    best, best_rank = "", -1
    for number, line in enumerate(lines):
        if line and not line.isspace():
            rank, is_first_best = _rank(lines, number)
            if rank > best_rank or (rank == best_rank and not is_first_best):
                best, best_rank = _with_detail(lines, number), rank
    return best_rank, best


def _rank(lines: list[str], number: int) -> tuple[int, bool]:
    """How much a line tells; and whether the first line of this rank tells most, not the last."""
    line = lines[number]
    if _TEST.match(line) or _COMPILER.match(line) or _PANIC.search(line):
        return 8, True
    if _EXCEPTION.match(line) and any(map(_FRAME.match, lines[number + 1 : number + 1 + _LINES_TO_FRAME])):
        return 7, True
    if _EXCEPTION.match(line) or _ends_traceback(lines, number):
        return 6, False
    if _OTHER_TEST.match(line):
        return 5, True
    if _FATAL.match(line):
        return 4, True
    if _NOISE.match(line):
        return 0, False
    if _ERROR.search(line):
        return 3, False
    return (2 if _MISSING.search(line) else 1), False


def _ends_traceback(lines: list[str], number: int) -> bool:
    """Whether a line names the exception of a Python traceback, whose class may be called anything."""
    if lines[number].startswith(" ") or lines[number] == _TRACEBACK:
        return False
    above = number - 1
    while above >= 0 and lines[above].startswith(" "):
        above -= 1
    return number - above > 1 and above >= 0 and lines[above] == _TRACEBACK


def _source_above(lines: list[str], number: int) -> str:
    """The line of source that the end of a Python traceback names; empty: this is none."""
    for line in reversed(lines[max(0, number - _LINES_OF_FRAME) : number]):
        if not line.startswith("    "):
            return ""
        if not _NOISE.match(line):
            return line.strip()
    return ""


def _with_detail(lines: list[str], number: int) -> str:
    """A line, with the next one where the message is there."""
    line, following = lines[number].strip(), lines[number + 1].strip() if number + 1 < len(lines) else ""
    if (panic := _PANIC.search(line)) and following:
        return f"panicked at {panic[1]}: {following}"
    if line.startswith("--- FAIL: ") and following:
        return f"{line}: {following}"
    if _NAME.fullmatch(line):
        return ": ".join(filter(None, [line, _source_above(lines, number)]))
    return line
