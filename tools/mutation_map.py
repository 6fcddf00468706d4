"""Which tests execute which line: recorded once with `coverage`, read for each mutant.

Recorded are the test process, its forks, and the Python programs that tests start; not programs that are
killed, and not those that start without `site`. Each test file has its own record in `build/mutants/map`,
which names the versions of the test file and of the sources: a later recording repeats only files that are
new or changed, and lines are found again after edits elsewhere in their module.
"""

import ast
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

from mutation_sites import SOURCE, Mutant, mutants_of, read_text
from mutation_tests import TestFiles, TestRun, WorkCopy

FILES_AT_ONCE = 5

RECORDER = '''\
"""Starts `coverage` in each Python process of the work copy.

A process is part of the test that its nearest ancestor runs.
"""

import atexit
import os

import coverage

FOLDER, SOURCE = {folder!r}, {source!r}
exit_at_once = os._exit
recording = None


def start(context):
    global recording
    recording = coverage.Coverage(
        data_file=f"{{FOLDER}}/data", data_suffix=True, include=[f"{{SOURCE}}/*"], config_file=False
    )
    recording._warn_no_data = False
    recording.start()
    recording.switch_context(context)


def save():
    global recording
    if recording is not None:
        ended, recording = recording, None
        try:
            ended.stop()
            ended.save()
        except Exception:
            # Sandboxed processes cannot write here.
            pass


def current_test():
    process = os.getpid()
    while process > 1:
        try:
            with open(f"{{FOLDER}}/current-{{process}}", encoding="utf-8") as file:
                return file.read()
        except OSError:
            pass
        try:
            with open(f"/proc/{{process}}/stat", encoding="utf-8") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            break
    return ""


def after_fork():
    if recording is not None:
        recording.stop()
        start(current_test())


def save_and_exit(code):
    save()
    exit_at_once(code)


start(current_test())
atexit.register(save)
os._exit = save_and_exit
os.register_at_fork(after_in_child=after_fork)
'''

PLUGIN = '''\
"""Pytest plugin: gives the recorder the current test, and records durations.

What a fixture of a wider scope than a test executes, itself or in a process, belongs to all tests of a file.
"""

import os

import mutant_recorder
import pytest


def enter(context):
    path = f"{mutant_recorder.FOLDER}/current-{os.getpid()}"
    with open(path + "~", "w", encoding="utf-8") as file:
        file.write(context)
    os.replace(path + "~", path)
    if mutant_recorder.recording is not None:
        mutant_recorder.recording.switch_context(context)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    enter(item.nodeid)
    result = yield
    enter("")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope == "function":
        return (yield)
    test = mutant_recorder.current_test()
    enter(test.partition("::")[0])
    try:
        return (yield)
    finally:
        enter(test)


def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with open(f"{mutant_recorder.FOLDER}/reports", "a", encoding="utf-8") as file:
            file.write(f"{report.duration} {int(report.failed)} {report.nodeid}\\n")
'''


