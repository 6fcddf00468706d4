"""Every small change to one expression or statement in a function below src/proctor, and samples of them.

Not changed is what has no effect at run time, or none that tests should check: annotations, documentation,
declarations, log messages, sizes of caches and queues, and the text of messages.
"""

import ast
import hashlib
import io
import json
import tokenize
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

SOURCE = "src/proctor"

COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*"}
AUGMENTED = {f"{operator}=": f"{other}=" for operator, other in ARITHMETIC.items()}
BOOLEAN = {"and": "or", "or": "and"}
EXTREMA = {"min": "max", "max": "min"}

# Swapping their arguments, or subtracting from text, is a type error that any test of the line detects.
TYPE_ERRORS_WHEN_SWAPPED = {"isinstance", "issubclass", "cast", "getattr", "hasattr", "setattr"}
COMMUTATIVE = {"min", "max", "gcd", "hypot", "isclose"}
TEXT = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
NOT_SWAPPED = (*TEXT, ast.Starred, ast.Constant, ast.Dict, ast.Set, ast.Lambda)

TYPE_FORMS = {"Annotated", "Literal"}
LOGGERS = {"log", "logger", "logging", "_log", "_logger"}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
DECLARATIONS = {"overload", "abstractmethod"}
# Only time and memory depend on them.
SIZE_ARGUMENTS = {"maxsize", "backlog"}

Position = tuple[int, int]
"""Start and end in the text of a file, in characters."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change to one file: the characters from `start` to `end` become `replacement`."""

    path: str
    """Relative to the project's root."""
    kind: str
    line: int
    start: int
    end: int
    replacement: str
    before: str
    """The changed line; several lines are joined."""
    after: str
    occurrence: int = 0
    """Distinguishes equal changes to equal lines of one file."""

    @property
    def package(self) -> str:
        """The first folder below src/proctor, or the name of a top-level module."""
        return Path(self.path).with_suffix("").parts[2]

    def rank(self, seed: int) -> bytes:
        """Position in the sample of a seed."""
        identity = [seed, self.path, self.kind, self.before, self.after, self.occurrence]
        return hashlib.sha256(json.dumps(identity).encode()).digest()

    def apply(self, text: str) -> str:
        return text[: self.start] + self.replacement + text[self.end :]


