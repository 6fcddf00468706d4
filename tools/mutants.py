"""Change the code at random, one small change at a time, and list every test that detects each change.

    make mutants MUTANTS="--record tests"                            which tests execute which line
    make mutants MUTANTS="--seed 7 --count 400"                      the kill matrix of a sample
    make mutants MUTANTS="--seed 7 --package store --first"          only whether a change is detected

A change is tested with the recorded tests that execute its line, quickest first, for at most `--seconds` of
their recorded time. They run in a fork of a pytest process that has collected them, in a copy of the tree:
the code of the loaded function is replaced, and its file as well, for processes that tests start. A test
detects a change if it fails with it and passes without it. Code outside functions is not changed: it has been
executed when the process is forked. Survivors may be equivalent to the original: read them first.
"""

import argparse
import ctypes
import gc
import hashlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutation_sites import Mutant, draw_sample

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/proctor"
REQUESTS, RESULTS = "MUTANT_REQUESTS", "MUTANT_RESULTS"
"""Paths of the file with changes and their tests, and of the file with what came of them."""
RECORDINGS = "MUTANT_RECORDINGS"
"""Folder in which the processes of a recording write what they execute."""
PR_SET_PDEATHSIG = 1


# --- The copy of the tree ---


def make_copy(folder: Path) -> Path:
    """Copy the working tree, with an environment that imports the copy; the path of its Python."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tree, environment = folder / "tree", folder / "venv"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    # Programs that some tests need, in gigabytes.
    if (ROOT / "build").is_dir():
        (tree / "build").symlink_to(ROOT / "build")
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    (site_packages,) = environment.glob("lib/python*/site-packages")
    # Not PYTHONPATH: tests start processes with an environment of their own.
    original, tools = sysconfig.get_paths()["purelib"], str(Path(__file__).parent)
    recorder = "import os; os.path.isdir(RECORDINGS) and __import__('mutation_recorder')"
    lines = [str(tree / "src"), f"import site; site.addsitedir({original!r})", tools]
    lines.append(recorder.replace("RECORDINGS", repr(str(folder / "recordings"))))
    (site_packages / "mutants.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    python, shebang = environment / "bin" / "python", f"#!{sys.executable}\n".encode()
    for script in Path(sys.executable).parent.iterdir():
        copied = environment / "bin" / script.name
        if not copied.exists() and script.is_file():
            copied.write_bytes(script.read_bytes().replace(shebang, f"#!{python}\n".encode(), 1))
            copied.chmod(0o755)
    return python


def start_pytest(python: Path, *options: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start pytest in the copy that a Python belongs to, in a process group of its own."""
    folder = python.parents[2]
    unset = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTEST_XDIST_WORKER")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [str(python), "-m", "pytest", "-q", "-p", "mutants", *options],
            cwd=folder / "tree",
            env=environment | {"VIRTUAL_ENV": str(python.parents[1])} | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


# --- Recording: which tests execute which line ---


def record(folder: Path, places: Sequence[str], workers: int) -> None:
    """Record the test files in some places that have changed since they were recorded, folder by folder."""
    python = make_copy(folder)
    groups: dict[Path, list[str]] = defaultdict(list)
    for place in places:
        for file in sorted((ROOT / place).rglob("test_*.py")):
            if read_record(file).get("version") != _version(file):
                groups[file.parent].append(str(file.relative_to(ROOT)))
    for parent, files in groups.items():
        started, recordings = time.monotonic(), folder / "recordings"
        recordings.mkdir()
        options = ("-n", str(workers), "--dist", "loadfile", *files)
        start_pytest(python, *options, **{RECORDINGS: str(recordings)}).wait()
        _write_records(folder / "tree", recordings, files)
        shutil.rmtree(recordings)
        seconds = time.monotonic() - started
        print(f"{parent.relative_to(ROOT)}: {len(files)} files in {seconds:.0f} s", flush=True)