class LineMap:
    """The tests that execute each line, as far as they were recorded."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "build" / "mutants" / "map"
        self.seconds = dict[str, float]()
        """How long each recorded test took."""
        self.failed = set[str]()
        """Tests that failed while they were recorded."""
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for file in sorted(self.folder.glob("*.json")):
            self._read(json.loads(read_text(file)))

    def _read(self, record: dict[str, Any]) -> None:
        if not (self.root / record["test_file"]).exists():
            return
        tests: list[str] = record["tests"]
        self.seconds |= dict(zip(tests, record["seconds"], strict=True))
        self.failed |= {tests[index] for index in record["failed"]}
        for path, entry in record["sources"].items():
            # Templates are recorded, too: they are compiled to Python.
            if not path.endswith(".py") or not (self.root / path).exists():
                continue
            moved = _moved_lines(self.folder / "sources" / entry["version"], self.root / path)
            for line, indices in entry["lines"].items():
                if int(line) in moved:
                    chosen = tests if indices is None else (tests[index] for index in indices)
                    self._lines[path][moved[int(line)]].update(chosen)

    def unchanged(self) -> dict[str, TestRun]:
        """How the tests ended that passed while they were recorded."""
        passed = self.seconds.keys() - self.failed
        return {test: TestRun(passed=True, seconds=self.seconds[test]) for test in passed}

    def covers(self, mutant: Mutant) -> bool:
        """Whether any test was recorded to execute the mutant's module."""
        return mutant.path in self._lines

    def tests(self, mutant: Mutant, files: TestFiles) -> list[str]:
        """The tests that execute a mutant, quickest first; none where it is never executed.

        Where it is executed by the import of its module: those that execute a function that uses its name.
        """
        lines = self._lines[mutant.path]
        tree = _parsed(read_text(self.root / mutant.path))
        statement = _statement_in_function(tree, mutant.line)
        if statement is None:
            names = files.names(mutant)
            users = [node for node in _functions(tree) if node.name in names or _parent_in(tree, node, names)]
            tests = set[str]().union(*(lines[line] for user in users for line in _lines_of_body(user)))
            tests = tests or set[str]().union(*lines.values())
        else:
            # Not every line of a statement has an instruction of its own.
            tests = lines[mutant.line] or set[str]().union(*(lines[line] for line in statement))
        return sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test))

    def within(self, tests: Sequence[str], seconds: float) -> list[str]:
        """The first of some tests that took so many seconds together, and passed; at least one of them."""
        chosen, total = list[str](), 0.0
        for test in (test for test in tests if test not in self.failed):
            total += self.seconds.get(test, 0.0)
            if chosen and total > seconds:
                break
            chosen.append(test)
        return chosen

    def never_executed(self, packages: Sequence[str]) -> Iterator[Mutant]:
        """A mutant of each line in a function that no test executes, by module and line."""
        for path in sorted(self._lines):
            seen = set[int]()
            text = read_text(self.root / path)
            for mutant in mutants_of(path, text):
                if packages and mutant.package not in packages:
                    break
                statement = _statement_in_function(_parsed(text), mutant.line)
                if statement is None or mutant.line in seen:
                    continue
                if not any(self._lines[path].get(line) for line in (mutant.line, *statement)):
                    seen.add(mutant.line)
                    yield mutant


@cache
def _moved_lines(recorded: Path, present: Path) -> dict[int, int]:
    """The line of today for each line of a recorded version of a source."""
    before, after = (read_text(file).split("\n") for file in (recorded, present))
    if before == after:
        return {line: line for line in range(1, len(after) + 1)}
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return {block.a + offset + 1: block.b + offset + 1 for block in blocks for offset in range(block.size)}


_parsed = cache(ast.parse)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def _parent_in(tree: ast.Module, node: Function, names: Iterable[str]) -> bool:
    """Whether a function is a method of a class that has one of the names."""
    classes = [each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name in names]
    return any(node in each.body for each in classes)


def _lines_of_body(function: Function) -> range:
    return range(function.body[0].lineno, (function.end_lineno or function.lineno) + 1)


def _statement_in_function(tree: ast.Module, line: int) -> range | None:
    """The lines of the innermost statement at a line, without its nested ones; None outside functions."""
    return _statements(tree).get(line)


@cache
def _statements(tree: ast.Module) -> dict[int, range]:
    """By line in the body of a function."""
    in_functions = {line for function in _functions(tree) for line in _lines_of_body(function)}
    innermost = {line: range(line, line + 1) for line in in_functions}
    for node in ast.walk(tree):
        # Outer nodes come first.
        if isinstance(node, ast.stmt) and node.lineno in in_functions:
            body = getattr(node, "body", None)
            end = body[0].lineno if isinstance(body, list) and body else (node.end_lineno or node.lineno) + 1
            lines = range(node.lineno, max(end, node.lineno + 1))
            innermost |= dict.fromkeys(lines, lines)
    return innermost


# --- Recording ---


