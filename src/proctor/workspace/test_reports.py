"""Results of tests: how a command is made to report them by test ID, how its report is read and graded.

A runner that reports nothing has no results, whatever its exit code: a program that ends the test process
early with 0 proves nothing. A command of an unknown runner has one test, the command, decided by its exit
code. Reward files, which checks of other formats write in place of a report, are read here too.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from proctor.formatting import clipped
from proctor.json_values import as_list, as_map, as_number, as_text, maps_in, parse_json
from proctor.workspace import beneath

Status = Literal["passed", "failed", "skipped"]
Results = dict[str, Status]
"""The status of each test, by ID."""
COMMAND = "command"
"""The runner of a command that only has an exit code, and the ID of its one test."""
REPORT_VARIABLE = "PROCTOR_TEST_REPORT"
"""Names the file that the command of a check writes its JUnit report to."""
REWARD_VARIABLE = "PROCTOR_VERIFIER_LOGS"
"""Names the folder for `reward.txt` or `reward.json`."""
MOST_REPORT_BYTES = 64 * 1024 * 1024
SHOWN_TESTS = 5
_SEVERITY: Mapping[Status, int] = {"passed": 0, "skipped": 1, "failed": 2}

_UNITTEST = """\
import json, sys, unittest
report, arguments = sys.argv[1], sys.argv[2:]
sys.path.insert(0, "")
statuses = {}

class Result(unittest.TextTestResult):
    def note(self, test, status):
        name = test.id()
        if statuses.get(name) != "failed":
            statuses[name] = status

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed")

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.note(test, "skipped")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "failed")

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, "failed")

runner = unittest.TextTestRunner(resultclass=Result)
program = unittest.main(module=None, argv=["unittest", *arguments], testRunner=runner, exit=False)
with open(report, "w") as file:
    json.dump(statuses, file)
sys.exit(not program.result.wasSuccessful())
"""
"""Runs unittest and writes the status of each test as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingRunner:
    """A program that runs tests and can report them by ID."""

    name: str
    pattern: str
    """Regular expression of the part of a command that starts it."""
    report: Callable[[str, Path], str]
    """The command that also writes a report to this file."""
    read: Callable[[str], Iterable[tuple[str, Status]]]
    """The tests of a report; the same ID may come more than once."""
    takes: Literal["files", "folders", ""] = ""
    """What a command may be given to run only these tests; empty: it runs all."""
    everything: str = ""
    """The argument for all tests, which chosen ones replace."""


def runner_of(command: str) -> ReportingRunner | None:
    """The runner that a command starts; None: only its exit code is known."""
    return next((each for each in RUNNERS if re.search(each.pattern, command)), None)


def restricted(command: str, files: Sequence[str]) -> str:
    """The command for the tests in these files only, where its runner can be given them.

    `{tests}` in a command stands for the files.
    """
    if "{tests}" in command:
        return command.replace("{tests}", shlex.join(files))
    runner = runner_of(command)
    tests = _arguments(runner.takes, files) if runner else []
    if runner is None or not tests:
        return command
    if runner.everything:
        words = command.split()
        if runner.everything not in words:
            return command
        command = " ".join(word for word in words if word != runner.everything)
    return f"{command} {shlex.join(tests)}"


def _arguments(takes: str, files: Sequence[str]) -> list[str]:
    code = [file for file in files if not file.endswith((".snap", ".json", ".txt", ".md", ".toml", ".yaml"))]
    match takes:
        case "files":
            # Helpers beside Python tests contain none; with nothing but these, all tests run.
            tests = r"(.*/)?(test_[^/]*|[^/]*_test|tests)\.py|.*\.[cm]?[jt]sx?"
            return [file for file in code if re.fullmatch(tests, file)]
        case "folders":
            return sorted({f"./{Path(file).parent.as_posix()}" for file in code if file.endswith(".go")})
    return []


def with_report(command: str, report: Path) -> str:
    """The command that also writes a report to this file; the same for a runner without one."""
    runner = runner_of(command)
    return runner.report(command, report) if runner else command


def read_results(command: str, report: Path, exit_code: int) -> Results:
    """The results of a command that has ended. Empty: it wrote no report that can be read."""
    runner = runner_of(command)
    if runner is None:
        return {COMMAND: "passed" if exit_code == 0 else "failed"}
    return _read_report(report, runner.read)[0]


def read_junit(report: Path) -> tuple[Results, str]:
    """The results in a JUnit report or a log of unittest, Django, or sympy; and what is wrong with it."""
    return _read_report(report, _read_junit_or_log)


