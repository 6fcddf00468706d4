"""Running tests on mutants: a copy of the working tree, and which test files cover a module."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mutation_sites import SOURCE, Mutant, read_text

PLUGIN = '''\
"""Pytest plugin: runs the tests likeliest to fail first, and records which tests start and fail.

MUTANT_NAMES are names of functions and classes, the closest to the mutant first: first come the tests that
use one, themselves or through helpers in their file. Tests that took long before, and slow ones, come last.
"""

import inspect
import os

NAMES = os.environ["MUTANT_NAMES"].split()
LONG_SECONDS = 1.0


def pytest_collection_modifyitems(items):
    with open(os.environ["MUTANT_LONG"], encoding="utf-8") as file:
        long = set(file.read().splitlines())
    if os.environ["MUTANT_NAMES"]:
        items.sort(key=lambda item: (_is_slow(item), item.nodeid in long, _distance(item)))


def _is_slow(item):
    return item.get_closest_marker("slow") is not None


def _distance(item):
    names, waiting, seen = set(), [inspect.unwrap(getattr(item, "function", _distance))], set()
    while waiting:
        function = waiting.pop()
        used = _names(function.__code__)
        names |= used
        for name in used - seen:
            value = function.__globals__.get(name)
            members = value.values() if isinstance(value, dict) else [value]
            if inspect.isclass(value) and value.__module__ == function.__module__:
                members = vars(value).values()
            waiting += [
                member
                for member in members
                if inspect.isfunction(member) and member.__module__ == function.__module__
            ]
        seen |= used
    return next((index for index, name in enumerate(NAMES) if name in names), len(NAMES))


def _names(code):
    nested = [_names(value) for value in code.co_consts if inspect.iscode(value)]
    return set(code.co_names).union(*nested)


def _write(variable, text):
    with open(os.environ[variable], "a", encoding="utf-8") as file:
        file.write(text + "\\n")


def pytest_runtest_logstart(nodeid):
    _write("MUTANT_STARTED", nodeid)


def pytest_runtest_logreport(report):
    _write("MUTANT_SECONDS", str(report.duration))
    if report.duration > LONG_SECONDS:
        _write("MUTANT_LONG", report.nodeid)
    pytest_collectreport(report)


def pytest_collectreport(report):
    if report.failed:
        _write("MUTANT_FAILURES", report.nodeid)
'''


HANG = "Timeout (0:"
"""What `faulthandler` prints before it ends a process."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """How one run of pytest ended."""

    passed: bool
    failures: tuple[str, ...] = ()
    """Ids of failed tests, of files that could not be collected, and of the test in which pytest ended."""
    is_hang: bool = False
    """A test ran longer than its time limit, which ended pytest."""
    is_stopped: bool = False
    """The run was stopped at the deadline."""
    seconds: float = 0.0
    """That the tests took, without the start of pytest."""


class WorkCopy:
    """A copy of the working tree with a virtual environment that imports the copy instead of the original."""

    def __init__(self, root: Path, folder: Path, *, workers: int, test_seconds: int) -> None:
        self.root, self.folder = root, folder
        self.tree, self.venv = folder / "tree", folder / "venv"
        self.workers, self.test_seconds = workers, test_seconds
        self.mutations = 0
        self.long = folder / "long"
        """Tests that took long, of all runs."""
        folder.mkdir(exist_ok=True)
        self.long.touch()
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
        tools = str(Path(__file__).resolve().parent)
        lines = [str(self.tree / "src"), f"import site; site.addsitedir({original!r})", tools]
        (site_packages / "mutants.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (site_packages / "mutant_plugin.py").write_text(PLUGIN, encoding="utf-8")
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
        """Fail early where no mutant would be tested."""
        show = [str(self.python), "-c", "import proctor; print(proctor.__file__)"]
        imported = subprocess.run(show, cwd=self.folder, check=True, capture_output=True, text=True).stdout
        if not Path(imported.strip()).is_relative_to(self.tree):
            raise SystemExit(f"mutants: the copy's Python imports {imported.strip()} instead of the copy")

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
        text, modified = read_text(file), int(file.stat().st_mtime)
        self.mutations += 1
        file.write_text(mutant.apply(text), encoding="utf-8")
        # Python recognizes stale bytecode by size and whole seconds: each version gets a second of its own.
        os.utime(file, (modified + self.mutations, modified + self.mutations))
        try:
            yield
        finally:
            file.write_text(text, encoding="utf-8")
            os.utime(file, (modified, modified))

    def run(self, tests: Sequence[str], *options: str, until: float, names: Sequence[str] = ()) -> TestRun:
        """Run tests, first those that use one of `names`, and stop them at a time of the monotonic clock."""
        failures, starts, durations = (self.folder / name for name in ("failures", "starts", "seconds"))
        for file in (failures, starts, durations):
            file.write_text("", encoding="utf-8")
        workers = min(self.workers, len(tests))
        command = [
            *(str(self.python), "-m", "pytest", "-q", "-p", "mutant_plugin", "-p", "no:cacheprovider"),
            *("--basetemp", str(self.folder / "t")),
            *("-o", f"faulthandler_timeout={self.test_seconds}", "-o", "faulthandler_exit_on_timeout=true"),
            *(("-n", str(workers), "--dist", "worksteal") if workers > 1 else ()),
            *options,
            *tests,
        ]
        environment = os.environ | {
            "MUTANT_FAILURES": str(failures),
            "MUTANT_STARTED": str(starts),
            "MUTANT_SECONDS": str(durations),
            "MUTANT_LONG": str(self.long),
            "MUTANT_NAMES": " ".join(names),
            "VIRTUAL_ENV": str(self.venv),
        }
        # The last, in a worker of pytest: the tests would take themselves for those of a worker.
        for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_XDIST_WORKER"):
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
                time.sleep(0.02)
        finally:
            # Before the exit code is collected, the id cannot belong to another process group.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not ended:
            return TestRun(passed=False, is_stopped=True)
        # 5: no tests in these files. Everything else but 0 is a failure, also that of a conftest.py (4).
        passed = process.returncode in (0, 5)
        failed = tuple(dict.fromkeys(read_text(failures).splitlines()))
        is_hang = not passed and not failed and HANG in self.output
        if not passed and not failed:
            failed = tuple(read_text(starts).splitlines()[-1:])
        seconds = sum(map(float, read_text(durations).split()))
        return TestRun(passed, failed, is_hang=is_hang, seconds=seconds)


def _has_ended(process_id: int) -> bool:
    """Whether a child has ended; its exit code is left for `wait`."""
    return os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class TestFiles:
    """The test files of a project, and which of them cover a module, judged by folders and imports."""

    def __init__(self, root: Path, *, all_tests: bool = False) -> None:
        self.root, self.all_tests = root, all_tests
        self.files = sorted(file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py"))
        self.sources = sorted((root / SOURCE).rglob("*.py"))

    def stages(self, mutant: Mutant) -> list[list[str]]:
        """The test files that cover a mutant, most likely to fail first.

        Those that import its module and name the function or class, or a caller in its module; the others
        that import its module; those of its package; those that import its package; those of the packages
        that import it; those of no package, which test the whole program. With `all_tests`, the rest too.
        """
        module, package = mutant.module, f"proctor.{mutant.package}"
        users = self._importing_packages(module) or self._importing_packages(package)
        importing = self._tests_importing(module) if module != package else []
        candidates: list[Iterable[str]] = [
            self._tests_naming(self.names(mutant), importing),
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

    def names(self, mutant: Mutant) -> list[str]:
        """Names through which tests reach a mutant: what it is part of, then the callers in its module."""
        tree = ast.parse(read_text(self.root / mutant.path))
        constants = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        scopes = [node for node in ast.walk(tree) if isinstance(node, SCOPES)]
        definitions: list[Definition] = [*constants, *scopes]
        # The innermost first.
        around = [node for node in reversed(definitions) if _contains(node, mutant.line)]
        names = [name for node in around for name in _defined(node)]
        uses = {name: _used(node) for node in definitions for name in _defined(node)}
        for name in names:
            # Callers of callers too: the list grows while it is read.
            names += [user for user, used in uses.items() if name in used and user not in names]
        return names

    def _tests_naming(self, names: Sequence[str], files: Sequence[str]) -> list[str]:
        if not names:
            return []
        named = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
        return [file for file in files if named.search(read_text(self.root / file))]

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


def _contains(node: Definition, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _defined(node: Definition) -> list[str]:
    """The name of a function or class; those that an assignment gives values to. Not those of operators."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return [] if node.name.startswith("__") else [node.name]


def _used(node: Definition) -> set[str]:
    """All names and attributes in a definition."""
    parts = list(ast.walk(node))
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names | {part.attr for part in parts if isinstance(part, ast.Attribute)}


@cache
def _imports(file: Path) -> frozenset[str]:
    """Dotted names that a file imports, with the packages that contain them."""
    names = set[str]()
    for node in ast.walk(ast.parse(read_text(file))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    parts = (name.split(".") for name in names)
    return frozenset(".".join(part[:length]) for part in parts for length in range(1, len(part) + 1))