def record(root: Path, copy: WorkCopy, tests: Sequence[str], *, options: Sequence[str], until: float) -> None:
    """Record tests that have no record yet: all, or those of some files and folders, in this order."""
    folder = root / "build" / "mutants" / "map"
    (folder / "sources").mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[str]] = defaultdict(list)
    for test in tests or ("tests",):
        for file in TestFiles(copy.tree).files:
            if f"{file}/".startswith(f"{test.rstrip('/')}/") and not _is_recorded(folder, copy.tree, file):
                groups[file.rpartition("/")[0]].append(file)
    recordings = copy.folder / "recordings"
    (site_packages,) = copy.venv.glob("lib/python*/site-packages")
    recorder = RECORDER.format(folder=str(recordings), source=str(copy.tree / SOURCE))
    (site_packages / "mutant_recorder.py").write_text(recorder, encoding="utf-8")
    (site_packages / "mutant_map_plugin.py").write_text(PLUGIN, encoding="utf-8")
    with (site_packages / "mutants.pth").open("a", encoding="utf-8") as pth:
        pth.write("import mutant_recorder\n")
    # Tests of a file share servers.
    options = [*options, "--dist=loadfile"] if copy.workers > 1 else options
    for name, group in _parts(groups):
        recordings.mkdir()
        run = copy.run(group, "-p", "mutant_map_plugin", *options, until=until)
        print(f"{name}: {len(group)} files, {run.seconds:.0f} s of tests{_note(run)}", flush=True)
        if run.is_stopped:
            break
        _write_records(folder, copy, recordings, group)
        shutil.rmtree(recordings)


def _parts(groups: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Small groups of files, so that what was recorded before an interruption stays."""
    for name, files in groups.items():
        for first in range(0, len(files), FILES_AT_ONCE):
            yield name, files[first : first + FILES_AT_ONCE]


def _note(run: TestRun) -> str:
    if run.is_stopped:
        return "; stopped"
    return f"; failed: {', '.join(run.failures)}" if run.failures else ""


def _version(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _record_file(folder: Path, test_file: str) -> Path:
    return folder / (test_file.replace("/", ".") + ".json")


def _is_recorded(folder: Path, root: Path, test_file: str) -> bool:
    file = _record_file(folder, test_file)
    return file.exists() and json.loads(read_text(file))["version"] == _version(root / test_file)


def _write_records(folder: Path, copy: WorkCopy, recordings: Path, test_files: Sequence[str]) -> None:
    from coverage import CoverageData

    lines: dict[str, dict[str, dict[int, set[str]]]] = {file: {} for file in test_files}
    """By test file, source, and line: the tests, or the file itself."""
    for data_file in recordings.glob("data.*"):
        data = CoverageData(str(data_file))
        try:
            data.read()
        except Exception:
            # Its process was killed while it wrote.
            continue
        for path in data.measured_files():
            source = str(Path(path).relative_to(copy.tree))
            for line, contexts in data.contexts_by_lineno(path).items():
                for context in contexts:
                    by_source = lines.get(context.partition("::")[0])
                    if by_source is not None:
                        by_source.setdefault(source, {}).setdefault(line, set()).add(context)
        data.close()
    seconds, failed = defaultdict[str, float](float), set[str]()
    for report in read_text(recordings / "reports").splitlines():
        duration, is_failed, test = report.split(" ", 2)
        seconds[test] += float(duration)
        failed |= {test} if is_failed == "1" else set()
    versions = {source: _version(copy.tree / source) for sources in lines.values() for source in sources}
    for source, version in versions.items():
        shutil.copyfile(copy.tree / source, folder / "sources" / version)
    for test_file, sources in lines.items():
        tests = sorted(test for test in seconds if test.partition("::")[0] == test_file)
        numbers = {test: index for index, test in enumerate(tests)}
        entries = {
            source: {
                "version": versions[source],
                "lines": {
                    str(line): None
                    if test_file in contexts
                    else sorted(numbers[test] for test in contexts if test in numbers)
                    for line, contexts in sorted(by_line.items())
                },
            }
            for source, by_line in sources.items()
        }
        written = {
            "test_file": test_file,
            "version": _version(copy.tree / test_file),
            "tests": tests,
            "seconds": [round(seconds[test], 3) for test in tests],
            "failed": sorted(numbers[test] for test in failed if test in numbers),
            "sources": entries,
        }
        _record_file(folder, test_file).write_text(json.dumps(written), encoding="utf-8")