def _read_junit_or_log(text: str) -> Iterator[tuple[str, Status]]:
    if not re.search(r"^=+ test process starts =+$|^test\w* \([\w.]+\)", text, re.MULTILINE):
        yield from _read_junit(text)
    elif "test process starts" in text:
        yield from _read_sympy_log(text)
    else:
        yield from _read_unittest_log(text)


_LOG_STATUSES: Mapping[str, Status] = {
    "ok": "passed",
    "FAIL": "failed",
    "ERROR": "failed",
    "skipped": "skipped",
    "expected failure": "skipped",
    "unexpected success": "failed",
}


def _read_unittest_log(text: str) -> Iterator[tuple[str, Status]]:
    """Tests of `unittest -v` and Django's `runtests.py --verbosity 2`: `test_a (pkg.Case) ... ok`.

    A test with a docstring has its first line as another ID, as in rows of SWE-bench. What a test prints is
    between its name and its status, which then is at the start of a line.
    """
    names = list[str]()
    for line in text.splitlines():
        if summary := re.match(r"(?:FAIL|ERROR): (test\w* \([\w.]+\))", line):
            # Of subtests, too.
            yield summary[1], "failed"
            continue
        if begin := re.match(r"\s*(test\w* \([\w.]+\))", line):
            names = [begin[1]]
        elif names and " ... " in line:
            names.append(line.partition(" ... ")[0].strip())
        end = re.search(
            r"(?:^| \.\.\. )(ok|FAIL|ERROR|skipped|expected failure|unexpected success)(?: ['\"].*)?$", line
        )
        if names and end:
            yield from ((name, _LOG_STATUSES[end[1]]) for name in names)
            names = []


def _read_sympy_log(text: str) -> Iterator[tuple[str, Status]]:
    """Tests of sympy's `bin/test --verbose`: `test_a ok`, `test_b F`, `test_c reason s`."""
    statuses: Mapping[str, Status] = {
        "ok": "passed", "F": "failed", "E": "failed", "X": "passed", "f": "skipped", "s": "skipped"
    }  # fmt: skip
    name = ""
    for line in text.splitlines():
        words = re.sub(r"\s+\[(?:OK|FAIL)\]$", "", line).split()
        if re.match(r"test_\w+(\s|$)", line):
            name = words[0]
        if name and words and words[-1] in statuses and (len(words) > 1 or line[:1] != " "):
            yield name, statuses[words[-1]]
            name = ""


def _read_report(report: Path, read: Callable[[str], Iterable[tuple[str, Status]]]) -> tuple[Results, str]:
    """The results in a report, and why there are none. The programs under test can write the file."""
    data = beneath.read(Path("/"), report.relative_to("/"), MOST_REPORT_BYTES + 1)
    if (data is None and report.is_symlink()) or len(data or b"") > MOST_REPORT_BYTES:
        return {}, "the test report is a link or too large"
    if data is None:
        return {}, "the tests wrote no report"
    text = data.decode("utf-8", "replace")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return {}, "the test report declares entities"
    results = Results()
    try:
        for name, status in read(text):
            if name not in results or _SEVERITY[status] > _SEVERITY[results[name]]:
                results[name] = status
    except RecursionError:
        return {}, "the test report is nested too deeply"
    except (ValueError, KeyError, ElementTree.ParseError) as error:
        return {}, f"the test report is incomplete: {error}"
    return results, ""


def _quoted(report: Path) -> str:
    return shlex.quote(str(report))


def _report_pytest(command: str, report: Path) -> str:
    own = f"-p no:cacheprovider -o junit_family=xunit1 --junitxml={_quoted(report)}"
    return f"{command} {own}"


def _read_junit(text: str) -> Iterator[tuple[str, Status]]:
    for case in ElementTree.fromstring(text).iter("testcase"):
        file, group, name = case.get("file", ""), case.get("classname", ""), case.get("name", "")
        module = file.removesuffix(".py").replace("/", ".")
        classes = group.removeprefix(module).strip(".") if module else group
        yield "::".join(part for part in (file, *classes.split("."), name) if part), _junit_status(case)


def _junit_status(case: ElementTree.Element) -> Status:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def _report_unittest(command: str, report: Path) -> str:
    script = shlex.quote(_UNITTEST)
    return re.sub(r"-m\s+unittest\b", lambda _: f"-c {script} {_quoted(report)}", command, count=1)


