"""Measure how many small changes to the code the tests detect: a seeded mutation sample.

    make mutants MUTANTS="--package store --count 20 --minutes 30"
    .venv/bin/python tools/mutants.py --list --seed 7

Each mutant is one change to one expression or statement below src/proctor. Mutants are tested one after the
other in a temporary copy of the working tree, which has a virtual environment of its own, so that processes
started by tests import the mutated code too. Only tests that cover the mutated module run: files that import
it (first those that name the mutated function), then those of its package, then those of the packages that
import it, then those of the whole program.
`--all-tests` adds the rest of the suite.

A mutant is killed when a test fails with it, fails again when repeated alone, and passes without it; or when
a test runs longer than `--test-seconds`. A mutant that no test has killed after `--mutant-minutes` counts as
survived and is marked, because some tests were not run. Survivors may be equivalent to the original: read
them before writing tests.

The sample depends on the seed and the source only. It is ordered by a hash of each mutant, so that edits
elsewhere leave it unchanged and `--minutes` cuts it at a random place.
"""

import argparse
import ast
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tokenize
import venv
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
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
TEXT = (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
NOT_SWAPPED = (*TEXT, ast.Starred, ast.Constant, ast.Dict, ast.Set, ast.Lambda)

TYPE_FORMS = {"Annotated", "Literal"}
LOGGERS = {"log", "logger", "logging", "_log", "_logger"}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
DECLARATIONS = {"overload", "abstractmethod"}

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
        return self.module_parts[1] if len(self.module_parts) > 1 else "__init__"

    @property
    def module(self) -> str:
        """Dotted name, as tests import it."""
        return ".".join(self.module_parts)

    @property
    def module_parts(self) -> tuple[str, ...]:
        parts = Path(self.path).with_suffix("").parts[1:]
        return parts[:-1] if parts[-1] == "__init__" else parts

    def rank(self, seed: int) -> bytes:
        """Position in the sample of a seed."""
        identity = [seed, self.path, self.kind, self.before, self.after, self.occurrence]
        return hashlib.sha256(json.dumps(identity).encode()).digest()

    def apply(self, text: str) -> str:
        return text[: self.start] + self.replacement + text[self.end :]


# --- Mutation sites ---


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
        return self.text.count("\n", 0, offset) + 1

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

    def add(self, kind: str, position: Position, replacement: str) -> None:
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
            self.visit_all([*node.decorator_list, node.args, *node.body])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(_is_typing_protocol(base) for base in node.bases):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if _last_name(node.test) == "TYPE_CHECKING":
            self.visit_all(node.orelse)
        else:
            self.generic_visit(node)

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
        if _is_logging(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in EXTREMA:
            self.add("min/max", self.text.position(node.func), EXTREMA[node.func.id])
        if _last_name(node.func) not in TYPE_ERRORS_WHEN_SWAPPED:
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
    texts = {file.relative_to(root).as_posix(): _read(file) for file in sorted((root / SOURCE).rglob("*.py"))}
    mutants = [mutant for path, text in texts.items() for mutant in mutants_of(path, text)]
    if unknown := set(packages) - {mutant.package for mutant in mutants}:
        raise SystemExit(f"mutants: no code to mutate in package {', '.join(sorted(unknown))} of {SOURCE}")
    chosen = (mutant for mutant in mutants if not packages or mutant.package in packages)
    sample: list[Mutant] = []
    for mutant in sorted(chosen, key=lambda mutant: mutant.rank(seed)):
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


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


# --- The copy in which mutants are tested ---

PLUGIN = '''\
"""Pytest plugin: appends the id of each failed test to the file named by MUTANT_FAILURES."""

import os


def _record(report):
    if report.failed:
        with open(os.environ["MUTANT_FAILURES"], "a", encoding="utf-8") as file:
            file.write(report.nodeid + "\\n")


pytest_runtest_logreport = _record
pytest_collectreport = _record
'''


@dataclass(frozen=True, slots=True)
class TestRun:
    """How one run of pytest ended."""

    passed: bool
    failures: tuple[str, ...] = ()
    """Ids of failed tests and of files that could not be collected."""
    stopped: bool = False
    """The run was stopped at the deadline."""


class WorkCopy:
    """A copy of the working tree with a virtual environment that imports the copy instead of the original."""

    def __init__(self, root: Path, folder: Path, *, workers: int, test_seconds: int) -> None:
        self.root, self.folder = root, folder
        self.tree, self.venv = folder / "tree", folder / "venv"
        self.workers, self.test_seconds = workers, test_seconds
        self.mutations = 0
        self._copy_tree()
        self._create_venv()
        self._check()

    def _copy_tree(self) -> None:
        """Copy what git tracks, and new files that it does not ignore, as they are in the working tree."""
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, cwd=self.root, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (self.root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.root / name, self.tree / name, follow_symlinks=False)
        # Programs that some tests need, in gigabytes.
        if (self.root / "build").is_dir():
            (self.tree / "build").symlink_to(self.root / "build")

    def _create_venv(self) -> None:
        """A virtual environment with the copy's `src` ahead of all that the current one contains.

        PYTHONPATH would not do: tests start processes with an environment of their own.
        """
        venv.EnvBuilder(symlinks=True, with_pip=False).create(self.venv)
        (site_packages,) = self.venv.glob("lib/python*/site-packages")
        original = sysconfig.get_paths()["purelib"]
        lines = [str(self.tree / "src"), f"import site; site.addsitedir({original!r})"]
        (site_packages / "mutants.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (site_packages / "mutant_failures.py").write_text(PLUGIN, encoding="utf-8")
        shebang = f"#!{sys.executable}\n".encode()
        for script in Path(sys.executable).parent.iterdir():
            copied = self.venv / "bin" / script.name
            if copied.exists() or not script.is_file():
                continue
            content = script.read_bytes()
            if content.startswith(shebang):
                copied.write_bytes(content.replace(shebang, f"#!{self.python}\n".encode(), 1))
                copied.chmod(0o755)
            else:
                copied.symlink_to(script)

    def _check(self) -> None:
        """Fail early where every mutant would seem to be killed."""
        show = [str(self.python), "-c", "import proctor; print(proctor.__file__)"]
        imported = subprocess.run(show, cwd=self.folder, check=True, capture_output=True, text=True).stdout
        if not Path(imported.strip()).is_relative_to(self.tree):
            raise SystemExit(f"mutants: the copy's Python imports {imported.strip()} instead of the copy")
        collected = self.run(["tests"], "--collect-only", until=time.monotonic() + 600)
        if not collected.passed:
            raise SystemExit(
                "mutants: pytest cannot collect the tests of the unchanged code:\n" + self.output
            )

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def output(self) -> str:
        """What the latest run of pytest printed."""
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """Apply a mutant to the copy, and restore the file afterwards."""
        file = self.tree / mutant.path
        text, modified = _read(file), int(file.stat().st_mtime)
        self.mutations += 1
        file.write_text(mutant.apply(text), encoding="utf-8")
        # Python recognizes stale bytecode by size and whole seconds: each version gets a second of its own.
        os.utime(file, (modified + self.mutations, modified + self.mutations))
        try:
            yield
        finally:
            file.write_text(text, encoding="utf-8")
            os.utime(file, (modified, modified))

    def run(self, tests: Sequence[str], *options: str, until: float) -> TestRun:
        """Run tests, and stop them at a time of the monotonic clock."""
        failures = self.folder / "failures"
        failures.write_text("", encoding="utf-8")
        workers = min(self.workers, len(tests))
        command = [
            *(str(self.python), "-m", "pytest", "-q", "-p", "mutant_failures", "-p", "no:cacheprovider"),
            *("--basetemp", str(self.folder / "t")),
            *("-o", f"faulthandler_timeout={self.test_seconds}", "-o", "faulthandler_exit_on_timeout=true"),
            *(("-n", str(workers), "--dist", "worksteal") if workers > 1 else ()),
            *options,
            *tests,
        ]
        environment = os.environ | {"MUTANT_FAILURES": str(failures), "VIRTUAL_ENV": str(self.venv)}
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ended = False
        try:
            while not (ended := _has_ended(process.pid)) and time.monotonic() < until:
                time.sleep(0.05)
        finally:
            # Before the exit code is collected, the id cannot belong to another process group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not ended:
            return TestRun(passed=False, stopped=True)
        # 5: no tests in these files. Everything else but 0 is a failure, also that of a conftest.py (4).
        return TestRun(process.returncode in (0, 5), tuple(dict.fromkeys(_read(failures).splitlines())))


def _has_ended(process_id: int) -> bool:
    """Whether a child has ended; its exit code is left for `wait`."""
    return os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


# --- Which tests can notice a mutant ---


class TestFiles:
    """The test files of a project, and which of them cover a module, judged by folders and imports."""

    def __init__(self, root: Path, *, all_tests: bool = False) -> None:
        self.root, self.all_tests = root, all_tests
        self.files = sorted(file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py"))
        self.sources = sorted((root / SOURCE).rglob("*.py"))

    def stages(self, mutant: Mutant) -> list[list[str]]:
        """The test files that cover a mutant, most likely to fail first.

        Those that import its module and name its function or class; the others that import its module; those
        of its package; those that import its package; those of the
        packages that import it; those of no package, which test the whole program.
        With `all_tests`, the rest too.
        """
        module, package = mutant.module, f"proctor.{mutant.package}"
        users = self._importing_packages(module) or self._importing_packages(package)
        importing = self._tests_importing(module) if module != package else []
        candidates: list[Iterable[str]] = [
            self._tests_naming(self._scope_names(mutant), importing),
            importing,
            (file for file in self.files if self._mirrors(file, mutant.package)),
            self._tests_importing(package),
            (file for file in self.files if any(self._mirrors(file, user) for user in users)),
            (file for file in self.files if self._is_end_to_end(file)),
            self.files if self.all_tests else (),
        ]
        stages: list[list[str]] = []
        seen = set[str]()
        for candidate in candidates:
            stage = sorted(set(candidate) - seen, key=lambda file: (not self._is_beside(file, module), file))
            seen |= set(stage)
            stages += [stage] if stage else []
        return stages

    def _tests_importing(self, name: str) -> list[str]:
        return [file for file in self.files if name in _imports(self.root / file)]

    def _scope_names(self, mutant: Mutant) -> list[str]:
        """Names of the functions and classes around a mutant."""
        tree = ast.parse(_read(self.root / mutant.path))
        scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return [
            node.name
            for node in ast.walk(tree)
            if isinstance(node, scopes) and node.lineno <= mutant.line <= (node.end_lineno or node.lineno)
        ]

    def _tests_naming(self, names: Sequence[str], files: Sequence[str]) -> list[str]:
        if not names:
            return []
        named = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        return [file for file in files if named.search(_read(self.root / file))]

    def _importing_packages(self, name: str) -> set[str]:
        """Packages with a module that imports `name`, without its own."""
        own = name.split(".")[1]
        parts = (file.relative_to(self.root / SOURCE) for file in self.sources if name in _imports(file))
        return {part.parts[0].removesuffix(".py") for part in parts} - {own, "__init__", "testing"}

    @staticmethod
    def _is_beside(file: str, module: str) -> bool:
        """Whether a test file stands in the folder of the module's package."""
        return file.startswith("tests/" + "/".join(module.split(".")[1:-1]) + "/")

    def _is_end_to_end(self, file: str) -> bool:
        folder = file.split("/")[1]
        return not folder.endswith(".py") and not (self.root / SOURCE / folder).exists()

    @staticmethod
    def _mirrors(file: str, package: str) -> bool:
        return file.startswith((f"tests/{package}/", f"tests/test_{package}.", f"tests/test_{package}_"))


@cache
def _imports(file: Path) -> frozenset[str]:
    """Dotted names that a file imports, with the packages that contain them."""
    names = set[str]()
    for node in ast.walk(ast.parse(_read(file))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    parts = (name.split(".") for name in names)
    return frozenset(".".join(part[:length]) for part in parts for length in range(1, len(part) + 1))


# --- Testing a sample ---


@dataclass(frozen=True, slots=True)
class Result:
    """Whether the tests detected a mutant."""

    mutant: Mutant
    killed: bool
    killer: str = ""
    """The test that failed; empty where pytest itself ended, as it does when a test runs too long."""
    complete: bool = True
    """False for a survivor whose time limit ended before all tests had run."""


@dataclass
class Sampler:
    """Tests mutants in a work copy."""

    copy: WorkCopy
    tests: TestFiles
    mutant_seconds: float
    until: float
    """When to stop altogether, on the monotonic clock."""
    broken: set[str] = field(default_factory=set)
    """Tests that fail without any mutant: they are not run again."""
    sound: set[str] = field(default_factory=set)
    """Tests known to pass without a mutant."""

    def test(self, mutant: Mutant) -> Result | None:
        """Run the tests on a mutant; None when the time for the whole sample ended before they did."""
        until = min(time.monotonic() + self.mutant_seconds, self.until)
        flaky = set[str]()
        for stage in self.tests.stages(mutant):
            while files := [file for file in stage if file not in self.broken | flaky]:
                excluded = [f"--deselect={test}" for test in sorted(self.broken | flaky)]
                with self.copy.mutated(mutant):
                    run = self.copy.run(files, "-x", *excluded, until=until)
                    failures = [test for test in run.failures if not self._passes(test)]
                if run.passed:
                    break
                if run.stopped:
                    return None if until == self.until else Result(mutant, killed=False, complete=False)
                if not run.failures:
                    return Result(mutant, killed=True)
                if killers := [test for test in failures if self._passes_unchanged(test)]:
                    return Result(mutant, killed=True, killer=killers[0])
                flaky |= set(run.failures)
        return Result(mutant, killed=False)

    def _passes(self, test: str) -> bool:
        """Run one test alone. It has its own time limit, since a kill must not depend on when it happens."""
        return self.copy.run([test], until=time.monotonic() + 2 * self.copy.test_seconds).passed

    def _passes_unchanged(self, test: str) -> bool:
        """Whether a test passes without a mutant; remembered for later mutants."""
        if test not in self.sound | self.broken:
            (self.sound if self._passes(test) else self.broken).add(test)
        return test in self.sound


# --- Report ---


def report(results: Sequence[Result], *, seed: int, sampled: int, broken: Iterable[str]) -> dict[str, Any]:
    """Shares per package and overall, and all results, ready for JSON."""
    packages = sorted({result.mutant.package for result in results})
    by_package = {
        package: _share([result for result in results if result.mutant.package == package])
        for package in packages
    }
    return {
        "seed": seed,
        "sampled": sampled,
        **_share(results),
        "packages": by_package,
        "survivors": [
            _row(result.mutant) | {"allTestsRan": result.complete} for result in results if not result.killed
        ],
        "kills": [
            _row(result.mutant) | {"test": result.killer or None} for result in results if result.killed
        ],
        "broken": sorted(broken),
    }


def _share(results: Sequence[Result]) -> dict[str, Any]:
    killed = sum(result.killed for result in results)
    return {"tested": len(results), "killed": killed, "share": killed / len(results) if results else None}


def _row(mutant: Mutant) -> dict[str, Any]:
    return {
        "file": mutant.path,
        "line": mutant.line,
        "package": mutant.package,
        "kind": mutant.kind,
        "before": mutant.before,
        "after": mutant.after,
    }


def as_text(figures: dict[str, Any]) -> str:
    """The report for a terminal."""
    rows = [*figures["packages"].items(), ("overall", figures)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{'package':{width}}  killed  tested  share"]
    for name, row in rows:
        share = "-" if row["share"] is None else f"{row['share']:.0%}"
        lines.append(f"{name:{width}}  {row['killed']:6}  {row['tested']:6}  {share:>5}")
    if untested := figures["sampled"] - figures["tested"]:
        lines.append(f"\n{untested} of {figures['sampled']} sampled mutants were not tested: the time ended.")
    if figures["broken"]:
        lines += ["\nTests that fail on the unchanged code and were ignored:", *figures["broken"]]
    if figures["survivors"]:
        lines.append("\nSurvivors:")
    for row in figures["survivors"]:
        note = "" if row["allTestsRan"] else " (time limit reached: not all tests ran)"
        lines.append(_described(row, note))
    return "\n".join(lines)


def _described(row: dict[str, Any], note: str = "") -> str:
    return f"{row['file']}:{row['line']}: {row['kind']}{note}\n  - {row['before']}\n  + {row['after']}"


# --- Command ---


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Draw a sample, test it, print the report. Surviving mutants are not an error."""
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    sample = draw_sample(root, seed=options.seed, count=options.count, packages=options.package)
    if options.list:
        rows = [_row(mutant) for mutant in sample]
        print(json.dumps(rows, indent=2) if options.json else "\n".join(map(_described, rows)))
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        copy = WorkCopy(
            root, Path(folder).resolve(), workers=options.workers, test_seconds=options.test_seconds
        )
        # Of the copy: the original may be edited meanwhile.
        tests = TestFiles(copy.tree, all_tests=options.all_tests)
        sampler = Sampler(copy, tests, options.mutant_minutes * 60, started + options.minutes * 60)
        results = _test_all(sampler, sample)
    figures = report(results, seed=options.seed, sampled=len(sample), broken=sampler.broken)
    print(json.dumps(figures, indent=2) if options.json else as_text(figures))
    return 0


def _test_all(sampler: Sampler, sample: Sequence[Mutant]) -> list[Result]:
    """Results of a sample, until its time ends or the user interrupts."""
    results: list[Result] = []
    try:
        for number, mutant in enumerate(sample, 1):
            started = time.monotonic()
            result = sampler.test(mutant) if started < sampler.until else None
            if result is None:
                break
            results.append(result)
            status = f"killed by {result.killer or 'a hang or crash'}" if result.killed else "SURVIVED"
            seconds = time.monotonic() - started
            place = f"{mutant.path}:{mutant.line}: {mutant.kind}"
            print(
                f"[{number}/{len(sample)}] {place}: {status} ({seconds:.0f} s)", file=sys.stderr, flush=True
            )
    except KeyboardInterrupt:
        print("mutants: interrupted", file=sys.stderr)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mutants", description="Measure how many small changes to the code the tests detect."
    )
    add = parser.add_argument
    add("--seed", type=int, default=1, help="which sample to draw (default: 1)")
    add("--count", type=int, default=50, help="number of mutants (default: 50)")
    add("--package", action="append", default=[], metavar="NAME", help="only this package; may be repeated")
    add("--minutes", type=float, default=30, help="time limit for the whole sample (default: 30)")
    add("--mutant-minutes", type=float, default=3, help="time limit for one mutant (default: 3)")
    add("--all-tests", action="store_true", help="also run tests that do not seem to cover the module")
    add("--test-seconds", type=int, default=60, help="a test that runs longer hangs (default: 60)")
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="parallel test processes (default: one per core)",
    )
    add("--list", action="store_true", help="print the sample and test nothing")
    add("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    # Terminated is as interrupted: no test process and no temporary folder remain.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