def _version(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _record_path(test_file: Path) -> Path:
    return ROOT / "build/mutants" / (str(test_file.relative_to(ROOT)).replace("/", ".") + ".json")


def read_record(test_file: Path) -> dict[str, Any]:
    """What is recorded of a test file: version, seconds by test, tests by source and line."""
    with suppress(FileNotFoundError):
        return dict(json.loads(_record_path(test_file).read_text(encoding="utf-8")))
    return {}


def _write_records(tree: Path, recordings: Path, files: Sequence[str]) -> None:
    lines: dict[str, Any] = {file: defaultdict(lambda: defaultdict(set)) for file in files}
    for recording in recordings.glob("lines-*"):
        # A process that was killed while it wrote leaves a file that cannot be read.
        with suppress(ValueError):
            for test, executed in json.loads(recording.read_bytes()).items():
                by_source = lines.get(test.partition("::")[0])
                if by_source is not None:
                    for path, numbers in executed.items():
                        for line in numbers:
                            by_source[str(Path(path).relative_to(tree))][line].add(test)
    seconds: dict[str, dict[str, float]] = defaultdict(dict)
    for report in (recordings / "reports").read_text(encoding="utf-8").splitlines():
        duration, test = report.split(" ", 1)
        tests = seconds[test.partition("::")[0]]
        tests[test] = tests.get(test, 0) + float(duration)
    for file in files:
        sources = {
            source: {line: sorted(tests) for line, tests in by_line.items()}
            for source, by_line in lines[file].items()
        }
        written = {"version": _version(tree / file), "seconds": seconds[file], "sources": sources}
        path = _record_path(ROOT / file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(written), encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the duration of each test of a recording. Forks that test changes are watched by `_Watcher`."""
    if RECORDINGS in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        with (Path(os.environ[RECORDINGS]) / "reports").open("a", encoding="utf-8") as file:
            file.write(f"{report.duration} {report.nodeid}\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tell the recorder, also that of processes that the test starts, which test is running."""
    if RECORDINGS not in os.environ:
        return (yield)
    import mutation_recorder

    mutation_recorder.enter(item.nodeid)
    try:
        return (yield)
    finally:
        mutation_recorder.enter("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[None]:
    """What a fixture of a wider scope executes belongs to its test file, in whichever test it is set up."""
    if RECORDINGS not in os.environ or fixturedef.scope == "function":
        return (yield)
    import mutation_recorder

    test = mutation_recorder.current_test()
    mutation_recorder.enter(test.partition("::")[0])
    try:
        return (yield)
    finally:
        mutation_recorder.enter(test)


class LineMap:
    """The tests that execute each line, and how long they take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for file in sorted((ROOT / "tests").rglob("test_*.py")):
            record = read_record(file)
            own = record.get("seconds", {})
            self.seconds |= own
            for source, by_line in record.get("sources", {}).items():
                for line, tests in by_line.items():
                    is_shared = str(file.relative_to(ROOT)) in tests
                    self._lines[source][int(line)].update(own if is_shared else tests)

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that execute a change, quickest first."""
        lines = self._lines[mutant.path]
        # Not every line of a statement has an instruction of its own.
        nearest = next((line for line in range(mutant.line, 0, -1) if lines.get(line)), 0)
        tests = lines.get(mutant.line) or (lines[nearest] if mutant.line - nearest < 12 else set())
        return sorted(tests & self.seconds.keys(), key=lambda test: (self.seconds[test], test))


# --- Testing changes, in the pytest process of a copy ---


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Test the requested changes instead of running the tests."""
    if REQUESTS not in os.environ:
        return None
    tests = {item.nodeid: item for item in session.items}
    requests = Path(os.environ[REQUESTS]).read_text(encoding="utf-8").splitlines()
    with Path(os.environ[RESULTS]).open("a", encoding="utf-8") as output:
        for request in map(json.loads, requests):
            mutant = Mutant(**request["mutant"])
            trial = _Trial(session, mutant, request["test_seconds"], is_first_enough=request["first"])
            killers = trial.run([tests[name] for name in request["tests"] if name in tests])
            print(json.dumps({"mutant": request["mutant"], "killers": killers}), file=output, flush=True)
    return True


class _Trial:
    """One change and the tests that execute it."""

    def __init__(
        self, session: pytest.Session, mutant: Mutant, test_seconds: float, *, is_first_enough: bool
    ) -> None:
        self.session, self.mutant, self.test_seconds = session, mutant, test_seconds
        self.is_first_enough = is_first_enough
        self.file = Path.cwd() / mutant.path
        self.text = self.file.read_text(encoding="utf-8")

    def run(self, tests: Sequence[pytest.Item]) -> list[str]:
        """The names of the tests that fail with the change, and pass without it."""
        failed = self._fork(tests, is_changed=True) if tests else []
        if failed:
            unchanged = self._fork(failed, is_changed=False)
            failed = [test for test in failed if test not in unchanged]
        return [test.nodeid for test in failed]

    def _fork(self, tests: Sequence[pytest.Item], *, is_changed: bool) -> list[pytest.Item]:
        """The tests that fail in a fork of this process. One that hangs is the last."""
        status = self.file.stat()
        if is_changed:
            self.file.write_text(self.mutant.apply(self.text), encoding="utf-8")
            # Python recognizes stale bytecode by size and whole seconds.
            os.utime(self.file, (status.st_mtime + 1, status.st_mtime + 1))
        folder = tempfile.mkdtemp(prefix="proctor-mutant-")
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            self._run_tests(tests, Path(folder), writing, is_changed=is_changed)
        os.close(writing)
        _lead_group(process)
        try:
            return self._watch(tests, reading, is_first_enough=is_changed and self.is_first_enough)
        finally:
            os.close(reading)
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            shutil.rmtree(folder, ignore_errors=True)
            self.file.write_text(self.text, encoding="utf-8")
            os.utime(self.file, (status.st_mtime, status.st_mtime))

    def _watch(
        self, tests: Sequence[pytest.Item], reading: int, *, is_first_enough: bool
    ) -> list[pytest.Item]:
        """Follow a fork, which writes `.` for each test that passes and `F` for each that fails."""
        failed: list[pytest.Item] = []
        for test in tests:
            ready, _, _ = select.select([reading], [], [], self.test_seconds)
            result = os.read(reading, 1) if ready else b""
            if result != b".":
                failed.append(test)
                # Nothing more comes of a process that hangs or has died.
                if is_first_enough or result != b"F":
                    break
        return failed

    def _run_tests(
        self, tests: Sequence[pytest.Item], folder: Path, writing: int, *, is_changed: bool
    ) -> None:
        """Run tests in this fork. Does not return."""
        _lead_group(0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        try:
            self.session.config._tmp_path_factory._basetemp = folder
            if is_changed:
                _replace_functions(str(self.file), self.text, self.mutant.apply(self.text))
            watcher = _Watcher()
            self.session.config.pluginmanager.register(watcher)
            for index, item in enumerate(tests):
                watcher.has_failed = False
                following = tests[index + 1] if index + 1 < len(tests) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                os.write(writing, b"F" if watcher.has_failed else b".")
        finally:
            os._exit(0)


class _Watcher:
    has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.has_failed |= report.failed


def _lead_group(process: int) -> None:
    """Make a process the leader of a group: called on both sides, since either may come first."""
    with suppress(OSError):
        os.setpgid(process, process)


def _replace_functions(path: str, text: str, changed: str) -> None:
    """Give every loaded function of a file the code of its changed version."""
    replacements: dict[tuple[str, str, int], CodeType] = {}
    _pair(compile(text, path, "exec"), compile(changed, path, "exec"), replacements)
    # Frozen objects are not listed.
    gc.unfreeze()
    for function in [value for value in gc.get_objects() if isinstance(value, FunctionType)]:
        code = function.__code__
        replacement = replacements.get((code.co_filename, code.co_qualname, code.co_firstlineno))
        if replacement is not None and len(replacement.co_freevars) == len(code.co_freevars):
            function.__code__ = replacement


def _pair(old: CodeType, new: CodeType, pairs: dict[tuple[str, str, int], CodeType]) -> None:
    """Find the changed version of each function in a code object, by names and order."""
    pairs[old.co_filename, old.co_qualname, old.co_firstlineno] = new
    candidates = [value for value in new.co_consts if isinstance(value, CodeType)]
    for part in (value for value in old.co_consts if isinstance(value, CodeType)):
        same = next((value for value in candidates if value.co_name == part.co_name), None)
        if same is not None:
            candidates.remove(same)
            _pair(part, same, pairs)


# --- The command ---


def test_sample(folder: Path, sample: Sequence[Mutant], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Test a sample in several copies of the tree; a result for each change that was tested in time."""
    line_map = LineMap()
    shards: list[list[dict[str, Any]]] = [[] for _ in range(options.workers)]
    results: list[dict[str, Any]] = []
    for number, mutant in enumerate(sample):
        tests, total = [], 0.0
        for test in line_map.tests(mutant):
            total += line_map.seconds[test]
            if tests and total > options.seconds:
                break
            tests.append(test)
        request = {"mutant": asdict(mutant), "tests": tests, "first": options.first, "test_seconds": 60}
        if tests:
            shards[number % options.workers].append(request)
        else:
            results.append({"mutant": asdict(mutant), "killers": [], "is_executed": False})
    processes, outputs = [], []
    for number, shard in enumerate(shards):
        python = make_copy(folder / str(number))
        requests, output = folder / f"requests-{number}", folder / f"results-{number}"
        requests.write_text("".join(json.dumps(request) + "\n" for request in shard), encoding="utf-8")
        outputs.append(output)
        files = sorted({test.partition("::")[0] for request in shard for test in request["tests"]})
        variables = {REQUESTS: str(requests), RESULTS: str(output)}
        processes.append(start_pytest(python, *files, **variables))
    until = time.monotonic() + options.minutes * 60
    try:
        while time.monotonic() < until and any(process.poll() is None for process in processes):
            time.sleep(1)
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for output in outputs:
        if not output.exists():
            raise SystemExit(f"mutants: pytest tested nothing:\n{(output.parent / '0/output').read_text()}")
        results += map(json.loads, output.read_text(encoding="utf-8").splitlines())
    return results


def print_report(results: Sequence[dict[str, Any]]) -> None:
    """Shares by package, survivors, and the tests that alone detect a change."""
    by_package: dict[str, list[bool]] = defaultdict(list)
    for result in results:
        for name in (Mutant(**result["mutant"]).package, "whole program"):
            by_package[name].append(bool(result["killers"]))
    for package, kills in sorted(by_package.items()):
        print(f"{package:20} {sum(kills):4} of {len(kills):4}  {sum(kills) / len(kills):4.0%}")
    for result in results:
        mutant = result["mutant"]
        if not result["killers"]:
            note = "" if result.get("is_executed", True) else " (no recorded test executes it)"
            print(f"\n{mutant['path']}:{mutant['line']}: {mutant['kind']}{note}")
            print(f"  - {mutant['before']}\n  + {mutant['after']}")
    only = Counter(result["killers"][0] for result in results if len(result["killers"]) == 1)
    print(f"\n{len(only)} tests detect a change that no other test detects.")


def main() -> None:
    """Record the tests, or draw a sample, test it, and print the report. Survivors are not an error."""
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--record", nargs="+", metavar="FOLDER", help="record which tests execute which line")
    add("--seed", type=int, default=1, help="which sample to draw (default: 1)")
    add("--count", type=int, default=50, help="number of changes (default: 50)")
    add("--package", action="append", default=[], help="only this package; may be repeated")
    add("--seconds", type=float, default=20, help="recorded time of the tests of a change (default: 20)")
    add("--minutes", type=float, default=60, help="time limit for the whole sample (default: 60)")
    add("--first", action="store_true", help="stop testing a change when a test detects it")
    add("--workers", type=int, default=2, help="parallel processes (default: 2)")
    add("--json", type=Path, help="file for the result of each change, with all tests that detect it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        if options.record:
            record(Path(folder).resolve(), options.record, options.workers)
            return
        sample = draw_sample(ROOT, seed=options.seed, count=options.count, packages=options.package)
        results = test_sample(Path(folder).resolve(), sample, options)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(f"{len(results)} of {len(sample)} sampled changes were tested.")
    print_report(results)


if __name__ == "__main__":
    # Terminated is as interrupted: no test process and no temporary folder remain.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