def _read_unittest(text: str) -> Iterator[tuple[str, Status]]:
    document = parse_json(text)
    yield from document.items() if isinstance(document, dict) else ()


def _read_jest(text: str) -> Iterator[tuple[str, Status]]:
    document = parse_json(text)
    files = [as_text(suite, "name") for suite in maps_in(document, "testResults")]
    root = _common_folder(files)
    for suite in maps_in(document, "testResults"):
        file = as_text(suite, "name").removeprefix(root)
        cases = maps_in(suite, "assertionResults")
        if not cases:
            yield file, "failed" if as_text(suite, "status") == "failed" else "passed"
        for case in cases:
            titles = [*map(str, as_list(case, "ancestorTitles")), as_text(case, "title")]
            yield " > ".join((file, *titles)), _jest_status(as_text(case, "status"))


def _jest_status(word: str) -> Status:
    return "passed" if word == "passed" else "failed" if word == "failed" else "skipped"


def _common_folder(files: Sequence[str]) -> str:
    """The part of absolute paths up to the folder that is a test folder or holds them all."""
    for mark in ("/tests/", "/test/", "/__tests__/", "/src/", "/packages/"):
        if files and all(mark in file for file in files):
            return files[0][: files[0].index(mark) + 1]
    folders = {str(Path(file).parent) for file in files}
    return f"{folders.pop()}/" if len(folders) == 1 else ""


def _report_mocha(command: str, report: Path) -> str:
    own, printed = _quoted(report), _quoted(report.with_name(f"{report.name}.out"))
    # Before version 9.2, the option `output` is not known: the report is printed.
    return (
        f"{command} --reporter json --reporter-option output={own} > {printed}; code=$?; "
        f"[ -s {own} ] || mv -f {printed} {own}; exit $code"
    )


def _read_mocha(text: str) -> Iterator[tuple[str, Status]]:
    # Programs under test may print something before and after it.
    begin = re.search(r'\{\s*"stats"\s*:', text)
    document, _ = json.JSONDecoder().raw_decode(text, begin.start() if begin else 0)
    for part, status in (("passes", "passed"), ("pending", "skipped"), ("failures", "failed")):
        for case in maps_in(document, part):
            word: Status = "passed" if status == "passed" else "skipped" if status == "skipped" else "failed"
            yield as_text(case, "fullTitle"), word


def _report_node(command: str, report: Path) -> str:
    own = f"--test --test-reporter=junit --test-reporter-destination={_quoted(report)}"
    return re.sub(r"--test(?=\s|$)", lambda _: own, command, count=1)


def _read_node(text: str) -> Iterator[tuple[str, Status]]:
    yield from _node_cases(ElementTree.fromstring(text), ())


def _node_cases(parent: ElementTree.Element, names: tuple[str, ...]) -> Iterator[tuple[str, Status]]:
    for element in parent:
        path = (*names, element.get("name", ""))
        if element.tag == "testcase":
            # A file that cannot be loaded is a test of its own, named by its absolute path.
            yield (
                " > ".join(Path(name).name if name.startswith("/") else name for name in path),
                (_junit_status(element)),
            )
        elif element.tag == "testsuite":
            yield from _node_cases(element, path)


def _report_go(command: str, report: Path) -> str:
    return re.sub(r"\bgo test\b", "go test -json -count=1", command, count=1) + f" > {_quoted(report)}"


def _read_go(text: str) -> Iterator[tuple[str, Status]]:
    statuses: Mapping[str, Status] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        event = parse_json(line)
        action, test = as_text(event, "Action"), as_text(event, "Test")
        if action == "run":
            # A panic leaves later tests without an end.
            continue
        if action in statuses and test:
            yield f"{as_text(event, 'Package')}.{test}", statuses[action]


def _report_cargo(command: str, report: Path) -> str:
    return re.sub(r"\bcargo test\b", "cargo test --no-fail-fast", command, count=1) + (
        f" > {_quoted(report)} 2>&1"
    )


def _read_cargo(text: str) -> Iterator[tuple[str, Status]]:
    statuses: Mapping[str, Status] = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
    binary = ""
    for line in text.splitlines():
        if running := re.match(r"\s*Running (?:unittests )?(\S+)", line):
            binary = running[1]
        elif documented := re.match(r"\s*Doc-tests (\S+)", line):
            binary = f"doc {documented[1]}"
        elif result := re.match(r"test (.+?) (?:- should panic )?\.\.\. (ok|FAILED|ignored)\b", line):
            # Line numbers of documentation tests move with every change above them.
            name = re.sub(r" \(line \d+\)", "", result[1])
            yield f"{binary} {name}", statuses[result[2]]


