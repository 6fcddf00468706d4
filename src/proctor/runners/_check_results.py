"""Verdicts on checks of a task: by exit code, by a JUnit report of test ids, or by a reward file.

A report must exist and name every expected test: a program that ends itself with exit code 0 before its tests
have run leaves none, and fails.
"""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.formatting import clipped
from proctor.json_values import as_map, as_number, parse_json

REPORT_VARIABLE = "PROCTOR_TEST_REPORT"
"""Names the file that the command of a check writes its JUnit report to."""
REWARD_VARIABLE = "PROCTOR_VERIFIER_LOGS"
"""Names the folder for `reward.txt` or `reward.json`."""
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
MOST_REPORT_BYTES = 64 * 1024 * 1024
SHOWN_TESTS = 5


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """Whether a check passed, how far, and why not."""

    passed: bool
    value: float
    explanation: str


def verdict_by_tests(
    report: Path, fail_to_pass: Sequence[str], pass_to_pass: Sequence[str], exit_code: int | None
) -> CheckVerdict:
    """Judge a JUnit report. Without named tests, all must pass, at least one, and the exit code be 0."""
    outcomes, problem = read_junit(report)
    if problem:
        return CheckVerdict(False, 0.0, problem)
    if not fail_to_pass and not pass_to_pass:
        failed = [name for name, outcome in outcomes.items() if outcome == FAILED]
        ran = [name for name, outcome in outcomes.items() if outcome != SKIPPED]
        if not ran:
            return CheckVerdict(False, 0.0, "the report names no test that ran")
        value = 1 - len(failed) / len(ran)
        if failed or exit_code != 0:
            why = f"{len(failed)} of {len(ran)} tests failed: {_listed(failed)}" if failed else ""
            return CheckVerdict(False, value, why or f"no test failed, but the exit code is {exit_code}")
        return CheckVerdict(True, 1.0, f"{len(ran)} tests passed")
    index = _Index(outcomes)
    # A skipped test proves nothing new, but does not break what worked.
    missing = [name for name in fail_to_pass if index.outcome(name) != PASSED]
    broken = [name for name in pass_to_pass if index.outcome(name) not in (PASSED, SKIPPED)]
    solved = 1 - len(missing) / len(fail_to_pass) if fail_to_pass else 1.0
    intact = 1 - len(broken) / len(pass_to_pass) if pass_to_pass else 1.0
    parts = []
    if missing:
        parts.append(f"{len(missing)} of {len(fail_to_pass)} tests to fix do not pass: {_listed(missing)}")
    if broken:
        parts.append(f"{len(broken)} of {len(pass_to_pass)} tests broke: {_listed(broken)}")
    total = len(fail_to_pass) + len(pass_to_pass)
    return CheckVerdict(not parts, solved * intact, "; ".join(parts) or f"all {total} named tests pass")


class _Index:
    """Outcomes of tests, found under the ids that other tools write."""

    def __init__(self, outcomes: Mapping[str, str]) -> None:
        self._outcomes = {_plain(name): outcome for name, outcome in outcomes.items()}

    def outcome(self, test: str) -> str:
        """The outcome of a test; empty: it is not in the report."""
        plain = _plain(test)
        if plain in self._outcomes:
            return self._outcomes[plain]
        # Ids out of logs are cut at the first blank in a parameter.
        if "[" in plain and not plain.endswith("]"):
            candidates = {outcome for name, outcome in self._outcomes.items() if name.startswith(plain)}
            return candidates.pop() if len(candidates) == 1 else ""
        return ""


def _plain(name: str) -> str:
    """One form of `tests/a.py::T::m[1]`, `tests.a.T::m[1]`, and unittest's `m (tests.a.T)`."""
    if match := re.fullmatch(r"(\w+) \(([\w.]+)\)", name.strip()):
        owner = match[2].removesuffix(f".{match[1]}")
        return f"{owner}.{match[1]}"
    stem, bracket, parameters = name.strip().partition("[")
    parts = [part.removesuffix(".py").replace("/", ".") for part in stem.split("::")]
    return ".".join(part for part in parts if part) + bracket + parameters


def read_junit(report: Path) -> tuple[dict[str, str], str]:
    """The outcome of each test in a report, and what is wrong with the report."""
    try:
        if report.is_symlink() or report.stat().st_size > MOST_REPORT_BYTES:
            return {}, "the test report is a link or too large"
        text = report.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}, "the tests wrote no report"
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return {}, "the test report declares entities"
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return {}, f"the test report is incomplete: {error}"
    outcomes: dict[str, str] = {}
    for case in root.iter("testcase"):
        owner, name = case.get("classname", ""), case.get("name", "")
        parts = {child.tag for child in case}
        outcome = FAILED if parts & {"failure", "error"} else SKIPPED if "skipped" in parts else PASSED
        key = f"{owner}::{name}" if owner else name
        if key not in outcomes or outcome == FAILED:
            outcomes[key] = outcome
    return outcomes, ""


def verdict_by_reward(logs: Path) -> CheckVerdict:
    """Judge by `reward.json` or `reward.txt`; the exit code says nothing."""
    reward = _reward_of(logs)
    if reward is None:
        return CheckVerdict(False, 0.0, "the check wrote no reward")
    return CheckVerdict(reward >= 1, reward, f"reward {reward:g}")


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
            return float(text)
        except ValueError:
            return None
    return next(iter(numbers.values())) if len(numbers) == 1 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return float(value)
    return as_number(value)


def _text_of(file: Path) -> str:
    try:
        if file.is_symlink() or file.stat().st_size > MOST_REPORT_BYTES:
            return ""
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN_TESTS} more" if len(names) > SHOWN_TESTS else ""
    return clipped(", ".join(names[:SHOWN_TESTS]), 400) + more