class _Text:
    """Source text with its tokens, addressed by characters. `ast` counts columns in UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.line_starts = [0]
        for line in self.lines:
            self.line_starts.append(self.line_starts[-1] + len(line) + 1)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.tokens = [
            (self.line_starts[token.start[0] - 1] + token.start[1], token.string)
            for token in tokens
            if token.type in (tokenize.OP, tokenize.NAME) and token.string not in ("(", ")")
        ]

    def offset(self, line: int, byte_column: int) -> int:
        return self.line_starts[line - 1] + len(self.lines[line - 1].encode()[:byte_column].decode())

    def position(self, node: ast.expr | ast.stmt) -> Position:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.offset(node.lineno, node.col_offset)
        return start, self.offset(node.end_lineno, node.end_col_offset)

    def operator_between(self, left: ast.expr, right: ast.expr) -> Position:
        """Position of the operator between two operands, which may be in parentheses or on other lines."""
        start, end = self.position(left)[1], self.position(right)[0]
        first, last = (bisect_left(self.tokens, (offset, "")) for offset in (start, end))
        offset, word = self.tokens[last - 1]
        return self.tokens[first][0], offset + len(word)

    def line_of(self, offset: int) -> int:
        return bisect_right(self.line_starts, offset)

    def mutant(self, path: str, kind: str, position: Position, replacement: str) -> Mutant:
        start, end = position
        first, last = self.line_of(start), self.line_of(end)
        line_start, line_end = self.line_starts[first - 1], self.line_starts[last] - 1
        before = self.text[line_start:line_end]
        after = self.text[line_start:start] + replacement + self.text[end:line_end]
        return Mutant(path, kind, first, start, end, replacement, _one_line(before), _one_line(after))


def _one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.split("\n"))


class _Collector(ast.NodeVisitor):
    """Collects the mutants of one module in source order."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, _Text(text)
        self.mutants: list[Mutant] = []
        self.depth = 0
        """Functions around the current node. Code outside of them is executed when its module is loaded."""

    def add(self, kind: str, position: Position, replacement: str) -> None:
        if self.depth:
            self.mutants.append(self.text.mutant(self.path, kind, position, replacement))

    def replace_operator(self, kind: str, position: Position, others: dict[str, str]) -> None:
        operator = " ".join(self.text.text[slice(*position)].split())
        if operator in others:
            self.add(kind, position, others[operator])

    # Parts that are not mutated: they have no effect at run time, or none that tests should check.

    def visit_arg(self, node: ast.arg) -> None:
        """Skip the annotation."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings: Python 3.11 has no tokens inside them."""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if not any(_last_name(decorator) in DECLARATIONS for decorator in node.decorator_list):
            self.depth += 1
            self.visit_all(node.body)
            self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(_is_typing_protocol(base) for base in node.bases):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if _last_name(node.test) == "TYPE_CHECKING":
            self.visit_all(node.orelse)
        else:
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Skip sizes of caches and queues."""
        if node.arg not in SIZE_ARGUMENTS:
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions: they state what is always true, mostly for the type checker."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _last_name(node.value) not in TYPE_FORMS:
            self.generic_visit(node)

    def visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    # Statements

    def remove(self, node: ast.stmt) -> None:
        self.add("removed statement", self.text.position(node), "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await) and not _is_logging(node.value):
            self.remove(node)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self.remove(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute) for target in node.targets):
            self.remove(node)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            if isinstance(node.target, ast.Attribute):
                self.remove(node)
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Attribute):
            self.remove(node)
        if not _is_text(node.value):
            self.replace_operator(
                "arithmetic", self.text.operator_between(node.target, node.value), AUGMENTED
            )
        self.generic_visit(node)

    # Expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, right in pairwise(operands):
            self.replace_operator("comparison", self.text.operator_between(left, right), COMPARISONS)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not _is_text(node.left) and not _is_text(node.right):
            self.replace_operator("arithmetic", self.text.operator_between(node.left, node.right), ARITHMETIC)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in pairwise(node.values):
            self.replace_operator("boolean", self.text.operator_between(left, right), BOOLEAN)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, _ = self.text.position(node)
            end = start + len("not")
            self.add("negation", (start, end + self.text.text[end:].startswith(" ")), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            other = value + 1 if value + 1 != value else value / 2
            self.add("constant", self.text.position(node), repr(other))

    def visit_Call(self, node: ast.Call) -> None:
        if _is_logging(node) or _last_name(node.func) == "listen":
            return
        if isinstance(node.func, ast.Name) and node.func.id in EXTREMA:
            self.add("min/max", self.text.position(node.func), EXTREMA[node.func.id])
        if _last_name(node.func) not in TYPE_ERRORS_WHEN_SWAPPED | COMMUTATIVE:
            for left, right in pairwise(node.args):
                self.swap(left, right)
        self.generic_visit(node)

    def swap(self, left: ast.expr, right: ast.expr) -> None:
        # Values written out in the call mostly differ in type from their neighbor: any test detects the swap.
        if isinstance(left, NOT_SWAPPED) or isinstance(right, NOT_SWAPPED):
            return
        (start, left_end), (right_start, end) = self.text.position(left), self.text.position(right)
        text = self.text.text
        first, between, second = text[start:left_end], text[left_end:right_start], text[right_start:end]
        if first != second:
            self.add("swapped arguments", (start, end), second + between + first)


def _last_name(node: ast.expr) -> str:
    """`b` for both `b` and `a.b`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_typing_protocol(base: ast.expr) -> bool:
    """Whether a base class is `typing.Protocol`; `asyncio.Protocol` is a class with behavior."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return ast.unparse(base) in ("Protocol", "typing.Protocol")


def _is_logging(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LOG_METHODS
        and _last_name(node.func.value) in LOGGERS
    )


def _is_text(node: ast.expr) -> bool:
    """Whether an operand is visibly not a number."""
    return isinstance(node, TEXT) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All mutants of one module."""
    collector = _Collector(path, text)
    collector.visit(ast.parse(text))
    mutants, seen = [], Counter[tuple[str, str, str]]()
    for mutant in collector.mutants:
        key = (mutant.kind, mutant.before, mutant.after)
        mutants.append(replace(mutant, occurrence=seen[key]))
        seen[key] += 1
    return mutants


def draw_sample(root: Path, *, seed: int, count: int, packages: Sequence[str] = ()) -> list[Mutant]:
    """The first `count` mutants of a seed's order, limited to some packages when any are named."""
    files = sorted((root / SOURCE).rglob("*.py"))
    texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
    mutants = [mutant for path, text in texts.items() for mutant in mutants_of(path, text)]
    mutants = [mutant for mutant in mutants if not packages or mutant.package in packages]
    if unknown := set(packages) - {mutant.package for mutant in mutants}:
        raise SystemExit(f"mutants: no code to mutate in package {', '.join(sorted(unknown))} of {SOURCE}")
    sample: list[Mutant] = []
    for mutant in sorted(mutants, key=lambda mutant: mutant.rank(seed)):
        if len(sample) == count:
            break
        if _is_valid(mutant.apply(texts[mutant.path])):
            sample.append(mutant)
    return sample


def _is_valid(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