_MAVEN_REPORTS = "find . -path '*/target/*-reports/TEST-*.xml'"


def _report_maven(command: str, report: Path) -> str:
    # Modules write reports of their own; those of an earlier run say nothing about this one.
    collect = f"{_MAVEN_REPORTS} -exec cat {{}} + > {_quoted(report)}"
    return f"{_MAVEN_REPORTS} -delete; {command}; code=$?; {collect}; (exit $code)"


def _read_maven(text: str) -> Iterator[tuple[str, Status]]:
    for part in re.split(r"<\?xml[^>]*\?>", text):
        if part.strip():
            yield from _read_junit(part)


def _report_tape(command: str, report: Path) -> str:
    return f"{command} > {_quoted(report)}"


def _read_tap(text: str) -> Iterator[tuple[str, Status]]:
    """Tests of TAP output: a comment names a test, and the assertions after it are its."""
    name = ""
    for line in text.splitlines():
        if line.startswith("# ") and not re.match(r"# (tests|pass|fail|ok|skip|todo)\b", line):
            name = line.removeprefix("# ")
        elif result := re.match(r"(not )?ok \d+", line):
            is_skipped = re.search(r"# (SKIP|T[O]DO)\b", line)
            yield name, "skipped" if is_skipped else "failed" if result[1] else "passed"


RUNNERS = (
    ReportingRunner(
        name="pytest",
        pattern=r"(^|[\s/])(pytest|py\.test)(\s|$)",
        report=_report_pytest,
        read=_read_junit,
        takes="files",
    ),
    ReportingRunner(
        name="unittest",
        pattern=r"-m\s+unittest\b",
        report=_report_unittest,
        read=_read_unittest,
    ),
    ReportingRunner(
        name="vitest",
        pattern=r"(^|[\s/])vitest(\s|$)",
        report=lambda command, report: f"{command} --reporter=json --outputFile={_quoted(report)}",
        read=_read_jest,
        takes="files",
    ),
    ReportingRunner(
        name="jest",
        pattern=r"(^|[\s/])jest(\.js)?(\s|$)",
        report=lambda command, report: f"{command} --ci --json --outputFile={_quoted(report)}",
        read=_read_jest,
        takes="files",
    ),
    ReportingRunner(
        name="mocha",
        pattern=r"(^|[\s/])_?mocha(\.js)?(\s|$)",
        report=_report_mocha,
        read=_read_mocha,
        takes="files",
    ),
    ReportingRunner(
        name="maven",
        pattern=r"(^|[\s/])mvnw?\s(.*\s)?(test|verify|package|install)(\s|$)",
        report=_report_maven,
        read=_read_maven,
    ),
    ReportingRunner(name="tape", pattern=r"(^|[\s/])tape(\s|$)", report=_report_tape, read=_read_tap),
    ReportingRunner(
        name="node",
        pattern=r"(^|[\s/])node\s(.*\s)?--test(\s|$)",
        report=_report_node,
        read=_read_node,
        takes="files",
    ),
    ReportingRunner(
        name="go",
        pattern=r"\bgo test\b",
        report=_report_go,
        read=_read_go,
        takes="folders",
        everything="./...",
    ),
    ReportingRunner(name="cargo", pattern=r"\bcargo test\b", report=_report_cargo, read=_read_cargo),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a check passed, how far, and why not."""

    passed: bool
    value: float
    """From 0 to 1, or a reward."""
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Results compared with the tests that must pass."""

    fixed: int
    """Tests that failed before the reference solution and pass now."""
    to_fix: int
    kept: int
    """Tests that passed before and still pass."""
    to_keep: int
    missing: tuple[str, ...]
    """IDs of tests that did not pass: failed, skipped or not reported."""

    @property
    def passed(self) -> bool:
        return self.to_fix + self.to_keep > 0 and not self.missing

    @property
    def value(self) -> float:
        """Share of fixed tests times share of kept ones."""
        if not self.to_fix + self.to_keep:
            return 0.0
        share = self.fixed / self.to_fix if self.to_fix else 1.0
        return share * (self.kept / self.to_keep if self.to_keep else 1.0)

    @property
    def summary(self) -> str:
        counts = f"{self.fixed} of {self.to_fix} failing tests pass, {self.kept} of {self.to_keep} others"
        return counts + (f"; not passed: {_listed(self.missing)}" if self.missing else "")

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.passed, self.value, self.summary)


def grade(
    results: Mapping[str, Status],
    fail_to_pass: Sequence[str],
    pass_to_pass: Sequence[str],
    *,
    skipped_is_kept: bool = False,
) -> Grade:
    """Compare results with the tests that must pass.

    With `skipped_is_kept`, a test that passed before may be skipped, as SWE-bench allows.
    """
    passed = {name for name, status in results.items() if status == "passed"}
    skipped = {name for name, status in results.items() if status == "skipped"}
    kept = passed | skipped if skipped_is_kept else passed
    missing = [name for name in fail_to_pass if name not in passed]
    missing += [name for name in pass_to_pass if name not in kept]
    return Grade(
        fixed=len(passed & set(fail_to_pass)),
        to_fix=len(set(fail_to_pass)),
        kept=len(kept & set(pass_to_pass)),
        to_keep=len(set(pass_to_pass)),
        missing=tuple(missing),
    )


def verdict_by_report(
    report: Path, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str], exit_code: int | None
) -> Verdict:
    """Judge a JUnit report. Without named tests, all must pass, at least one, and the exit code be 0."""
    results, problem = read_junit(report)
    if problem:
        return Verdict(False, 0.0, problem)
    if fail_to_pass or pass_to_pass:
        named = _under_names(results, [*fail_to_pass, *pass_to_pass])
        return grade(named, fail_to_pass, pass_to_pass, skipped_is_kept=True).verdict
    failed = [name for name, status in results.items() if status == "failed"]
    ran = [name for name, status in results.items() if status != "skipped"]
    if not ran:
        return Verdict(False, 0.0, "the report names no test that ran")
    if failed:
        explanation = f"{len(failed)} of {len(ran)} tests failed: {_listed(failed)}"
        return Verdict(False, 1 - len(failed) / len(ran), explanation)
    if exit_code != 0:
        return Verdict(False, 1.0, f"no test failed, but the exit code is {exit_code}")
    return Verdict(True, 1.0, f"{len(ran)} tests passed")


def _under_names(results: Results, names: Sequence[str]) -> Results:
    """Results under the names that other tools write for the same tests."""
    plain = {_plain(name): status for name, status in results.items()}
    named = Results()
    for name in names:
        short = _plain(name)
        if short in plain:
            named[name] = plain[short]
        # IDs out of logs are cut at the first blank in a parameter.
        elif "[" in short and not short.endswith("]"):
            statuses = {status for other, status in plain.items() if other.startswith(short)}
            if len(statuses) == 1:
                named[name] = statuses.pop()
    return named


def _plain(name: str) -> str:
    """One form of `tests/a.py::T::m[1]`, `tests.a.T::m[1]`, and unittest's `m (tests.a.T)`."""
    if match := re.fullmatch(r"(\w+) \(([\w.]+)\)", name.strip()):
        owner = match[2].removesuffix(f".{match[1]}")
        return f"{owner}.{match[1]}"
    stem, bracket, parameters = name.strip().partition("[")
    parts = [part.removesuffix(".py").replace("/", ".") for part in stem.split("::")]
    return ".".join(part for part in parts if part) + bracket + parameters


def verdict_by_reward(logs: Path) -> Verdict:
    """Judge by `reward.json` or `reward.txt`; the exit code says nothing."""
    reward = _reward_of(logs)
    if reward is None:
        return Verdict(False, 0.0, "the check wrote no reward")
    return Verdict(reward >= 1, reward, f"reward {reward:g}")


def _reward_of(logs: Path) -> float | None:
    document = _text_of(logs / "reward.json")
    try:
        values = as_map(parse_json(document)) if document else {}
    except ValueError:
        values = {}
    numbers = {name: number for name in values if (number := _number(values[name])) is not None}
    if "reward" in numbers:
        return numbers["reward"]
    text = _text_of(logs / "reward.txt").strip()
    if text:
        try:
            number = float(text)
        except ValueError:
            return None
        # `nan` and `inf` are no rewards: every average with one of them would be neither.
        return number if math.isfinite(number) else None
    return next(iter(numbers.values())) if len(numbers) == 1 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, bool) else as_number(value)


def _text_of(file: Path) -> str:
    data = beneath.read(Path("/"), file.relative_to("/"), MOST_REPORT_BYTES + 1) or b""
    return data.decode("utf-8", "replace") if len(data) <= MOST_REPORT_BYTES else ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_TESTS} more" if len(names) > SHOWN_TESTS else ""
    return clipped(", ".join(names[:SHOWN_TESTS]), 400) + more
